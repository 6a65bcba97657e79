//! Whether the prompts are of the kind that the tuning was measured on, or that the exit head was
//! trained on.

use std::collections::BTreeMap;

use selfspec_engine::{TunedDrafter, Tuning};
use selfspec_model::{ExitHeadCard, Readout};
use serde_json::json;

use super::check::{DoctorCheck, DoctorFinding};
use super::examined::ExaminedDrafter;
use super::outputs::DraftAcceptance;
use crate::statistics::{ENOUGH_JUDGED, acceptance_by_place};

/// A clear fall of acceptance is larger than `FALL`, than `SHARE` of the expected acceptance, and
/// than `SIGMAS` of noise.
const FALL: f64 = 0.1;
const SHARE: f64 = 0.25;
const SIGMAS: f64 = 3.0;
/// How much acceptance differs between prompts of one kind: a single prompt says little, however
/// long its answer.
const SPREAD: f64 = 0.15;
/// Fewest prompts that represent a kind.
const PROMPTS: usize = 3;

/// Acceptance as it was when the drafter was chosen or trained.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RecordedAcceptance {
    /// Where it is recorded.
    source: &'static str,
    /// Acceptance of the first draft of a round.
    by_category: BTreeMap<String, f64>,
}

impl RecordedAcceptance {
    /// The tuning's record of the drafter, else that of the card of the exit head that drafts.
    pub(super) fn of(
        examined: &ExaminedDrafter,
        tuning: Option<&Tuning>,
        card: Option<&ExitHeadCard>,
    ) -> Option<RecordedAcceptance> {
        let first = |all: &BTreeMap<String, Vec<f64>>| -> BTreeMap<String, f64> {
            all.iter().filter_map(|(category, places)| Some((category.clone(), *places.first()?))).collect()
        };
        let by_head = examined.path.as_ref().is_some_and(|p| p.readout == Readout::ExitHead);
        let tuned = tuning.filter(|t| t.drafter != TunedDrafter::Off).map(|t| ("the tuning", first(&t.acceptance)));
        let carded = card.filter(|_| by_head).map(|c| ("the exit head's card", first(&c.acceptance)));
        let records = [tuned, carded].into_iter().flatten();
        let mut kept = records.filter(|(_, by_category)| !by_category.is_empty());
        kept.next().map(|(source, by_category)| RecordedAcceptance { source, by_category })
    }

    /// The acceptance to expect of a kind of prompt; of one that is not on record, the lowest that
    /// is.
    fn expected(&self, category: &str) -> f64 {
        let worst = || self.by_category.values().min_by(|a, b| a.total_cmp(b));
        self.by_category.get(category).or_else(worst).copied().unwrap_or(0.0)
    }
}

/// Compares acceptance by kind of prompt with the record.
pub(super) fn check_domain(record: Option<&RecordedAcceptance>, measured: &DraftAcceptance) -> DoctorCheck {
    const NAME: &str = "domain";
    let by_category: BTreeMap<&String, Vec<f64>> =
        measured.by_category.iter().map(|(category, stats)| (category, acceptance_by_place(stats))).collect();
    let Some(record) = record else {
        let why = "no acceptance is on record to compare with: `selfspec tune` keeps one with its choice";
        return DoctorCheck::not_checked(NAME, why).with("acceptance", json!(by_category));
    };
    let groups = groups(record, measured);
    let words = |groups: &[&KindGroup]| groups.iter().map(|g| g.words()).collect::<Vec<_>>().join(", ");
    let (enough, few): (Vec<&KindGroup>, Vec<&KindGroup>) =
        groups.iter().partition(|g| g.judged >= ENOUGH_JUDGED && g.prompts >= PROMPTS);
    let (shifted, alike): (Vec<&KindGroup>, Vec<&KindGroup>) = enough.into_iter().partition(|g| g.fell());
    let mut rest = String::new();
    if !shifted.is_empty() && !alike.is_empty() {
        rest += &format!("; not of {}", words(&alike));
    }
    if !few.is_empty() {
        rest += &format!("; of {} there are too few prompts or drafts to tell", words(&few));
    }
    if let Some(worst) = record.by_category.values().copied().min_by(f64::total_cmp)
        && measured.by_category.keys().any(|kind| !record.by_category.contains_key(kind))
    {
        rest +=
            &format!("; kinds that are not on record are expected to reach the least of those that are, {worst:.2}");
    }
    let check = match (shifted.is_empty(), alike.is_empty()) {
        (true, true) => {
            let why = format!("a comparison takes {PROMPTS} prompts and {ENOUGH_JUDGED} judged first drafts of a kind{rest}");
            DoctorCheck::not_checked(NAME, why)
        }
        (true, false) => {
            DoctorCheck::fine(NAME, format!("first drafts are accepted about as {} has it: {}{rest}", record.source, words(&alike)))
        }
        (false, _) => DoctorCheck::fault(
            NAME,
            DoctorFinding {
                cause: "domain",
                symptom: "speed falls on another task".to_owned(),
                words: format!("domain shift: fewer first drafts are accepted than {} has it, of {}{rest}", record.source, words(&shifted)),
                remedy: "route such prompts by their kind, and tune or train on them: `selfspec tune --prompts FILE`, `selfspec train head --prompts FILE`"
                    .to_owned(),
            },
        ),
    };
    check
        .with("acceptance", json!(by_category))
        .with("on_record", json!(record.by_category))
        .with("record", record.source)
}

