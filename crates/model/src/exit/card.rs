//! The card of an exit head: its model, its form, and how it was made. JSON text in the metadata of
//! its safetensors file.

use std::collections::BTreeMap;

use safetensors::SafeTensors;
use serde::{Deserialize, Serialize};

use crate::exit::error::ExitHeadError;

/// The model that an exit head is for, its form, and how it was made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExitHeadCard {
    /// Version of the file's format: 1.
    pub version: u32,
    /// Name of the model that it was trained for.
    pub model: String,
    /// Fingerprint of that model's weights.
    pub model_fingerprint: String,
    /// Layers of the model below the head.
    pub exit_layer: usize,
    /// Its features: it also reads the hidden states of the position before after these numbers of
    /// layers.
    pub features: Vec<usize>,
    /// Width of its feed-forward part; 0 where it has attention only.
    pub ffn_dim: usize,
    /// Tokens that it can propose.
    pub vocab: usize,
    /// Share of generated tokens, by domain, that it can propose: acceptance cannot be above it.
    #[serde(default)]
    pub coverage: BTreeMap<String, f64>,
    /// Share of drafts accepted by domain on prompts held out of training: of the first of a round,
    /// of the second where the first was accepted, and so on.
    #[serde(default)]
    pub acceptance: BTreeMap<String, Vec<f64>>,
    /// The data that it was trained on.
    #[serde(default)]
    pub data: String,
    /// Tokens of the data.
    #[serde(default)]
    pub tokens: u64,
    /// Times that training saw each of them.
    #[serde(default)]
    pub epochs: f64,
    /// Seed of the training.
    #[serde(default)]
    pub seed: u64,
    /// The command that made it.
    #[serde(default)]
    pub command: String,
}

impl ExitHeadCard {
    /// Key of the card in the metadata of the file.
    pub const KEY: &'static str = "selfspec_head";
    /// The version that is read and written.
    pub const VERSION: u32 = 1;

    /// Refuses values that no training writes.
    fn check(&self) -> Result<(), ExitHeadError> {
        let wrong = |why: String| Err(ExitHeadError::Card(format!("its card: {why}")));
        let twice = |(i, layer): &(usize, &usize)| self.features[..*i].contains(layer);
        if let Some((_, layer)) = self.features.iter().enumerate().find(twice) {
            return wrong(format!("features name {layer} twice"));
        }
        let coverage = self.coverage.iter().map(|(domain, share)| ("coverage", domain, *share));
        let acceptance = self.acceptance.iter().flat_map(|(domain, places)| {
            let of_domain = |share: &f64| ("acceptance", domain, *share);
            places.iter().map(of_domain).collect::<Vec<_>>()
        });
        match coverage.chain(acceptance).find(|(_, _, share)| !(0.0..=1.0).contains(share)) {
            Some((what, domain, share)) => {
                wrong(format!("{what} of `{domain}` is {share}, and a share is from 0 to 1"))
            }
            None => Ok(()),
        }
    }

    /// Acceptance over all domains and places; `None` where it is not known.
    pub fn mean_acceptance(&self) -> Option<f64> {
        let all: Vec<f64> = self.acceptance.values().flatten().copied().collect();
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    }

    /// The card in a head's file.
    ///
    /// # Errors
    /// The file is no safetensors file, or has no card that can be read.
    pub fn read(bytes: &[u8]) -> Result<Self, ExitHeadError> {
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(|e| ExitHeadError::Format(e.to_string()))?;
        let text = header.metadata().as_ref().and_then(|m| m.get(Self::KEY));
        let text = text.ok_or_else(|| ExitHeadError::Card(format!("no card: the metadata lacks `{}`", Self::KEY)))?;
        let card: Self = serde_json::from_str(text).map_err(|e| ExitHeadError::Card(format!("its card: {e}")))?;
        if card.version != Self::VERSION {
            let why = format!("its format is version {}, this program reads version {}", card.version, Self::VERSION);
            return Err(ExitHeadError::Card(why));
        }
        card.check()?;
        Ok(card)
    }
}
