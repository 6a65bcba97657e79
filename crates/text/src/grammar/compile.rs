//! The compiler of grammars for one vocabulary.

use std::fmt;
use std::sync::Arc;

use llguidance::toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenizerEnv};
use llguidance::{Matcher, ParserFactory};

use crate::error::TextError;
use crate::grammar::check;
use crate::grammar::source::GrammarSource;
use crate::grammar::state::{Grammar, GrammarState, grammar_error};
use crate::tokenizer::encode::Tokenizer;
use crate::tokenizer::vocab::TokenKind;

/// Most ways to read a text at a time: an ambiguous grammar has more and more of them, and each token then costs more.
const MOST_READINGS: usize = 250;
/// Most states that an automaton may come to have while it runs, of one to two kilobytes each.
const MOST_STATES: usize = 50_000;

/// Compiles grammars for one vocabulary.
pub struct GrammarCompiler {
    factory: ParserFactory,
}

impl fmt::Debug for GrammarCompiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrammarCompiler").finish_non_exhaustive()
    }
}

impl GrammarCompiler {
    /// A compiler for the first `vocab` tokens of `tokenizer`, of which `eos` end a text.
    ///
    /// # Errors
    /// [`TextError::Grammar`] if there is no token that ends a text: what a grammar has no more to say about could not end.
    pub fn new(tokenizer: Arc<Tokenizer>, vocab: usize, eos: &[u32]) -> Result<Self, TextError> {
        let vocab = vocab.min(tokenizer.vocab_size());
        let eos: Vec<u32> = eos.iter().copied().filter(|id| (*id as usize) < vocab).collect();
        let Some(first) = eos.first() else {
            return Err(TextError::Grammar { why: "the model has no token that ends a text".to_owned() });
        };
        let words: Vec<Vec<u8>> = (0..vocab as u32).map(|id| word(&tokenizer, id)).collect();
        let trie = TokTrie::from(&TokRxInfo::new(vocab as u32, *first), &words).with_eos_tokens(&eos);
        let env: TokEnv = Arc::new(Env { tokenizer, trie });
        let caps = InferenceCapabilities { ff_tokens: true, ..InferenceCapabilities::default() };
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&env, caps, &slices).map_err(|error| grammar_error(&error))?;
        factory.quiet();
        let limits = factory.limits_mut();
        limits.max_lexer_states = MOST_STATES;
        limits.max_items_in_row = MOST_READINGS;
        limits.verbose_errors = false;
        Ok(GrammarCompiler { factory })
    }

    /// Compiles a grammar. Work and memory are bounded, but a large grammar may take a second.
    ///
    /// # Errors
    /// [`TextError::Grammar`]: the source is too large, is not what it should be, uses something that is not supported, or allows no text.
    pub fn compile(&self, source: &GrammarSource) -> Result<Grammar, TextError> {
        if let Some(why) = check::refusal(source) {
            return Err(TextError::Grammar { why });
        }
        let parser = self.factory.create_parser(source.for_compiler()).map_err(|error| grammar_error(&error))?;
        let mut state = GrammarState::new(Matcher::new(Ok(parser)), self.eos());
        state.allowed()?; // it may turn out only now that nothing is possible
        Ok(Grammar::new(state))
    }

    fn eos(&self) -> Arc<[u32]> {
        self.factory.tok_env().tok_trie().eos_tokens().into()
    }
}

/// A token as the automaton sees it. Control tokens are named, never spelled; what cannot be part of a text is nothing.
fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let bytes = tokenizer.bytes(id).unwrap_or_default();
    match tokenizer.kind(id) {
        Some(TokenKind::Control) => [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat(),
        Some(TokenKind::Normal | TokenKind::UserDefined | TokenKind::Byte) => {
            // The marker's byte is in no UTF-8 text.
            if bytes.contains(&TokTrie::SPECIAL_TOKEN_MARKER) { Vec::new() } else { bytes.to_vec() }
        }
        Some(TokenKind::Unknown | TokenKind::Unused) | None => Vec::new(),
    }
}

/// The vocabulary as llguidance wants to see it.
struct Env {
    tokenizer: Arc<Tokenizer>,
    trie: TokTrie,
}

impl TokenizerEnv for Env {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        // Where the tokenizer has no token for something, the trie's own way is as good as any: the tokens must only spell the bytes.
        self.trie.tokenize_with_greedy_fallback(bytes, |text| {
            let tokens = self.tokenizer.encode_inside(text).unwrap_or_default();
            let spelled: Vec<u8> = tokens.iter().flat_map(|id| self.trie.token(*id)).copied().collect();
            if spelled == text.as_bytes() { tokens } else { self.trie.greedy_tokenize(text.as_bytes()) }
        })
    }
}
