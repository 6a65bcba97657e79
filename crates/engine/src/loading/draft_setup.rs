//! The exit head and the draft vocabulary of a model.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use selfspec_kernels::Team;
use selfspec_model::{CpuModel, DraftHeads, DraftVocab, ExitHead, ExitHeadCard, TokenId};

use crate::error::EngineError;
use crate::loading::tuning::Tuning;

/// Built-in exit heads. Each file names its model; `heads/README.md` says how they were trained.
const BUILT_IN: &[&[u8]] = &[include_bytes!("../../heads/smollm2-135m.safetensors")];

/// Which exit head a model is loaded with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ExitHeadSource {
    /// The built-in head of the model, if there is one.
    #[default]
    BuiltIn,
    /// None.
    Off,
    /// The head in a file, which must be the model's.
    File(PathBuf),
}

/// The parts of a model that only drafts use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DraftSetup {
    /// The exit head.
    pub exit_head: ExitHeadSource,
    /// The draft vocabulary of layer skip, ascending; empty: all tokens.
    pub vocab: Vec<TokenId>,
    /// Ignores the model's [`Tuning`].
    pub untuned: bool,
}

impl DraftSetup {
    /// Neither an exit head, nor a draft vocabulary, nor a tuning.
    pub fn none() -> Self {
        DraftSetup { exit_head: ExitHeadSource::Off, vocab: Vec::new(), untuned: true }
    }

    /// The same, with a tuning's choices where the setup has none.
    pub(crate) fn tuned(&self, tuning: &Tuning) -> Self {
        let mut setup = self.clone();
        if setup.vocab.is_empty() {
            setup.vocab.clone_from(&tuning.draft_vocab);
        }
        if let (ExitHeadSource::BuiltIn, Some(path)) = (&setup.exit_head, &tuning.exit_head) {
            setup.exit_head = ExitHeadSource::File(path.clone());
        }
        setup
    }

    pub(crate) fn read(
        &self,
        model: &CpuModel,
        name: &str,
        fingerprint: &str,
        team: &Team,
    ) -> Result<DraftHeads, EngineError> {
        let read = |path: &Path, bytes: &[u8]| {
            let head = ExitHead::read(bytes, model, name, fingerprint, team);
            head.map(Arc::new)
                .map_err(|source| EngineError::ExitHead { path: path.to_owned(), source: Box::new(source) })
        };
        let exit = match &self.exit_head {
            ExitHeadSource::Off => None,
            ExitHeadSource::BuiltIn => {
                let of_model =
                    |bytes: &&&[u8]| ExitHeadCard::read(bytes).is_ok_and(|c| c.model_fingerprint == fingerprint);
                let found = BUILT_IN.iter().find(of_model);
                found.map(|bytes| read(Path::new("the built-in exit head"), bytes)).transpose()?
            }
            ExitHeadSource::File(path) => {
                let bytes = std::fs::read(path).map_err(|source| EngineError::Io { path: path.clone(), source })?;
                Some(read(path, &bytes)?)
            }
        };
        let vocab = match &self.vocab[..] {
            [] => None,
            ids => {
                let vocab = DraftVocab::new(model, ids.to_vec(), team);
                let why = |e| EngineError::InvalidRequest { field: "draft_vocab", why: format!("{e}") };
                Some(Arc::new(vocab.map_err(why)?))
            }
        };
        Ok(DraftHeads { vocab, exit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_that_are_built_in_are_small_and_say_for_which_model_they_are() {
        for bytes in BUILT_IN {
            let card = ExitHeadCard::read(bytes).expect("a head's file");
            assert!(bytes.len() <= 8_000_000 && !card.model_fingerprint.is_empty() && card.vocab > 1000, "{card:?}");
            assert!(card.mean_acceptance().is_some_and(|a| a > 0.3) && card.command.contains("train head"), "{card:?}");
        }
    }
}
