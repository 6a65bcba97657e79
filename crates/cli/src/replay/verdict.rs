//! Whether an answer is the one that was recorded.

use selfspec_server::RecordLine;
use serde_json::Value;

use super::answer::Answer;

/// What became of a request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outcome {
    pub(super) verdict: Verdict,
    /// Seconds that its answer took.
    pub(super) seconds: f64,
    /// Seconds that it was sent after its time.
    pub(super) late: f64,
}

/// How an answer compares with the record.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Verdict {
    /// The same text.
    Identical,
    /// Another text, though it should be the same.
    Different {
        choice: usize,
        /// Characters that both have in common.
        same: usize,
        recorded: String,
        got: String,
    },
    /// The texts need not be the same, or there is none to compare.
    Incomparable(&'static str),
    /// There was no whole answer.
    Failed(String),
}

/// Compares an answer with the record of a request.
pub(super) fn compare(line: &RecordLine, answer: &Answer) -> Verdict {
    if !is_deterministic(line) {
        return Verdict::Incomparable("sampled without a seed");
    }
    if line.choices.iter().any(|choice| !["stop", "length", "context"].contains(&choice.finish_reason.as_str())) {
        return Verdict::Incomparable("the recorded answer did not come to its end");
    }
    if line.choices.iter().any(|choice| choice.text.is_none()) {
        return Verdict::Incomparable("the recorded answer has no text");
    }
    if answer.choices.values().any(|said| said.parsed) {
        return Verdict::Incomparable("the answer is told as calls of functions or thoughts");
    }
    for (i, choice) in line.choices.iter().enumerate() {
        let recorded = choice.text.as_deref().unwrap_or_default();
        let got = answer.choices.get(&(i as u64)).map_or("", |said| said.text.as_str());
        if recorded != got || !answer.choices.contains_key(&(i as u64)) {
            let same = recorded.chars().zip(got.chars()).take_while(|(a, b)| a == b).count();
            let from = |text: &str| text.chars().skip(same.saturating_sub(10)).take(40).collect::<String>();
            return Verdict::Different { choice: i, same, recorded: from(recorded), got: from(got) };
        }
    }
    Verdict::Identical
}

/// Whether the request's answer depends on nothing but the request: greedy, or with a seed.
fn is_deterministic(line: &RecordLine) -> bool {
    let greedy = line.parameters.get("temperature").and_then(Value::as_f64) == Some(0.0);
    greedy || line.parameters.get("seed").is_some_and(|seed| !seed.is_null())
}

#[cfg(test)]
mod tests {
    use selfspec_server::{Arm, ChosenBy, RecordChoice};
    use serde_json::json;

    use super::*;

    fn line(parameters: Value, text: Option<&str>, finish: &str) -> RecordLine {
        let choice =
            RecordChoice { finish_reason: finish.to_owned(), text: text.map(str::to_owned), ..RecordChoice::default() };
        RecordLine {
            id: "a".to_owned(),
            time: 0.0,
            path: "/v1/completions".to_owned(),
            arm: Arm::Plain,
            arm_by: ChosenBy::Default,
            parameters: parameters.as_object().cloned().unwrap_or_default(),
            prompt_tokens: 1,
            cached_tokens: 0,
            choices: vec![choice],
            request: None,
        }
    }

    fn said(text: &str) -> Answer {
        let object = json!({ "choices": [{ "index": 0, "text": text, "finish_reason": "stop" }] });
        Answer::of_object(&object.to_string()).expect("an answer")
    }

    #[test]
    fn only_what_must_be_the_same_is_compared() {
        let greedy = json!({ "temperature": 0.0, "seed": null });
        assert_eq!(compare(&line(greedy.clone(), Some("abc"), "stop"), &said("abc")), Verdict::Identical);
        let other = compare(&line(greedy.clone(), Some("abc"), "length"), &said("abd"));
        assert!(matches!(other, Verdict::Different { choice: 0, same: 2, .. }), "{other:?}");
        let seeded = json!({ "temperature": 1.0, "seed": 5 });
        assert!(matches!(compare(&line(seeded, Some("abc"), "stop"), &said("ab")), Verdict::Different { .. }));
        let free = json!({ "temperature": 1.0, "seed": null });
        assert!(matches!(compare(&line(free, Some("abc"), "stop"), &said("x")), Verdict::Incomparable(_)));
        assert!(matches!(compare(&line(greedy.clone(), None, "stop"), &said("x")), Verdict::Incomparable(_)));
        assert!(matches!(compare(&line(greedy, Some("a"), "cancelled"), &said("x")), Verdict::Incomparable(_)));
    }
}
