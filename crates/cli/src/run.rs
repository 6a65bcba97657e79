//! `selfspec run`: one prompt, or a chat.

use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;

use anyhow::Context;
use selfspec_engine::{Engine, Event, FinishReason, Request, Summary, TokenEvent};
use selfspec_hub::ModelName;

use crate::args::{PromptArgs, RunArgs};
use crate::failure::{Interrupted, too_long, usage};
use crate::output::{self, Ui};
use crate::signals::Guarded;
use crate::stats::{RunJson, speculation_line, speed_line, trace_line};
use crate::{chat, model, request};

pub(crate) fn run(args: &RunArgs, ui: &Ui) -> anyhow::Result<()> {
    // A prompt in the model's place is told before standard input is waited for.
    ModelName::parse(&args.model.model)?;
    let Some(text) = read_prompt(&args.prompt)? else { return chat(args, ui) };
    for flag in request::without_effect(&args.sampling) {
        ui.warn(&format!("{flag} has no effect at temperature 0"));
    }
    let engine = model::engine(&args.model.model, args.context, &args.compute, ui)?;
    let style = request::style(args, engine.info(), ui)?;
    let mut request = request::template(args, &engine)?;
    request.prompt = style.prompt(args.system.as_deref(), &text);
    let speculation = request.speculation.clone();

    let marks = if args.output.json { None } else { Some(Marks::new(args, ui)) };
    let most = engine.info().context;
    let (summary, interrupted) = generate(&engine, request, marks).map_err(|e| too_long(e, most))?;
    if args.output.json {
        output::print_json(&RunJson::new(&speculation, &summary))?;
    }
    tell(args, ui, &speculation, &summary);
    if interrupted { Err(Interrupted.into()) } else { Ok(()) }
}

fn chat(args: &RunArgs, ui: &Ui) -> anyhow::Result<()> {
    if args.output.json {
        return Err(usage("--json needs a prompt", "give one with -p, --prompt-file or on standard input"));
    }
    if !io::stdout().is_terminal() {
        return Err(usage("a chat needs a terminal", "give a prompt with -p, --prompt-file or on standard input"));
    }
    chat::run(args, ui)
}

/// The figures after a generation.
pub(crate) fn tell(args: &RunArgs, ui: &Ui, speculation: &selfspec_engine::SpeculationParams, summary: &Summary) {
    for round in summary.trace.iter().filter(|_| args.output.trace) {
        ui.note(&trace_line(round));
    }
    ui.note(&speed_line(summary));
    ui.note(&speculation_line(speculation, &summary.stats));
}

/// The prompt that the flags name, or that standard input holds if it is not a terminal. Beside a prompt in the flags, standard input is
/// read only if they name it too: it may be a pipe that never closes, or belong to the loop of a script.
pub(crate) fn read_prompt(args: &PromptArgs) -> anyhow::Result<Option<String>> {
    match (&args.prompt, &args.prompt_file) {
        (Some(text), None) => Ok(Some(text.clone())),
        (None, Some(path)) => Ok(Some(read_text(path)?)),
        (Some(text), Some(path)) => match read_text(path)? {
            rest if rest.is_empty() => Ok(Some(text.clone())),
            rest => Ok(Some(format!("{text}\n\n{rest}"))),
        },
        (None, None) if io::stdin().is_terminal() => Ok(None),
        (None, None) => match read_text(Path::new("-"))? {
            text if text.is_empty() => {
                Err(usage("no prompt: standard input is empty", "give one with -p or --prompt-file"))
            }
            text => Ok(Some(text)),
        },
    }
}

/// The text of a file, `-` for standard input.
fn read_text(path: &Path) -> anyhow::Result<String> {
    let text = if path == Path::new("-") {
        read_stdin()?
    } else {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        String::from_utf8(bytes).map_err(|e| not_text(&path.display().to_string(), e.utf8_error()))?
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text); // a byte order mark is no part of the text
    let line = text.strip_suffix('\n').unwrap_or(text);
    Ok(line.strip_suffix('\r').unwrap_or(line).to_owned())
}

fn read_stdin() -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes).context("cannot read standard input")?;
    String::from_utf8(bytes).map_err(|e| not_text("standard input", e.utf8_error()))
}

fn not_text(what: &str, error: std::str::Utf8Error) -> anyhow::Error {
    anyhow::anyhow!("{what} is not UTF-8: bad byte at offset {}", error.valid_up_to())
}

/// Runs a request, printing its text as it comes unless `marks` is `None`. The flag says whether Ctrl-C ended it.
pub(crate) fn generate(engine: &Engine, request: Request, marks: Option<Marks>) -> anyhow::Result<(Summary, bool)> {
    let generation = engine.submit(request)?;
    let guard = Guarded::new(&generation);
    let mut printer = marks.map(Printer::new);
    for event in generation {
        match event {
            Event::Prompt { .. } => {}
            Event::Token(token) => printer.iter_mut().try_for_each(|p| p.token(&token))?,
            Event::Done(summary) => {
                printer.iter_mut().try_for_each(|p| p.end(&summary))?;
                let interrupted = guard.interrupted() && summary.finish_reason == FinishReason::Cancelled;
                return Ok((*summary, interrupted));
            }
            Event::Failed(error) => {
                printer.iter_mut().try_for_each(Printer::end_line)?;
                return Err(error.into());
            }
        }
    }
    anyhow::bail!("the engine ended the generation without a summary")
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
struct Printer {
    marks: Marks,
    inside: bool, // between the marks of accepted drafts
    line_open: bool,
}

impl Printer {
    fn new(marks: Marks) -> Self {
        Printer { marks, inside: false, line_open: false }
    }

    fn token(&mut self, token: &TokenEvent) -> io::Result<()> {
        if token.text.is_empty() {
            return Ok(());
        }
        let mut text = String::new();
        let drafted = token.source.is_draft() && self.marks != Marks::None;
        if drafted != self.inside {
            text += self.switch();
        }
        text += &token.text;
        self.line_open = !text.ends_with('\n');
        output::print(&text)
    }

    fn switch(&mut self) -> &'static str {
        let (open, close) = self.marks.around();
        self.inside = !self.inside;
        if self.inside { open } else { close }
    }

    /// Closes the marks. The text of the events is the summary's text, so nothing else is left to print.
    fn end(&mut self, summary: &Summary) -> io::Result<()> {
        self.line_open |= summary.text.is_empty();
        self.end_line()
    }

    fn end_line(&mut self) -> io::Result<()> {
        let mut rest = String::new();
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
