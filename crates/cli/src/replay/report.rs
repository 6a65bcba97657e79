//! What a replay came to, in lines and as JSON.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::verdict::{Outcome, Verdict};

/// Requests that are named one by one.
const NAMED: usize = 10;

/// What a replay came to.
pub(super) struct Report<'a> {
    /// Requests without their prompts.
    pub(super) left_out: usize,
    /// Seconds from the first request to the last answer.
    pub(super) seconds: f64,
    /// By the requests' ids.
    pub(super) outcomes: Vec<(&'a str, Outcome)>,
}

/// How many of each.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    failed: usize,
    identical: usize,
    different: usize,
    incomparable: usize,
}

impl Report<'_> {
    fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for (_, outcome) in &self.outcomes {
            *match outcome.verdict {
                Verdict::Failed(_) => &mut counts.failed,
                Verdict::Identical => &mut counts.identical,
                Verdict::Different { .. } => &mut counts.different,
                Verdict::Incomparable(_) => &mut counts.incomparable,
            } += 1;
        }
        counts
    }

    /// Whether every request was answered, with what was to be expected.
    pub(super) fn is_fine(&self) -> bool {
        let counts = self.counts();
        counts.failed + counts.different == 0
    }

    /// The largest delay of a request that had to wait for a place.
    fn late(&self) -> f64 {
        self.outcomes.iter().map(|(_, outcome)| outcome.late).fold(0.0, f64::max)
    }

    /// Why answers could not be compared, and how often.
    fn reasons(&self) -> BTreeMap<&'static str, usize> {
        let mut reasons = BTreeMap::new();
        for (_, outcome) in &self.outcomes {
            if let Verdict::Incomparable(why) = outcome.verdict {
                *reasons.entry(why).or_default() += 1;
            }
        }
        reasons
    }

    pub(super) fn text(&self) -> String {
        let Counts { failed, identical, different, incomparable } = self.counts();
        let mut text = format!("{} requests in {:.1} s\n", self.outcomes.len(), self.seconds);
        text +=
            &format!("{identical} identical, {different} different, {incomparable} not comparable, {failed} failed\n");
        for (why, n) in self.reasons() {
            text += &format!("not comparable: {n} ({why})\n");
        }
        if self.left_out > 0 {
            text += &format!("left out: {} that were recorded without their prompts\n", self.left_out);
        }
        if self.late() > 1.0 {
            text +=
                &format!("some were sent late, by up to {:.1} s: --concurrency lets more be under way\n", self.late());
        }
        let told = self.outcomes.iter().filter_map(|(id, outcome)| match &outcome.verdict {
            Verdict::Different { choice, same, recorded, got } => Some(format!(
                "{id}: answer {choice} differs after {same} characters: recorded {recorded:?}, got {got:?}\n"
            )),
            Verdict::Failed(why) => Some(format!("{id}: failed: {why}\n")),
            Verdict::Identical | Verdict::Incomparable(_) => None,
        });
        let told: Vec<String> = told.collect();
        text += &told[..told.len().min(NAMED)].concat();
        if told.len() > NAMED {
            text += &format!("and {} more: --json names all\n", told.len() - NAMED);
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        let Counts { failed, identical, different, incomparable } = self.counts();
        let request = |(id, outcome): &(&str, Outcome)| {
            let (verdict, why) = match &outcome.verdict {
                Verdict::Identical => ("identical", Value::Null),
                Verdict::Incomparable(why) => ("incomparable", (*why).into()),
                Verdict::Failed(why) => ("failed", why.as_str().into()),
                Verdict::Different { choice, same, recorded, got } => (
                    "different",
                    json!({ "choice": choice, "same_characters": same, "recorded": recorded, "got": got }),
                ),
            };
            json!({ "id": id, "verdict": verdict, "why": why, "seconds": outcome.seconds, "late_s": outcome.late })
        };
        json!({
            "n": self.outcomes.len(),
            "failed": failed,
            "identical": identical,
            "different": different,
            "incomparable": incomparable,
            "left_out": self.left_out,
            "seconds": self.seconds,
            "requests": self.outcomes.iter().map(request).collect::<Vec<_>>(),
        })
    }
}
