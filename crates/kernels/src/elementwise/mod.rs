//! Operations on each row alone: norms, rotary embedding, gated activations.

mod gated;
mod norm;
mod rope;

pub use gated::GateActivation;
pub use norm::rms_norm;
pub use rope::{RopeRows, RopeStyle};
