//! Tokens are the same wherever they are chosen: from logits on the caller's thread, in the step,
//! or in a whole draft that is one call.

use crate::common::{Choosing, Guard, Output, Runner, always, exit, greedy, prompt, seeded};
use selfspec_speculate::{DraftLen, DrafterChoice, SamplingParams, SequenceParams, SpeculationParams};
use selfspec_testkit::fake_target::FakeOptions;

const N: usize = 8;

fn target() -> FakeOptions {
    let vocab = (0..40).filter(|token| token % 5 != 3).collect();
    FakeOptions { agreement: 0.85, seed: 4, exit_head: Some((2, vocab)), ..FakeOptions::default() }
}

fn samplings() -> Vec<SamplingParams> {
    let unseeded = SamplingParams { seed: None, ..seeded(0) };
    let penalised = SamplingParams {
        presence_penalty: 0.4,
        frequency_penalty: 0.3,
        repetition_penalty: 1.2,
        logit_bias: vec![(3, 1.0), (7, -2.0)],
        ..seeded(5)
    };
    let unseeded_penalised = SamplingParams { seed: None, ..penalised.clone() };
    vec![greedy(), seeded(2), unseeded, penalised, unseeded_penalised]
}

fn run(choosing: Choosing, requests: Vec<SequenceParams>) -> Vec<Output> {
    let mut runner = Runner::new(target());
    runner.choosing = choosing;
    runner.run(requests, 64)
}

fn request(sampling: &SamplingParams, speculation: &SpeculationParams, salt: u32) -> SequenceParams {
    SequenceParams {
        sampling: sampling.clone(),
        speculation: speculation.clone(),
        logprobs: Some(2),
        entropy: 99,
        ..SequenceParams::new(prompt(salt, 20, 40), 120)
    }
}

#[test]
fn one_sequence() {
    let adaptive = |drafter| SpeculationParams { drafter, ..SpeculationParams::default() };
    let mut guard = Guard::default();
    for speculation in [
        SpeculationParams::off(),
        adaptive(DrafterChoice::Auto),
        adaptive(DrafterChoice::ExitHead),
        adaptive(exit(N, 3)),
        always(DrafterChoice::ExitHead, DraftLen::Fixed(5)),
        always(exit(N, 4), DraftLen::Window),
        SpeculationParams { min_confidence: 0.4, ..always(exit(N, 4), DraftLen::Fixed(6)) },
    ] {
        for sampling in samplings() {
            let made = |choosing| run(choosing, vec![request(&sampling, &speculation, 1)]);
            let expected = made(Choosing::FromLogits);
            assert_eq!(made(Choosing::InTheStep), expected, "{speculation:?}, {sampling:?}");
            assert_eq!(made(Choosing::WholeDrafts), expected, "{speculation:?}, {sampling:?}");
            guard.add(&expected[0]);
        }
    }
    guard.check(4, "where tokens are chosen");
}

#[test]
fn an_end_token_ends_a_whole_draft() {
    let speculation = always(exit(N, 6), DraftLen::Fixed(8));
    let free = run(Choosing::FromLogits, vec![request(&greedy(), &speculation, 1)]);
    for eos in &free[0].tokens[..40] {
        let request = SequenceParams { eos: vec![*eos], ..request(&greedy(), &speculation, 1) };
        let expected = run(Choosing::FromLogits, vec![request.clone()]);
        assert_eq!(run(Choosing::WholeDrafts, vec![request]), expected, "end token {eos}");
    }
}

#[test]
fn many_sequences() {
    let requests = || {
        let mut all = Vec::new();
        for (salt, sampling) in (0..).zip(samplings()) {
            for drafter in [DrafterChoice::Off, DrafterChoice::PromptLookup, DrafterChoice::ExitHead, exit(N, 3)] {
                all.push(request(&sampling, &always(drafter, DraftLen::Fixed(4)), salt));
            }
        }
        all
    };
    assert_eq!(run(Choosing::InTheStep, requests()), run(Choosing::FromLogits, requests()));
}
