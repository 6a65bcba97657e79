//! Grammars over vocabularies: what they let through, what they refuse, and that only the tokens
//! count.

use std::sync::Arc;

use proptest::prelude::*;
use selfspec_text::{Detokenizer, GgufVocab, Grammar, GrammarCompiler, GrammarSource, GrammarState, Tokenizer};
use serde_json::{Value, json};

use crate::support::{byte_level, sentence_piece};

struct Setup {
    tokenizer: Arc<Tokenizer>,
    compiler: GrammarCompiler,
}

fn setup(vocab: GgufVocab) -> Setup {
    let tokenizer = Arc::new(Tokenizer::from_gguf(vocab).unwrap());
    let eos = tokenizer.eos_ids().to_vec();
    let compiler = GrammarCompiler::new(tokenizer.clone(), usize::MAX, &eos).unwrap();
    Setup { tokenizer, compiler }
}

fn setups() -> [Setup; 2] {
    [setup(byte_level("gpt-2")), setup(sentence_piece())]
}

fn allowed(state: &mut GrammarState) -> Vec<u32> {
    let bits = state.allowed().unwrap();
    (0..bits.len() as u32 * 32).filter(|t| bits[*t as usize / 32] >> (t % 32) & 1 == 1).collect()
}

fn random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

/// The tokens and the text of a walk among what is allowed; `None` if it did not end within `most`
/// tokens.
fn walk(setup: &Setup, grammar: &Grammar, seed: u64, most: usize) -> Option<(Vec<u32>, String)> {
    let mut state = grammar.begin();
    let mut random_state = seed;
    let (mut ids, mut text) = (Vec::new(), String::new());
    let mut detokenizer = Detokenizer::continuing();
    for _ in 0..most {
        let (ends, ordinary): (Vec<u32>, Vec<u32>) =
            allowed(&mut state).into_iter().partition(|t| setup.tokenizer.eos_ids().contains(t));
        if !ends.is_empty() && (ordinary.is_empty() || random(&mut random_state).is_multiple_of(3)) {
            assert!(state.push(ends[0]).unwrap());
            detokenizer.finish(&mut text);
            return Some((ids, text));
        }
        let token = ordinary[random(&mut random_state) % ordinary.len()];
        assert!(state.push(token).unwrap());
        detokenizer.push(&setup.tokenizer, token, &mut text);
        ids.push(token);
    }
    None
}

/// A number may be valid JSON and too large for 64 bits.
fn is_object(text: &str) -> bool {
    match serde_json::from_str::<Value>(text) {
        Ok(value) => value.is_object(),
        Err(error) => error.to_string().contains("number out of range"),
    }
}

#[test]
fn walks_through_a_schema_are_values_of_it() {
    let schema = json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "maxLength": 6 },
            "age": { "type": "integer", "minimum": 3, "maximum": 120 },
            "kind": { "enum": ["a", "bc", "日本"] },
            "list": { "type": "array", "items": { "type": "boolean" }, "minItems": 1, "maxItems": 3 },
        },
        "required": ["name", "age", "kind", "list"],
        "additionalProperties": false,
    });
    for setup in setups() {
        let grammar = setup.compiler.compile(&GrammarSource::JsonSchema(schema.clone())).unwrap();
        let mut ended = 0;
        for seed in 0..60 {
            let Some((_, text)) = walk(&setup, &grammar, seed, 400) else { continue };
            ended += 1;
            let value: Value = serde_json::from_str(&text).expect(&text);
            let keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(keys, ["name", "age", "kind", "list"], "{text}");
            assert!(value["name"].as_str().unwrap().chars().count() <= 6, "{text}");
            assert!((3..=120).contains(&value["age"].as_i64().unwrap()), "{text}");
            assert!(["a", "bc", "日本"].contains(&value["kind"].as_str().unwrap()), "{text}");
            assert!((1..=3).contains(&value["list"].as_array().unwrap().len()), "{text}");
            assert!(!text.contains('\n') && text.starts_with("{\"name\": "), "one way to write it: {text}");
        }
        assert!(ended > 50, "{ended}");
    }
}

