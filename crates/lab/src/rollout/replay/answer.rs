//! A server's answer, from an object or from a stream.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::http::SseDecoder;

/// An answer: its choices by their index.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ReplayAnswer {
    pub(super) choices: BTreeMap<u64, ReplayChoice>,
}

/// One choice.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ReplayChoice {
    pub(super) text: String,
    /// Whether part of the text came as something else than text: calls of functions, thoughts.
    pub(super) parsed: bool,
    pub(super) finish_reason: Option<String>,
}

impl ReplayAnswer {
    /// # Errors
    /// It is no answer.
    pub(super) fn of_object(text: &str) -> Result<Self, String> {
        let object: Value = serde_json::from_str(text).map_err(|e| format!("the answer is no JSON: {e}"))?;
        let mut answer = ReplayAnswer::default();
        answer.add(&object)?;
        answer.whole()
    }

    /// # Errors
    /// It is no stream of chunks, or it reports an error.
    pub(super) fn of_stream(text: &str) -> Result<Self, String> {
        let mut answer = ReplayAnswer::default();
        let mut done = false;
        let events = SseDecoder::default().push(text.as_bytes())?;
        for data in events.iter().map(|data| data.trim()) {
            if data == "[DONE]" {
                done = true;
                break;
            }
            let chunk: Value = serde_json::from_str(data).map_err(|e| format!("a chunk is no JSON: {e}"))?;
            answer.add(&chunk)?;
        }
        if done { answer.whole() } else { Err("the stream broke off".to_owned()) }
    }

    /// Adds an object or a chunk.
    fn add(&mut self, object: &Value) -> Result<(), String> {
        if let Some(error) = object.get("error").filter(|error| !error.is_null()) {
            return Err(error["message"].as_str().map_or_else(|| error.to_string(), str::to_owned));
        }
        for choice in object["choices"].as_array().into_iter().flatten() {
            let said = self.choices.entry(choice["index"].as_u64().unwrap_or(0)).or_default();
            let message = if choice["delta"].is_object() { &choice["delta"] } else { &choice["message"] };
            let text = choice["text"].as_str().or(message["content"].as_str());
            said.text.push_str(text.unwrap_or_default());
            let parts = ["tool_calls", "function_call", "reasoning_content", "reasoning"];
            said.parsed |= parts.iter().any(|part| !is_nothing(&message[part]));
            if let Some(reason) = choice["finish_reason"].as_str() {
                said.finish_reason = Some(reason.to_owned());
            }
        }
        Ok(())
    }

    fn whole(self) -> Result<Self, String> {
        let ended = !self.choices.is_empty() && self.choices.values().all(|said| said.finish_reason.is_some());
        if ended { Ok(self) } else { Err("the answer has no end".to_owned()) }
    }
}

fn is_nothing(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty) || value.as_str().is_some_and(str::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_and_streams_say_the_same() {
        let object = r#"{"choices": [{"index": 1, "message": {"content": "b"}, "finish_reason": "stop"}, {"index": 0, "message": {"content": "ac"}, "finish_reason": "length"}]}"#;
        let stream = "data: {\"choices\": [{\"index\": 0, \"delta\": {\"role\": \"assistant\", \"content\": \"\"}, \"finish_reason\": null}]}\n\n\
                      data: {\"choices\": [{\"index\": 1, \"delta\": {\"content\": \"b\"}}]}\n\n\
                      data: {\"choices\": [{\"index\": 0, \"delta\": {\"content\": \"a\"}}]}\n\n\
                      data: {\"choices\": [{\"index\": 0, \"delta\": {\"content\": \"c\"}, \"finish_reason\": \"length\"}, {\"index\": 1, \"delta\": {}, \"finish_reason\": \"stop\"}]}\n\n\
                      data: {\"choices\": [], \"usage\": {}}\n\ndata: [DONE]\n\n";
        let answer = ReplayAnswer::of_object(object).expect("an answer");
        assert_eq!(ReplayAnswer::of_stream(stream), Ok(answer.clone()));
        assert_eq!((answer.choices[&0].text.as_str(), answer.choices[&1].text.as_str()), ("ac", "b"));
        let cut = stream.split("data: [DONE]").next().expect("a part");
        assert_eq!(ReplayAnswer::of_stream(cut), Err("the stream broke off".to_owned()));
        let failed = "data: {\"error\": {\"message\": \"it broke\"}}\n\ndata: [DONE]\n\n";
        assert_eq!(ReplayAnswer::of_stream(failed), Err("it broke".to_owned()));
    }

    #[test]
    fn calls_are_no_text() {
        let object = r#"{"choices": [{"index": 0, "message": {"content": null, "tool_calls": [{}]}, "finish_reason": "tool_calls"}]}"#;
        assert!(ReplayAnswer::of_object(object).expect("an answer").choices[&0].parsed);
        assert!(ReplayAnswer::of_object("{\"choices\": []}").is_err());
    }
}
