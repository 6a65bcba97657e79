//! Exit heads: their files, and the vocabulary that they draft from.

pub(crate) mod card;
pub(crate) mod draft_heads;
pub(crate) mod head;
pub(crate) mod vocab;
