//! The parts of the lab as another program calls them: plain options in, data out, progress told in
//! stages.

use std::path::Path;
use std::sync::{Arc, Mutex};

use selfspec_engine::{DraftSetup, Engine, EngineOptions, LoadedModel};
use selfspec_kernels::Isa;
use selfspec_lab::bench::{BenchOptions, bench};
use selfspec_lab::doctor::{CheckResult, DoctorOptions, PlantedFault, doctor};
use selfspec_lab::prompts::{self, PromptStyle};
use selfspec_lab::tune::{TuneOptions, tune};
use selfspec_lab::verify::{VerifyOptions, verify};
use selfspec_lab::{LabError, StageProgress};
use selfspec_testkit::{Family, TensorType, TinyModel};

/// The stages that work went through: (name, steps announced, steps done, whether it ended).
#[derive(Default)]
struct Stages(Mutex<Vec<(String, u64, u64, bool)>>);

impl StageProgress for Stages {
    fn begin(&self, stage: &str, steps: u64) {
        let mut stages = self.0.lock().expect("no panic");
        assert!(stages.iter().all(|stage| stage.3), "the stage before has ended: {stages:?}");
        stages.push((stage.to_owned(), steps, 0, false));
    }

    fn step(&self) {
        self.0.lock().expect("no panic").last_mut().expect("a stage").2 += 1;
    }

    fn end(&self) {
        self.0.lock().expect("no panic").last_mut().expect("a stage").3 = true;
    }
}

impl Stages {
    /// The names of the stages, each of which has ended with as many steps as were announced.
    fn finished(&self) -> Vec<String> {
        let stages = self.0.lock().expect("no panic");
        for (name, announced, done, ended) in stages.iter().filter(|stage| !stage.0.starts_with("looking")) {
            assert!(*ended && announced == done, "{name}: {done} of {announced}");
        }
        stages.iter().map(|stage| stage.0.clone()).collect()
    }
}

fn loaded(dir: &Path, setup: &DraftSetup) -> Arc<LoadedModel> {
    let path = dir.join("tiny.gguf");
    TinyModel::new(Family::Llama).ty(TensorType::Q8_0).layers(6).gguf().write(&path);
    LoadedModel::open_with(&path, Some(1), setup).expect("a model")
}

#[test]
fn a_proof_is_data() {
    let dir = tempfile::tempdir().expect("a folder");
    let loaded = loaded(dir.path(), &DraftSetup::default());
    let options =
        VerifyOptions { max_tokens: 40, threads: vec![1], isas: vec![Isa::Scalar], ..VerifyOptions::default() };
    let stages = Stages::default();
    let report = verify(&loaded, prompts::built_in(), &options, &stages).expect("it runs");
    assert!(report.ok(), "{:?} {:?}", report.first_mismatch, report.untested);
    assert!(report.drafted > 0 && report.accepted > 0 && report.rejected > 0);
    assert_eq!((report.settings.len(), report.accepted_lengths.len()), (report.cases, 9));
    assert!(report.rejection_sampling.caught > 0 && report.tallies.len() > 5);
    assert!(stages.finished().iter().any(|name| name == "comparing"));
    let none = verify(&loaded, Vec::new(), &options, &());
    assert!(matches!(none, Err(LabError::NoPrompts)));
}

#[test]
fn a_benchmark_and_a_tuning_are_data() {
    let dir = tempfile::tempdir().expect("a folder");
    let loaded = loaded(dir.path(), &DraftSetup { untuned: true, ..DraftSetup::default() });
    let engine = EngineOptions { threads: Some(1), ..EngineOptions::default() };
    let cases = prompts::spread(&prompts::built_in(), 2);
    let options = BenchOptions { contexts: vec![20, 40], repetitions: 1, max_tokens: 12, ..BenchOptions::default() };
    let stages = Stages::default();
    let alone = Engine::open_with(&loaded, &EngineOptions { max_batch: 1, ..engine.clone() }).expect("an engine");
    let report = bench(&alone, &cases, &options, &stages).expect("it runs");
    assert!(report.plain_tok_s > 0.0 && report.first.passes.len() == 16 && report.others.len() == 1);
    assert!(report.speculation.iter().any(|result| result.drafted > 0));
    assert_eq!(stages.finished(), ["measuring passes", "measuring plain decoding", "measuring speculation"]);
    let options = BenchOptions { contexts: vec![1 << 30], ..options };
    assert!(matches!(bench(&alone, &cases, &options, &()), Err(LabError::ShortContext { .. })));
    drop(alone);

    let options = TuneOptions {
        engine,
        style: PromptStyle::Chat,
        max_tokens: 16,
        temperature: 0.0,
        exits: vec![2, 4],
        contexts: vec![40],
        draft_vocab: Some(100),
        model: "tiny".to_owned(),
        prompts: "built-in".to_owned(),
        exit_head: None,
    };
    let stages = Stages::default();
    let report = tune(&loaded, &cases, &options, &stages).expect("it runs");
    assert!(report.acceptance.iter().any(|acceptance| acceptance.stats.drafted > 0));
    assert_eq!((report.finalists.len(), report.costs.len(), report.coverage.map(|c| c.0)), (3, 1, Some(100)));
    assert!(report.finalists.windows(2).all(|pair| pair[0].worth >= pair[1].worth));
    assert_eq!(report.tuning.fingerprint, loaded.fingerprint());
    assert_eq!(stages.finished().len(), 4);
}

#[test]
fn a_planted_fault_is_the_first_finding() {
    let dir = tempfile::tempdir().expect("a folder");
    let loaded = loaded(dir.path(), &DraftSetup { untuned: true, ..DraftSetup::default() });
    let examine = |plant| {
        let options = DoctorOptions {
            engine: EngineOptions { threads: Some(1), ..EngineOptions::default() },
            style: PromptStyle::Plain,
            max_tokens: 24,
            contexts: vec![32],
            plant,
        };
        doctor(&loaded, prompts::spread(&prompts::built_in(), 3), &options, &())
    };
    let found = examine(Some(PlantedFault::Rollback)).expect("it runs");
    assert_eq!((found.found(), found.healthy()), (Some(true), false));
    let sound = examine(None).expect("it runs");
    let correct: Vec<_> = sound.checks.iter().take(5).map(|check| check.result).collect();
    assert_eq!(correct, [CheckResult::Fine; 5], "{:?}", sound.checks);
    assert!(matches!(examine(Some(PlantedFault::Domain)), Err(LabError::NoRecordedAcceptance)));
}
