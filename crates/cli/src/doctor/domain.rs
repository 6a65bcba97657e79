//! Whether the prompts are of the kind that the tuning was measured on, or the exit head trained for.

use std::collections::BTreeMap;

use selfspec_engine::{ExitHeadCard, Readout, SpecStats, TunedDrafter, Tuning};
use serde_json::json;

use super::check::{Check, Finding};
use super::outputs::Fared;
use super::subject::Subject;
use crate::tune::sweep::{ENOUGH, places};

/// A fall of acceptance that is clear: more than this, than this share of it, and than chance explains.
const FALL: f64 = 0.1;
const SHARE: f64 = 0.25;
const SIGMAS: f64 = 3.0;
/// How far acceptance differs from prompt to prompt of one kind: a prompt alone says little, however long its answer.
const SPREAD: f64 = 0.15;

/// Acceptance as it was when the way to draft was chosen or made.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Record {
    /// Where it stands.
    source: &'static str,
    /// Of the first draft of a round.
    by_category: BTreeMap<String, f64>,
}

impl Record {
    /// What the tuning has on record of the drafter, else the card of the exit head that drafts.
    pub(crate) fn of(subject: &Subject, tuning: Option<&Tuning>, card: Option<&ExitHeadCard>) -> Option<Record> {
        let first = |all: &BTreeMap<String, Vec<f64>>| -> BTreeMap<String, f64> {
            all.iter().filter_map(|(category, places)| Some((category.clone(), *places.first()?))).collect()
        };
        let by_head = subject.path.as_ref().is_some_and(|p| p.readout == Readout::ExitHead);
        let tuned = tuning.filter(|t| t.drafter != TunedDrafter::Off).map(|t| ("the tuning", first(&t.acceptance)));
        let carded = card.filter(|_| by_head).map(|c| ("the exit head's card", first(&c.acceptance)));
        let records = [tuned, carded].into_iter().flatten();
        let mut kept = records.filter(|(_, by_category)| !by_category.is_empty());
        kept.next().map(|(source, by_category)| Record { source, by_category })
    }

    /// What may be expected of a kind of prompt, and what it stands under: a kind that is not on record must do as well as the one that did worst.
    fn expected(&self, category: &str) -> (f64, &str) {
        let worst = || self.by_category.iter().min_by(|a, b| a.1.total_cmp(b.1));
        let found = self.by_category.get_key_value(category).or_else(worst);
        found.map_or((0.0, ""), |(category, share)| (*share, category))
    }
}

/// Compares acceptance by kind of prompt with what is on record.
pub(crate) fn check(record: Option<&Record>, fared: &Fared) -> Check {
    const NAME: &str = "domain";
    let by_category: BTreeMap<&String, Vec<f64>> =
        fared.by_category.iter().map(|(category, stats)| (category, places(stats))).collect();
    let Some(record) = record else {
        let why = "no acceptance is on record to compare with: `selfspec tune` keeps one with its choice";
        return Check::open(NAME, why).with("acceptance", json!(by_category));
    };
    let (mut shifted, mut alike, mut unknown) = (Vec::new(), Vec::new(), None);
    for (category, stats) in &fared.by_category {
        let (expected, of) = record.expected(category);
        let Some((share, judged)) = first_place(stats) else { continue };
        let prompts = fared.prompts.get(category).copied().unwrap_or(1).max(1) as f64;
        let noise = SIGMAS * (expected * (1.0 - expected) / judged as f64 + SPREAD * SPREAD / prompts).sqrt();
        let fell = expected - share > FALL.max(SHARE * expected).max(noise);
        let words = if of == category {
            format!("`{category}` {share:.2} (on record {expected:.2})")
        } else {
            unknown =
                Some(format!("; a kind that is not on record is held to the worst that is, `{of}` with {expected:.2}"));
            format!("`{category}` {share:.2}")
        };
        if fell { shifted.push(words) } else { alike.push(words) }
    }
    let unknown = unknown.unwrap_or_default();
    let check = match (shifted.is_empty(), alike.is_empty()) {
        (true, true) => {
            let why = format!("no kind of prompt has {ENOUGH} judged drafts: longer answers (-n) or more prompts give more");
            Check::open(NAME, why)
        }
        (true, false) => {
            Check::fine(NAME, format!("first drafts are accepted as {} has it: {}{unknown}", record.source, alike.join(", ")))
        }
        (false, _) => Check::fault(
            NAME,
            Finding {
                cause: "domain",
                symptom: "speed falls on another task".to_owned(),
                words: format!(
                    "domain shift: fewer first drafts are accepted than {} has it: {}{}{unknown}",
                    record.source,
                    shifted.join(", "),
                    if alike.is_empty() { String::new() } else { format!("; as before: {}", alike.join(", ")) }
                ),
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

/// The accepted share of first drafts, and how many were judged, if they are enough.
fn first_place(stats: &SpecStats) -> Option<(f64, u64)> {
    let first = stats.by_position[0];
    (first.judged >= ENOUGH).then(|| (first.accepted as f64 / first.judged as f64, first.judged))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::Verdict;

    fn fared(categories: &[(&str, u64, u64)]) -> Fared {
        let mut fared = Fared::default();
        for (category, accepted, judged) in categories {
            let mut stats = SpecStats::default();
            (stats.by_position[0].accepted, stats.by_position[0].judged) = (*accepted, *judged);
            fared.by_category.insert((*category).to_owned(), stats);
            fared.prompts.insert((*category).to_owned(), 20);
        }
        fared
    }

    #[test]
    fn a_clear_fall_is_found_and_named_and_a_small_one_is_not() {
        let by_category = BTreeMap::from([("chat".to_owned(), 0.6), ("code".to_owned(), 0.8)]);
        let record = Record { source: "the tuning", by_category };
        let of = |categories: &[(&str, u64, u64)]| {
            let check = check(Some(&record), &fared(categories));
            (check.verdict, check.words)
        };
        assert_eq!(of(&[("chat", 58, 100), ("code", 78, 100)]).0, Verdict::Fine);
        let (verdict, words) = of(&[("chat", 60, 100), ("code", 30, 100)]);
        assert_eq!(verdict, Verdict::Fault);
        assert!(words.contains("`code` 0.30 (on record 0.80); as before: `chat` 0.60"), "{words}");
        let (verdict, words) = of(&[("poems", 10, 100)]);
        assert!(
            verdict == Verdict::Fault
                && words.contains(
                    "`poems` 0.10; a kind that is not on record is held to the worst that is, `chat` with 0.60"
                ),
            "{words}"
        );
        assert_eq!(of(&[("poems", 58, 100)]).0, Verdict::Fine, "a new kind that does as well is no shift");
        assert_eq!(of(&[("code", 13, 21)]).0, Verdict::Fine, "chance explains it");
        assert_eq!(of(&[("code", 0, 19)]).0, Verdict::Open);
        let mut alone = fared(&[("code", 45, 100)]);
        alone.prompts.insert("code".to_owned(), 1);
        assert_eq!(check(Some(&record), &alone).verdict, Verdict::Fine, "one prompt is no kind");
        alone.prompts.insert("code".to_owned(), 12);
        assert_eq!(check(Some(&record), &alone).verdict, Verdict::Fault);
        assert_eq!(check(None, &fared(&[("chat", 1, 100)])).verdict, Verdict::Open);
    }
}
