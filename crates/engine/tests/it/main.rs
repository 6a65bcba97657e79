//! The engine from outside: over backends whose output is known, over backends that fail, and over tiny models.

mod batching;
mod common;
mod faults;
mod opening;
mod real_model;
mod sinks;
mod stopping;
