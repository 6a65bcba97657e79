//! What is measured and proved on the user's machine: losslessness, speed, and where time goes.
//!
//! Each part takes plain options and a running model, tells its progress through [`StageProgress`], and returns data.
//! Nothing here prints, and nothing here ends the process.
#![forbid(unsafe_code)]

mod error;
pub mod measure;
mod progress;
pub mod prompts;
pub mod statistics;

pub use error::LabError;
pub use progress::{LabNote, StageProgress};
