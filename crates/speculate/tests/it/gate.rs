//! The identity gate: output with speculation is that of plain decoding, token for token, with its
//! log-probabilities and its end.

use crate::common::{Guard, Runner, always, exit, greedy, plain, prompt, run_one, seeded, skip};
use selfspec_model::LayerPlan;
use selfspec_speculate::{DraftLen, DrafterChoice, DrafterKind, SamplingParams, SequenceParams, SpeculationParams};
use selfspec_testkit::fake_target::FakeOptions;

const N: usize = 8;

/// The tokens that some drafts are held to.
fn vocab() -> Vec<u32> {
    (0..40).filter(|x| x % 4 != 1).collect()
}

/// One target that never repeats itself, one that soon does, and whose layer skip has a draft
/// vocabulary. Both have an exit head: on three layers, and on none.
fn targets() -> [FakeOptions; 2] {
    [
        FakeOptions { n_layers: N, agreement: 0.75, exit_head: Some((3, vocab())), ..FakeOptions::default() },
        FakeOptions {
            n_layers: N,
            order: 1,
            by_position: false,
            agreement: 0.6,
            spread: 3.0,
            seed: 5,
            draft_vocab: vocab(),
            exit_head: Some((0, (0..40).collect())),
            ..FakeOptions::default()
        },
    ]
}

fn drafters() -> Vec<(&'static str, DrafterChoice)> {
    vec![
        ("exit 1", exit(N, 1)),
        ("exit 4", exit(N, 4)),
        ("exit 7", exit(N, 7)),
        ("middle 2..5", skip(N, 2, 5)),
        ("middle 1..7", skip(N, 1, 7)),
        ("first layers skipped", skip(N, 0, 3)),
        ("exit head", DrafterChoice::ExitHead),
        ("prompt lookup", DrafterChoice::PromptLookup),
        ("auto", DrafterChoice::Auto),
    ]
}

