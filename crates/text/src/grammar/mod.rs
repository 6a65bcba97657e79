//! Grammars that a generated text must keep to: JSON schemas, regular expressions and Lark
//! grammars, over the tokens of a vocabulary.

pub(crate) mod check;
pub(crate) mod compile;
mod intersections;
pub(crate) mod source;
pub(crate) mod state;
