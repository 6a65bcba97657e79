//! Any schema, regular expression or Lark grammar: refused on one line, or compiled; then every
//! token that it allows can be taken, and taken back.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use selfspec_testkit::Vocab;
use selfspec_text::{GrammarCompiler, GrammarSource, Tokenizer};

static COMPILER: LazyLock<GrammarCompiler> = LazyLock::new(|| {
    let json = Vocab::byte_level().tokenizer_json();
    let tokenizer = Tokenizer::from_hf(json.as_bytes(), None).expect("a sound vocabulary");
    let vocab = tokenizer.vocab_size();
    GrammarCompiler::new(Arc::new(tokenizer), vocab, &[0]).expect("a sound vocabulary")
});

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let source = match first % 3 {
        0 => match serde_json::from_str(text) {
            Ok(schema) => GrammarSource::JsonSchema(schema),
            Err(_) => return,
        },
        1 => GrammarSource::Regex(text.to_owned()),
        _ => GrammarSource::Lark(text.to_owned()),
    };
    let grammar = match COMPILER.compile(&source) {
        Ok(grammar) => grammar,
        Err(error) => {
            let message = error.to_string();
            assert!(!message.is_empty() && !message.contains('\n'), "{message}");
            return;
        }
    };
    let mut state = grammar.begin();
    for step in 0..8 {
        let Ok(allowed) = state.allowed() else { return };
        let bit = |token: u32| allowed.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1);
        let Some(token) = (0..300).map(|i| (i + step * 37) % 300).find(|token| bit(*token)) else { return };
        if !matches!(state.push(token), Ok(true)) {
            return; // an end token, or an automaton that is full
        }
        state.pop(1).expect("what was taken can be taken back");
        assert!(matches!(state.push(token), Ok(true)));
    }
});
