//! Row-invariant arithmetic on slices: matrix products over packed weights, attention, norms, and
//! the worker team.
//!
//! **Row invariance.** The bits of an output row depend only on its own input row and the weights:
//! never on the number of rows in a call, their order, or the number of threads. Every reduction
//! runs in one fixed order. Work is split by output rows, never inside a reduction. Across
//! instruction sets results agree within rounding.
//!
//! [`Compute`] is the entry: an instruction set and a worker team. All public functions are safe.
//!
//! | module | holds |
//! |---|---|
//! | `simd` | instruction sets and vectors |
//! | `team` | the worker team |
//! | `activations` | the input of matrix products |
//! | `matmul` | weights in panels and their products |
//! | `attention` | the KV pages and attention over them |
//! | `elementwise` | norms, rotary embedding, gated activations |
//! | [`dense`] | products of f32 matrices, for training |

mod activations;
mod attention;
mod bandwidth;
mod compute;
pub mod dense;
mod elementwise;
mod error;
mod format;
mod matmul;
mod simd;
mod team;

pub use activations::Activations;
pub use attention::{AttentionRow, KvError, KvPages, KvType, PAGE_POSITIONS};
pub use bandwidth::read_bandwidth;
pub use compute::Compute;
pub use elementwise::{GateActivation, RopeRows, RopeStyle, rms_norm};
pub use error::KernelError;
pub use format::{InputForm, InputForms, WeightFormat};
pub use matmul::{MatrixProduct, PanelMatrix, write_q8_0};
pub use simd::Isa;
pub use team::Team;
