//! The tokenizer: the tokens of a text, and what each token is.

use crate::error::{TextError, short};
use crate::tokenizer::added_tokens::{AddedTokenMatcher, Segment};
use crate::tokenizer::bpe::{Bpe, Scratch};
use crate::tokenizer::normalize::Normalizer;
use crate::tokenizer::pretokenize::{Stage, split};
use crate::tokenizer::rendered_prompt::RenderedPrompt;
use crate::tokenizer::vocab::{TokenKind, Vocab};

/// Text to token ids and back; made from a GGUF's metadata or from tokenizer.json.
#[derive(Debug)]
pub struct Tokenizer {
    pub(crate) vocab: Vocab,
    pub(crate) bpe: Bpe,
    pub(crate) stages: Vec<Stage>,
    pub(crate) normalizer: Normalizer,
    /// Control tokens: found only in what a template wrote.
    pub(crate) controls: AddedTokenMatcher,
    /// User-defined tokens, found in any text: those matched before the normalizer, then those
    /// matched after it.
    pub(crate) user: AddedTokenMatcher,
    pub(crate) user_normalized: AddedTokenMatcher,
    pub(crate) bos: Option<u32>,
    pub(crate) add_bos: bool,
    /// EOS by name, for templates.
    pub(crate) eos: Option<u32>,
    pub(crate) eos_ids: Vec<u32>,
    /// Decoding drops one space at the start of a text, because encoding puts one there.
    pub(crate) strips_first_space: bool,
    pub(crate) chat_template: Option<String>,
}

impl Tokenizer {
    /// The tokens of a user's text. Spellings of control tokens stay text. With `bos`, begins with
    /// BOS if the model wants one.
    ///
    /// # Errors
    /// [`TextError::NotInVocabulary`] for a byte or character without token in a vocabulary without
    /// unknown token; [`TextError::PatternFailed`] when a pattern of tokenizer.json gives up.
    pub fn encode(&self, text: &str, bos: bool) -> Result<Vec<u32>, TextError> {
        let mut out = Vec::new();
        if bos && self.add_bos {
            out.extend(self.bos);
        }
        let mut scratch = Scratch::default();
        self.encode_text(text, true, &mut scratch, &mut out)?;
        Ok(out)
    }

    /// The tokens of a stretch inside a text: no BOS, and no space before the first word.
    pub(crate) fn encode_inside(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let mut out = Vec::new();
        self.encode_text(text, false, &mut Scratch::default(), &mut out)?;
        Ok(out)
    }

    /// The tokens of a rendered chat: control tokens that the template wrote are tokens, spellings
    /// of them inside messages stay text. BOS is put first if the model wants one and the template
    /// has not written it.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`]; [`TextError::Unguarded`] when the template did not know the
    /// control tokens and a message spells one.
    pub fn encode_prompt(&self, prompt: &RenderedPrompt) -> Result<Vec<u32>, TextError> {
        if let Some(token) = prompt.unguarded.iter().find_map(|text| self.controls.find(text)) {
            return Err(TextError::Unguarded { token: short(token) });
        }
        let mut out = Vec::new();
        let mut scratch = Scratch::default();
        let mut first = true;
        for part in self.controls.cut(&prompt.marked) {
            match part {
                Segment::Token(id) => out.push(id),
                Segment::Text(text) => match prompt.sentinel {
                    Some(s) if text.contains(s) => {
                        let clean: String = text.chars().filter(|&c| c != s).collect();
                        self.encode_text(&clean, first, &mut scratch, &mut out)?;
                    }
                    _ => self.encode_text(text, first, &mut scratch, &mut out)?,
                },
            }
            first = false;
        }
        if let Some(bos) = self.bos
            && self.add_bos
            && out.first() != Some(&bos)
        {
            out.insert(0, bos);
        }
        Ok(out)
    }

    /// Encodes text without control tokens; `first`: it begins the whole text.
    fn encode_text(
        &self,
        text: &str,
        mut first: bool,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> Result<(), TextError> {
        for part in self.user.cut(text) {
            match part {
                Segment::Token(id) => out.push(id),
                Segment::Text(stretch) => {
                    let normal = self.normalizer.apply(stretch, first);
                    for part in self.user_normalized.cut(&normal) {
                        match part {
                            Segment::Token(id) => out.push(id),
                            Segment::Text(stretch) => split(&self.stages, stretch, &mut |piece| {
                                self.bpe.encode(&self.vocab, piece, scratch, out)
                            })?,
                        }
                    }
                }
            }
            first = false;
        }
        Ok(())
    }

    /// The bytes that a token gives as text, with `▁` and the byte alphabet undone; `None` past the
    /// vocabulary. A control token has the bytes of its spelling, though [`crate::Detokenizer`]
    /// gives no text for it.
    pub fn bytes(&self, id: u32) -> Option<&[u8]> {
        self.vocab.bytes(id)
    }

    /// A token as the file spells it.
    pub fn token_text(&self, id: u32) -> Option<&str> {
        self.vocab.text(id)
    }

    /// What a token is.
    pub fn kind(&self, id: u32) -> Option<TokenKind> {
        self.vocab.kind(id)
    }

    /// Whether the token is structure and gives no text.
    pub fn is_control(&self, id: u32) -> bool {
        self.kind(id) == Some(TokenKind::Control)
    }

    /// The token spelled exactly so in the file.
    pub fn token_id(&self, text: &str) -> Option<u32> {
        self.vocab.ids().find(|&(_, t, _)| t == text).map(|(id, ..)| id)
    }

    /// The control token spelled exactly so in the file.
    pub fn control_id(&self, text: &str) -> Option<u32> {
        self.token_id(text).filter(|id| self.is_control(*id))
    }

    /// The number of tokens.
    pub fn vocab_size(&self) -> usize {
        self.vocab.len()
    }

    /// The token that begins a text, whether or not it is put there.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// Whether a text begins with BOS.
    pub fn adds_bos(&self) -> bool {
        self.add_bos && self.bos.is_some()
    }

    /// The tokens that end a generation, ascending: EOS, end of turn and the like.
    pub fn eos_ids(&self) -> &[u32] {
        &self.eos_ids
    }

    /// The chat template that came with tokenizer_config.json (that of a GGUF is in its own
    /// metadata).
    pub fn chat_template_source(&self) -> Option<&str> {
        self.chat_template.as_deref()
    }
}
