//! Instruction sets and the one vector abstraction of the kernels.
//!
//! A kernel is written once, generic over [`Lanes`], and compiled once for each instruction set, by
//! [`per_isa!`] or by a function of its own with the set's target features. Matrix products need
//! integers and bytes as well: their trait, `ByteLanes` in `matmul/`, adds these to the same types.
//!
//! Invariant: a value of a type that implements [`Lanes`] proves that the processor has its
//! instructions. So operations on registers are safe functions. Only functions that are compiled
//! for the instruction set make such a value.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod dispatch;
mod isa;
mod lanes;
mod math;
#[cfg(target_arch = "aarch64")]
mod neon;
mod prefetch;
mod scalar;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
pub(crate) use dispatch::per_isa;
pub use isa::Isa;
pub(crate) use lanes::{Lanes, MAGIC};
pub(crate) use math::{exp_of_negative, largest_magnitude, map_into, reciprocal};
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon;
pub(crate) use prefetch::{prefetch, prefetch_far};
pub(crate) use scalar::Scalar;