#[test]
fn regular_expressions_and_lark_hold_the_whole_text() {
    let [setup, _] = setups();
    let pattern = regex::Regex::new("^(?:(?:ab|c)+-[0-9]{2,3})$").unwrap();
    let sources = [
        GrammarSource::Regex("(ab|c)+-[0-9]{2,3}".to_owned()),
        GrammarSource::Lark("start: word+ \"-\" /[0-9]{2,3}/\nword: \"ab\" | \"c\"\n".to_owned()),
    ];
    for source in sources {
        let grammar = setup.compiler.compile(&source).unwrap();
        for seed in 0..40 {
            let (_, text) = walk(&setup, &grammar, seed, 4000).expect("it ends");
            assert!(pattern.is_match(&text), "{source:?}: {text}");
        }
    }
    let object = setup.compiler.compile(&GrammarSource::JsonObject).unwrap();
    let texts: Vec<String> =
        (0..60).filter_map(|seed| walk(&setup, &object, seed, 300)).map(|(_, text)| text).collect();
    assert!(texts.len() > 10 && texts.iter().all(|text| is_object(text)));
}

/// Any text is any text: control tokens are not spelled, and only those that end it may come.
#[test]
fn control_tokens_are_not_text() {
    for setup in setups() {
        let grammar = setup.compiler.compile(&GrammarSource::Regex("(?s:.*)".to_owned())).unwrap();
        let choices = allowed(&mut grammar.begin());
        assert!(choices.len() > 100);
        for token in choices {
            assert!(!setup.tokenizer.is_control(token) || setup.tokenizer.eos_ids().contains(&token), "{token}");
        }
    }
}

#[test]
fn what_is_forced_is_allowed_and_spells_the_only_way() {
    let schema = json!({
        "type": "object",
        "properties": { "hello world": { "const": 123 } },
        "required": ["hello world"],
        "additionalProperties": false,
    });
    for setup in setups() {
        let grammar = setup.compiler.compile(&GrammarSource::JsonSchema(schema.clone())).unwrap();
        let mut state = grammar.begin();
        let mut text = Vec::new();
        let mut forced_in_all = 0;
        loop {
            let forced = state.forced();
            forced_in_all += forced.len();
            let next = match forced.first() {
                Some(first) => {
                    assert_eq!(allowed(&mut state), [*first], "what is forced is the only token");
                    forced
                }
                None => vec![allowed(&mut state)[0]],
            };
            if setup.tokenizer.eos_ids().contains(&next[0]) {
                break;
            }
            for token in next {
                assert!(state.push(token).unwrap());
                text.extend_from_slice(setup.tokenizer.bytes(token).unwrap());
            }
        }
        assert_eq!(String::from_utf8(text).unwrap(), "{\"hello world\": 123}");
        assert!(forced_in_all >= 8, "{forced_in_all}");
    }
}

#[test]
fn an_end_is_taken_once_and_taken_back() {
    let [setup, _] = setups();
    let grammar = setup.compiler.compile(&GrammarSource::Regex("c|cc".to_owned())).unwrap();
    let mut state = grammar.begin();
    let eos = setup.tokenizer.eos_ids()[0];
    let c = u32::from(b'c');
    assert!(!state.push(eos).unwrap(), "nothing was said yet");
    assert!(state.push(c).unwrap() && state.push(eos).unwrap());
    assert!(!state.push(c).unwrap() && !state.push(eos).unwrap(), "after the end");
    state.pop(1).unwrap();
    assert!(state.push(c).unwrap() && !state.push(c).unwrap());
    assert_eq!(allowed(&mut state)[0], eos);
    assert!(state.push(eos).unwrap());
    state.pop(3).unwrap();
    assert_eq!(allowed(&mut state), allowed(&mut grammar.begin()));
    assert!(!state.push(9_999_999).unwrap_or(false), "no token");
}

