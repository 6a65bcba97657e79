//! Merging: a stretch of text becomes symbols, and the best pair of neighbours is joined until none
//! can be.
//!
//! One routine serves both families. Byte-level BPE starts from bytes and looks pairs of ids up in
//! a table of ranks; SentencePiece starts from characters and looks the joined spelling up among
//! the pieces, the best score first. A queue of candidates and a linked list of symbols make it n
//! log n: a text without any break costs no more per byte.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use crate::error::TextError;
use crate::tokenizer::vocab::{ByteIndex, Vocab};

/// Marks a symbol without a token and the end of the linked list.
const NONE: u32 = u32::MAX;

/// How a stretch of text becomes its first symbols.
#[derive(Debug)]
pub(crate) enum Start {
    /// One symbol a byte: the token of each byte.
    Bytes(Box<[Option<u32>; 256]>),
    /// One symbol a character; a character without a piece becomes its byte tokens where the
    /// vocabulary has them.
    Chars(Option<Box<[u32; 256]>>),
}

/// Which neighbours may be joined, and in what order.
#[derive(Debug)]
pub(crate) enum Merges {
    /// (left id, right id) -> (rank, id of the whole); a lower rank comes first.
    Pairs(HashMap<(u32, u32), (u32, u32)>),
    /// By id of the whole: its place in the order of scores (best first), [`NONE`] for what merges
    /// never make.
    Scores(Vec<u32>),
}

/// A BPE model over the bytes that tokens stand for (a space is a space here, not `Ġ` or `▁`).
#[derive(Debug)]
pub(crate) struct Bpe {
    pub(crate) start: Start,
    pub(crate) merges: Merges,
    /// Tokens that text may become, by their bytes.
    pub(crate) index: ByteIndex,
    /// Takes a stretch that is a token as that token, whatever the merges say (Llama 3).
    pub(crate) whole_first: bool,
    pub(crate) unknown: Option<u32>,
    /// Neighbouring unknown characters give one unknown token.
    pub(crate) fuse_unknown: bool,
    /// Unused pieces that merges pass through, with the two parts to fall back to (SentencePiece).
    pub(crate) has_unused: bool,
}

/// One symbol of the stretch: the byte range `start..end`.
#[derive(Debug, Clone, Copy)]
struct Symbol {
    start: u32,
    end: u32,
    chars: u32,
    id: u32,
    prev: u32,
    next: u32,
}

/// A pair that may be joined. Ordered by what is joined first; the earlier position decides between
/// equals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: u32,
    /// Of equal scores the longer left part comes first, then the longer right one: the order in
    /// which the reference lists the merges that it derives from scores.
    left_chars: Reverse<u32>,
    right_chars: Reverse<u32>,
    left: u32,
    right: u32,
    /// Ends of both parts when the pair was seen; a symbol that has grown since makes the candidate
    /// void.
    left_end: u32,
    right_end: u32,
    id: u32,
}

/// Buffers of [`Bpe::encode`], kept from stretch to stretch.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Reverse<Candidate>>,
    /// Unused piece -> the two parts that it was joined from, in this stretch.
    parts: HashMap<u32, (u32, u32)>,
}

