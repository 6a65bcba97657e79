//! The engine's handle: requests in, streams of events out.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::Instant;

use selfspec_kernels::{Isa, KvType};
use selfspec_model::{Backend, ExitHeadInfo, SeqId, TokenId};
use selfspec_speculate::{Sequence, SequenceError, SequenceParams, TargetModel};
use selfspec_text::{ChatTemplate, Grammar, GrammarSource, Tokenizer};

use crate::error::EngineError;
use crate::events::generation::{Canceller, Generation};
use crate::events::output::Output;
use crate::events::reasoning::ReasoningMarks;
use crate::events::sink::EventSink;
use crate::fault::EngineFault;
use crate::grammars::model_compiler::ModelCompiler;
use crate::grammars::reasoning_grammar::ReasoningGrammar;
use crate::grammars::sequence_grammar::SequenceGrammar;
use crate::grammars::service::{GrammarService, GrammarTicket, Limits};
use crate::loading::loaded::{LoadedModel, TextSide};
use crate::loading::model_info::ModelInfo;
use crate::observe::counters::{Counters, EngineCounters};
use crate::options::EngineOptions;
use crate::panics::panic_message;
use crate::request::{Prompt, Request};
use crate::scheduler::checked_request::CheckedRequest;
use crate::scheduler::engine_thread::{EngineThread, RebuildBackend};
use crate::scheduler::page_budget::CacheShape;
use crate::scheduler::queued_request::{QueueEntry, QueuedRequest};

/// The sequence id of a queued request. It gets its own at admission.
const UNPLACED: SeqId = SeqId(u32::MAX);

/// A running model. One thread owns the backend. The handle can be shared between threads, and any
/// number of requests can be queued or running. Dropping it ends them with [`EngineError::Stopped`]
/// and joins the thread.
pub struct Engine {
    queue: Option<Sender<QueueEntry>>,
    thread: Option<JoinHandle<()>>,
    shape: CacheShape,
    target: TargetModel,
    text: TextSide,
    info: ModelInfo,
    loaded: Option<Arc<LoadedModel>>,
    isa: Option<Isa>,
    kv_type: KvType,
    threads: usize,
    fault: Option<EngineFault>,
    grammars: Option<GrammarService>, // none without a tokenizer
    counters: Arc<Counters>,
    requests: AtomicU64,
    entropy: u64,
}

impl Engine {
    /// Loads a model and starts an engine on it: a `.gguf` file (any part of a sharded one) or a
    /// Hugging Face folder.
    ///
    /// # Errors
    /// The model cannot be read or run, the instruction set is missing, or there is no memory for
    /// the KV cache.
    pub fn open(path: &Path, options: &EngineOptions) -> Result<Engine, EngineError> {
        Engine::open_with(&LoadedModel::open(path, options.threads)?, options)
    }

    /// Starts an engine on a model in memory, whose weights it shares with other engines.
    ///
    /// # Errors
    /// The instruction set is missing, or there is no memory for the KV cache.
    pub fn open_with(loaded: &Arc<LoadedModel>, options: &EngineOptions) -> Result<Engine, EngineError> {
        let cpu = loaded.cpu_options(options)?;
        let fault = options.fault.and_then(EngineFault::of_backend);
        let backend = Box::new(loaded.backend(&cpu, fault)?);
        let (isa, threads) = (cpu.isa, cpu.threads);
        let again = loaded.clone();
        let rebuild: RebuildBackend = Box::new(move || Ok(Box::new(again.backend(&cpu, fault)?)));
        let mut engine = Engine::start(backend, Some(rebuild), loaded.text().clone(), loaded.info().clone(), options)?;
        engine.loaded = Some(loaded.clone());
        engine.isa = Some(isa);
        engine.threads = threads;
        Ok(engine)
    }

    /// Starts an engine on any backend.
    ///
    /// # Errors
    /// [`EngineError::Io`] if the thread cannot be started.
    pub fn with_backend(
        backend: Box<dyn Backend>,
        tokenizer: Option<Arc<Tokenizer>>,
        template: Option<ChatTemplate>,
        options: &EngineOptions,
    ) -> Result<Engine, EngineError> {
        let eos = tokenizer.as_ref().map(|t| t.eos_ids().to_vec()).unwrap_or_default();
        let text = TextSide { tokenizer, template: template.map(Arc::new), template_fault: None, eos };
        let info = ModelInfo::of_backend(&*backend);
        Engine::start(backend, None, text, info, options)
    }

