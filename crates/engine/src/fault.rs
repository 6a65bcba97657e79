//! Faults that can be planted, so that a diagnosis can be seen to find them.

use selfspec_model::Row;

/// What an engine does wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineFault {
    /// The backend does.
    Backend(selfspec_model::BackendFault),
    /// Steps that draft are taken to cost half of what they do, so that the engine believes in a c
    /// that is half of what it is.
    DraftCost,
}

impl EngineFault {
    /// What the backend is to do wrong.
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
