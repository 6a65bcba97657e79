//! Commit and roll back: at every offset in a page, for every accepted length, with drafters coming
//! and going.

use std::collections::HashSet;

use crate::common::{Runner, always, exit, plain, prompt, run_one, seeded, skip};
use proptest::prelude::*;
use selfspec_model::{Backend, LayerPlan, Readout};
use selfspec_speculate::{CostModel, DraftLen, DrafterChoice, SequenceParams, SpeculationParams};
use selfspec_testkit::fake_target::FakeOptions;

const N: usize = 6;
const PAGE: usize = 16;

fn options() -> FakeOptions {
    FakeOptions { n_layers: N, page_positions: PAGE, agreement: 0.72, ..FakeOptions::default() }
}

#[test]
fn pages_follow_the_length_at_every_offset_and_accepted_length() {
    let k = 4;
    let mut seen = HashSet::new();
    for len in 1..=2 * PAGE {
        let speculation = SpeculationParams { trace: 1, ..always(exit(N, 2), DraftLen::Fixed(k)) };
        let request = SequenceParams { speculation, ..SequenceParams::new(prompt(len as u32, len, 40), 80) };
        let expected = run_one(&options(), plain(&request));
        let mut runner = Runner::new(options());
        let mut live = vec![runner.start(request)];
        let mut rounds = 0;
        while runner.step(&mut live, 64) {
            let sequence = &live[0].sequence;
            if sequence.stats().rounds == rounds {
                continue;
            }
            rounds = sequence.stats().rounds;
            let kv = runner.target.kv_len(sequence.seq()).expect("live");
            assert_eq!(kv, sequence.tokens().len() - 1);
            let held = runner.target.total_pages() - runner.target.free_pages();
            assert_eq!(held, kv.div_ceil(PAGE), "pages wholly beyond {kv} positions are free");
            if let Some(round) = sequence.trace().next().filter(|r| r.drafted == k) {
                assert_eq!(round.gained, round.accepted + 1);
                seen.insert((round.committed % PAGE, round.accepted));
            }
        }
        assert_eq!(live[0].output.result(), expected.result());
    }
    for offset in 0..PAGE {
        for accepted in 0..=k {
            assert!(seen.contains(&(offset, accepted)), "offset {offset} with {accepted} accepted was never met");
        }
    }
}

fn drafter(index: usize) -> DrafterChoice {
    match index {
        0 => DrafterChoice::Off,
        1 => DrafterChoice::Auto,
        2 => DrafterChoice::PromptLookup,
        3 => skip(N, 0, 2),
        4 => skip(N, 2, 4),
        exit_layer => exit(N, exit_layer - 4),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_mix_of_rounds_gives_the_plain_output(
        seed in 0u64..1000, page in 1usize..20, agreement in 0.0f64..1.0, order in 1usize..4, by_position: bool,
        requests in prop::collection::vec((0usize..10, 1usize..17, any::<bool>(), any::<bool>(), 1usize..40, 1usize..60, 0.0f32..0.4), 1..4),
        chunk in 1usize..30,
    ) {
        let options = FakeOptions { page_positions: page, pages: 2000, agreement, order, by_position, seed, ..options() };
        let requests: Vec<SequenceParams> = requests.into_iter().map(|(d, k, bonus, always, len, max_tokens, min_confidence)| {
            let speculation = SpeculationParams {
                drafter: drafter(d), draft_len: DraftLen::Fixed(k), bonus, always, min_confidence, ..SpeculationParams::default()
            };
            let sampling = if k % 2 == 0 { seeded(seed) } else { crate::common::greedy() };
            SequenceParams { sampling, speculation, ..SequenceParams::new(prompt(k as u32, len, 40), max_tokens) }
        }).collect();
        let expected: Vec<_> = requests.iter().map(|r| run_one(&options, plain(r))).collect();
        let got = Runner::new(options).run(requests, chunk);
        for (got, expected) in got.iter().zip(&expected) {
            prop_assert_eq!(got.result(), expected.result());
        }
    }
}

/// CASES: off, then on again in one sequence: nothing stale. The costs are what turns it off and
/// on.
#[test]
fn speculation_comes_back_when_it_pays_and_finds_nothing_stale() {
    let options = FakeOptions { agreement: 0.95, ..options() };
    let plan = LayerPlan::exit(N, 2).expect("valid");
    let speculation =
        SpeculationParams { drafter: DrafterChoice::LayerSkip(plan.clone()), ..SpeculationParams::default() };
    let request = SequenceParams { speculation, ..SequenceParams::new(prompt(1, 20, 40), 450) };
    let expected = run_one(&options, plain(&request));
    let mut runner = Runner::new(options.clone());
    let mut live = vec![runner.start(request)];
    let mut phases = Vec::new();
    let mut drafted = 0;
    for (until, draft_cost) in [(120, 0.2), (240, 3.0), (450, 0.2)] {
        // A row of the plan, as the cost model would see it measured.
        let mut costs = CostModel::new();
        let row = |plan: &LayerPlan| selfspec_model::Row {
            seq: live[0].sequence.seq(),
            pos: 0,
            token: 0,
            enter: selfspec_model::Enter::Token,
            plan: plan.clone(),
            keep: false,
            readout: Readout::Head,
        };
        for _ in 0..3 {
            costs.record(&[row(&LayerPlan::full(N))], 1.0);
            costs.record(&[row(&plan)], draft_cost);
        }
        while live[0].output.tokens.len() < until {
            runner.costs = costs.clone();
            assert!(runner.step(&mut live, 64));
        }
        let now = live[0].sequence.stats();
        phases.push((now.drafted - drafted, now.off_reason().clone()));
        drafted = now.drafted;
    }
    assert_eq!(live[0].output.result(), expected.result());
    let [(on, None), (off, Some(reason)), (again, None)] = phases.as_slice() else { panic!("{phases:?}") };
    assert!(*on > 60 && *off < 10 && *again > 60, "{phases:?}");
    assert!(reason.starts_with("layer skip off: ") && reason.contains("a draft of layers 0..2 costs 3.00"), "{reason}");
}
