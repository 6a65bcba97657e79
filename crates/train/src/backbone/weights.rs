//! [`ModelWeights`]: the weights of a whole model during one optimizer step, packed for the
//! products of all shards.

use super::readout::Readout;
use super::tensors::Tensors;
use crate::layer::weights::Weights;

/// The weights of a model, packed.
pub(crate) struct ModelWeights {
    pub(crate) embedding: Vec<f32>,  // (vocab, dim)
    pub(crate) layers: Vec<Weights>, // (layer)
    pub(crate) readout: Readout,
}

impl ModelWeights {
    pub(crate) fn new(tensors: &Tensors, values: &[f32], threads: usize) -> ModelWeights {
        let layers = tensors.layers.iter().map(|_| Weights::empty(tensors.shape.clone(), tensors.layer.clone()));
        let readout = Readout::new(tensors.shape.dim, tensors.vocab, tensors.shape.eps);
        let mut packs = ModelWeights { embedding: Vec::new(), layers: layers.collect(), readout };
        packs.set(tensors, values, threads);
        packs
    }

    /// Sets new values, on `threads` threads.
    pub(crate) fn set(&mut self, tensors: &Tensors, values: &[f32], threads: usize) {
        self.embedding.clear();
        self.embedding.extend_from_slice(&values[tensors.embedding.clone()]);
        let mut jobs: Vec<_> = self.layers.iter_mut().zip(&tensors.layers).collect();
        let each = jobs.len().div_ceil(threads.max(1));
        std::thread::scope(|scope| {
            for jobs in jobs.chunks_mut(each) {
                scope.spawn(move || {
                    for (layer, place) in jobs {
                        layer.set(&values[place.clone()], 1);
                    }
                });
            }
            self.readout.set(&values[tensors.output_norm.clone()], &values[tensors.head.clone()]);
        });
    }
}
