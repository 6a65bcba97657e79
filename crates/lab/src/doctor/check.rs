//! A check: its result with the figures, and if something is wrong, symptom, cause and remedy.

use serde_json::{Map, Value};

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckResult {
    /// Nothing is wrong.
    Fine,
    /// Nothing is wrong, but there is something to know.
    Note,
    /// Something is wrong.
    Fault,
    /// It could not be checked, or says nothing because of another fault.
    NotChecked,
}

impl CheckResult {
    /// `ok`, `note`, `FAULT` or `not checked`.
    pub fn name(self) -> &'static str {
        match self {
            CheckResult::Fine => "ok",
            CheckResult::Note => "note",
            CheckResult::Fault => "FAULT",
            CheckResult::NotChecked => "not checked",
        }
    }
}

/// A fault, or something worth knowing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoctorFinding {
    /// The cause, a word for programs.
    pub cause: &'static str,
    /// What the user sees of it.
    pub symptom: String,
    /// The cause in words, with the figures that show it.
    pub words: String,
    /// What to do about it.
    pub remedy: String,
}

/// One check.
#[derive(Debug, Clone, PartialEq)]
pub struct DoctorCheck {
    /// Its name.
    pub name: &'static str,
    /// Its result.
    pub result: CheckResult,
    /// The result in a sentence, with the figures.
    pub words: String,
    /// The figures by name.
    pub figures: Map<String, Value>,
    /// Symptom, cause and remedy, of a fault or a note.
    pub finding: Option<DoctorFinding>,
}

impl DoctorCheck {
    fn new(name: &'static str, result: CheckResult, words: impl Into<String>) -> Self {
        DoctorCheck { name, result, words: words.into(), figures: Map::new(), finding: None }
    }

    pub(crate) fn fine(name: &'static str, words: impl Into<String>) -> Self {
        DoctorCheck::new(name, CheckResult::Fine, words)
    }

    pub(crate) fn not_checked(name: &'static str, why: impl Into<String>) -> Self {
        DoctorCheck::new(name, CheckResult::NotChecked, why)
    }

    pub(crate) fn fault(name: &'static str, finding: DoctorFinding) -> Self {
        DoctorCheck { finding: Some(finding.clone()), ..DoctorCheck::new(name, CheckResult::Fault, finding.words) }
    }

    pub(crate) fn note(name: &'static str, finding: DoctorFinding) -> Self {
        DoctorCheck { finding: Some(finding.clone()), ..DoctorCheck::new(name, CheckResult::Note, finding.words) }
    }

    /// The check with another figure.
    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.figures.insert(key.to_owned(), value.into());
        self
    }
}

/// If drafting itself is wrong, withdraws the faults and notes that follow from it: those of
/// acceptance and speed. `correct` is the number of checks of correctness, which come first.
pub(crate) fn withdraw_consequences(checks: &mut [DoctorCheck], correct: usize) {
    let (correctness, others) = checks.split_at_mut(correct);
    let Some(wrong) = correctness.iter().find(|c| c.result == CheckResult::Fault) else { return };
    for check in others.iter_mut().filter(|c| matches!(c.result, CheckResult::Fault | CheckResult::Note)) {
        check.result = CheckResult::NotChecked;
        check.words = format!("means nothing before the fault of `{}` is gone: {}", wrong.name, check.words);
        check.finding = None;
    }
}

/// Findings, faults first, each kind in the order of the checks.
pub(super) fn findings(checks: &[DoctorCheck]) -> impl Iterator<Item = (CheckResult, &DoctorFinding)> {
    let of = |result| checks.iter().filter(move |c| c.result == result);
    let all = of(CheckResult::Fault).chain(of(CheckResult::Note));
    all.filter_map(|check| Some((check.result, check.finding.as_ref()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(cause: &'static str) -> DoctorFinding {
        DoctorFinding { cause, symptom: "s".to_owned(), words: "w".to_owned(), remedy: "r".to_owned() }
    }

    #[test]
    fn faults_are_told_before_notes_and_a_wrong_engine_before_all_else() {
        let mut checks = vec![
            DoctorCheck::fine("rollback", "fine"),
            DoctorCheck::note("acceptance", finding("acceptance")),
            DoctorCheck::fault("cost", finding("cost")),
        ];
        let causes = |checks: &[DoctorCheck]| findings(checks).map(|(_, f)| f.cause).collect::<Vec<_>>();
        withdraw_consequences(&mut checks, 1);
        assert_eq!(causes(&checks), ["cost", "acceptance"]);
        checks[0] = DoctorCheck::fault("rollback", finding("rollback"));
        withdraw_consequences(&mut checks, 1);
        assert_eq!(causes(&checks), ["rollback"]);
        assert!(checks[2].result == CheckResult::NotChecked && checks[2].words.contains("`rollback`"), "{checks:?}");
    }
}
