//! From words and variables to plain data. Every flag has a variable, and a flag on the command
//! line wins over variables.
//!
//! - An empty variable counts as unset.
//! - A variable that contradicts a flag on the command line is ignored; `--verbose` reports it.
//! - Two flags or two variables that contradict each other are wrong usage, and the message names
//!   them as the user gave them.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::process::ExitCode;

use clap::builder::BoolishValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches};
use selfspec_engine::ExitHeadSource;
use selfspec_hub::ModelName;

use crate::args::{Cli, Spec};
use crate::failure::usage;

/// Flags that contradict each other, by their ids. A pair does not matter to a command that lacks
/// one.
const CONTRADICTIONS: &[(&str, &str)] = &[
    ("prompt_file", "prompt"),
    ("system", "raw"),
    ("skip_layers", "exit_layer"),
    ("json", "show_drafts"),
    ("stats", "quiet"),
    ("trace", "quiet"),
    ("verify", "force"),
    ("force", "offline"),
    ("bos", "chat"),
    ("count", "json"),
];

/// Flags that mean nothing without speculation. `--exit-head off` is no exit head, and contradicts
/// `--spec exit-head` alone.
const SPECULATIVE: &[&str] = &[
    "exit_layer",
    "skip_layers",
    "min_confidence",
    "draft_len",
    "no_bonus",
    "spec_always",
    "show_drafts",
    "trace",
    EXIT_HEAD,
];

/// Those of them that mean nothing to prompt lookup.
const OF_LAYERS: &[&str] = &["exit_layer", "skip_layers", "min_confidence", EXIT_HEAD];

/// Flags that name layers to draft with.
const OF_PLANS: &[&str] = &["exit_layer", "skip_layers"];

const EXIT_HEAD: &str = "exit_head";

/// The parsed command line.
#[derive(Debug)]
pub(crate) struct CommandLine {
    pub(crate) cli: Cli,
    /// A sentence for each variable that is ignored.
    pub(crate) yielded: Vec<String>,
    /// The contradiction between flags or variables, if there is one.
    pub(crate) contradiction: Option<String>,
}

impl CommandLine {
    /// The command line and the environment of this process.
    ///
    /// # Errors
    /// The words are no command line of this program, or ask for help.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        let words = usual_forms(std::env::args_os().collect());
        let is_set = |name: &OsStr| std::env::var_os(name).is_some_and(|v| !v.is_empty());
        // An error without any variable is an error of the command line itself.
        command(&|_, _| false).try_get_matches_from(&words).map_err(about_prompts)?;
        let mut dropped: Vec<String> = Vec::new();
        let mut yielded = Vec::new();
        loop {
            let mut command = command(&|id, name| is_set(name) && !dropped.iter().any(|d| d == id));
            let parsed = command.try_get_matches_from_mut(&words).map_err(|e| of_variable(e, &command))?;
            let pairs = contradictions(&parsed);
            if let Some((variable, flag)) = pairs.iter().find_map(ContradictoryFlags::ignored_variable) {
                yielded.push(format!("{variable} is ignored: {flag} is on the command line"));
                dropped.push(variable.id.to_owned());
                continue;
            }
            let contradiction = pairs.first().map(|p| format!("{} {} {}", p.one, p.verb, p.other));
            let cli = Cli::from_arg_matches(&parsed)?;
            return Ok(CommandLine { cli, yielded, contradiction });
        }
    }

    /// Refuses contradictions.
    ///
    /// # Errors
    /// Two flags, or two variables, contradict each other.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        match &self.contradiction {
            Some(why) => Err(usage(why, None)),
            None => Ok(()),
        }
    }
}

/// Forms that users know from other programs, as forms of this one: `selfspec MODEL` runs the
/// model, and `-m MODEL` names the model as MODEL alone does.
fn usual_forms(mut words: Vec<OsString>) -> Vec<OsString> {
    let is_model = |word: &str| {
        let is_command = word == "help" || Cli::command().find_subcommand(word).is_some();
        !word.starts_with('-') && !is_command && ModelName::parse(word).is_ok()
    };
    if words.get(1).is_some_and(|word| is_model(&word.to_string_lossy())) {
        words.insert(1, "run".into());
    }
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let flag = words[..end].iter().position(|word| word == "-m").filter(|at| *at > 1);
    if let Some(at) = flag.filter(|at| words.get(at + 1).is_some_and(|w| !w.to_string_lossy().starts_with('-'))) {
        words.remove(at);
    }
    words
}

