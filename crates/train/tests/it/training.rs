//! Trainings of tiny models, from texts to a head's file that the engine's forward pass runs.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use selfspec_kernels::{Isa, KvType, Team};
use selfspec_model::{
    Backend, CpuBackend, CpuModel, CpuOptions, Enter, ExitHead, ExitHeadCard, HiddenState, LayerPlan, Readout, Row,
    SeqId, StepOutput, StepReadouts, TokenId,
};
use selfspec_testkit::{Dims, Family, TensorType, TinyModel};
use selfspec_train::{
    Corpus, HeadEvaluation, HeadOptions, HeadPlan, HeadPrecision, HeadRun, HeadTrainer, HeadTrainingEvent,
    HiddenStateCache, HiddenStateSource, TrainError, TrainingResult, TrainingText, frequent_tokens,
};
use selfspec_weights::Checkpoint;

fn tiny(family: Family) -> Arc<CpuModel> {
    let sizes = TinyModel::new(family).dims();
    // Rows of whole blocks, so that heads can be stored in Q8_0.
    let dims = Dims { dim: 64, ffn: 96, heads: 4, kv_heads: 2, head_dim: 16, ..sizes };
    let gguf = TinyModel::new(family).with_dims(dims).ty(TensorType::F32).gguf();
    let checkpoint = Checkpoint::from_gguf_bytes(Path::new("tiny.gguf"), gguf.bytes()).expect("whole");
    Arc::new(CpuModel::open(&checkpoint, &Team::new(1)).expect("sound"))
}

fn options(model: &CpuModel) -> CpuOptions {
    let context = model.config().context;
    let isa = Isa::detect().expect("an instruction set");
    CpuOptions { isa, threads: 1, context, kv_positions: 2 * context, kv_type: KvType::F16 }
}

fn row(seq: SeqId, pos: usize, token: TokenId, plan: &LayerPlan, readout: Readout) -> Row {
    Row { seq, pos, token, enter: Enter::Token, plan: plan.clone(), keep: false, readout }
}

/// The model's own hidden states.
struct Engine {
    backend: CpuBackend,
    calls: usize,
}

impl Engine {
    fn new(model: &Arc<CpuModel>) -> Engine {
        Engine { backend: CpuBackend::new(model.clone(), &options(model)).expect("a small cache"), calls: 0 }
    }
}

type Fault = Box<dyn std::error::Error + Send + Sync>;

impl HiddenStateSource for Engine {
    fn states(&mut self, tokens: &[TokenId], layers: &[usize]) -> Result<Vec<Vec<f32>>, Fault> {
        self.calls += 1;
        let (seq, mut out) = (self.backend.create(), StepOutput::default());
        let full = LayerPlan::full(self.backend.n_layers());
        let states: Vec<HiddenState> = layers.iter().copied().map(HiddenState::AfterLayers).collect();
        let readouts = StepReadouts { states: &states, ..StepReadouts::default() };
        let rows: Vec<Row> = tokens.iter().enumerate().map(|(i, t)| row(seq, i, *t, &full, Readout::Nothing)).collect();
        self.backend.step_with(&rows, &readouts, &mut out)?;
        self.backend.free(seq);
        Ok((0..layers.len()).map(|i| (0..rows.len()).flat_map(|r| out.state(i, r).to_vec()).collect()).collect())
    }
}

/// `texts` answers of the model itself, of `len` tokens each: greedy, so that a head can learn
/// them.
fn answers(model: &Arc<CpuModel>, texts: usize, len: usize) -> Corpus {
    let mut backend = CpuBackend::new(model.clone(), &options(model)).expect("a small cache");
    let full = LayerPlan::full(backend.n_layers());
    let text = |i: usize| {
        let mut tokens: Vec<TokenId> = (0..3).map(|j| ((i * 31 + j * 17 + 5) % model.vocab()) as TokenId).collect();
        let (seq, mut out) = (backend.create(), StepOutput::default());
        for pos in 0..len - 1 {
            backend.step(&[row(seq, pos, tokens[pos], &full, Readout::Head)], &mut out).expect("sound");
            let logits = out.logits(0);
            let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).expect("a vocabulary");
            if pos + 1 >= tokens.len() {
                // Not the very best alone, or the text would soon go round in circles.
                tokens.push(if pos % 3 == 0 { ((best * 7 + pos) % model.vocab()) as TokenId } else { best as TokenId });
            }
        }
        backend.free(seq);
        TrainingText { domain: ["code", "chat"][i % 2].to_owned(), prompt_len: 3, tokens }
    };
    Corpus { texts: (0..texts).map(text).collect() }
}

