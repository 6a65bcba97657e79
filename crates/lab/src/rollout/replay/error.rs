//! Why a record cannot be replayed.

/// Why a record cannot be replayed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The record has no prompts.
    #[error("its {requests} requests were recorded without their prompts")]
    NoPrompts {
        /// Requests of the record.
        requests: usize,
    },
    /// A request's path is none of the API.
    #[error("request {id:?}: {path:?} is no path to answers")]
    Path {
        /// The request's id.
        id: String,
        /// The path.
        path: String,
    },
    /// The server's address is none.
    #[error("{url}: expected an address like http://127.0.0.1:8080")]
    Url {
        /// The address.
        url: String,
    },
}
