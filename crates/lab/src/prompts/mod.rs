//! Prompt sets: what their files hold, how prompts are given to a model, and the set that this
//! program brings.

mod case;
mod parse;
mod sets;
mod style;

pub use case::PromptCase;
pub use parse::{PromptsError, parse};
pub use sets::{COPYING, built_in, load, one_of_each, spread};
pub use style::PromptStyle;
