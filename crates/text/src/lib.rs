//! Contract: see the crate's description in Cargo.toml.
