//! Early exits that a caller names by their layer.

use selfspec_model::LayerPlan;

/// An exit layer that does not fit a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.why())]
pub struct ExitLayerError {
    /// The layer asked for.
    pub exit: usize,
    /// Layers of the model.
    pub n_layers: usize,
}

impl ExitLayerError {
    fn why(&self) -> String {
        let has = format!("the model has {} layers", self.n_layers);
        match self.exit {
            0 => "no layer is left to run".to_owned(),
            exit if exit == self.n_layers => format!("{has}, an exit there skips none"),
            _ => has,
        }
    }
}

/// The plan that leaves the model after layers `0..exit`; one at the end of the model skips nothing
/// and is refused.
///
/// # Errors
/// The model has no such exit.
pub fn exit_plan(n_layers: usize, exit: usize) -> Result<LayerPlan, ExitLayerError> {
    let plan = LayerPlan::exit(n_layers, exit).ok().filter(|plan| !plan.is_full());
    plan.ok_or(ExitLayerError { exit, n_layers })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_lies_within_the_model() {
        assert_eq!(exit_plan(6, 5).map(|plan| plan.cost_layers()), Ok(5));
        let why = |exit| exit_plan(6, exit).expect_err("no exit").to_string();
        assert_eq!(why(0), "no layer is left to run");
        assert_eq!(why(6), "the model has 6 layers, an exit there skips none");
        assert_eq!(why(7), "the model has 6 layers");
    }
}