fn cache(dir: &Path, model: &Arc<CpuModel>, corpus: &Corpus, plan: &HeadPlan) -> HiddenStateCache {
    let (path, c) = (dir.join("states"), model.config());
    let layers = plan.layers(c.n_layers);
    let filled = HiddenStateCache::fill(&path, corpus, "f", c.dim, &layers, &mut Engine::new(model), &mut |_, _| true);
    filled.expect("computed").expect("not stopped")
}

fn plan() -> HeadPlan {
    HeadPlan { exit_layer: 1, features: vec![2, 4], ffn_dim: 96 }
}

/// A training of few steps on a few texts.
fn small(dir: &Path, change: impl FnOnce(&mut HeadOptions)) -> HeadTrainer {
    let model = tiny(Family::Llama);
    let corpus = answers(&model, 24, 20);
    let mut options = HeadOptions::new(plan());
    (options.batch_tokens, options.epochs, options.held_out) = (100, 2.0, 2);
    change(&mut options);
    let cache = cache(dir, &model, &corpus, &options.head);
    let vocab = frequent_tokens(&corpus, 60, &[0]);
    HeadTrainer::new(model, Arc::new(corpus), cache, vocab, options).expect("sound")
}

fn run(trainer: &mut HeadTrainer, run: &HeadRun<'_>) -> Vec<HeadTrainingEvent> {
    let mut events = Vec::new();
    let outcome = trainer.run(run, &mut |event| {
        events.push(event.clone());
        ControlFlow::Continue(())
    });
    assert!(matches!(outcome, Ok(TrainingResult::Finished(_))), "{outcome:?}");
    events
}

fn losses(events: &[HeadTrainingEvent]) -> Vec<f64> {
    events
        .iter()
        .filter_map(|e| if let HeadTrainingEvent::Step(report) = e { Some(report.loss) } else { None })
        .collect()
}

#[test]
fn a_head_learns_a_small_set_of_texts_by_heart() {
    for (family, features, ffn_dim) in
        [(Family::Llama, vec![4], 96), (Family::Gemma3, vec![2, 7], 96), (Family::Qwen2, vec![], 160)]
    {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let model = tiny(family);
        let corpus = answers(&model, 6, 16);
        let mut options = HeadOptions::new(HeadPlan { exit_layer: 1, features, ffn_dim });
        (options.batch_tokens, options.epochs, options.rollout) = (100, 400.0, 2);
        options.schedule.learning_rate = 4e-3;
        let cache = cache(dir.path(), &model, &corpus, &options.head);
        let vocab = (0..model.vocab() as TokenId).collect();
        let mut trainer = HeadTrainer::new(model, Arc::new(corpus), cache, vocab, options).expect("sound");
        let losses = losses(&run(&mut trainer, &HeadRun { threads: 2, evaluate_every: 0, ..HeadRun::default() }));
        let (first, last) = (losses[0], losses[losses.len() - 1]);
        assert!(first > 0.5 && last < 0.02, "{family:?}: from {first} to {last}");
    }
}

