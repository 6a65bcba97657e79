//! Exit heads: small trained layers that draft, and the tokens that they may propose.

mod card;
mod draft_heads;
mod draft_vocab;
mod head;

pub use card::ExitHeadCard;
pub use draft_heads::DraftHeads;
pub use draft_vocab::{DraftVocab, DraftVocabError};
pub(crate) use head::Fuse;
pub use head::{ExitHead, ExitHeadError};
