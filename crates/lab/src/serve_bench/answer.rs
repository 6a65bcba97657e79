//! One streamed answer: the times of its chunks, and the server's counts.

use serde::Serialize;
use serde_json::Value;

use super::failure::LoadFailure;

/// A chunk with text.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TextChunk {
    /// Seconds since the request was sent.
    pub at_s: f64,
    /// Tokens in it, if the server counts them.
    pub tokens: Option<u64>,
}

/// A whole streamed answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StreamedAnswer {
    /// Its chunks with text.
    pub chunks: Vec<TextChunk>,
    /// Seconds until the text was finished.
    pub finish_s: f64,
    /// Seconds until the stream ended.
    pub end_s: f64,
    /// Tokens of the prompt; none if the server sent no counts.
    pub prompt_tokens: Option<u64>,
    /// Of these, tokens from the prefix cache.
    pub cached_tokens: Option<u64>,
    /// Tokens generated.
    pub completion_tokens: u64,
    /// Tokens drafted, a count of this program's server.
    pub drafted: Option<u64>,
    /// Of these, tokens accepted.
    pub accepted: Option<u64>,
}

impl StreamedAnswer {
    /// Seconds to the first text; of an answer without any, to its end.
    pub fn ttft_s(&self) -> f64 {
        self.chunks.first().map_or(self.finish_s, |chunk| chunk.at_s)
    }

    /// Seconds of a token after the first one, on average over the answer.
    pub fn tpot_s(&self) -> Option<f64> {
        let after_first = self.completion_tokens.checked_sub(1).filter(|n| *n > 0)?;
        Some((self.finish_s - self.ttft_s()) / after_first as f64)
    }

    /// Seconds of each token after the first chunk: the gap before its chunk, shared out among the
    /// chunk's tokens if their number is known.
    pub fn itl_s(&self) -> Vec<f64> {
        let gaps = self.chunks.windows(2).map(|pair| (pair[1].at_s - pair[0].at_s, pair[1].tokens.unwrap_or(1).max(1)));
        gaps.flat_map(|(gap, tokens)| std::iter::repeat_n(gap / tokens as f64, tokens as usize)).collect()
    }
}

/// An answer of which some chunks have been read.
#[derive(Debug, Default)]
pub(super) struct AnswerReader {
    answer: StreamedAnswer,
    finished: bool,
    usage: bool,
    counted: u64, // tokens so far, where the server sends a running count
}

impl AnswerReader {
    /// How many chunks had text.
    pub(super) fn chunks(&self) -> usize {
        self.answer.chunks.len()
    }

    /// Adds the data of an event that came after `at_s` seconds.
    ///
    /// # Errors
    /// It is an error, or no chunk of OpenAI's API.
    pub(super) fn add_event(&mut self, data: &str, at_s: f64) -> Result<(), LoadFailure> {
        let chunk: Value = serde_json::from_str(data).map_err(|e| LoadFailure::NoChunk { why: e.to_string() })?;
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            return Err(LoadFailure::ServerError { message: super::failure::message(error) });
        }
        let count = |of: &Value, key: &str| of.get(key).and_then(Value::as_u64);
        let mut tokens = None;
        if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
            self.usage = true;
            let n = count(usage, "completion_tokens").unwrap_or(0);
            tokens = Some(n.saturating_sub(self.counted));
            self.counted = n;
            self.answer.completion_tokens = n;
            self.answer.prompt_tokens = count(usage, "prompt_tokens");
            let cached = usage.get("prompt_tokens_details").and_then(|details| count(details, "cached_tokens"));
            self.answer.cached_tokens = cached.or(self.answer.cached_tokens);
        }
        if let Some(timings) = chunk.get("timings") {
            if let Some(n) = count(timings, "predicted_n").filter(|_| tokens.is_none()) {
                tokens = Some(n.saturating_sub(self.counted));
                self.counted = n;
            }
            self.answer.drafted = count(timings, "draft_n").or(self.answer.drafted);
            self.answer.accepted = count(timings, "draft_n_accepted").or(self.answer.accepted);
        }
        let Some(choice) = chunk.get("choices").and_then(|choices| choices.get(0)) else { return Ok(()) };
        if has_text(choice) {
            let tokens = tokens.or_else(|| tokens_of(choice));
            self.answer.chunks.push(TextChunk { at_s, tokens });
            self.answer.finish_s = at_s;
        }
        if choice.get("finish_reason").is_some_and(|reason| !reason.is_null()) {
            self.finished = true;
            self.answer.finish_s = at_s;
        }
        Ok(())
    }

    /// The answer, whose stream ended after `end_s` seconds. `done`: the stream said so.
    /// `count_chunks`: each chunk is a token if the server sends no counts.
    ///
    /// # Errors
    /// The stream broke off, or had no counts.
    pub(super) fn finish(mut self, end_s: f64, done: bool, count_chunks: bool) -> Result<StreamedAnswer, LoadFailure> {
        if !self.finished || !(done || self.usage) {
            return Err(LoadFailure::Broken { chunks: self.chunks(), why: "it ended without its end".to_owned() });
        }
        if !self.usage && !count_chunks {
            return Err(LoadFailure::NoUsage);
        }
        if !self.usage {
            self.answer.completion_tokens = self.chunks() as u64;
        }
        self.answer.end_s = end_s;
        Ok(self.answer)
    }
}

