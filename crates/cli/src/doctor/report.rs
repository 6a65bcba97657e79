//! What `doctor` prints.

use serde_json::{Map, Value, json};

use super::check::{Check, Verdict, findings};

/// What was examined, and what came of it.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    pub(crate) model: &'a str,
    pub(crate) drafter: String,
    pub(crate) prompts: usize,
    pub(crate) max_tokens: usize,
    pub(crate) planted: Option<&'static str>,
    pub(crate) checks: Vec<Check>,
}

impl Report<'_> {
    /// Whether nothing is wrong.
    pub(crate) fn healthy(&self) -> bool {
        self.checks.iter().all(|check| check.verdict != Verdict::Fault)
    }

    /// Whether the planted fault is the first that is named.
    pub(crate) fn found(&self) -> Option<bool> {
        let first = findings(&self.checks).next().filter(|(verdict, _)| *verdict == Verdict::Fault);
        self.planted.map(|planted| first.is_some_and(|(_, finding)| finding.cause == planted))
    }

    pub(crate) fn markdown(&self) -> String {
        let planted = self.planted.map_or_else(String::new, |fault| format!(", with a fault planted: {fault}"));
        let mut text = format!(
            "{}: drafts of {}, {} prompts, up to {} tokens each, temperature 0{planted}\n\n",
            self.model, self.drafter, self.prompts, self.max_tokens
        );
        for check in &self.checks {
            // A finding is told below, with its figures.
            let words = if check.finding.is_some() { "see below" } else { &check.words };
            text += &format!("- {}: {}; {words}\n", check.name, check.verdict.name());
        }
        for (verdict, finding) in findings(&self.checks) {
            text += &format!(
                "\n**{}: {}**\n- symptom: {}\n- cause: {}\n- remedy: {}\n",
                verdict.name(),
                finding.cause,
                finding.symptom,
                finding.words,
                finding.remedy
            );
        }
        let faults = self.checks.iter().filter(|c| c.verdict == Verdict::Fault).count();
        text + &match faults {
            0 => "\nNothing is wrong.\n".to_owned(),
            1 => "\nOne fault.\n".to_owned(),
            n => format!("\n{n} faults.\n"),
        }
    }

    pub(crate) fn json(&self) -> Value {
        let found = findings(&self.checks).map(|(verdict, f)| {
            json!({
                "kind": verdict.name().to_lowercase(),
                "cause": f.cause,
                "symptom": f.symptom,
                "words": f.words,
                "remedy": f.remedy,
            })
        });
        let checks: Map<String, Value> = self
            .checks
            .iter()
            .map(|c| {
                let mut object = json!({"result": c.verdict.name().to_lowercase(), "words": c.words});
                c.figures.iter().for_each(|(key, value)| object[key] = value.clone());
                (c.name.to_owned(), object)
            })
            .collect();
        json!({
            "model": self.model,
            "drafter": self.drafter,
            "prompts": self.prompts,
            "max_tokens": self.max_tokens,
            "planted": self.planted,
            "found": self.found(),
            "healthy": self.healthy(),
            "findings": found.collect::<Vec<_>>(),
            "checks": checks,
        })
    }
}
