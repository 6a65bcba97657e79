//! Trains a whole model for early exit: layer dropout and early-exit losses, beside the usual loss
//! of the next token.
//!
//! **A step.** A batch of spans of tokens goes through the model. For each span and layer a random
//! draw decides whether the layer runs (`course`). The hidden state bypasses a skipped layer, so
//! later layers learn to work without it. The loss is the cross-entropy of the next token after all
//! layers, plus that of the exits: the model's own final norm and head on the state after the
//! exit's layers. Then follow the gradient, clipping, and AdamW.
//!
//! This is Stochastic Depth (Huang et al. 2016, "Deep Networks with Stochastic Depth") on a
//! decoder, with deep supervision through one shared head. LayerSkip (Elhoushi et al. 2024)
//! describes both for language models.
//!
//! Without dropout and exit loss it is plain training on the same tokens in the same order.

mod course;
mod file;
mod options;
mod pass;
mod perplexity;
mod readout;
mod report;
mod spans;
mod tensors;
mod trainer;
mod weights;

#[cfg(test)]
mod gradient_tests;
#[cfg(test)]
mod reference;

pub use course::Curriculum;
pub use options::{BackboneOptions, BackboneRun};
pub use perplexity::{ExitPerplexity, Perplexities};
pub use report::{BackboneEvent, BackboneStep};
pub use spans::TokenSpans;
pub use trainer::BackboneTrainer;
