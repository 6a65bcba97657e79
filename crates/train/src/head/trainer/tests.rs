//! Tests of the trainer: starts from a head, and batches that are not finite.

use super::*;
use crate::data::corpus::TrainingText;
use crate::data::states::HiddenStateSource;
use crate::head::plan::HeadPlan;
use selfspec_kernels::Team;
use selfspec_testkit::{Family, TinyModel};
use selfspec_weights::Checkpoint as Weights;

struct Same;

impl HiddenStateSource for Same {
    fn states(
        &mut self,
        tokens: &[TokenId],
        layers: &[usize],
    ) -> Result<Vec<Vec<f32>>, Box<dyn std::error::Error + Send + Sync>> {
        let state = |i: usize| ((i * 7919) % 1000) as f32 / 500.0 - 1.0;
        Ok(layers.iter().map(|l| (0..tokens.len() * 40).map(|i| state(i + l)).collect()).collect())
    }
}

/// A trainer of a tiny head of this width of feed-forward part, with files in `dir`.
fn trainer(dir: &Path, ffn_dim: usize) -> HeadTrainer {
    let gguf = TinyModel::new(Family::Llama).gguf();
    let checkpoint = Weights::from_gguf_bytes(Path::new("tiny.gguf"), gguf.bytes()).expect("whole");
    let model = Arc::new(CpuModel::open(&checkpoint, &Team::new(1)).expect("sound"));
    let text = TrainingText { domain: "a".to_owned(), prompt_len: 1, tokens: vec![1, 2, 3, 4] };
    let corpus = Arc::new(Corpus { texts: vec![text; 8] });
    let mut options = HeadOptions::new(HeadPlan { exit_layer: 1, features: vec![4], ffn_dim });
    (options.batch_tokens, options.epochs) = (4, 4.0);
    let (path, layers) = (dir.join("states"), options.head.layers(4));
    let cache = HiddenStateCache::fill(&path, &corpus, "f", 40, &layers, &mut Same, &mut |_, _| true);
    let cache = cache.expect("written").expect("complete");
    HeadTrainer::new(model, corpus, cache, vec![1, 2], options).expect("sound")
}

#[test]
fn a_training_starts_from_a_head_of_the_same_design_only() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (head, state) = (dir.path().join("head"), dir.path().join("state"));
    let mut first = trainer(dir.path(), 8);
    for _ in 0..3 {
        first.take_step(1).expect("sound");
    }
    first.write_head(&head, ExitHeadCard::default(), HeadPrecision::Bf16).expect("written");

    let mut second = trainer(dir.path(), 8);
    second.start_from(&head).expect("of the same design");
    let close = |a: &f32, b: &f32| (a - b).abs() <= 0.004 * b.abs();
    assert!(second.values.iter().zip(&first.values).all(|(a, b)| close(a, b)), "BF16 has 8 bits");
    assert!(second.values != trainer(dir.path(), 8).values);
    second.take_step(1).expect("sound");
    second.save(&state).expect("saved");

    let e = trainer(dir.path(), 8).resume(&state).expect_err("it started otherwise").to_string();
    assert!(e.contains("from"), "{e}");
    let mut third = trainer(dir.path(), 8);
    third.start_from(&head).expect("of the same design");
    third.resume(&state).expect("of the same training");
    assert!(third.values == second.values);

    let e = trainer(dir.path(), 0).start_from(&head).expect_err("another design").to_string();
    assert!(e.contains("made for another head") && e.contains("feed-forward part of 8"), "{e}");
    std::fs::write(&head, b"nothing").expect("written");
    let e = trainer(dir.path(), 8).start_from(&head).expect_err("damaged").to_string();
    assert!(e.contains("not a safetensors file"), "{e}");
}

#[test]
fn batches_that_are_not_finite_are_skipped_and_ten_in_a_row_end_the_training() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut trainer = trainer(dir.path(), 8);
    let (sound, state) = (trainer.values.clone(), dir.path().join("state"));

    // As a fault of the machine might break a few batches.
    let mut broken = sound.clone();
    broken[3] = f32::NAN;
    trainer.weights.set(&broken, 1);
    let mut skipped = 0;
    let outcome = trainer.run(&HeadRun::default(), &mut |event| {
        let HeadTrainingEvent::Step(report) = event else { return ControlFlow::Continue(()) };
        assert!(report.skipped && !report.gradient_norm.is_finite());
        skipped += 1;
        if skipped == 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(outcome.expect("stopped"), TrainingResult::Stopped);
    assert_eq!((trainer.failed, trainer.optimizer.steps), (4, 0));
    assert!(trainer.values == sound, "nothing was learned from them");
    trainer.weights.set(&sound, 1);
    trainer.take_step(1).expect("sound");
    assert_eq!((trainer.failed, trainer.step), (0, 5));
    trainer.save(&state).expect("saved");

    trainer.weights.set(&broken, 1);
    let good = trainer.values.clone();
    let run = HeadRun { checkpoint: Some(&state), save_every: 2, ..HeadRun::default() };
    let e = trainer.run(&run, &mut |_| ControlFlow::Continue(())).expect_err("broken").to_string();
    assert!(e.starts_with("the loss of 10 batches in a row is not finite, up to step 15"), "{e}");
    trainer.resume(&state).expect("sound");
    assert!(trainer.values == good, "the last good state is on disk");
}
