//! The settings under which output must be the same, and how each prompt gets its own.

use selfspec_engine::{DraftLen, DrafterChoice, Isa, LayerPlan, SamplingParams, SpeculationParams, TunedDrafter};

/// A way to draft, for a model of known depth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Drafter {
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
    /// Whatever seems to pay.
    Auto,
}

impl Drafter {
    /// The drafters that a model is verified with: none, four exits, a plan that skips middle layers, what a tuning found best, the exit head if it has
    /// one, prompt lookup, auto.
    pub(crate) fn all(n_layers: usize, exit_head: bool, tuned: Option<&TunedDrafter>) -> Vec<Drafter> {
        let mut exits: Vec<usize> =
            [0.25, 0.5, 0.7, 0.85].iter().map(|f| (n_layers as f64 * f).round() as usize).collect();
        exits.iter_mut().for_each(|e| *e = (*e).clamp(1, n_layers.saturating_sub(1).max(1)));
        exits.dedup();
        let mut drafters: Vec<Drafter> = exits.into_iter().filter(|e| *e < n_layers).map(Drafter::Exit).collect();
        let (from, to) = (n_layers.div_ceil(3), (2 * n_layers).div_ceil(3));
        if from > 0 && from < to && to < n_layers {
            drafters.push(Drafter::Skip(from, to));
        }
        if let Some(TunedDrafter::LayerSkip { from, to }) = tuned {
            let plan = if *to == n_layers { Drafter::Exit(*from) } else { Drafter::Skip(*from, *to) };
            drafters.extend((!drafters.contains(&plan)).then_some(plan));
        }
        drafters.extend(exit_head.then_some(Drafter::ExitHead));
        drafters.extend([Drafter::PromptLookup, Drafter::Auto, Drafter::Off]);
        drafters
    }

    /// Its place in a table.
    pub(crate) fn rank(&self) -> (usize, usize) {
        match *self {
            Drafter::Off => (0, 0),
            Drafter::Exit(exit) => (1, exit),
            Drafter::Skip(from, _) => (2, from),
            Drafter::ExitHead => (3, 0),
            Drafter::PromptLookup => (4, 0),
            Drafter::Auto => (5, 0),
        }
    }

    /// In words.
    pub(crate) fn words(&self) -> String {
        match self {
            Drafter::Off => "off".to_owned(),
            Drafter::Exit(exit) => format!("layer skip, exit {exit}"),
            Drafter::Skip(from, to) => format!("layer skip, without {from}..{to}"),
            Drafter::ExitHead => "exit head".to_owned(),
            Drafter::PromptLookup => "prompt lookup".to_owned(),
            Drafter::Auto => "auto".to_owned(),
        }
    }

    /// As flags of `run`.
    fn flags(&self) -> String {
        match self {
            Drafter::Off => "--spec off".to_owned(),
            Drafter::Exit(exit) => format!("--spec layer-skip --exit-layer {exit} --spec-always"),
            Drafter::Skip(from, to) => format!("--spec layer-skip --skip-layers {from}..{to} --spec-always"),
            Drafter::ExitHead => "--spec exit-head --spec-always".to_owned(),
            Drafter::PromptLookup => "--spec prompt-lookup --spec-always".to_owned(),
            Drafter::Auto => "--spec auto".to_owned(),
        }
    }

    fn choice(&self, n_layers: usize) -> anyhow::Result<DrafterChoice> {
        Ok(match *self {
            Drafter::Off => DrafterChoice::Off,
            Drafter::Exit(exit) => DrafterChoice::LayerSkip(LayerPlan::exit(n_layers, exit)?),
            Drafter::Skip(from, to) => DrafterChoice::LayerSkip(LayerPlan::skip_middle(n_layers, from, to)?),
            Drafter::ExitHead => DrafterChoice::ExitHead,
            Drafter::PromptLookup => DrafterChoice::PromptLookup,
            Drafter::Auto => DrafterChoice::Auto,
        })
    }
}

/// How tokens are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    /// The most probable token.
    Greedy,
    /// Drawn at temperature 0.8 and top-p 0.95 with this seed.
    Seeded(u64),
}

impl Mode {
    pub(crate) fn sampling(self) -> SamplingParams {
        match self {
            Mode::Greedy => SamplingParams::default(),
            Mode::Seeded(seed) => {
                SamplingParams { temperature: 0.8, top_p: 0.95, seed: Some(seed), ..SamplingParams::default() }
            }
        }
    }

    fn flags(self) -> String {
        match self {
            Mode::Greedy => "--temp 0".to_owned(),
            Mode::Seeded(seed) => format!("--temp 0.8 --top-p 0.95 --seed {seed}"),
        }
    }
}

/// Everything that must not change the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) drafter: Drafter,
    pub(crate) draft_len: usize, // auto adapts it instead
    pub(crate) bonus: bool,
    pub(crate) threads: usize,
    pub(crate) isa: Isa,
    /// Among other prompts in the same steps, or alone.
    pub(crate) together: bool,
}

