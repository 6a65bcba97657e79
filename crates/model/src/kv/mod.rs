//! The index of the KV cache: sequences, lengths, pages, forks, kept states, and every check of a
//! row.
//!
//! It computes nothing and holds no float. Out of the rows of a step it makes a
//! [`step::ValidatedStep`], which an executor runs without asking further. Every device shares it.

pub(crate) mod index;
pub(crate) mod pages;
pub(crate) mod place;
pub(crate) mod sequence;
pub(crate) mod shape;
pub(crate) mod slots;
pub(crate) mod step;

#[cfg(test)]
mod tests;
