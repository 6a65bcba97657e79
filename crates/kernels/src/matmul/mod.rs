//! Matrix products: rows of activations by weights packed in panels.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod layout;
#[cfg(target_arch = "aarch64")]
mod neon;
mod pack;
mod panel;
mod product;
mod q8_0;
mod scalar;
mod store;
mod tile;

pub(crate) use layout::PANEL;
pub use panel::PanelMatrix;
pub use product::MatmulJob;
pub(crate) use product::{panel_tile, parts_for, tile_rows};
pub use q8_0::write_q8_0;
pub(crate) use store::Storage;
#[cfg(target_arch = "x86_64")]
pub(crate) use tile::{AHEAD, FAR_AHEAD, FAR_STEP};
