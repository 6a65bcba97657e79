//! How a request drafts: what the caller asks for, what `tune` found, and what the model brings, in
//! that order. The command line, the server and other programs all decide it here.
//!
//! A choice changes the speed and never the output.

use std::fmt;
use std::ops::Range;

use selfspec_engine::Tuning;
use selfspec_model::{LayerPlan, PlanError};
use selfspec_speculate::{DraftLen, DrafterChoice, SpeculationParams};

/// A drafter that a caller names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestedDrafter {
    /// Prompt lookup where it matches, else the exit head, or layer skip on a model without one;
    /// whichever is predicted to pay. A tuning is not read.
    Auto,
    /// None: plain decoding.
    Off,
    /// The model's own layers up to an exit, or all but some in the middle.
    LayerSkip,
    /// The exit head, which the model must have.
    ExitHead,
    /// Copies of what followed the same words earlier.
    PromptLookup,
}

impl RequestedDrafter {
    /// All of them.
    pub const ALL: [RequestedDrafter; 5] = [
        RequestedDrafter::Auto,
        RequestedDrafter::Off,
        RequestedDrafter::LayerSkip,
        RequestedDrafter::ExitHead,
        RequestedDrafter::PromptLookup,
    ];

    /// The drafter of a name: `auto`, `off`, `layer-skip`, `exit-head` or `prompt-lookup`.
    pub fn from_name(name: &str) -> Option<RequestedDrafter> {
        Self::ALL.into_iter().find(|drafter| drafter.name() == name)
    }

    /// Its name in flags and requests.
    pub fn name(self) -> &'static str {
        match self {
            RequestedDrafter::Auto => "auto",
            RequestedDrafter::Off => "off",
            RequestedDrafter::LayerSkip => "layer-skip",
            RequestedDrafter::ExitHead => "exit-head",
            RequestedDrafter::PromptLookup => "prompt-lookup",
        }
    }
}

impl fmt::Display for RequestedDrafter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a caller asks of speculation. The default asks for nothing: the model's tuning decides if
/// there is one, else [`RequestedDrafter::Auto`].
///
/// ```
/// use selfspec::{DraftLen, RequestedDrafter, SpeculationRequest};
///
/// let copying = SpeculationRequest {
///     drafter: Some(RequestedDrafter::PromptLookup),
///     draft_len: DraftLen::Fixed(4),
///     ..SpeculationRequest::default()
/// };
/// assert_ne!(copying, SpeculationRequest::off());
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct SpeculationRequest {
    /// The drafter. `None`: layer skip if layers are named; else what the tuning found; else
    /// [`RequestedDrafter::Auto`].
    pub drafter: Option<RequestedDrafter>,
    /// Layer skip with layers `0..exit_layer`. `None` and no `skip_layers`: half of the layers.
    pub exit_layer: Option<usize>,
    /// Layer skip with all layers but these. `exit_layer` wins over it.
    pub skip_layers: Option<Range<usize>>,
    /// How many tokens a round drafts.
    pub draft_len: DraftLen,
    /// Verify one row more than was drafted, for one more token when all drafts are accepted.
    pub bonus: bool,
    /// Drafting stops before a token that is less probable than this in the draft; 0 is off.
    pub min_confidence: f32,
    /// Most of plain decoding's speed that drafting may lose where it does not pay, from 0 to 1.
    /// `None`: a bit more than 0.01.
    pub max_loss: Option<f64>,
    /// Go on drafting where it does not pay: for proofs and measurements.
    pub always: bool,
    /// Latest rounds that the completion's trace keeps; 0 is no trace.
    pub trace: usize,
}

impl Default for SpeculationRequest {
    fn default() -> Self {
        let params = SpeculationParams::default();
        SpeculationRequest {
            drafter: None,
            exit_layer: None,
            skip_layers: None,
            draft_len: params.draft_len,
            bonus: params.bonus,
            min_confidence: params.min_confidence,
            max_loss: params.max_loss,
            always: params.always,
            trace: params.trace,
        }
    }
}

impl SpeculationRequest {
    /// Plain decoding.
    pub fn off() -> Self {
        SpeculationRequest { drafter: Some(RequestedDrafter::Off), ..Self::default() }
    }