#[test]
fn an_interrupted_training_ends_as_if_it_had_not_been_on_any_number_of_threads() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (whole, parts) = (dir.path().join("whole"), dir.path().join("parts"));
    let with = |path| HeadRun { checkpoint: Some(path), save_every: 4, evaluate_every: 3, ..HeadRun::default() };
    let mut trainer = small(dir.path(), |_| {});
    let all = losses(&run(&mut trainer, &HeadRun { threads: 3, ..with(&whole) }));
    assert!(all.len() >= 8 && trainer.steps() == (all.len(), all.len()));

    let mut seen = Vec::new();
    for stop in [3, 5, usize::MAX] {
        let mut trainer = small(dir.path(), |_| {});
        if !seen.is_empty() {
            trainer.resume(&parts).expect("the same training");
        }
        let outcome = trainer.run(&with(&parts), &mut |event| {
            if let HeadTrainingEvent::Step(report) = event {
                seen.push(report.loss);
                if report.step == stop {
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
        assert_eq!(outcome.expect("sound") == TrainingResult::Stopped, stop != usize::MAX);
    }
    assert_eq!(seen, all);
    assert!(fs::read(&whole).expect("saved") == fs::read(&parts).expect("saved"), "the same bits");

    let mut other = small(dir.path(), |o| o.seed = 2);
    let e = other.resume(&whole).expect_err("another seed").to_string();
    assert!(e.contains("made for another training"), "{e}");
}

#[test]
fn training_makes_a_head_better_on_texts_it_has_not_seen() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let model = tiny(Family::Llama);
    let corpus = answers(&model, 160, 24);
    let mut options = HeadOptions::new(plan());
    (options.batch_tokens, options.epochs, options.held_out) = (400, 12.0, 8);
    options.schedule.refusal = 0.3;
    options.schedule.learning_rate = 3e-3;
    let cache = cache(dir.path(), &model, &corpus, &options.head);
    let vocab = frequent_tokens(&corpus, 200, &[]);
    let mut trainer = HeadTrainer::new(model, Arc::new(corpus), cache, vocab, options).expect("sound");
    let before = trainer.evaluate(3, 2).expect("judged");
    run(&mut trainer, &HeadRun { threads: 2, ..HeadRun::default() });
    let after = trainer.evaluate(3, 1).expect("judged");
    assert_eq!(after, trainer.evaluate(3, 2).expect("judged"), "on any number of threads");
    let sampled = |j: &HeadEvaluation| j.all.sampled_length;
    assert!(sampled(&after) > 1.5 * sampled(&before), "{before:?} {after:?}");
    assert_eq!(after.domains.keys().collect::<Vec<_>>(), ["chat", "code"]);
    assert_eq!(after.all.rounds, after.domains.values().map(|d| d.rounds).sum::<usize>());
    for a in after.domains.values() {
        assert_eq!((a.greedy.len(), a.sampled.len(), a.rounds), (3, 3, 8 * 21));
        assert!(a.greedy.iter().chain(&a.sampled).all(|x| (0.0..=1.0 + 1e-6).contains(x)), "{a:?}");
        assert!(a.greedy_length <= 3.0 && a.sampled_length <= 3.0);
    }
}

#[test]
fn a_heads_file_says_what_it_is_and_is_read() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut trainer = small(dir.path(), |o| o.epochs = 1.5);
    run(&mut trainer, &HeadRun { evaluate_every: 0, ..HeadRun::default() });
    let (model, path) = (tiny(Family::Llama), dir.path().join("head.safetensors"));
    let mut sizes = Vec::new();
    for precision in [HeadPrecision::Bf16, HeadPrecision::Q8_0] {
        let card = ExitHeadCard {
            model: "tiny".into(),
            model_fingerprint: "f".into(),
            command: "selfspec train".into(),
            ..ExitHeadCard::default()
        };
        trainer.write_head(&path, card, precision).expect("written");
        let bytes = fs::read(&path).expect("written");
        let head = ExitHead::read(&bytes, &model, "tiny", "f", &Team::new(1)).expect("sound");
        let card = head.card();
        assert_eq!((card.exit_layer, &card.features[..], card.ffn_dim, card.vocab), (1, &[2, 4][..], 96, 60));
        assert_eq!((card.tokens, card.epochs, card.seed, card.version), (24 * 20, 1.5, 1, ExitHeadCard::VERSION));
        assert_eq!((card.model.as_str(), card.command.as_str()), ("tiny", "selfspec train"));
        assert!(head.vocab().ids().len() == 60 && head.vocab().ids().contains(&0));
        sizes.push(head.size_bytes());
    }
    assert!(sizes[1] < sizes[0], "{sizes:?}");
}

#[test]
fn hidden_states_are_computed_once_and_go_on_where_they_were_interrupted() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (path, model) = (dir.path().join("states"), tiny(Family::Llama));
    let corpus = answers(&model, 8, 12);
    let layers = plan().layers(4);
    assert_eq!(layers, [1, 2, 4]);
    let mut engine = Engine::new(&model);
    let fill = |engine: &mut Engine, until: usize| {
        HiddenStateCache::fill(&path, &corpus, "f", 64, &layers, engine, &mut |done, _| done < until || done == 8)
    };
    assert!(fill(&mut engine, 3).expect("stopped").is_none());
    // A text of which a part was written counts as not there.
    let file = fs::OpenOptions::new().append(true).open(&path).expect("there");
    file.set_len(fs::metadata(&path).expect("there").len() - 100).expect("cut");
    let cache = fill(&mut engine, 8).expect("sound").expect("complete");
    assert_eq!(engine.calls, 3 + 6);
    assert_eq!(cache.size_bytes(), fs::metadata(&path).expect("there").len());
    fill(&mut engine, 8).expect("sound").expect("complete");
    assert_eq!(engine.calls, 9, "nothing is computed again");

    let open = |corpus: &Corpus, model: &str, dim, layers: &[usize]| {
        HiddenStateCache::open(&path, corpus, model, dim, layers).map(drop).expect_err("refused").to_string()
    };
    let other = Corpus { texts: corpus.texts[1..].to_vec() };
    assert!(open(&other, "f", 64, &layers).contains("made for another set of texts"));
    assert!(open(&corpus, "g", 64, &layers).contains("made for another model (f, now g)"));
    assert!(open(&corpus, "f", 32, &layers).contains("made for another width (64, now 32)"));
    assert!(open(&corpus, "f", 64, &[4]).contains("made for another choice of layers ([1, 2, 4], now [4])"));
    let len = fs::metadata(&path).expect("there").len();
    file.set_len(len - 1).expect("cut");
    let e = open(&corpus, "f", 64, &layers);
    assert!(e.ends_with(&format!("it ends after {} bytes, expected {len}", len - 1)), "{e}");
    fs::write(&path, "{}\n").expect("written");
    assert!(open(&corpus, "f", 64, &layers).ends_with("it is no cache of hidden states"));
    fs::write(&path, "").expect("written");
    assert!(open(&corpus, "f", 64, &layers).ends_with("it is empty"));
    fs::remove_file(&path).expect("there");
    assert!(open(&corpus, "f", 64, &layers).starts_with("cannot open "));
}

