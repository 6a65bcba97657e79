//! `selfspec rm`: models out of the cache.

use crate::args::RmArgs;
use crate::model;
use crate::output::{Ui, bytes};
use crate::progress::HubProgress;

pub(crate) fn run(args: &RmArgs, ui: &Ui) -> anyhow::Result<()> {
    let options = model::hub_options(ui)?;
    let progress = HubProgress::new(ui);
    for name in &args.names {
        let freed = selfspec_hub::remove(name, &options, &progress)?;
        ui.note(&format!("removed {name}, {} freed", bytes(freed)));
    }
    Ok(())
}
