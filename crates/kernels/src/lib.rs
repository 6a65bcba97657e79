//! Row-invariant arithmetic on slices: matrix products over packed weights, attention, norms, and the worker team.
//!
//! **Row invariance.** The bits of an output row depend only on its own input row and the weights: never on the number of
//! rows in a call, their order, or the number of threads. Every reduction runs in one fixed order; work is split by output
//! rows, never inside a reduction. Across instruction sets results agree within rounding.
//!
//! [`Compute`] is the entry: an instruction set and a worker team. All public functions are safe.

mod activations;
mod attention;
mod attention_tile;
mod bandwidth;
mod compute;
mod elementwise;
mod error;
mod format;
mod gated;
mod isa;
mod kv;
mod kv_type;
mod lanes;
#[cfg(target_arch = "x86_64")]
mod lanes_x86;
mod matmul;
#[cfg(target_arch = "x86_64")]
mod matmul_avx2;
#[cfg(target_arch = "x86_64")]
mod matmul_avx512;
#[cfg(target_arch = "aarch64")]
mod matmul_neon;
mod matmul_scalar;
mod matmul_tile;
mod panel;
mod panel_layout;
mod panel_pack;
mod panel_store;
mod q8_0;
mod quantize;
mod rope;
mod simd;
mod team;

pub use activations::Activations;
pub use attention::AttentionRow;
pub use bandwidth::read_bandwidth;
pub use compute::Compute;
pub use elementwise::rms_norm;
pub use error::KernelError;
pub use format::{Format, Input, Inputs};
pub use gated::GateAct;
pub use isa::Isa;
pub use kv::{KvError, KvPages, PAGE_POSITIONS};
pub use kv_type::KvType;
pub use matmul::MatmulJob;
pub use panel::PanelMatrix;
pub use q8_0::write_q8_0;
pub use rope::{RopeRows, RopeStyle};
pub use team::Team;
