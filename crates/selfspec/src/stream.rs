//! What comes back: a stream of tokens, then a completion.

use selfspec_engine::{Canceller, EngineError, Event, FinishReason, Generation, RequestSummary, TokenEvent};
use selfspec_speculate::SpecStats;

use crate::error::Error;

/// A generated token.
#[derive(Debug, Clone, PartialEq)]
pub struct GeneratedToken {
    /// The token's id.
    pub id: u32,
    /// Text that became certain with it: whole characters, nothing that may yet belong to a stop
    /// string. Often empty, sometimes longer than the token.
    pub text: String,
    /// Whether it was drafted and accepted. The token is the same either way.
    pub drafted: bool,
    /// Natural logarithm of its probability, where [`GenerateOptions::logprobs`] asks for it.
    ///
    /// [`GenerateOptions::logprobs`]: crate::GenerateOptions::logprobs
    pub logprob: Option<f32>,
    /// The most probable tokens at its place with their log-probabilities, best first.
    /// Shape: (as many as asked for).
    pub alternatives: Vec<(u32, f32)>,
}

impl From<TokenEvent> for GeneratedToken {
    fn from(token: TokenEvent) -> Self {
        GeneratedToken {
            id: token.id,
            text: token.text,
            drafted: token.source.is_draft(),
            logprob: token.logprob.as_ref().map(|logprob| logprob.logprob),
            alternatives: token.logprob.map(|logprob| logprob.top).unwrap_or_default(),
        }
    }
}

/// A finished generation: text, token ids, speed, and what speculation did.
#[derive(Debug, Clone)]
pub struct Completion {
    summary: RequestSummary,
}

impl Completion {
    /// The text generated, without the stop string that ended it.
    pub fn text(&self) -> &str {
        &self.summary.text
    }

    /// The text generated.
    pub fn into_text(self) -> String {
        self.summary.text
    }

    /// The ids of the tokens generated, an end token included. Shape: (token).
    pub fn token_ids(&self) -> &[u32] {
        &self.summary.token_ids
    }

    /// Why it ended.
    pub fn finish_reason(&self) -> FinishReason {
        self.summary.finish_reason
    }

    /// Tokens of the prompt.
    pub fn prompt_tokens(&self) -> usize {
        self.summary.prompt_tokens
    }

    /// Tokens a second after the first one; 0 if there was only one.
    pub fn tokens_per_second(&self) -> f64 {
        let summary = &self.summary;
        if summary.completion_tokens < 2 || summary.predicted_s <= 0.0 {
            return 0.0;
        }
        (summary.completion_tokens - 1) as f64 / summary.predicted_s
    }

    /// Accepted share of the drafts that the model judged, from 0 to 1; `None` if none was judged.
    pub fn acceptance(&self) -> Option<f64> {
        self.summary.stats.acceptance()
    }

    /// What speculation did: rounds, drafts by drafter and by place, why a drafter is off.
    pub fn stats(&self) -> &SpecStats {
        &self.summary.stats
    }

    /// All that the engine says of the request: times, cached tokens, the trace of its rounds.
    pub fn summary(&self) -> &RequestSummary {
        &self.summary
    }
}

/// Tokens as they are generated: an iterator that blocks until the next one. Dropping it cancels
/// the request.
///
/// ```no_run
/// use selfspec::{GenerateOptions, Model, Prompt};
///
/// # fn main() -> Result<(), selfspec::Error> {
/// let model = Model::open("smollm2-135m")?;
/// let prompt = Prompt::Text("The capital of France is".to_owned());
/// let mut tokens = model.generate(prompt, &GenerateOptions::default())?;
/// for token in &mut tokens {
///     let token = token?;
///     print!("{}", if token.drafted { token.text.to_uppercase() } else { token.text });
/// }
/// let completion = tokens.finish()?;
/// println!("\n{:.1} tokens a second", completion.tokens_per_second());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TokenStream {
    generation: Generation,
    completion: Option<Completion>,
}

impl TokenStream {
    pub(crate) fn new(generation: Generation) -> Self {
        TokenStream { generation, completion: None }
    }

    /// Ends the request at the next step. The stream goes on to its end, and the completion has
    /// what was generated, with the reason `cancelled`.
    pub fn cancel(&self) {
        self.generation.cancel();
    }

    /// A handle that cancels the request while another thread waits for its tokens, for example
    /// from a signal handler.
    pub fn canceller(&self) -> Canceller {
        self.generation.canceller()
    }

    /// The completion, once the stream has ended without an error.
    pub fn completion(&self) -> Option<&Completion> {
        self.completion.as_ref()
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// What ended the request.
    pub fn finish(mut self) -> Result<Completion, Error> {
        for token in self.by_ref() {
            token?;
        }
        self.completion.ok_or_else(|| EngineError::Stopped.into())
    }
}

impl Iterator for TokenStream {
    type Item = Result<GeneratedToken, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.generation.next()? {
                Event::Prompt { .. } => {}
                Event::Token(token) => return Some(Ok(token.into())),
                Event::Done(summary) => self.completion = Some(Completion { summary: *summary }),
                Event::Failed(error) => return Some(Err(error.into())),
            }
        }
    }
}
