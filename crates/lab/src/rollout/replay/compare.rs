//! Whether an answer is the one that was recorded.

use serde_json::Value;

use super::answer::ReplayAnswer;
use crate::rollout::record::RecordedRequest;

/// How an answer compares with the record.
#[derive(Debug, Clone, PartialEq)]
pub enum ReplayResult {
    /// The same text.
    Identical,
    /// Another text, though it should be the same.
    Different {
        /// Which answer, from 0.
        choice: usize,
        /// Characters that both have in common.
        same: usize,
        /// The recorded text from shortly before the difference.
        recorded: String,
        /// The new text from there.
        got: String,
    },
    /// The texts need not be the same, or there is none to compare; with the reason.
    Incomparable(&'static str),
    /// There was no whole answer; with the reason.
    Failed(String),
}

/// Compares an answer with the record of a request.
pub(super) fn compare(line: &RecordedRequest, answer: &ReplayAnswer) -> ReplayResult {
    if !is_deterministic(line) {
        return ReplayResult::Incomparable("sampled without a seed");
    }
    if line.choices.iter().any(|choice| !["stop", "length", "context"].contains(&choice.finish_reason.as_str())) {
        return ReplayResult::Incomparable("the recorded answer did not come to its end");
    }
    if line.choices.iter().any(|choice| choice.text.is_none()) {
        return ReplayResult::Incomparable("the recorded answer has no text");
    }
    if answer.choices.values().any(|said| said.parsed) {
        return ReplayResult::Incomparable("the answer is told as calls of functions or thoughts");
    }
    for (i, choice) in line.choices.iter().enumerate() {
        let recorded = choice.text.as_deref().unwrap_or_default();
        let got = answer.choices.get(&(i as u64)).map_or("", |said| said.text.as_str());
        if recorded != got || !answer.choices.contains_key(&(i as u64)) {
            let same = recorded.chars().zip(got.chars()).take_while(|(a, b)| a == b).count();
            let from = |text: &str| text.chars().skip(same.saturating_sub(10)).take(40).collect::<String>();
            return ReplayResult::Different { choice: i, same, recorded: from(recorded), got: from(got) };
        }
    }
    ReplayResult::Identical
}

/// Whether the request's answer depends on nothing but the request: greedy, or with a seed.
fn is_deterministic(line: &RecordedRequest) -> bool {
    let greedy = line.parameters.get("temperature").and_then(Value::as_f64) == Some(0.0);
    greedy || line.parameters.get("seed").is_some_and(|seed| !seed.is_null())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rollout::record::{ArmSource, RecordedArm, RecordedChoice};

    fn line(parameters: Value, text: Option<&str>, finish: &str) -> RecordedRequest {
        let choice = RecordedChoice {
            finish_reason: finish.to_owned(),
            text: text.map(str::to_owned),
            ..RecordedChoice::default()
        };
        RecordedRequest {
            id: "a".to_owned(),
            time: 0.0,
            path: "/v1/completions".to_owned(),
            arm: RecordedArm::Plain,
            arm_by: ArmSource::Default,
            parameters: parameters.as_object().cloned().unwrap_or_default(),
            prompt_tokens: 1,
            cached_tokens: 0,
            choices: vec![choice],
            request: None,
        }
    }

    fn said(text: &str) -> ReplayAnswer {
        let object = json!({ "choices": [{ "index": 0, "text": text, "finish_reason": "stop" }] });
        ReplayAnswer::of_object(&object.to_string()).expect("an answer")
    }

    #[test]
    fn only_what_must_be_the_same_is_compared() {
        let greedy = json!({ "temperature": 0.0, "seed": null });
        assert_eq!(compare(&line(greedy.clone(), Some("abc"), "stop"), &said("abc")), ReplayResult::Identical);
        let other = compare(&line(greedy.clone(), Some("abc"), "length"), &said("abd"));
        assert!(matches!(other, ReplayResult::Different { choice: 0, same: 2, .. }), "{other:?}");
        let seeded = json!({ "temperature": 1.0, "seed": 5 });
        assert!(matches!(compare(&line(seeded, Some("abc"), "stop"), &said("ab")), ReplayResult::Different { .. }));
        let free = json!({ "temperature": 1.0, "seed": null });
        assert!(matches!(compare(&line(free, Some("abc"), "stop"), &said("x")), ReplayResult::Incomparable(_)));
        assert!(matches!(compare(&line(greedy.clone(), None, "stop"), &said("x")), ReplayResult::Incomparable(_)));
        assert!(matches!(compare(&line(greedy, Some("a"), "cancelled"), &said("x")), ReplayResult::Incomparable(_)));
    }
}