    fn start(
        backend: Box<dyn Backend>,
        rebuild: Option<RebuildBackend>,
        text: TextSide,
        info: ModelInfo,
        options: &EngineOptions,
    ) -> Result<Engine, EngineError> {
        let shape = CacheShape::of(&*backend);
        let target = TargetModel { context: shape.context(), ..TargetModel::of(&*backend) };
        let grammars = text.tokenizer.as_ref().map(|tokenizer| {
            let compiler = ModelCompiler::new(tokenizer.clone(), target.vocab, text.eos.clone());
            GrammarService::new(Arc::new(compiler), Limits::default())
        });
        let counters = Arc::new(Counters::default());
        let (queue, arrivals) = mpsc::channel();
        let engine_thread = EngineThread::new(backend, rebuild, arrivals, options, counters.clone());
        let thread = std::thread::Builder::new().name("selfspec-engine".to_owned());
        let thread = thread.spawn(move || engine_thread.run());
        let thread = thread.map_err(|source| EngineError::Io { path: "the engine's thread".into(), source })?;
        Ok(Engine {
            queue: Some(queue),
            thread: Some(thread),
            shape,
            target,
            text,
            info,
            loaded: None,
            isa: None,
            kv_type: options.kv_type,
            threads: options.resolved_threads(),
            fault: options.fault,
            grammars,
            counters,
            requests: AtomicU64::new(0),
            entropy: fresh_entropy(),
        })
    }

    /// Checks a request and puts it in the queue.
    ///
    /// # Errors
    /// The request needs something that the model lacks, cannot fit, or has a parameter out of
    /// range. Nothing is queued then.
    pub fn submit(&self, request: Request) -> Result<Generation, EngineError> {
        let (events, receiver) = mpsc::channel();
        let canceller = self.submit_to(request, Box::new(events))?;
        Ok(Generation::new(receiver, canceller))
    }

    /// Checks a request and puts it in the queue. Its events go to `sink`, on the engine thread.
    /// The returned handle cancels it, or the sink's [demand](EventSink::demand).
    ///
    /// # Errors
    /// As [`Engine::submit`].
    pub fn submit_to(&self, request: Request, sink: Box<dyn EventSink>) -> Result<Canceller, EngineError> {
        let checked = self.prepare(request, sink)?;
        let canceller = Canceller(checked.cancelled.clone());
        self.send(QueueEntry::Request(QueuedRequest::New(Box::new(checked))))?;
        Ok(canceller)
    }

    /// Checks a request and prepares it for the engine thread.
    pub(crate) fn prepare(&self, request: Request, sink: Box<dyn EventSink>) -> Result<CheckedRequest, EngineError> {
        let invalid = |field, why: String| EngineError::InvalidRequest { field, why };
        if request.max_tokens == Some(0) {
            return Err(invalid("max_tokens", "0 tokens are nothing to generate".to_owned()));
        }
        if request.stop.iter().any(String::is_empty) {
            return Err(invalid("stop", "an empty string is everywhere".to_owned()));
        }
        if !request.stop.is_empty() && self.text.tokenizer.is_none() {
            return Err(EngineError::NoTokenizer);
        }
        if request.grammar.is_some() {
            check_end(request.ignore_eos)?;
        }
        let prompt = self.encode(&request.prompt)?;
        request.speculation.validate(&self.target).map_err(SequenceError::from)?;
        let grant = self.shape.grant(prompt.len(), request.max_tokens, &request.speculation)?;
        let mut eos = request.stop_tokens;
        if !request.ignore_eos {
            // A tokenizer may have more tokens than the model has rows.
            eos.extend(self.text.eos.iter().filter(|id| (**id as usize) < self.target.vocab));
        }
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        // After text, a first space is text. After a control token it comes from the SentencePiece
        // encoder. With a grammar, every byte is text.
        let tokenizer = &self.text.tokenizer;
        let is_text = |id: &TokenId| tokenizer.as_ref().is_some_and(|t| !t.is_control(*id));
        let continues = request.grammar.is_some() || prompt.last().is_some_and(is_text);
        let phase = |marks: ReasoningMarks| Some((marks, marks.phase_after(&prompt, tokenizer.as_ref()?)));
        let reasoning = request.reasoning.and_then(phase);
        let output = Output::new(tokenizer.clone(), continues, request.stop, request.spelled, sink);
        let output = output.with_reasoning(reasoning);
        let params = SequenceParams {
            prompt,
            sampling: request.sampling,
            speculation: request.speculation,
            prediction: request.prediction,
            max_tokens: grant.max_tokens,
            eos,
            logprobs: request.logprobs,
            entropy: self.entropy.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        };
        let sequence = Sequence::new(UNPLACED, params, &self.target)?;
        let sequence = match request.grammar {
            Some(grammar) => {
                let answer = SequenceGrammar::new(&grammar);
                match reasoning {
                    Some((marks, phase)) => {
                        let (vocab, eos) = (self.target.vocab, &self.text.eos);
                        let whole = ReasoningGrammar::new(answer, marks, phase, vocab, eos);
                        sequence.with_constraint(Box::new(whole))
                    }
                    None => sequence.with_constraint(Box::new(answer)),
                }
            }
            None => sequence,
        };
        let cancelled = Arc::new(AtomicBool::new(false));
        Ok(CheckedRequest { sequence, grant, output, cancelled, deadline: request.deadline, submitted: Instant::now() })
    }

