//! Runs sequences on the fake target, as an engine would.

use std::sync::Arc;

use selfspec_model::{
    Backend, DraftOutput, DraftRequest, DraftStopRule, LayerPlan, Readout, Row, StepOutput, StepReadouts, TokenId,
    TokenLogprob,
};
use selfspec_speculate::{
    CommittedToken, CostModel, DraftLen, DrafterChoice, SamplingParams, Sequence, SequenceEnd, SequenceError,
    SequenceParams, SpecStats, SpeculationParams, StepChooser, TargetModel, keep_cheap_drafts,
};
use selfspec_testkit::fake_target::{FakeOptions, FakeTarget, fake_target};
use selfspec_testkit::faulty_backend::{Faults, FaultyBackend};

/// What one sequence gave.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Output {
    pub tokens: Vec<TokenId>,
    pub logprobs: Vec<Option<TokenLogprob>>,
    pub finish: Option<SequenceEnd>,
    pub drafted: Vec<bool>,
    pub stats: SpecStats,
    pub error: Option<SequenceError>,
}

/// Tokens, log-probabilities, end and error.
pub(crate) type Result<'a> =
    (&'a [TokenId], &'a [Option<TokenLogprob>], Option<SequenceEnd>, &'a Option<SequenceError>);

impl Output {
    /// What must not depend on speculation.
    pub(crate) fn result(&self) -> Result<'_> {
        (&self.tokens, &self.logprobs, self.finish, &self.error)
    }
}

/// Where the tokens of a step are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choosing {
    /// On the caller's thread, from logits.
    FromLogits,
    /// Where the logits are.
    InTheStep,
    /// The same, and whole drafts of a sequence that is alone are one call.
    WholeDrafts,
}

/// Sequences that run together, one step after the other.
pub(crate) struct Runner {
    pub choosing: Choosing,
    pub target: FaultyBackend<FakeTarget>,
    pub faults: Arc<Faults>,
    pub costs: CostModel,
    pub seconds: f64,
    pub steps: usize,
    out: StepOutput,
    rows: Vec<Row>,
}

/// A sequence and what it has given so far.
pub(crate) struct Live {
    pub sequence: Sequence,
    pub output: Output,
    pub first: usize,
}

impl Runner {
    pub(crate) fn new(options: FakeOptions) -> Self {
        let (out, faults) = (StepOutput::default(), Arc::new(Faults::default()));
        Runner {
            choosing: Choosing::InTheStep,
            target: FaultyBackend::new(fake_target(options), &faults),
            faults,
            costs: CostModel::new(),
            seconds: 0.0,
            steps: 0,
            out,
            rows: Vec::new(),
        }
    }

    pub(crate) fn start(&mut self, params: SequenceParams) -> Live {
        let seq = self.target.create();
        let sequence = Sequence::new(seq, params, &TargetModel::of(&self.target)).expect("valid parameters");
        let output = Output {
            tokens: Vec::new(),
            logprobs: Vec::new(),
            finish: sequence.finish(),
            drafted: Vec::new(),
            stats: SpecStats::default(),
            error: None,
        };
        Live { sequence, output, first: 0 }
    }

    /// One step of all sequences; false when none wants rows.
    pub(crate) fn step(&mut self, live: &mut [Live], chunk: usize) -> bool {
        self.rows.clear();
        let mut wanted = 0;
        for l in live.iter_mut() {
            let from = self.rows.len();
            l.sequence.rows(chunk, &self.costs, &mut self.rows);
            let again = &mut Vec::new();
            l.sequence.rows(chunk, &self.costs, again);
            assert_eq!(format!("{:?}", &self.rows[from..]), format!("{again:?}"), "asking again gives the same rows");
        }
        keep_cheap_drafts(&mut self.rows);
        for l in live.iter_mut() {
            l.first = wanted;
            let seq = l.sequence.seq();
            let mut rows = self.rows.iter().filter(|r| r.seq == seq).peekable();
            if rows.peek().is_none() {
                l.sequence.skip_step();
            }
            wanted += rows.filter(|r| r.readout != Readout::Nothing).count();
        }
        if self.rows.is_empty() {
            return false;
        }
        if let ([alone], Choosing::WholeDrafts) = (&mut *live, self.choosing)
            && let Some(stop) = alone.sequence.draft_stop_rule()
        {
            self.draft(alone, &stop);
            return true;
        }
        let choose = StepChooser::new(&self.rows, live.iter().map(|l| &l.sequence));
        let choose = (self.choosing != Choosing::FromLogits).then_some(&choose as _);
        let readouts = StepReadouts { choose, ..StepReadouts::default() };
        self.target.step_with(&self.rows, &readouts, &mut self.out).expect("the rows keep the contract");
        let exact = self.rows.iter().find(|r| !r.plan.is_full()).map_or(0, |r| r.plan.exact_prefix());
        let prefix =
            live.iter().find_map(|l| l.sequence.stats().path.as_ref()).map_or(exact, |p| p.plan.exact_prefix());
        let seconds = self.target.inner.executor().options().seconds(&self.rows, prefix);
        self.costs.record(&self.rows, seconds);
        if self.rows.iter().all(|r| r.readout != Readout::Nothing) {
            self.seconds += seconds; // decoding only
        }
        self.steps += 1;
        for l in live.iter_mut() {
            let mut committed = Vec::new();
            if let Err(error) = l.sequence.absorb(&mut self.target, &self.out, l.first, &mut committed) {
                l.output.error.get_or_insert(error);
            }
            for CommittedToken { token, source, logprob } in committed {
                l.output.tokens.push(token);
                l.output.drafted.push(source.is_draft());
                l.output.logprobs.push(logprob);
                // After every round, and only then, tokens are committed.
                let kv = self.target.kv_len(l.sequence.seq()).expect("live");
                if l.output.error.is_none() {
                    assert_eq!(kv, l.sequence.tokens().len() - 1, "kv_len == committed - 1");
                }
            }
            l.output.finish = l.sequence.finish();
            l.output.stats = l.sequence.stats().clone();
        }
        true
    }

