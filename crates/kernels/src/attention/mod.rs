//! Attention over paged keys and values, and the pages themselves.

mod attend;
mod kv_type;
mod pages;
mod tile;

pub use attend::AttentionRow;
pub use kv_type::KvType;
pub use pages::{KvError, KvPages, PAGE_POSITIONS};
