//! One decoder layer in training: its shape, its weights, its pass over many rows and the gradient.

pub(crate) mod attention;
pub(crate) mod decoder;
pub(crate) mod layout;
pub(crate) mod rotary;
pub(crate) mod shape;
pub(crate) mod span;
pub(crate) mod weights;
