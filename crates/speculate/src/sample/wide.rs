//! Loops over a vocabulary, compiled once more for the processor's wider vectors.
//!
//! The plain build is for any x86-64, with vectors of 4 floats. Over 49,000 or 262,000 tokens that
//! takes a tenth of a small model's pass. The same plain Rust, inlined into a function that is
//! compiled for AVX2 or AVX-512, takes less than half of it. Nothing is reordered or contracted, so
//! that the bits are the same on every processor.

use pulp::{Arch, NullaryFnOnce};

/// Runs the loop in the widest vectors of this processor. Its `call` must be `#[inline(always)]`:
/// code that is not inlined is compiled for any processor.
#[inline(never)]
pub(crate) fn wide<L: NullaryFnOnce>(vocabulary_loop: L) -> L::Output {
    Arch::new().dispatch(vocabulary_loop)
}
