//! What drafts have of their own, beside the model: an exit head, and a draft vocabulary.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use selfspec_kernels::Team;
use selfspec_model::{CpuModel, DraftHeads, DraftVocab, ExitHead, ExitHeadCard, TokenId};

use crate::error::EngineError;
use crate::loading::tuning::Tuning;

/// Exit heads that are part of this program: files, each of which says for which model it is. `heads/README.md` tells how they were made.
const BUILT_IN: &[&[u8]] = &[include_bytes!("../../heads/smollm2-135m.safetensors")];

/// Which exit head a model is loaded with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ExitHeadSource {
    /// The one that this program brings for the model, if it does.
    #[default]
    BuiltIn,
    /// None.
    Off,
    /// The one of a file, which must be the model's.
    File(PathBuf),
}

/// What drafts are given beside the model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DraftSetup {
    /// The exit head.
    pub exit_head: ExitHeadSource,
    /// Tokens that layer skip is held to, ascending; empty: all.
    pub vocab: Vec<TokenId>,
    /// Leaves the model's [`Tuning`] unread.
    pub untuned: bool,
}

impl DraftSetup {
    /// Neither an exit head, nor a draft vocabulary, nor a tuning.
    pub fn none() -> Self {
        DraftSetup { exit_head: ExitHeadSource::Off, vocab: Vec::new(), untuned: true }
    }

    /// The same with what a tuning says, where nothing else is asked for.
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