/// First drafts of one kind of prompt, or of several kinds with few prompts each.
#[derive(Debug, Default)]
struct KindGroup {
    kinds: Vec<String>,
    expected: f64, // sum over the judged drafts
    accepted: u64,
    judged: u64,
    prompts: usize,
}

/// A group for each kind, and one for all that have few prompts.
fn groups(record: &RecordedAcceptance, measured: &DraftAcceptance) -> Vec<KindGroup> {
    let (mut groups, mut small) = (Vec::new(), KindGroup::default());
    for (category, stats) in &measured.by_category {
        let (first, prompts) = (stats.by_position[0], measured.prompts.get(category).copied().unwrap_or(0));
        let mut own = KindGroup::default();
        let group = if prompts < PROMPTS { &mut small } else { &mut own };
        group.kinds.push(format!("`{category}`"));
        group.expected += record.expected(category) * first.judged as f64;
        group.accepted += first.accepted;
        group.judged += first.judged;
        group.prompts += prompts;
        groups.extend(Some(own).filter(|g| !g.kinds.is_empty()));
    }
    groups.extend(Some(small).filter(|g| !g.kinds.is_empty()));
    groups
}

impl KindGroup {
    fn share(&self) -> f64 {
        self.accepted as f64 / self.judged.max(1) as f64
    }

    fn expected(&self) -> f64 {
        self.expected / self.judged.max(1) as f64
    }

    /// Whether acceptance fell clearly.
    fn fell(&self) -> bool {
        let (share, expected) = (self.share(), self.expected());
        let drafts = expected * (1.0 - expected) / self.judged.max(1) as f64;
        let noise = SIGMAS * (drafts + SPREAD * SPREAD / self.prompts.max(1) as f64).sqrt();
        expected - share > FALL.max(SHARE * expected).max(noise)
    }

    fn words(&self) -> String {
        format!("{} {:.2} (expected {:.2})", self.kinds.join(" and "), self.share(), self.expected())
    }
}

#[cfg(test)]
mod tests {
    use selfspec_speculate::SpecStats;

    use super::*;
    use crate::doctor::check::CheckResult;

    fn measured(categories: &[(&str, u64, u64)]) -> DraftAcceptance {
        let mut measured = DraftAcceptance::default();
        for (category, accepted, judged) in categories {
            let mut stats = SpecStats::default();
            (stats.by_position[0].accepted, stats.by_position[0].judged) = (*accepted, *judged);
            measured.by_category.insert((*category).to_owned(), stats);
            measured.prompts.insert((*category).to_owned(), 20);
        }
        measured
    }

    #[test]
    fn a_clear_fall_is_found_and_named_and_a_small_one_is_not() {
        let by_category = BTreeMap::from([("chat".to_owned(), 0.6), ("code".to_owned(), 0.8)]);
        let record = RecordedAcceptance { source: "the tuning", by_category };
        let of = |categories: &[(&str, u64, u64)]| {
            let check = check_domain(Some(&record), &measured(categories));
            (check.result, check.words)
        };
        assert_eq!(of(&[("chat", 58, 100), ("code", 78, 100)]).0, CheckResult::Fine);
        let (verdict, words) = of(&[("chat", 60, 100), ("code", 30, 100)]);
        assert_eq!(verdict, CheckResult::Fault);
        assert!(words.contains("of `code` 0.30 (expected 0.80); not of `chat` 0.60 (expected 0.60)"), "{words}");
        let (verdict, words) = of(&[("poems", 10, 100)]);
        assert_eq!(verdict, CheckResult::Fault);
        assert!(
            words.contains(
                "of `poems` 0.10 (expected 0.60); kinds that are not on record are expected to reach the least"
            ),
            "{words}"
        );
        assert_eq!(of(&[("poems", 58, 100)]).0, CheckResult::Fine, "a new kind that does as well is no shift");
        assert_eq!(of(&[("code", 13, 21)]).0, CheckResult::Fine, "chance explains it");
        assert_eq!(of(&[("code", 0, 19)]).0, CheckResult::NotChecked);
        // One prompt does not represent a kind; kinds of one prompt each are judged together.
        let mut alone = measured(&[("code", 30, 100), ("chat", 60, 100), ("poems", 1, 100), ("songs", 1, 100)]);
        alone.prompts.values_mut().for_each(|n| *n = 1);
        alone.by_category.remove("songs");
        assert!(
            check_domain(Some(&record), &alone).words.contains("`chat` and `code` and `poems` 0.30 (expected 0.67)")
        );
        assert_eq!(check_domain(Some(&record), &alone).result, CheckResult::Fault);
        alone.by_category.remove("chat");
        let two = check_domain(Some(&record), &alone);
        assert!(two.result == CheckResult::NotChecked && two.words.contains("too few prompts"), "{two:?}");
        assert_eq!(check_domain(None, &measured(&[("chat", 1, 100)])).result, CheckResult::NotChecked);
    }
}
