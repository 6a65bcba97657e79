//! Standard output and standard error.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use tracing_subscriber::EnvFilter;

use crate::args::{Color, Global};

/// The user's choices for output, and the terminal's abilities.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ui {
    /// Print nothing but data and errors.
    pub(crate) quiet: bool,
    /// Fetch nothing.
    pub(crate) offline: bool,
    verbose: bool,
    color: Color,
}

impl Ui {
    pub(crate) fn new(global: &Global) -> Self {
        Ui { quiet: global.quiet, offline: global.offline, verbose: global.verbose, color: global.color }
    }

    /// Whether standard output takes colour.
    pub(crate) fn stdout_color(&self) -> bool {
        self.color_on(io::stdout().is_terminal())
    }

    fn color_on(&self, terminal: bool) -> bool {
        match self.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                let set = |name| std::env::var_os(name).is_some_and(|v| !v.is_empty());
                terminal && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
            }
        }
    }

    /// Whether a progress bar can be drawn.
    pub(crate) fn progress(&self) -> bool {
        !self.quiet && io::stderr().is_terminal()
    }

    /// A line for the user, unless they want quiet.
    pub(crate) fn note(&self, line: &str) {
        if !self.quiet {
            self.line(None, line);
        }
    }

    /// A line for a user who wants to know more.
    pub(crate) fn detail(&self, line: &str) {
        if self.verbose && !self.quiet {
            self.line(None, line);
        }
    }

    /// A warning.
    pub(crate) fn warn(&self, line: &str) {
        if !self.quiet {
            self.line(Some(("warning", "33")), line);
        }
    }

    /// An error.
    pub(crate) fn error(&self, line: &str) {
        self.line(Some(("error", "31")), line);
    }

    /// A hint below an error.
    pub(crate) fn hint(&self, line: &str) {
        self.line(Some(("hint", "36")), line);
    }

    fn line(&self, label: Option<(&str, &str)>, line: &str) {
        let line = shown(line);
        let mut stderr = io::stderr().lock();
        // Standard error may be closed, and there is no other place to report it.
        let _ = match label {
            Some((label, code)) if self.color_on(io::stderr().is_terminal()) => {
                writeln!(stderr, "\x1b[1;{code}m{label}\x1b[0m: {line}")
            }
            Some((label, _)) => writeln!(stderr, "{label}: {line}"),
            None => writeln!(stderr, "{line}"),
        };
    }
}

/// Whether a character controls a terminal or the direction of the text instead of being visible.
pub(crate) fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
        || matches!(c, '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A text as one visible line, with control characters escaped: names, messages and templates come
/// from untrusted files.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut line = String::new();
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => line.extend(c.escape_default()),
            c if acts(c) => line.extend(c.escape_unicode()),
            c => line.push(c),
        }
    }
    Cow::Owned(line)
}

/// Writes data to standard output.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Writes a line of data to standard output.
pub(crate) fn println(line: &str) -> io::Result<()> {
    print(&format!("{line}\n"))
}

/// Writes one JSON object on lines of its own.
pub(crate) fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    Ok(println(&serde_json::to_string_pretty(value)?)?)
}

/// Sends the program's log to standard error: warnings, more with `--verbose`, or as `SELFSPEC_LOG`
/// says.
pub(crate) fn log_to_stderr(ui: &Ui) {
    let default = match (ui.quiet, ui.verbose) {
        (true, _) => "error",
        (false, false) => "warn",
        (false, true) => "warn,selfspec=debug,selfspec_hub=debug,selfspec_engine=debug",
    };
    let filter = match std::env::var("SELFSPEC_LOG") {
        Ok(filter) if !filter.is_empty() => EnvFilter::new(filter),
        _ => EnvFilter::new(default),
    };
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).without_time();
    subscriber.with_target(false).with_ansi(ui.color_on(io::stderr().is_terminal())).init();
}

/// A number of bytes for people.
pub(crate) fn bytes(n: u64) -> String {
    match n {
        0..1024 => format!("{n} B"),
        1024..1_048_576 => format!("{:.1} KiB", n as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", n as f64 / 1_048_576.0),
        _ => format!("{:.2} GiB", n as f64 / 1_073_741_824.0),
    }
}

/// A table: columns as wide as their widest cell, two spaces apart; the columns in `right` are set
/// flush right. Control characters are escaped.
pub(crate) fn table(rows: &[Vec<String>], right: &[usize]) -> String {
    let rows: Vec<Vec<Cow<'_, str>>> = rows.iter().map(|r| r.iter().map(|cell| shown(cell)).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (c, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[c] - cell.chars().count());
            let gap = if c == 0 { "" } else { "  " };
            line += &if right.contains(&c) { format!("{gap}{pad}{cell}") } else { format!("{gap}{cell}{pad}") };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_line_up() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [row(["NAME", "SIZE", "TYPE"]), row(["über", "9", ""]), row(["b", "123456", "x"])];
        assert_eq!(table(&rows, &[1]), "NAME    SIZE  TYPE\nüber       9\nb     123456  x\n");
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(shown("a\u{1b}[31mb\u{7}\n\u{9b}\u{202e}c"), "a\\u{1b}[31mb\\u{7}\\n\\u{9b}\\u{202e}c");
        assert!(matches!(shown("über 漢字 🙂"), Cow::Borrowed(_)));
        assert_eq!(table(&[vec!["\u{7f}".to_owned(), "x".to_owned()]], &[]), "\\u{7f}  x\n");
    }

    #[test]
    fn bytes_have_the_unit_that_fits() {
        assert_eq!(
            [bytes(0), bytes(1023), bytes(98_362_432), bytes(3 << 30)],
            ["0 B", "1023 B", "93.8 MiB", "3.00 GiB"]
        );
    }
}
