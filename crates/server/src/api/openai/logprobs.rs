//! Log-probabilities of tokens, in the forms of chat completions and of completions.

use std::sync::Arc;

use selfspec_engine::TokenEvent;
use selfspec_model::TokenId;
use selfspec_text::Tokenizer;
use serde_json::{Value, json};

/// Lowest log-probability that is reported: JSON has no infinities.
const LOWEST: f32 = -9999.0;

/// Writes log-probabilities with the texts of tokens.
#[derive(Debug, Clone)]
pub(crate) struct LogprobWriter(pub(crate) Option<Arc<Tokenizer>>);

impl LogprobWriter {
    /// The form of chat completions.
    pub(crate) fn chat(&self, tokens: &[TokenEvent]) -> Value {
        let pair = |id: TokenId, logprob: f32| json!({ "token": self.text(id), "logprob": finite(logprob), "bytes": self.bytes(id) });
        let entry = |token: &TokenEvent| {
            let (logprob, top) = token.logprob.as_ref().map_or((0.0, &[][..]), |l| (l.logprob, &l.top[..]));
            let mut entry = pair(token.id, logprob);
            entry["top_logprobs"] = top.iter().map(|(id, logprob)| pair(*id, *logprob)).collect::<Vec<_>>().into();
            entry
        };
        json!({ "content": tokens.iter().map(entry).collect::<Vec<_>>() })
    }

    /// The form of completions. `offset`: characters of the choice's tokens before these; these are
    /// added to it.
    pub(super) fn completion(&self, tokens: &[TokenEvent], offset: &mut usize) -> Value {
        let own = |token: &TokenEvent| token.logprob.as_ref().map_or(0.0, |l| finite(l.logprob));
        let top = |token: &TokenEvent| {
            let top = token.logprob.iter().flat_map(|l| &l.top);
            Value::Object(top.map(|(id, logprob)| (self.text(*id), finite(*logprob).into())).collect())
        };
        let place = |token: &TokenEvent| {
            let length = self.text(token.id).chars().count();
            std::mem::replace(offset, *offset + length)
        };
        json!({
            "text_offset": tokens.iter().map(place).collect::<Vec<_>>(),
            "tokens": tokens.iter().map(|t| self.text(t.id)).collect::<Vec<_>>(),
            "token_logprobs": tokens.iter().map(own).collect::<Vec<_>>(),
            "top_logprobs": tokens.iter().map(top).collect::<Vec<_>>(),
        })
    }

    fn bytes(&self, id: TokenId) -> &[u8] {
        self.0.as_ref().and_then(|tokenizer| tokenizer.bytes(id)).unwrap_or_default()
    }

    fn text(&self, id: TokenId) -> String {
        String::from_utf8_lossy(self.bytes(id)).into_owned()
    }
}

fn finite(logprob: f32) -> f64 {
    f64::from(logprob.max(LOWEST))
}
