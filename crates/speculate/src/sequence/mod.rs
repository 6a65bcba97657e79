//! One sequence, from its prompt to its end: what it is, its limits, its rounds.

pub(crate) mod limits;
pub(crate) mod params;
pub(crate) mod rounds;
pub(crate) mod row_chooser;
pub(crate) mod state;
