//! Which tokens end a generation.

use crate::tokenizer::vocab::{TokenKind, Vocab};

/// Spellings of end-of-turn and end-of-text tokens: a chat model ends its answer with one of them
/// even when the file names another as EOS.
const ENDS: [&str; 14] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|end_of_turn|>",
    "<end_of_turn>",
    "<|EOT|>",
    "<EOT>",
    "<|return|>",
    "<|call|>",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
];

/// Whether a token spelled so ends a turn or text.
pub(crate) fn ends_turn(text: &str) -> bool {
    ENDS.contains(&text)
}

/// The ids that the file names and the control tokens with a known spelling, ascending.
pub(crate) fn ids(vocab: &Vocab, named: [Option<u32>; 2]) -> Vec<u32> {
    let mut ids: Vec<u32> = named.into_iter().flatten().collect();
    ids.extend(vocab.ids().filter(|t| t.2 == TokenKind::Control && ends_turn(t.1)).map(|t| t.0));
    ids.sort_unstable();
    ids.dedup();
    ids
}
