//! The data of a training: texts, draft vocabularies, hidden states, and rows made of them.

pub(crate) mod corpus;
pub(crate) mod rows;
pub(crate) mod states;
pub(crate) mod vocab;
