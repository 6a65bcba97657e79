//! Trainings of tiny whole models, from spans to files that are read as models again.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use selfspec_kernels::{Isa, KvType, Team};
use selfspec_model::{Backend, CpuBackend, CpuModel, CpuOptions, Enter, LayerPlan, Readout, Row, StepOutput, TokenId};
use selfspec_testkit::{Family, TensorType, TinyModel};
use selfspec_train::{
    BackboneEvent, BackboneOptions, BackboneRun, BackboneTrainer, Curriculum, TokenSpans, TrainError, TrainingSchedule,
};
use selfspec_weights::{Checkpoint, Source};

/// A model's file or folder in `dir`.
fn written(dir: &Path, name: &str, tiny: &TinyModel) -> PathBuf {
    let path = dir.join(name);
    if name.ends_with(".gguf") {
        tiny.gguf().write(&path);
    } else {
        tiny.folder().write(&path);
    }
    path
}

fn open(path: &Path) -> CpuModel {
    CpuModel::open(&Checkpoint::open(path).expect("whole"), &Team::new(1)).expect("sound")
}

/// Texts with something to learn: each token but every fifth follows from the one before.
fn spans(vocab: usize) -> TokenSpans {
    let text = |t: usize| -> Vec<TokenId> {
        let mut token = t * 7 % vocab;
        let next = |i: usize| {
            token = if i.is_multiple_of(5) { (token + t + i) % vocab } else { (token * 3 + 1) % vocab };
            token as TokenId
        };
        (0..100).map(next).collect()
    };
    TokenSpans::cut(&(0..30).map(text).collect::<Vec<_>>(), 24, 8, 1).expect("enough")
}

fn options() -> BackboneOptions {
    BackboneOptions {
        layer_dropout: 0.4,
        exits: vec![1, 2],
        exit_weight: 0.5,
        curriculum: Curriculum::Rotate,
        epochs: 3.0,
        steps: Some(9),
        batch_tokens: 500,
        schedule: TrainingSchedule { learning_rate: 3e-3, ..TrainingSchedule::default() },
        ..BackboneOptions::default()
    }
}

fn trainer(path: &Path, change: impl FnOnce(&mut BackboneOptions)) -> BackboneTrainer {
    let model = open(path);
    let mut options = options();
    change(&mut options);
    BackboneTrainer::new(&model, path, spans(model.vocab()), options, 1).expect("sound")
}

/// The loss after all layers of every step.
fn run(trainer: &mut BackboneTrainer, run: &BackboneRun<'_>, stop: usize) -> Result<Vec<f64>, TrainError> {
    let mut losses = Vec::new();
    trainer.run(run, &mut |event| {
        let BackboneEvent::Step(step) = event else { return ControlFlow::Continue(()) };
        losses.push(step.loss);
        if step.step == stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(losses)
}

#[test]
fn a_training_has_the_same_bits_on_any_number_of_threads_and_after_interruptions() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = written(dir.path(), "tiny.gguf", &TinyModel::new(Family::Llama));
    let state = |name: &str| dir.path().join(name);
    let mut all = Vec::new();
    for threads in 1..4 {
        let state = state(&threads.to_string());
        let with = BackboneRun { threads, checkpoint: Some(&state), ..BackboneRun::default() };
        all.push(run(&mut trainer(&path, |_| {}), &with, usize::MAX).expect("sound"));
        assert!(
            fs::read(&state).expect("saved") == fs::read(dir.path().join("1")).expect("saved"),
            "{threads} threads"
        );
    }
    assert!(all[0].len() == 9 && all.iter().all(|losses| *losses == all[0]));

    let (parts, mut losses) = (state("parts"), Vec::new());
    let with = BackboneRun { checkpoint: Some(&parts), save_every: Duration::ZERO, ..BackboneRun::default() };
    for stop in [2, 5, usize::MAX] {
        let mut trainer = trainer(&path, |_| {});
        if !losses.is_empty() {
            trainer.resume(&parts, 2).expect("the same training");
        }
        losses.extend(run(&mut trainer, &with, stop).expect("sound"));
    }
    assert_eq!(losses, all[0]);
    assert!(fs::read(&parts).expect("saved") == fs::read(state("1")).expect("saved"), "the same bits");
    for change in [|o: &mut BackboneOptions| o.seed = 2, |o: &mut BackboneOptions| o.layer_dropout = 0.0] {
        let e = trainer(&path, change).resume(&parts, 1).expect_err("another training").to_string();
        assert!(e.contains("made for another training"), "{e}");
    }
}

#[test]
fn training_lowers_the_loss_of_all_layers_and_of_the_exits() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    for family in [Family::Llama, Family::Qwen2, Family::Qwen3] {
        let path = written(dir.path(), &format!("{family:?}.gguf"), &TinyModel::new(family));
        let mut trainer = trainer(&path, |o| (o.steps, o.epochs) = (Some(60), 20.0));
        let before = trainer.perplexities(false, 2);
        run(&mut trainer, &BackboneRun { threads: 2, ..BackboneRun::default() }, usize::MAX).expect("sound");
        let after = trainer.perplexities(true, 2);
        assert_eq!(after, trainer.perplexities(true, 1), "on any number of threads");
        assert_eq!(before.readings.iter().map(|r| r.layers).collect::<Vec<_>>(), [1, 2, 4]);
        for (old, new) in before.readings.iter().zip(&after.readings) {
            assert!(new.perplexity < 0.7 * old.perplexity, "{family:?}: {before:?} {after:?}");
        }
        assert_eq!((before.tokens, before.full().agreement), (8 * 23, 1.0));
    }
}

