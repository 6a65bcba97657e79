//! A draft vocabulary: some tokens, and the head's rows for them.
//!
//! The head is the largest part of a small draft. A draft over some thousand frequent tokens reads
//! only their rows. The tokens that it cannot propose have no mass in its distribution, so
//! speculation stays exact.

use std::sync::Arc;

use selfspec_kernels::{PanelMatrix, Team};

use super::model::CpuModel;
use crate::exit::error::DraftVocabError;
use crate::row::TokenId;

/// Tokens that a draft may propose, and a copy of the head's rows for them.
#[derive(Debug)]
pub struct DraftVocab {
    pub(crate) ids: Arc<[TokenId]>,
    pub(crate) head: PanelMatrix, // (ids, dim)
}

impl DraftVocab {
    /// The rows of `model`'s head for the tokens `ids`, which ascend.
    ///
    /// # Errors
    /// `ids` is empty, does not ascend, or names a token that the model lacks; or there is no
    /// memory.
    pub fn new(model: &CpuModel, ids: Vec<TokenId>, team: &Team) -> Result<DraftVocab, DraftVocabError> {
        if let Some(pair) = ids.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(DraftVocabError::Order { token: pair[1], before: pair[0] });
        }
        let last = *ids.last().ok_or(DraftVocabError::Empty)?;
        if last as usize >= model.vocab() {
            return Err(DraftVocabError::UnknownToken { token: last, vocab: model.vocab() });
        }
        let head = model.head().select(team, &ids).map_err(|e| DraftVocabError::Rows(e.to_string()))?;
        Ok(DraftVocab { ids: ids.into(), head })
    }

    /// The tokens, ascending.
    pub fn ids(&self) -> &Arc<[TokenId]> {
        &self.ids
    }

    /// Memory of the rows, in bytes.
    pub fn size_bytes(&self) -> usize {
        self.head.size_bytes()
    }
}