impl Setting {
    pub(crate) fn speculation(&self, n_layers: usize) -> anyhow::Result<SpeculationParams> {
        let auto = self.drafter == Drafter::Auto;
        Ok(SpeculationParams {
            drafter: self.drafter.choice(n_layers)?,
            draft_len: if auto { DraftLen::Adaptive } else { DraftLen::Fixed(self.draft_len) },
            bonus: self.bonus,
            // A drafter that gives up because it does not pay would leave nothing to compare.
            always: !auto,
            ..SpeculationParams::default()
        })
    }

    /// As flags of `run`, with the mode.
    pub(crate) fn flags(&self, mode: Mode) -> String {
        let mut flags = format!("{} {}", mode.flags(), self.drafter.flags());
        if !matches!(self.drafter, Drafter::Auto | Drafter::Off) {
            flags += &format!(" --draft-len {}", self.draft_len);
        }
        if !self.bonus && self.drafter != Drafter::Off {
            flags += " --no-bonus";
        }
        format!("{flags} -t {} --isa {}", self.threads, self.isa)
    }
}

/// The values that a setting is made of.
#[derive(Debug, Clone)]
pub(crate) struct Axes {
    pub(crate) drafters: Vec<Drafter>,
    pub(crate) draft_lens: Vec<usize>,
    pub(crate) threads: Vec<usize>,
    pub(crate) isas: Vec<Isa>,
}

impl Axes {
    /// Every combination.
    pub(crate) fn product(&self) -> Vec<Setting> {
        let mut settings = Vec::new();
        for drafter in &self.drafters {
            // The draft length means nothing to these.
            let fixed = matches!(drafter, Drafter::Off | Drafter::Auto);
            for &draft_len in self.draft_lens.iter().take(if fixed { 1 } else { usize::MAX }) {
                for &threads in &self.threads {
                    for &isa in &self.isas {
                        for together in [false, true] {
                            let bonus = draft_len % 3 != 0;
                            let drafter = drafter.clone();
                            settings.push(Setting { drafter, draft_len, bonus, threads, isa, together });
                        }
                    }
                }
            }
        }
        settings
    }

    /// `n` settings, the same ones each time. Each axis is dealt like a deck of cards, shuffled anew whenever it runs out: every
    /// value comes up n / (number of values) times, rounded down or up.
    pub(crate) fn draw(&self, n: usize) -> Vec<Setting> {
        let mut drafters = Deck::new(self.drafters.clone(), 1);
        let mut draft_lens = Deck::new(self.draft_lens.clone(), 2);
        let mut threads = Deck::new(self.threads.clone(), 3);
        let mut isas = Deck::new(self.isas.clone(), 4);
        let mut together = Deck::new(vec![false, true], 5);
        let mut bonus = Deck::new(vec![true, true, false], 6);
        let mut deal = || Setting {
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
    state: u64,
}

impl<T: Clone> Deck<T> {
    fn new(values: Vec<T>, seed: u64) -> Self {
        Deck { at: values.len(), values, state: seed }
    }

    fn next(&mut self) -> T {
        if self.at == self.values.len() {
            for i in (1..self.values.len()).rev() {
                let j = (self.random() % (i as u64 + 1)) as usize;
                self.values.swap(i, j);
            }
            self.at = 0;
        }
        self.at += 1;
        self.values[self.at - 1].clone()
    }

    /// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes() -> Axes {
        Axes {
            drafters: Drafter::all(30, true, None),
            draft_lens: (1..=8).collect(),
            threads: vec![1, 2, 3],
            isas: vec![Isa::Scalar],
        }
    }

    #[test]
    fn a_model_is_verified_with_four_exits_and_a_plan_that_skips_the_middle() {
        let drafters = Drafter::all(30, true, None);
        let exits: Vec<_> = drafters.iter().filter(|d| matches!(d, Drafter::Exit(_))).collect();
        assert_eq!(exits, [&Drafter::Exit(8), &Drafter::Exit(15), &Drafter::Exit(21), &Drafter::Exit(26)]);
        assert!(drafters.contains(&Drafter::Skip(10, 20)));
        let tuned = |from, to| Drafter::all(30, true, Some(&TunedDrafter::LayerSkip { from, to }));
        assert!(tuned(12, 17).contains(&Drafter::Skip(12, 17)) && tuned(5, 30).contains(&Drafter::Exit(5)));
        assert_eq!(tuned(10, 20), drafters, "it is among them");
        for n_layers in 1..40 {
            for drafter in Drafter::all(n_layers, true, None) {
                assert!(drafter.choice(n_layers).is_ok(), "{drafter:?} of {n_layers}");
            }
        }
    }

    #[test]
    fn a_draw_is_the_same_each_time_and_covers_every_value_evenly() {
        let (axes, n) = (axes(), 160);
        let settings = axes.draw(n);
        assert_eq!(settings, axes.draw(n));
        let times = |f: &dyn Fn(&Setting) -> bool| settings.iter().filter(|s| f(s)).count();
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
            settings.iter().filter(|s| s.drafter == Drafter::PromptLookup).map(|s| s.draft_len).collect();
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
