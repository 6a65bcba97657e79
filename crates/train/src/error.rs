//! [`TrainError`]: why a training failed. Every message is one line.

use std::io;
use std::path::{Path, PathBuf};

use selfspec_model::TokenId;

/// Why a training failed.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// No text has an answer to learn from.
    #[error("no text to {purpose}: none of {texts} has two tokens, the last of them of an answer")]
    NoText {
        /// The purpose of the texts.
        purpose: &'static str,
        /// Number of texts.
        texts: usize,
    },
    /// The texts have too few tokens to train on some and evaluate on others.
    #[error(
        "nothing to train on: the texts have {tokens} tokens, and spans of {len} leave no two of two tokens or more"
    )]
    NoSpan {
        /// Number of tokens.
        tokens: usize,
        /// Tokens of a span.
        len: usize,
    },
    /// This family of models cannot be trained.
    #[error("models of this kind ({family}) cannot be trained: {why}")]
    Family {
        /// Its name.
        family: &'static str,
        /// The unsupported feature.
        why: &'static str,
    },
    /// A value is out of range for its type.
    #[error("`{tensor}` has the value {value}, which {ty} cannot hold")]
    Value {
        /// The tensor.
        tensor: String,
        /// The value.
        value: f32,
        /// The type of the file.
        ty: &'static str,
    },
    /// A token is not in the model's vocabulary.
    #[error("text {text}: token {token} is not in a vocabulary of {vocab}")]
    UnknownToken {
        /// Number of the text, counted from 0.
        text: usize,
        /// The token.
        token: TokenId,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// A line of a file of texts is malformed.
    #[error("{}, line {line}: {why}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// An option is out of its range.
    #[error("{field}: {why}")]
    Option {
        /// The option.
        field: &'static str,
        /// The problem, with the value.
        why: String,
    },
    /// The source of hidden states failed.
    #[error("hidden states of text {text}: {source}")]
    Source {
        /// Number of the text, counted from 0.
        text: usize,
        /// Its error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The source returned a wrong number of values.
    #[error("hidden states of text {text} after {layers} layers: expected {expected} values, got {got}")]
    StateCount {
        /// Number of the text, counted from 0.
        text: usize,
        /// Layers before the states.
        layers: usize,
        /// Tokens times the model's width.
        expected: usize,
        /// Number of values.
        got: usize,
    },
    /// A hidden state is not finite.
    #[error("hidden states of text {text} after {layers} layers: one at position {position} is not finite")]
    StateNotFinite {
        /// Number of the text, counted from 0.
        text: usize,
        /// Layers before the state.
        layers: usize,
        /// Its position.
        position: usize,
    },
    /// A file belongs to another training, model or corpus.
    #[error("{}: it was made for another {what} ({theirs}, now {ours})", path.display())]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// What differs.
        what: &'static str,
        /// The value in the file.
        theirs: String,
        /// The value of this training.
        ours: String,
    },
    /// A file is malformed.
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
        /// The file being written.
        path: PathBuf,
    },
    /// Any other error of the file system.
    #[error("cannot {verb} {}: {source}", path.display())]
    Io {
        /// The attempted operation.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Too many batches in a row gave a loss or a gradient that is not finite.
    #[error(
        "the loss of {batches} batches in a row is not finite, up to step {step}; the last good state is that before them"
    )]
    Diverged {
        /// Batches in a row.
        batches: usize,
        /// The step of the last of them.
        step: usize,
    },
    /// The length of a matrix row is not a multiple of the block length.
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
    /// Wraps an error of the file system during the operation `verb` on this path.
    pub(crate) fn io(verb: &'static str, path: &Path) -> impl FnOnce(io::Error) -> TrainError {
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => TrainError::DiskFull { path: path.to_owned() },
            _ => TrainError::Io { verb, path: path.to_owned(), source },
        }
    }

    /// A malformed file.
    pub(crate) fn bad(path: &Path, why: impl ToString) -> TrainError {
        TrainError::BadFile { path: path.to_owned(), why: why.to_string() }
    }
}