/// Logits of the engine's forward pass for every token of a text.
fn logits(model: CpuModel, tokens: &[TokenId]) -> Vec<f32> {
    let context = model.config().context;
    let isa = Isa::detect().expect("an instruction set");
    let options = CpuOptions { isa, threads: 1, context, kv_positions: 2 * context, kv_type: KvType::F16 };
    let mut backend = CpuBackend::new(Arc::new(model), &options).expect("a small cache");
    let (seq, mut out) = (backend.create(), StepOutput::default());
    let plan = LayerPlan::full(backend.n_layers());
    let row = |(pos, token): (usize, &TokenId)| Row {
        seq,
        pos,
        token: *token,
        enter: Enter::Token,
        plan: plan.clone(),
        keep: false,
        readout: Readout::Head,
    };
    let rows: Vec<Row> = tokens.iter().enumerate().map(row).collect();
    backend.step(&rows, &mut out).expect("sound");
    (0..tokens.len()).flat_map(|r| out.logits(r).to_vec()).collect()
}

/// The perplexity of a text by the engine's logits.
fn perplexity(logits: &[f32], tokens: &[TokenId]) -> f64 {
    let vocab = logits.len() / tokens.len();
    let nll = |(row, next): (&[f32], &TokenId)| {
        let sum: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
        sum.ln() - f64::from(row[*next as usize])
    };
    let sum: f64 = logits.chunks_exact(vocab).zip(&tokens[1..]).map(nll).sum();
    (sum / (tokens.len() - 1) as f64).exp()
}

