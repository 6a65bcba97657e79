//! Texts held to grammars, and outputs that requests predict: the same with every speculation.

use crate::common::*;
use selfspec_engine::{Engine, EngineError, EngineOptions, FinishReason, Prompt, Request};
use selfspec_speculate::{DrafterChoice, DrafterKind, SamplingParams, SpeculationParams};
use selfspec_testkit::{Family, TinyModel};
use selfspec_text::GrammarSource;
use serde_json::{Value, json};

fn tiny() -> Engine {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("tiny.gguf");
    TinyModel::new(Family::Llama).gguf().write(&path);
    let options = EngineOptions { threads: Some(1), prefix_cache: true, ..EngineOptions::default() };
    Engine::open(&path, &options).expect("opens")
}

fn schema() -> GrammarSource {
    GrammarSource::JsonSchema(json!({
        "type": "object",
        "properties": {
            "temperature": { "type": "integer", "minimum": 0, "maximum": 99 },
            "unit": { "enum": ["celsius", "fahrenheit"] },
            "note": { "type": "string", "maxLength": 12 },
        },
        "required": ["temperature", "unit", "note"],
        "additionalProperties": false,
    }))
}

fn request(prompt: &str, sampling: SamplingParams, speculation: SpeculationParams) -> Request {
    Request { max_tokens: Some(200), sampling, speculation, ..Request::new(Prompt::Text(prompt.to_owned())) }
}

fn speculations(layers: usize) -> Vec<SpeculationParams> {
    let always = SpeculationParams { always: true, ..SpeculationParams::default() };
    vec![
        SpeculationParams::default(),
        always.clone(),
        SpeculationParams { drafter: DrafterChoice::PromptLookup, ..always },
        layer_skip(layers, 1, 1),
        layer_skip(layers, 1, 4),
        prompt_lookup(7),
    ]
}

#[test]
fn a_schema_holds_with_every_speculation_and_in_any_batch() {
    let engine = tiny();
    let grammar = engine.grammar(&schema()).expect("compiles");
    let samplings = [
        SamplingParams::default(),
        SamplingParams { temperature: 1.0, seed: Some(5), ..SamplingParams::default() },
        SamplingParams {
            temperature: 1.2,
            top_p: 0.9,
            seed: Some(6),
            presence_penalty: 0.4,
            ..SamplingParams::default()
        },
    ];
    let (mut forced, mut others) = (0, 0);
    for sampling in samplings {
        let ask = |speculation| Request {
            grammar: Some(grammar.clone()),
            ..request("the weather", sampling.clone(), speculation)
        };
        let plain = answer(&engine, ask(SpeculationParams::off()));
        assert_eq!((plain.summary.finish_reason, plain.summary.stats.drafted), (FinishReason::Stop, 0));
        let value: Value = serde_json::from_str(&plain.summary.text).expect(&plain.summary.text);
        assert!(["celsius", "fahrenheit"].contains(&value["unit"].as_str().expect("a string")));
        // All at once: what one request takes of the grammar is no other's.
        let generations: Vec<_> = speculations(engine.n_layers())
            .into_iter()
            .map(|speculation| engine.submit(ask(speculation)).expect("accepted"))
            .collect();
        for generation in generations {
            let got = collect(generation).expect("answered");
            assert_eq!(got.said(), plain.said());
            forced += got.summary.stats.drafter(DrafterKind::Grammar).accepted;
            let kinds = [DrafterKind::LayerSkip, DrafterKind::PromptLookup];
            others += kinds.map(|kind| got.summary.stats.drafter(kind).accepted).iter().sum::<u64>();
        }
    }
    assert!(forced > 30 && others > 0, "{forced} {others}");
}

/// Without a seed the text is another each time, and valid each time.
#[test]
fn a_schema_holds_without_a_seed() {
    let engine = tiny();
    let grammar = engine.grammar(&schema()).expect("compiles");
    let sampling = SamplingParams { temperature: 1.0, ..SamplingParams::default() };
    for speculation in speculations(engine.n_layers()) {
        let request =
            Request { grammar: Some(grammar.clone()), ..request("the weather", sampling.clone(), speculation) };
        let got = answer(&engine, request);
        let value: Value = serde_json::from_str(&got.summary.text).expect(&got.summary.text);
        assert!(value["note"].as_str().expect("a string").chars().count() <= 12);
    }
}

