//! Runs a generation request: encodes its prompt, compiles its grammar, submits it, and has the
//! events written as an answer or a stream.

mod events;
mod grammar;
mod pieces;
pub(crate) mod prompt;
mod run;
mod stream;
mod whole;
pub(crate) mod writer;

pub(crate) use pieces::OutputPiece;
pub(crate) use run::generate;
