//! The seam between the KV index and a device: any executor makes a backend, and what leaves a step
//! is the same however it leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{bits, open_gguf, plain, tokens};
use selfspec_kernels::{Isa, KvType, Team};
use selfspec_model::{
    Backend, BackendError, ChooseToken, CpuBackend, CpuExecutor, CpuModel, CpuOptions, DeviceShape, DraftHeads,
    DraftOutput, DraftRequest, DraftStopPlace, DraftStopRule, Enter, Executor, ExitHead, HiddenState, LayerPlan,
    LogitsError, PageCopy, PagedBackend, Readout, Row, StepOutput, StepReadouts, TokenChoice, TokenId, ValidatedStep,
};
use selfspec_testkit::{Family, TensorType, TinyExitHead, TinyModel};

/// A device that forwards to the CPU.
struct Forwarding {
    cpu: CpuExecutor,
    copies: Arc<AtomicUsize>,
}

impl Executor for Forwarding {
    fn shape(&self) -> DeviceShape {
        self.cpu.shape()
    }

    fn copy_pages(&mut self, copies: &[PageCopy]) {
        self.copies.fetch_add(copies.len(), Ordering::Relaxed);
        self.cpu.copy_pages(copies);
    }

    fn run(
        &mut self,
        step: &ValidatedStep<'_>,
        readouts: &StepReadouts<'_>,
        out: &mut StepOutput,
    ) -> Result<(), BackendError> {
        self.cpu.run(step, readouts, out)
    }
}

fn model() -> Arc<CpuModel> {
    open_gguf(&TinyModel::new(Family::Qwen3).ty(TensorType::Q8_0).gguf()).expect("a sound model")
}

fn executor(model: &Arc<CpuModel>, threads: usize) -> CpuExecutor {
    let ids: Vec<TokenId> = (0..model.vocab() as TokenId).filter(|x| x % 3 != 1).collect();
    let bytes = TinyExitHead::new("f", 1, &[2], ids).bytes(model.config());
    let exit = ExitHead::read(&bytes, model, "tiny", "f", &Team::new(1)).expect("a sound head");
    let heads = DraftHeads { exit: Some(Arc::new(exit)), ..DraftHeads::default() };
    let isa = Isa::detect().expect("an instruction set");
    let options = CpuOptions { isa, threads, context: 200, kv_positions: 800, kv_type: KvType::F16 };
    CpuExecutor::new(model.clone(), heads, &options).expect("a small cache")
}

/// Prefill, a draft with the exit head, its verification, a fork, and different ends of both.
fn history(backend: &mut dyn Backend, text: &[TokenId]) -> Vec<Vec<u32>> {
    let full = LayerPlan::full(backend.n_layers());
    let exit = backend.exit_head().expect("there").plan.clone();
    let (seq, mut out, mut all) = (backend.create(), StepOutput::default(), Vec::new());
    let rows: Vec<Row> = (0..70).map(|pos| plain(seq, pos, text[pos], &full)).collect();
    backend.step(&rows, &mut out).expect("sound");
    all.extend(bits(&out));
    backend.set_len(seq, 70).expect("computed");
    for (pos, token) in text.iter().enumerate().take(73).skip(70) {
        let row = Row { keep: true, readout: Readout::ExitHead, ..plain(seq, pos, *token, &exit) };
        backend.step(&[row], &mut out).expect("sound");
        all.extend(bits(&out));
    }
    let verify = |pos: usize| Row { enter: Enter::Kept, ..plain(seq, pos, text[pos], &full) };
    backend.step(&[70, 71, 72].map(verify), &mut out).expect("sound");
    all.extend(bits(&out));
    backend.set_len(seq, 72).expect("computed");
    let fork = backend.fork(seq, 71).expect("pages are free");
    backend.step(&[plain(fork, 71, 1, &full), plain(seq, 72, text[72], &full)], &mut out).expect("sound");
    all.extend(bits(&out));
    backend.free(seq);
    backend.free(fork);
    assert_eq!(backend.free_pages(), backend.total_pages());
    all
}

