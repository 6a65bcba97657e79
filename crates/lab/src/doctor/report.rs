//! The result of a diagnosis, as Markdown and as JSON.

use serde_json::{Map, Value, json};

use super::check::{CheckResult, DoctorCheck, DoctorFinding, findings};

/// A fault that is planted to show that it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedFault {
    /// The norm before the head is left out where drafts leave the model.
    Norm,
    /// A rollback leaves one position too many.
    Rollback,
    /// The engine books half of a draft's cost.
    Cost,
    /// The prompts are of a kind that neither tuning nor training saw.
    Domain,
}

impl PlantedFault {
    /// The cause that a finding of it names.
    pub fn name(self) -> &'static str {
        match self {
            PlantedFault::Norm => "norm",
            PlantedFault::Rollback => "rollback",
            PlantedFault::Cost => "cost",
            PlantedFault::Domain => "domain",
        }
    }
}

/// The result of a diagnosis.
#[derive(Debug, Clone)]
pub struct DoctorReport {
    /// The drafter that was examined, in words.
    pub drafter: String,
    /// Prompts that ran.
    pub prompts: usize,
    /// Most tokens of an answer.
    pub max_tokens: usize,
    /// The fault that was planted.
    pub planted: Option<PlantedFault>,
    /// The checks, those of correctness first.
    pub checks: Vec<DoctorCheck>,
}

impl DoctorReport {
    /// Whether nothing is wrong.
    pub fn healthy(&self) -> bool {
        self.checks.iter().all(|check| check.result != CheckResult::Fault)
    }

    /// Whether the planted fault is the first finding; none if no fault was planted.
    pub fn found(&self) -> Option<bool> {
        let first = self.findings().next().filter(|(result, _)| *result == CheckResult::Fault);
        self.planted.map(|planted| first.is_some_and(|(_, finding)| finding.cause == planted.name()))
    }

    /// Findings, faults first.
    pub fn findings(&self) -> impl Iterator<Item = (CheckResult, &DoctorFinding)> {
        findings(&self.checks)
    }

    /// A line for each check, then the findings. `model` names the model in the heading.
    pub fn markdown(&self, model: &str) -> String {
        let planted =
            self.planted.map_or_else(String::new, |fault| format!(", with a fault planted: {}", fault.name()));
        let mut text = format!(
            "{model}: drafts of {}, {} prompts, up to {} tokens each, temperature 0{planted}\n\n",
            self.drafter, self.prompts, self.max_tokens
        );
        for check in &self.checks {
            // A finding stands below, with its figures.
            let words = if check.finding.is_some() { "see below" } else { &check.words };
            text += &format!("- {}: {}; {words}\n", check.name, check.result.name());
        }
        for (result, finding) in self.findings() {
            text += &format!(
                "\n**{}: {}**\n- symptom: {}\n- cause: {}\n- remedy: {}\n",
                result.name(),
                finding.cause,
                finding.symptom,
                finding.words,
                finding.remedy
            );
        }
        let faults = self.checks.iter().filter(|c| c.result == CheckResult::Fault).count();
        text + &match faults {
            0 => "\nNothing is wrong.\n".to_owned(),
            1 => "\nOne fault.\n".to_owned(),
            n => format!("\n{n} faults.\n"),
        }
    }

    /// The result as one object. The keys are an interface that others rely on. `model` names the
    /// model in it.
    pub fn json(&self, model: &str) -> Value {
        let found = self.findings().map(|(result, f)| {
            json!({
                "kind": result.name().to_lowercase(),
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
                let mut object = json!({"result": c.result.name().to_lowercase(), "words": c.words});
                c.figures.iter().for_each(|(key, value)| object[key] = value.clone());
                (c.name.to_owned(), object)
            })
            .collect();
        json!({
            "model": model,
            "drafter": self.drafter,
            "prompts": self.prompts,
            "max_tokens": self.max_tokens,
            "planted": self.planted.map(PlantedFault::name),
            "found": self.found(),
            "healthy": self.healthy(),
            "findings": found.collect::<Vec<_>>(),
            "checks": checks,
        })
    }
}
