//! A model in memory with its text side, from which any number of engines can be opened.

use std::path::Path;
use std::sync::Arc;

use selfspec_kernels::{KvType, Team};
use selfspec_model::{
    BackendFault, CpuBackend, CpuModel, CpuOptions, DraftHeads, DraftVocab, LayerPlan, PassPart, TokenId,
};
use selfspec_text::{ChatTemplate, Tokenizer};
use selfspec_weights::Checkpoint;

use crate::error::EngineError;
use crate::loading::draft_setup::{DraftSetup, ExitHeadSource};
use crate::loading::model_info::ModelInfo;
use crate::loading::text_files;
use crate::loading::tuning::{TunedDrafter, Tuning};
use crate::options::EngineOptions;

/// Default limit of the KV cache, in bytes.
const DEFAULT_KV_BYTES: usize = 4 << 30;
/// Default positions of each sequence in a full batch.
const DEFAULT_SHARE: usize = 2048;

/// A model in memory with its tokenizer and chat template. It never changes, and engines share its
/// weights.
pub struct LoadedModel {
    model: Arc<CpuModel>,
    heads: DraftHeads,
    text: TextSide,
    info: ModelInfo,
    fingerprint: String,
    tuning: Option<Tuning>,
}

/// A model's tokenizer, and its chat template or the error of compiling it.
pub type TextOnly = (Option<Arc<Tokenizer>>, Result<Option<Arc<ChatTemplate>>, EngineError>);

/// The parts that turn text into tokens and back. Each may be missing.
#[derive(Clone, Default)]
pub(crate) struct TextSide {
    pub(crate) tokenizer: Option<Arc<Tokenizer>>,
    pub(crate) template: Option<Arc<ChatTemplate>>,
    /// Why the model's own template cannot be used.
    pub(crate) template_fault: Option<String>,
    /// Tokens that end a text.
    pub(crate) eos: Vec<TokenId>,
}

impl LoadedModel {
    /// Reads and packs a model: a `.gguf` file (any part of a sharded one) or a Hugging Face
    /// folder.
    ///
    /// # Errors
    /// The files cannot be read, or do not hold a model and a tokenizer that can be run. A chat
    /// template that cannot be used is an error only for requests that need it.
    pub fn open(path: &Path, threads: Option<usize>) -> Result<Arc<LoadedModel>, EngineError> {
        LoadedModel::open_with(path, threads, &DraftSetup::default())
    }

    /// The same, with a choice of exit head, draft vocabulary and tuning.
    ///
    /// # Errors
    /// As [`LoadedModel::open`]; and an exit head that cannot be read, or is another model's.
    pub fn open_with(path: &Path, threads: Option<usize>, setup: &DraftSetup) -> Result<Arc<LoadedModel>, EngineError> {
        let checkpoint = Checkpoint::open(path)?;
        let mut info = ModelInfo::of_checkpoint(&checkpoint)?;
        let text = TextSide::read(&checkpoint)?;
        let threads = EngineOptions { threads, ..EngineOptions::default() }.resolved_threads();
        let team = Team::new(threads);
        let fingerprint = checkpoint.fingerprint();
        let model = CpuModel::open(&checkpoint, &team)?;
        let tuning = if setup.untuned { None } else { Tuning::read(path)? };
        let tuning = tuning.filter(|tuning| {
            let fits = tuning.fingerprint == fingerprint;
            if !fits {
                tracing::warn!(model = %path.display(), "the tuning beside the model is of other weights, and is not used");
            }
            // A user who names a head wants to measure that head.
            let named = matches!(setup.exit_head, ExitHeadSource::File(_)) && tuning.drafter != TunedDrafter::ExitHead;
            if fits && named {
                tracing::info!("the tuning beside the model is not used: another exit head is named");
            }
            fits && !named
        });
        let setup = tuning.as_ref().map_or_else(|| setup.clone(), |tuning| setup.tuned(tuning));
        let heads =
            setup.read(&model, info.name.as_deref().unwrap_or("a model without a name"), &fingerprint, &team)?;
        text.fits(model.vocab(), path)?;
        info.weight_bytes = model.weight_bytes() as u64;
        info.vocab = model.vocab();
        Ok(Arc::new(LoadedModel { model: Arc::new(model), heads, text, info, fingerprint, tuning }))
    }

    /// Checks what [`LoadedModel::open`] does, without reading the weights.
    ///
    /// # Errors
    /// As [`LoadedModel::open`].
    pub fn check(path: &Path) -> Result<(), EngineError> {
        let checkpoint = Checkpoint::open(path)?;
        let info = ModelInfo::of_checkpoint(&checkpoint)?;
        let text = TextSide::read(&checkpoint)?;
        CpuModel::check(&checkpoint)?;
        text.fits(info.vocab, path)
    }

    /// The tokenizer and the chat template of a model, as far as it has them, without reading its
    /// weights.
    ///
    /// # Errors
    /// The files cannot be read, or do not hold a tokenizer that can be used.
    pub fn text_only(path: &Path) -> Result<TextOnly, EngineError> {
        let text = TextSide::read(&Checkpoint::open(path)?)?;
        let template = match text.template_fault {
            Some(why) => Err(EngineError::BadChatTemplate { why }),
            None => Ok(text.template),
        };
        Ok((text.tokenizer, template))
    }

    /// Facts about the model.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// The tokenizer, if the model has one.
    pub fn tokenizer(&self) -> Option<&Arc<Tokenizer>> {
        self.text.tokenizer.as_ref()
    }

    /// The exit head and the draft vocabulary.
    pub fn draft_heads(&self) -> &DraftHeads {
        &self.heads
    }

