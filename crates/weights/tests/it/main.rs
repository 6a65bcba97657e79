//! Tests of the weights crate through its public interface, in one program: linking takes most of the time.

mod damage;
mod folder;
mod gguf;
mod real_model;
mod shards;
mod writers;
