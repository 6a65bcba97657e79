//! Backends whose output is known, and backends that fail on purpose.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use selfspec_engine::{
    Backend, BackendError, DraftLen, DrafterChoice, Engine, EngineOptions, Event, Generation, LayerPlan, Prompt,
    Readout, Request, Row, SeqId, SpeculationParams, StepOutput, Summary, TokenEvent, TokenId, Tokenizer,
};
use selfspec_testkit::Vocab;
use selfspec_text::GgufVocab;

/// The byte-level tokenizer of the test kit: tokens 0..256 are bytes in an order of their own, then merges, then control tokens.
pub(crate) fn tokenizer() -> Arc<Tokenizer> {
    tokenizer_of(Vocab::byte_level())
}

/// The tokenizer of a vocabulary of the test kit.
pub(crate) fn tokenizer_of(v: Vocab) -> Arc<Tokenizer> {
    let vocab = GgufVocab {
        model: v.model.to_owned(),
        pre: Some(v.pre.to_owned()),
        tokens: v.tokens,
        scores: v.scores,
        token_types: v.types,
        merges: v.merges,
        bos: Some(v.bos),
        eos: Some(v.eos),
        add_bos: Some(v.add_bos),
        add_space_prefix: Some(v.add_space_prefix),
        ..GgufVocab::default()
    };
    Arc::new(Tokenizer::from_gguf(vocab).expect("the test kit's vocabulary is sound"))
}

/// The tokens of a text, one a byte, so that a character's bytes are apart.
pub(crate) fn bytes_of(tokenizer: &Tokenizer, text: &str) -> Vec<TokenId> {
    let token = |byte: u8| (0..256).find(|id| tokenizer.bytes(*id) == Some(&[byte])).expect("every byte has a token");
    text.bytes().map(token).collect()
}

pub(crate) const LAYERS: usize = 4;

/// A model that says a script, whatever the prompt: the token after position `p` is `script[p]`, and the script's end repeats. With
/// some layers skipped it is wrong at every position whose number leaves 2 when divided by 5, so that rounds accept 0 to 4 drafts
/// and reject others.
pub(crate) struct Scripted {
    pub(crate) script: Vec<TokenId>,
    pub(crate) vocab: usize,
    pub(crate) context: usize,
    pub(crate) pages: usize,
    pub(crate) lens: HashMap<SeqId, (usize, usize)>, // (committed, written)
    pub(crate) next: u32,
}

pub(crate) const PAGE: usize = 16;

impl Scripted {
    pub(crate) fn new(script: Vec<TokenId>, vocab: usize) -> Self {
        Scripted { script, vocab, context: 512, pages: 256, lens: HashMap::new(), next: 0 }
    }

    fn used(&self) -> usize {
        self.lens.values().map(|(_, written)| written.div_ceil(PAGE)).sum()
    }
}

impl Backend for Scripted {
    fn n_layers(&self) -> usize {
        LAYERS
    }
    fn vocab(&self) -> usize {
        self.vocab
    }
    fn context(&self) -> usize {
        self.context
    }
    fn page_positions(&self) -> usize {
        PAGE
    }
    fn free_pages(&self) -> usize {
        self.pages - self.used()
    }
    fn total_pages(&self) -> usize {
        self.pages
    }
    fn create(&mut self) -> SeqId {
        self.next += 1;
        self.lens.insert(SeqId(self.next), (0, 0));
        SeqId(self.next)
    }
    fn fork(&mut self, seq: SeqId, _len: usize) -> Result<SeqId, BackendError> {
        Err(BackendError::UnknownSequence(seq))
    }
    fn free(&mut self, seq: SeqId) {
        self.lens.remove(&seq);
    }
    fn kv_len(&self, seq: SeqId) -> Result<usize, BackendError> {
        self.lens.get(&seq).map(|l| l.0).ok_or(BackendError::UnknownSequence(seq))
    }
    fn set_len(&mut self, seq: SeqId, len: usize) -> Result<(), BackendError> {
        let lens = self.lens.get_mut(&seq).ok_or(BackendError::UnknownSequence(seq))?;
        if len > lens.1 {
            return Err(BackendError::BadRow { seq, pos: len, why: "not computed" });
        }
        *lens = (len, len);
        Ok(())
    }
    fn step(&mut self, rows: &[Row], out: &mut StepOutput) -> Result<(), BackendError> {
        out.clear();
        for row in rows {
            let pos = row.pos;
            if !self.lens.contains_key(&row.seq) {
                return Err(BackendError::UnknownSequence(row.seq));
            }
            if pos >= self.context {
                return Err(BackendError::BeyondContext { pos, context: self.context });
            }
            let lens = self.lens.get_mut(&row.seq).expect("checked above");
            if pos > lens.1 || pos < lens.0 {
                return Err(BackendError::BadRow { seq: row.seq, pos, why: "a gap, or committed" });
            }
            lens.1 = lens.1.max(pos + 1);
            if row.readout != Readout::Nothing {
                let mut logits = vec![0.0; self.vocab];
                let said = self.script[pos.min(self.script.len() - 1)];
                let wrong = !row.plan.is_full() && pos % 5 == 2;
                logits[(said as usize + usize::from(wrong)) % self.vocab] = 9.0;
                out.push(&logits);
            }
            out.layer_rows += row.plan.cost_layers() as u64;
        }
        match self.used() > self.pages {
            true => Err(BackendError::KvFull { wanted: self.used() - self.pages, free: 0 }),
            false => Ok(()),
        }
    }
}

