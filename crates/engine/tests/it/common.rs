//! Backends whose output is known, and backends that fail on purpose.

use std::sync::Arc;

use selfspec_engine::{Engine, EngineOptions, Event, Generation, Prompt, Request, RequestSummary, TokenEvent};
use selfspec_model::{Backend, LayerPlan, TokenId};
use selfspec_speculate::{DraftLen, DrafterChoice, SpeculationParams};
use selfspec_testkit::Vocab;
use selfspec_testkit::fake_target::{FakeOptions, FakeTarget, fake_target};
use selfspec_testkit::faulty_backend::Faults;
use selfspec_text::GgufVocab;
use selfspec_text::Tokenizer;

/// The byte-level tokenizer of the test kit: tokens 0..256 are bytes in an order of their own, then
/// merges, then control tokens.
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

/// A model that says a script, whatever the prompt, and whose drafts are wrong at every fifth
/// position: rounds accept 0 to 4 drafts and reject others.
pub(crate) fn scripted(script: Vec<TokenId>, vocab: usize) -> FakeTarget {
    fake_target(FakeOptions::scripted(script, vocab))
}

/// The same with another context, or fewer pages of 16 positions.
pub(crate) fn scripted_with(script: Vec<TokenId>, vocab: usize, context: usize, pages: usize) -> FakeTarget {
    fake_target(FakeOptions { context, pages, ..FakeOptions::scripted(script, vocab) })
}

/// A prompt that holds this token makes its sequence's logits NaN.
pub(crate) const NAN: TokenId = 7;
/// A prompt that holds this token is refused by the backend.
pub(crate) const BAD: TokenId = 8;

/// Faults with both of these tokens.
pub(crate) fn faults() -> Arc<Faults> {
    Arc::new(Faults { nan_token: Some(NAN), refused_token: Some(BAD), ..Faults::default() })
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
    pub(crate) summary: RequestSummary,
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
