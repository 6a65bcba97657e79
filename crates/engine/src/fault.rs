//! Faults that can be planted in an engine, to show that a diagnosis finds them.

use selfspec_model::Row;

/// A fault planted in an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineFault {
    /// A fault of the backend.
    Backend(selfspec_model::BackendFault),
    /// The time of draft steps is recorded as half, so the cost model's c is half of the real one.
    DraftCost,
}

impl EngineFault {
    /// The fault of the backend, if it is one.
    pub(crate) fn of_backend(self) -> Option<selfspec_model::BackendFault> {
        match self {
            EngineFault::Backend(fault) => Some(fault),
            EngineFault::DraftCost => None,
        }
    }
}

/// Seconds that an engine with this fault books for a step of `rows` that took `seconds`.
pub fn believed_seconds(fault: Option<EngineFault>, rows: &[Row], seconds: f64) -> f64 {
    let drafts = || rows.iter().any(|row| !row.plan.is_full());
    if fault == Some(EngineFault::DraftCost) && drafts() { seconds / 2.0 } else { seconds }
}
