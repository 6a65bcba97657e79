//! The extra weights for drafting: an exit head and a draft vocabulary, if there are any.

use std::sync::Arc;

use super::draft_vocab::DraftVocab;
use super::exit_head::ExitHead;

/// The weights that drafts have besides the model's own layers and head. The default is none.
#[derive(Debug, Clone, Default)]
pub struct DraftHeads {
    /// Rows of the head for drafts that take the model's own norm and head
    /// ([`Readout::DraftVocab`](crate::Readout::DraftVocab)).
    pub vocab: Option<Arc<DraftVocab>>,
    /// A trained head on an early layer ([`Readout::ExitHead`](crate::Readout::ExitHead)). Its K
    /// and V take one more layer of the cache.
    pub exit: Option<Arc<ExitHead>>,
}
