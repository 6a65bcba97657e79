//! [`TrainingSchedule`]: the learning rate, the mix of losses and the number of drafts over the
//! course of a training.

use serde::{Deserialize, Serialize};

/// The values that change from step to step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainingSchedule {
    /// The highest learning rate.
    pub learning_rate: f32,
    /// Share of the steps in which the rate rises from 0 to its highest.
    pub warm_up: f32,
    /// Share of the highest rate at which it ends.
    pub last: f32,
    /// Share of the steps after which training uses more than the first draft of a round. Before
    /// the head has learned something, its own states teach little, and steps of one draft take a
    /// third of the time.
    pub rollout_from: f32,
    /// Share of the rejection rate in the loss at the end, from 0 to 1; the rest is the
    /// divergence's.
    pub refusal: f32,
    /// Share of the steps after which the rejection rate enters the loss. It has its full share a
    /// tenth of all steps later.
    pub refusal_from: f32,
}

impl Default for TrainingSchedule {
    fn default() -> Self {
        TrainingSchedule {
            learning_rate: 5e-4,
            warm_up: 0.04,
            last: 0.02,
            rollout_from: 0.2,
            refusal: 0.0,
            refusal_from: 0.6,
        }
    }
}

impl TrainingSchedule {
    /// The learning rate of step `step` of `steps`: a line up, then a half cosine down.
    pub fn rate(&self, step: usize, steps: usize) -> f32 {
        let (at, warm) = ((step + 1) as f32, (self.warm_up * steps as f32).max(1.0));
        if at < warm {
            return self.learning_rate * at / warm;
        }
        let along = (at - warm) / (steps as f32 - warm).max(1.0);
        let cosine = 0.5 + 0.5 * (std::f32::consts::PI * along.min(1.0)).cos();
        self.learning_rate * (self.last + (1.0 - self.last) * cosine)
    }

    /// Whether step `step` of `steps` uses more than the first draft.
    pub fn rolls_out(&self, step: usize, steps: usize) -> bool {
        step as f32 >= self.rollout_from * steps as f32
    }

    /// The rejection rate's share in the loss at step `step` of `steps`.
    pub fn refusal_share(&self, step: usize, steps: usize) -> f32 {
        const RAMP: f32 = 0.1;
        let along = (step as f32 / steps.max(1) as f32 - self.refusal_from) / RAMP;
        self.refusal * along.clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_rises_to_its_highest_and_falls_to_its_last() {
        let schedule = TrainingSchedule { learning_rate: 2.0, warm_up: 0.1, last: 0.25, ..TrainingSchedule::default() };
        let rates: Vec<f32> = (0..100).map(|step| schedule.rate(step, 100)).collect();
        assert_eq!(rates[0], 0.2);
        assert_eq!(rates[9], 2.0);
        assert!(rates[9..].windows(2).all(|w| w[0] > w[1]));
        assert!((rates[99] - 0.5).abs() < 1e-5);
        assert_eq!(schedule.rate(0, 1), 2.0, "one step is at the highest rate");
    }

    #[test]
    fn later_drafts_are_learned_from_later() {
        let schedule = TrainingSchedule { rollout_from: 0.25, ..TrainingSchedule::default() };
        assert_eq!([0, 24, 25, 99].map(|step| schedule.rolls_out(step, 100)), [false, false, true, true]);
        assert!(TrainingSchedule { rollout_from: 0.0, ..schedule.clone() }.rolls_out(0, 100));
        assert!(!TrainingSchedule { rollout_from: 1.0, ..schedule }.rolls_out(99, 100));
    }

    #[test]
    fn the_refusal_rate_enters_late() {
        let schedule = TrainingSchedule { refusal: 0.5, refusal_from: 0.4, ..TrainingSchedule::default() };
        let shares = [0, 40, 45, 50, 99].map(|step| schedule.refusal_share(step, 100));
        assert_eq!((shares[0], shares[1], shares[4]), (0.0, 0.0, 0.5));
        assert!((shares[2] - 0.25).abs() < 1e-5 && (shares[3] - 0.5).abs() < 1e-5);
        assert_eq!(TrainingSchedule::default().refusal_share(99, 100), 0.0);
    }
}