#[test]
fn a_device_that_forwards_to_the_cpu_gives_its_bits() {
    let model = model();
    let text = tokens(80, model.vocab());
    let copies = Arc::new(AtomicUsize::new(0));
    let expected = history(&mut CpuBackend::of(executor(&model, 1)), &text);
    let forwarding = Forwarding { cpu: executor(&model, 2), copies: copies.clone() };
    assert!(history(&mut PagedBackend::of(forwarding), &text) == expected);
    assert_eq!(copies.load(Ordering::Relaxed), 1, "the fork's last page");
}

fn highest(logits: &[f32]) -> TokenChoice {
    let ids = 0..logits.len();
    let token = ids.max_by(|a, b| logits[*a].total_cmp(&logits[*b]).then(b.cmp(a))).expect("not empty");
    let sum: f32 = logits.iter().map(|l| (l - logits[token]).exp()).sum();
    TokenChoice { token: token as TokenId, accepted: false, confidence: 1.0 / sum, logprob: None }
}

/// Chooses the highest logit of the rows with an even index.
struct EvenRows;

impl ChooseToken for EvenRows {
    fn chooses(&self, row: usize) -> bool {
        row.is_multiple_of(2)
    }

    fn choose(&self, _: usize, logits: &[f32]) -> Result<TokenChoice, LogitsError> {
        Ok(highest(logits))
    }
}

#[test]
fn chosen_tokens_are_those_of_the_logits_on_any_number_of_threads() {
    let model = model();
    let text = tokens(24, model.vocab());
    for threads in [1, 2, 4] {
        let mut backend = CpuBackend::of(executor(&model, threads));
        let full = LayerPlan::full(backend.n_layers());
        let seq = backend.create();
        let readout = |pos| if pos % 3 == 1 { Readout::Nothing } else { Readout::Head };
        let rows: Vec<Row> =
            (0..24).map(|pos| Row { readout: readout(pos), ..plain(seq, pos, text[pos], &full) }).collect();
        let (mut logits, mut chosen) = (StepOutput::default(), StepOutput::default());
        backend.step(&rows, &mut logits).expect("sound");
        let readouts = StepReadouts { choose: Some(&EvenRows), ..StepReadouts::default() };
        backend.step_with(&rows, &readouts, &mut chosen).expect("sound");
        let with_head: Vec<usize> = (0..24).filter(|pos| readout(*pos) == Readout::Head).collect();
        assert_eq!((logits.len(), chosen.len()), (16, 16));
        for (i, row) in with_head.into_iter().enumerate() {
            if row % 2 == 0 {
                assert_eq!(chosen.choice(i), Some(&Ok(highest(logits.logits(i)))), "{threads} threads, row {row}");
                assert!(chosen.logits(i).is_empty());
            } else {
                assert_eq!(chosen.choice(i), None);
                assert!(chosen.logits(i) == logits.logits(i), "{threads} threads, row {row}");
            }
        }
    }
}

#[test]
fn the_state_after_the_final_norm_is_what_the_head_reads() {
    let model = model();
    let text = tokens(9, model.vocab());
    let mut backend = CpuBackend::of(executor(&model, 2));
    let full = LayerPlan::full(backend.n_layers());
    let seq = backend.create();
    let rows: Vec<Row> = (0..9).map(|pos| plain(seq, pos, text[pos], &full)).collect();
    let states = &[HiddenState::AfterNorm];
    let mut out = StepOutput::default();
    backend.step_with(&rows, &StepReadouts { states, ..StepReadouts::default() }, &mut out).expect("sound");
    let mut weights = vec![0.0; model.config().dim];
    for row in 0..9 {
        let (state, logits) = (out.state(0, row), out.logits(row));
        assert_eq!(state.len(), model.config().dim);
        let (mut off, mut all) = (0.0, 0.0);
        for (token, got) in (0..).zip(logits) {
            model.head_row(token, &mut weights);
            let want: f32 = weights.iter().zip(state).map(|(w, x)| w * x).sum();
            (off, all) = (off + (got - want).powi(2), all + want * want);
        }
        assert!(f32::sqrt(off / all) < 0.03, "row {row}: {}", f32::sqrt(off / all));
    }
}