    /// Compiles a grammar for [`Request::grammar`], and waits for it. See
    /// [`Engine::request_grammar`].
    ///
    /// # Errors
    /// As [`Engine::request_grammar`], and those that its answer may be.
    pub fn grammar(&self, source: &GrammarSource) -> Result<Grammar, EngineError> {
        let (answer, receiver) = mpsc::channel();
        let send = move |result| drop(answer.send(result));
        let _ticket = self.request_grammar(source.clone(), send)?;
        receiver.recv().unwrap_or(Err(EngineError::Stopped))
    }

    /// Asks for the compiled grammar of `source`, for [`Request::grammar`].
    ///
    /// `answer` gets the grammar, or [`EngineError::Text`] if the source cannot be used. It is
    /// called once, on a thread of the engine, or before this returns if the result is cached; it
    /// must not block. A few grammars compile at a time and the others wait. Equal ones compile
    /// once. Dropping the ticket cancels the wait.
    ///
    /// # Errors
    /// There is no tokenizer; the source is refused at first sight; or [`EngineError::Busy`] if too
    /// many requests wait. `answer` is not called then.
    pub fn request_grammar(
        &self,
        source: GrammarSource,
        answer: impl FnOnce(Result<Grammar, EngineError>) + Send + 'static,
    ) -> Result<GrammarTicket, EngineError> {
        self.grammars.as_ref().ok_or(EngineError::NoTokenizer)?.submit(source, Box::new(answer))
    }

    /// Checks a request as [`Engine::submit`] does, and queues nothing. `grammar`: the source of
    /// its grammar, which is still to be compiled.
    ///
    /// # Errors
    /// As [`Engine::submit`]; and the source is refused at first sight.
    pub fn check(&self, request: &Request, grammar: Option<&GrammarSource>) -> Result<(), EngineError> {
        if let Some(source) = grammar {
            source.check()?;
            check_end(request.ignore_eos)?;
        }
        let (events, _) = mpsc::channel();
        self.prepare(request.clone(), Box::new(events)).map(|_| ())
    }

    /// The exit head of the model, if it has one.
    pub fn exit_head(&self) -> Option<&ExitHeadInfo> {
        self.target.exit_head.as_ref()
    }

    /// Whether there is a draft vocabulary for layer skip.
    pub fn has_draft_vocab(&self) -> bool {
        self.target.draft_vocab.is_some()
    }

