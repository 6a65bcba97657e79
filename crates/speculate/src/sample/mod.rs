//! From a row of logits to a token: the request's transforms, the random numbers, and the rules
//! that accept or reject drafts.

pub(crate) mod constraint;
pub(crate) mod distribution;
pub(crate) mod history;
pub(crate) mod logprob;
pub(crate) mod noise;
pub(crate) mod params;
pub(crate) mod sampler;
pub(crate) mod sequence_sampler;
pub(crate) mod softmax;
pub(crate) mod truncation;
pub(crate) mod wide;
