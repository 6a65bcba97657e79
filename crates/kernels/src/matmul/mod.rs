//! Matrix products: rows of activations by weights packed in panels.
//!
//! A weight matrix is packed once into panels of 16 output rows (`panel`, `pack`, `store`), in the
//! layout of its format (`layout`). A kernel multiplies one panel by a tile of rows (`tile`); it is
//! generic over the format and the instruction set, whose byte products are in one file for each
//! set. [`crate::Compute::matmul`] spreads the panels over the team (`multiply`).

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod bytes;
mod layout;
mod multiply;
#[cfg(target_arch = "aarch64")]
mod neon;
mod pack;
mod panel;
mod q8_0;
mod scalar;
mod store;
mod tile;

pub(crate) use layout::PANEL;
pub use multiply::MatrixProduct;
pub(crate) use multiply::{panel_tile, parts_for};
pub use panel::PanelMatrix;
pub use q8_0::write_q8_0;
pub(crate) use store::WeightMemory;
pub(crate) use tile::{AHEAD, FAR_AHEAD, FAR_STEP};
