//! Products of dense f32 matrices, for training: many rows at a time, without quantisation.
//!
//! Row invariance holds here too: a row of a product has the same bits whatever the number of rows.

mod packed;
mod product;

pub use packed::{MatrixView, PackedMatrix, PackedPart};
pub use product::{Accumulate, ProductScratch, multiply};
