//! What speculation costs where it does not pay, and gains where it does, in the fake target's
//! simulated time (a plain step takes 1).

use crate::common::{Output, Runner, exit, greedy, plain, prompt, run_one, seeded};
use selfspec_model::LayerPlan;
use selfspec_speculate::{
    CostModel, DrafterChoice, DrafterKind, RoundReason, RoundTrace, SamplingParams, SequenceParams, SpeculationParams,
};
use selfspec_testkit::fake_target::FakeOptions;

const N: usize = 30;

/// A target whose output never repeats itself.
fn options(agreement: f64, seed: u64) -> FakeOptions {
    FakeOptions { n_layers: N, agreement, seed, vocab: 200, spread: 4.0, ..FakeOptions::default() }
}

fn request(drafter: DrafterChoice, sampling: SamplingParams, max_tokens: usize) -> SequenceParams {
    let speculation = SpeculationParams { drafter, ..SpeculationParams::default() };
    SequenceParams { sampling, speculation, ..SequenceParams::new(prompt(1, 20, 200), max_tokens) }
}

/// Seconds of decoding with speculation over those without, and the output.
fn slowdown(options: &FakeOptions, request: SequenceParams, costs: CostModel) -> (f64, Output) {
    let mut off = Runner::new(options.clone());
    let expected = off.run(vec![plain(&request)], 64).remove(0);
    let mut on = Runner::new(options.clone());
    on.costs = costs;
    let got = on.run(vec![request], 64).remove(0);
    assert_eq!(got.result(), expected.result());
    (on.seconds / off.seconds, got)
}

/// CASES: a draft that is always wrong. Untrained early exits agree in 8% to 35% of the places.
#[test]
fn drafts_that_do_not_pay_cost_at_most_three_per_cent() {
    for agreement in [0.0, 0.08, 0.2, 0.35] {
        for drafter in [DrafterChoice::Auto, exit(N, 15), exit(N, 24)] {
            for sampling in [greedy(), seeded(1), SamplingParams { temperature: 1.0, ..SamplingParams::default() }] {
                for max_tokens in [64, 128, 400] {
                    let mut ratios = Vec::new();
                    for seed in 0..8 {
                        let request = request(drafter.clone(), sampling.clone(), max_tokens);
                        if sampling.seed.is_none() && sampling.temperature > 0.0 {
                            // Unseeded output differs from plain output, so that only the time is
                            // compared.
                            let mut runner = Runner::new(options(agreement, seed));
                            runner.run(vec![request], 64);
                            ratios.push(runner.seconds / (max_tokens - 1) as f64);
                            continue;
                        }
                        let (ratio, got) = slowdown(&options(agreement, seed), request, CostModel::new());
                        ratios.push(ratio);
                        assert!(got.stats.drafter(DrafterKind::LayerSkip).drafted > 0, "it was tried");
                        if max_tokens == 400 {
                            let reason = got.stats.off_reason().expect("it is off");
                            assert!(reason.contains("speed-up") || reason.contains("has cost"), "{reason}");
                        }
                    }
                    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
                    let worst = ratios.iter().copied().fold(0.0, f64::max);
                    let what =
                        format!("{drafter:?}, {max_tokens} tokens, agreement {agreement}: {mean:.4}, worst {worst:.4}");
                    assert!(mean < 1.03 && worst < 1.05, "{what}");
                }
            }
        }
    }
}

/// A drafter that gives up does so within a few rounds, and the sequences after it know.
#[test]
fn a_hopeless_drafter_is_given_up_within_a_few_rounds_and_remembered() {
    let plan = LayerPlan::exit(N, 15).expect("valid");
    let request = request(DrafterChoice::LayerSkip(plan), greedy(), 64);
    let (_, first) = slowdown(&options(0.0, 3), request.clone(), CostModel::new());
    assert!(first.stats.drafted <= 6, "{:?}", first.stats);
    let mut costs = CostModel::new();
    for _ in 0..3 {
        costs.record_sequence(first.stats.path_drafts().as_ref());
    }
    let (ratio, later) = slowdown(&options(0.0, 4), request, costs);
    assert!(later.stats.drafted <= 1 && ratio < 1.005, "{ratio}: {:?}", later.stats);
}

#[test]
fn a_prompt_that_is_never_repeated_costs_nothing_by_lookup() {
    let mut request = request(DrafterChoice::PromptLookup, greedy(), 150);
    request.speculation.ngram_min = 4;
    let (ratio, got) = slowdown(&options(0.0, 7), request, CostModel::new());
    assert_eq!((ratio, got.stats.drafted), (1.0, 0));
    assert_eq!(got.stats.off_reason(), None);
}

