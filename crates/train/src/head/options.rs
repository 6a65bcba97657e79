//! What can be chosen of a training.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::TrainError;
use crate::head::plan::HeadPlan;
use crate::steps::schedule::Schedule;

/// Everything that decides the course of a training, beside the model and the texts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainOptions {
    /// What the head is.
    pub head: HeadPlan,
    /// Drafts of a round that are learned from: 1 is the first alone. An unfused head is the same in all.
    pub rollout: usize,
    /// Weight of a draft in the loss against that of the one before it.
    pub decay: f32,
    /// Times that every text is seen; may be a fraction.
    pub epochs: f64,
    /// Tokens in a batch, about; a longer text is a batch of its own.
    pub batch_tokens: usize,
    /// Parts of a batch that are computed one by one: memory falls with their number, and up to that many threads share the work.
    pub shards: usize,
    /// Learning rate and mix of losses.
    pub schedule: Schedule,
    /// Texts of each domain that are held out to judge by; at most a tenth of it.
    pub held_out: usize,
    /// Decides the held-out texts, the order of the others, and the random part of the initial values.
    pub seed: u64,
}

impl TrainOptions {
    /// The usual options for a head.
    pub fn new(head: HeadPlan) -> TrainOptions {
        TrainOptions {
            head,
            rollout: 3,
            decay: 0.8,
            epochs: 4.0,
            batch_tokens: 400,
            shards: 4,
            schedule: Schedule::default(),
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

/// What does not change the course of a training.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOptions<'a> {
    /// Threads; 0 counts as 1.
    pub threads: usize,
    /// Where the state is saved; nowhere if `None`.
    pub checkpoint: Option<&'a Path>,
    /// Steps between two savings; the state is saved at the end, too, and when the run is stopped.
    pub save_every: usize,
    /// Steps between two judgements; there is one at the end, too. 0: none at all.
    pub judge_every: usize,
    /// Drafts of a round that are judged.
    pub judged_drafts: usize,
}

impl Default for RunOptions<'_> {
    fn default() -> Self {
        RunOptions { threads: 1, checkpoint: None, save_every: 100, judge_every: 200, judged_drafts: 4 }
    }
}
