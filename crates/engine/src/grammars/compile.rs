//! Grammars of requests: compiled beside the engine's thread, and as the masks that sequences ask for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use selfspec_model::TokenId;
use selfspec_speculate::{TokenConstraint, TokenMask};
use selfspec_text::{Grammar, GrammarCompiler, GrammarSource, GrammarState, TextError, Tokenizer};

use crate::error::EngineError;

/// How long a grammar may take to compile.
const PATIENCE: Duration = Duration::from_secs(2);
/// Grammars that are compiled at a time, those that nobody waits for any more included.
const MOST_AT_A_TIME: usize = 4;
/// A compiler's stack: it calls itself for what is nested, and for chains of rules.
const STACK: usize = 64 << 20;

/// Compiles grammars for a model's vocabulary.
#[derive(Debug, Default)]
pub(crate) struct Grammars {
    compiler: Mutex<Option<Arc<GrammarCompiler>>>, // made when first needed
    running: Arc<AtomicUsize>,
}

/// One of the threads that compile.
struct Running(Arc<AtomicUsize>);

impl Running {
    fn one_more(running: &Arc<AtomicUsize>) -> Option<Self> {
        let more = |n: usize| (n < MOST_AT_A_TIME).then_some(n + 1);
        running.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok().map(|_| Running(running.clone()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Grammars {
    /// Compiles `source` for the first `vocab` tokens of `tokenizer`, of which `eos` end a text.
    pub(crate) fn compile(
        &self,
        tokenizer: &Arc<Tokenizer>,
        vocab: usize,
        eos: &[TokenId],
        source: &GrammarSource,
    ) -> Result<Grammar, EngineError> {
        let compiler = self.compiler(tokenizer, vocab, eos)?;
        let refuse = |why: &str| Err(EngineError::Text(TextError::Grammar { why: why.to_owned() }));
        let Some(running) = Running::one_more(&self.running) else {
            return Err(EngineError::Busy { what: "too many grammars are being compiled" });
        };
        let (answer, receiver) = mpsc::channel();
        let source = source.clone();
        let thread = std::thread::Builder::new().name("selfspec-grammar".to_owned()).stack_size(STACK);
        let thread = thread.spawn(move || {
            let _running = running;
            let _ = answer.send(compiler.compile(&source)); // perhaps nobody waits any more
        });
        thread.map_err(|source| EngineError::Io { path: "a grammar's thread".into(), source })?;
        match receiver.recv_timeout(PATIENCE) {
            Ok(result) => Ok(result?),
            Err(RecvTimeoutError::Timeout) => refuse("it takes more than 2 s to compile"),
            Err(RecvTimeoutError::Disconnected) => refuse("the compiler panicked"),
        }
    }

    fn compiler(
        &self,
        tokenizer: &Arc<Tokenizer>,
        vocab: usize,
        eos: &[TokenId],
    ) -> Result<Arc<GrammarCompiler>, EngineError> {
        let mut compiler = self.compiler.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(compiler) = &*compiler {
            return Ok(compiler.clone());
        }
        let made = Arc::new(GrammarCompiler::new(tokenizer.clone(), vocab, eos)?);
        Ok(compiler.insert(made).clone())
    }
}

/// A grammar's state as the mask of a sequence.
///
/// An automaton learns about itself as it runs, from refused drafts too, and has room for so much. When it is full it is made anew from the tokens that it
/// holds: whether it can go on depends on these, and not on what was drafted.
#[derive(Debug)]
pub(crate) struct GrammarMask {
    grammar: Grammar,
    state: GrammarState,
    held: Vec<TokenId>,
}

impl GrammarMask {
    pub(crate) fn new(grammar: &Grammar) -> Self {
        GrammarMask { grammar: grammar.clone(), state: grammar.begin(), held: Vec::new() }
    }

    /// Does something with the state, and once more with a new one if it fails.
    fn attempt<T>(&mut self, work: impl Fn(&mut GrammarState) -> Result<T, TextError>) -> Result<T, String> {
        if let Ok(done) = work(&mut self.state) {
            return Ok(done);
        }
        self.renew()?;
        work(&mut self.state).map_err(why)
    }

    /// Makes the state anew.
    fn renew(&mut self) -> Result<(), String> {
        self.state = self.grammar.begin();
        self.held.iter().try_for_each(|token| self.state.push(*token).map(|_| ())).map_err(why)
    }
}

/// The grammar's own words: the sequence says where.
fn why(error: TextError) -> String {
    match error {
        TextError::Grammar { why } => why,
        other => other.to_string(),
    }
}

impl TokenConstraint for GrammarMask {
    fn allowed(&mut self) -> Result<TokenMask, String> {
        self.attempt(GrammarState::allowed).map(TokenMask::from_bits)
    }

    fn push(&mut self, token: TokenId) -> Result<bool, String> {
        let taken = self.attempt(|state| state.push(token))?;
        if taken {
            self.held.push(token);
        }
        Ok(taken)
    }

    fn pop(&mut self, n: usize) -> Result<(), String> {
        let left = self.held.len().saturating_sub(n);
        let popped = self.state.pop(n);
        self.held.truncate(left);
        // Made anew it holds what is left.
        if popped.is_err() { self.renew() } else { Ok(()) }
    }

    fn forced(&mut self) -> Vec<TokenId> {
        self.state.forced()
    }
}