    /// The whole draft of a sequence, in place of its row.
    fn draft(&mut self, alone: &mut Live, stop: &DraftStopRule) {
        let choose = alone.sequence.row_chooser().expect("it drafts");
        let request = DraftRequest { first: &self.rows[0], stop, choose: &choose };
        let mut made = DraftOutput::default();
        self.target.draft(&request, &mut made).expect("the rows keep the contract");
        let prefix = self.rows[0].plan.exact_prefix();
        for i in 0..made.rows {
            let row = [Row { pos: self.rows[0].pos + i, ..self.rows[0].clone() }];
            let seconds = self.target.inner.executor().options().seconds(&row, prefix);
            self.costs.record(&row, seconds);
            self.seconds += seconds;
            self.steps += 1;
        }
        alone.sequence.absorb_whole_draft(&made).expect("the sequence goes on");
        assert!(alone.sequence.draft_stop_rule().is_none(), "the draft is over");
        let mut next = Vec::new();
        alone.sequence.rows(1, &self.costs, &mut next);
        assert!(next[0].plan.is_full(), "its rule and the sequence's own agree that it is over");
        alone.output.stats = alone.sequence.stats().clone();
    }

    /// Runs to the end, and checks what must hold at any time.
    pub(crate) fn run(&mut self, requests: Vec<SequenceParams>, chunk: usize) -> Vec<Output> {
        let before = self.target.inner.executor().layer_rows();
        let mut live: Vec<Live> = requests.into_iter().map(|r| self.start(r)).collect();
        while self.step(&mut live, chunk) {}
        let computed = self.target.inner.executor().layer_rows() - before;
        let expected: u64 = live.iter().map(|l| l.sequence.stats().layer_rows).sum();
        if live.iter().all(|l| l.output.error.is_none()) {
            assert_eq!(computed, expected, "kept states are reused: no layer is computed twice");
        }
        for l in &live {
            let stats = l.sequence.stats();
            assert_eq!(l.sequence.tokens()[l.sequence.prompt_len()..], l.output.tokens);
            if l.output.error.is_none() {
                assert_eq!(l.output.drafted.iter().filter(|d| **d).count() as u64, stats.accepted);
            }
            self.target.free(l.sequence.seq());
        }
        assert_eq!(self.target.free_pages(), self.target.total_pages());
        live.into_iter().map(|l| l.output).collect()
    }
}

/// Runs one request alone on a fresh target.
pub(crate) fn run_one(options: &FakeOptions, params: SequenceParams) -> Output {
    Runner::new(options.clone()).run(vec![params], 64).remove(0)
}

/// The same request without speculation.
pub(crate) fn plain(params: &SequenceParams) -> SequenceParams {
    SequenceParams { speculation: SpeculationParams::off(), ..params.clone() }
}

/// A prompt that repeats itself a little.
pub(crate) fn prompt(salt: u32, len: usize, vocab: u32) -> Vec<TokenId> {
    (0..len as u32).map(|i| ((i % 11) * 7 + (i / 23) * 3 + salt * 13) % vocab).collect()
}

pub(crate) fn greedy() -> SamplingParams {
    SamplingParams::default()
}

pub(crate) fn seeded(seed: u64) -> SamplingParams {
    SamplingParams { temperature: 0.8, top_p: 0.95, seed: Some(seed), ..SamplingParams::default() }
}

/// Speculation that never gives up, so that a test tests something.
pub(crate) fn always(drafter: DrafterChoice, draft_len: DraftLen) -> SpeculationParams {
    SpeculationParams { drafter, draft_len, always: true, ..SpeculationParams::default() }
}

pub(crate) fn exit(n: usize, exit: usize) -> DrafterChoice {
    DrafterChoice::LayerSkip(LayerPlan::exit(n, exit).expect("valid"))
}

pub(crate) fn skip(n: usize, from: usize, to: usize) -> DrafterChoice {
    DrafterChoice::LayerSkip(LayerPlan::skip_middle(n, from, to).expect("valid"))
}

/// Adds up statistics, to show that a gate tested something.
#[derive(Default)]
pub(crate) struct Guard(pub SpecStats);

impl Guard {
    pub(crate) fn add(&mut self, output: &Output) {
        self.0.merge(&output.stats);
    }

    /// Drafted, accepted and rejected something, and saw every accepted length up to `longest`.
    pub(crate) fn check(&self, longest: usize, what: &str) {
        let s = &self.0;
        assert!(s.drafted > 0 && s.accepted > 0 && s.rejected > 0, "{what}: nothing was tested: {s:?}");
        assert!(
            s.accepted_lengths[..=longest].iter().all(|n| *n > 0),
            "{what}: lengths unseen: {:?}",
            s.accepted_lengths
        );
    }
}
