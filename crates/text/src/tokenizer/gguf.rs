//! Tokenizers from the metadata of a GGUF file (`tokenizer.ggml.*`).

use std::collections::HashMap;

use crate::error::{TextError, short};
use crate::tokenizer::added_tokens::{AddedToken, AddedTokenMatcher};
use crate::tokenizer::bpe::{Bpe, Merges, Start, ranks};
use crate::tokenizer::encode::Tokenizer;
use crate::tokenizer::end_tokens;
use crate::tokenizer::normalize::{Normalizer, Prefix, SPACE_MARK, Step};
use crate::tokenizer::pretokenize::{Stage, gguf_rule};
use crate::tokenizer::spelling::{byte_level_bpe, byte_level_vocab, byte_tokens, index, spaced_vocab};
use crate::tokenizer::vocab::{TokenKind, Vocab};

/// The metadata of a tokenizer as a GGUF file holds it; keys are `tokenizer.ggml.` and the name,
/// where not said otherwise.
#[derive(Debug, Clone, Default)]
pub struct GgufVocab {
    /// `model`: "gpt2" is byte-level BPE, "llama" is SentencePiece BPE.
    pub model: String,
    /// `pre`: the rule that cuts text into pre-tokens (byte-level BPE only).
    pub pre: Option<String>,
    /// `tokens`, by id.
    pub tokens: Vec<String>,
    /// `scores`, one a token; may be empty for "gpt2".
    pub scores: Vec<f32>,
    /// `token_type`, one a token; empty means that all are ordinary.
    pub token_types: Vec<i32>,
    /// `merges`: "left right", best first; may be empty for "llama".
    pub merges: Vec<String>,
    /// `bos_token_id`
    pub bos: Option<u32>,
    /// `eos_token_id`
    pub eos: Option<u32>,
    /// `eot_token_id`
    pub eot: Option<u32>,
    /// `unknown_token_id`
    pub unk: Option<u32>,
    /// `padding_token_id`
    pub pad: Option<u32>,
    /// `add_bos_token`
    pub add_bos: Option<bool>,
    /// `add_eos_token`; kept for display, since a prompt to be continued never ends with EOS.
    pub add_eos: Option<bool>,
    /// `add_space_prefix`
    pub add_space_prefix: Option<bool>,
}

impl Tokenizer {
    /// Makes the tokenizer that a GGUF file describes.
    ///
    /// # Errors
    /// An unknown model or pre-tokenizer, and fields that do not fit each other, are named.
    pub fn from_gguf(v: GgufVocab) -> Result<Tokenizer, TextError> {
        check(&v)?;
        match v.model.as_str() {
            "gpt2" => byte_level(v),
            "llama" => sentence_piece(v),
            other => Err(TextError::UnknownModel { found: short(other) }),
        }
    }
}

fn check(v: &GgufVocab) -> Result<(), TextError> {
    let n = v.tokens.len();
    if n == 0 {
        return Err(TextError::vocab("tokens", "at least one", "none"));
    }
    if u32::try_from(n).is_err() {
        return Err(TextError::vocab("tokens", "fewer than 2^32", n.to_string()));
    }
    for (field, len) in [("scores", v.scores.len()), ("token_type", v.token_types.len())] {
        if len != 0 && len != n {
            return Err(TextError::vocab(field, format!("one for each of {n} tokens"), len.to_string()));
        }
    }
    let ids = [("bos", v.bos), ("eos", v.eos), ("eot", v.eot), ("unknown", v.unk), ("padding", v.pad)];
    for (name, id) in ids {
        if let Some(id) = id
            && id as usize >= n
        {
            return Err(TextError::vocab(format!("{name}_token_id"), format!("below {n}"), id.to_string()));
        }
    }
    if let Some(i) = v.scores.iter().position(|s| s.is_nan()) {
        return Err(TextError::vocab(format!("scores[{i}]"), "a number", "NaN"));
    }
    Ok(())
}

/// The kinds, with the special ids made control tokens where the file has no types at all.
fn kinds(v: &GgufVocab) -> Result<Vec<TokenKind>, TextError> {
    let mut kinds = Vec::with_capacity(v.tokens.len());
    for (i, &number) in v.token_types.iter().enumerate() {
        let kind = TokenKind::from_gguf(number)
            .ok_or_else(|| TextError::vocab(format!("token_type[{i}]"), "0 to 6", number.to_string()))?;
        kinds.push(kind);
    }
    if kinds.is_empty() {
        kinds.resize(v.tokens.len(), TokenKind::Normal);
        for id in [v.bos, v.eos, v.eot, v.pad].into_iter().flatten() {
            kinds[id as usize] = TokenKind::Control;
        }
    }
    // Some files call end-of-turn tokens ordinary or user-defined; text that spells them must not
    // end a generation.
    for (kind, text) in kinds.iter_mut().zip(&v.tokens) {
        if end_tokens::ends_turn(text) {
            *kind = TokenKind::Control;
        }
    }
    Ok(kinds)
}

fn added(vocab: &Vocab, kind: TokenKind) -> Result<AddedTokenMatcher, TextError> {
    AddedTokenMatcher::new(vocab.ids().filter(|t| t.2 == kind).map(|(id, text, _)| AddedToken::plain(id, text)))
}

