//! Attention over paged keys and values.
//!
//! `pages` is the memory of the KV cache, `kv_type` its number types. `attend` spreads the work of
//! a step over the team, `tile` computes a few queries against one block of positions.

mod attend;
mod kv_type;
mod pages;
mod tile;

pub use attend::AttentionRow;
pub use kv_type::KvType;
pub use pages::{KvError, KvPages, PAGE_POSITIONS};
