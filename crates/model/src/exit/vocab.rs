//! A draft vocabulary: some tokens, and the head's rows for them.
//!
//! The head is the largest part of a small draft. A draft over some thousand frequent tokens reads only their rows; the tokens it cannot
//! propose have no mass in its distribution, so that what speculation gives is as exact as before.

use std::sync::Arc;

use selfspec_kernels::{PanelMatrix, Team};

use crate::model::Model;
use crate::row::TokenId;

/// Tokens that a draft may propose, and a copy of the head's rows for them.
#[derive(Debug)]
pub struct DraftVocab {
    pub(crate) ids: Arc<[TokenId]>,
    pub(crate) head: PanelMatrix, // (ids, dim)
}

/// Why a draft vocabulary cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DraftVocabError {
    /// It has no token.
    #[error("the draft vocabulary has no token")]
    Empty,
    /// A token is named twice, or after a higher one.
    #[error("the draft vocabulary must ascend, and token {token} follows token {before}")]
    Order {
        /// The token.
        token: TokenId,
        /// The one before it.
        before: TokenId,
    },
    /// A token that the model lacks.
    #[error("the draft vocabulary names token {token}, the model has {vocab}")]
    UnknownToken {
        /// The token.
        token: TokenId,
        /// Size of the model's vocabulary.
        vocab: usize,
    },
    /// The rows cannot be packed.
    #[error("the draft vocabulary's rows: {0}")]
    Rows(String),
}

impl DraftVocab {
    /// The rows of `model`'s head for the tokens `ids`, which ascend.
    ///
    /// # Errors
    /// `ids` is empty, does not ascend, or names a token that the model lacks; or there is no memory.
    pub fn new(model: &Model, ids: Vec<TokenId>, team: &Team) -> Result<DraftVocab, DraftVocabError> {
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