#[test]
fn copying_output_gains_by_lookup() {
    // Greedy output of order 1 runs into a loop: text that repeats itself, which lookup copies.
    let options = FakeOptions { order: 1, by_position: false, ..options(0.1, 2) };
    for drafter in [DrafterChoice::PromptLookup, DrafterChoice::Auto] {
        let (ratio, got) = slowdown(&options, request(drafter, greedy(), 200), CostModel::new());
        assert!(ratio < 1.0 / 2.0, "{ratio}: {:?}", got.stats);
        assert!(got.stats.drafter(DrafterKind::PromptLookup).accepted > 100);
    }
}

#[test]
fn a_trained_exit_gains_by_layer_skip() {
    let plan = LayerPlan::exit(N, 8).expect("valid");
    for drafter in [DrafterChoice::LayerSkip(plan.clone()), DrafterChoice::Auto] {
        let mut ratios = Vec::new();
        for seed in 0..6 {
            let mut request = request(drafter.clone(), greedy(), 200);
            request.speculation.auto_plan = Some(plan.clone());
            let (ratio, got) = slowdown(&options(0.93, seed), request, CostModel::new());
            ratios.push(ratio);
            assert_eq!(got.stats.drafter, Some(DrafterKind::LayerSkip));
        }
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        assert!(mean < 1.0 / 1.3, "{ratios:?}");
    }
}

/// Cheap drafts that are nearly always right grow long; dearer or worse ones stay short.
#[test]
fn the_draft_length_follows_what_pays() {
    let mean = |agreement: f64, exit_layer: usize| {
        let request = request(exit(N, exit_layer), greedy(), 300);
        let (_, got) = slowdown(&options(agreement, 1), request, CostModel::new());
        let drafts = got.stats.drafter(DrafterKind::LayerSkip);
        drafts.drafted as f64 / drafts.rounds as f64
    };
    let (good, dear, bad) = (mean(0.99, 3), mean(0.99, 12), mean(0.8, 3));
    assert!(
        good > 4.0 && good > dear && (1.5..5.0).contains(&dear) && (1.5..3.0).contains(&bad),
        "{good} {dear} {bad}"
    );
}

/// A target with an exit head on its first layers, whose text repeats itself after a while if
/// `order` is low.
fn with_head(agreement: f64, order: usize, seed: u64) -> FakeOptions {
    FakeOptions {
        exit_head: Some((2, (0..200).filter(|x| x % 10 != 3).collect())),
        order,
        by_position: order > 1,
        ..options(agreement, seed)
    }
}

/// A target whose exit head reads the embedding: cheap enough to pay in a batch, where others wait
/// while one drafts.
fn with_cheap_head(agreement: f64) -> FakeOptions {
    let with_head = with_head(agreement, 3, 4);
    FakeOptions { exit_head: with_head.exit_head.clone().map(|(_, vocab)| (0, vocab)), ..with_head }
}

/// A request whose rounds are all remembered.
fn traced(drafter: DrafterChoice, sampling: SamplingParams, max_tokens: usize) -> SequenceParams {
    let mut request = request(drafter, sampling, max_tokens);
    request.speculation.trace = 1000;
    request
}

fn trace_of(options: &FakeOptions, request: SequenceParams) -> Vec<RoundTrace> {
    let mut runner = Runner::new(options.clone());
    let mut live = vec![runner.start(request)];
    while runner.step(&mut live, 64) {}
    live[0].sequence.trace().copied().collect()
}

#[test]
fn an_exit_head_gains_where_it_is_right_and_is_off_where_it_is_not() {
    for (agreement, most) in [(0.9, 1.0 / 1.4), (0.02, 1.03)] {
        for sampling in [greedy(), seeded(3)] {
            let ratios: Vec<f64> = (0..6)
                .map(|seed| {
                    let request = request(DrafterChoice::Auto, sampling.clone(), 200);
                    slowdown(&with_head(agreement, 3, seed), request, CostModel::new()).0
                })
                .collect();
            let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
            assert!(mean < most, "agreement {agreement}: {ratios:?}");
        }
    }
}

