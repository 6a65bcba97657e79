//! Loops over rows of floats that both trainers use, and random numbers.

pub(crate) mod buffers;
pub(crate) mod gate;
pub(crate) mod norm;
pub(crate) mod random;
pub(crate) mod wide;
