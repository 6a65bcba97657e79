//! `selfspec doctor`: finds out why speculation is slow or output wrong with a model.

use selfspec_lab::LabError;
use selfspec_lab::doctor::{DoctorOptions, PlantedFault, doctor, strange_prompts};
use selfspec_lab::prompts::{self, PromptCase, PromptStyle};

use crate::args::{DoctorArgs, DoctorFormat, HeadArgs, Plant};
use crate::failure::{AlreadyReported, usage};
use crate::model;
use crate::output::{self, Ui};
use crate::progress::LabBars;

pub(crate) fn run(args: &DoctorArgs, ui: &Ui) -> anyhow::Result<()> {
    let prompts = prompts::spread(&prompts(args, ui)?, args.limit);
    let load = |heads: &HeadArgs| model::load(&args.model.model, args.compute.threads, heads, ui);
    let mut heads = args.compute.heads.clone();
    // A planted fault must be found whatever a tuning chose. Only the record of acceptance by
    // domain may come from the tuning.
    heads.no_tuning |= args.plant.is_some();
    let mut loaded = load(&heads)?;
    if args.plant == Some(Plant::Domain) && loaded.draft_heads().exit.is_none() {
        loaded = load(&args.compute.heads)?;
    }
    let options = DoctorOptions {
        engine: args.compute.engine(),
        style: PromptStyle::of(args.raw, loaded.info()),
        max_tokens: args.max_tokens,
        contexts: args.contexts.clone(),
        plant: args.plant.map(|plant| match plant {
            Plant::Norm => PlantedFault::Norm,
            Plant::Rollback => PlantedFault::Rollback,
            Plant::Cost => PlantedFault::Cost,
            Plant::Domain => PlantedFault::Domain,
        }),
    };
    let report = doctor(&loaded, prompts, &options, &LabBars::new(ui)).map_err(|error| match error {
        LabError::NoRecordedAcceptance => {
            let hint = "`selfspec tune` keeps one with its choice, `selfspec train head` in the head's card";
            usage(format!("--plant domain: {error}"), hint)
        }
        error => error.into(),
    })?;
    match args.output {
        DoctorFormat::Md => output::print(&report.markdown(&args.model.model))?,
        DoctorFormat::Json => output::print_json(&report.json(&args.model.model))?,
    }
    if report.found() == Some(false) {
        ui.error("the planted fault is not the first finding");
        return Err(AlreadyReported.into());
    }
    if report.healthy() { Ok(()) } else { Err(AlreadyReported.into()) }
}

/// The prompts that the flags name, or strange ones if those are planted.
fn prompts(args: &DoctorArgs, ui: &Ui) -> anyhow::Result<Vec<PromptCase>> {
    if args.plant != Some(Plant::Domain) {
        return Ok(prompts::load(args.prompts.as_deref(), None)?);
    }
    if let Some(path) = &args.prompts {
        ui.note(&format!("{} is not used: --plant domain brings its own prompts", path.display()));
    }
    Ok(strange_prompts())
}