    /// The tokens of a prompt, as [`Engine::submit`] would use them.
    ///
    /// # Errors
    /// There is no tokenizer or chat template for it, the template refuses it, it is empty, or it
    /// holds an unknown token.
    pub fn encode(&self, prompt: &Prompt) -> Result<Vec<TokenId>, EngineError> {
        let tokenizer = || self.text.tokenizer.as_ref().ok_or(EngineError::NoTokenizer);
        let mut tokens = match prompt {
            Prompt::Tokens(tokens) => tokens.clone(),
            Prompt::Text(text) => tokenizer()?.encode(text, true)?,
            Prompt::Chat(messages) => {
                let template = match (&self.text.template, &self.text.template_fault) {
                    (Some(template), _) => template,
                    (None, Some(why)) => return Err(EngineError::BadChatTemplate { why: why.clone() }),
                    (None, None) => return Err(EngineError::NoChatTemplate),
                };
                let rendered = template.render(messages, true, &serde_json::Map::new())?;
                tokenizer()?.encode_prompt(&rendered)?
            }
        };
        if tokens.is_empty() {
            let bos = self.text.tokenizer.as_ref().and_then(|t| t.bos());
            tokens.push(bos.ok_or(EngineError::EmptyPrompt)?);
        }
        match tokens.iter().find(|t| **t as usize >= self.target.vocab) {
            Some(&token) => {
                let vocab = self.target.vocab;
                Err(EngineError::Backend(selfspec_model::BackendError::UnknownToken { token, vocab }))
            }
            None => Ok(tokens),
        }
    }

    /// Runs `work` on the engine thread while no request runs. Requests submitted before it run
    /// first, later ones after it. `work` must free the sequences that it creates.
    ///
    /// # Errors
    /// [`EngineError::Panic`] if `work` panics or an earlier panic broke the backend;
    /// [`EngineError::Stopped`].
    pub fn exclusive<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn Backend) -> T + Send + 'static,
    ) -> Result<T, EngineError> {
        let (answer, receiver) = mpsc::channel();
        self.send(QueueEntry::Exclusive(Box::new(move |backend| {
            let result = match backend {
                Ok(backend) => std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(backend)))
                    .map_err(|panic| panic_message(&*panic)),
                Err(message) => Err(message),
            };
            let fine = result.is_ok();
            let _ = answer.send(result);
            fine
        })))?;
        let result = receiver.recv().map_err(|_| EngineError::Stopped)?;
        result.map_err(|message| EngineError::Panic { message })
    }

    fn send(&self, entry: QueueEntry) -> Result<(), EngineError> {
        let queue = self.queue.as_ref().ok_or(EngineError::Stopped)?;
        queue.send(entry).map_err(|_| EngineError::Stopped)
    }

    /// The tokenizer, if the model has one.
    pub fn tokenizer(&self) -> Option<&Arc<Tokenizer>> {
        self.text.tokenizer.as_ref()
    }

    /// The chat template, if the model has one that can be used.
    pub fn chat_template(&self) -> Option<&Arc<ChatTemplate>> {
        self.text.template.as_ref()
    }

    /// Tokens that end a text, unless a request says to ignore them.
    pub fn eos(&self) -> &[TokenId] {
        &self.text.eos
    }

    /// Facts about the model.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// The model in memory, if the engine was opened on one.
    pub fn loaded(&self) -> Option<&Arc<LoadedModel>> {
        self.loaded.as_ref()
    }

    /// Number of layers N.
    pub fn n_layers(&self) -> usize {
        self.target.n_layers
    }

    /// Longest sequence that can be held, in positions.
    pub fn context(&self) -> usize {
        self.target.context
    }

    /// Threads that compute.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The instruction set, if the engine runs on the CPU's backend.
    pub fn isa(&self) -> Option<Isa> {
        self.isa
    }

    /// The number type of the KV cache, if the engine runs on the CPU's backend.
    pub fn kv_type(&self) -> KvType {
        self.kv_type
    }

    /// The planted fault, if there is one.
    pub fn fault(&self) -> Option<EngineFault> {
        self.fault
    }

    /// The counters.
    pub fn counters(&self) -> EngineCounters {
        self.counters.read()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // The thread ends when the last sender is gone.
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // A panic outside a step is a bug of the engine. Its requests have failed as stopped.
            let _ = thread.join();
        }
    }
}

/// Refuses `ignore_eos` for a text with a grammar, which ends where it is complete.
fn check_end(ignore_eos: bool) -> Result<(), EngineError> {
    if !ignore_eos {
        return Ok(());
    }
    let why = "a text that must be what a grammar says ends where it is complete".to_owned();
    Err(EngineError::InvalidRequest { field: "ignore_eos", why })
}

/// An unpredictable number. The standard library takes its hash keys from the system.
fn fresh_entropy() -> u64 {
    use std::hash::BuildHasher;
    std::hash::RandomState::new().hash_one(std::process::id())
}