    /// The parameters for a model of `n_layers` layers, with its tuning if it has one.
    /// [`Model::speculation`](crate::Model::speculation) fills both in.
    ///
    /// # Errors
    /// Layers that do not fit the model, or that are named for a drafter without layers.
    pub fn resolve(&self, n_layers: usize, tuning: Option<&Tuning>) -> Result<SpeculationParams, SpeculationError> {
        let plan = self.plan(n_layers)?;
        let named = self.drafter.or_else(|| plan.is_some().then_some(RequestedDrafter::LayerSkip));
        let (drafter, auto_plan) = match named {
            None => tuned(n_layers, tuning)?,
            Some(RequestedDrafter::Auto) => (DrafterChoice::Auto, plan),
            Some(RequestedDrafter::LayerSkip) => {
                (DrafterChoice::LayerSkip(plan.map_or_else(|| half(n_layers), Ok)?), None)
            }
            Some(RequestedDrafter::Off) => (DrafterChoice::Off, None),
            Some(RequestedDrafter::ExitHead) => (DrafterChoice::ExitHead, None),
            Some(RequestedDrafter::PromptLookup) => (DrafterChoice::PromptLookup, None),
        };
        Ok(SpeculationParams {
            drafter,
            auto_plan,
            draft_len: self.draft_len,
            bonus: self.bonus,
            min_confidence: self.min_confidence,
            max_loss: self.max_loss,
            always: self.always,
            trace: self.trace,
            ..SpeculationParams::default()
        })
    }

    /// The plan of the layers that are named.
    fn plan(&self, n_layers: usize) -> Result<Option<LayerPlan>, SpeculationError> {
        let plan = match (self.exit_layer, &self.skip_layers) {
            (Some(exit), _) => exit_plan(n_layers, exit)?,
            (None, Some(skip)) => LayerPlan::skip_middle(n_layers, skip.start, skip.end).map_err(|error| {
                let layers = skip.clone();
                match error {
                    PlanError::OutOfRange { .. } => SpeculationError::SkipOutOfRange { layers, n_layers },
                    PlanError::Empty => SpeculationError::NoLayerLeft { layers },
                }
            })?,
            (None, None) => return Ok(None),
        };
        match self.drafter {
            Some(drafter @ (RequestedDrafter::Off | RequestedDrafter::ExitHead | RequestedDrafter::PromptLookup)) => {
                let field = if self.exit_layer.is_some() { "exit_layer" } else { "skip_layers" };
                Err(SpeculationError::NoLayers { field, drafter })
            }
            Some(RequestedDrafter::Auto | RequestedDrafter::LayerSkip) | None => Ok(Some(plan)),
        }
    }
}

/// The plan of an early exit. One at the end of the model skips nothing and is refused.
fn exit_plan(n_layers: usize, exit_layer: usize) -> Result<LayerPlan, SpeculationError> {
    if exit_layer == n_layers {
        return Err(SpeculationError::ExitSkipsNothing { exit_layer, n_layers });
    }
    LayerPlan::exit(n_layers, exit_layer).map_err(|_| SpeculationError::ExitOutOfRange { exit_layer, n_layers })
}

fn half(n_layers: usize) -> Result<LayerPlan, SpeculationError> {
    let exit_layer = (n_layers / 2).max(1);
    LayerPlan::exit(n_layers, exit_layer).map_err(|_| SpeculationError::ExitOutOfRange { exit_layer, n_layers })
}

/// The drafter and the plan that a tuning found, or those of a model that was not tuned.
fn tuned(n_layers: usize, tuning: Option<&Tuning>) -> Result<(DrafterChoice, Option<LayerPlan>), SpeculationError> {
    let Some(tuning) = tuning else { return Ok((DrafterChoice::Auto, None)) };
    let params = tuning.speculation(n_layers);
    let params = params.map_err(|error| SpeculationError::Tuning { why: error.to_string() })?;
    Ok((params.drafter, params.auto_plan))
}

/// Why a model cannot draft as it is asked to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpeculationError {
    /// The exit is not a layer of the model.
    #[error("exit_layer {exit_layer}: the model has {n_layers} layers")]
    ExitOutOfRange {
        /// The exit.
        exit_layer: usize,
        /// Layers of the model.
        n_layers: usize,
    },
    /// The exit is behind the last layer.
    #[error("exit_layer {exit_layer}: the model has {n_layers} layers, an exit there skips none")]
    ExitSkipsNothing {
        /// The exit.
        exit_layer: usize,
        /// Layers of the model.
        n_layers: usize,
    },
    /// The layers to skip are not layers of the model.
    #[error("skip_layers {}..{}: the model has {n_layers} layers", layers.start, layers.end)]
    SkipOutOfRange {
        /// The layers to skip.
        layers: Range<usize>,
        /// Layers of the model.
        n_layers: usize,
    },
    /// The layers to skip are all layers.
    #[error("skip_layers {}..{}: no layer is left to run", layers.start, layers.end)]
    NoLayerLeft {
        /// The layers to skip.
        layers: Range<usize>,
    },
    /// Layers are named for a drafter that runs none of the model's own.
    #[error("{field}: it means nothing to {drafter}")]
    NoLayers {
        /// `exit_layer` or `skip_layers`.
        field: &'static str,
        /// The drafter.
        drafter: RequestedDrafter,
    },
    /// The tuning beside the model does not fit it.
    #[error("{why}")]
    Tuning {
        /// What is wrong with it.
        why: String,
    },
}

