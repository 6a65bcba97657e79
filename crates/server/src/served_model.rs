//! The served model, as far as parsing a request needs to know it.

use selfspec_engine::{Engine, EngineError};
use selfspec_speculate::SpeculationParams;

/// What the fields of a request are checked against.
#[derive(Debug, Clone)]
pub struct ServedModel {
    /// Its name in the API.
    pub id: String,
    /// Number of token ids.
    pub vocab: usize,
    /// Number of layers.
    pub n_layers: usize,
    /// Speculation of requests that do not choose their own: that of the model's tuning, else the default.
    pub speculation: SpeculationParams,
}

impl ServedModel {
    /// The model of an engine, under this name.
    ///
    /// # Errors
    /// The model's tuning does not fit the model.
    pub fn new(engine: &Engine, id: &str) -> Result<Self, EngineError> {
        let n_layers = engine.n_layers();
        let speculation = match engine.loaded().and_then(|loaded| loaded.tuning()) {
            Some(tuning) => tuning.speculation(n_layers)?,
            None => SpeculationParams::default(),
        };
        Ok(ServedModel { id: id.to_owned(), vocab: engine.info().vocab, n_layers, speculation })
    }
}
