//! From a model's name and the flags to a running model.

use std::path::PathBuf;
use std::sync::Arc;

use selfspec::{Error, Model, ModelBuilder};
use selfspec_engine::{Engine, ExitHeadSource, LoadedModel};
use selfspec_hub::{FetchProgress, HubOptions};

use crate::args::{ComputeArgs, HeadArgs, LoadArgs};
use crate::failure::usage;
use crate::output::Ui;
use crate::progress::HubProgress;

/// What the environment and the flags say about fetching.
pub(crate) fn hub_options(ui: &Ui) -> anyhow::Result<HubOptions> {
    let mut options = HubOptions::from_env()?;
    options.offline = ui.offline;
    Ok(options)
}

fn builder(name: &str, ui: &Ui) -> ModelBuilder {
    let progress = HubProgress::new(ui);
    Model::builder(name).offline(ui.offline).on_fetch(move |event| progress.event(event))
}

fn with_heads(builder: ModelBuilder, heads: &HeadArgs) -> ModelBuilder {
    let builder = builder.tuning(!heads.no_tuning);
    match &heads.exit_head {
        None | Some(ExitHeadSource::BuiltIn) => builder,
        Some(ExitHeadSource::Off) => builder.no_exit_head(),
        Some(ExitHeadSource::File(path)) => builder.exit_head(path),
    }
}

fn with_compute(builder: ModelBuilder, compute: &ComputeArgs) -> ModelBuilder {
    let builder = builder.threads(compute.threads).isa(compute.isa).kv_type(compute.kv.kv_type);
    with_heads(builder, &compute.heads)
}

/// The model's file or folder; fetched if the cache lacks it.
pub(crate) fn locate(name: &str, ui: &Ui) -> anyhow::Result<PathBuf> {
    Ok(builder(name, ui).locate()?)
}

/// The model in memory.
pub(crate) fn load(name: &str, threads: Option<usize>, heads: &HeadArgs, ui: &Ui) -> anyhow::Result<Arc<LoadedModel>> {
    Ok(with_heads(builder(name, ui).threads(threads), heads).load()?)
}

/// The model in memory, without the results of `selfspec tune`.
pub(crate) fn load_untuned(name: &str, compute: &ComputeArgs, ui: &Ui) -> anyhow::Result<Arc<LoadedModel>> {
    Ok(with_compute(builder(name, ui), compute).tuning(false).load()?)
}

/// A model that serves many requests.
pub(crate) fn serve(name: &str, load: &LoadArgs, compute: &ComputeArgs, ui: &Ui) -> anyhow::Result<Model> {
    let builder = with_compute(builder(name, ui), compute).context(load.context).max_batch(load.max_batch);
    let builder = builder.kv_bytes(load.kv_mib.map(|mib| mib << 20)).prefix_cache(!load.no_prefix_cache);
    builder.open().map_err(|error| match error {
        Error::ContextTooLong { context, most } => {
            usage(format!("-c {context}: the model was made for {most} positions"), None)
        }
        error => error.into(),
    })
}

/// A model that runs one request at a time.
pub(crate) fn open(name: &str, context: Option<usize>, compute: &ComputeArgs, ui: &Ui) -> anyhow::Result<Model> {
    Ok(with_compute(builder(name, ui), compute).context(context).max_batch(1).open()?)
}

/// An engine to measure: one request at a time, and none reuses the KV cache of another.
pub(crate) fn engine(name: &str, compute: &ComputeArgs, ui: &Ui) -> anyhow::Result<Arc<Engine>> {
    let model = with_compute(builder(name, ui), compute).max_batch(1).prefix_cache(false).open()?;
    Ok(model.engine().clone())
}