fn samplings() -> [(&'static str, SamplingParams); 3] {
    [
        ("greedy", greedy()),
        ("seeded", seeded(11)),
        ("seeded, untruncated", SamplingParams { temperature: 1.0, seed: Some(4), ..SamplingParams::default() }),
    ]
}

fn penalised(params: SamplingParams) -> SamplingParams {
    SamplingParams { repetition_penalty: 1.2, presence_penalty: 0.8, frequency_penalty: 0.8, ..params }
}

fn request(sampling: &SamplingParams, speculation: SpeculationParams, salt: u32) -> SequenceParams {
    SequenceParams {
        sampling: sampling.clone(),
        speculation,
        logprobs: Some(3),
        ..SequenceParams::new(prompt(salt, 30, 40), 50)
    }
}

fn lengths() -> impl Iterator<Item = DraftLen> {
    (1..=8).map(DraftLen::Fixed).chain([DraftLen::Adaptive, DraftLen::Window, DraftLen::Fixed(16)])
}

#[test]
fn output_is_that_of_plain_decoding() {
    for (name, drafter) in drafters() {
        let mut guard = Guard::default();
        for (salt, options) in (1..).zip(targets()) {
            for (rule, sampling) in samplings() {
                for sampling in [sampling.clone(), penalised(sampling)] {
                    let expected = run_one(&options, plain(&request(&sampling, SpeculationParams::off(), salt)));
                    assert_eq!(expected.tokens.len(), 50);
                    assert_eq!((expected.stats.drafted, expected.stats.rounds), (0, 50));
                    for draft_len in lengths() {
                        for (bonus, min_confidence) in [(true, 0.0), (false, 0.0), (true, 0.25), (false, 0.25)] {
                            let speculation =
                                SpeculationParams { bonus, min_confidence, ..always(drafter.clone(), draft_len) };
                            let got = run_one(&options, request(&sampling, speculation.clone(), salt));
                            assert_eq!(
                                got.result(),
                                expected.result(),
                                "{name}, {rule}, {speculation:?}, {sampling:?}"
                            );
                            guard.add(&got);
                        }
                    }
                }
            }
        }
        guard.check(8, name);
        assert!(guard.0.rounds < 2 * 6 * 11 * 4 * 50, "{name}: rounds were saved");
    }
}

/// What the controller does with its choice must not show either.
#[test]
fn output_is_that_of_plain_decoding_while_speculation_turns_itself_off_and_on() {
    let mut guard = Guard::default();
    for (salt, options) in (1..).zip(targets()) {
        for agreement in [0.0, 0.4, 0.97] {
            let options = FakeOptions { agreement, ..options.clone() };
            for (rule, sampling) in samplings() {
                for (name, drafter) in drafters() {
                    let speculation = SpeculationParams { drafter, ..SpeculationParams::default() };
                    let request = SequenceParams { max_tokens: 120, ..request(&sampling, speculation, salt) };
                    let expected = run_one(&options, plain(&request));
                    let got = run_one(&options, request);
                    assert_eq!(got.result(), expected.result(), "{name}, {rule}, agreement {agreement}");
                    guard.add(&got);
                }
            }
        }
    }
    guard.check(4, "auto");
}

/// Unseeded sampling promises a distribution, not tokens; but its draws are functions of entropy
/// and position, so that it can be repeated.
#[test]
fn unseeded_output_is_a_function_of_its_entropy() {
    let options = &targets()[0];
    let sampling = SamplingParams { temperature: 0.9, top_k: 12, ..SamplingParams::default() };
    let mut guard = Guard::default();
    let with = |entropy| {
        let speculation = always(exit(N, 4), DraftLen::Fixed(5));
        SequenceParams { entropy, ..request(&sampling, speculation, 3) }
    };
    for entropy in 0..20 {
        let got = run_one(options, with(entropy));
        assert_eq!(got, run_one(options, with(entropy)));
        assert_ne!(got.tokens, run_one(options, with(entropy + 1)).tokens);
        guard.add(&got);
    }
    guard.check(5, "rejection sampling");
}

/// Sequences with different drafters, draft lengths and prompts share steps; the prompt comes in
/// chunks of any size.
#[test]
fn company_and_chunks_change_nothing() {
    for options in targets() {
        let mut requests = Vec::new();
        for (i, (_, drafter)) in drafters().into_iter().enumerate() {
            for (j, (_, sampling)) in samplings().into_iter().enumerate() {
                let k = DraftLen::Fixed(1 + (i * 3 + j) % 8);
                let speculation = SpeculationParams { bonus: (i + j) % 2 == 0, ..always(drafter.clone(), k) };
                let sampling = if (i + j) % 3 == 0 { penalised(sampling) } else { sampling };
                let mut request = request(&sampling, speculation, (i * 3 + j) as u32);
                request.prompt.truncate(1 + (i * 5 + j * 11) % 30);
                request.max_tokens = 20 + (i * 7 + j) % 30;
                requests.push(request);
            }
        }
        let expected: Vec<_> = requests.iter().map(|r| run_one(&options, plain(r))).collect();
        for chunk in [1, 3, 7, 64] {
            let mut guard = Guard::default();
            let got = Runner::new(options.clone()).run(requests.clone(), chunk);
            for ((got, expected), request) in got.iter().zip(&expected).zip(&requests) {
                assert_eq!(got.result(), expected.result(), "chunk {chunk}: {request:?}");
                guard.add(got);
            }
            guard.check(6, "a batch");
        }
    }
}

/// CASES: penalties on a repetitive prompt, greedy, k = 2 and 8.
#[test]
fn penalties_on_a_repetitive_prompt_are_those_of_plain_decoding() {
    let options =
        FakeOptions { order: 1, by_position: false, vocab: 12, spread: 1.0, agreement: 0.8, ..FakeOptions::default() };
    let sampling = penalised(greedy());
    for drafter in [exit(N, 4), DrafterChoice::PromptLookup] {
        for k in [2, 8] {
            let mut guard = Guard::default();
            for salt in 0..6 {
                let request = SequenceParams {
                    prompt: [3, 5, 7, 3, 5, 7, 3, 5, 7, salt].to_vec(),
                    ..request(&sampling, always(drafter.clone(), DraftLen::Fixed(k)), 0)
                };
                let expected = run_one(&options, plain(&request));
                let got = run_one(&options, request);
                assert_eq!(got.result(), expected.result(), "k {k}");
                guard.add(&got);
            }
            guard.check(1, "penalties");
        }
    }
}

/// A draft that knows the target's logits but not the history would miss: it must see the penalties
/// of the drafts before it.
#[test]
fn drafts_see_the_history_that_the_target_sees() {
    let options = FakeOptions { agreement: 1.0, vocab: 12, ..targets()[0].clone() };
    for sampling in [penalised(greedy()), penalised(seeded(5))] {
        let mut request = request(&sampling, always(exit(N, 4), DraftLen::Fixed(8)), 0);
        request.prompt.iter_mut().for_each(|t| *t %= 12);
        let stats = run_one(&options, request).stats;
        assert!(stats.acceptance().expect("drafted") > 0.9, "{stats:?}");
    }
}

/// CASES: a banned token that the draft would propose never appears; min-p holds in every row.
#[test]
fn bias_and_min_p_hold_in_every_row() {
    let options = &FakeOptions { draft_vocab: Vec::new(), ..targets()[1].clone() };
    let base = request(&greedy(), always(exit(N, 4), DraftLen::Fixed(6)), 2);
    let banned = run_one(options, base.clone()).tokens[10];
    let mut guard = Guard::default();
    for sampling in [
        SamplingParams { logit_bias: vec![(banned, -100.0)], ..greedy() },
        SamplingParams { logit_bias: vec![(banned, -100.0)], ..seeded(9) },
        SamplingParams { temperature: 1.0, min_p: 0.9, seed: Some(1), ..SamplingParams::default() },
    ] {
        let request = SequenceParams { sampling: sampling.clone(), ..base.clone() };
        let expected = run_one(options, plain(&request));
        let got = run_one(options, request.clone());
        assert_eq!(got.result(), expected.result());
        guard.add(&got);
        if sampling.min_p == 0.0 {
            assert!(!got.tokens.contains(&banned));
            continue;
        }
        // Every token, from whichever row, is at least 0.9 times as probable as the best one.
        let mut before = request.prompt.clone();
        for token in &got.tokens {
            let row = options.logits_after(&before);
            let best = row.iter().copied().fold(f32::MIN, f32::max);
            let ratio = f64::from(row[*token as usize] - best).exp();
            assert!(ratio >= f64::from(sampling.min_p), "token {token} after {} tokens is below min-p", before.len());
            before.push(*token);
        }
    }
    guard.check(4, "bias and min-p");
}

#[test]
fn logprobs_are_those_of_the_raw_logits() {
    let options = &targets()[0];
    let request = request(&penalised(seeded(3)), always(exit(N, 5), DraftLen::Fixed(4)), 1);
    let got = run_one(options, request.clone());
    assert!(got.drafted.iter().any(|d| *d));
    let mut before = request.prompt;
    for (token, logprob) in got.tokens.iter().zip(&got.logprobs) {
        let row = options.logits_after(&before);
        let total: f64 = row.iter().map(|l| f64::from(*l).exp()).sum::<f64>().ln();
        let logprob = logprob.as_ref().expect("asked for");
        assert!((f64::from(logprob.logprob) - (f64::from(row[*token as usize]) - total)).abs() < 1e-5);
        assert!(logprob.logprob < 0.0);
        assert_eq!(logprob.top.len(), 3);
        assert!(logprob.top.windows(2).all(|w| w[0].1 >= w[1].1));
        before.push(*token);
    }
}

/// The rows of a round, counted: k draft rows of the plan, one row through all layers, k rows
/// through the rest.
#[test]
fn a_round_computes_each_layer_once() {
    let options = FakeOptions { agreement: 1.0, ..targets()[0].clone() };
    for (plan, run) in [
        (LayerPlan::exit(N, 3).expect("valid"), 3u64),
        (LayerPlan::skip_middle(N, 3, 6).expect("valid"), 5),
        (LayerPlan::skip_middle(N, 0, 6).expect("valid"), 2),
    ] {
        let prefix = plan.exact_prefix() as u64;
        for bonus in [true, false] {
            let speculation =
                SpeculationParams { bonus, ..always(DrafterChoice::LayerSkip(plan.clone()), DraftLen::Fixed(4)) };
            let mut runner = Runner::new(options.clone());
            let mut live = vec![runner.start(request(&greedy(), speculation, 1))];
            runner.step(&mut live, 64); // the prompt
            let before = runner.target.inner.executor().layer_rows();
            while live[0].sequence.stats().rounds < 2 {
                assert!(runner.step(&mut live, 64));
            }
            let n = N as u64;
            let verify = 4 * (n - prefix) + if bonus { n } else { 0 };
            assert_eq!(runner.target.inner.executor().layer_rows() - before, 4 * run + verify, "{plan}, bonus {bonus}");
        }
    }
}

#[test]
fn every_drafter_is_counted_as_itself() {
    let options = &targets()[1];
    let skip = run_one(options, request(&greedy(), always(exit(N, 4), DraftLen::Fixed(3)), 1)).stats;
    let copy = run_one(options, request(&greedy(), always(DrafterChoice::PromptLookup, DraftLen::Fixed(3)), 1)).stats;
    let head = run_one(options, request(&greedy(), always(DrafterChoice::ExitHead, DraftLen::Fixed(3)), 1)).stats;
    assert_eq!(head.drafter(DrafterKind::ExitHead).drafted, head.drafted);
    assert_eq!(skip.drafter(DrafterKind::LayerSkip).drafted, skip.drafted);
    assert_eq!(copy.drafter(DrafterKind::PromptLookup).drafted, copy.drafted);
    for stats in [skip, copy, head] {
        let [first, second, third, ..] = stats.by_position;
        assert!(first.drafted >= second.drafted && second.drafted >= third.drafted && third.drafted > 0);
        assert_eq!(first.judged, first.drafted, "the first draft is always judged");
        assert_eq!(second.judged, first.accepted.min(second.judged), "the second only after the first was accepted");
        assert_eq!(stats.by_position.iter().map(|p| p.accepted).sum::<u64>(), stats.accepted);
        assert_eq!(stats.by_position.iter().map(|p| p.judged).sum::<u64>(), stats.accepted + stats.rejected);
    }
}
