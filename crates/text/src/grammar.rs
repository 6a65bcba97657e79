//! Grammars that a generated text must keep to: JSON schemas, regular expressions and Lark grammars, over the tokens of a vocabulary.

use std::fmt;
use std::sync::Arc;

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenizerEnv};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};

use crate::error::TextError;
use crate::grammar_check;
use crate::tokenizer::Tokenizer;
use crate::vocab::TokenKind;

/// Most ways to read a text at a time: an ambiguous grammar has more and more of them, and each token then costs more.
const MOST_READINGS: usize = 250;
/// Most states that an automaton may come to have while it runs, of one to two kilobytes each.
const MOST_STATES: usize = 50_000;

/// What a text must be.
#[derive(Debug, Clone, PartialEq)]
pub enum GrammarSource {
    /// A JSON value by this schema, written as [`one_line`] has it.
    JsonSchema(Value),
    /// Any JSON object, written likewise.
    JsonObject,
    /// A text that this regular expression matches from end to end (syntax of the crate `regex`, without look-around).
    Regex(String),
    /// A text by this grammar (llguidance's variant of Lark; the rule `start` is the whole text).
    Lark(String),
}

impl GrammarSource {
    fn compiled(&self) -> TopLevelGrammar {
        let schema = |schema: Value| GrammarWithLexer::from_json_schema(one_line(schema));
        TopLevelGrammar::from_grammar(match self {
            GrammarSource::JsonSchema(source) => schema(source.clone()),
            GrammarSource::JsonObject => schema(json!({ "type": "object" })),
            GrammarSource::Regex(source) => GrammarWithLexer::from_regex(source),
            GrammarSource::Lark(source) => GrammarWithLexer::from_lark(source.clone()),
        })
    }
}

/// The schema, of values on one line, with one space after `,` and `:`, unless it says otherwise (`x-guidance`): with one way to write a value more of
/// the text is forced, and a small model cannot lose itself in white space.
pub fn one_line(mut schema: Value) -> Value {
    if let Value::Object(map) = &mut schema {
        let style = json!({ "item_separator": ", ", "key_separator": ": ", "whitespace_flexible": false });
        map.entry("x-guidance").or_insert(style);
    }
    schema
}

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
        if let Some(why) = grammar_check::refusal(source) {
            return Err(TextError::Grammar { why });
        }
        let parser = self.factory.create_parser(source.compiled()).map_err(|error| grammar_error(&error))?;
        let mut state = GrammarState { matcher: Matcher::new(Ok(parser)), eos: self.eos(), ended: 0 };
        state.allowed()?; // it may turn out only now that nothing is possible
        Ok(Grammar(state))
    }

    fn eos(&self) -> Arc<[u32]> {
        self.factory.tok_env().tok_trie().eos_tokens().into()
    }
}

/// A compiled grammar.
#[derive(Clone)]
pub struct Grammar(GrammarState);

impl Grammar {
    /// The state before the first token.
    pub fn begin(&self) -> GrammarState {
        // What the automaton learns about itself while it runs is the request's own, and goes with it.
        GrammarState { matcher: self.0.matcher.deep_clone(), ..self.0.clone() }
    }
}

impl fmt::Debug for Grammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammar").finish_non_exhaustive()
    }
}

/// A grammar and the tokens that it has taken so far. What it answers depends on these alone.
#[derive(Clone)]
pub struct GrammarState {
    matcher: Matcher,
    eos: Arc<[u32]>,
    ended: usize, // tokens that end a text, taken last
}

impl fmt::Debug for GrammarState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrammarState").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl GrammarState {
    /// The tokens that may come next, never none: token t is bit `t % 32` of word `t / 32`. When the text is complete, the tokens that end it are
    /// among them.
    ///
    /// # Errors
    /// [`TextError::Grammar`]: the grammar is too complex at this place, or leads to where no token goes on.
    pub fn allowed(&mut self) -> Result<Vec<u32>, TextError> {
        let mask = self.matcher.compute_mask_or_eos().map_err(|error| grammar_error(&error))?;
        Ok(mask.as_slice().to_vec())
    }

    /// Takes a token; false, and nothing changes, if it may not come next.
    ///
    /// # Errors
    /// As [`GrammarState::allowed`].
    pub fn push(&mut self, token: u32) -> Result<bool, TextError> {
        let error = |error| grammar_error(&error);
        if self.ended > 0 {
            return Ok(false);
        }
        if self.eos.contains(&token) {
            let ends = self.matcher.is_stopped() || self.matcher.is_accepting().map_err(error)?;
            self.ended += usize::from(ends);
            return Ok(ends);
        }
        Ok(self.matcher.try_consume_tokens(&[token]).map_err(error)? == 1)
    }

    /// Takes the latest `n` tokens back.
    ///
    /// # Errors
    /// As [`GrammarState::allowed`].
    pub fn pop(&mut self, n: usize) -> Result<(), TextError> {
        let ends = n.min(self.ended);
        self.ended -= ends;
        if n > ends { self.matcher.rollback(n - ends).map_err(|error| grammar_error(&error)) } else { Ok(()) }
    }

    /// The tokens that must come next, as far as they are known without a search; perhaps none.
    pub fn forced(&mut self) -> Vec<u32> {
        if self.ended > 0 || self.matcher.is_stopped() { Vec::new() } else { self.matcher.compute_ff_tokens() }
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

/// The library's words, without the state that it appends for its own developers.
fn grammar_error(error: &impl fmt::Display) -> TextError {
    let text = error.to_string();
    let end = ["\n<", "<non-verbose", "<state>", "<backtrace>"].iter().filter_map(|mark| text.find(mark)).min();
    let line = text[..end.unwrap_or(text.len())].trim().replace('\n', " ");
    let short: String = line.chars().take(300).collect();
    TextError::Grammar { why: if short.is_empty() { "it allows no text".to_owned() } else { short } }
}
