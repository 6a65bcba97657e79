//! Instruction sets and their vectors.

mod dot;
mod isa;
mod lanes;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(crate) use dot::Simd;
pub use isa::Isa;
#[cfg(target_arch = "x86_64")]
pub(crate) use lanes::{Avx2, Avx512};
pub(crate) use lanes::{Lanes, MAGIC, Scalar, exp_of_negative, map_into, per_isa, reciprocal, tanh};