/// Whether a chunk's choice has text, if only of a thought or a part of a call.
fn has_text(choice: &Value) -> bool {
    let text = |of: Option<&Value>| of.and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    let delta = choice.get("delta");
    let words = ["content", "reasoning_content", "reasoning", "refusal"];
    text(choice.get("text"))
        || words.iter().any(|word| text(delta.and_then(|delta| delta.get(word))))
        || delta
            .and_then(|delta| delta.get("tool_calls"))
            .and_then(Value::as_array)
            .is_some_and(|calls| !calls.is_empty())
}

/// Tokens of a chunk, if it lists them.
fn tokens_of(choice: &Value) -> Option<u64> {
    let logprobs = choice.get("logprobs");
    let lists = [
        choice.get("tokens"),
        choice.get("token_ids"),
        logprobs.and_then(|logprobs| logprobs.get("content")),
        logprobs.and_then(|logprobs| logprobs.get("tokens")),
    ];
    let named = lists.into_iter().flatten().find_map(Value::as_array);
    named.map(|list| list.len() as u64).filter(|n| *n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(events: &[(f64, &str)]) -> Result<StreamedAnswer, LoadFailure> {
        let mut reader = AnswerReader::default();
        for (at, data) in events {
            reader.add_event(data, *at)?;
        }
        reader.finish(9.0, true, false)
    }

    const LAST: &str = r#"{"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 3}}, "timings": {"draft_n": 4, "draft_n_accepted": 2}}"#;

    #[test]
    fn a_chat_is_read_with_its_times_and_counts() {
        let answer = read(&[
            (
                0.5,
                r#"{"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": null}], "usage": null}"#,
            ),
            (1.0, r#"{"choices": [{"delta": {"content": "a"}, "finish_reason": null}]}"#),
            (3.0, r#"{"choices": [{"delta": {"content": "b c"}, "finish_reason": null}]}"#),
            (5.0, r#"{"choices": [{"delta": {}, "finish_reason": "stop"}]}"#),
            (6.0, LAST),
        ]);
        let answer = answer.expect("an answer");
        assert_eq!((answer.ttft_s(), answer.tpot_s(), answer.end_s), (1.0, Some(1.0), 9.0));
        assert_eq!(answer.itl_s(), [2.0]);
        assert_eq!((answer.prompt_tokens, answer.cached_tokens, answer.completion_tokens), (Some(7), Some(3), 5));
        assert_eq!((answer.drafted, answer.accepted), (Some(4), Some(2)));
    }

    #[test]
    fn a_gap_is_shared_out_where_the_tokens_of_a_chunk_are_known() {
        let running = |at: f64, n: u64| {
            (at, format!(r#"{{"choices": [{{"text": "x"}}], "usage": {{"completion_tokens": {n}}}}}"#))
        };
        let mut events: Vec<(f64, String)> = vec![running(1.0, 1), running(4.0, 4)];
        events.push((
            5.0,
            r#"{"choices": [{"text": "yz", "logprobs": {"tokens": ["y", "z"]}, "finish_reason": "length"}]}"#
                .to_owned(),
        ));
        events.push((6.0, LAST.to_owned()));
        let events: Vec<(f64, &str)> = events.iter().map(|(at, data)| (*at, data.as_str())).collect();
        assert_eq!(read(&events).expect("an answer").itl_s(), [1.0, 1.0, 1.0, 0.5, 0.5]);
    }

    #[test]
    fn the_count_of_timings_and_lists_of_tokens_tell_too() {
        let timed = |n: u64| format!(r#"{{"choices": [{{"text": "x"}}], "timings": {{"predicted_n": {n}}}}}"#);
        let listed = r#"{"choices": [{"text": "x", "tokens": [{"id": 1}, {"id": 2}], "finish_reason": "stop"}]}"#;
        let (first, second) = (timed(1), timed(4));
        let answer = read(&[(1.0, &first), (4.0, &second), (5.0, listed), (6.0, LAST)]).expect("an answer");
        assert_eq!(answer.itl_s(), [1.0, 1.0, 1.0, 0.5, 0.5]);
    }

    #[test]
    fn thoughts_and_calls_are_text_too() {
        for delta in [r#"{"reasoning_content": "hm"}"#, r#"{"tool_calls": [{"index": 0}]}"#] {
            let first = format!(r#"{{"choices": [{{"delta": {delta}}}]}}"#);
            let finish = r#"{"choices": [{"delta": {"tool_calls": []}, "finish_reason": "stop"}]}"#;
            let answer = read(&[(1.0, &first), (2.0, finish), (3.0, LAST)]).expect("an answer");
            assert_eq!((answer.chunks.len(), answer.ttft_s()), (1, 1.0), "{delta}");
        }
    }

    #[test]
    fn an_answer_without_text_ends_when_it_is_finished() {
        let answer = read(&[(2.0, r#"{"choices": [{"delta": {}, "finish_reason": "length"}]}"#), (3.0, LAST)]);
        let answer = answer.expect("an answer");
        assert_eq!((answer.ttft_s(), answer.tpot_s(), answer.itl_s()), (2.0, Some(0.0), Vec::new()));
    }

    #[test]
    fn chunks_are_counted_where_that_is_asked_for_and_nothing_else_is_told() {
        let text = r#"{"choices": [{"text": "x", "finish_reason": "stop"}]}"#;
        let read = |last: &[&str]| {
            let mut reader = AnswerReader::default();
            for data in [&[text, text], last].concat() {
                reader.add_event(data, 1.0).expect("a chunk");
            }
            reader.finish(2.0, true, true).expect("an answer")
        };
        let counted = |answer: StreamedAnswer| (answer.prompt_tokens, answer.completion_tokens);
        assert_eq!((counted(read(&[])), counted(read(&[LAST]))), ((None, 2), (Some(7), 5)));
    }

    #[test]
    fn errors_cuts_and_missing_counts_are_failures() {
        let finish = r#"{"choices": [{"delta": {}, "finish_reason": "stop"}]}"#;
        let why = |events: &[(f64, &str)]| read(events).expect_err("a failure").to_string();
        assert_eq!(why(&[(1.0, r#"{"error": {"message": "no room"}}"#)]), "the server gave up: no room");
        assert_eq!(why(&[(1.0, r#"{"error": "bare"}"#)]), "the server gave up: bare");
        assert!(why(&[(1.0, "oops")]).starts_with("the stream has a chunk that is not JSON"));
        assert!(why(&[(1.0, r#"{"choices": [{"text": "x"}]}"#)]).contains("broke off after 1 chunk"));
        assert!(why(&[(1.0, finish)]).contains("tells no token counts"));
        let mut cut = AnswerReader::default();
        cut.add_event(finish, 1.0).expect("a chunk");
        assert!(matches!(cut.finish(2.0, false, true), Err(LoadFailure::Broken { .. })));
    }
}
