//! The input of matrix products: rows as floats and as 8-bit blocks.

mod blocks;
mod quantize;
mod rows;

pub(crate) use blocks::{BLOCK, BlockPtrs, NEG_HALF, NEG_SUM};
pub use rows::Activations;
pub(crate) use rows::FillShape;
