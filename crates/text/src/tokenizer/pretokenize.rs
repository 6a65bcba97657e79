//! Cutting text into pre-tokens, the stretches that merges never cross.
//!
//! The rules are regular expressions with one look-ahead, `\s+(?!\S)`: a run of white space leaves
//! its last character to the word that follows. That much is done by hand after a match of `\s+`,
//! so that the rest needs an engine without backtracking, which is fast and linear on any text.

use regex::Regex;

use crate::error::{TextError, short};

/// One pass over the text; the next pass sees each of its pieces alone.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Every numeric character alone (`\p{N}`).
    Digits,
    /// Digits in runs, apart from everything else.
    DigitRuns,
    /// A linear expression whose `\s+` matches give their last character back when a word follows.
    /// With `line_breaks`, the expression has `\s*[\r\n]+` before that, so that a match which ends
    /// in a line break is kept whole.
    Linear { regex: Regex, line_breaks: bool },
    /// Any other expression, with what becomes of its matches.
    General { regex: fancy_regex::Regex, behavior: Behavior, invert: bool },
    /// Before each space (`Metaspace` with "split").
    Spaces,
    /// Before each space that follows a non-space: models whose pieces never hold an inner space.
    Words,
}

/// What becomes of the matches of an expression (`SplitDelimiterBehavior` of tokenizer.json).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behavior {
    Isolated,
    Removed,
    MergedWithPrevious,
    MergedWithNext,
    Contiguous,
}

/// GPT-2: openai/gpt-2, `encoder.py`.
pub(crate) const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// Llama 3: its tokenizer.json.
pub(crate) const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen2: its tokenizer.json.
pub(crate) const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Mistral Nemo ("tekken"): its tokenizer.json.
pub(crate) const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The patterns that the hand-made look-ahead is exact for: in each, a match of white space alone
/// is one of `\s+` or, where the pattern has it, of `\s*[\r\n]+`, and then ends in a line break.
const LINEAR: [&str; 4] = [GPT2, LLAMA3, QWEN2, TEKKEN];
const LOOK_AHEAD: &str = r"|\s+(?!\S)|\s+";

impl Stage {
    /// Compiles a pattern whose matches stand alone: without backtracking for the well-known ones.
    pub(crate) fn isolated(pattern: &str) -> Result<Stage, TextError> {
        if LINEAR.contains(&pattern)
            && let Some(head) = pattern.strip_suffix(LOOK_AHEAD)
            && let Ok(regex) = Regex::new(&format!(r"{head}|\s+"))
        {
            return Ok(Stage::Linear { regex, line_breaks: head.contains(r"\s*[\r\n]+") });
        }
        Stage::general(pattern, Behavior::Isolated, false)
    }

    /// Compiles a pattern as the reference library reads it, in Ruby's syntax: `^` and `$` are the
    /// ends of lines.
    pub(crate) fn general(pattern: &str, behavior: Behavior, invert: bool) -> Result<Stage, TextError> {
        let bad = |what: String| TextError::BadPattern { pattern: short(pattern), what };
        if sets_flag_m(pattern) {
            return Err(bad("the flag m, which means another thing here, is not supported".to_owned()));
        }
        let regex = fancy_regex::Regex::new(&format!("(?m:{pattern})")).map_err(|e| bad(first_line(&e.to_string())))?;
        Ok(Stage::General { regex, behavior, invert })
    }