fn byte_level(v: GgufVocab) -> Result<Tokenizer, TextError> {
    let rule = gguf_rule(v.pre.as_deref().unwrap_or_default())?;
    let kinds = kinds(&v)?;
    let ids = v.tokens.iter().zip(0u32..).map(|(t, id)| (t.as_str(), id)).collect::<HashMap<_, _>>();
    let mut pairs = HashMap::with_capacity(v.merges.len());
    for (i, merge) in v.merges.iter().enumerate() {
        let field = || format!("merges[{i}]");
        let (left, right) =
            merge.split_once(' ').filter(|(l, r)| !l.is_empty() && !r.is_empty() && !r.contains(' ')).ok_or_else(
                || TextError::vocab(field(), "two tokens and a space between", format!("{:?}", short(merge))),
            )?;
        let id = |text: &str| {
            ids.get(text).copied().ok_or_else(|| {
                TextError::vocab(field(), "parts and whole among the tokens", format!("{:?}", short(text)))
            })
        };
        let whole = id(&format!("{left}{right}"))?;
        if matches!(kinds[whole as usize], TokenKind::Normal | TokenKind::Unused) {
            pairs.insert((id(left)?, id(right)?), (i as u32, whole));
        }
    }
    drop(ids);

    let GgufVocab { tokens, bos, eos, eot, add_bos, .. } = v;
    let vocab = byte_level_vocab(tokens, kinds);
    let bpe = byte_level_bpe(&vocab, Merges::Pairs(pairs), rule.whole_first, None);
    Ok(Tokenizer {
        controls: added(&vocab, TokenKind::Control)?,
        user: added(&vocab, TokenKind::UserDefined)?,
        user_normalized: AddedTokenMatcher::new([])?,
        bpe,
        stages: rule.stages,
        normalizer: Normalizer { steps: if rule.nfc { vec![Step::Nfc] } else { Vec::new() }, ..Normalizer::default() },
        bos,
        add_bos: add_bos.unwrap_or(rule.add_bos),
        eos,
        eos_ids: end_tokens::ids(&vocab, [eos, eot]),
        strips_first_space: false,
        chat_template: None,
        vocab,
    })
}

fn sentence_piece(v: GgufVocab) -> Result<Tokenizer, TextError> {
    let mut kinds = kinds(&v)?;
    if v.scores.is_empty() {
        return Err(TextError::vocab("scores", format!("one for each of {} tokens", v.tokens.len()), "none"));
    }
    let mut scores = v.scores;
    // Runs of spaces are user-defined in Gemma's files, but the reference makes them by merges,
    // before all others.
    let mut runs = 0;
    for (i, text) in v.tokens.iter().enumerate() {
        if kinds[i] == TokenKind::UserDefined && text.chars().all(|c| c == ' ' || c == SPACE_MARK) && !text.is_empty() {
            kinds[i] = TokenKind::Normal;
            scores[i] = f32::MAX;
            runs += 1;
        }
    }
    if runs > 0 {
        lift_runs(&mut scores);
    }
    let vocab = spaced_vocab(v.tokens, kinds);
    let made = |id| matches!(vocab.kind(id), Some(TokenKind::Normal | TokenKind::Unused));
    let index = index(&vocab, made);
    let words = pieces_hold_no_inner_space(&vocab, made);
    let has_unused = vocab.ids().any(|t| t.2 == TokenKind::Unused);
    let bpe = Bpe {
        start: Start::Chars(byte_tokens(&vocab)),
        merges: Merges::Scores(ranks(&scores, made)),
        index,
        whole_first: false,
        unknown: v.unk.or_else(|| vocab.ids().find(|t| t.2 == TokenKind::Unknown).map(|t| t.0)),
        fuse_unknown: true,
        has_unused,
    };
    let prefix = v.add_space_prefix.unwrap_or(true);
    Ok(Tokenizer {
        controls: added(&vocab, TokenKind::Control)?,
        user: added(&vocab, TokenKind::UserDefined)?,
        user_normalized: AddedTokenMatcher::new([])?,
        bpe,
        stages: if words { vec![Stage::Words] } else { Vec::new() },
        normalizer: Normalizer {
            steps: Vec::new(),
            prefix: if prefix { Prefix::Always } else { Prefix::Never },
            marks_are_spaces: true,
        },
        bos: v.bos,
        add_bos: v.add_bos.unwrap_or(true),
        eos: v.eos,
        eos_ids: end_tokens::ids(&vocab, [v.eos, v.eot]),
        strips_first_space: prefix,
        chat_template: None,
        vocab,
    })
}

/// Gives the tokens at `f32::MAX` falling scores in the order of their ids, above all others.
fn lift_runs(scores: &mut [f32]) {
    let mut next = f32::MAX;
    for score in scores.iter_mut().filter(|s| **s == f32::MAX) {
        *score = next;
        next = next.next_down();
    }
}

/// Whether no piece has a space after a non-space. Then merges never cross such a place, and a text
/// may be cut there without changing its tokens.
pub(crate) fn pieces_hold_no_inner_space(vocab: &Vocab, made: impl Fn(u32) -> bool) -> bool {
    (0..vocab.len() as u32)
        .filter(|&id| made(id))
        .all(|id| vocab.bytes(id).unwrap_or_default().windows(2).all(|w| w[0] == b' ' || w[1] != b' '))
}
