//! The engine from outside: over backends whose output is known, over backends that fail, and over
//! tiny models.

mod batching;
mod common;
mod faults;
mod grammar;
mod opening;
mod real_model;
mod sinks;
mod stopping;
