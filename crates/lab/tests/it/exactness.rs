//! Sampling with speculation draws from the target's distribution: chi-square tests of the accept
//! path against exact enumeration.

use selfspec_lab::statistics::{DraftingRule, SamplingTrial, TrialResult, exact_distribution};
use selfspec_model::TokenId;
use selfspec_speculate::SamplingParams;

const VOCAB: usize = 10;
const DRAWS: u64 = 100_000;

/// Logits that depend on the last token: row 0 stands for none.
fn table(salt: u64, spread: f32) -> Vec<Vec<f32>> {
    let mut state = salt;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    (0..=VOCAB).map(|_| (0..VOCAB).map(|_| (next() * 2.0 - 1.0) * spread).collect()).collect()
}

/// The draft: the target's logits, half forgotten.
fn drafts(target: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let noise = table(99, 1.5);
    target.iter().zip(&noise).map(|(t, n)| t.iter().zip(n).map(|(t, n)| 0.6 * t + n).collect()).collect()
}

fn last(tokens: &[TokenId]) -> usize {
    tokens.last().map_or(0, |t| *t as usize + 1)
}

fn run(sampling: &SamplingParams, k: usize, bonus: bool, length: usize, drafting: DraftingRule) -> TrialResult {
    let target = table(5, 2.0);
    run_on(&target, &drafts(&target), sampling, k, bonus, length, drafting, DRAWS)
}

#[expect(clippy::too_many_arguments, reason = "a trial spelt out")]
fn run_on(
    target: &[Vec<f32>],
    draft: &[Vec<f32>],
    sampling: &SamplingParams,
    k: usize,
    bonus: bool,
    length: usize,
    drafting: DraftingRule,
    draws: u64,
) -> TrialResult {
    let trial = SamplingTrial {
        target: &|before| target[last(before)].as_slice(),
        draft: &|before| draft[last(before)].as_slice(),
        draft_vocab: None,
        sampling,
        k,
        bonus,
        length,
        draws,
        entropy: 20_240_501 + k as u64 * 1_000_003,
        drafting,
    };
    trial.run().expect("the trial is valid")
}

fn sampling(on: usize) -> SamplingParams {
    let pick = |bit: usize, off: f32, on_value: f32| if on >> bit & 1 == 1 { on_value } else { off };
    SamplingParams {
        temperature: pick(0, 1.0, 0.7),
        top_k: if on & 2 == 2 { 6 } else { 0 },
        top_p: pick(2, 1.0, 0.85),
        min_p: pick(3, 0.0, 0.08),
        ..SamplingParams::default()
    }
}

#[test]
fn rejection_sampling_has_the_targets_distribution() {
    for on in 0..16 {
        let params = sampling(on);
        for k in 1..=4 {
            // Two tokens jointly, so that a draft after an accepted one and the token after a
            // refused one are tested too.
            let got = run(&params, k, on % 3 != 1, 2, DraftingRule::Sampled);
            assert!(got.test.passes(), "{params:?}, k {k}: {got:?}");
            assert!(got.test.freedom >= 8, "{params:?}, k {k}: too few outcomes to tell: {got:?}");
            assert!(got.accepted > 0 && got.rejected > 0, "{params:?}, k {k}: {got:?}");
            assert!(got.accepted_lengths[..=k].iter().all(|n| *n > 0), "{params:?}, k {k}: {got:?}");
        }
    }
}

/// Tokens outside of the draft's vocabulary have no mass in q, and come as often as they should all
/// the same.
#[test]
fn a_draft_over_some_tokens_leaves_the_distribution_as_it_is() {
    let target = table(5, 2.0);
    let vocab: Vec<TokenId> = (0..VOCAB as TokenId).filter(|x| x % 3 != 1).collect();
    let some = |rows: Vec<Vec<f32>>| -> Vec<Vec<f32>> {
        rows.iter().map(|row| vocab.iter().map(|x| row[*x as usize]).collect()).collect()
    };
    let draft = some(drafts(&target));
    let mut rejected = 0;
    for on in 0..16 {
        for (seed, penalty) in [(None, 1.0), (None, 1.3), (Some(8), 1.0)] {
            let params = SamplingParams { seed, repetition_penalty: penalty, ..sampling(on) };
            let trial = SamplingTrial {
                target: &|before| target[last(before)].as_slice(),
                draft: &|before| draft[last(before)].as_slice(),
                draft_vocab: Some(&vocab),
                sampling: &params,
                k: 1 + on % 4,
                bonus: on % 3 != 1,
                length: 2,
                draws: DRAWS / 2,
                entropy: 77,
                drafting: DraftingRule::Sampled,
            };
            let got = trial.run().expect("valid");
            assert!(got.test.passes() && got.test.freedom >= 8 && got.accepted > 0, "{params:?}: {got:?}");
            rejected += got.rejected;
            let wrong =
                SamplingTrial { drafting: DraftingRule::JudgedAtTemperature(params.temperature * 2.0), ..trial };
            assert!(seed.is_some() || !wrong.run().expect("valid").test.passes(), "{params:?}: the mutant passed");
        }
    }
    assert!(rejected > 0);
}

