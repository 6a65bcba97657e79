//! The compiler for a model's vocabulary, built when it is first needed.

use std::sync::{Arc, Mutex, PoisonError};

use selfspec_model::TokenId;
use selfspec_text::{Grammar, GrammarCompiler, GrammarSource, TextError, Tokenizer};

use crate::grammars::service::Compile;

/// Compiles for the first `vocab` tokens of `tokenizer`, of which `eos` end a text.
pub(crate) struct ModelCompiler {
    tokenizer: Arc<Tokenizer>,
    vocab: usize,
    eos: Vec<TokenId>,
    built: Mutex<Option<Arc<GrammarCompiler>>>,
}

impl ModelCompiler {
    pub(crate) fn new(tokenizer: Arc<Tokenizer>, vocab: usize, eos: Vec<TokenId>) -> Self {
        ModelCompiler { tokenizer, vocab, eos, built: Mutex::new(None) }
    }

    fn built(&self) -> Result<Arc<GrammarCompiler>, TextError> {
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(compiler) = &*built {
            return Ok(compiler.clone());
        }
        let compiler = Arc::new(GrammarCompiler::new(self.tokenizer.clone(), self.vocab, &self.eos)?);
        Ok(built.insert(compiler).clone())
    }
}

impl Compile for ModelCompiler {
    fn prepare(&self) -> Result<(), TextError> {
        self.built().map(|_| ())
    }

    fn compile(&self, source: &GrammarSource, go_on: &dyn Fn() -> bool) -> Result<Grammar, TextError> {
        self.built()?.compile_while(source, go_on)
    }
}
