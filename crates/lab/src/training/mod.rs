//! Trainings that need the model's own answers: an exit head, and a model for layer skip.
//!
//! The arithmetic of training is the crate `selfspec-train`'s. Here are its data (answers that the
//! model generates, hidden states that the engine computes), the working folder that keeps them,
//! and the order of the stages. A training reports through [`TrainingControl`], which can also stop
//! it.

mod answers;
mod control;
mod documents;
mod error;
mod head;
mod layer_skip;
mod own_prompts;
mod states;
mod work_folder;

pub use control::{StopSignal, TrainingControl, TrainingNote};
pub use error::{TrainingError, TrainingUnit};
pub use head::{HeadTrainingOptions, TrainedHead, train_head};
pub use layer_skip::{LayerSkipOptions, LayerSkipReport, train_layer_skip};
pub use work_folder::WorkFolder;