impl SpeculationError {
    /// The field of [`SpeculationRequest`] that is at fault; `None` where the tuning is.
    pub fn field(&self) -> Option<&'static str> {
        match self {
            SpeculationError::ExitOutOfRange { .. } | SpeculationError::ExitSkipsNothing { .. } => Some("exit_layer"),
            SpeculationError::SkipOutOfRange { .. } | SpeculationError::NoLayerLeft { .. } => Some("skip_layers"),
            SpeculationError::NoLayers { field, .. } => Some(field),
            SpeculationError::Tuning { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use selfspec_engine::TunedDrafter;

    use super::*;

    const LAYERS: usize = 8;

    fn tuning(drafter: TunedDrafter) -> Tuning {
        Tuning {
            version: Tuning::VERSION,
            model: "tiny".to_owned(),
            fingerprint: "f".to_owned(),
            isa: "scalar".to_owned(),
            threads: 2,
            prompts: "mine.jsonl".to_owned(),
            drafter,
            speedup: 1.5,
            draft_vocab: Vec::new(),
            exit_head: None,
            acceptance: BTreeMap::new(),
            c: None,
        }
    }

    fn exit(layer: usize) -> LayerPlan {
        LayerPlan::exit(LAYERS, layer).expect("a layer of the model")
    }

    #[test]
    fn a_tuning_decides_only_where_no_drafter_and_no_layers_are_named() {
        let skip = tuning(TunedDrafter::LayerSkip { from: 3, to: 8 });
        let tuned = |request: SpeculationRequest| request.resolve(LAYERS, Some(&skip)).expect("fits");
        let nothing = SpeculationRequest { draft_len: DraftLen::Fixed(3), ..SpeculationRequest::default() };
        let params = tuned(nothing.clone());
        assert_eq!((params.drafter, params.auto_plan), (DrafterChoice::Auto, Some(exit(3))));
        assert_eq!(params.draft_len, DraftLen::Fixed(3));
        let auto = SpeculationRequest { drafter: Some(RequestedDrafter::Auto), ..nothing.clone() };
        assert_eq!(tuned(auto).auto_plan, None);
        let exit_5 = SpeculationRequest { exit_layer: Some(5), ..nothing.clone() };
        assert_eq!(tuned(exit_5).drafter, DrafterChoice::LayerSkip(exit(5)));
        assert_eq!(tuned(SpeculationRequest::off()).drafter, DrafterChoice::Off);
        let off = tuning(TunedDrafter::Off);
        assert_eq!(nothing.resolve(LAYERS, Some(&off)).expect("fits").drafter, DrafterChoice::Off);
        assert_eq!(nothing.resolve(LAYERS, None).expect("fits").drafter, DrafterChoice::Auto);
    }

    #[test]
    fn layers_that_do_not_fit_are_refused_by_their_field() {
        let why = |request: SpeculationRequest| {
            let error = request.resolve(LAYERS, None).expect_err("refused");
            (error.field(), error.to_string())
        };
        let exit = |layer| SpeculationRequest { exit_layer: Some(layer), ..SpeculationRequest::default() };
        let skip = |layers| SpeculationRequest { skip_layers: Some(layers), ..SpeculationRequest::default() };
        let told = |field, text: &str| (Some(field), text.to_owned());
        assert_eq!(why(exit(9)), told("exit_layer", "exit_layer 9: the model has 8 layers"));
        assert_eq!(why(exit(8)), told("exit_layer", "exit_layer 8: the model has 8 layers, an exit there skips none"));
        assert_eq!(why(skip(2..9)), told("skip_layers", "skip_layers 2..9: the model has 8 layers"));
        assert_eq!(why(skip(0..8)), told("skip_layers", "skip_layers 0..8: no layer is left to run"));
        let copying = SpeculationRequest { drafter: Some(RequestedDrafter::PromptLookup), ..exit(4) };
        assert_eq!(why(copying), told("exit_layer", "exit_layer: it means nothing to prompt-lookup"));
        let wrong = tuning(TunedDrafter::LayerSkip { from: 3, to: 9 });
        let error = SpeculationRequest::default().resolve(LAYERS, Some(&wrong)).expect_err("another depth");
        assert_eq!(error.field(), None);
    }

    #[test]
    fn layer_skip_without_layers_exits_at_half_of_the_depth() {
        let request = SpeculationRequest { drafter: Some(RequestedDrafter::LayerSkip), ..Default::default() };
        assert_eq!(request.resolve(LAYERS, None).expect("fits").drafter, DrafterChoice::LayerSkip(exit(4)));
    }

    #[test]
    fn names_are_read_back() {
        assert!(RequestedDrafter::ALL.into_iter().all(|d| RequestedDrafter::from_name(d.name()) == Some(d)));
        assert_eq!(RequestedDrafter::from_name("Auto"), None);
    }
}
