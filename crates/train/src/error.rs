//! Why a head cannot be trained. Every message is one line.

use std::io;
use std::path::{Path, PathBuf};

use selfspec_model::TokenId;

/// Why a head cannot be trained.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// No text has an answer to learn from.
    #[error("no text to {purpose}: none of {texts} has two tokens, the last of them of an answer")]
    NoText {
        /// What it was wanted for.
        purpose: &'static str,
        /// Texts that there are.
        texts: usize,
    },
    /// Texts without enough tokens to train on some and to judge by others.
    #[error(
        "nothing to train on: the texts have {tokens} tokens, and spans of {len} leave no two of two tokens or more"
    )]
    NoSpan {
        /// Tokens that there are.
        tokens: usize,
        /// Tokens of a span.
        len: usize,
    },
    /// A family of models whose training is not computed here.
    #[error("models of this kind ({family}) cannot be trained: {why}")]
    Family {
        /// Its name.
        family: &'static str,
        /// What is not covered.
        why: &'static str,
    },
    /// A value that its type cannot hold.
    #[error("`{tensor}` has the value {value}, which {ty} cannot hold")]
    Value {
        /// The tensor.
        tensor: String,
        /// The value.
        value: f32,
        /// The type that it is written in.
        ty: &'static str,
    },
    /// A token that the model lacks.
    #[error("text {text}: token {token} is not in a vocabulary of {vocab}")]
    UnknownToken {
        /// Number of the text, counted from 0.
        text: usize,
        /// The token.
        token: TokenId,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// A line of a file of texts is no text.
    #[error("{}, line {line}: {why}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// An option has a value that cannot be.
    #[error("{field}: {why}")]
    Option {
        /// The option.
        field: &'static str,
        /// What is wrong with it, with the value.
        why: String,
    },
    /// The source of hidden states failed.
    #[error("hidden states of text {text}: {source}")]
    Source {
        /// Number of the text, counted from 0.
        text: usize,
        /// What it said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The source gave other states than it was asked for.
    #[error("hidden states of text {text} after {layers} layers: expected {expected} values, got {got}")]
    StateCount {
        /// Number of the text, counted from 0.
        text: usize,
        /// Layers that they have passed.
        layers: usize,
        /// Tokens times the model's width.
        expected: usize,
        /// Values that came.
        got: usize,
    },
    /// A hidden state is not finite.
    #[error("hidden states of text {text} after {layers} layers: one at position {position} is not finite")]
    StateNotFinite {
        /// Number of the text, counted from 0.
        text: usize,
        /// Layers that it has passed.
        layers: usize,
        /// Its position.
        position: usize,
    },
    /// A file was made for something else.
    #[error("{}: it was made for another {what} ({theirs}, now {ours})", path.display())]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// What differs.
        what: &'static str,
        /// What the file has.
        theirs: String,
        /// What is at hand.
        ours: String,
    },
    /// A file is not what it must be.
    #[error("{}: {why}", path.display())]
    BadFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A file ends early.
    #[error("{}: it ends after {got} bytes, expected {expected}", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Bytes that it must have.
        expected: u64,
        /// Bytes that it has.
        got: u64,
    },
    /// The disk is full.
    #[error("disk full while writing {}", path.display())]
    DiskFull {
        /// What was being written.
        path: PathBuf,
    },
    /// Any other fault of the file system.
    #[error("cannot {verb} {}: {source}", path.display())]
    Io {
        /// What was tried.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Too many batches one after the other gave a loss or a gradient that is not finite.
    #[error(
        "the loss of {batches} batches in a row is not finite, up to step {step}; the last good state is that before them"
    )]
    Diverged {
        /// Batches in a row.
        batches: usize,
        /// The step of the last of them.
        step: usize,
    },
    /// A matrix does not divide into blocks.
    #[error("`{tensor}` has rows of {cols} values, which are no whole number of blocks of {block}; BF16 has no blocks")]
    Blocks {
        /// The tensor.
        tensor: &'static str,
        /// Values in its rows.
        cols: usize,
        /// Values in a block.
        block: usize,
    },
}

impl TrainError {
    /// A fault of the file system, while someone tried to `verb` this path.
    pub(crate) fn io(verb: &'static str, path: &Path) -> impl FnOnce(io::Error) -> TrainError {
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => TrainError::DiskFull { path: path.to_owned() },
            _ => TrainError::Io { verb, path: path.to_owned(), source },
        }
    }

    /// A file that is not what it must be.
    pub(crate) fn bad(path: &Path, why: impl ToString) -> TrainError {
        TrainError::BadFile { path: path.to_owned(), why: why.to_string() }
    }
}
