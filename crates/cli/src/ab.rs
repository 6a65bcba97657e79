//! `selfspec ab`: whether speculation pays on a server, from its record of the requests of both
//! arms.

use selfspec_lab::rollout::{ArmError, RecordError, RequestRecord, compare_arms, read_record};

use crate::args::{AbArgs, RecordFileArg};
use crate::failure::{hinted, usage};
use crate::output::{self, Ui};

/// The command that makes a record that can be compared.
const HINT: &str = "`selfspec serve --speculate-share 0.5 --record FILE` gives requests their arms and records them";

pub(crate) fn run(args: &AbArgs, ui: &Ui) -> anyhow::Result<()> {
    let record = read(&args.file, ui)?;
    let comparison = compare_arms(&record.requests, args.all).map_err(|error| {
        let all = match error {
            ArmError::NoShare { .. } => " (--all compares them none the less)",
            ArmError::EmptyArm { .. } => "",
        };
        usage(format!("{}: {error}{all}", args.file.path.display()), HINT)
    })?;
    match args.json {
        true => output::print_json(&comparison.json()),
        false => Ok(output::print(&comparison.markdown())?),
    }
}

/// The record that a flag names, with a warning about the lines that are left out.
pub(crate) fn read(file: &RecordFileArg, ui: &Ui) -> anyhow::Result<RequestRecord> {
    let record = read_record(&file.path, file.skip_damaged).map_err(|error| match &error {
        RecordError::Line { .. } => hinted(error.to_string(), "--skip-damaged leaves such lines out"),
        RecordError::Empty { .. } => {
            usage(error.to_string(), "`selfspec serve --record FILE` writes one line for each request that ends")
        }
        RecordError::Read { .. } => error.into(),
    })?;
    if record.damaged > 0 {
        ui.warn(&format!("{}: {} damaged lines are left out", file.path.display(), record.damaged));
    }
    Ok(record)
}