/// A source that gives what a test wants.
struct Wrong(Result<Vec<Vec<f32>>, &'static str>);

impl HiddenStateSource for Wrong {
    fn states(&mut self, _: &[TokenId], _: &[usize]) -> Result<Vec<Vec<f32>>, Fault> {
        self.0.clone().map_err(Into::into)
    }
}

#[test]
fn states_that_cannot_be_are_refused_with_their_place() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let corpus = Corpus { texts: vec![TrainingText { domain: "a".into(), prompt_len: 1, tokens: vec![1, 2, 3] }] };
    let fill = |source: Result<Vec<Vec<f32>>, &'static str>| {
        let path = dir.path().join("states");
        HiddenStateCache::fill(&path, &corpus, "f", 2, &[1, 4], &mut Wrong(source), &mut |_, _| true).map(drop)
    };
    let why = |source| fill(source).expect_err("refused").to_string();
    assert_eq!(why(Err("no memory")), "hidden states of text 0: no memory");
    assert_eq!(why(Ok(vec![vec![0.0; 6]])), "hidden states of text 0 after 4 layers: expected 6 values, got 0");
    assert_eq!(
        why(Ok(vec![vec![0.0; 4], vec![0.0; 6]])),
        "hidden states of text 0 after 1 layers: expected 6 values, got 4"
    );
    let infinite = vec![1.0, 2.0, 3.0, f32::INFINITY, 5.0, 6.0];
    assert_eq!(
        why(Ok(vec![vec![0.0; 6], infinite])),
        "hidden states of text 0 after 4 layers: one at position 1 is not finite"
    );
    fill(Ok(vec![vec![1e38, 1e-38, 0.0, 0.0, -3e38, 2.0]; 2])).expect("any finite number will do");
}

