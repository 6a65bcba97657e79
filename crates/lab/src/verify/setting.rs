//! The settings under which the output must be the same, and how they are drawn.

use std::fmt;

use selfspec_engine::TunedDrafter;
use selfspec_kernels::Isa;
use selfspec_model::{LayerPlan, PlanError};
use selfspec_speculate::{DraftLen, DrafterChoice, SamplingParams, SpeculationParams};

use crate::statistics::SplitMix64;

/// A drafter, for a model of known depth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VerifiedDrafter {
    /// Plain decoding.
    Off,
    /// Layers up to an exit.
    Exit(usize),
    /// All layers but these.
    Skip(usize, usize),
    /// The model's exit head.
    ExitHead,
    /// Prompt lookup.
    PromptLookup,
    /// The drafter that the speculation policy chooses.
    Auto,
}

impl VerifiedDrafter {
    /// The drafters that a model is verified with: four exits, a plan that skips middle layers, the
    /// layers that a tuning chose, the exit head if the model has one, prompt lookup, auto, none.
    pub(super) fn all(n_layers: usize, exit_head: bool, tuned: Option<&TunedDrafter>) -> Vec<VerifiedDrafter> {
        let mut exits: Vec<usize> =
            [0.25, 0.5, 0.7, 0.85].iter().map(|f| (n_layers as f64 * f).round() as usize).collect();
        exits.iter_mut().for_each(|e| *e = (*e).clamp(1, n_layers.saturating_sub(1).max(1)));
        exits.dedup();
        let mut drafters: Vec<VerifiedDrafter> =
            exits.into_iter().filter(|e| *e < n_layers).map(VerifiedDrafter::Exit).collect();
        let (from, to) = (n_layers.div_ceil(3), (2 * n_layers).div_ceil(3));
        if from > 0 && from < to && to < n_layers {
            drafters.push(VerifiedDrafter::Skip(from, to));
        }
        if let Some(TunedDrafter::LayerSkip { from, to }) = tuned {
            let plan = if *to == n_layers { VerifiedDrafter::Exit(*from) } else { VerifiedDrafter::Skip(*from, *to) };
            drafters.extend((!drafters.contains(&plan)).then_some(plan));
        }
        drafters.extend(exit_head.then_some(VerifiedDrafter::ExitHead));
        drafters.extend([VerifiedDrafter::PromptLookup, VerifiedDrafter::Auto, VerifiedDrafter::Off]);
        drafters
    }

    /// Its place in a table.
    pub(super) fn rank(&self) -> (usize, usize) {
        match *self {
            VerifiedDrafter::Off => (0, 0),
            VerifiedDrafter::Exit(exit) => (1, exit),
            VerifiedDrafter::Skip(from, _) => (2, from),
            VerifiedDrafter::ExitHead => (3, 0),
            VerifiedDrafter::PromptLookup => (4, 0),
            VerifiedDrafter::Auto => (5, 0),
        }
    }

    fn choice(&self, n_layers: usize) -> Result<DrafterChoice, PlanError> {
        Ok(match *self {
            VerifiedDrafter::Off => DrafterChoice::Off,
            VerifiedDrafter::Exit(exit) => DrafterChoice::LayerSkip(LayerPlan::exit(n_layers, exit)?),
            VerifiedDrafter::Skip(from, to) => DrafterChoice::LayerSkip(LayerPlan::skip_middle(n_layers, from, to)?),
            VerifiedDrafter::ExitHead => DrafterChoice::ExitHead,
            VerifiedDrafter::PromptLookup => DrafterChoice::PromptLookup,
            VerifiedDrafter::Auto => DrafterChoice::Auto,
        })
    }
}

