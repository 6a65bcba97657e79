//! The size of a fake target, its logits, and the time of its steps.

use selfspec_model::{DeviceShape, Enter, ExitHeadInfo, LayerPlan, Readout, Row, TokenId};

/// The size, logits and timing of a fake target.
#[derive(Debug, Clone)]
pub struct FakeOptions {
    /// Layers.
    pub n_layers: usize,
    /// Size of the vocabulary.
    pub vocab: usize,
    /// Longest sequence.
    pub context: usize,
    /// KV pages in all.
    pub pages: usize,
    /// Positions in a page.
    pub page_positions: usize,
    /// Last tokens that the logits depend on. With few of them and without the position, greedy
    /// output soon repeats itself.
    pub order: usize,
    /// Whether the logits depend on the position too.
    pub by_position: bool,
    /// Share of contexts in which a draft plan's logits are the model's plus a little noise. In the
    /// others they are unrelated.
    pub agreement: f64,
    /// Logits lie within plus and minus this; one token in each context gets twice this on top.
    pub spread: f32,
    /// Another seed makes another target.
    pub seed: u64,
    /// The head's share of a plain step's time; the rest is the layers'.
    pub head_share: f64,
    /// What a row beyond the first adds to the time of a pass, as a share of a plain step.
    pub row_share: f64,
    /// Tokens of the draft vocabulary, ascending; none: there is no such vocabulary.
    pub draft_vocab: Vec<TokenId>,
    /// Layers below the exit head, and the tokens that it can propose.
    pub exit_head: Option<(usize, Vec<TokenId>)>,
    /// The tokens that the model says, whatever the prompt: the one after position p is
    /// `script[p]`, and the last one repeats. Drafts are wrong where p leaves 2 when divided by 5.
    /// Empty: no script.
    pub script: Vec<TokenId>,
}

impl Default for FakeOptions {
    fn default() -> Self {
        FakeOptions {
            n_layers: 8,
            vocab: 40,
            context: 512,
            pages: 256,
            page_positions: 16,
            order: 3,
            by_position: true,
            agreement: 0.7,
            spread: 2.0,
            seed: 1,
            head_share: 0.15,
            row_share: 0.04,
            draft_vocab: Vec::new(),
            exit_head: None,
            script: Vec::new(),
        }
    }
}

impl FakeOptions {
    /// A target that says a script: 4 layers, pages of 16 positions.
    pub fn scripted(script: Vec<TokenId>, vocab: usize) -> Self {
        FakeOptions { n_layers: 4, vocab, script, ..FakeOptions::default() }
    }

    pub(crate) fn shape(&self) -> DeviceShape {
        let n = self.n_layers;
        let draft_vocab = (!self.draft_vocab.is_empty()).then(|| self.draft_vocab.clone().into());
        let exit_head = self.exit_head.as_ref().map(|(exit, vocab)| ExitHeadInfo {
            plan: LayerPlan::exit(n, *exit).unwrap_or_else(|_| LayerPlan::none(n)),
            vocab: vocab.clone().into(),
            acceptance: None,
        });
        DeviceShape {
            n_layers: n,
            vocab: self.vocab,
            context: self.context,
            page_positions: self.page_positions,
            pages: u32::try_from(self.pages).expect("a test has few pages"),
            draft_vocab,
            exit_head,
        }
    }

    /// The model's own logits after `tokens`. Shape: (vocab).
    pub fn logits_after(&self, tokens: &[TokenId]) -> Vec<f32> {
        self.row_logits(tokens, None)
    }

    /// Time of a step of these rows, over that of a plain step: layers that any row runs, the head
    /// if any row has one, and a share for each row beyond the first.
    pub fn seconds(&self, rows: &[Row], exact_prefix: usize) -> f64 {
        let n = self.n_layers;
        let runs = |row: &Row, l: usize| row.plan.runs(l) && (row.enter == Enter::Token || l >= exact_prefix);
        let touched = (0..n).filter(|l| rows.iter().any(|r| runs(r, *l))).count() as f64;
        let o = self;
        let share = |readout: Readout| match readout {
            Readout::Nothing => 0.0,
            Readout::Head => o.head_share,
            Readout::DraftVocab => o.head_share * o.draft_vocab.len() as f64 / o.vocab as f64,
            // Its rows of the head, and a layer of its own.
            Readout::ExitHead => {
                let vocab = o.exit_head.as_ref().map_or(0, |(_, vocab)| vocab.len());
                o.head_share * vocab as f64 / o.vocab as f64 + (1.0 - o.head_share) / n as f64
            }
        };
        let head = rows.iter().map(|r| share(r.readout)).fold(0.0, f64::max);
        let layer = (1.0 - self.head_share) / n as f64;
        touched * layer + head + self.row_share * (rows.len() as f64 - 1.0)
    }

    /// The logits after `tokens`, of the model or of a draft's plan. Shape: (vocab).
    pub(crate) fn row_logits(&self, tokens: &[TokenId], draft: Option<&LayerPlan>) -> Vec<f32> {
        let o = self;
        if let Some(last) = o.script.len().checked_sub(1) {
            let pos = tokens.len() - 1;
            let wrong = draft.is_some() && pos % 5 == 2;
            let mut logits = vec![0.0; o.vocab];
            logits[(o.script[pos.min(last)] as usize + usize::from(wrong)) % o.vocab] = 9.0;
            return logits;
        }
        let from = tokens.len().saturating_sub(o.order);
        let mut context = mix(o.seed);
        if o.by_position {
            context = mix(context ^ tokens.len() as u64);
        }
        for token in &tokens[from..] {
            context = mix(context ^ (u64::from(*token) + 1));
        }
        let logit = |context: u64, x: u64| (unit(context ^ mix(x)) * 2.0 - 1.0) as f32 * o.spread;
        let row = |context: u64| -> Vec<f32> {
            let favourite = mix(context) % o.vocab as u64;
            let bonus = |x| if x == favourite { 2.0 * o.spread } else { 0.0 };
            (0..o.vocab as u64).map(|x| logit(context, x) + bonus(x)).collect()
        };
        let Some(plan) = draft else { return row(context) };
        let plan: u64 = (0..plan.n_layers()).fold(7, |h, l| mix(h ^ u64::from(plan.runs(l))));
        if unit(context ^ plan) >= o.agreement {
            return row(context ^ plan);
        }
        row(context).iter().zip(0..).map(|(l, x)| l + 0.1 * logit(context ^ mix(plan), x)).collect()
    }
}

pub(crate) fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Uniform in [0, 1).
fn unit(z: u64) -> f64 {
    (mix(z) >> 11) as f64 / (1u64 << 53) as f64
}
