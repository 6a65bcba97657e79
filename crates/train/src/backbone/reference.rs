//! For tests: a whole model and its losses as plainly as they can be written, in f64, one position
//! after the other.

use super::course::Term;
use super::tensors::{Place, Tensors};
use crate::head::reference::{Read, ReferenceHead, norm, softmax, times};
use crate::layer::layout::{Layout, Slot};
use crate::layer::shape::Shape;
use crate::math::random::Random;
use selfspec_model::TokenId;
use selfspec_weights::TensorType;

/// Layers of a case.
pub(crate) const LAYERS: usize = 4;
/// Tokens of its vocabulary.
pub(crate) const VOCAB: usize = 37;

/// A model and spans, all of them small and random.
pub(crate) struct ReferenceModel {
    case: ReferenceHead, // computes layers; its values are not used
    pub(crate) tensors: Tensors,
    pub(crate) values: Vec<f32>,
    pub(crate) spans: Vec<Vec<TokenId>>,
    /// Which layers run for each span. Shape: (span, layer).
    pub(crate) runs: Vec<Vec<bool>>,
}

impl ReferenceModel {
    pub(crate) fn new(seed: u64, tied: bool, change: impl FnOnce(&mut Shape)) -> ReferenceModel {
        let case = ReferenceHead::new(seed, |shape| {
            shape.features = 0;
            change(shape);
        });
        let (shape, layer) = (case.shape.clone(), Layout::of_layer(&case.shape));
        let (dim, mut places, mut at) = (shape.dim, Vec::new(), 0);
        let mut push = |name: String, matrix: bool, len: usize| {
            places.push(Place { name, matrix, place: at..at + len, ty: TensorType::F32 });
            at += len;
            at - len..at
        };
        let embedding = push("embedding".to_owned(), true, VOCAB * dim);
        let mut layers = Vec::new();
        for l in 0..LAYERS {
            let place = |slot: &Slot| push(format!("{l} {:?}", slot.tensor), slot.is_matrix(), slot.place.len());
            let all: Vec<_> = layer.slots().iter().map(place).collect();
            layers.push(all[0].start..all[all.len() - 1].end);
        }
        let output_norm = push("norm".to_owned(), false, dim);
        let head = if tied { embedding.clone() } else { push("head".to_owned(), true, VOCAB * dim) };
        let mut random = Random::new(seed, "whole");
        let mut values = Vec::new();
        for place in &places {
            let of = |std: f32, random: &mut Random| random.normals(place.place.len(), std);
            match place.matrix {
                true if place.place == embedding => values.extend(of(1.0, &mut random)),
                true => values.extend(of(0.4, &mut random)),
                false if place.name.contains("Bias") => values.extend(of(0.4, &mut random)),
                false => values.extend(of(0.2, &mut random).iter().map(|x| 1.0 + x)),
            }
        }
        let tensors = Tensors { shape, vocab: VOCAB, layer, layers, output_norm, embedding, head, len: at, places };
        let span = |len: usize| -> Vec<TokenId> {
            (0..len).map(|i| ((i * i * 7 + i * 13 + len) % VOCAB) as TokenId).collect()
        };
        let runs = vec![
            vec![true, false, true, true],
            vec![true; 4],
            vec![true, true, false, false],
            vec![true, false, true, true],
        ];
        ReferenceModel { case, tensors, values, spans: vec![span(7), span(2), span(11), span(5)], runs }
    }

    /// Sums of the cross-entropy of every term.
    pub(crate) fn sums(&self, values: &[f64], terms: &[Term]) -> Vec<f64> {
        let (t, dim, eps) = (&self.tensors, self.tensors.shape.dim, f64::from(self.tensors.shape.eps));
        let mut sums = vec![0.0; terms.len()];
        for (span, runs) in self.spans.iter().zip(&self.runs) {
            let mut kv = vec![Vec::new(); LAYERS];
            for (position, pair) in span.windows(2).enumerate() {
                let mut state = values[t.embedding.clone()][pair[0] as usize * dim..][..dim].to_vec();
                for l in 0..=LAYERS {
                    for (sum, _) in sums.iter_mut().zip(terms).filter(|(_, term)| term.layers == l) {
                        let normed = norm(&state, &values[t.output_norm.clone()], eps);
                        let p = softmax(&times(&values[t.head.clone()], &normed));
                        *sum -= p[pair[1] as usize].ln();
                    }
                    if l < LAYERS && runs[l] {
                        let layer = &values[t.layers[l].clone()];
                        state = self.case.one(layer, position, &state, &Read::Features(Vec::new()), &mut kv[l]);
                    }
                }
            }
        }
        sums
    }
}
