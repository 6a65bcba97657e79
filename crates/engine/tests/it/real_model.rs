//! The published model says the same with and without speculation.

use crate::common::*;
use selfspec_engine::{Engine, EngineOptions, FinishReason, LoadedModel, Prompt, Request};
use selfspec_model::LayerPlan;
use selfspec_speculate::{DraftLen, DrafterChoice, SamplingParams, SpeculationParams};
use selfspec_testkit::real_model::{SMOLLM2, real_model};
use selfspec_text::Message;

#[test]
#[ignore = "needs a published model: see CONTRIBUTING.md"]
fn real_model_says_the_same_with_and_without_speculation_alone_and_in_a_batch() {
    let path = real_model(SMOLLM2);
    let loaded = LoadedModel::open(&path, None).expect("the published model opens");
    let n = loaded.info().n_layers;
    let ask = |i: usize| {
        let text =
            ["What is the capital of France?", "Count from one to twenty.", "Repeat: red, green, blue, red, green"];
        let sampling = match i % 2 {
            0 => SamplingParams::default(),
            _ => SamplingParams { temperature: 0.8, top_p: 0.95, seed: Some(i as u64), ..SamplingParams::default() },
        };
        let chat = Prompt::Chat(vec![Message::new("user", text[i % text.len()])]);
        Request { max_tokens: Some(24), sampling, speculation: SpeculationParams::off(), ..Request::new(chat) }
    };
    let alone = Engine::open_with(&loaded, &EngineOptions::default()).expect("opens");
    let expected: Vec<Answer> = (0..6).map(|i| answer(&alone, ask(i))).collect();
    let france = Request { max_tokens: Some(4), ..Request::new(Prompt::Text("The capital of France is".to_owned())) };
    let france = answer(&alone, france).summary;
    assert_eq!((france.text.contains("Paris"), france.finish_reason), (true, FinishReason::Length), "{}", france.text);
    let middle = LayerPlan::skip_middle(n, n / 2, n / 2 + 2).expect("a plan");
    let speculations = [
        layer_skip(n, n - 3, 4),
        prompt_lookup(6),
        SpeculationParams { drafter: DrafterChoice::LayerSkip(middle), ..layer_skip(n, n - 1, 3) },
        SpeculationParams { draft_len: DraftLen::Adaptive, ..layer_skip(n, n - 6, 1) },
        SpeculationParams::default(),
        layer_skip(n, n / 2, 2),
    ];
    let options = EngineOptions { threads: Some(2), prefill_chunk: 17, ..EngineOptions::default() };
    let engine = Engine::open_with(&loaded, &options).expect("opens");
    let requests = speculations.into_iter().enumerate().map(|(i, speculation)| Request { speculation, ..ask(i) });
    let generations: Vec<_> = requests.map(|r| engine.submit(r).expect("accepted")).collect();
    let (mut accepted, mut rejected) = (0, 0);
    for (generation, expected) in generations.into_iter().zip(&expected) {
        let got = collect(generation).expect("answered");
        assert_eq!(got.said(), expected.said());
        accepted += got.summary.stats.accepted;
        rejected += got.summary.stats.rejected;
    }
    assert!(accepted > 0 && rejected > 0, "{accepted} accepted, {rejected} rejected");
}
