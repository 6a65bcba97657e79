//! The tokens of a vocabulary: their spellings, kinds and bytes, and the search by bytes.

use std::hash::{BuildHasher, RandomState};

/// What a token is, after `tokenizer.ggml.token_type` (the numbers are those of SentencePiece's
/// `ModelProto`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// Made by merges from text.
    Normal,
    /// Stands for what the vocabulary cannot write.
    Unknown,
    /// Structure (begin, end, role markers): never made from user text, and gives no text.
    Control,
    /// Found whole in any text before the merges, and gives its own spelling.
    UserDefined,
    /// A slot that the model was never trained on: never made from text.
    Unused,
    /// One byte, for characters that have no token of their own.
    Byte,
}

impl TokenKind {
    pub(crate) fn from_gguf(number: i32) -> Option<TokenKind> {
        Some(match number {
            // Zero is "undefined" in the format and occurs in old files for ordinary tokens.
            0 | 1 => TokenKind::Normal,
            2 => TokenKind::Unknown,
            3 => TokenKind::Control,
            4 => TokenKind::UserDefined,
            5 => TokenKind::Unused,
            6 => TokenKind::Byte,
            _ => return None,
        })
    }
}

/// The tokens: as the file spells them, and as the bytes that they stand for in a text.
#[derive(Debug)]
pub(crate) struct Vocab {
    /// As in the file, by id.
    texts: Vec<String>,
    kinds: Vec<TokenKind>,
    /// All tokens' bytes, one after the other; token `i` is `ends[i - 1]..ends[i]`.
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Vocab {
    pub(crate) fn with_capacity(tokens: usize) -> Vocab {
        Vocab {
            texts: Vec::with_capacity(tokens),
            kinds: Vec::with_capacity(tokens),
            bytes: Vec::with_capacity(tokens * 8),
            ends: Vec::with_capacity(tokens),
        }
    }

    /// Appends the next token; `write` appends the bytes that it stands for.
    pub(crate) fn push(&mut self, text: String, kind: TokenKind, write: impl FnOnce(&str, &mut Vec<u8>)) {
        write(&text, &mut self.bytes);
        self.ends.push(self.bytes.len());
        self.texts.push(text);
        self.kinds.push(kind);
    }

    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }

    pub(crate) fn text(&self, id: u32) -> Option<&str> {
        self.texts.get(id as usize).map(String::as_str)
    }

    pub(crate) fn kind(&self, id: u32) -> Option<TokenKind> {
        self.kinds.get(id as usize).copied()
    }

    pub(crate) fn bytes(&self, id: u32) -> Option<&[u8]> {
        let id = id as usize;
        let end = *self.ends.get(id)?;
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        Some(&self.bytes[start..end])
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = (u32, &str, TokenKind)> {
        self.texts.iter().zip(&self.kinds).enumerate().map(|(i, (t, &k))| (i as u32, t.as_str(), k))
    }
}

/// Finds a token by its bytes: an open-addressing table of ids, so that no key is stored twice.
#[derive(Debug)]
pub(crate) struct ByteIndex {
    slots: Vec<u32>,
    hasher: RandomState,
}

const FREE: u32 = u32::MAX;

impl ByteIndex {
    /// Indexes the given ids by what `key` says of them; of equal keys the last wins, as in the
    /// reference tokenizers.
    pub(crate) fn new<'k>(
        count: usize,
        ids: impl Iterator<Item = (u32, &'k [u8])>,
        key: impl Fn(u32) -> &'k [u8],
    ) -> Self {
        let size = (count * 2).next_power_of_two().max(2);
        let mut index = ByteIndex { slots: vec![FREE; size], hasher: RandomState::new() };
        for (id, bytes) in ids.take(count) {
            let slot = index.slot(bytes, &key);
            index.slots[slot] = id;
        }
        index
    }

    fn slot<'k>(&self, bytes: &[u8], key: impl Fn(u32) -> &'k [u8]) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = self.hasher.hash_one(bytes) as usize & mask;
        // At most half the slots are taken, so a free one comes.
        while self.slots[at] != FREE && key(self.slots[at]) != bytes {
            at = (at + 1) & mask;
        }
        at
    }

    pub(crate) fn get<'k>(&self, bytes: &[u8], key: impl Fn(u32) -> &'k [u8]) -> Option<u32> {
        let id = self.slots[self.slot(bytes, key)];
        (id != FREE).then_some(id)
    }
}
