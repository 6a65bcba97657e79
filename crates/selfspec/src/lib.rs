//! Run language models with lossless self-speculative decoding: a model's name or path to a running engine.
#![forbid(unsafe_code)]
