//! Trains a whole model to leave early: layer dropout and early-exit losses, beside the usual loss of the next token.
//!
//! **What a step does.** A batch of spans of tokens goes through the model. For each span and layer it is drawn whether the layer runs ([`Course`]):
//! the layers that are left out are passed by, so that later layers learn to work without them. The loss is the cross-entropy of the next token after
//! all layers, and that of some exits: the model's own final norm and head on the state after the exit's layers. Then the gradient, clipped, and AdamW.
//!
//! It is Stochastic Depth (Huang et al. 2016, "Deep Networks with Stochastic Depth") on a decoder, with deep supervision through one shared head (as
//! LayerSkip, Elhoushi et al. 2024, describes both for language models).
//!
//! With no dropout and no exit loss it is plain training on the same tokens in the same order.

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
pub use perplexity::{Perplexities, Reading};
pub use report::{BackboneEvent, BackboneStep};
pub use spans::Spans;
pub use trainer::BackboneTrainer;
