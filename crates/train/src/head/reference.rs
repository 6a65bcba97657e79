//! For tests: the head and its loss as plainly as they can be written, in f64. Every round is
//! computed on its own: a list of K and V, to which each position appends what it has.

use selfspec_kernels::{GateActivation, RopeStyle};
use selfspec_model::{ExitHeadTensor, LayerTensor, Rotations, TensorShape};

use crate::data::rows::{Rows, Taps};
use crate::layer::layout::Layout;
use crate::layer::shape::Shape;
use crate::math::random::Random;

/// A head, a frozen model's side, and rows, all of them small and random.
pub(crate) struct ReferenceHead {
    pub(crate) shape: Shape,
    pub(crate) values: Vec<f32>,
    pub(crate) output_norm: Vec<f32>,
    pub(crate) head: Vec<f32>, // (vocab, dim)
    pub(crate) rows: Rows,
}

impl ReferenceHead {
    pub(crate) fn new(seed: u64, change: impl FnOnce(&mut Shape)) -> ReferenceHead {
        let (dim, head_dim, rot, positions) = (12, 6, 4, 16);
        let mut random = Random::new(seed, "case");
        let angles = random.normals(positions * rot / 2, 2.0);
        let mut shape = Shape {
            dim,
            ffn_dim: 20,
            heads: 4,
            kv_heads: 2,
            head_dim,
            eps: 1e-5,
            gate: GateActivation::Silu,
            attention_scale: 0.5,
            features: 2,
            qk_norm: false,
            sandwich: false,
            biases: Vec::new(),
            rotations: Rotations {
                cos: angles.iter().map(|a| a.cos()).collect(),
                sin: angles.iter().map(|a| a.sin()).collect(),
                rot,
                style: RopeStyle::Halves,
            },
        };
        change(&mut shape);
        let layout = Layout::new(&shape);
        let mut values = Vec::new();
        for slot in layout.slots() {
            let len = slot.place.len();
            let bias = matches!(slot.tensor.shape(&shape.form()), TensorShape::Bias(_));
            if slot.is_matrix() || bias {
                values.extend(random.normals(len, 0.5));
            } else {
                values.extend(random.normals(len, 0.2).iter().map(|x| 1.0 + x));
            }
        }
        let taps = Taps { exit: 1, features: [2, 0][..shape.features].to_vec(), last: 0 };
        let mut rows = Rows { states: vec![Vec::new(); 3], taps, ..Rows::default() };
        for (len, prompt_len) in [(7, 2), (1, 1), (9, 4), (2, 1)] {
            for (states, std) in rows.states.iter_mut().zip([3.0, 1.0, 2.0]) {
                states.extend(random.normals(len * dim, std));
            }
            rows.close(len, prompt_len);
        }
        let output_norm = random.normals(dim, 0.2).iter().map(|x| 1.0 + x).collect();
        ReferenceHead { shape, values, output_norm, head: random.normals(37 * dim, 0.7), rows }
    }

    /// States of every position in each of `steps` steps, `None` where no round has one. Shape:
    /// (step, row, dim).
    pub(crate) fn states(&self, values: &[f64], steps: usize) -> Vec<Vec<Option<Vec<f64>>>> {
        let at = |row: usize, of: &[f32]| row_of(of, row, self.shape.dim);
        let mut out = vec![vec![None; self.rows.len()]; steps];
        for sequence in &self.rows.sequences {
            for start in sequence.clone() {
                let mut kv = Vec::new();
                for row in sequence.start..start {
                    let read = Read::Features(self.features(sequence.start, row));
                    self.one(values, row - sequence.start, &at(row, self.rows.exit()), &read, &mut kv);
                }
                let mut read = Read::Features(self.features(sequence.start, start));
                for (step, out) in out.iter_mut().enumerate() {
                    let row = start + step;
                    if row >= sequence.end {
                        break;
                    }
                    let state = self.one(values, row - sequence.start, &at(row, self.rows.exit()), &read, &mut kv);
                    read = Read::Guess(state.clone());
                    out[row] = Some(state);
                }
            }
        }
        out
    }