/// What a [`Faulty`] backend does wrong, and what it has seen; shared with the test.
#[derive(Default)]
pub(crate) struct Faults {
    /// Panic in the step that is this many from now; 0 never.
    pub(crate) panic_in: AtomicUsize,
    /// The cache is full in the step that is this many from now; 0 never.
    pub(crate) full_in: AtomicUsize,
    /// Lose a page with the panic: a sequence stays for ever.
    pub(crate) lose_a_page: AtomicBool,
    /// The step of this number, from 1, sets `hold`; 0 none.
    pub(crate) hold_at: AtomicUsize,
    /// Tokens of the rows at position 0, in the order of the steps.
    pub(crate) first_tokens: Mutex<Vec<TokenId>>,
    /// Steps wait while this is set.
    pub(crate) hold: AtomicBool,
    pub(crate) steps: AtomicUsize,
    /// Most rows of one step.
    pub(crate) most_rows: AtomicUsize,
    /// Most sequences in one step.
    pub(crate) most_seqs: AtomicUsize,
    pub(crate) dropped: AtomicBool,
}

/// A prompt that holds this token makes its sequence's logits NaN.
pub(crate) const NAN: TokenId = 7;
/// A prompt that holds this token is refused by the backend.
pub(crate) const BAD: TokenId = 8;

/// A backend that fails on purpose.
pub(crate) struct Faulty<B> {
    pub(crate) inner: B,
    pub(crate) faults: Arc<Faults>,
    nan: HashSet<SeqId>,
}

impl<B> Faulty<B> {
    pub(crate) fn new(inner: B, faults: &Arc<Faults>) -> Self {
        Faulty { inner, faults: faults.clone(), nan: HashSet::new() }
    }
}

impl<B> Drop for Faulty<B> {
    fn drop(&mut self) {
        self.faults.dropped.store(true, Ordering::SeqCst);
    }
}

impl<B: Backend> Backend for Faulty<B> {
    fn n_layers(&self) -> usize {
        self.inner.n_layers()
    }
    fn vocab(&self) -> usize {
        self.inner.vocab()
    }
    fn context(&self) -> usize {
        self.inner.context()
    }
    fn page_positions(&self) -> usize {
        self.inner.page_positions()
    }
    fn free_pages(&self) -> usize {
        self.inner.free_pages()
    }
    fn total_pages(&self) -> usize {
        self.inner.total_pages()
    }
    fn create(&mut self) -> SeqId {
        self.inner.create()
    }
    fn fork(&mut self, seq: SeqId, len: usize) -> Result<SeqId, BackendError> {
        self.inner.fork(seq, len)
    }
    fn free(&mut self, seq: SeqId) {
        self.nan.remove(&seq);
        if !self.faults.lose_a_page.swap(false, Ordering::SeqCst) {
            self.inner.free(seq);
        }
    }
    fn kv_len(&self, seq: SeqId) -> Result<usize, BackendError> {
        self.inner.kv_len(seq)
    }
    fn set_len(&mut self, seq: SeqId, len: usize) -> Result<(), BackendError> {
        self.inner.set_len(seq, len)
    }
    fn step(&mut self, rows: &[Row], out: &mut StepOutput) -> Result<(), BackendError> {
        if self.faults.steps.fetch_add(1, Ordering::SeqCst) + 1 == self.faults.hold_at.load(Ordering::SeqCst) {
            self.faults.hold.store(true, Ordering::SeqCst);
        }
        while self.faults.hold.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let first = rows.iter().filter(|r| r.pos == 0).map(|r| r.token);
        self.faults.first_tokens.lock().expect("no test panics with it").extend(first);
        self.faults.most_rows.fetch_max(rows.len(), Ordering::SeqCst);
        let seqs: HashSet<SeqId> = rows.iter().map(|r| r.seq).collect();
        self.faults.most_seqs.fetch_max(seqs.len(), Ordering::SeqCst);
        match self.faults.panic_in.load(Ordering::SeqCst) {
            0 => {}
            1 => {
                self.faults.panic_in.store(0, Ordering::SeqCst);
                panic!("a worker fell over");
            }
            n => self.faults.panic_in.store(n - 1, Ordering::SeqCst),
        }
        let bad = rows.iter().find(|r| r.token == BAD);
        let full = self.faults.full_in.load(Ordering::SeqCst);
        self.faults.full_in.store(full.saturating_sub(1), Ordering::SeqCst);
        if bad.is_some() || full == 1 {
            // What was drafted is forgotten, as the CPU's backend does.
            for seq in seqs {
                let len = self.inner.kv_len(seq)?;
                self.inner.set_len(seq, len)?;
            }
            let full = BackendError::KvFull { wanted: 1, free: 0 };
            let why = "refused on purpose";
            return Err(bad.map_or(full, |row| BackendError::BadRow { seq: row.seq, pos: row.pos, why }));
        }
        self.nan.extend(rows.iter().filter(|r| r.token == NAN).map(|r| r.seq));
        let mut sound = StepOutput::default();
        self.inner.step(rows, &mut sound)?;
        out.clear();
        out.layer_rows = sound.layer_rows;
        for (i, row) in rows.iter().filter(|r| r.readout != Readout::Nothing).enumerate() {
            let mut logits = sound.logits(i).to_vec();
            // Only prompts hold the tokens that mean a fault.
            logits[NAN as usize] = -1e9;
            logits[BAD as usize] = -1e9;
            if self.nan.contains(&row.seq) {
                logits[3] = f32::NAN;
            }
            out.push(&logits);
        }
        Ok(())
    }
}

