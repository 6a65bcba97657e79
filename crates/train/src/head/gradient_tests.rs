//! The rollout, its loss and its gradient against the plain computation of every round in f64.

use selfspec_kernels::{GateActivation, RopeStyle};
use selfspec_model::LayerTensor;

use crate::head::frozen::Frozen;
use crate::head::loss::LossWeights;
use crate::head::reference::ReferenceHead;
use crate::head::rollout::Rollout;
use crate::layer::layout::Layout;
use crate::layer::shape::Shape;
use crate::layer::weights::Weights;

/// Every way in which heads differ.
fn cases() -> Vec<(&'static str, ReferenceHead)> {
    let all = vec![LayerTensor::QueryBias, LayerTensor::KeyBias, LayerTensor::ValueBias];
    type Change = fn(&mut Shape);
    let changes: [(&str, Change); 8] = [
        ("llama", |_| {}),
        ("llama, interleaved", |s| s.rotations.style = RopeStyle::Interleaved),
        ("attention only", |s| s.ffn_dim = 0),
        ("unfused", |s| s.features = 0),
        ("one feature", |s| s.features = 1),
        ("qwen3", |s| s.qk_norm = true),
        ("a head of its own for each query", |s| s.kv_heads = 4),
        ("gemma", |s| (s.sandwich, s.qk_norm, s.gate) = (true, true, GateActivation::GeluTanh)),
    ];
    let mut cases: Vec<_> =
        changes.into_iter().zip(1..).map(|((name, c), seed)| (name, ReferenceHead::new(seed, c))).collect();
    cases.push(("qwen2", ReferenceHead::new(19, move |s| s.biases = all)));
    cases
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|x| f64::from(*x)).collect()
}

#[test]
fn every_round_of_a_rollout_is_what_it_would_be_alone() {
    for (name, case) in cases() {
        let weights = Weights::new(case.shape.clone(), &case.values);
        let mut rollout = Rollout::default();
        for steps in [4, 1, 3] {
            rollout.forward(&weights, &case.rows, steps);
            let dim = case.shape.dim;
            let mut compared = 0;
            for (step, expected) in case.states(&wide(&case.values), steps).iter().enumerate() {
                if step >= rollout.steps() {
                    continue; // an unfused head, whose steps are all the same
                }
                for (row, expected) in expected.iter().enumerate().filter(|(row, _)| case.rows.counts(*row, step)) {
                    let expected = expected.as_ref().expect("in a round");
                    let mut got = Vec::new();
                    rollout.states(&case.rows, step, &[row], &mut got);
                    assert_eq!(got.len(), dim);
                    let error = got.iter().zip(expected).map(|(g, e)| (f64::from(*g) - e).abs()).fold(0.0, f64::max);
                    assert!(error < 1e-4, "{name}: step {step}, row {row}: off by {error}");
                    compared += 1;
                }
            }
            let all: usize = case.rows.counted(rollout.steps()).iter().sum();
            assert!(compared == all && all > 10, "{name}: {compared} of {all} states compared");
        }
    }
}

#[test]
fn the_gradient_is_that_of_finite_differences() {
    for (name, case) in cases() {
        let steps = 3;
        let frozen = Frozen::new(&case.output_norm, case.shape.eps, &case.head);
        let weights = Weights::new(case.shape.clone(), &case.values);
        for refusal in [0.0f32, 0.4] {
            let mut rollout = Rollout::default();
            rollout.forward(&weights, &case.rows, steps);
            let steps = rollout.steps();
            let weighing = LossWeights { decay: 0.8, refusal, counts: case.rows.counted(steps) };
            let mut gradient = vec![0.0; case.values.len()];
            let sums = rollout.backward(&frozen, &weights, &case.rows, &weighing, &mut gradient);
            let start = wide(&case.values);
            let loss = |values: &[f64]| case.loss(values, steps, f64::from(0.8f32), f64::from(refusal));
            assert!((weighing.total(&sums) - loss(&start)).abs() < 1e-5, "{name}: {}", weighing.total(&sums));
            for slot in Layout::new(&case.shape).slots() {
                let largest = gradient[slot.place.clone()].iter().fold(0.0f32, |a, b| a.max(b.abs()));
                assert!(largest > 1e-4, "{name}: {:?} has a gradient", slot.tensor);
                for at in slot.place.clone().step_by(slot.place.len().div_ceil(5)) {
                    let (mut low, mut high, h) = (start.clone(), start.clone(), 1e-5);
                    (low[at], high[at]) = (start[at] - h, start[at] + h);
                    let expected = (loss(&high) - loss(&low)) / (2.0 * h);
                    let error = (f64::from(gradient[at]) - expected).abs();
                    let bound = 1e-5 + 1e-3 * f64::from(largest);
                    assert!(error < bound, "{name}: {:?} at {at}: {} for {expected}", slot.tensor, gradient[at]);
                }
            }
        }
    }
}
