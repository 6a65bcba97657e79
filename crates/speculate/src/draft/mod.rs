//! Ways to draft, one file a drafter. `kind.rs` names them and `registry.rs` makes them.

pub(crate) mod drafter;
pub(crate) mod grammar;
pub(crate) mod kind;
pub(crate) mod model_layers;
pub(crate) mod params;
pub(crate) mod path;
pub(crate) mod prediction;
pub(crate) mod prompt_lookup;
pub(crate) mod registry;
