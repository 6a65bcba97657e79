//! Attention over paged keys and values, and the pages themselves.

mod kv_type;
mod pages;
mod split;
mod tile;

pub use kv_type::KvType;
pub use pages::{KvError, KvPages, PAGE_POSITIONS};
pub use split::AttentionRow;