pub(crate) fn engine(backend: impl Backend + 'static, tokenizer: Option<Arc<Tokenizer>>) -> Engine {
    engine_with(backend, tokenizer, &EngineOptions::default())
}

pub(crate) fn engine_with(
    backend: impl Backend + 'static,
    tokenizer: Option<Arc<Tokenizer>>,
    options: &EngineOptions,
) -> Engine {
    Engine::with_backend(Box::new(backend), tokenizer, None, options).expect("a thread can be started")
}

/// A greedy request for `max_tokens` tokens, without speculation.
pub(crate) fn request(prompt: &[TokenId], max_tokens: usize) -> Request {
    let mut request = Request::new(Prompt::Tokens(prompt.to_vec()));
    request.max_tokens = Some(max_tokens);
    request.speculation = SpeculationParams::off();
    request
}

/// Layer skip after `exit` layers of [`LAYERS`] or more, `k` drafts a round, never turned off.
pub(crate) fn layer_skip(n_layers: usize, exit: usize, k: usize) -> SpeculationParams {
    SpeculationParams {
        drafter: DrafterChoice::LayerSkip(LayerPlan::exit(n_layers, exit).expect("a plan")),
        draft_len: DraftLen::Fixed(k),
        always: true,
        ..SpeculationParams::default()
    }
}

pub(crate) fn prompt_lookup(k: usize) -> SpeculationParams {
    SpeculationParams {
        drafter: DrafterChoice::PromptLookup,
        draft_len: DraftLen::Fixed(k),
        always: true,
        ..SpeculationParams::default()
    }
}

/// Everything a request gave.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) tokens: Vec<TokenEvent>,
    pub(crate) summary: Summary,
}

impl Answer {
    /// The parts that must not depend on speculation, batch or chunks, and agree with each other.
    pub(crate) fn said(&self) -> (Vec<TokenId>, String, selfspec_engine::FinishReason, usize) {
        let ids: Vec<TokenId> = self.tokens.iter().map(|t| t.id).collect();
        let text: String = self.tokens.iter().map(|t| t.text.as_str()).collect();
        assert_eq!(ids, self.summary.token_ids, "events and summary agree");
        assert_eq!(text, self.summary.text, "events and summary agree");
        assert_eq!(ids.len(), self.summary.completion_tokens, "usage is what was delivered");
        let came = self.tokens.last().map(|t| t.progress);
        assert!(came.is_none_or(|p| p == self.summary.progress()), "events and summary agree: {came:?}");
        (ids, text, self.summary.finish_reason, self.summary.prompt_tokens)
    }
}

/// Reads a generation to its end.
pub(crate) fn collect(generation: Generation) -> Result<Answer, selfspec_engine::EngineError> {
    let mut tokens = Vec::new();
    for event in generation {
        match event {
            Event::Prompt { .. } => assert!(tokens.is_empty(), "the prompt comes first"),
            Event::Token(token) => tokens.push(token),
            Event::Done(summary) => return Ok(Answer { tokens, summary: *summary }),
            Event::Failed(error) => return Err(error),
        }
    }
    panic!("a stream ends with Done or Failed")
}

/// Submits and reads to the end.
pub(crate) fn answer(engine: &Engine, request: Request) -> Answer {
    collect(engine.submit(request).expect("accepted")).expect("answered")
}
