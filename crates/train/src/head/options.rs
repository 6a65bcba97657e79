//! [`HeadOptions`] and [`HeadRun`]: the options of a head's training.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::TrainError;
use crate::head::plan::HeadPlan;
use crate::steps::schedule::TrainingSchedule;

/// Everything that determines the result of a training, beside the model and the texts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeadOptions {
    /// The design of the head.
    pub head: HeadPlan,
    /// Drafts of a round that count in the loss; 1 is the first only. A head without features has
    /// only that one.
    pub rollout: usize,
    /// Weight of a draft in the loss relative to the draft before it.
    pub decay: f32,
    /// Number of epochs; may be a fraction.
    pub epochs: f64,
    /// Approximate tokens in a batch. A longer text is a batch by itself.
    pub batch_tokens: usize,
    /// Shards of a batch, which are computed separately. More shards need less memory, and at most
    /// one thread works on each.
    pub shards: usize,
    /// Learning rate and mix of losses.
    pub schedule: TrainingSchedule,
    /// Texts of each domain that are held out for evaluation; at most a tenth of it.
    pub held_out: usize,
    /// Seed of the held-out texts, of the order of the others, and of the random part of the
    /// initial values.
    pub seed: u64,
}

impl HeadOptions {
    /// The usual options for a head.
    pub fn new(head: HeadPlan) -> HeadOptions {
        HeadOptions {
            head,
            rollout: 3,
            decay: 0.8,
            epochs: 4.0,
            batch_tokens: 400,
            shards: 4,
            schedule: TrainingSchedule::default(),
            held_out: 12,
            seed: 1,
        }
    }

    /// # Errors
    /// An option is out of its range.
    pub(crate) fn check(&self) -> Result<(), TrainError> {
        let is = |fine: bool, field: &'static str, value: String, range: &str| match fine {
            true => Ok(()),
            false => Err(TrainError::Option { field, why: format!("{value} is not {range}") }),
        };
        let s = &self.schedule;
        let share = |x: f32| (0.0..=1.0).contains(&x);
        is((1..=16).contains(&self.rollout), "rollout", self.rollout.to_string(), "from 1 to 16")?;
        is((1..=256).contains(&self.shards), "shards", self.shards.to_string(), "from 1 to 256")?;
        is(self.batch_tokens > 0, "batch_tokens", self.batch_tokens.to_string(), "above 0")?;
        is(
            self.epochs > 0.0 && self.epochs <= 1e6,
            "epochs",
            self.epochs.to_string(),
            "above 0 and at most a million",
        )?;
        is(self.decay > 0.0 && self.decay <= 1.0, "decay", self.decay.to_string(), "above 0 and at most 1")?;
        let rate = s.learning_rate;
        is(rate > 0.0 && rate <= 1.0, "learning_rate", rate.to_string(), "above 0 and at most 1")?;
        is(share(s.warm_up), "warm_up", s.warm_up.to_string(), "a share from 0 to 1")?;
        is(share(s.last), "last", s.last.to_string(), "a share from 0 to 1")?;
        is(share(s.rollout_from), "rollout_from", s.rollout_from.to_string(), "a share from 0 to 1")?;
        is(share(s.refusal), "refusal", s.refusal.to_string(), "a share from 0 to 1")?;
        is(share(s.refusal_from), "refusal_from", s.refusal_from.to_string(), "a share from 0 to 1")
    }
}

/// Options of a run that do not change the result of a training.
#[derive(Debug, Clone, PartialEq)]
pub struct HeadRun<'a> {
    /// Threads; 0 counts as 1.
    pub threads: usize,
    /// The file for the state; `None` saves nothing.
    pub checkpoint: Option<&'a Path>,
    /// Steps between two saves. The state is also saved at the end, and when the run is stopped.
    pub save_every: usize,
    /// Steps between two evaluations; there is also one at the end. 0: no evaluation.
    pub evaluate_every: usize,
    /// Drafts of a round to evaluate.
    pub evaluated_drafts: usize,
}

impl Default for HeadRun<'_> {
    fn default() -> Self {
        HeadRun { threads: 1, checkpoint: None, save_every: 100, evaluate_every: 200, evaluated_drafts: 4 }
    }
}
