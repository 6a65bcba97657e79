//! Losses and gradient of a whole model, with layers left out and exits, against the plain
//! computation in f64.

use selfspec_kernels::RopeStyle;
use selfspec_model::LayerTensor;

use super::course::Term;
use super::pass::{Batch, Pass};
use super::reference::{LAYERS, ReferenceModel};
use super::weights::ModelWeights;
use crate::layer::shape::Shape;

fn cases() -> Vec<(&'static str, ReferenceModel)> {
    type Change = fn(&mut Shape);
    let all = |s: &mut Shape| s.biases = vec![LayerTensor::QueryBias, LayerTensor::KeyBias, LayerTensor::ValueBias];
    let changes: [(&str, bool, Change); 5] = [
        ("llama, tied", true, |s| s.rotations.style = RopeStyle::Interleaved),
        ("llama", false, |_| {}),
        ("qwen2", true, all),
        ("qwen3", false, |s| s.qk_norm = true),
        ("a key head for each query head", true, |s| s.kv_heads = 4),
    ];
    changes
        .into_iter()
        .zip(1..)
        .map(|((name, tied, change), seed)| (name, ReferenceModel::new(seed, tied, change)))
        .collect()
}

fn terms() -> Vec<Term> {
    vec![Term { layers: 1, weight: 0.3 }, Term { layers: 2, weight: 0.7 }, Term { layers: LAYERS, weight: 1.0 }]
}

fn batch(whole: &ReferenceModel) -> Batch {
    let mut batch = Batch::default();
    whole.spans.iter().zip(&whole.runs).for_each(|(span, runs)| batch.push(span, runs.clone()));
    batch
}

#[test]
fn the_gradient_of_all_losses_is_that_of_finite_differences() {
    for (name, whole) in cases() {
        let (terms, batch, scale) = (terms(), batch(&whole), 0.05f32);
        let packs = ModelWeights::new(&whole.tensors, &whole.values, 2);
        let mut pass = Pass::default();
        let mut gradient = vec![0.0; whole.values.len()];
        // Twice, the second time in memory that was used for other spans: nothing may be left of
        // them.
        let mut other = Batch::default();
        other.push(&[3, 1, 4, 1, 5], vec![true; LAYERS]);
        pass.losses(&whole.tensors, &packs, &other, &terms[2..], 1.0, &mut gradient.clone());
        let sums = pass.losses(&whole.tensors, &packs, &batch, &terms, scale, &mut gradient);
        let start: Vec<f64> = whole.values.iter().map(|x| f64::from(*x)).collect();
        let expected = whole.sums(&start, &terms);
        for (sum, expected) in sums.iter().zip(&expected) {
            assert!((sum - expected).abs() < 1e-4 * expected, "{name}: {sums:?} for {expected:?}");
        }
        let loss = |values: &[f64]| -> f64 {
            let weighed = whole.sums(values, &terms).into_iter().zip(&terms).map(|(sum, t)| sum * f64::from(t.weight));
            weighed.sum::<f64>() * f64::from(scale)
        };
        for place in &whole.tensors.places {
            let largest = gradient[place.place.clone()].iter().fold(0.0f32, |a, b| a.max(b.abs()));
            assert!(largest > 1e-4, "{name}: {} has a gradient", place.name);
            for at in place.place.clone().step_by(place.place.len().div_ceil(4)) {
                let (mut low, mut high, h) = (start.clone(), start.clone(), 1e-5);
                (low[at], high[at]) = (start[at] - h, start[at] + h);
                let expected = (loss(&high) - loss(&low)) / (2.0 * h);
                let error = (f64::from(gradient[at]) - expected).abs();
                let bound = 1e-5 + 1e-3 * f64::from(largest);
                assert!(error < bound, "{name}: {} at {at}: {} for {expected}", place.name, gradient[at]);
            }
        }
    }
}

#[test]
fn scores_are_those_of_the_losses_and_a_layer_that_never_runs_has_no_gradient() {
    let whole = ReferenceModel::new(9, true, |_| {});
    let packs = ModelWeights::new(&whole.tensors, &whole.values, 1);
    let (mut pass, terms) = (Pass::default(), terms());
    let mut gradient = vec![0.0; whole.values.len()];
    let sums = pass.losses(&whole.tensors, &packs, &batch(&whole), &terms, 1.0, &mut gradient);
    let scores = pass.scores(&packs, &batch(&whole), &[1, 2, LAYERS]);
    assert_eq!(scores.iter().map(|score| score.sum).collect::<Vec<_>>(), sums);
    assert!(scores.iter().all(|score| score.best.len() == 21 && score.best.iter().any(|b| *b != score.best[0])));

    let mut never = Batch::default();
    whole.spans.iter().for_each(|span| never.push(span, vec![true, true, false, true]));
    gradient.fill(0.0);
    pass.losses(&whole.tensors, &packs, &never, &terms, 1.0, &mut gradient);
    let of = |l: usize| gradient[whole.tensors.layers[l].clone()].iter().map(|g| g.abs()).sum::<f32>();
    assert!(of(2) == 0.0 && of(1) > 0.0 && of(3) > 0.0);
}