#[test]
fn a_q_of_another_temperature_fails_the_test() {
    for on in 0..16 {
        let params = sampling(on);
        for k in 1..=4 {
            let wrong = DraftingRule::JudgedAtTemperature(params.temperature * 1.7);
            let target = table(5, 2.0);
            let got = run_on(&target, &drafts(&target), &params, k, true, 2, wrong, DRAWS / 4);
            assert!(!got.test.passes(), "{params:?}, k {k}: the mutant was not found: {got:?}");
        }
    }
}

#[test]
fn an_argmax_draft_is_a_point_mass_and_judged_as_sampled_it_is_biased() {
    let params = sampling(0);
    for k in 1..=4 {
        let right = run(&params, k, true, 2, DraftingRule::Argmax);
        assert!(right.test.passes() && right.accepted > 0 && right.rejected > 0, "k {k}: {right:?}");
        let wrong = run(&params, k, true, 2, DraftingRule::ArgmaxJudgedAsSampled);
        assert!(!wrong.test.passes(), "k {k}: the mutant was not found: {wrong:?}");
    }
}

#[test]
fn a_draft_that_ignores_temperature_costs_acceptance_and_nothing_else() {
    let params = SamplingParams { temperature: 0.5, ..SamplingParams::default() };
    let acceptance = |e: &TrialResult| e.accepted as f64 / (e.accepted + e.rejected) as f64;
    // A draft that knows the target's logits: only the temperature stands between them.
    let target = table(5, 2.0);
    let run = |drafting| run_on(&target, &target, &params, 3, true, 2, drafting, DRAWS);
    let (usual, hot) = (run(DraftingRule::Sampled), run(DraftingRule::AtTemperature(2.0)));
    assert!(usual.test.passes() && hot.test.passes(), "{usual:?} {hot:?}");
    assert_eq!(usual.rejected, 0, "p = q: nothing is ever refused");
    assert!(acceptance(&hot) < 0.7, "{hot:?}");
}

#[test]
fn penalties_and_bias_see_the_accepted_drafts() {
    let params = SamplingParams {
        temperature: 0.9,
        top_p: 0.93,
        repetition_penalty: 1.4,
        presence_penalty: 0.6,
        frequency_penalty: 0.5,
        logit_bias: vec![(3, 1.5), (7, -100.0)],
        ..SamplingParams::default()
    };
    for k in 1..=4 {
        let got = run(&params, k, true, 3, DraftingRule::Sampled);
        assert!(got.test.passes() && got.accepted > 0 && got.rejected > 0, "k {k}: {got:?}");
    }
}

#[test]
fn coupled_sampling_has_the_targets_distribution_over_seeds() {
    for on in [0, 5, 15] {
        let params = SamplingParams { seed: Some(77), ..sampling(on) };
        for k in [1, 4] {
            let got = run(&params, k, true, 2, DraftingRule::Sampled);
            assert!(got.test.passes() && got.accepted > 0 && got.rejected > 0, "{params:?}, k {k}: {got:?}");
        }
    }
}

/// 1 - TV for rejection sampling, at least (1 - TV) / (1 + TV) for coupled sampling.
#[test]
fn acceptance_is_what_the_theory_says() {
    let target = table(5, 2.0);
    let draft = drafts(&target);
    let params = sampling(0);
    let overlap = |row: usize| -> f64 {
        let p = exact_distribution(&params, &target[row], &[]);
        let q = exact_distribution(&params, &draft[row], &[]);
        p.iter().zip(&q).map(|(p, q)| p.min(*q)).sum()
    };
    // One draft after no token: row 0 alone.
    let at = |params: &SamplingParams| {
        let trial = SamplingTrial {
            target: &|_| target[0].as_slice(),
            draft: &|_| draft[0].as_slice(),
            draft_vocab: None,
            sampling: params,
            k: 1,
            bonus: true,
            length: 1,
            draws: DRAWS,
            entropy: 1,
            drafting: DraftingRule::Sampled,
        };
        let got = trial.run().expect("valid");
        got.accepted as f64 / got.drafted as f64
    };
    let (keep, rejection) = (overlap(0), at(&params));
    assert!((rejection - keep).abs() < 0.01, "{rejection}, expected {keep}");
    let coupled = at(&SamplingParams { seed: Some(3), ..params.clone() });
    assert!(coupled >= keep / (2.0 - keep) - 0.01 && coupled <= keep + 0.01, "{coupled} against {keep}");
}

#[test]
fn trials_that_cannot_be_run_say_why() {
    let row = vec![0.0f32; 2000];
    let params = SamplingParams { temperature: 1.0, ..SamplingParams::default() };
    let trial = SamplingTrial {
        target: &|_| row.as_slice(),
        draft: &|_| row.as_slice(),
        draft_vocab: None,
        sampling: &params,
        k: 1,
        bonus: true,
        length: 2,
        draws: 1,
        entropy: 1,
        drafting: DraftingRule::Sampled,
    };
    assert_eq!(
        trial.run().expect_err("4 million outcomes").to_string(),
        "more than 1048576 outcomes of 2 tokens are possible"
    );
    let trial = SamplingTrial { k: 17, ..trial };
    assert_eq!(trial.run().expect_err("17 drafts").to_string(), "k: 17 is not from 1 to 16");
}
