//! `selfspec pull`: models into the cache.

use crate::args::PullArgs;
use crate::model;
use crate::output::{self, Ui};
use crate::progress::HubProgress;

pub(crate) fn run(args: &PullArgs, ui: &Ui) -> anyhow::Result<()> {
    let mut options = model::hub_options(ui)?;
    options.force = args.force;
    let progress = HubProgress::new(ui);
    for name in args.models.iter().map(|name| selfspec_hub::hub_name(name)) {
        let name = &*name;
        let path = selfspec_hub::resolve(name, &options, &progress)?;
        if args.verify {
            match selfspec_hub::verify(name, &options, &progress)? {
                0 => ui.warn(&format!("{name}: there is no SHA-256 to compare with")),
                1 => ui.note(&format!("{name}: 1 file matches its SHA-256")),
                n => ui.note(&format!("{name}: {n} files match their SHA-256")),
            }
        }
        output::println(&path.display().to_string())?;
    }
    Ok(())
}
