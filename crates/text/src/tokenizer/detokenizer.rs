//! Tokens to text, as they come.

use crate::tokenizer::encode::Tokenizer;

/// Turns tokens into text as they come: only whole characters are given out, so that an emoji whose
/// bytes lie in several tokens appears once, when it is complete. Equal to [`Tokenizer::decode`]
/// however the tokens are spread over calls.
#[derive(Debug, Clone, Default)]
pub struct Detokenizer {
    /// The start of a character that later bytes may complete: at most 3 bytes between calls.
    pending: Vec<u8>,
    /// Something was given out already, so that a space is no longer the encoder's own.
    inside: bool,
    /// Control tokens that are text here.
    spelled: Vec<u32>,
}

impl Detokenizer {
    /// For tokens that begin a text: the space that a SentencePiece encoder puts before the first
    /// word is left out.
    pub fn new() -> Detokenizer {
        Detokenizer::default()
    }

    /// For tokens that continue a text: a leading space is text.
    pub fn continuing() -> Detokenizer {
        Detokenizer { inside: true, ..Detokenizer::default() }
    }

    /// The same, with these control tokens spelled out: for a reader of the text who looks for
    /// them.
    pub fn spelling(self, spelled: Vec<u32>) -> Detokenizer {
        Detokenizer { spelled, ..self }
    }

    /// Appends to `out` the characters that the token completes. Control tokens and ids past the
    /// vocabulary give none; bytes that no later byte can make a character become U+FFFD.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32, out: &mut String) {
        if tokenizer.is_control(id) && !self.spelled.contains(&id) {
            return;
        }
        let mut bytes = tokenizer.bytes(id).unwrap_or_default();
        if bytes.is_empty() {
            return;
        }
        if !self.inside && tokenizer.strips_first_space && bytes[0] == b' ' {
            bytes = &bytes[1..];
        }
        self.inside = true;
        self.pending.extend_from_slice(bytes);
        let mut at = 0;
        let end = loop {
            match std::str::from_utf8(&self.pending[at..]) {
                Ok(text) => {
                    out.push_str(text);
                    break self.pending.len();
                }
                Err(error) => {
                    let good = at + error.valid_up_to();
                    out.push_str(&String::from_utf8_lossy(&self.pending[at..good]));
                    match error.error_len() {
                        Some(bad) => {
                            out.push(char::REPLACEMENT_CHARACTER);
                            at = good + bad;
                        }
                        None => break good,
                    }
                }
            }
        };
        self.pending.drain(..end);
    }

    /// Ends the text: what is left of an incomplete character becomes one U+FFFD.
    pub fn finish(&mut self, out: &mut String) {
        if !self.pending.is_empty() {
            self.pending.clear();
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

impl Tokenizer {
    /// The text of tokens that begin a text. Control tokens give none.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut out = String::new();
        let mut detokenizer = Detokenizer::new();
        for &id in ids {
            detokenizer.push(self, id, &mut out);
        }
        detokenizer.finish(&mut out);
        out
    }
}