#[test]
fn what_is_written_is_the_model_that_was_trained() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (llama, qwen) = (TinyModel::new(Family::Llama), TinyModel::new(Family::Qwen2));
    let cases = [
        ("f16.gguf", llama.clone().ty(TensorType::F16), TensorType::F16, 1),
        ("f32.gguf", llama.clone().untied(), TensorType::F32, 0),
        ("q8.gguf", llama.clone().ty(TensorType::Q8_0), TensorType::Q8_0, 7),
        ("q4.gguf", llama.clone().ty(TensorType::Q4_0), TensorType::F16, 1),
        ("folder", qwen.clone(), TensorType::F32, 0),
        ("halves", qwen.ty(TensorType::Bf16), TensorType::Bf16, 0),
    ];
    for (name, tiny, ty, file_type) in cases {
        let path = dir.path().join(name);
        if name.ends_with(".gguf") {
            // Numbers that are of the file, and a tensor that is not trained.
            let gguf = tiny.gguf().metadata("general.file_type", 2u32).metadata("general.alignment", 32u32);
            gguf.tensor(
                "rope_freqs.weight",
                &[tiny.dims().head_dim / 2],
                TensorType::F32,
                &vec![1.5; 10][..tiny.dims().head_dim / 2],
            )
            .write(&path);
        } else {
            tiny.folder().write(&path);
        }
        let mut trainer = trainer(&path, |o| o.steps = Some(4));
        run(&mut trainer, &BackboneRun::default(), usize::MAX).expect("sound");
        let out = dir.path().join(format!("out-{name}"));
        let files = trainer.write(&out).expect("written");
        assert!(files.iter().all(|file| file.exists()) && trainer.is_gguf() == name.ends_with(".gguf"));

        let (old, new) = (Checkpoint::open(&path).expect("whole"), Checkpoint::open(&out).expect("whole"));
        let shapes = |c: &Checkpoint| c.tensors().map(|t| (t.name.clone(), t.shape.clone())).collect::<Vec<_>>();
        assert_eq!(shapes(&old), shapes(&new));
        for info in new.tensors() {
            let expected = if info.shape.len() == 2 { ty } else { TensorType::F32 };
            assert_eq!(info.ty, expected, "{name}: {}", info.name);
        }
        match (old.source(), new.source()) {
            (Source::Gguf(old), Source::Gguf(new)) => {
                assert_eq!(new.u64("general.file_type").expect("a number"), Some(file_type));
                let rest = |m: &selfspec_weights::Metadata| -> Vec<(String, Vec<u8>)> {
                    let own = ["general.file_type", "general.alignment"];
                    let raw = m.raw().into_iter().filter(|(key, _)| !own.contains(key));
                    raw.map(|(key, value)| (key.to_owned(), value.to_vec())).collect()
                };
                assert!(rest(old) == rest(new) && !new.has("general.alignment"), "{name}");
                let factors = |c: &Checkpoint| c.need_tensor("rope_freqs.weight").expect("there").bytes.to_vec();
                assert_eq!(
                    factors(&Checkpoint::open(&path).expect("whole")),
                    factors(&Checkpoint::open(&out).expect("whole"))
                );
            }
            (Source::HuggingFace { config: old, .. }, Source::HuggingFace { config: new, .. }) => {
                assert_eq!(old, new);
                assert_eq!(fs::read(path.join("tokenizer.json")).ok(), fs::read(out.join("tokenizer.json")).ok());
            }
            _ => panic!("{name}: the kind has changed"),
        }

        // The engine says of the file what training said of it.
        let model = open(&out);
        let held_out = spans(model.vocab()).held_out;
        let one = TokenSpans { train: held_out.clone(), held_out: vec![held_out[0].clone()] };
        let judged = BackboneTrainer::new(&model, &out, one, options(), 1).expect("sound").perplexities(false, 1);
        let engine = perplexity(&logits(model, &held_out[0]), &held_out[0]);
        let said = judged.full().perplexity;
        // The engine computes with activations of 8 bits where the matrices have 8.
        let bound = if ty == TensorType::Q8_0 { 3e-2 } else { 5e-3 };
        assert!((engine / said - 1.0).abs() < bound, "{name}: {engine} for {said}");
        let mut again =
            BackboneTrainer::new(&open(&out), &out, spans(open(&out).vocab()), options(), 1).expect("sound");
        assert_eq!(again.perplexities(false, 1), trainer.perplexities(true, 1), "{name}: judged as it was written");
    }
}

#[test]
fn an_unused_head_is_left_out_of_a_folder() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let tiny = TinyModel::new(Family::Llama);
    let path = dir.path().join("model");
    let (vocab, dim) = (tiny.vocab.len(), tiny.dims().dim);
    tiny.folder().tensor("lm_head.weight", &[vocab, dim], TensorType::F32, &vec![0.5; vocab * dim]).write(&path);
    let out = dir.path().join("out");
    trainer(&path, |_| {}).write(&out).expect("written");
    assert!(Checkpoint::open(&out).expect("whole").tensors().all(|t| t.name != "lm_head.weight"));
}

