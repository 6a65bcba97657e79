//! What `verify` prints.

use selfspec_engine::{KvType, SpecStats};
use serde::Serialize;

use super::runner::{Mismatch, Runner};
use super::setting::Setting;
use crate::args::VerifyArgs;
use crate::output::{self, table};
use selfspec_lab::prompts::PromptCase;

/// The object of `verify --json`. Its keys are an interface that others rely on.
#[derive(Debug, Serialize)]
pub(crate) struct VerifyJson {
    pub(crate) ok: bool,
    pub(crate) cases: usize,
    pub(crate) tokens: usize,
    pub(crate) drafted: u64,
    pub(crate) accepted: u64,
    pub(crate) rejected: u64,
    /// Index a: rounds that accepted a tokens.
    pub(crate) accepted_lengths: Vec<u64>,
    pub(crate) first_mismatch: Option<MismatchJson>,
    /// What the run did not test, a sentence each; then `ok` is false even if nothing differs.
    pub(crate) untested: Vec<String>,
}

/// The first mismatch.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct MismatchJson {
    line: usize,
    position: usize,
    expected: Option<u32>,
    got: Option<u32>,
    setting: String,
    together: bool,
    reproduce: String,
}

impl MismatchJson {
    pub(crate) fn new(mismatch: &Mismatch, prompts: &[PromptCase], args: &VerifyArgs) -> Self {
        let task = &mismatch.task;
        let case = &prompts[task.prompt];
        let flags = task.setting.flags(task.mode);
        let prompt = match case.text() {
            Some(text) => format!("-p {}", shell_quote(text)),
            None => format!("# with the messages of line {}", case.line),
        };
        let (model, max_tokens) = (shell_quote(&args.model.model), args.max_tokens);
        let raw = if args.raw { " --raw" } else { "" };
        let kv_type = match args.kv.kv_type {
            KvType::F16 => "",
            KvType::Q8 => " --kv-type q8",
        };
        MismatchJson {
            line: case.line,
            position: mismatch.position,
            expected: mismatch.expected,
            got: mismatch.got,
            setting: flags.clone(),
            together: task.setting.together,
            reproduce: format!("selfspec run {model} --json -n {max_tokens}{raw}{kv_type} {flags} {prompt}"),
        }
    }

    /// The command that shows the difference.
    pub(crate) fn reproduce(&self) -> String {
        format!("see it with `{}`, against --spec off", self.reproduce)
    }

    /// One line for people.
    pub(crate) fn words(&self, mismatch: &Mismatch) -> String {
        let id = |id: Option<u32>| id.map_or_else(|| "the end".to_owned(), |id| format!("token {id}"));
        let what = match mismatch.finish {
            Some((plain, got)) => {
                format!("all tokens are equal, but plain decoding finished by {plain}, this by {got}")
            }
            None => format!("plain decoding has {}, this {}", id(self.expected), id(self.got)),
        };
        let together = if self.together { ", together with other prompts" } else { "" };
        format!("prompt of line {}, position {}: {what}; setting: {}{together}", self.line, self.position, self.setting)
    }
}

