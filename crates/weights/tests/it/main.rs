//! Tests of the weights crate through its public interface.

mod damage;
mod folder;
mod gguf;
mod real_model;
mod shards;
mod writers;
