//! The binary from outside: help, errors, exit codes, and every subcommand on tiny models.

mod ab;
mod bench;
mod bench_serve;
mod doctor;
mod errors;
mod help;
mod layer_skip;
mod models;
mod real_model;
mod replay;
mod run;
mod serve;
mod support;
mod train;
mod tune;
mod verify;