    fn features(&self, first: usize, row: usize) -> Vec<Vec<f64>> {
        let dim = self.shape.dim;
        let of =
            |tap: &usize| if row == first { vec![0.0; dim] } else { row_of(&self.rows.states[*tap], row - 1, dim) };
        self.rows.taps.features.iter().map(of).collect()
    }

    /// The head at one position.
    pub(crate) fn one(
        &self,
        v: &[f64],
        position: usize,
        exit: &[f64],
        read: &Read,
        kv: &mut Vec<(Vec<f64>, Vec<f64>)>,
    ) -> Vec<f64> {
        let (s, layout) = (&self.shape, Layout::new(&self.shape));
        let get = |t: ExitHeadTensor| layout.slot(t).map(|slot| &v[slot.place.clone()]);
        let need = |t: ExitHeadTensor| get(t).expect("there");
        let of_layer = |t: LayerTensor| need(t.into());
        let (x, eps) = (exit.to_vec(), f64::from(s.eps));
        let x = match read {
            _ if s.features == 0 => x,
            Read::Features(features) => {
                let mut all = norm(&x, need(ExitHeadTensor::ExitNorm), eps);
                for (feature, weight) in features.iter().zip(need(ExitHeadTensor::FeatureNorm).chunks(s.dim)) {
                    all.extend(norm(feature, weight, eps));
                }
                times(need(ExitHeadTensor::Fuse), &all)
            }
            Read::Guess(state) => {
                let mut both = norm(&x, need(ExitHeadTensor::ExitNorm), eps);
                both.extend(norm(state, need(ExitHeadTensor::GuessNorm), eps));
                times(need(ExitHeadTensor::GuessFuse), &both)
            }
        };
        let input = norm(&x, of_layer(LayerTensor::AttentionNorm), eps);
        let project = |t: LayerTensor, bias: LayerTensor| {
            let y = times(of_layer(t), &input);
            get(bias.into()).map_or(y.clone(), |b| plus(&y, b))
        };
        let heads = |y: Vec<f64>, t: LayerTensor| -> Vec<f64> {
            let normed = |head: &[f64]| if s.qk_norm { norm(head, of_layer(t), eps) } else { head.to_vec() };
            y.chunks(s.head_dim).flat_map(|head| turn(&normed(head), position, &s.rotations)).collect()
        };
        let q = heads(project(LayerTensor::Query, LayerTensor::QueryBias), LayerTensor::QueryNorm);
        let k = heads(project(LayerTensor::Key, LayerTensor::KeyBias), LayerTensor::KeyNorm);
        kv.push((k, project(LayerTensor::Value, LayerTensor::ValueBias)));
        let mut attended = Vec::new();
        for (h, q) in q.chunks(s.head_dim).enumerate() {
            let at = h / s.group() * s.head_dim;
            let of = |x: &[f64]| x[at..at + s.head_dim].to_vec();
            let scores: Vec<f64> = kv.iter().map(|(k, _)| f64::from(s.attention_scale) * dot(q, &of(k))).collect();
            let weights = softmax(&scores);
            let sum = kv.iter().zip(&weights).fold(vec![0.0; s.head_dim], |sum, ((_, v), w)| {
                plus(&sum, &of(v).iter().map(|v| v * w).collect::<Vec<_>>())
            });
            attended.extend(sum);
        }
        let part = times(of_layer(LayerTensor::AttentionOutput), &attended);
        let post = |part: Vec<f64>, t: LayerTensor| if s.sandwich { norm(&part, of_layer(t), eps) } else { part };
        let x = plus(&x, &post(part, LayerTensor::PostAttentionNorm));
        if s.ffn_dim == 0 {
            return x;
        }
        let input = norm(&x, of_layer(LayerTensor::FeedForwardNorm), eps);
        let (gate, up) = (times(of_layer(LayerTensor::Gate), &input), times(of_layer(LayerTensor::Up), &input));
        let wide: Vec<f64> = gate.iter().zip(&up).map(|(g, u)| activation(s.gate, *g) * u).collect();
        plus(&x, &post(times(of_layer(LayerTensor::Down), &wide), LayerTensor::PostFeedForwardNorm))
    }