impl Bpe {
    /// Appends the tokens of one stretch: a pre-token, or a whole text for models without
    /// pre-tokenizer.
    pub(crate) fn encode(
        &self,
        vocab: &Vocab,
        text: &str,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> Result<(), TextError> {
        let key = |id| vocab.bytes(id).unwrap_or_default();
        if self.whole_first
            && let Some(id) = self.index.get(text.as_bytes(), key)
        {
            out.push(id);
            return Ok(());
        }
        // Symbols hold 32-bit offsets; a longer text is encoded piece by piece at character
        // borders.
        const LONGEST: usize = 1 << 30;
        let mut rest = text;
        while rest.len() > LONGEST {
            let at = (LONGEST - 3..=LONGEST).rev().find(|&i| rest.is_char_boundary(i)).unwrap_or(LONGEST);
            let (head, tail) = rest.split_at(at);
            self.encode_short(vocab, head, scratch, out)?;
            rest = tail;
        }
        self.encode_short(vocab, rest, scratch, out)
    }

    fn encode_short(&self, vocab: &Vocab, text: &str, s: &mut Scratch, out: &mut Vec<u32>) -> Result<(), TextError> {
        s.symbols.clear();
        s.queue.clear();
        s.parts.clear();
        self.first_symbols(vocab, text, s)?;
        for i in 1..s.symbols.len() {
            self.propose(vocab, text, s, i as u32 - 1, i as u32);
        }
        while let Some(Reverse(c)) = s.queue.pop() {
            let (left, right) = (s.symbols[c.left as usize], s.symbols[c.right as usize]);
            if left.id == NONE
                || right.id == NONE
                || left.end != c.left_end
                || right.end != c.right_end
                || left.next != c.right
            {
                continue;
            }
            if self.has_unused {
                s.parts.insert(c.id, (left.id, right.id));
            }
            let joined = &mut s.symbols[c.left as usize];
            joined.end = right.end;
            joined.chars = left.chars.saturating_add(right.chars);
            joined.id = c.id;
            joined.next = right.next;
            s.symbols[c.right as usize].id = NONE;
            if right.next != NONE {
                s.symbols[right.next as usize].prev = c.left;
                self.propose(vocab, text, s, c.left, right.next);
            }
            if left.prev != NONE {
                self.propose(vocab, text, s, left.prev, c.left);
            }
        }
        self.collect(vocab, s, out);
        Ok(())
    }

    fn first_symbols(&self, vocab: &Vocab, text: &str, s: &mut Scratch) -> Result<(), TextError> {
        let key = |id| vocab.bytes(id).unwrap_or_default();
        let symbols = &mut s.symbols;
        let mut push = |start: usize, end: usize, id: u32| {
            let i = symbols.len() as u32;
            let prev = if i == 0 { NONE } else { i - 1 };
            if let Some(last) = symbols.last_mut() {
                last.next = i;
            }
            symbols.push(Symbol { start: start as u32, end: end as u32, chars: 1, id, prev, next: NONE });
        };
        let mut unknown_until = usize::MAX;
        let mut unknown =
            |start: usize, end: usize, what: &dyn Fn() -> String, push: &mut dyn FnMut(usize, usize, u32)| {
                let id = self.unknown.ok_or_else(|| TextError::NotInVocabulary { what: what(), at: start })?;
                if !(self.fuse_unknown && unknown_until == start) {
                    push(start, end, id);
                }
                unknown_until = end;
                Ok::<(), TextError>(())
            };
        match &self.start {
            Start::Bytes(ids) => {
                for (at, &byte) in text.as_bytes().iter().enumerate() {
                    match ids[byte as usize] {
                        Some(id) => push(at, at + 1, id),
                        None if self.unknown.is_some() => unknown(at, at + 1, &String::new, &mut push)?,
                        // SmolLM2 has no token for some bytes, such as 0x04. The reference leaves
                        // them out, and so does llama.cpp; an error would refuse texts that a model
                        // can well do without.
                        None => {}
                    }
                }
            }
            Start::Chars(fallback) => {
                for (at, c) in text.char_indices() {
                    let end = at + c.len_utf8();
                    let bytes = &text.as_bytes()[at..end];
                    match (self.index.get(bytes, key), fallback) {
                        (Some(id), _) => push(at, end, id),
                        (None, Some(ids)) => {
                            for (i, &byte) in bytes.iter().enumerate() {
                                push(at + i, at + i + 1, ids[byte as usize]);
                            }
                        }
                        (None, None) => unknown(at, end, &|| format!("character {c:?}"), &mut push)?,
                    }
                }
            }
        }
        Ok(())
    }

    fn propose(&self, vocab: &Vocab, text: &str, s: &mut Scratch, left: u32, right: u32) {
        let (l, r) = (s.symbols[left as usize], s.symbols[right as usize]);
        let found = match &self.merges {
            Merges::Pairs(pairs) => pairs.get(&(l.id, r.id)).copied(),
            Merges::Scores(ranks) => {
                let made = |id: u32| ranks.get(id as usize).is_some_and(|&rank| rank != NONE);
                // Both parts must be pieces themselves: a byte token or the unknown token is joined
                // with nothing.
                if made(l.id) && made(r.id) {
                    let joined = &text.as_bytes()[l.start as usize..r.end as usize];
                    self.index.get(joined, |id| vocab.bytes(id).unwrap_or_default()).map(|id| (ranks[id as usize], id))
                } else {
                    None
                }
            }
        };
        if let Some((rank, id)) = found {
            let by_score = matches!(self.merges, Merges::Scores(_));
            s.queue.push(Reverse(Candidate {
                rank,
                left_chars: Reverse(if by_score { l.chars } else { 0 }),
                right_chars: Reverse(if by_score { r.chars } else { 0 }),
                left,
                right,
                left_end: l.end,
                right_end: r.end,
                id,
            }));
        }
    }

    fn collect(&self, vocab: &Vocab, s: &Scratch, out: &mut Vec<u32>) {
        let mut at = if s.symbols.is_empty() { NONE } else { 0 };
        let mut todo = Vec::new();
        while at != NONE {
            let symbol = s.symbols[at as usize];
            if self.has_unused {
                // Each part is shorter than the whole, so this ends.
                todo.push(symbol.id);
                while let Some(id) = todo.pop() {
                    match s.parts.get(&id) {
                        Some(&(l, r)) if vocab.kind(id) == Some(crate::TokenKind::Unused) => todo.extend([r, l]),
                        _ => out.push(id),
                    }
                }
            } else {
                out.push(symbol.id);
            }
            at = symbol.next;
        }
    }
}

/// The order of scores as a number for each token: best first, equal scores equal; [`NONE`] where
/// `made` is false.
pub(crate) fn ranks(scores: &[f32], made: impl Fn(u32) -> bool) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..scores.len() as u32).filter(|&id| made(id)).collect();
    ids.sort_by(|&a, &b| scores[b as usize].total_cmp(&scores[a as usize]));
    let mut ranks = vec![NONE; scores.len()];
    let mut rank = 0;
    for (i, &id) in ids.iter().enumerate() {
        if i > 0 && scores[ids[i - 1] as usize] != scores[id as usize] {
            rank = i as u32;
        }
        ranks[id as usize] = rank;
    }
    ranks
}