#[test]
fn what_cannot_be_used_is_refused_in_a_line() {
    let [setup, _] = setups();
    let deep = (0..500).fold(json!(true), |inner, _| json!({ "items": inner, "type": "array" }));
    let cases = [
        GrammarSource::JsonSchema(json!({ "type": "strnig" })),
        GrammarSource::JsonSchema(json!({ "$ref": "https://example.com/schema" })),
        GrammarSource::JsonSchema(json!({ "$ref": "#/definitions/none" })),
        GrammarSource::JsonSchema(json!({ "type": "string", "pattern": "(" })),
        GrammarSource::JsonSchema(json!({ "items": [{ "extends": { "type": "string" } }] })),
        GrammarSource::JsonSchema(json!({ "properties": { "a": { "anyOf": [{ "disallow": "string" }] } } })),
        GrammarSource::JsonSchema(json!({ "properties": { "a": { "type": "string", "required": true } } })),
        GrammarSource::JsonSchema(json!({ "$defs": { "a": { "divisibleBy": 2 } }, "$ref": "#/$defs/a" })),
        GrammarSource::JsonSchema(json!(false)),
        GrammarSource::JsonSchema(json!(7)),
        GrammarSource::JsonSchema(json!({ "type": "array", "uniqueItems": true, "contains": {} })),
        GrammarSource::JsonSchema(deep),
        GrammarSource::Regex("(".to_owned()),
        GrammarSource::Regex("a(?=b)".to_owned()),
        GrammarSource::Regex("(".repeat(50_000)),
        GrammarSource::Regex("a".repeat(70_000)),
        GrammarSource::JsonSchema(
            json!({ "allOf": ([2, 3, 5, 7, 11, 13, 17].map(|m| json!({ "type": "integer", "multipleOf": m }))) }),
        ),
        GrammarSource::JsonSchema(
            json!({ "allOf": (["a.*", ".*b", ".{3}", "[abc]+"].map(|p| json!({ "type": "string", "pattern": p }))) }),
        ),
        GrammarSource::JsonSchema(json!({ "type": "object", "minProperties": 3 })),
        GrammarSource::Lark("start: \"a\" t\nt[max_tokens=5]: /.*/".to_owned()),
        GrammarSource::Lark("start: t\nt[stop=\"JSON\"]: /.*/".to_owned()),
        GrammarSource::Lark("start: t\nt[capture, temperature=0.5]: /.*/".to_owned()),
        GrammarSource::Lark("start: T\nT: /a.*/ & /.*b/".to_owned()),
        GrammarSource::Lark("start: T\nT: ~/a.*/".to_owned()),
        GrammarSource::Lark("start: \"x\" a\na: %json {\"divisibleBy\": 3}".to_owned()),
        GrammarSource::Lark(String::new()),
        GrammarSource::Lark("start: nothing".to_owned()),
        GrammarSource::Lark("start: start".to_owned()),
        GrammarSource::Lark("word: \"a\"".to_owned()),
    ];
    for source in cases {
        let error = setup.compiler.compile(&source).expect_err(&format!("{source:?}")).to_string();
        assert!(error.starts_with("grammar: ") && !error.contains('\n') && error.len() < 400, "{error}");
    }
    let large = json!({ "type": "integer", "multipleOf": 1_000_003 });
    let error = setup.compiler.compile(&GrammarSource::JsonSchema(large)).expect_err("a large automaton").to_string();
    assert_eq!(error, "grammar: it takes too much work to compile");
    let refused = GrammarCompiler::new(setup.tokenizer.clone(), usize::MAX, &[]);
    assert!(refused.is_err_and(|error| error.to_string().contains("ends a text")));
    assert!(GrammarCompiler::new(setup.tokenizer, 10, &[300]).is_err(), "an end beyond the model's rows is none");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// What was tried and taken back leaves no trace: masks and forced tokens are those of a fresh
    /// state with the same tokens.
    #[test]
    fn only_the_tokens_count(seed in any::<u64>(), detours in prop::collection::vec((0usize..40, 1usize..9, any::<u64>()), 1..12)) {
        let [setup, _] = setups();
        let schema = json!({
            "type": "object",
            "properties": { "hello": { "type": "string" }, "n": { "type": "number" }, "o": { "type": "array", "items": { "enum": ["in", "th"] } } },
            "required": ["hello"],
        });
        let grammar = setup.compiler.compile(&GrammarSource::JsonSchema(schema)).unwrap();
        let (mut state, mut random_state) = (grammar.begin(), seed);
        let mut tokens: Vec<u32> = Vec::new();
        for at in 0..40 {
            for (_, len, detour) in detours.iter().filter(|(when, ..)| *when == at) {
                let mut other = *detour;
                let mut taken = 0;
                for _ in 0..*len {
                    if other % 2 == 0 {
                        state.forced();
                    }
                    let choices = allowed(&mut state);
                    // Now and then what may not come.
                    let token = if other % 5 == 0 { (random(&mut other) % 280) as u32 } else { choices[random(&mut other) % choices.len()] };
                    taken += usize::from(state.push(token).unwrap());
                    if setup.tokenizer.eos_ids().contains(&token) {
                        break;
                    }
                }
                state.pop(taken).unwrap();
            }
            let mut fresh = grammar.begin();
            for token in &tokens {
                prop_assert!(fresh.push(*token).unwrap());
            }
            let choices = allowed(&mut state);
            prop_assert_eq!(&choices, &allowed(&mut fresh));
            prop_assert_eq!(state.forced(), fresh.forced());
            let token = choices[random(&mut random_state) % choices.len()];
            if setup.tokenizer.eos_ids().contains(&token) {
                break;
            }
            prop_assert!(state.push(token).unwrap());
            tokens.push(token);
        }
    }
}

