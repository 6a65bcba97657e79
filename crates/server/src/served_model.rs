//! The served model, as far as parsing a request needs to know it.

use selfspec::{SpeculationError, SpeculationRequest};
use selfspec_engine::{Engine, Tuning};
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
    /// What `selfspec tune` found for it.
    pub tuning: Option<Tuning>,
}

impl ServedModel {
    /// The model of an engine, under this name.
    ///
    /// # Errors
    /// The model's tuning does not fit the model.
    pub fn new(engine: &Engine, id: &str) -> Result<Self, SpeculationError> {
        let tuning = engine.loaded().and_then(|loaded| loaded.tuning()).cloned();
        let (n_layers, vocab) = (engine.n_layers(), engine.info().vocab);
        let model = ServedModel { id: id.to_owned(), vocab, n_layers, tuning };
        model.speculation(&SpeculationRequest::default())?;
        Ok(model)
    }

    /// The speculation of a request that asks for `request`.
    ///
    /// # Errors
    /// It does not fit the model.
    pub fn speculation(&self, request: &SpeculationRequest) -> Result<SpeculationParams, SpeculationError> {
        request.resolve(self.n_layers, self.tuning.as_ref())
    }
}
