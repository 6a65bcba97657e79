//! A running model: generate, tokenize, and the engine below.

use std::sync::Arc;
use std::time::Instant;

use selfspec_engine::{Engine, EngineError, ModelInfo, Prompt, Request, Tuning};
use selfspec_speculate::SpeculationParams;
use selfspec_text::Tokenizer;

use crate::error::Error;
use crate::options::GenerateOptions;
use crate::speculation::{SpeculationError, SpeculationRequest};
use crate::stream::{Completion, TokenStream};

/// A running model. Clones share it; the last one to go ends its requests and its threads.
///
/// Any number of requests can be under way, from any thread: rows of all of them run in the same
/// steps, and none of them changes what another one gets.
#[derive(Clone)]
pub struct Model {
    engine: Arc<Engine>,
}

impl Model {
    /// A model on an engine that the caller has started. Other ways to get one: [`Model::open`] and
    /// [`Model::builder`].
    pub fn from_engine(engine: Arc<Engine>) -> Model {
        Model { engine }
    }

    /// Continues a prompt, and streams the tokens.
    ///
    /// # Errors
    /// The prompt does not fit the context, or an option cannot be served.
    pub fn generate(&self, prompt: Prompt, options: &GenerateOptions) -> Result<TokenStream, Error> {
        self.submit(self.request(prompt, options)?)
    }

    /// Submits a request as [`Model::request`] makes it, and streams the tokens. A caller with many
    /// prompts and one grammar makes one request and clones it: the grammar is compiled once.
    ///
    /// # Errors
    /// The prompt does not fit the context, or a field cannot be served.
    pub fn submit(&self, request: Request) -> Result<TokenStream, Error> {
        Ok(TokenStream::new(self.engine.submit(request)?))
    }

    /// Continues a plain text, without the chat template and with default options, and waits for
    /// the end.
    ///
    /// # Errors
    /// As [`Model::generate`], and what ended the request.
    pub fn complete(&self, text: impl Into<String>) -> Result<Completion, Error> {
        self.generate(Prompt::Text(text.into()), &GenerateOptions::default())?.finish()
    }

    /// Continues many prompts at once, and waits for the end of all. The results are in the order
    /// of the prompts; one that fails takes no other with it.
    ///
    /// ```no_run
    /// use selfspec::{GenerateOptions, Model, Prompt};
    ///
    /// # fn main() -> Result<(), selfspec::Error> {
    /// let model = Model::open("smollm2-135m")?;
    /// let prompts = ["1, 2, 3,", "a, b, c,"].map(|text| Prompt::Text(text.to_owned()));
    /// for completion in model.generate_all(prompts, &GenerateOptions::default()) {
    ///     println!("{}", completion?.text());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn generate_all(
        &self,
        prompts: impl IntoIterator<Item = Prompt>,
        options: &GenerateOptions,
    ) -> Vec<Result<Completion, Error>> {
        let streams: Vec<_> = prompts.into_iter().map(|prompt| self.generate(prompt, options)).collect();
        streams.into_iter().map(|stream| stream?.finish()).collect()
    }

    /// The engine's request for a prompt and options. The grammar is compiled here. It is a type of
    /// the crate `selfspec-engine`.
    ///
    /// # Errors
    /// The speculation does not fit the model, the grammar cannot be used, or a prediction is given
    /// and the model has no tokenizer.
    pub fn request(&self, prompt: Prompt, options: &GenerateOptions) -> Result<Request, Error> {
        let grammar = options.grammar.as_ref().map(|source| self.engine.grammar(source)).transpose()?;
        let prediction = match &options.prediction {
            Some(text) => self.tokenizer()?.encode(text, false)?,
            None => Vec::new(),
        };
        Ok(Request {
            max_tokens: options.max_tokens,
            sampling: options.sampling.clone(),
            speculation: self.speculation(&options.speculation)?,
            stop: options.stop.clone(),
            stop_tokens: options.stop_tokens.clone(),
            ignore_eos: options.ignore_eos,
            grammar,
            prediction,
            logprobs: options.logprobs,
            deadline: options.timeout.map(|timeout| Instant::now() + timeout),
            ..Request::new(prompt)
        })
    }

    /// How a request drafts that asks for this. All requests are decided here: those of this crate,
    /// of the command line and of the server.
    ///
    /// # Errors
    /// The layers that it names, or those of the tuning, do not fit the model.
    pub fn speculation(&self, request: &SpeculationRequest) -> Result<SpeculationParams, SpeculationError> {
        request.resolve(self.engine.n_layers(), self.tuning())
    }

    /// What `selfspec tune` found for the model on this machine, if it was run and is used.
    pub fn tuning(&self) -> Option<&Tuning> {
        self.engine.loaded().and_then(|loaded| loaded.tuning())
    }

    /// The ids of a prompt's tokens, as a request would use them. Shape: (token).
    ///
    /// # Errors
    /// The model has no tokenizer or chat template for it, or it holds an id that is no token.
    pub fn encode(&self, prompt: &Prompt) -> Result<Vec<u32>, Error> {
        Ok(self.engine.encode(prompt)?)
    }

    /// The text of tokens; control tokens have none. Bytes that are no characters become U+FFFD.
    ///
    /// # Errors
    /// The model has no tokenizer.
    pub fn decode(&self, token_ids: &[u32]) -> Result<String, Error> {
        let tokenizer = self.tokenizer()?;
        let text = token_ids.iter().filter(|id| !tokenizer.is_control(**id));
        let bytes: Vec<u8> = text.filter_map(|id| tokenizer.bytes(*id)).flatten().copied().collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn tokenizer(&self) -> Result<&Tokenizer, Error> {
        Ok(self.engine.tokenizer().ok_or(EngineError::NoTokenizer)?)
    }

    /// What the model is: architecture, layers, vocabulary, bytes.
    pub fn info(&self) -> &ModelInfo {
        self.engine.info()
    }

    /// The engine, for what this crate has no word for: its own requests and events, counters,
    /// exclusive use of the backend. It is a type of the crate `selfspec-engine`.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
}