/// Names of properties and values are no keywords.
#[test]
fn what_only_looks_like_an_old_keyword_is_fine() {
    let [setup, _] = setups();
    let schema = json!({
        "type": "object",
        "properties": { "extends": { "const": { "disallow": 1 } }, "required": { "enum": [{ "required": true }] } },
        "required": ["extends", "required"],
        "additionalProperties": false,
        "default": { "divisibleBy": 2 },
    });
    let grammar = setup.compiler.compile(&GrammarSource::JsonSchema(schema)).unwrap();
    let (_, text) = walk(&setup, &grammar, 1, 400).expect("it ends");
    assert_eq!(text, r#"{"extends": {"disallow": 1}, "required": {"required": true}}"#);
}

/// Operators and attributes are looked for in the grammar's own words, not in its strings.
#[test]
fn what_stands_in_a_string_is_no_operator() {
    let [setup, _] = setups();
    let source = "start: \"a & b\" /~{2}/ \" [stop=1] \" number\nnumber: %json {\"const\": \"x & [stop=2]\"}\n";
    let grammar = setup.compiler.compile(&GrammarSource::Lark(source.to_owned())).unwrap();
    let (_, text) = walk(&setup, &grammar, 1, 400).expect("it ends");
    assert_eq!(text, "a & b~~ [stop=1] \"x & [stop=2]\"");
}

/// Fields whose expressions never hold for the same value are compiled, however many there are.
#[test]
fn expressions_of_different_fields_do_not_count_together() {
    let [setup, _] = setups();
    let multiples: serde_json::Map<String, Value> =
        (0..6).map(|i| (format!("n{i}"), json!({ "type": "integer", "multipleOf": 500 + i }))).collect();
    let schema = json!({ "type": "object", "properties": multiples, "allOf": [{ "properties": { "n0": { "maximum": 9000 } } }] });
    assert!(setup.compiler.compile(&GrammarSource::JsonSchema(schema)).is_ok());
}

#[test]
fn a_compilation_that_is_stopped_ends_with_an_error() {
    let [setup, _] = setups();
    let stopped = setup.compiler.compile_while(&GrammarSource::JsonObject, || false);
    assert!(stopped.expect_err("stopped at once").to_string().contains("stopped"));
}
