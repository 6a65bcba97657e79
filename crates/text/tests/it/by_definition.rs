//! The definitions, slow and literal, as oracle: the published patterns with their look-ahead in a
//! backtracking engine, and merging that scans all neighbours for the best pair again and again.

use std::collections::HashMap;
use std::sync::LazyLock;

use fancy_regex::Regex;
use proptest::prelude::*;
use selfspec_text::{GgufVocab, Tokenizer};

use crate::byte_level::tricky;
use crate::support::{byte_level, letter, sentence_piece, shared, texts};

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

static PATTERNS: LazyLock<[Regex; 3]> = LazyLock::new(|| [GPT2, LLAMA3, r"\p{N}"].map(|p| Regex::new(p).unwrap()));

fn cut<'t>(regex: &Regex, text: &'t str) -> Vec<&'t str> {
    let mut pieces = Vec::new();
    let mut at = 0;
    for m in regex.find_iter(text) {
        let m = m.unwrap();
        pieces.extend([&text[at..m.start()], m.as_str()]);
        at = m.end();
    }
    pieces.push(&text[at..]);
    pieces.retain(|p| !p.is_empty());
    pieces
}

/// Joins the pair with the least key, the leftmost of equals, until no pair has one.
fn merge<K: Ord>(mut symbols: Vec<String>, key: impl Fn(&str, &str) -> Option<K>) -> Vec<String> {
    while let Some((_, at)) = (1..symbols.len()).filter_map(|i| Some((key(&symbols[i - 1], &symbols[i])?, i - 1))).min()
    {
        let right = symbols.remove(at + 1);
        symbols[at].push_str(&right);
    }
    symbols
}

fn byte_level_by_definition(v: &GgufVocab, pieces: &[&str], whole_first: bool) -> Vec<String> {
    let ranks: HashMap<&str, usize> = v.merges.iter().enumerate().map(|(i, m)| (m.as_str(), i)).collect();
    let mut out = Vec::new();
    for piece in pieces {
        let coded: Vec<String> = piece.bytes().map(|b| letter(b).to_string()).collect();
        let whole = coded.concat();
        let known = v.tokens.iter().zip(&v.token_types).any(|(t, &ty)| *t == whole && ty == 1);
        if whole_first && known {
            out.push(whole);
        } else {
            out.extend(merge(coded, |l, r| ranks.get(format!("{l} {r}").as_str()).copied()));
        }
    }
    out
}

fn sentence_piece_by_definition(v: &GgufVocab, text: &str) -> Vec<String> {
    let piece = |s: &str| v.tokens[259..].iter().position(|t| t == s);
    let text = format!("{}{}", if text.is_empty() { "" } else { "▁" }, text.replace(' ', "▁"));
    let symbols = text.chars().flat_map(|c| {
        let c = c.to_string();
        if piece(&c).is_some() { vec![c] } else { c.bytes().map(|b| format!("<0x{b:02X}>")).collect() }
    });
    merge(symbols.collect(), |l, r| {
        piece(l).and(piece(r))?;
        // Of equal scores (those of one whole, here) the longer left part comes first.
        Some((piece(&format!("{l}{r}"))?, std::cmp::Reverse(l.chars().count())))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn byte_level_tokens_follow_the_definition(text in tricky(), rule in 0usize..4) {
        let v = byte_level("");
        let t = shared(["gpt-2", "smollm", "llama-bpe", "dbrx"][rule]);
        // User-defined tokens have tests of their own.
        let text = text.replace("<think>", "<thinK>");
        let [gpt2, llama3, digit] = &*PATTERNS;
        let pieces = match rule {
            0 => cut(gpt2, &text),
            1 => cut(digit, &text).into_iter().flat_map(|p| cut(gpt2, p)).collect(),
            _ => cut(llama3, &text),
        };
        let got = t.encode(&text, false).unwrap();
        prop_assert_eq!(texts(t, &got), byte_level_by_definition(&v, &pieces, rule == 2));
    }

    #[test]
    fn sentence_piece_tokens_follow_the_definition(text in tricky()) {
        let v = sentence_piece();
        let t = Tokenizer::from_gguf(v.clone()).unwrap();
        prop_assert_eq!(texts(&t, &t.encode(&text, false).unwrap()), sentence_piece_by_definition(&v, &text));
    }
}
