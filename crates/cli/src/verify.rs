//! `selfspec verify`: proves on this machine that speculation changes nothing.

use selfspec_lab::prompts::{self, PromptStyle};
use selfspec_lab::verify::{
    DecodingSetting, OutputMismatch, SamplingMode, VerifiedDrafter, VerifyOptions, VerifyReport, plain_threads, verify,
};
use serde::Serialize;

use crate::args::VerifyArgs;
use crate::failure::AlreadyReported;
use crate::model;
use crate::output::{self, Ui, table};
use crate::progress::LabBars;

pub(crate) fn run(args: &VerifyArgs, ui: &Ui) -> anyhow::Result<()> {
    let prompts = prompts::load(args.prompts.as_deref(), args.limit)?;
    let loaded = model::load(&args.model.model, Some(plain_threads(&args.threads)), &args.heads, ui)?;
    let options = VerifyOptions {
        style: PromptStyle::of(args.raw, loaded.info()),
        max_tokens: args.max_tokens,
        threads: args.threads.clone(),
        isas: args.isa.clone(),
        kv_type: args.kv.kv_type,
        exhaustive: args.exhaustive,
    };
    let report = verify(&loaded, prompts, &options, &LabBars::new(ui))?;
    print(args, &report, ui)?;
    if report.ok() { Ok(()) } else { Err(AlreadyReported.into()) }
}

fn print(args: &VerifyArgs, report: &VerifyReport, ui: &Ui) -> anyhow::Result<()> {
    let (ok, trials) = (report.ok(), &report.rejection_sampling);
    if args.json {
        output::print_json(&VerifyJson::new(report, args))?;
    } else {
        output::print(&tables(report))?;
        output::println(&format!("rejection sampling         {trials}"))?;
        if ok {
            output::println(&format!("\nlossless: {} cases, {} tokens, every one equal", report.cases, report.tokens))?;
        }
    }
    if let Some(mismatch) = &report.first_mismatch {
        ui.error(&format!("output differs from plain decoding: {}", mismatch_words(mismatch)));
        ui.hint(&format!("see it with `{}`, against --spec off", reproduce(mismatch, args)));
    }
    if trials.refuted() {
        ui.error(&format!("rejection sampling: {trials}"));
    }
    if !report.untested.is_empty() {
        ui.error(&format!("too little was tested: {}", report.untested.join("; ")));
        ui.hint("longer outputs (-n) and more prompts give more rounds");
    }
    Ok(())
}

/// The object of `verify --json`. Its keys are an interface that others rely on.
#[derive(Debug, Serialize)]
struct VerifyJson<'a> {
    ok: bool,
    cases: usize,
    tokens: usize,
    drafted: u64,
    accepted: u64,
    rejected: u64,
    /// Index a: rounds that accepted a tokens.
    accepted_lengths: &'a [u64],
    first_mismatch: Option<MismatchJson>,
    /// Gaps of the proof, a sentence each. With any, `ok` is false even if nothing differs.
    untested: &'a [String],
}

/// The first mismatch.
#[derive(Debug, Serialize)]
struct MismatchJson {
    line: usize,
    position: usize,
    expected: Option<u32>,
    got: Option<u32>,
    setting: String,
    together: bool,
    reproduce: String,
}

impl<'a> VerifyJson<'a> {
    fn new(report: &'a VerifyReport, args: &VerifyArgs) -> Self {
        let mismatch = |m: &OutputMismatch| MismatchJson {
            line: m.case.line,
            position: m.position,
            expected: m.expected,
            got: m.got,
            setting: setting_flags(&m.setting, m.mode),
            together: m.setting.together,
            reproduce: reproduce(m, args),
        };
        VerifyJson {
            ok: report.ok(),
            cases: report.cases,
            tokens: report.tokens,
            drafted: report.drafted,
            accepted: report.accepted,
            rejected: report.rejected,
            accepted_lengths: &report.accepted_lengths,
            first_mismatch: report.first_mismatch.as_ref().map(mismatch),
            untested: &report.untested,
        }
    }
}

/// The command whose output differs.
fn reproduce(mismatch: &OutputMismatch, args: &VerifyArgs) -> String {
    let prompt = match mismatch.case.text() {
        Some(text) => format!("-p {}", shell_quote(text)),
        None => format!("# with the messages of line {}", mismatch.case.line),
    };
    let (model, max_tokens) = (shell_quote(&args.model.model), args.max_tokens);
    let raw = if args.raw { " --raw" } else { "" };
    let kv_type =
        if args.kv.kv_type == Default::default() { String::new() } else { format!(" --kv-type {}", args.kv.kv_type) };
    let flags = setting_flags(&mismatch.setting, mismatch.mode);
    format!("selfspec run {model} --json -n {max_tokens}{raw}{kv_type} {flags} {prompt}")
}

/// One line for people.
fn mismatch_words(mismatch: &OutputMismatch) -> String {
    let id = |id: Option<u32>| id.map_or_else(|| "the end".to_owned(), |id| format!("token {id}"));
    let what = match mismatch.finish {
        Some((plain, got)) => format!("all tokens are equal, but plain decoding finished by {plain}, this by {got}"),
        None => format!("plain decoding has {}, this {}", id(mismatch.expected), id(mismatch.got)),
    };
    let flags = setting_flags(&mismatch.setting, mismatch.mode);
    let together = if mismatch.setting.together { ", together with other prompts" } else { "" };
    format!("prompt of line {}, position {}: {what}; setting: {flags}{together}", mismatch.case.line, mismatch.position)
}