#[test]
fn trainings_that_cannot_be_are_refused_with_the_reason() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let model = tiny(Family::Llama);
    let corpus = answers(&model, 6, 12);
    let make = |corpus: &Corpus, vocab: &[TokenId], change: &dyn Fn(&mut HeadOptions)| {
        let mut options = HeadOptions::new(plan());
        let cache = cache(dir.path(), &model, corpus, &options.head);
        fs::remove_file(dir.path().join("states")).expect("there");
        change(&mut options);
        HeadTrainer::new(model.clone(), Arc::new(corpus.clone()), cache, vocab.to_vec(), options).map(drop)
    };
    let why = |vocab: &[TokenId], change: &dyn Fn(&mut HeadOptions)| {
        make(&corpus, vocab, change).expect_err("refused").to_string()
    };
    make(&corpus, &[1, 5], &|_| {}).expect("sound");
    assert_eq!(why(&[1], &|o| o.rollout = 0), "rollout: 0 is not from 1 to 16");
    assert_eq!(why(&[1], &|o| o.epochs = f64::NAN), "epochs: NaN is not above 0 and at most a million");
    assert_eq!(why(&[1], &|o| o.batch_tokens = 0), "batch_tokens: 0 is not above 0");
    assert_eq!(why(&[1], &|o| o.shards = 0), "shards: 0 is not from 1 to 256");
    assert_eq!(why(&[1], &|o| o.decay = 0.0), "decay: 0 is not above 0 and at most 1");
    assert_eq!(why(&[1], &|o| o.schedule.learning_rate = 0.0), "learning_rate: 0 is not above 0 and at most 1");
    assert_eq!(why(&[1], &|o| o.schedule.refusal = 1.5), "refusal: 1.5 is not a share from 0 to 1");
    assert_eq!(why(&[1], &|o| o.head.exit_layer = 4), "exit_layer: 4 layers below the head, of a model of 4");
    assert_eq!(why(&[1], &|o| o.head.features = vec![5]), "features: a state after 5 layers, of a model of 4");
    assert_eq!(why(&[1], &|o| o.head.ffn_dim = 1 << 30), "ffn_dim: 1073741824 is above 1048576");
    assert_eq!(why(&[1], &|o| o.head.exit_layer = 3), "cache: the cache of hidden states has layers [1, 2, 4], not 3");
    assert_eq!(why(&[], &|_| {}), "vocab: no token to propose");
    assert_eq!(why(&[4, 4], &|_| {}), "vocab: its tokens must ascend, and 4 follows 4");
    assert!(why(&[4, 1 << 20], &|_| {}).starts_with("vocab: token 1048576 is not in a vocabulary of "));

    let of = |texts: Vec<TrainingText>| make(&Corpus { texts }, &[1], &|_| {}).expect_err("refused").to_string();
    let text = |prompt_len, tokens: Vec<TokenId>| TrainingText { domain: "a".into(), prompt_len, tokens };
    assert!(of(vec![]).starts_with("no text to train on: none of 0 "));
    assert!(of(vec![text(0, vec![7]), text(2, vec![1, 2])]).starts_with("no text to train on: none of 2 "));
    // Texts that teach nothing do no harm among others.
    let mut mixed = corpus.clone();
    mixed.texts.extend([text(0, vec![7]), text(2, vec![1, 2]), text(9, vec![3, 4])]);
    make(&mixed, &[1], &|_| {}).expect("sound");
}

