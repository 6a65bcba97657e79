//! [`RowSource`]: loads rows from the cache of hidden states, and the embedding if the head reads
//! it.

use std::sync::Arc;

use selfspec_model::CpuModel;

use crate::data::corpus::{Corpus, TrainingText};
use crate::data::rows::{Rows, Taps};
use crate::data::states::HiddenStateCache;
use crate::error::TrainError;
use crate::head::plan::HeadPlan;
use crate::math::wide::sum_of_squares;

/// Loads the rows of texts.
pub(crate) struct RowSource {
    model: Arc<CpuModel>,
    corpus: Arc<Corpus>,
    cache: HiddenStateCache,
    taps: Taps,
    embeds: bool, // whether the embedding is wanted, after what the cache has
}

impl RowSource {
    /// # Errors
    /// The cache is of another corpus or width, or lacks the states of a layer that the head reads.
    pub(crate) fn new(
        model: Arc<CpuModel>,
        corpus: Arc<Corpus>,
        cache: HiddenStateCache,
        plan: &HeadPlan,
    ) -> Result<RowSource, TrainError> {
        let (n_layers, dim) = (model.config().n_layers, model.config().dim);
        let tap = |layer: usize| {
            let found = cache.layers().iter().position(|l| *l == layer);
            found.ok_or_else(|| {
                let why = format!("the cache of hidden states has layers {:?}, not {layer}", cache.layers());
                TrainError::Option { field: "cache", why }
            })
        };
        let fits = [
            ("set of texts", cache.fingerprints().1.to_owned(), corpus.fingerprint()),
            ("width", cache.dim().to_string(), dim.to_string()),
        ];
        if let Some((what, theirs, ours)) = fits.into_iter().find(|(_, theirs, ours)| theirs != ours) {
            return Err(TrainError::Mismatch { path: cache.path().to_owned(), what, theirs, ours });
        }
        let embeds = plan.exit_layer == 0;
        let taps = Taps {
            exit: if embeds { cache.layers().len() } else { tap(plan.exit_layer)? },
            features: plan
                .features
                .iter()
                .map(|layer| if *layer == 0 { Ok(cache.layers().len()) } else { tap(*layer) })
                .collect::<Result<_, _>>()?,
            last: tap(n_layers)?,
        };
        let embeds = embeds || plan.features.contains(&0);
        Ok(RowSource { model, corpus, cache, taps, embeds })
    }

    /// The root of the mean square of the final states of some texts.
    pub(crate) fn size_of_states(&self, texts: &[usize]) -> Result<f32, TrainError> {
        const ENOUGH: usize = 64;
        let (mut rows, mut sum, mut count) = (Rows::default(), 0.0, 0);
        for text in texts.iter().take(ENOUGH) {
            self.load(&[*text], &mut rows)?;
            sum += sum_of_squares(rows.last());
            count += rows.last().len();
        }
        Ok((sum / count.max(1) as f64).sqrt() as f32)
    }

    /// Replaces `rows` by those of `texts`.
    pub(crate) fn load(&self, texts: &[usize], rows: &mut Rows) -> Result<(), TrainError> {
        let (stored, dim) = (self.cache.layers().len(), self.cache.dim());
        rows.clear();
        rows.taps.clone_from(&self.taps);
        rows.states.resize_with(stored + usize::from(self.embeds), Vec::new);
        for text in texts {
            self.cache.read(*text, &mut rows.states[..stored])?;
            let TrainingText { tokens, prompt_len, .. } = &self.corpus.texts[*text];
            if self.embeds {
                for token in tokens {
                    let states = &mut rows.states[stored];
                    let from = states.len();
                    states.resize(from + dim, 0.0);
                    self.model.embedding_row(*token, &mut states[from..]);
                }
            }
            rows.close(tokens.len(), *prompt_len);
        }
        Ok(())
    }
}
