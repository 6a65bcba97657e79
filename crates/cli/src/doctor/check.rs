//! What a check comes to: a verdict with its figures, and where something is wrong, symptom, cause and remedy.

use serde_json::{Map, Value};

/// What a check comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// As it should be.
    Fine,
    /// Nothing is wrong, but there is something to know.
    Note,
    /// Something is wrong.
    Fault,
    /// It could not be checked, or means nothing as things are.
    Open,
}

impl Verdict {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Verdict::Fine => "ok",
            Verdict::Note => "note",
            Verdict::Fault => "FAULT",
            Verdict::Open => "not checked",
        }
    }
}

/// What is wrong, or worth knowing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Finding {
    /// A word for programs.
    pub(crate) cause: &'static str,
    /// What the user sees of it.
    pub(crate) symptom: String,
    /// The cause, with the figures that show it.
    pub(crate) words: String,
    pub(crate) remedy: String,
}

/// One check.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) verdict: Verdict,
    /// What was found, with the figures, in a sentence.
    pub(crate) words: String,
    pub(crate) figures: Map<String, Value>,
    pub(crate) finding: Option<Finding>,
}

impl Check {
    fn new(name: &'static str, verdict: Verdict, words: impl Into<String>) -> Self {
        Check { name, verdict, words: words.into(), figures: Map::new(), finding: None }
    }

    pub(crate) fn fine(name: &'static str, words: impl Into<String>) -> Self {
        Check::new(name, Verdict::Fine, words)
    }

    pub(crate) fn open(name: &'static str, why: impl Into<String>) -> Self {
        Check::new(name, Verdict::Open, why)
    }

    pub(crate) fn fault(name: &'static str, finding: Finding) -> Self {
        Check { finding: Some(finding.clone()), ..Check::new(name, Verdict::Fault, finding.words) }
    }

    pub(crate) fn note(name: &'static str, finding: Finding) -> Self {
        Check { finding: Some(finding.clone()), ..Check::new(name, Verdict::Note, finding.words) }
    }

    /// The check with a figure more.
    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.figures.insert(key.to_owned(), value.into());
        self
    }
}

/// Takes back what says nothing as long as drafting itself is wrong: acceptance and speed follow from it. `correct` is the number of checks of
/// correctness, which come first.
pub(crate) fn settle(checks: &mut [Check], correct: usize) {
    let (correctness, others) = checks.split_at_mut(correct);
    let Some(wrong) = correctness.iter().find(|c| c.verdict == Verdict::Fault) else { return };
    for check in others.iter_mut().filter(|c| matches!(c.verdict, Verdict::Fault | Verdict::Note)) {
        check.verdict = Verdict::Open;
        check.words = format!("means nothing before the fault of `{}` is gone: {}", wrong.name, check.words);
        check.finding = None;
    }
}

/// Findings in the order in which they are told: faults first, each kind in the order of the checks.
pub(crate) fn findings(checks: &[Check]) -> impl Iterator<Item = (Verdict, &Finding)> {
    let of = |verdict| checks.iter().filter(move |c| c.verdict == verdict);
    let all = of(Verdict::Fault).chain(of(Verdict::Note));
    all.filter_map(|check| Some((check.verdict, check.finding.as_ref()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(cause: &'static str) -> Finding {
        Finding { cause, symptom: "s".to_owned(), words: "w".to_owned(), remedy: "r".to_owned() }
    }

    #[test]
    fn faults_are_told_before_notes_and_a_wrong_engine_before_all_else() {
        let mut checks = vec![
            Check::fine("rollback", "fine"),
            Check::note("acceptance", finding("acceptance")),
            Check::fault("cost", finding("cost")),
        ];
        let causes = |checks: &[Check]| findings(checks).map(|(_, f)| f.cause).collect::<Vec<_>>();
        settle(&mut checks, 1);
        assert_eq!(causes(&checks), ["cost", "acceptance"]);
        checks[0] = Check::fault("rollback", finding("rollback"));
        settle(&mut checks, 1);
        assert_eq!(causes(&checks), ["rollback"]);
        assert!(checks[2].verdict == Verdict::Open && checks[2].words.contains("`rollback`"), "{checks:?}");
    }
}
