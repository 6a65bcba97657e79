//! Word wrap of text that arrives in pieces, for terminals.

use unicode_width::UnicodeWidthChar;

/// Narrower terminals break words better themselves.
const NARROWEST: usize = 20;

/// Breaks lines between words, as text comes. It holds back the word that may still grow. Blocks of
/// code keep their lines.
#[derive(Debug)]
pub struct WordWrap {
    width: usize, // in columns
    column: usize,
    gap: String,  // spaces before the word
    word: String, // with the codes of its colours
    word_width: usize,
    ticks: usize, // ` at the begin of the word: three begin or end a block of code
    code: bool,   // inside ``` marks
}

impl WordWrap {
    /// For lines of `width` columns; `None` if that is too narrow to break between words.
    pub fn new(width: usize) -> Option<Self> {
        let start = WordWrap {
            width,
            column: 0,
            gap: String::new(),
            word: String::new(),
            word_width: 0,
            ticks: 0,
            code: false,
        };
        (width >= NARROWEST).then_some(start)
    }

    /// Adds text; gives what can be printed.
    pub fn text(&mut self, text: &str) -> String {
        let mut out = String::new();
        for c in text.chars() {
            match c {
                '\n' => {
                    out += &self.rest();
                    out.push('\n');
                    self.column = 0;
                }
                ' ' | '\t' => {
                    if !self.word.is_empty() {
                        self.place(&mut out);
                    }
                    self.gap.push(c);
                }
                c => {
                    let width = c.width().unwrap_or(0);
                    self.ticks += usize::from(c == '`' && self.ticks == self.word_width);
                    self.word.push(c);
                    self.word_width += width;
                    // Between wide characters, as of Chinese, a line may break anywhere.
                    if width > 1 {
                        self.place(&mut out);
                    }
                }
            }
        }
        out
    }

    /// Adds the code of a colour, which takes no column.
    pub fn code(&mut self, code: &str) {
        self.word += code;
    }

    /// What is held back; the line goes on.
    pub fn rest(&mut self) -> String {
        let mut out = String::new();
        self.place(&mut out);
        out
    }

    /// Prints the word, on the next line if this one has no room for it.
    fn place(&mut self, out: &mut String) {
        let gap = self.gap.chars().count();
        self.code ^= self.column == 0 && self.ticks >= 3;
        if !self.code && self.column > 0 && self.column + gap + self.word_width > self.width {
            out.push('\n');
            self.column = 0;
        } else {
            *out += &self.gap;
            self.column += gap;
        }
        *out += &self.word;
        self.column += self.word_width;
        if self.column > self.width {
            self.column %= self.width; // the terminal has broken it
        }
        self.gap.clear();
        self.word.clear();
        self.word_width = 0;
        self.ticks = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text, in pieces of each size; all must come out alike.
    fn wrapped(text: &str, width: usize) -> String {
        let chars: Vec<char> = text.chars().collect();
        let in_pieces = |n: usize| {
            let mut wrap = WordWrap::new(width).expect("wide enough");
            let pieces = chars.chunks(n).map(|piece| wrap.text(&piece.iter().collect::<String>()));
            let mut out: String = pieces.collect();
            out += &wrap.rest();
            out
        };
        let whole = in_pieces(chars.len());
        (1..6).for_each(|n| assert_eq!(in_pieces(n), whole, "pieces of {n}"));
        whole
    }

    #[test]
    fn lines_break_between_words_and_nothing_else_changes() {
        assert_eq!(wrapped("one two three four five", 20), "one two three four\nfive");
        assert_eq!(wrapped("exactly twenty wide!\nnext", 20), "exactly twenty wide!\nnext");
        assert_eq!(wrapped("a  b\n\n  indented", 20), "a  b\n\n  indented");
        let long = "x".repeat(50);
        assert_eq!(wrapped(&format!("a {long} b"), 20), format!("a\n{long} b"));
        assert_eq!(wrapped("日本語の文章はどこでも折り返せます", 20), "日本語の文章はどこで\nも折り返せます");
        let code = "```\nlet this_line_is = long_and_stays(whole);\n```\nbut this line is broken";
        assert_eq!(wrapped(code, 20), code.replace("line is broken", "line is\nbroken"));
        let code = code.replacen("```", "  ```rust with = \"words\" after = \"it\"", 1);
        assert_eq!(wrapped(&code, 20), code.replace("line is broken", "line is\nbroken"));
        assert!(WordWrap::new(10).is_none());
    }

    #[test]
    fn a_block_of_code_that_is_coloured_keeps_its_lines_too() {
        let mut wrap = WordWrap::new(20).expect("wide enough");
        wrap.code("\x1b[32m");
        let out = wrap.text("```\nlet this_line_is = long_and_stays(whole);\n```\n");
        assert_eq!(out, "\x1b[32m```\nlet this_line_is = long_and_stays(whole);\n```\n");
    }

    #[test]
    fn colours_take_no_room() {
        let mut wrap = WordWrap::new(20).expect("wide enough");
        let mut out = wrap.text("one two three ");
        wrap.code("\x1b[32m");
        out += &wrap.text("six");
        wrap.code("\x1b[0m");
        out += &wrap.text(" abc");
        assert_eq!(out + &wrap.rest(), "one two three \x1b[32msix\x1b[0m\nabc");
    }
}
