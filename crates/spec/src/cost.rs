//! What steps cost, learnt from the times that the engine measures.

use selfspec_model::{LayerPlan, Row};

/// Measured step times by kind of step. The engine records, speculation decides.
#[derive(Debug, Clone, Default)]
pub struct CostModel {}

impl CostModel {
    /// A model that has seen nothing and answers from its priors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes note of one step of `rows` that took `seconds`.
    pub fn record(&mut self, _rows: &[Row], _seconds: f64) {}

    /// Seconds of a plain decoding step of one row; `None` until measured.
    pub fn plain(&self) -> Option<f64> {
        None
    }

    /// Seconds of a pass of the full model over `m` rows; `None` until measured.
    pub fn pass(&self, _m: usize) -> Option<f64> {
        None
    }

    /// Seconds of one draft step of `plan`; `None` until measured.
    pub fn draft(&self, _plan: &LayerPlan) -> Option<f64> {
        None
    }
}