/// Prints help, or why the words are no command line of this program.
pub(crate) fn print_error(error: &clap::Error) -> ExitCode {
    let printed = error.print().and_then(|()| io::stdout().flush());
    let code = error.exit_code();
    ExitCode::from(match printed {
        Err(e) if code == 0 && e.kind() != io::ErrorKind::BrokenPipe => 1,
        _ => u8::try_from(code).unwrap_or(2),
    })
}

/// The grammar, with the variables for which `variable(id, name)` holds.
fn command(variable: &impl Fn(&str, &OsStr) -> bool) -> Command {
    adapt(Cli::command(), variable)
}

fn adapt(command: Command, variable: &impl Fn(&str, &OsStr) -> bool) -> Command {
    let command = command.mut_args(|mut arg| {
        if arg.get_env().is_none() && !arg.is_positional() {
            let name = variable_of(arg.get_id().as_str());
            arg = arg.env(name).hide_env(true);
        }
        if arg.get_env().is_some_and(|name| !variable(arg.get_id().as_str(), name)) {
            arg = arg.env(clap::builder::Resettable::Reset);
        }
        if matches!(arg.get_action(), ArgAction::SetTrue) {
            let id = arg.get_id().clone();
            // A switch can be given twice.
            arg = arg.value_parser(BoolishValueParser::new()).overrides_with(id);
        }
        if matches!(arg.get_action(), ArgAction::Set | ArgAction::Append) && !arg.is_positional() {
            // A negative number is then out of range, and not an unknown flag.
            arg = arg.allow_negative_numbers(true);
        }
        arg
    });
    command.mut_subcommands(|sub| adapt(sub, variable))
}

/// The variable of a flag that names none.
fn variable_of(id: &str) -> String {
    format!("SELFSPEC_{}", id.to_ascii_uppercase())
}

/// The error, with a tip if a prompt seems to follow the model.
fn about_prompts(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return error };
    if error.kind() != ErrorKind::UnknownArgument || word.starts_with('-') {
        return error;
    }
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    let takes_prompt = |sub: &Command| sub.get_arguments().any(|a| a.get_id() == "prompt");
    let all = Cli::command();
    let mut prompted = all.get_subcommands().filter(|s| takes_prompt(s));
    if let Some(sub) = prompted.find(|s| usage.contains(&format!("selfspec {} ", s.get_name()))) {
        let tip = format!("a prompt is given with -p: selfspec {} MODEL -p TEXT", sub.get_name());
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// The error, with the variable's name in place of the flag's: the command line alone is sound.
fn of_variable(mut error: clap::Error, command: &Command) -> clap::Error {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return error };
    let all = std::iter::once(command).chain(command.get_subcommands());
    let variable = all.flat_map(Command::get_arguments).find(|a| a.to_string() == *flag).and_then(|a| a.get_env());
    if let Some(variable) = variable.map(|v| v.to_string_lossy().into_owned()) {
        error.insert(ContextKind::InvalidArg, ContextValue::String(variable));
    }
    error
}

/// A flag that is set, and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SetFlag {
    id: &'static str,
    value: &'static str, // shown with the flag; empty for most
    variable: bool,
}

impl SetFlag {
    fn of(id: &'static str, matches: &ArgMatches) -> Option<Self> {
        if !matches.ids().any(|i| i == id) {
            return None;
        }
        let variable = match matches.value_source(id)? {
            ValueSource::CommandLine => false,
            ValueSource::EnvVariable => true,
            _ => return None,
        };
        // A switch can be set to false by its variable.
        let on = !matches!(matches.try_get_one::<bool>(id), Ok(Some(false)));
        on.then_some(SetFlag { id, value: "", variable })
    }
}

impl std::fmt::Display for SetFlag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.variable {
            f.write_str(&variable_of(self.id))?;
        } else {
            write!(f, "--{}", self.id.replace('_', "-"))?;
        }
        match (self.value, self.variable) {
            ("", _) => Ok(()),
            (value, true) => write!(f, "={value}"),
            (value, false) => write!(f, " {value}"),
        }
    }
}

/// Two flags that do not fit together.
#[derive(Debug)]
struct ContradictoryFlags {
    one: SetFlag,
    other: SetFlag,
    verb: &'static str,
}

