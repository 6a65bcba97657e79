//! Why a server cannot start or go on.

use std::net::SocketAddr;
use std::path::PathBuf;

use selfspec::SpeculationError;

/// Why a server cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The server cannot listen on the address.
    #[error("cannot listen on {addr}: {source}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file of the record cannot be opened.
    #[error("cannot record to {}: {source}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// An origin is malformed.
    #[error("{origin:?} is not an origin: expected one like https://example.org, or *")]
    Origin {
        /// As it was given.
        origin: String,
    },
    /// The model's tuning does not fit the model.
    #[error(transparent)]
    Tuning(SpeculationError),
    /// The runtime or the socket failed while the server ran.
    #[error("the server ended: {0}")]
    Io(#[from] std::io::Error),
}