#[test]
fn a_grammar_survives_preemption() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("tiny.gguf");
    TinyModel::new(Family::Llama).gguf().write(&path);
    let roomy = tiny();
    let small = EngineOptions { threads: Some(1), kv_bytes: Some(320 * 640), ..EngineOptions::default() };
    let tight = Engine::open(&path, &small).expect("opens");
    let source = GrammarSource::Regex("(one|two|three){120}".to_owned());
    let ask = |engine: &Engine, seed| {
        let sampling = SamplingParams { temperature: 1.0, seed: Some(seed), ..SamplingParams::default() };
        let grammar = Some(engine.grammar(&source).expect("compiles"));
        let request = request("numbers: ", sampling, SpeculationParams::default());
        Request { grammar, max_tokens: Some(400), ..request }
    };
    let expected: Vec<_> = (0..8).map(|seed| answer(&roomy, ask(&roomy, seed)).said()).collect();
    let generations: Vec<_> = (0..8).map(|seed| tight.submit(ask(&tight, seed)).expect("accepted")).collect();
    let got: Vec<_> = generations.into_iter().map(|g| collect(g).expect("answered").said()).collect();
    assert_eq!(got, expected);
    assert!(tight.counters().preemptions > 0, "{:?}", tight.counters());
}

#[test]
fn what_cannot_be_held_to_a_grammar_is_refused() {
    let engine = tiny();
    let grammar = engine.grammar(&GrammarSource::JsonObject).expect("compiles");
    let sampling = SamplingParams::default();
    let wrong =
        Request { grammar: Some(grammar), ignore_eos: true, ..request("a", sampling, SpeculationParams::off()) };
    let error = engine.submit(wrong).expect_err("ends where it is complete").to_string();
    assert!(error.starts_with("ignore_eos: "), "{error}");
    let error = engine.grammar(&GrammarSource::Regex("(".to_owned())).expect_err("open").to_string();
    assert!(error.starts_with("grammar: "), "{error}");
    let ids_only = crate::common::engine(scripted(vec![1], 40), None);
    assert!(matches!(ids_only.grammar(&GrammarSource::JsonObject), Err(EngineError::NoTokenizer)));
}

#[test]
fn a_prediction_speeds_up_and_changes_nothing() {
    let engine = tiny();
    let tokenizer = engine.tokenizer().expect("there is one").clone();
    let ask = |prediction: Vec<u32>, speculation| Request {
        prediction,
        ignore_eos: true,
        ..request("once upon a time", SamplingParams::default(), speculation)
    };
    let plain = answer(&engine, ask(Vec::new(), SpeculationParams::off()));
    let mut changed = plain.summary.token_ids.clone();
    changed[60] = (changed[60] + 1) % 256;
    changed.remove(110);
    for (prediction, least) in [(plain.summary.token_ids.clone(), 140), (changed, 100)] {
        for speculation in [SpeculationParams::default(), prompt_lookup(4), layer_skip(engine.n_layers(), 1, 3)] {
            let got = answer(&engine, ask(prediction.clone(), speculation));
            assert_eq!(got.said(), plain.said());
            let predicted = got.summary.stats.drafter(DrafterKind::Prediction);
            assert!(predicted.accepted >= least, "{predicted:?}");
        }
    }
    let nonsense = tokenizer.encode("nothing that it would ever say", false).expect("text");
    let got = answer(&engine, ask(nonsense, SpeculationParams::default()));
    assert_eq!(got.said(), plain.said());
    let off = answer(&engine, ask(plain.summary.token_ids.clone(), SpeculationParams::off()));
    assert_eq!(off.summary.stats.drafted, 0, "off is off");
    let error = engine.submit(ask(vec![9_999_999], SpeculationParams::off())).expect_err("no token").to_string();
    assert!(error.contains("prediction"), "{error}");
}