    /// The divergence and the overlap of a row in a step.
    pub(crate) fn row_loss(&self, values: &[f64], row: usize, state: &[f64]) -> (f64, f64) {
        let (layout, eps, dim) = (Layout::new(&self.shape), f64::from(self.shape.eps), self.shape.dim);
        let wide = |x: &[f32]| x.iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
        let head = wide(&self.head);
        let p = softmax(&times(&head, &norm(&row_of(self.rows.last(), row, dim), &wide(&self.output_norm), eps)));
        let weight = &values[layout.place(ExitHeadTensor::OutputNorm)];
        let q = softmax(&times(&head, &norm(state, weight, eps)));
        let divergence = p.iter().zip(&q).map(|(p, q)| p * (p / q).ln()).sum();
        (divergence, p.iter().zip(&q).map(|(p, q)| p.min(*q)).sum())
    }

    /// The loss of all steps, as `LossWeights` weighs it.
    pub(crate) fn loss(&self, values: &[f64], steps: usize, decay: f64, refusal: f64) -> f64 {
        let counts = self.rows.counted(steps);
        let mut total = 0.0;
        for (step, states) in self.states(values, steps).iter().enumerate() {
            for (row, state) in states.iter().enumerate().filter(|(row, _)| self.rows.counts(*row, step)) {
                let (divergence, overlap) = self.row_loss(values, row, state.as_ref().expect("in a round"));
                let mixed = (1.0 - refusal) * divergence + refusal * (1.0 - overlap);
                total += decay.powi(step as i32) / counts[step] as f64 * mixed;
            }
        }
        total
    }
}

/// What the head reads of the position before.
pub(crate) enum Read {
    Features(Vec<Vec<f64>>),
    Guess(Vec<f64>),
}

fn row_of(x: &[f32], row: usize, dim: usize) -> Vec<f64> {
    x[row * dim..][..dim].iter().map(|x| f64::from(*x)).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn plus(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

pub(crate) fn times(w: &[f64], x: &[f64]) -> Vec<f64> {
    w.chunks(x.len()).map(|row| dot(row, x)).collect()
}

pub(crate) fn norm(x: &[f64], weight: &[f64], eps: f64) -> Vec<f64> {
    let factor = 1.0 / (dot(x, x) / x.len() as f64 + eps).sqrt();
    x.iter().zip(weight).map(|(x, w)| x * factor * w).collect()
}

pub(crate) fn softmax(x: &[f64]) -> Vec<f64> {
    let top = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = x.iter().map(|x| (x - top).exp()).sum();
    x.iter().map(|x| (x - top).exp() / total).collect()
}

fn activation(act: GateActivation, x: f64) -> f64 {
    match act {
        GateActivation::Silu => x / (1.0 + (-x).exp()),
        GateActivation::GeluTanh => {
            x / 2.0 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
        }
    }
}

fn turn(head: &[f64], position: usize, by: &Rotations) -> Vec<f64> {
    let (half, mut out) = (by.rot / 2, head.to_vec());
    for i in 0..half {
        let (a, b) = match by.style {
            RopeStyle::Interleaved => (2 * i, 2 * i + 1),
            RopeStyle::Halves => (i, i + half),
        };
        let (cos, sin) = (f64::from(by.cos[position * half + i]), f64::from(by.sin[position * half + i]));
        out[a] = head[a] * cos - head[b] * sin;
        out[b] = head[a] * sin + head[b] * cos;
    }
    out
}