impl fmt::Display for VerifiedDrafter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VerifiedDrafter::Off => f.write_str("off"),
            VerifiedDrafter::Exit(exit) => write!(f, "layer skip, exit {exit}"),
            VerifiedDrafter::Skip(from, to) => write!(f, "layer skip, without {from}..{to}"),
            VerifiedDrafter::ExitHead => f.write_str("exit head"),
            VerifiedDrafter::PromptLookup => f.write_str("prompt lookup"),
            VerifiedDrafter::Auto => f.write_str("auto"),
        }
    }
}

/// How tokens are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SamplingMode {
    /// The most probable token.
    Greedy,
    /// Drawn at temperature 0.8 and top-p 0.95 with this seed.
    Seeded(u64),
}

impl SamplingMode {
    /// The parameters of a request in this mode.
    pub(super) fn sampling(self) -> SamplingParams {
        match self {
            SamplingMode::Greedy => SamplingParams::default(),
            SamplingMode::Seeded(seed) => {
                SamplingParams { temperature: 0.8, top_p: 0.95, seed: Some(seed), ..SamplingParams::default() }
            }
        }
    }
}

/// Everything that must not change the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodingSetting {
    /// How tokens are drafted.
    pub drafter: VerifiedDrafter,
    /// Tokens drafted a round; [`VerifiedDrafter::Auto`] adapts it instead.
    pub draft_len: usize,
    /// Whether one row more than was drafted is verified.
    pub bonus: bool,
    /// Threads that compute.
    pub threads: usize,
    /// Instruction set.
    pub isa: Isa,
    /// Among other prompts in the same steps, or alone.
    pub together: bool,
}

impl DecodingSetting {
    /// The parameters of a request under this setting, for a model of `n_layers` layers.
    pub(super) fn speculation(&self, n_layers: usize) -> Result<SpeculationParams, PlanError> {
        let auto = self.drafter == VerifiedDrafter::Auto;
        Ok(SpeculationParams {
            drafter: self.drafter.choice(n_layers)?,
            draft_len: if auto { DraftLen::Adaptive } else { DraftLen::Fixed(self.draft_len) },
            bonus: self.bonus,
            // A drafter that the policy turns off would leave nothing to compare.
            always: !auto,
            ..SpeculationParams::default()
        })
    }
}

/// The values that a setting is made of.
#[derive(Debug, Clone)]
pub(super) struct SettingAxes {
    pub(super) drafters: Vec<VerifiedDrafter>,
    pub(super) draft_lens: Vec<usize>,
    pub(super) threads: Vec<usize>,
    pub(super) isas: Vec<Isa>,
}

impl SettingAxes {
    /// Every combination.
    pub(super) fn product(&self) -> Vec<DecodingSetting> {
        let mut settings = Vec::new();
        for drafter in &self.drafters {
            // The draft length means nothing to these.
            let fixed = matches!(drafter, VerifiedDrafter::Off | VerifiedDrafter::Auto);
            for &draft_len in self.draft_lens.iter().take(if fixed { 1 } else { usize::MAX }) {
                for &threads in &self.threads {
                    for &isa in &self.isas {
                        for together in [false, true] {
                            let bonus = draft_len % 3 != 0;
                            let drafter = drafter.clone();
                            settings.push(DecodingSetting { drafter, draft_len, bonus, threads, isa, together });
                        }
                    }
                }
            }
        }
        settings
    }

    /// `n` settings, the same each time. Each axis is dealt like a deck of cards that is shuffled
    /// whenever it runs out: every value comes up n / (number of values) times, rounded down or up.
    pub(super) fn draw(&self, n: usize) -> Vec<DecodingSetting> {
        let mut drafters = Deck::new(self.drafters.clone(), 1);
        let mut draft_lens = Deck::new(self.draft_lens.clone(), 2);
        let mut threads = Deck::new(self.threads.clone(), 3);
        let mut isas = Deck::new(self.isas.clone(), 4);
        let mut together = Deck::new(vec![false, true], 5);
        let mut bonus = Deck::new(vec![true, true, false], 6);
        let mut deal = || DecodingSetting {
            drafter: drafters.next(),
            draft_len: draft_lens.next(),
            bonus: bonus.next(),
            threads: threads.next(),
            isa: isas.next(),
            together: together.next(),
        };
        (0..n).map(|_| deal()).collect()
    }
}

