//! [`BackboneOptions`] and [`BackboneRun`]: the options of the training of a whole model.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::course::{Course, Curriculum};
use crate::error::TrainError;
use crate::steps::schedule::TrainingSchedule;

/// Everything that determines the result of a training, beside the model and the spans.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BackboneOptions {
    /// Probability of skipping the last layer for a span, from 0 to 0.5. It rises linearly from 0
    /// at the first layer. In the last quarter of the steps all probabilities fall to 0.
    pub layer_dropout: f32,
    /// Numbers of layers before each exit that is trained and evaluated, ascending; at least 1,
    /// fewer than the model has.
    pub exits: Vec<usize>,
    /// Total weight of the exits' losses, relative to 1 for the loss after all layers.
    pub exit_weight: f32,
    /// The exits that count in each step.
    pub curriculum: Curriculum,
    /// Number of epochs; may be a fraction.
    pub epochs: f64,
    /// Most steps, if the epochs have more.
    pub steps: Option<usize>,
    /// Approximate tokens in a batch.
    pub batch_tokens: usize,
    /// Shards of a batch, which are computed separately: at most one thread works on each, and each
    /// holds a gradient of the whole model.
    pub shards: usize,
    /// The learning rate over the steps. Its fields for drafts and rejections have no effect here.
    pub schedule: TrainingSchedule,
    /// Seed of the order of the spans, of the skipped layers, and of the turns of the exits.
    pub seed: u64,
}

impl Default for BackboneOptions {
    fn default() -> Self {
        BackboneOptions {
            layer_dropout: 0.2,
            exits: Vec::new(),
            exit_weight: 0.3,
            curriculum: Curriculum::Rotate,
            epochs: 1.0,
            steps: None,
            batch_tokens: 4096,
            shards: 4,
            schedule: TrainingSchedule { learning_rate: 1e-4, last: 0.05, ..TrainingSchedule::default() },
            seed: 1,
        }
    }
}

impl BackboneOptions {
    /// # Errors
    /// An option is out of its range, for a model of `n_layers` layers.
    pub(crate) fn check(&self, n_layers: usize) -> Result<(), TrainError> {
        let is = |fine: bool, field: &'static str, value: String, range: &str| match fine {
            true => Ok(()),
            false => Err(TrainError::Option { field, why: format!("{value} is not {range}") }),
        };
        let (s, n) = (&self.schedule, n_layers);
        let share = |x: f32| (0.0..=1.0).contains(&x);
        let ascending = self.exits.windows(2).all(|pair| pair[0] < pair[1]);
        let within = self.exits.iter().all(|exit| (1..n).contains(exit));
        let exits = format!("between 1 and {} layers, ascending, of a model of {n}", n.saturating_sub(1));
        is(
            (0.0..=0.5).contains(&self.layer_dropout),
            "layer_dropout",
            self.layer_dropout.to_string(),
            "from 0 to 0.5",
        )?;
        is(ascending && within, "exits", format!("{:?}", self.exits), &exits)?;
        is(
            self.exit_weight >= 0.0 && self.exit_weight <= 10.0,
            "exit_weight",
            self.exit_weight.to_string(),
            "from 0 to 10",
        )?;
        is(
            self.epochs > 0.0 && self.epochs <= 1e6,
            "epochs",
            self.epochs.to_string(),
            "above 0 and at most a million",
        )?;
        is(self.steps != Some(0), "steps", "0".to_owned(), "above 0")?;
        is(self.batch_tokens > 0, "batch_tokens", self.batch_tokens.to_string(), "above 0")?;
        is((1..=256).contains(&self.shards), "shards", self.shards.to_string(), "from 1 to 256")?;
        let rate = s.learning_rate;
        is(rate > 0.0 && rate <= 1.0, "learning_rate", rate.to_string(), "above 0 and at most 1")?;
        is(share(s.warm_up), "warm_up", s.warm_up.to_string(), "a share from 0 to 1")?;
        is(share(s.last), "last", s.last.to_string(), "a share from 0 to 1")
    }

    pub(crate) fn course(&self) -> Course {
        Course {
            layer_dropout: self.layer_dropout,
            exits: self.exits.clone(),
            exit_weight: self.exit_weight,
            curriculum: self.curriculum,
            seed: self.seed,
        }
    }
}

/// Options of a run that do not change the result of a training.
#[derive(Debug, Clone, PartialEq)]
pub struct BackboneRun<'a> {
    /// Threads; 0 counts as 1.
    pub threads: usize,
    /// The file for the state; `None` saves nothing.
    pub checkpoint: Option<&'a Path>,
    /// Approximate time between two saves. The state is also saved at the end, and when the run is
    /// stopped.
    pub save_every: Duration,
}

impl Default for BackboneRun<'_> {
    fn default() -> Self {
        BackboneRun { threads: 1, checkpoint: None, save_every: Duration::from_secs(120) }
    }
}