#[test]
fn a_token_that_the_model_lacks_is_named() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let model = tiny(Family::Llama);
    let corpus = Corpus { texts: vec![TrainingText { domain: "a".into(), prompt_len: 1, tokens: vec![1, 1 << 20] }] };
    let states = Wrong(Ok(vec![vec![0.5; 2 * 64]; 3]));
    let path = dir.path().join("states");
    let layers = plan().layers(4);
    let cache = HiddenStateCache::fill(&path, &corpus, "f", 64, &layers, &mut { states }, &mut |_, _| true);
    let cache = cache.expect("written").expect("complete");
    let made = HeadTrainer::new(model, Arc::new(corpus), cache, vec![1], HeadOptions::new(plan())).map(drop);
    assert!(matches!(made, Err(TrainError::UnknownToken { text: 0, token: 1_048_576, .. })), "{made:?}");
}

#[test]
fn texts_of_one_token_and_batches_without_a_draft_are_trained_on() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let model = tiny(Family::Llama);
    let text = |tokens: Vec<TokenId>| TrainingText { domain: "a".into(), prompt_len: 0, tokens };
    // Two tokens have a first draft and no second one.
    let corpus = Corpus { texts: vec![text(vec![3, 4]), text(vec![5]), text(vec![6, 7])] };
    let mut options = HeadOptions::new(plan());
    (options.epochs, options.batch_tokens) = (3.0, 2);
    let cache = cache(dir.path(), &model, &corpus, &options.head);
    let mut trainer = HeadTrainer::new(model, Arc::new(corpus), cache, vec![1, 4, 7], options).expect("sound");
    let losses = losses(&run(&mut trainer, &HeadRun::default()));
    assert!(losses.len() == 6 && losses.iter().all(|l| l.is_finite()), "{losses:?}");
}

#[test]
fn a_cache_that_is_cut_during_the_training_is_an_error_and_not_a_panic() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut trainer = small(dir.path(), |_| {});
    let file = fs::OpenOptions::new().write(true).open(dir.path().join("states")).expect("there");
    file.set_len(5000).expect("cut");
    let e = trainer.run(&HeadRun::default(), &mut |_| ControlFlow::Continue(())).expect_err("cut").to_string();
    assert!(e.contains("states: it ends after 5000 bytes, expected "), "{e}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_said_to_be_full_and_leaves_what_was_there() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut trainer = small(dir.path(), |o| o.epochs = 1.0);
    for name in ["state", "head"] {
        fs::write(dir.path().join(name), "before").expect("written");
        std::os::unix::fs::symlink("/dev/full", dir.path().join(format!("{name}.part"))).expect("linked");
    }
    let (state, head) = (dir.path().join("state"), dir.path().join("head"));
    let run = HeadRun { checkpoint: Some(&state), save_every: 1, ..HeadRun::default() };
    let e = trainer.run(&run, &mut |_| ControlFlow::Continue(())).expect_err("full").to_string();
    assert!(e.starts_with("disk full while writing ") && e.ends_with("state"), "{e}");
    let e = trainer.write_head(&head, ExitHeadCard::default(), HeadPrecision::Q8_0).expect_err("full").to_string();
    assert!(e.starts_with("disk full while writing ") && e.ends_with("head"), "{e}");
    assert_eq!(fs::read_to_string(&state).expect("there"), "before");
    assert_eq!(fs::read_to_string(&head).expect("there"), "before");
}

#[test]
fn a_width_that_has_no_blocks_can_be_stored_in_bf16_only() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut trainer = small(dir.path(), |o| (o.head.ffn_dim, o.epochs) = (40, 0.5));
    run(&mut trainer, &HeadRun { evaluate_every: 0, ..HeadRun::default() });
    let path = dir.path().join("head");
    let e = trainer.write_head(&path, ExitHeadCard::default(), HeadPrecision::Q8_0).expect_err("no blocks").to_string();
    assert_eq!(
        e,
        "`layer.down.weight` has rows of 40 values, which are no whole number of blocks of 32; BF16 has no blocks"
    );
    assert!(!path.exists());
    trainer.write_head(&path, ExitHeadCard::default(), HeadPrecision::Bf16).expect("written");
}
