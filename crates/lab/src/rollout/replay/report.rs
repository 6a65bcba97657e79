//! The results of a replay.

use serde_json::{Value, json};

use super::compare::ReplayResult;

/// The results of a replay.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayReport {
    /// Requests of the record that were left out because their bodies are not recorded.
    pub left_out: usize,
    /// Seconds from the first request to the last answer.
    pub seconds: f64,
    /// The requests that were sent, in the order of their times.
    pub requests: Vec<ReplayedRequest>,
}

/// A request that was sent again.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayedRequest {
    /// The recorded request's id.
    pub id: String,
    /// How its answer compares with the record.
    pub result: ReplayResult,
    /// Seconds that the answer took.
    pub seconds: f64,
    /// Seconds that the request was sent after its time.
    pub late_s: f64,
}

/// How many requests had each result.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ReplayCounts {
    /// Without a whole answer.
    pub failed: usize,
    /// With the recorded text.
    pub identical: usize,
    /// With another text, though it should be the same.
    pub different: usize,
    /// Whose texts need not be the same.
    pub incomparable: usize,
}

impl ReplayReport {
    /// How many requests had each result.
    pub fn counts(&self) -> ReplayCounts {
        let mut counts = ReplayCounts::default();
        for request in &self.requests {
            *match request.result {
                ReplayResult::Failed(_) => &mut counts.failed,
                ReplayResult::Identical => &mut counts.identical,
                ReplayResult::Different { .. } => &mut counts.different,
                ReplayResult::Incomparable(_) => &mut counts.incomparable,
            } += 1;
        }
        counts
    }

    /// Whether every request was answered, and with the recorded text where it must be the same.
    pub fn ok(&self) -> bool {
        let counts = self.counts();
        counts.failed + counts.different == 0
    }

    /// The results as one object. The keys are an interface that others rely on.
    pub fn json(&self) -> Value {
        let ReplayCounts { failed, identical, different, incomparable } = self.counts();
        let request = |request: &ReplayedRequest| {
            let (verdict, why) = match &request.result {
                ReplayResult::Identical => ("identical", Value::Null),
                ReplayResult::Incomparable(why) => ("incomparable", (*why).into()),
                ReplayResult::Failed(why) => ("failed", why.as_str().into()),
                ReplayResult::Different { choice, same, recorded, got } => (
                    "different",
                    json!({ "choice": choice, "same_characters": same, "recorded": recorded, "got": got }),
                ),
            };
            let (seconds, late_s) = (request.seconds, request.late_s);
            json!({ "id": request.id, "verdict": verdict, "why": why, "seconds": seconds, "late_s": late_s })
        };
        json!({
            "n": self.requests.len(),
            "failed": failed,
            "identical": identical,
            "different": different,
            "incomparable": incomparable,
            "left_out": self.left_out,
            "seconds": self.seconds,
            "requests": self.requests.iter().map(request).collect::<Vec<_>>(),
        })
    }
}
