//! What can go wrong in a training, with the facts.

use std::path::{Path, PathBuf};

use selfspec_engine::EngineError;
use selfspec_hub::HubError;
use selfspec_text::TextError;
use selfspec_train::TrainError;

use crate::prompts::PromptsError;

/// Why a training has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainingError {
    /// The caller stopped it. The same call continues from there.
    #[error("stopped after {}", unit.words(*done, *of))]
    Stopped {
        /// Units that are done and kept.
        done: usize,
        /// Units in all.
        of: usize,
        /// What is counted.
        unit: TrainingUnit,
    },
    /// Another run works in the folder.
    #[error("{}: another run is working in it", folder.display())]
    WorkFolderInUse {
        /// The working folder.
        folder: PathBuf,
    },
    /// A file in the working folder belongs to another run, or is damaged.
    #[error("{}: {why}", path.display())]
    Stale {
        /// The file.
        path: PathBuf,
        /// How it differs.
        why: String,
    },
    /// An option does not fit the model.
    #[error("--{option} {value}: {why}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// Its value.
        value: usize,
        /// Why it cannot be used.
        why: String,
    },
    /// A file of texts cannot be used.
    #[error("{place}: {why}")]
    Text {
        /// The file, with the line or byte.
        place: String,
        /// What is wrong there.
        why: String,
    },
    /// The model has no tokenizer.
    #[error("the model has no tokenizer, so that it cannot read text")]
    NoTokenizer,
    /// The model is to write prompts, and has no chat template.
    #[error("the model has no chat template, so that it cannot write prompts: give it some with --prompts")]
    NoChatTemplate,
    /// There are no prompts.
    #[error("no prompts: --prompts names a file of them, --own-prompts has the model write some")]
    NoPrompts,
    /// No answer has a token to learn from.
    #[error("the model answered nothing that could be learned from")]
    NoAnswers,
    /// A file cannot be read or written.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// `read`, `write` or `make the folder`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The model cannot be loaded.
    #[error("cannot load {}", path.display())]
    Load {
        /// The model.
        path: PathBuf,
        /// Why.
        source: Box<EngineError>,
    },
    /// The tokenizer refuses a text.
    #[error("{place}")]
    Tokenizer {
        /// The file and the line.
        place: String,
        /// Why.
        source: TextError,
    },
    /// The prompts cannot be used.
    #[error(transparent)]
    Prompts(#[from] PromptsError),
    /// The engine refused or failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The training itself failed.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// The working folder cannot be locked.
    #[error(transparent)]
    Lock(#[from] HubError),
}

/// What a stage of a training counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrainingUnit {
    /// Answers that the model generates.
    Answers,
    /// Answers whose hidden states are computed.
    States,
    /// Steps of the training.
    Steps,
}

impl TrainingUnit {
    fn words(self, done: usize, of: usize) -> String {
        match self {
            TrainingUnit::Answers => format!("{done} of {of} answers"),
            TrainingUnit::States => format!("the hidden states of {done} of {of} answers"),
            TrainingUnit::Steps => format!("step {done} of {of}"),
        }
    }
}

impl TrainingError {
    pub(super) fn io(action: &'static str, path: &Path) -> impl Fn(std::io::Error) -> TrainingError {
        let path = path.to_owned();
        move |source| TrainingError::Io { action, path: path.clone(), source }
    }
}
