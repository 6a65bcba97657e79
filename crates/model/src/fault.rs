//! Faults that can be planted, so that a diagnosis can be seen to find them.

/// What a backend does wrong on purpose. Both are faults that implementations of layer skip really have; without one planted they cost a
/// comparison a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Rows that draft reach their head without the norm before it.
    ExitNorm,
    /// A rollback leaves one position too many.
    Rollback,
}