#[test]
fn what_cannot_be_trained_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let gemma = written(dir.path(), "gemma.gguf", &TinyModel::new(Family::Gemma3));
    let new = |path: &Path, spans: TokenSpans, change: &dyn Fn(&mut BackboneOptions)| {
        let mut options = options();
        change(&mut options);
        BackboneTrainer::new(&open(path), path, spans, options, 1).map(drop).expect_err("refused").to_string()
    };
    let vocab = open(&gemma).vocab();
    let e = new(&gemma, spans(vocab), &|_| {});
    assert!(e.starts_with("models of this kind (gemma3) cannot be trained: "), "{e}");
    let path = written(dir.path(), "tiny.gguf", &TinyModel::new(Family::Llama));
    let vocab = open(&path).vocab();
    let why = |change: &dyn Fn(&mut BackboneOptions)| new(&path, spans(vocab), change);
    assert_eq!(why(&|o| o.exits = vec![4]), "exits: [4] is not between 1 and 3 layers, ascending, of a model of 4");
    assert_eq!(
        why(&|o| o.exits = vec![2, 1]),
        "exits: [2, 1] is not between 1 and 3 layers, ascending, of a model of 4"
    );
    assert_eq!(why(&|o| o.layer_dropout = 0.6), "layer_dropout: 0.6 is not from 0 to 0.5");
    assert_eq!(why(&|o| o.exit_weight = -1.0), "exit_weight: -1 is not from 0 to 10");
    assert_eq!(why(&|o| o.steps = Some(0)), "steps: 0 is not above 0");
    assert_eq!(why(&|o| o.batch_tokens = 0), "batch_tokens: 0 is not above 0");
    assert_eq!(why(&|o| o.shards = 0), "shards: 0 is not from 1 to 256");
    assert_eq!(why(&|o| o.epochs = 0.0), "epochs: 0 is not above 0 and at most a million");
    assert_eq!(why(&|o| o.schedule.learning_rate = 2.0), "learning_rate: 2 is not above 0 and at most 1");
    let unknown = TokenSpans { train: vec![vec![1, 2]], held_out: vec![vec![1, 1 << 20]] };
    assert!(new(&path, unknown, &|_| {}).starts_with("text 1: token 1048576 is not in a vocabulary of "));
    assert!(new(&path, TokenSpans::default(), &|_| {}).starts_with("nothing to train on: "));
}

#[test]
fn a_rate_that_ruins_the_model_ends_the_training_and_the_checkpoint_stays() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let tiny = TinyModel::new(Family::Llama);
    // An embedding that is not finite makes every loss that sees it not finite.
    let mut values = vec![0.1f32; tiny.vocab.len() * tiny.dims().dim];
    values[0] = f32::NAN;
    let path = dir.path().join("broken.gguf");
    tiny.gguf()
        .tensor("token_embd.weight", &[tiny.vocab.len(), tiny.dims().dim], TensorType::F32, &values)
        .write(&path);
    let state = dir.path().join("state");
    fs::write(&state, "before").expect("written");
    let mut trainer = trainer(&path, |o| (o.steps, o.epochs) = (Some(30), 20.0));
    let with = BackboneRun { checkpoint: Some(&state), save_every: Duration::ZERO, ..BackboneRun::default() };
    let mut skipped = 0;
    let e = trainer.run(&with, &mut |event| {
        if let BackboneEvent::Step(step) = event {
            skipped += usize::from(step.skipped);
        }
        ControlFlow::Continue(())
    });
    let e = e.expect_err("ten in a row").to_string();
    assert!(e.starts_with("the loss of 10 batches in a row is not finite, up to step 10"), "{e}");
    assert_eq!((skipped, fs::read_to_string(&state).expect("there").as_str()), (9, "before"));
    let e = trainer.write(&dir.path().join("out.gguf")).expect_err("not finite").to_string();
    assert_eq!(e, "`token_embd.weight` has the value NaN, which F32 cannot hold");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_said_to_be_full_and_leaves_what_was_there() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = written(dir.path(), "tiny.gguf", &TinyModel::new(Family::Llama));
    for name in ["state", "out.gguf"] {
        fs::write(dir.path().join(name), "before").expect("written");
        std::os::unix::fs::symlink("/dev/full", dir.path().join(format!("{name}.part"))).expect("linked");
    }
    let (state, out) = (dir.path().join("state"), dir.path().join("out.gguf"));
    let mut trainer = trainer(&path, |_| {});
    let with = BackboneRun { checkpoint: Some(&state), save_every: Duration::ZERO, ..BackboneRun::default() };
    let e = run(&mut trainer, &with, usize::MAX).expect_err("full").to_string();
    assert!(e.starts_with("disk full while writing ") && e.ends_with("state"), "{e}");
    let e = trainer.write(&out).expect_err("full").to_string();
    assert!(e.starts_with("disk full while writing ") && e.ends_with("out.gguf"), "{e}");
    assert_eq!(fs::read_to_string(&out).expect("there"), "before");
}
