//! No golden pairs yet.
