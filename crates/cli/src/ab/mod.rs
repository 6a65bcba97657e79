//! `selfspec ab`: whether speculation pays on a server, from its record of the requests of both arms.

mod arm;
mod bootstrap;
mod report;

use selfspec_server::{Arm as Name, ChosenBy, RecordLine};

use crate::args::AbArgs;
use crate::failure::usage;
use crate::output::{self, Ui};
use crate::record_file;
use arm::Arm;
use report::Report;

/// What makes a record that can be compared.
const HINT: &str = "`selfspec serve --speculate-share 0.5 --record FILE` gives requests their arms and records them";

pub(crate) fn run(args: &AbArgs, ui: &Ui) -> anyhow::Result<()> {
    let lines = record_file::read(&args.file, ui)?;
    let path = args.file.path.display();
    let drawn: Vec<&RecordLine> = lines.iter().filter(|line| args.all || line.arm_by == ChosenBy::Share).collect();
    if drawn.is_empty() {
        let message = format!(
            "{path}: of its {} requests none was given its arm by a share, so that the arms may differ in what they were asked (--all compares them none the less)",
            lines.len()
        );
        return Err(usage(message, HINT));
    }
    let of = |name: Name| drawn.iter().copied().filter(move |line| line.arm == name);
    for name in Name::ALL {
        if of(name).next().is_none() {
            let message =
                format!("{path}: none of the {} requests that can be compared is of the arm {name}", drawn.len());
            return Err(usage(message, HINT));
        }
    }
    let arms = Name::ALL.map(|name| Arm::of(of(name)));
    let figures = bootstrap::compare(&arms);
    let report = Report { left_out: lines.len() - drawn.len(), arms, figures };
    let text = if args.json { serde_json::to_string_pretty(&report.json())? + "\n" } else { report.text() };
    output::print(&text)?;
    Ok(())
}