    /// The fingerprint of the weights; see [`Checkpoint::fingerprint`].
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The result of `tune` for the model, if there is one.
    pub fn tuning(&self) -> Option<&Tuning> {
        self.tuning.as_ref()
    }

    /// The same model with a draft vocabulary of these tokens, which ascend. The weights are
    /// shared.
    ///
    /// # Errors
    /// The tokens are none, do not ascend, or are not the model's.
    pub fn with_draft_vocab(&self, ids: &[TokenId]) -> Result<Arc<LoadedModel>, EngineError> {
        let vocab = DraftVocab::new(&self.model, ids.to_vec(), &Team::new(1));
        let why = |e| EngineError::InvalidRequest { field: "draft_vocab", why: format!("{e}") };
        let heads = DraftHeads { vocab: Some(Arc::new(vocab.map_err(why)?)), exit: self.heads.exit.clone() };
        Ok(Arc::new(LoadedModel {
            model: self.model.clone(),
            heads,
            text: self.text.clone(),
            info: self.info.clone(),
            fingerprint: self.fingerprint.clone(),
            tuning: self.tuning.clone(),
        }))
    }

    /// The weights.
    pub fn model(&self) -> &Arc<CpuModel> {
        &self.model
    }

    /// Bytes of K and V of one position in a cache of that type, with those of an exit head.
    pub fn kv_bytes_per_position(&self, kv_type: KvType) -> usize {
        let layers = self.info.n_layers + usize::from(self.heads.exit.is_some());
        self.info.kv_bytes_per_position(kv_type) / self.info.n_layers * layers
    }

    /// Bytes that a pass of one row at position `context` streams: the weights of the plan's layers
    /// and of the head, and K and V of `context` positions in those layers.
    pub fn pass_bytes(&self, plan: &LayerPlan, kv_type: KvType, context: usize) -> u64 {
        let c = self.model.config();
        let seen = |layer: &usize| context - c.first_visible(*layer, context).min(context);
        let positions: usize = (0..c.n_layers).filter(|l| plan.runs(*l)).map(|l| seen(&l)).sum();
        let kv = positions * (self.info.kv_bytes_per_position(kv_type) / c.n_layers);
        (self.model.pass_bytes(plan) + kv) as u64
    }

    /// Bytes that one part of such a pass streams; 0 for parts that work in the processor's caches.
    pub fn part_bytes(&self, part: PassPart, kv_type: KvType, context: usize) -> u64 {
        let full = LayerPlan::full(self.info.n_layers);
        match part {
            PassPart::Attention => self.pass_bytes(&full, kv_type, context) - self.pass_bytes(&full, kv_type, 0),
            _ => self.model.part_bytes(part) as u64,
        }
    }

    pub(crate) fn text(&self) -> &TextSide {
        &self.text
    }

    /// The backend's options for this model.
    pub(crate) fn cpu_options(&self, options: &EngineOptions) -> Result<CpuOptions, EngineError> {
        let isa = match options.isa {
            // Parsing refuses a set that this processor lacks.
            Some(isa) => isa.to_string().parse()?,
            None => selfspec_kernels::Isa::detect()?,
        };
        let context = options.context.unwrap_or(self.info.context).min(self.info.context);
        let position = self.kv_bytes_per_position(options.kv_type).max(1);
        let kv_positions = match options.kv_bytes {
            Some(bytes) => bytes / position,
            None => {
                let shares = context.min(DEFAULT_SHARE).saturating_mul(options.max_batch);
                context.max(shares).min(DEFAULT_KV_BYTES / position)
            }
        };
        if context == 0 {
            return Err(EngineError::InvalidRequest { field: "context", why: "0 positions hold nothing".to_owned() });
        }
        if kv_positions == 0 {
            let bytes = options.kv_bytes.unwrap_or(DEFAULT_KV_BYTES);
            let why = format!("{bytes} bytes hold no position of {position} bytes");
            return Err(EngineError::InvalidRequest { field: "kv_bytes", why });
        }
        Ok(CpuOptions { isa, threads: options.resolved_threads(), context, kv_positions, kv_type: options.kv_type })
    }

    pub(crate) fn backend(&self, options: &CpuOptions, fault: Option<BackendFault>) -> Result<CpuBackend, EngineError> {
        let mut backend = CpuBackend::with_heads(self.model.clone(), self.heads.clone(), options)?;
        fault.into_iter().for_each(|fault| backend.plant(fault));
        Ok(backend)
    }
}

impl TextSide {
    fn read(checkpoint: &Checkpoint) -> Result<TextSide, EngineError> {
        let Some(vocabulary) = text_files::read(checkpoint.source())? else { return Ok(TextSide::default()) };
        let tokenizer = vocabulary.tokenizer;
        let mut eos = tokenizer.eos_ids().to_vec();
        eos.extend(vocabulary.eos);
        eos.sort_unstable();
        eos.dedup();
        let (mut template, mut template_fault) = (None, None);
        if let Some(source) = vocabulary.template {
            match tokenizer.chat_template(&source) {
                Ok(ready) => template = Some(Arc::new(ready)),
                Err(error) => {
                    tracing::warn!(%error, "the model's chat template cannot be used");
                    template_fault = Some(error.to_string());
                }
            }
        }
        Ok(TextSide { tokenizer: Some(Arc::new(tokenizer)), template, template_fault, eos })
    }

    /// Refuses tokens that the model does not have.
    fn fits(&self, vocab: usize, path: &Path) -> Result<(), EngineError> {
        let Some(end) = self.eos.iter().find(|end| **end as usize >= vocab) else { return Ok(()) };
        let why = format!("end token {end} is not in a vocabulary of {vocab}");
        Err(EngineError::File { path: path.to_owned(), why })
    }
}
