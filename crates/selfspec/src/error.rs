//! What can go wrong, with the facts.

use std::path::{Path, PathBuf};

use selfspec_engine::EngineError;
use selfspec_hub::HubError;
use selfspec_text::TextError;

use crate::speculation::SpeculationError;

/// Why a model cannot be opened, or a request cannot be answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name leads to no model: unknown, not in the cache, or no source has it.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The files hold no model that can be run.
    #[error("{}", load_message(path, source))]
    Load {
        /// The model's file or folder.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<EngineError>,
    },
    /// The engine cannot start, it refuses the request, or the request failed.
    #[error(transparent)]
    Engine(Box<EngineError>),
    /// The model cannot draft as it was asked to.
    #[error(transparent)]
    Speculation(#[from] SpeculationError),
    /// The longest sequence that was asked for is longer than the model's own.
    #[error("a context of {context} positions: the model was made for {most}")]
    ContextTooLong {
        /// Positions asked for.
        context: usize,
        /// Positions that the model was made for.
        most: usize,
    },
}

/// The message of [`Error::Load`]. Most causes begin with the path, which is then not repeated.
fn load_message(path: &Path, source: &EngineError) -> String {
    let (path, cause) = (path.display().to_string(), source.to_string());
    if cause.starts_with(&path) { format!("cannot load {cause}") } else { format!("cannot load {path}: {cause}") }
}

impl Error {
    /// The engine's error in it, if there is one.
    pub fn engine(&self) -> Option<&EngineError> {
        match self {
            Error::Engine(error) => Some(error),
            Error::Load { source, .. } => Some(source),
            Error::Hub(_) | Error::Speculation(_) | Error::ContextTooLong { .. } => None,
        }
    }
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        Error::Engine(Box::new(error))
    }
}

impl From<TextError> for Error {
    fn from(error: TextError) -> Self {
        EngineError::from(error).into()
    }
}