/// Values dealt in shuffled rounds.
struct Deck<T> {
    values: Vec<T>,
    at: usize,
    random: SplitMix64,
}

impl<T: Clone> Deck<T> {
    fn new(values: Vec<T>, seed: u64) -> Self {
        Deck { at: values.len(), values, random: SplitMix64::new(seed) }
    }

    fn next(&mut self) -> T {
        if self.at == self.values.len() {
            for i in (1..self.values.len()).rev() {
                let j = (self.random.next_u64() % (i as u64 + 1)) as usize;
                self.values.swap(i, j);
            }
            self.at = 0;
        }
        self.at += 1;
        self.values[self.at - 1].clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes() -> SettingAxes {
        SettingAxes {
            drafters: VerifiedDrafter::all(30, true, None),
            draft_lens: (1..=8).collect(),
            threads: vec![1, 2, 3],
            isas: vec![Isa::Scalar],
        }
    }

    #[test]
    fn a_model_is_verified_with_four_exits_and_a_plan_that_skips_the_middle() {
        let drafters = VerifiedDrafter::all(30, true, None);
        let exits: Vec<_> = drafters.iter().filter(|d| matches!(d, VerifiedDrafter::Exit(_))).collect();
        assert_eq!(
            exits,
            [
                &VerifiedDrafter::Exit(8),
                &VerifiedDrafter::Exit(15),
                &VerifiedDrafter::Exit(21),
                &VerifiedDrafter::Exit(26)
            ]
        );
        assert!(drafters.contains(&VerifiedDrafter::Skip(10, 20)));
        let tuned = |from, to| VerifiedDrafter::all(30, true, Some(&TunedDrafter::LayerSkip { from, to }));
        assert!(
            tuned(12, 17).contains(&VerifiedDrafter::Skip(12, 17)) && tuned(5, 30).contains(&VerifiedDrafter::Exit(5))
        );
        assert_eq!(tuned(10, 20), drafters, "it is among them");
        for n_layers in 1..40 {
            for drafter in VerifiedDrafter::all(n_layers, true, None) {
                assert!(drafter.choice(n_layers).is_ok(), "{drafter:?} of {n_layers}");
            }
        }
    }

    #[test]
    fn a_draw_is_the_same_each_time_and_covers_every_value_evenly() {
        let (axes, n) = (axes(), 160);
        let settings = axes.draw(n);
        assert_eq!(settings, axes.draw(n));
        let times = |f: &dyn Fn(&DecodingSetting) -> bool| settings.iter().filter(|s| f(s)).count();
        for drafter in &axes.drafters {
            assert!(times(&|s| s.drafter == *drafter) >= n / axes.drafters.len(), "{drafter:?}");
        }
        for k in 1..=8 {
            assert_eq!(times(&|s| s.draft_len == k), n / 8);
        }
        for threads in 1..=3 {
            assert!(times(&|s| s.threads == threads) >= n / 3);
        }
        // The axes are shuffled apart: a drafter meets many draft lengths.
        let lookup: std::collections::BTreeSet<_> =
            settings.iter().filter(|s| s.drafter == VerifiedDrafter::PromptLookup).map(|s| s.draft_len).collect();
        assert!(lookup.len() >= 6, "{lookup:?}");
    }

    #[test]
    fn the_product_has_every_combination_once() {
        let axes = axes();
        let settings = axes.product();
        let with_len = axes.drafters.len() - 2;
        assert_eq!(settings.len(), (with_len * 8 + 2) * 3 * 2);
        assert!(settings.iter().enumerate().all(|(i, s)| !settings[..i].contains(s)));
    }
}
