//! The parameters of speculation: which drafter a request chooses, and how far it may draft.

use selfspec_model::LayerPlan;

use crate::draft::kind::DrafterChoice;
use crate::error::ParamError;
use crate::target::TargetModel;

/// Most tokens that one round may draft.
pub const MAX_DRAFT: usize = 16;

/// How many tokens a round drafts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DraftLen {
    /// Always this many, 1 to [`MAX_DRAFT`].
    Fixed(usize),
    /// The number with the highest expected speed-up, 1 to 8, by acceptance at each place of the
    /// round and measured costs.
    #[default]
    Adaptive,
    /// By the last 64 verified drafts: one more above an acceptance of 0.85, one fewer below 0.7,
    /// within 2 to 8. Drafting with the model is off where fewer than 2 would pay.
    Window,
}

/// How tokens are drafted.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeculationParams {
    /// Which drafter.
    pub drafter: DrafterChoice,
    /// How many tokens a round.
    pub draft_len: DraftLen,
    /// Verify one row more than was drafted, for one more token when all drafts are accepted.
    pub bonus: bool,
    /// A draft ends before a token whose most probable candidate has less than this probability in
    /// the draft's distribution; 0 is off. The rule reads the distribution, never the token drawn,
    /// so that the result stays exact.
    pub min_confidence: f32,
    /// Share of plain decoding's speed that speculation may lose in the long run where it does not
    /// pay, its probes included. `None`: 0.013.
    pub max_loss: Option<f64>,
    /// Draft in every round, even where it does not pay: for proofs and measurements.
    pub always: bool,
    /// The plan that [`DrafterChoice::Auto`] uses for layer skip, in place of an exit head. `None`:
    /// the exit head, or the first half of the layers on a model without one.
    pub auto_plan: Option<LayerPlan>,
    /// Layer skip proposes only tokens of the model's draft vocabulary, if it has one: the head
    /// then costs less.
    pub draft_vocab: bool,
    /// Longest n-gram that prompt lookup matches, 1 to 8. It tries the longest first.
    pub ngram_max: usize,
    /// Shortest n-gram that prompt lookup matches, from 1 to `ngram_max`.
    pub ngram_min: usize,
    /// Rounds that the trace keeps, the latest ones; 0 is no trace.
    pub trace: usize,
}

impl Default for SpeculationParams {
    fn default() -> Self {
        SpeculationParams {
            drafter: DrafterChoice::Auto,
            draft_len: DraftLen::Adaptive,
            bonus: true,
            min_confidence: 0.0,
            max_loss: None,
            always: false,
            auto_plan: None,
            draft_vocab: true,
            ngram_max: 4,
            ngram_min: 1,
            trace: 0,
        }
    }
}

impl SpeculationParams {
    /// No speculation.
    pub fn off() -> Self {
        SpeculationParams { drafter: DrafterChoice::Off, ..Self::default() }
    }

    /// Checks every field for a model.
    ///
    /// # Errors
    /// The first field that is out of its range.
    pub fn validate(&self, target: &TargetModel) -> Result<(), ParamError> {
        let n_layers = target.n_layers;
        let count = |field, value: usize, ok: bool, expected| {
            if ok { Ok(()) } else { Err(ParamError::OutOfRange { field, value: value as f64, expected }) }
        };
        if let DraftLen::Fixed(k) = self.draft_len {
            count("draft_len", k, (1..=MAX_DRAFT).contains(&k), "from 1 to 16")?;
        }
        let c = self.min_confidence;
        if !(0.0..=1.0).contains(&c) {
            return Err(ParamError::OutOfRange {
                field: "min_confidence",
                value: f64::from(c),
                expected: "from 0 to 1",
            });
        }
        if let Some(loss) = self.max_loss.filter(|loss| !(0.0..=1.0).contains(loss)) {
            return Err(ParamError::OutOfRange { field: "max_loss", value: loss, expected: "from 0 to 1" });
        }
        count("ngram_max", self.ngram_max, (1..=8).contains(&self.ngram_max), "from 1 to 8")?;
        count("ngram_min", self.ngram_min, (1..=self.ngram_max).contains(&self.ngram_min), "from 1 to ngram_max")?;
        if self.drafter == DrafterChoice::ExitHead && target.exit_head.is_none() {
            return Err(ParamError::NoExitHead);
        }
        let chosen = match &self.drafter {
            DrafterChoice::LayerSkip(plan) => Some(plan),
            _ => None,
        };
        for plan in chosen.into_iter().chain(&self.auto_plan) {
            if plan.n_layers() != n_layers {
                return Err(ParamError::PlanDepth { plan: plan.n_layers(), model: n_layers });
            }
            if plan.is_full() {
                return Err(ParamError::PlanIsFull { n_layers });
            }
        }
        Ok(())
    }
}
