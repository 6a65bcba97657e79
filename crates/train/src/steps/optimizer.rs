//! AdamW (Loshchilov and Hutter 2019), with the gradient clipped by its norm.

use std::ops::Range;

use selfspec_model::ExitHeadTensor;

use crate::layer::layout::{Layout, Slot};
use crate::math::wide::{sum_of_squares, wide};

/// Decay of the mean gradient.
const BETA1: f32 = 0.9;
/// Decay of the mean squared gradient.
const BETA2: f32 = 0.95;
const EPSILON: f32 = 1e-8;
/// Weight decay of matrices; norms and biases have none.
const WEIGHT_DECAY: f32 = 0.01;
/// Longest norm of the gradient; a longer gradient is scaled to it.
const LONGEST: f64 = 1.0;

/// The learning rate and weight decay of a slot's values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rates {
    step: f32,  // the learning rate
    decay: f32, // share of the value that it loses
}

impl Rates {
    /// The rates of every slot, at this learning rate. The values of a fuse are `gain` times as
    /// large as those of other matrices, and so are their steps.
    pub(crate) fn of(layout: &Layout, rate: f32, gain: f32) -> Vec<Rates> {
        let of = |slot: &Slot| Rates {
            step: if matches!(slot.tensor, ExitHeadTensor::Fuse | ExitHeadTensor::GuessFuse) {
                rate * gain
            } else {
                rate
            },
            decay: if slot.is_matrix() { rate * WEIGHT_DECAY } else { 0.0 },
        };
        layout.slots().iter().map(of).collect()
    }

    /// The rates of a matrix, or of a norm or a bias, at this learning rate.
    pub(crate) fn plain(rate: f32, matrix: bool) -> Rates {
        Rates { step: rate, decay: if matrix { rate * WEIGHT_DECAY } else { 0.0 } }
    }
}

/// The optimizer's state. Shape of each: (value of the layout).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Optimizer {
    pub(crate) mean: Vec<f32>,
    pub(crate) square: Vec<f32>,
    pub(crate) steps: usize,
}

impl Optimizer {
    pub(crate) fn new(len: usize) -> Optimizer {
        Optimizer { mean: vec![0.0; len], square: vec![0.0; len], steps: 0 }
    }

    /// Takes one step along `gradient`, on `threads` threads. `rates` are the learning rates of the
    /// layout's slots. Returns the gradient's norm; if that is not finite, nothing changes.
    pub(crate) fn step(
        &mut self,
        layout: &Layout,
        values: &mut [f32],
        gradient: &[f32],
        rates: &[Rates],
        threads: usize,
    ) -> f64 {
        let places = layout.slots().iter().map(|slot| slot.place.clone());
        let jobs: Vec<_> = places.zip(rates.iter().copied()).collect();
        self.advance(&jobs, values, gradient, threads)
    }

    /// As [`Optimizer::step`], for adjacent parts of all values, each with its rates.
    pub(crate) fn advance(
        &mut self,
        parts: &[(Range<usize>, Rates)],
        values: &mut [f32],
        gradient: &[f32],
        threads: usize,
    ) -> f64 {
        let length = sum_of_squares(gradient).sqrt();
        if !length.is_finite() {
            return length;
        }
        self.steps += 1;
        let clip = if length > LONGEST { (LONGEST / length) as f32 } else { 1.0 };
        let correction = |beta: f32| 1.0 - f64::from(beta).powf(self.steps as f64);
        let (first, root) = (correction(BETA1), (1.0 / correction(BETA2).sqrt()) as f32);
        let (total, threads) = (values.len().max(1), threads.max(1));
        let mut jobs = Vec::new();
        let (mut values, mut mean, mut square) = (values, &mut self.mean[..], &mut self.square[..]);
        for (place, rates) in parts {
            let rule = Rule { clip, rate: (f64::from(rates.step) / first) as f32, root, decay: rates.decay };
            let len = place.len();
            let (a, b, c);
            (a, values) = std::mem::take(&mut values).split_at_mut(len);
            (b, mean) = std::mem::take(&mut mean).split_at_mut(len);
            (c, square) = std::mem::take(&mut square).split_at_mut(len);
            jobs.push((rule, a, b, c, &gradient[place.clone()]));
        }
        // About equal shares: each thread takes the jobs whose middle lies in its part.
        std::thread::scope(|scope| {
            let mut from = 0;
            let mut shares: Vec<Vec<_>> = (0..threads).map(|_| Vec::new()).collect();
            for job in jobs {
                let middle = from + job.1.len() / 2;
                from += job.1.len();
                shares[(middle * threads / total).min(threads - 1)].push(job);
            }
            for share in shares {
                scope.spawn(move || {
                    for (rule, values, mean, square, gradient) in share {
                        adam(rule, values, mean, square, gradient);
                    }
                });
            }
        });
        length
    }
}

/// The constants of one step.
#[derive(Clone, Copy)]
struct Rule {
    clip: f32,
    rate: f32,  // corrected for the mean's start at 0
    root: f32,  // corrects the root of the mean square
    decay: f32, // share of the value that it loses
}

wide! {
    /// Takes one step of values that share their weight decay.
    fn adam<'a>(rule: Rule, values: &'a mut [f32], mean: &'a mut [f32], square: &'a mut [f32], gradient: &'a [f32]) {
        for (((value, mean), square), gradient) in values.iter_mut().zip(mean).zip(square).zip(gradient) {
            let g = gradient * rule.clip;
            *mean = BETA1 * *mean + (1.0 - BETA1) * g;
            *square = BETA2 * *square + (1.0 - BETA2) * g * g;
            *value -= rule.rate * *mean / (square.sqrt() * rule.root + EPSILON) + rule.decay * *value;
        }
    }
}
