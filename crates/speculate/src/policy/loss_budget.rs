//! The loss budget: how much decoding time a drafter may lose.
//!
//! The cost of each round beyond plain decoding of the same tokens is booked, in plain steps.
//! Losses may not exceed a small start and a small share of the generated tokens; beyond that the
//! drafter neither drafts nor probes. Gains are booked too, but only a few steps of them: past
//! gains do not excuse later losses.

/// Plain steps that a drafter with a path may lose at once, and for each generated token.
const MODEL_DRAFTER: (f64, f64) = (0.8, 0.008);
/// The same for a drafter that copies.
const COPYING_DRAFTER: (f64, f64) = (0.3, 0.005);
/// Share of plain decoding's speed that both together may lose in the long run. A request's
/// `max_loss` scales the budgets by its ratio to this.
const DEFAULT_MAX_LOSS: f64 = 0.013;
/// Plain steps of gain that are remembered at most.
const MAX_REMEMBERED_GAIN: f64 = 4.0;
/// Plain steps that a drafter with a good prediction may lose beyond what probes may: the first
/// rounds after a success can be unlucky.
const CREDIT: f64 = 1.0;

/// The loss budget of one drafter in one sequence. All figures are in plain decoding steps.
#[derive(Debug)]
pub(crate) struct LossBudget {
    lost: f64, // so far; negative is gained
    start: f64,
    per_token: f64,
    credit: f64,
}

impl LossBudget {
    /// The budget of a drafter that runs rows of the model, or copies. `max_loss` is the share of
    /// plain decoding's speed that the request allows to be lost; `None` is the default share.
    pub(crate) fn new(runs_model: bool, max_loss: Option<f64>) -> Self {
        let (start, per_token) = if runs_model { MODEL_DRAFTER } else { COPYING_DRAFTER };
        let scale = max_loss.map_or(1.0, |loss| loss / DEFAULT_MAX_LOSS);
        LossBudget { lost: 0.0, start: start * scale, per_token: per_token * scale, credit: CREDIT * scale.min(1.0) }
    }

    /// Books a round that cost `cost` plain steps and committed `tokens`, each worth one plain
    /// step.
    pub(crate) fn record_round(&mut self, cost: f64, tokens: usize) {
        self.lost = (self.lost + cost - tokens as f64).max(-MAX_REMEMBERED_GAIN);
    }

    /// Plain steps lost so far; negative if drafting gained.
    pub(crate) fn lost(&self) -> f64 {
        self.lost
    }

    fn allowed(&self, generated: usize) -> f64 {
        self.start + self.per_token * generated as f64
    }

    /// Whether even a drafter with a good prediction has lost too much after `generated` tokens.
    pub(crate) fn is_spent(&self, generated: usize) -> bool {
        self.lost > self.allowed(generated) + self.credit
    }

    /// Whether a probe that may lose `price` plain steps fits the budget after `generated` tokens.
    pub(crate) fn affords(&self, price: f64, generated: usize) -> bool {
        self.lost + price <= self.allowed(generated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn past_gains_do_not_excuse_later_losses() {
        let mut budget = LossBudget::new(true, None);
        budget.record_round(1.0, 100);
        assert_eq!(budget.lost(), -MAX_REMEMBERED_GAIN);
        (0..6).for_each(|_| budget.record_round(2.0, 1));
        assert!(budget.is_spent(0) && !budget.is_spent(100), "{budget:?}");
        assert!(!budget.affords(0.1, 100) && budget.affords(0.1, 200));
    }
}
