//! A conversation at the terminal.

mod settings;

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{Editor, Helper};
use selfspec::{Completion, FinishReason, Message, Model, Prompt};
use selfspec_engine::{EngineError, Request};

use crate::args::RunArgs;
use crate::failure::engine_error;
use crate::generation::{Marks, Printer, generate, print_figures};
use crate::output::{self, Ui};
use crate::stats::{brief_line, speculation_line, speed_line};
use crate::{model, request};
use selfspec_lab::prompts::PromptStyle;

const HELP: &str = "\
/help           this list
\"\"\"             begin and end a message of several lines
/clear          forget the conversation
/set            show the settings
/set NAME VALUE change a setting: /set temp 0.7
/system TEXT    set the system message and forget the conversation; without TEXT, remove it
/stats          figures of the last answer
/exit           leave, as /quit, /bye and Ctrl-D do
Ctrl-C ends an answer; pressed twice at the prompt it leaves
";

/// Most lines of the history.
const HISTORY: usize = 1000;

pub(crate) fn run(args: &RunArgs, ui: &Ui) -> anyhow::Result<()> {
    for flag in request::without_effect(&args.sampling) {
        ui.warn(&format!("{flag} has no effect at temperature 0"));
    }
    let model = model::open(&args.model.model, args.context, &args.compute, ui)?;
    let style = request::style(args, model.info(), ui)?;
    let chat = TerminalChat {
        request: request::build(args, &model, Prompt::Tokens(Vec::new()))?,
        model,
        style,
        system: args.system.clone(),
        messages: Vec::new(),
        last: None,
        args,
        ui,
    };
    chat.talk()
}

struct TerminalChat<'a> {
    model: Model,
    request: Request, // without its prompt
    style: PromptStyle,
    system: Option<String>,
    messages: Vec<Message>, // user and assistant in turn, without the system message
    last: Option<Completion>,
    args: &'a RunArgs,
    ui: &'a Ui,
}

/// Whether the conversation goes on.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Line,
    Leave,
}

