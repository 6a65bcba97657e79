//! Faults that can be planted in a backend, to show that a diagnosis finds them.

/// A fault planted in a backend. Both kinds occur in real implementations of layer skip. Without
/// one planted, they cost one comparison a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendFault {
    /// Draft rows reach their head without the norm before it.
    ExitNorm,
    /// A roll-back leaves one position too many.
    Rollback,
}
