//! The compiler of grammars for one vocabulary.
//!
//! **Every compilation ends.** llguidance counts fuel while it builds the expressions of a grammar
//! and while it computes masks. It does not count fuel for the first byte of each expression: there
//! it searches for a text that the rest still allows, and an intersection of expressions can keep
//! this search busy for years. So the compiler takes these first steps itself, with fuel, and
//! refuses the grammar when the fuel is spent. [`crate::grammar::check`] bounds the rest: sizes,
//! nesting, and the combinations that one derivative may try.

use std::fmt;
use std::sync::Arc;

use llguidance::api::{GrammarInit, ParserLimits};
use llguidance::earley::lexerspec::LexerSpec;
use llguidance::toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenizerEnv};
use llguidance::{Matcher, ParserFactory};

use crate::error::TextError;
use crate::grammar::source::GrammarSource;
use crate::grammar::state::{Grammar, GrammarState, grammar_error};
use crate::tokenizer::encode::Tokenizer;
use crate::tokenizer::vocab::TokenKind;

/// Most readings of a text at a time. An ambiguous grammar has more and more of them, and each
/// token then costs more.
const MOST_READINGS: usize = 250;
/// Most states of an automaton while it runs, of one to two kilobytes each.
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
    /// [`TextError::Grammar`] if there is no token that ends a text: what a grammar has no more to
    /// say about could not end.
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
    /// [`TextError::Grammar`]: the source is too large, is malformed, uses something that is not
    /// supported, takes too much work, or allows no text.
    pub fn compile(&self, source: &GrammarSource) -> Result<Grammar, TextError> {
        self.compile_while(source, || true)
    }

    /// The same, and gives up soon after `go_on` is false. It is asked between the stages of the
    /// work.
    ///
    /// # Errors
    /// As [`GrammarCompiler::compile`].
    pub fn compile_while(&self, source: &GrammarSource, go_on: impl Fn() -> bool) -> Result<Grammar, TextError> {
        source.check()?;
        let error = |error| grammar_error(&error);
        let limits = self.factory.limits();
        let init = GrammarInit::Serialized(source.for_compiler());
        let env = self.factory.tok_env().clone();
        let (grammar, lexer) = init.to_internal(Some(env), limits.clone()).map_err(error)?;
        let bytes = self.first_steps(lexer.clone(), limits.clone(), &go_on)?;
        if !go_on() {
            return Err(stopped());
        }
        let init = GrammarInit::Internal(grammar, lexer);
        let parser = self.factory.create_parser_from_init_default(init).map_err(error)?;
        let mut state = GrammarState::new(Matcher::new(Ok(parser)), self.eos());
        if !go_on() {
            return Err(stopped());
        }
        state.allowed()?; // it may turn out only now that nothing is possible
        Ok(Grammar::new(state, bytes))
    }

    /// Takes the first step of every expression with fuel, since the parser takes them without.
    /// Returns the bytes of the automaton.
    fn first_steps(
        &self,
        mut lexer: LexerSpec,
        mut limits: ParserLimits,
        go_on: &impl Fn() -> bool,
    ) -> Result<usize, TextError> {
        lexer.add_extra_lexemes(&self.factory.extra_lexemes());
        let mut automaton = lexer.to_regex_vec(&mut limits).map_err(|error| grammar_error(&error))?;
        automaton.set_fuel(limits.initial_lexer_fuel);
        let start = automaton.initial_state(&lexer.all_lexemes());
        for byte in 0..=255 {
            automaton.transition(start, byte);
            if automaton.has_error() {
                return Err(TextError::Grammar { why: "it takes too much work to compile".to_owned() });
            }
            if !go_on() {
                return Err(stopped());
            }
        }
        Ok(automaton.num_bytes())
    }

    fn eos(&self) -> Arc<[u32]> {
        self.factory.tok_env().tok_trie().eos_tokens().into()
    }
}

fn stopped() -> TextError {
    TextError::Grammar { why: "its compilation was stopped".to_owned() }
}

/// A token as the automaton sees it. Control tokens are named, never spelled; what cannot be part
/// of a text is nothing.
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
        // Where the tokenizer has no token, any tokens that spell the bytes will do.
        self.trie.tokenize_with_greedy_fallback(bytes, |text| {
            let tokens = self.tokenizer.encode_inside(text).unwrap_or_default();
            let spelled: Vec<u8> = tokens.iter().flat_map(|id| self.trie.token(*id)).copied().collect();
            if spelled == text.as_bytes() { tokens } else { self.trie.greedy_tokenize(text.as_bytes()) }
        })
    }
}