/// A text as one word of a POSIX shell.
pub(crate) fn shell_quote(text: &str) -> String {
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./:=@".contains(c)) {
        return text.to_owned();
    }
    if text.contains(output::acts) {
        // Escaped as bash, zsh and ksh read it, so that the command is one line and does nothing to a terminal.
        let escaped = |c: char| match c {
            '\n' => "\\n".to_owned(),
            '\'' | '\\' => format!("\\{c}"),
            c if output::acts(c) => format!("\\U{:08x}", u32::from(c)),
            c => c.to_string(),
        };
        return format!("$'{}'", text.chars().map(escaped).collect::<String>());
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// The accepted lengths up to `longest`.
pub(crate) fn accepted_lengths(stats: &SpecStats, longest: usize) -> Vec<u64> {
    stats.accepted_lengths.iter().take(longest + 1).copied().collect()
}

/// Tables of what was compared, for people.
pub(crate) fn tables(runner: &Runner, longest: usize) -> String {
    let head = ["drafter", "cases", "tokens", "drafted", "accepted", "rejected", "equal"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let mut tallies: Vec<_> = runner.tallies.iter().collect();
    tallies.sort_by_key(|t| t.drafter.rank());
    for tally in tallies {
        let equal = match tally.mismatches {
            0 => "all".to_owned(),
            n => format!("{n} differ"),
        };
        let numbers = [tally.stats.drafted, tally.stats.accepted, tally.stats.rejected].map(|n| n.to_string());
        let mut row = vec![tally.drafter.words(), tally.cases.to_string(), tally.tokens.to_string()];
        row.extend(numbers);
        row.push(equal);
        rows.push(row);
    }
    let mut text = table(&rows, &[1, 2, 3, 4, 5]);
    let lengths = accepted_lengths(&runner.stats(), longest);
    let lengths: Vec<String> = lengths.iter().enumerate().map(|(a, n)| format!("{a}: {n}")).collect();
    text += &format!("\nrounds by tokens accepted  {}\n", lengths.join(", "));
    text += &format!("cases by draft length      {}\n", count(&runner.used, |s| s.draft_len));
    text += &format!("cases by threads           {}\n", count(&runner.used, |s| s.threads));
    text += &format!("cases by instruction set   {}\n", count(&runner.used, |s| s.isa.to_string()));
    let together = runner.used.iter().filter(|s| s.together).count();
    text += &format!("cases alone / in a batch   {} / {together}\n", runner.used.len() - together);
    text
}

fn count<K: Ord + std::fmt::Display>(settings: &[Setting], key: impl Fn(&Setting) -> K) -> String {
    let mut counts = std::collections::BTreeMap::new();
    for setting in settings {
        *counts.entry(key(setting)).or_insert(0) += 1;
    }
    counts.iter().map(|(k, n): (_, &usize)| format!("{k}: {n}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use selfspec_engine::{FinishReason, Isa};

    use super::*;
    use crate::args::{Cli, Command};
    use crate::verify::runner::Task;
    use crate::verify::setting::{Drafter, Mode};
    use selfspec_lab::prompts;

    #[test]
    fn a_mismatch_says_where_what_and_how_to_see_it() {
        let setting = Setting {
            drafter: Drafter::Exit(15),
            draft_len: 3,
            bonus: false,
            threads: 2,
            isa: Isa::Scalar,
            together: true,
        };
        let task = Task { prompt: 0, mode: Mode::Seeded(7), setting };
        let mut mismatch = Mismatch { task, position: 4, expected: Some(11), got: None, finish: None };
        let command = Cli::parse_from(["selfspec", "verify", "m.gguf", "-n", "32", "--raw", "--kv-type", "q8"]).command;
        let Command::Verify(args) = command else { panic!("another command") };
        let json = MismatchJson::new(&mismatch, &prompts::built_in(), &args);
        let setting = "--temp 0.8 --top-p 0.95 --seed 7 --spec layer-skip --exit-layer 15 --spec-always --draft-len 3 --no-bonus -t 2 --isa scalar";
        assert_eq!(
            json.words(&mismatch),
            format!(
                "prompt of line 1, position 4: plain decoding has token 11, this the end; setting: {setting}, together with other prompts"
            )
        );
        let command = json.reproduce();
        assert!(
            command.contains(&format!("selfspec run m.gguf --json -n 32 --raw --kv-type q8 {setting} -p 'Explain ")),
            "{command}"
        );
        mismatch.finish = Some((FinishReason::Stop, FinishReason::Length));
        assert!(json.words(&mismatch).contains("plain decoding finished by stop, this by length"));
    }

    #[test]
    fn prompts_are_quoted_for_a_shell() {
        assert_eq!(shell_quote("hf:org/repo"), "hf:org/repo");
        assert_eq!(shell_quote("it's $x"), "'it'\\''s $x'");
        assert_eq!(shell_quote(""), "''");
        assert_eq!(shell_quote("a\n'\u{1b}\\"), "$'a\\n\\'\\U0000001b\\\\'");
    }
}