/// Chooses the highest logit, an id of the exit head's vocabulary.
struct HeadVocab(Arc<[TokenId]>);

impl ChooseToken for HeadVocab {
    fn chooses(&self, _: usize) -> bool {
        true
    }

    fn choose(&self, _: usize, logits: &[f32]) -> Result<TokenChoice, LogitsError> {
        let choice = highest(logits);
        Ok(TokenChoice { token: self.0[choice.token as usize], ..choice })
    }
}

#[test]
fn a_whole_draft_is_the_steps_that_it_stands_for() {
    let model = model();
    let text = tokens(20, model.vocab());
    let mut backend = CpuBackend::of(executor(&model, 2));
    let full = LayerPlan::full(backend.n_layers());
    let head = backend.exit_head().expect("there").clone();
    let (seq, mut out) = (backend.create(), StepOutput::default());
    let rows: Vec<Row> = (0..20).map(|pos| plain(seq, pos, text[pos], &full)).collect();
    backend.step(&rows, &mut out).expect("sound");
    backend.set_len(seq, 19).expect("computed");

    let first = Row { keep: true, readout: Readout::ExitHead, ..plain(seq, 19, text[19], &head.plan) };
    let (mut row, mut expected) = (first.clone(), Vec::new());
    for _ in 0..6 {
        backend.step(std::slice::from_ref(&row), &mut out).expect("sound");
        let choice = HeadVocab(head.vocab.clone()).choose(0, out.logits(0)).expect("finite");
        (row.pos, row.token) = (row.pos + 1, choice.token);
        expected.push(choice);
    }
    backend.set_len(seq, 19).expect("computed");
    let rule = |most: usize| DraftStopRule {
        most,
        min_confidence: 0.0,
        ends: Vec::new(),
        edges: vec![0.0],
        places: Vec::new(),
        reached: 1.0,
    };
    let mut draft = |stop: &DraftStopRule| {
        let request = DraftRequest { first: &first, stop, choose: &HeadVocab(head.vocab.clone()) };
        let mut made = DraftOutput::default();
        backend.draft(&request, &mut made).expect("sound");
        let next = made.drafts.len();
        backend.set_len(seq, 19).expect("computed");
        (made.drafts, made.rows, next)
    };
    for most in 1..=6 {
        assert_eq!(draft(&rule(most)), (expected[..most].to_vec(), most, most));
    }
    let ends = DraftStopRule { ends: vec![expected[2].token], ..rule(6) };
    let last = expected.iter().position(|c| c.token == expected[2].token).expect("it is there") + 1;
    assert_eq!(draft(&ends), (expected[..last].to_vec(), last, last));

    // A place whose verification costs more than the draft is expected to bring: the row ran, the
    // token is left out.
    let place =
        |verify_price| DraftStopPlace { acceptance: vec![0.5], verify_price, next_acceptance: 1.0, next_price: 0.0 };
    let priced = DraftStopRule { places: vec![place(0.4), place(0.4)], ..rule(6) };
    assert_eq!(draft(&priced), (expected[..1].to_vec(), 2, 1));
    let dear = DraftStopRule { places: vec![DraftStopPlace { next_price: 0.6, ..place(0.0) }], ..rule(6) };
    assert_eq!(draft(&dear), (expected[..1].to_vec(), 1, 1));
    let unsure = DraftStopRule { min_confidence: 1.1, ..rule(6) };
    assert_eq!(draft(&unsure), (Vec::new(), 1, 0));
}
