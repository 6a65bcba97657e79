//! What can go wrong in a measurement or a proof, with the facts.

use selfspec_engine::EngineError;

/// Why a measurement or a proof has no result.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The engine refused or failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl LabError {
    /// The engine's error behind this one, if there is one.
    pub fn engine(&self) -> Option<&EngineError> {
        match self {
            LabError::Engine(error) => Some(error),
        }
    }
}
