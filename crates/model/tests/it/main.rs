//! Tests of the model crate through its public interface.

mod bad_models;
mod executor;
mod exit_head;
mod faults;
mod forward;
mod golden;
mod support;
mod tiny_models;
