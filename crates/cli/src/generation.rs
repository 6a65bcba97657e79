//! Runs a request and prints its text as it comes.

use std::io::{self, Write};

use selfspec::{Completion, FinishReason, GeneratedToken, Model};
use selfspec_engine::Request;
use selfspec_speculate::SpeculationParams;
use selfspec_text::WordWrap;

use crate::args::RunArgs;
use crate::output::{self, Ui};
use crate::signals::Guarded;
use crate::stats::{speculation_line, speed_line, trace_line};

/// Runs a request, printing its text as it comes if there is a printer. The flag says whether
/// Ctrl-C ended it.
pub(crate) fn generate(
    model: &Model,
    request: Request,
    mut printer: Option<Printer>,
) -> anyhow::Result<(Completion, bool)> {
    let mut tokens = model.submit(request)?;
    let guard = Guarded::new(tokens.canceller());
    for token in &mut tokens {
        match token {
            Ok(token) => printer.iter_mut().try_for_each(|p| p.token(&token))?,
            Err(error) => {
                printer.iter_mut().try_for_each(Printer::end_line)?;
                return Err(error.into());
            }
        }
    }
    let completion = tokens.finish()?;
    printer.iter_mut().try_for_each(|p| p.end(&completion))?;
    let interrupted = guard.interrupted() && completion.finish_reason() == FinishReason::Cancelled;
    Ok((completion, interrupted))
}

/// Prints the figures after a generation.
pub(crate) fn print_figures(args: &RunArgs, ui: &Ui, speculation: &SpeculationParams, completion: &Completion) {
    for round in completion.summary().trace.iter().filter(|_| args.output.trace) {
        ui.note(&trace_line(round));
    }
    ui.note(&speed_line(completion));
    ui.note(&speculation_line(speculation, completion.stats()));
}

/// How accepted drafts are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marks {
    /// Like all text.
    None,
    /// In green.
    Colour,
    /// In brackets that text hardly uses.
    Brackets,
}

impl Marks {
    pub(crate) fn new(args: &RunArgs, ui: &Ui) -> Self {
        match (args.output.show_drafts, ui.stdout_color()) {
            (false, _) => Marks::None,
            (true, true) => Marks::Colour,
            (true, false) => Marks::Brackets,
        }
    }

    fn around(self) -> (&'static str, &'static str) {
        match self {
            Marks::None => ("", ""),
            Marks::Colour => ("\x1b[32m", "\x1b[0m"),
            Marks::Brackets => ("\u{27e8}", "\u{27e9}"),
        }
    }
}

/// Prints text token by token.
pub(crate) struct Printer {
    marks: Marks,
    inside: bool, // between the marks of accepted drafts
    line_open: bool,
    wrap: Option<WordWrap>,
}

impl Printer {
    /// Prints the text as it is.
    pub(crate) fn new(marks: Marks) -> Self {
        Printer { marks, inside: false, line_open: false, wrap: None }
    }

    /// Breaks lines between words, if standard output is a terminal.
    pub(crate) fn wrapped(marks: Marks) -> Self {
        let size = terminal_size::terminal_size_of(io::stdout());
        Printer { wrap: size.and_then(|(width, _)| WordWrap::new(usize::from(width.0))), ..Self::new(marks) }
    }

    fn token(&mut self, token: &GeneratedToken) -> io::Result<()> {
        if token.text.is_empty() {
            return Ok(());
        }
        let mut text = String::new();
        let drafted = token.drafted && self.marks != Marks::None;
        let mark = if drafted != self.inside { self.switch() } else { "" };
        match &mut self.wrap {
            // Brackets are text, and take room.
            Some(wrap) if self.marks == Marks::Brackets => text += &wrap.text(&format!("{mark}{}", token.text)),
            Some(wrap) => {
                wrap.code(mark);
                text += &wrap.text(&token.text);
            }
            None => text = format!("{mark}{}", token.text),
        }
        self.line_open = !token.text.ends_with('\n');
        output::print(&text)
    }

    fn switch(&mut self) -> &'static str {
        let (open, close) = self.marks.around();
        self.inside = !self.inside;
        if self.inside { open } else { close }
    }

    /// Closes the marks. The tokens' text is the completion's text, so nothing else is left to
    /// print.
    fn end(&mut self, completion: &Completion) -> io::Result<()> {
        self.line_open |= completion.text().is_empty();
        self.end_line()
    }

    fn end_line(&mut self) -> io::Result<()> {
        let mut rest = self.wrap.as_mut().map(WordWrap::rest).unwrap_or_default();
        if self.inside {
            rest += self.switch();
            self.line_open = true;
        }
        if self.line_open {
            rest.push('\n');
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(rest.as_bytes())?;
        stdout.flush()
    }
}
