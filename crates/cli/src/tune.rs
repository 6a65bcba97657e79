//! `selfspec tune`: finds out how a model drafts best on the user's prompts and machine.

use anyhow::Context;
use selfspec_engine::{ExitHeadSource, Tuning};
use selfspec_lab::prompts::{self, PromptStyle};
use selfspec_lab::tune::{TuneOptions, tune};

use crate::args::TuneArgs;
use crate::failure::of_flag;
use crate::output::{self, Ui};
use crate::progress::LabBars;
use crate::{model, out_path};

pub(crate) fn run(args: &TuneArgs, ui: &Ui) -> anyhow::Result<()> {
    let prompts = prompts::load(args.prompts.as_deref(), Some(args.limit))?;
    out_path::check("--report", &args.report, true)?;
    let path = model::locate(&args.model.model, ui)?;
    if !args.dry_run {
        out_path::check("the tuning beside the model,", &Tuning::path(&path), true)?;
    }
    let heads = &args.compute.heads;
    let loaded = model::load_untuned(&path.display().to_string(), &args.compute, ui)?;
    let options = TuneOptions {
        engine: args.compute.engine(),
        style: PromptStyle::of(args.raw, loaded.info()),
        max_tokens: args.max_tokens,
        temperature: args.temp,
        exits: args.exits.clone(),
        contexts: args.contexts.clone(),
        draft_vocab: args.draft_vocab,
        model: args.model.model.clone(),
        prompts: args.prompts.as_ref().map_or("built-in".to_owned(), |p| p.display().to_string()),
        exit_head: match &heads.exit_head {
            Some(ExitHeadSource::File(file)) => Some(std::path::absolute(file)?),
            _ => None,
        },
    };
    let report = tune(&loaded, &prompts, &options, &LabBars::new(ui)).map_err(|e| of_flag("--exits", e))?;
    output::print(&report.markdown(&args.model.model))?;
    let page = report.html(&args.model.model)?;
    std::fs::write(&args.report, page).with_context(|| format!("cannot write {}", args.report.display()))?;
    ui.note(&format!("{}: the curves, over {} prompts", args.report.display(), report.prompts));
    if args.dry_run {
        return Ok(());
    }
    let written = report.tuning.write(&path)?;
    ui.note(&format!("{}: later runs of this model use it; --no-tuning ignores it", written.display()));
    Ok(())
}