    fn split<'t>(&self, text: &'t str, f: &mut Sink<'_, 't>) -> Result<(), TextError> {
        match self {
            Stage::Digits => {
                let mut start = 0;
                for (at, c) in text.char_indices().filter(|(_, c)| c.is_numeric()) {
                    give(&text[start..at], f)?;
                    start = at + c.len_utf8();
                    give(&text[at..start], f)?;
                }
                give(&text[start..], f)
            }
            Stage::DigitRuns => split_before(text, |before, c| before.is_numeric() != c.is_numeric(), f),
            Stage::Spaces => split_before(text, |_, c| c == ' ', f),
            Stage::Words => split_before(text, |before, c| before != ' ' && c == ' ', f),
            Stage::Linear { regex, line_breaks } => {
                let mut at = 0;
                while let Some(m) = regex.find_at(text, at) {
                    let mut end = m.end();
                    if end < text.len()
                        && m.as_str().chars().all(char::is_whitespace)
                        && !(*line_breaks && m.as_str().ends_with(['\r', '\n']))
                    {
                        let last = m.as_str().chars().next_back().map_or(0, char::len_utf8);
                        if end - last > m.start() {
                            end -= last;
                        }
                    }
                    give(&text[at..m.start()], f)?;
                    give(&text[m.start()..end], f)?;
                    if end == at {
                        break; // an empty match: the rest is one piece
                    }
                    at = end;
                }
                give(&text[at..], f)
            }
            Stage::General { regex, behavior, invert } => split_general(regex, *behavior, *invert, text, f),
        }
    }
}

/// Whether a group like `(?m)` or `(?im-x:` is in the pattern.
fn sets_flag_m(pattern: &str) -> bool {
    pattern.match_indices("(?").any(|(at, open)| {
        let rest = &pattern[at + open.len()..];
        let flags = rest.trim_start_matches(|c: char| c.is_ascii_lowercase() || c == '-');
        flags.starts_with([')', ':']) && rest[..rest.len() - flags.len()].contains('m')
    })
}

type Sink<'f, 't> = dyn FnMut(&'t str) -> Result<(), TextError> + 'f;

fn give<'t>(piece: &'t str, f: &mut Sink<'_, 't>) -> Result<(), TextError> {
    if piece.is_empty() { Ok(()) } else { f(piece) }
}

fn split_before<'t>(text: &'t str, cut: impl Fn(char, char) -> bool, f: &mut Sink<'_, 't>) -> Result<(), TextError> {
    let mut start = 0;
    let mut before = None;
    for (at, c) in text.char_indices() {
        if before.is_some_and(|b| cut(b, c)) {
            give(&text[start..at], f)?;
            start = at;
        }
        before = Some(c);
    }
    give(&text[start..], f)
}

fn split_general<'t>(
    regex: &fancy_regex::Regex,
    behavior: Behavior,
    invert: bool,
    text: &'t str,
    f: &mut Sink<'_, 't>,
) -> Result<(), TextError> {
    // (range, is a match), covering the text.
    let mut parts: Vec<(usize, usize, bool)> = Vec::new();
    let mut at = 0;
    for found in regex.find_iter(text) {
        let m = found.map_err(|e| TextError::PatternFailed { at, what: first_line(&e.to_string()) })?;
        if m.start() > at {
            parts.push((at, m.start(), invert));
        }
        parts.push((m.start(), m.end(), !invert));
        at = m.end();
    }
    if at < text.len() {
        parts.push((at, text.len(), invert));
    }
    match behavior {
        Behavior::Isolated => parts.iter().try_for_each(|&(s, e, _)| give(&text[s..e], f)),
        Behavior::Removed => parts.iter().filter(|p| !p.2).try_for_each(|&(s, e, _)| give(&text[s..e], f)),
        Behavior::Contiguous => join(&parts, |a, b| a == b, text, f),
        Behavior::MergedWithPrevious => join(&parts, |a, b| !a && b, text, f),
        Behavior::MergedWithNext => {
            // A match goes with the stretch after it, never with another match.
            join(&parts, |a, b| a && !b, text, f)
        }
    }
}

/// Joins neighbouring parts for which `together(is a match, next is a match)` holds; `together`
/// sees only the last two.
fn join<'t>(
    parts: &[(usize, usize, bool)],
    together: impl Fn(bool, bool) -> bool,
    text: &'t str,
    f: &mut Sink<'_, 't>,
) -> Result<(), TextError> {
    let mut i = 0;
    while i < parts.len() {
        let (start, mut end, mut matched) = parts[i];
        i += 1;
        while i < parts.len() && together(matched, parts[i].2) {
            (_, end, matched) = parts[i];
            i += 1;
        }
        give(&text[start..end], f)?;
    }
    Ok(())
}

