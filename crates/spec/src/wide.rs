//! Loops over a vocabulary, compiled once more for the processor's wider vectors.
//!
//! The plain build is for any x86-64, with vectors of 4 floats; over 49,000 or 262,000 tokens that is a tenth of a small model's pass.
//! The same plain Rust, inlined into a function that is compiled for AVX2 or AVX-512, takes less than half. Nothing is reordered or contracted, so
//! the bits are the same on every processor.

use pulp::{Arch, NullaryFnOnce};

/// A loop that is worth it. `run` must be `#[inline(always)]`: what is not inlined is compiled for any processor.
pub(crate) trait Job {
    type Output;
    fn run(self) -> Self::Output;
}

struct Inlined<J>(J);

impl<J: Job> NullaryFnOnce for Inlined<J> {
    type Output = J::Output;

    #[inline(always)]
    fn call(self) -> J::Output {
        self.0.run()
    }
}

/// Runs the job in the widest vectors of this processor.
#[inline(never)]
pub(crate) fn wide<J: Job>(job: J) -> J::Output {
    Arch::new().dispatch(Inlined(job))
}
