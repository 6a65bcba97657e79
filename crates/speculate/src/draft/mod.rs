//! Ways to draft, one file each.

pub(crate) mod drafter;
pub(crate) mod grammar;
pub(crate) mod layers;
pub(crate) mod path;
pub(crate) mod prediction;
pub(crate) mod prompt_lookup;