fn first_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

/// Calls `f` with each pre-token of `text`, in order.
pub(crate) fn split<'t>(stages: &[Stage], text: &'t str, f: &mut Sink<'_, 't>) -> Result<(), TextError> {
    match stages.split_first() {
        None => give(text, f),
        Some((stage, rest)) => stage.split(text, &mut |piece| split(rest, piece, f)),
    }
}

/// The rule that `tokenizer.ggml.pre` names, for byte-level vocabularies.
pub(crate) struct GgufRule {
    pub(crate) stages: Vec<Stage>,
    /// Llama 3 takes a pre-token that is a token as it is.
    pub(crate) whole_first: bool,
    /// Qwen2 composes characters first (Unicode NFC).
    pub(crate) nfc: bool,
    /// Begins a text with BOS when the file does not say.
    pub(crate) add_bos: bool,
}

/// Looks up a pre-tokenizer by the name in the file (names as written by llama.cpp's converter).
pub(crate) fn gguf_rule(pre: &str) -> Result<GgufRule, TextError> {
    let rule = |stages, whole_first, nfc, add_bos| GgufRule { stages, whole_first, nfc, add_bos };
    Ok(match pre {
        "" | "default" | "gpt-2" | "gpt2" | "phi-2" | "gigachat" | "mellum" | "a.x-4.0" => {
            rule(vec![Stage::isolated(GPT2)?], false, false, false)
        }
        "llama-bpe" | "llama3" | "llama-v3" | "falcon3" | "falcon-h1" | "pixtral" | "midm-2.0" | "lfm2" => {
            rule(vec![Stage::isolated(LLAMA3)?], true, false, true)
        }
        "dbrx" | "smaug-bpe" => rule(vec![Stage::isolated(LLAMA3)?], false, false, false),
        "tekken" => rule(vec![Stage::isolated(TEKKEN)?], true, false, true),
        "qwen2" | "deepseek-r1-qwen" | "kormo" | "megrez" => rule(vec![Stage::isolated(QWEN2)?], false, true, false),
        "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" | "exaone" | "minerva-7b" => {
            rule(vec![Stage::Digits, Stage::isolated(GPT2)?], false, false, false)
        }
        _ => return Err(TextError::UnknownPreTokenizer { found: short(pre) }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces<'t>(pattern: &str, text: &'t str) -> Vec<&'t str> {
        let mut out = Vec::new();
        let stage = Stage::general(pattern, Behavior::Isolated, false).expect("a pattern");
        stage
            .split(text, &mut |piece| {
                out.push(piece);
                Ok(())
            })
            .expect("matches");
        out
    }

    /// As Python's `tokenizers` splits, whose engine reads Ruby's syntax.
    #[test]
    fn ends_of_lines_end_and_begin_as_in_ruby() {
        let pattern = r"\p{L}+|[^\p{L}]+?(?=\p{L}|$)|.";
        assert_eq!(pieces(pattern, "\n\n"), ["\n", "\n"]);
        assert_eq!(pieces(pattern, "a\r\nb"), ["a", "\r", "\n", "b"]);
        assert_eq!(pieces("^a|a$", "aaa\naaa"), ["a", "a", "a", "\n", "a", "a", "a"]);
        assert_eq!(pieces("(?i)B", "abB"), ["a", "b", "B"]);
        for (pattern, refused) in [("(?m)a.b", true), ("(?im-x:a)", true), ("(?i:m)", false), (r"\(?m", false)] {
            assert_eq!(Stage::general(pattern, Behavior::Isolated, false).is_err(), refused, "{pattern}");
        }
    }
}
