//! Just enough of Rust's lexical structure to tell code from comments, strings and characters.

/// One line of a source file, split into what the compiler sees and what the reader is told.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// Code, with comments removed and the content of string and character literals blanked.
    pub code: String,
    /// Text of the comments on this line, doc comments among them.
    pub comment: String,
}

/// Splits a source file into lines of code and comments.
pub(crate) fn lines(source: &str) -> Vec<Line> {
    let chars: Vec<char> = source.chars().collect();
    let mut lines = vec![Line::default()];
    let mut at = 0;
    while at < chars.len() {
        let rest = &chars[at..];
        let (length, kind) = token(rest, lines.last().is_some_and(|l| ends_in_word(&l.code)));
        for (i, c) in rest[..length].iter().enumerate() {
            let line = lines.last_mut().expect("there is always a line");
            match (c, kind) {
                ('\n', _) => lines.push(Line::default()),
                (c, Kind::Comment) => line.comment.push(*c),
                (c, Kind::Code) => line.code.push(*c),
                // The quotes stay, so that a literal is still an operand.
                (_, Kind::Literal) => line.code.push(if i == 0 || i + 1 == length { '"' } else { ' ' }),
            }
        }
        at += length;
    }
    lines
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// Length and kind of what `rest` begins with; it is not empty. `in_word`: the code before it ends
/// in an identifier character, so that an `r` or `b` here is not the prefix of a literal.
fn token(rest: &[char], in_word: bool) -> (usize, Kind) {
    match rest {
        ['/', '/', ..] => (rest.iter().position(|c| *c == '\n').unwrap_or(rest.len()), Kind::Comment),
        ['/', '*', ..] => (block_comment(rest), Kind::Comment),
        ['"', ..] => (quoted(rest, 0), Kind::Literal),
        ['b' | 'c', '"', ..] if !in_word => (quoted(rest, 1), Kind::Literal),
        ['r', '"' | '#', ..] if !in_word => raw_string(rest, 1),
        ['b' | 'c', 'r', '"' | '#', ..] if !in_word => raw_string(rest, 2),
        ['\'', ..] => character(rest),
        _ => (1, Kind::Code),
    }
}

/// Block comments nest.
fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    rest.len()
}

/// A string with escapes, its opening quote at `open`.
fn quoted(rest: &[char], open: usize) -> usize {
    let mut at = open + 1;
    while at < rest.len() {
        match rest[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// A raw string whose hashes or quote begin at `open`; a raw identifier (`r#type`) is code.
fn raw_string(rest: &[char], open: usize) -> (usize, Kind) {
    let hashes = rest[open..].iter().take_while(|c| **c == '#').count();
    if rest.get(open + hashes) != Some(&'"') {
        return (open, Kind::Code);
    }
    let body = open + hashes + 1;
    let end = (body..rest.len())
        .find(|i| rest[*i] == '"' && rest[i + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes);
    (end.map_or(rest.len(), |i| i + 1 + hashes), Kind::Literal)
}

/// A character literal, or the tick of a lifetime or label.
fn character(rest: &[char]) -> (usize, Kind) {
    match rest {
        ['\'', '\\', _, tail @ ..] => {
            let close = tail.iter().position(|c| *c == '\'').unwrap_or(0);
            (3 + close + 1, Kind::Literal)
        }
        ['\'', _, '\'', ..] => (3, Kind::Literal),
        _ => (1, Kind::Code),
    }
}

fn ends_in_word(code: &str) -> bool {
    code.chars().next_back().is_some_and(is_word)
}

/// Whether a character can be part of an identifier.
pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Byte offsets at which `word` stands alone in a line of code.
pub(crate) fn occurrences<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let before = code[..*at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(source: &str) -> Vec<String> {
        lines(source).into_iter().map(|l| l.code).collect()
    }

    #[test]
    fn comments_and_literals_are_not_code() {
        let source = "let a = \"unsafe { \\\" }\"; // unsafe\n/* unsafe /* nested */ still */ let b = 'x';\nlet c = r#\"unsafe \"quoted\" \"#;";
        let joined = code(source).join("\n");
        assert!(!joined.contains("unsafe"), "{joined}");
        assert!(joined.contains("let a = \"") && joined.contains("let b = \"") && joined.contains("let c = \""));
        assert_eq!(lines(source)[0].comment, "// unsafe");
    }

    #[test]
    fn lifetimes_quotes_and_raw_identifiers_do_not_open_a_literal() {
        assert_eq!(code("fn f<'a>(x: &'a str) -> char { '\\'' }"), ["fn f<'a>(x: &'a str) -> char { \"  \" }"]);
        assert_eq!(code("let r#unsafe_name = var\"\";"), ["let r#unsafe_name = var\"\";"]);
        assert_eq!(code("let q = '\"'; unsafe {}"), ["let q = \" \"; unsafe {}"]);
        assert_eq!(code("let q = '\\u{1F600}'; unsafe {}").concat().matches("unsafe").count(), 1);
    }

    #[test]
    fn strings_over_lines_keep_the_line_numbers() {
        let found = lines("let a = \"one\ntwo unsafe\";\nunsafe {}");
        assert_eq!(found.len(), 3);
        assert!(!found[1].code.contains("unsafe"));
        assert_eq!(found[2].code, "unsafe {}");
    }

    #[test]
    fn a_word_stands_alone() {
        assert_eq!(occurrences("unsafe_code unsafe (unsafe) not_unsafe", "unsafe").collect::<Vec<_>>(), [12, 20]);
    }
}
