//! From a model's name to an engine.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use selfspec_engine::{Engine, EngineOptions, Loaded};
use selfspec_hub::HubOptions;

use crate::args::{ComputeArgs, HeadArgs};
use crate::output::Ui;
use crate::progress::HubProgress;

/// What the environment and the flags say about fetching.
pub(crate) fn hub_options(ui: &Ui) -> anyhow::Result<HubOptions> {
    let mut options = HubOptions::from_env()?;
    options.offline = ui.offline;
    Ok(options)
}

/// The model's file or folder; fetched if the cache lacks it.
pub(crate) fn locate(name: &str, ui: &Ui) -> anyhow::Result<PathBuf> {
    Ok(selfspec_hub::resolve(name, &hub_options(ui)?, &HubProgress::new(ui))?)
}

/// The model in memory.
pub(crate) fn load(name: &str, threads: Option<usize>, heads: &HeadArgs, ui: &Ui) -> anyhow::Result<Arc<Loaded>> {
    let path = locate(name, ui)?;
    Loaded::open_with(&path, threads, &heads.setup()).with_context(|| format!("cannot load {}", path.display()))
}

/// An engine for one request at a time.
pub(crate) fn engine(name: &str, context: Option<usize>, compute: &ComputeArgs, ui: &Ui) -> anyhow::Result<Engine> {
    let loaded = load(name, compute.threads, &compute.heads, ui)?;
    let most = loaded.info().context;
    if let Some(context) = context.filter(|c| *c > most) {
        anyhow::bail!("a context of {context} positions: the model was made for {most}");
    }
    let options = EngineOptions { context, max_batch: 1, ..compute.engine() };
    Ok(Engine::open_with(&loaded, &options)?)
}