impl TerminalChat<'_> {
    fn talk(mut self) -> anyhow::Result<()> {
        let mut editor = editor()?;
        let history = history_file(self.ui);
        if let Some(path) = history.as_ref().filter(|p| p.exists())
            && let Err(error) = editor.load_history(path)
        {
            self.ui.warn(&format!("cannot read {}: {error}", path.display()));
        }
        self.ui.note(&format!(
            "{}, context {}, temperature {}",
            self.args.model.model,
            self.model.engine().context(),
            self.request.sampling.temperature
        ));
        self.ui.note("/help lists the commands, Ctrl-D leaves");
        let end = loop {
            match message(|prompt| editor.readline(prompt)) {
                Ok(line) => {
                    editor.helper().inspect(|p| p.line());
                    if !line.trim().is_empty() {
                        editor.add_history_entry(line.as_str())?;
                        if self.line(&line)? == Next::Leave {
                            break Ok(());
                        }
                    }
                }
                Err(ReadlineError::Interrupted) if editor.helper().is_some_and(Presses::again) => break Ok(()),
                Err(ReadlineError::Interrupted) => self.ui.note("Ctrl-C again leaves"),
                Err(ReadlineError::Eof) => break Ok(()),
                Err(error) => break Err(error.into()),
            }
        };
        if let Some(path) = history
            && let Err(error) = save_history(&mut editor, &path)
        {
            self.ui.warn(&format!("cannot write {}: {error}", path.display()));
        }
        end
    }

    fn line(&mut self, line: &str) -> anyhow::Result<Next> {
        let trimmed = line.trim();
        if !trimmed.starts_with('/') {
            self.answer(line)?;
            return Ok(Next::Line);
        }
        let (command, rest) = trimmed.split_once(char::is_whitespace).unwrap_or((trimmed, ""));
        match command {
            "/help" | "/exit" | "/quit" | "/bye" | "/clear" | "/stats" if !rest.trim().is_empty() => {
                self.ui.error(&format!("{command} takes no argument"));
            }
            "/help" => output::print(HELP)?,
            "/exit" | "/quit" | "/bye" => return Ok(Next::Leave),
            "/set" => match settings::set(&mut self.request, rest.trim()) {
                Ok(lines) => output::print(&lines)?,
                Err(why) => self.ui.error(&why),
            },
            "/clear" => self.messages.clear(),
            "/system" if self.style == PromptStyle::Plain => {
                self.ui.error("a system message needs the model's chat template")
            }
            "/system" => {
                self.system = Some(rest.trim().to_owned()).filter(|s| !s.is_empty());
                self.messages.clear();
            }
            "/stats" => match &self.last {
                Some(completion) => {
                    output::println(&speed_line(completion))?;
                    output::println(&speculation_line(&self.request.speculation, completion.stats()))?;
                }
                None => self.ui.note("no answer yet"),
            },
            _ => {
                self.ui.error(&format!("unknown command {command}"));
                self.ui.hint("/help lists the commands");
            }
        }
        Ok(Next::Line)
    }

    fn answer(&mut self, line: &str) -> anyhow::Result<()> {
        let mut request = self.request.clone();
        request.prompt = match self.style {
            PromptStyle::Plain => Prompt::Text(line.to_owned()),
            PromptStyle::Chat => {
                self.messages.push(Message::new("user", line));
                let system = self.system.iter().map(|s| Message::new("system", s));
                Prompt::Chat(system.chain(self.messages.iter().cloned()).collect())
            }
        };
        match generate(&self.model, request, Some(Printer::wrapped(Marks::new(self.args, self.ui)))) {
            Ok((completion, _)) => {
                if self.style == PromptStyle::Chat {
                    self.messages.push(Message::new("assistant", completion.text()));
                }
                if self.args.output.stats || self.args.output.trace {
                    print_figures(self.args, self.ui, &self.request.speculation, &completion);
                } else {
                    self.ui.note(&brief_line(&completion));
                }
                if completion.finish_reason() == FinishReason::Length {
                    self.ui.note("the answer reached its token limit; /set max-tokens N raises it");
                }
                self.last = Some(completion);
                Ok(())
            }
            // A message that fails does not end the conversation.
            Err(error) if engine_error(&error).is_some() => {
                if self.style == PromptStyle::Chat {
                    self.messages.pop();
                }
                self.ui.error(&error.to_string());
                if matches!(
                    engine_error(&error),
                    Some(EngineError::PromptTooLong { .. } | EngineError::NeverFits { .. })
                ) {
                    self.ui.hint("/clear forgets the conversation");
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// Presses of Ctrl-C at the prompt. As a hinter it sees every line while it is typed: typing after
/// a press cancels the press.
#[derive(Debug, Default)]
struct Presses {
    pressed: Cell<bool>,
}

impl Presses {
    /// Counts a press of Ctrl-C; true if it follows another one.
    fn again(&self) -> bool {
        self.pressed.replace(true)
    }

    /// A line was entered.
    fn line(&self) {
        self.pressed.set(false);
    }

    fn typed(&self, line: &str) {
        if !line.is_empty() {
            self.pressed.set(false);
        }
    }
}

impl Hinter for Presses {
    type Hint = String;

    fn hint(&self, line: &str, _: usize, _: &rustyline::Context<'_>) -> Option<String> {
        self.typed(line);
        None
    }
}

impl Completer for Presses {
    type Candidate = String;
}

impl Highlighter for Presses {}
impl Validator for Presses {}
impl Helper for Presses {}

/// Marks the begin and the end of a message of several lines.
const SEVERAL_LINES: &str = "\"\"\"";

/// Reads a message: a line, or the lines between two marks. `read` shows a prompt and reads a line.
fn message<E>(mut read: impl FnMut(&str) -> Result<String, E>) -> Result<String, E> {
    let line = read("> ")?;
    let Some(mut text) = line.trim_start().strip_prefix(SEVERAL_LINES).map(str::to_owned) else { return Ok(line) };
    loop {
        if let Some(whole) = text.trim_end().strip_suffix(SEVERAL_LINES) {
            return Ok(whole.trim_matches('\n').to_owned());
        }
        text = format!("{text}\n{}", read("... ")?);
    }
}

type Prompter = Editor<Presses, DefaultHistory>;

fn editor() -> anyhow::Result<Prompter> {
    let config = rustyline::Config::builder().max_history_size(HISTORY)?.auto_add_history(false).build();
    let mut editor = Prompter::with_config(config)?;
    editor.set_helper(Some(Presses::default()));
    Ok(editor)
}

/// The file of the lines that the user typed, beside the models.
fn history_file(ui: &Ui) -> Option<PathBuf> {
    model::hub_options(ui).ok().map(|o| o.home.join("chat-history.txt"))
}

fn save_history(editor: &mut Prompter, path: &std::path::Path) -> anyhow::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    Ok(editor.save_history(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_a_line_or_all_lines_between_marks() {
        let of = |lines: &str| {
            let mut lines = lines.split('|');
            let whole = message(|_| lines.next().map(str::to_owned).ok_or("the end"));
            (whole, lines.next().is_none())
        };
        for (lines, expected) in [
            ("hello", "hello"),
            ("say \"\"\" twice", "say \"\"\" twice"),
            ("\"\"\"one\"\"\"", "one"),
            ("\"\"\"one|two\"\"\"", "one\ntwo"),
            ("\"\"\"|one||  two|\"\"\"", "one\n\n  two"),
        ] {
            assert_eq!(of(lines), (Ok(expected.to_owned()), true), "{lines}");
        }
        assert_eq!(of("\"\"\"one|two").0, Err("the end"), "Ctrl-C and Ctrl-D leave the message");
    }

    #[test]
    fn only_two_presses_with_nothing_typed_between_leave() {
        let presses = Presses::default();
        assert!(!presses.again() && presses.again());
        presses.typed("");
        assert!(presses.again());
        presses.typed("x");
        assert!(!presses.again());
        presses.line();
        assert!(!presses.again() && presses.again());
    }
}