/// Where the text repeats itself tokens are copied, elsewhere the head drafts; each round says why.
#[test]
fn drafters_combine_and_every_round_has_its_reason() {
    let trace = trace_of(&with_head(0.85, 1, 2), traced(DrafterChoice::Auto, greedy(), 300));
    let rounds = |kind| trace.iter().filter(|r| r.drafter == Some(kind)).count();
    assert!(rounds(DrafterKind::ExitHead) > 2 && rounds(DrafterKind::PromptLookup) > 10, "{trace:?}");
    assert_eq!(trace[0].reason, RoundReason::Prompt);
    assert!(trace.iter().any(|r| matches!(r.reason, RoundReason::Pays { speedup } if speedup > 1.02)));
    assert!(
        trace.iter().any(|r| r.reason == RoundReason::TimesPlainStep),
        "a plain step is timed before costs are compared"
    );
    for round in &trace {
        let drafts = matches!(round.reason, RoundReason::Pays { .. } | RoundReason::Probe { .. });
        assert_eq!(round.drafter.is_some(), drafts, "{round:?}");
    }
    let always = SpeculationParams { always: true, trace: 1000, ..SpeculationParams::default() };
    let trace = trace_of(
        &with_head(0.85, 3, 2),
        SequenceParams { speculation: always, ..traced(DrafterChoice::Auto, greedy(), 40) },
    );
    assert!(trace[1..].iter().all(|r| matches!(r.reason, RoundReason::Always | RoundReason::LastToken)), "{trace:?}");
    let trace = trace_of(&with_head(0.85, 3, 2), traced(DrafterChoice::Off, greedy(), 5));
    assert!(trace[1..].iter().all(|r| r.reason == RoundReason::Off));
    let trace = trace_of(&with_head(0.0, 3, 2), traced(DrafterChoice::ExitHead, greedy(), 200));
    assert!(
        trace
            .iter()
            .any(|r| matches!(r.reason, RoundReason::Unprofitable { .. } | RoundReason::LossBudgetSpent { .. })),
        "{trace:?}"
    );
}

/// The same acceptance pays alone and not in a batch whose passes are bound by arithmetic: costs
/// decide, not acceptance.
#[test]
fn the_decision_turns_with_the_cost_of_rows() {
    let run = |row_share: f64, drafter: DrafterChoice| {
        let options = FakeOptions { row_share, ..with_cheap_head(0.97) };
        let mut runner = Runner::new(options);
        let requests = (0..6)
            .map(|salt| SequenceParams { prompt: prompt(salt, 20, 200), ..request(drafter.clone(), greedy(), 150) })
            .collect();
        let outputs = runner.run(requests, 64);
        let rounds = outputs.iter().map(|o| o.stats.accepted_lengths.iter().sum::<u64>()).sum::<u64>();
        (rounds, runner.seconds)
    };
    let speed_up = |row_share| run(row_share, DrafterChoice::Off).1 / run(row_share, DrafterChoice::ExitHead).1;
    let (cheap, dear) = (run(0.01, DrafterChoice::ExitHead).0, run(1.0, DrafterChoice::ExitHead).0);
    assert!(dear * 4 < cheap, "{dear} rounds with drafts where rows are dear, {cheap} where they are cheap");
    let (cheap, dear) = (speed_up(0.01), speed_up(1.0));
    assert!(cheap > 1.0 && dear > 0.95, "{cheap} where rows are cheap, {dear} where they are dear");
}

/// In a batch an exit head that does not pay is given up for good, so that no row keeps up its K
/// and V; alone it may be tried again.
#[test]
fn a_head_that_does_not_pay_beside_others_is_given_up() {
    let options = |agreement| FakeOptions { row_share: 0.01, ..with_cheap_head(agreement) };
    let request =
        |salt| SequenceParams { prompt: prompt(salt, 20, 200), ..request(DrafterChoice::Auto, greedy(), 150) };
    let kept = |agreement, batch: u32| {
        let mut runner = Runner::new(options(agreement));
        let mut live: Vec<_> = (0..batch).map(|salt| runner.start(request(salt))).collect();
        while runner.step(&mut live, 64) {}
        for (salt, l) in (0..).zip(&live) {
            assert_eq!(l.output.result(), run_one(&options(agreement), plain(&request(salt))).result());
        }
        live.iter().for_each(|l| runner.costs.record_sequence(l.sequence.stats().path_drafts().as_ref()));
        let mut next = runner.start(request(99));
        next.sequence.disable_hopeless_exit_head(0, &runner.costs);
        (live.iter().filter(|l| l.sequence.wants_auxiliary()).count(), next.sequence.wants_auxiliary())
    };
    let mut fresh = Runner::new(options(0.97));
    let mut settled = |beside| {
        let mut live = fresh.start(request(1));
        live.sequence.disable_hopeless_exit_head(beside, &fresh.costs);
        live.sequence.wants_auxiliary()
    };
    assert!(settled(1) && !settled(7), "beside many others, before anything was measured");
    assert_eq!(kept(0.0, 1), (1, true));
    assert_eq!(kept(0.0, 6), (0, false));
    assert_eq!(kept(0.97, 6), (6, true));
}
