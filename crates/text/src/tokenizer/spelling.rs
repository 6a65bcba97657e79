//! How vocabularies spell bytes and spaces: byte-level ones in the byte alphabet, SentencePiece's
//! with `▁` for a space and `<0x0A>` for a byte.

use crate::tokenizer::bpe::{Bpe, Merges, Start};
use crate::tokenizer::byte_alphabet;
use crate::tokenizer::normalize::SPACE_MARK;
use crate::tokenizer::vocab::{ByteIndex, TokenKind, Vocab};

/// Ordinary tokens are written in the byte alphabet, the others as plain text.
pub(crate) fn byte_level_vocab(tokens: Vec<String>, kinds: Vec<TokenKind>) -> Vocab {
    let mut vocab = Vocab::with_capacity(tokens.len());
    for (text, kind) in tokens.into_iter().zip(kinds) {
        vocab.push(text, kind, |text, out| {
            let coded = matches!(kind, TokenKind::Normal | TokenKind::Unused | TokenKind::Byte);
            if !(coded && byte_alphabet::decode(text, out)) {
                out.extend_from_slice(text.as_bytes());
            }
        });
    }
    vocab
}

pub(crate) fn byte_level_bpe(vocab: &Vocab, merges: Merges, whole_first: bool, unknown: Option<u32>) -> Bpe {
    let index = index(vocab, |id| matches!(vocab.kind(id), Some(TokenKind::Normal | TokenKind::Byte)));
    let key = |id| vocab.bytes(id).unwrap_or_default();
    let bytes = Box::new(std::array::from_fn(|b| index.get(&[b as u8], key)));
    Bpe { start: Start::Bytes(bytes), merges, index, whole_first, unknown, fuse_unknown: false, has_unused: false }
}

/// An index over the tokens that `made` allows, except empty ones.
pub(crate) fn index(vocab: &Vocab, made: impl Fn(u32) -> bool) -> ByteIndex {
    let key = |id| vocab.bytes(id).unwrap_or_default();
    let ids = (0..vocab.len() as u32).filter(|&id| made(id) && !key(id).is_empty());
    ByteIndex::new(vocab.len(), ids.map(|id| (id, key(id))), key)
}

/// Tokens that write a space as `▁`, and bytes as `<0x0A>`.
pub(crate) fn spaced_vocab(tokens: Vec<String>, kinds: Vec<TokenKind>) -> Vocab {
    let mut vocab = Vocab::with_capacity(tokens.len());
    for (text, kind) in tokens.into_iter().zip(kinds) {
        vocab.push(text, kind, |text, out| match (kind, byte_of(text)) {
            (TokenKind::Byte, Some(byte)) => out.push(byte),
            _ if text.contains(SPACE_MARK) => out.extend_from_slice(text.replace(SPACE_MARK, " ").as_bytes()),
            _ => out.extend_from_slice(text.as_bytes()),
        });
    }
    vocab
}

/// The byte in `<0x0A>`.
pub(crate) fn byte_of(text: &str) -> Option<u8> {
    let hex = text.strip_prefix("<0x")?.strip_suffix('>')?;
    if hex.len() == 2 && hex.bytes().all(|b| b.is_ascii_hexdigit()) { u8::from_str_radix(hex, 16).ok() } else { None }
}

/// The 256 byte tokens, if all are there.
pub(crate) fn byte_tokens(vocab: &Vocab) -> Option<Box<[u32; 256]>> {
    let mut found = [None; 256];
    for (id, text, kind) in vocab.ids() {
        if kind == TokenKind::Byte
            && let Some(byte) = byte_of(text)
        {
            found[byte as usize] = Some(id);
        }
    }
    let mut ids = Box::new([0; 256]);
    for (slot, id) in ids.iter_mut().zip(found) {
        *slot = id?;
    }
    Some(ids)
}