impl ContradictoryFlags {
    /// Whether it is a prompt of two parts, both given on the command line.
    fn is_whole_prompt(&self) -> bool {
        self.one.id == "prompt_file" && !self.one.variable && !self.other.variable
    }

    /// The variable that is ignored and the flag that wins, if it is one of each.
    fn ignored_variable(&self) -> Option<(SetFlag, SetFlag)> {
        match (self.one.variable, self.other.variable) {
            (true, false) => Some((self.one, self.other)),
            (false, true) => Some((self.other, self.one)),
            _ => None,
        }
    }
}

fn contradictions(matches: &ArgMatches) -> Vec<ContradictoryFlags> {
    let Some((_, matches)) = matches.subcommand() else { return Vec::new() };
    let given = |id| SetFlag::of(id, matches);
    let mut pairs: Vec<ContradictoryFlags> = CONTRADICTIONS
        .iter()
        .filter_map(|(one, other)| {
            Some(ContradictoryFlags { one: given(one)?, other: given(other)?, verb: "cannot be used with" })
        })
        .filter(|pair| !pair.is_whole_prompt())
        .collect();
    let (spec, useless) = match matches.try_get_one::<Spec>("spec") {
        Ok(Some(Spec::Off)) => ("off", SPECULATIVE),
        Ok(Some(Spec::PromptLookup)) => ("prompt-lookup", OF_LAYERS),
        Ok(Some(Spec::LayerSkip)) => ("layer-skip", &[EXIT_HEAD][..]),
        Ok(Some(Spec::ExitHead)) => ("exit-head", OF_PLANS),
        _ => return pairs,
    };
    let no_head = matches!(matches.try_get_one::<ExitHeadSource>(EXIT_HEAD), Ok(Some(ExitHeadSource::Off)));
    if let Some(other) = given("spec").map(|g| SetFlag { value: spec, ..g }) {
        let useless = useless.iter().filter(|id| !(no_head && **id == EXIT_HEAD)).filter_map(|id| given(id));
        pairs.extend(useless.map(|one| ContradictoryFlags { one, other, verb: "does not apply to" }));
        let off = given(EXIT_HEAD).filter(|_| no_head && spec == "exit-head");
        let off = off.map(|one| SetFlag { value: "off", ..one });
        pairs.extend(off.map(|one| ContradictoryFlags { one, other, verb: "cannot be used with" }));
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages build names from ids, and the tables hold ids: both must belong to real flags.
    #[test]
    fn contradictions_are_between_flags_that_exist_and_names_follow_from_ids() {
        let mut command = command(&|_, _| true);
        command.build();
        let known: Vec<_> = command.get_subcommands().flat_map(Command::get_arguments).collect();
        let ids = CONTRADICTIONS.iter().flat_map(|(a, b)| [a, b]).chain(SPECULATIVE).chain(OF_LAYERS);
        for id in ids {
            let arg = known.iter().find(|a| a.get_id() == id).unwrap_or_else(|| panic!("{id}"));
            let given = |variable| SetFlag { id, value: "", variable }.to_string();
            assert_eq!(arg.get_long().map(|l| format!("--{l}")), Some(given(false)));
            assert_eq!(arg.get_env().and_then(OsStr::to_str), Some(given(true).as_str()));
        }
    }

    #[test]
    fn forms_of_other_programs_are_understood() {
        let of = |line: &str| {
            let words = usual_forms(line.split(' ').map(OsString::from).collect());
            words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of("selfspec my.gguf -p hi"), "selfspec run my.gguf -p hi");
        assert_eq!(of("selfspec hf:a/b"), "selfspec run hf:a/b");
        assert_eq!(of("selfspec smollm2-135m"), "selfspec run smollm2-135m");
        assert_eq!(of("selfspec serve -m my.gguf -c 512"), "selfspec serve my.gguf -c 512");
        for same in [
            "selfspec",
            "selfspec --help",
            "selfspec help run",
            "selfspec srve",
            "selfspec run",
            "selfspec -m x",
            "selfspec run -m",
            "selfspec run -p -- -m x",
        ] {
            assert_eq!(of(same), same);
        }
    }

    #[test]
    fn the_grammar_is_sound() {
        command(&|_, _| true).debug_assert();
    }
}