/// A setting as flags of `run`.
fn setting_flags(setting: &DecodingSetting, mode: SamplingMode) -> String {
    let sampling = match mode {
        SamplingMode::Greedy => "--temp 0".to_owned(),
        SamplingMode::Seeded(seed) => format!("--temp 0.8 --top-p 0.95 --seed {seed}"),
    };
    let drafter = match setting.drafter {
        VerifiedDrafter::Off => "--spec off".to_owned(),
        VerifiedDrafter::Exit(exit) => format!("--spec layer-skip --exit-layer {exit} --spec-always"),
        VerifiedDrafter::Skip(from, to) => format!("--spec layer-skip --skip-layers {from}..{to} --spec-always"),
        VerifiedDrafter::ExitHead => "--spec exit-head --spec-always".to_owned(),
        VerifiedDrafter::PromptLookup => "--spec prompt-lookup --spec-always".to_owned(),
        VerifiedDrafter::Auto => "--spec auto".to_owned(),
    };
    let mut flags = format!("{sampling} {drafter}");
    if !matches!(setting.drafter, VerifiedDrafter::Auto | VerifiedDrafter::Off) {
        flags += &format!(" --draft-len {}", setting.draft_len);
    }
    if !setting.bonus && setting.drafter != VerifiedDrafter::Off {
        flags += " --no-bonus";
    }
    format!("{flags} -t {} --isa {}", setting.threads, setting.isa)
}

/// A text as one word of a POSIX shell.
fn shell_quote(text: &str) -> String {
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./:=@".contains(c)) {
        return text.to_owned();
    }
    if text.contains(output::acts) {
        // Escaped for bash, zsh and ksh, so that the command is one line without control
        // characters.
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

/// Tables of the comparisons.
fn tables(report: &VerifyReport) -> String {
    let head = ["drafter", "cases", "tokens", "drafted", "accepted", "rejected", "equal"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for tally in &report.tallies {
        let equal = match tally.mismatches {
            0 => "all".to_owned(),
            n => format!("{n} differ"),
        };
        let numbers = [tally.stats.drafted, tally.stats.accepted, tally.stats.rejected].map(|n| n.to_string());
        let mut row = vec![tally.drafter.to_string(), tally.cases.to_string(), tally.tokens.to_string()];
        row.extend(numbers);
        row.push(equal);
        rows.push(row);
    }
    let mut text = table(&rows, &[1, 2, 3, 4, 5]);
    let lengths: Vec<String> = report.accepted_lengths.iter().enumerate().map(|(a, n)| format!("{a}: {n}")).collect();
    let settings = &report.settings;
    text += &format!("\nrounds by tokens accepted  {}\n", lengths.join(", "));
    text += &format!("cases by draft length      {}\n", count(settings, |s| s.draft_len));
    text += &format!("cases by threads           {}\n", count(settings, |s| s.threads));
    text += &format!("cases by instruction set   {}\n", count(settings, |s| s.isa.to_string()));
    let together = settings.iter().filter(|s| s.together).count();
    text += &format!("cases alone / in a batch   {} / {together}\n", settings.len() - together);
    text
}

fn count<K: Ord + std::fmt::Display>(settings: &[DecodingSetting], key: impl Fn(&DecodingSetting) -> K) -> String {
    let mut counts = std::collections::BTreeMap::new();
    for setting in settings {
        *counts.entry(key(setting)).or_insert(0) += 1;
    }
    counts.iter().map(|(k, n): (_, &usize)| format!("{k}: {n}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use selfspec::Isa;
    use selfspec_engine::FinishReason;

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn a_mismatch_says_where_what_and_how_to_see_it() {
        let setting = DecodingSetting {
            drafter: VerifiedDrafter::Exit(15),
            draft_len: 3,
            bonus: false,
            threads: 2,
            isa: Isa::Scalar,
            together: true,
        };
        let mut mismatch = OutputMismatch {
            case: prompts::built_in().swap_remove(0),
            mode: SamplingMode::Seeded(7),
            setting,
            position: 4,
            expected: Some(11),
            got: None,
            finish: None,
        };
        let command = Cli::parse_from(["selfspec", "verify", "m.gguf", "-n", "32", "--raw", "--kv-type", "q8"]).command;
        let Command::Verify(args) = command else { panic!("another command") };
        let setting = "--temp 0.8 --top-p 0.95 --seed 7 --spec layer-skip --exit-layer 15 --spec-always --draft-len 3 --no-bonus -t 2 --isa scalar";
        assert_eq!(
            mismatch_words(&mismatch),
            format!(
                "prompt of line 1, position 4: plain decoding has token 11, this the end; setting: {setting}, together with other prompts"
            )
        );
        let command = reproduce(&mismatch, &args);
        let expected = format!("selfspec run m.gguf --json -n 32 --raw --kv-type q8 {setting} -p 'Explain ");
        assert!(command.starts_with(&expected), "{command}");
        mismatch.finish = Some((FinishReason::Stop, FinishReason::Length));
        assert!(mismatch_words(&mismatch).contains("plain decoding finished by stop, this by length"));
    }

    #[test]
    fn prompts_are_quoted_for_a_shell() {
        assert_eq!(shell_quote("hf:org/repo"), "hf:org/repo");
        assert_eq!(shell_quote("it's $x"), "'it'\\''s $x'");
        assert_eq!(shell_quote(""), "''");
        assert_eq!(shell_quote("a\n'\u{1b}\\"), "$'a\\n\\'\\U0000001b\\\\'");
    }
}
