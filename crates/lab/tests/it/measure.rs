//! Measurements of passes on a tiny model.

use selfspec_engine::{Engine, EngineError, EngineOptions};
use selfspec_kernels::KvType;
use selfspec_lab::measure::{MeasureOptions, measure, pass_times, prefill_rows_s};
use selfspec_model::{LayerPlan, PassPart, Readout};
use selfspec_speculate::DraftPath;
use selfspec_testkit::{Family, TinyModel};

fn head_path(plan: &LayerPlan) -> DraftPath {
    DraftPath { plan: plan.clone(), readout: Readout::Head }
}

#[test]
fn measurements_leave_nothing_behind_and_their_numbers_fit_together() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("tiny.gguf");
    TinyModel::new(Family::Llama).gguf().write(&path);
    let kv_type = KvType::Q8;
    let engine =
        Engine::open(&path, &EngineOptions { threads: Some(2), kv_type, ..EngineOptions::default() }).expect("opens");
    let full = LayerPlan::full(4);
    let plan = LayerPlan::exit(4, 1).expect("a plan");
    let asked = MeasureOptions {
        context: 40,
        rows: vec![1, 2, 5],
        paths: [&plan, &full].map(head_path).to_vec(),
        repetitions: 3,
        prefill: 50,
        prefill_chunk: 16,
        profile: true,
    };
    let got = measure(&engine, &asked).expect("fits");
    assert_eq!(got.profile.iter().map(|p| p.0).collect::<Vec<_>>(), [1, 2, 5]);
    for ((_, parts), (m, whole)) in got.profile.iter().zip(&got.passes) {
        // Medians of parts and of wholes: near each other, and every part takes time.
        assert!(parts.iter().all(|s| *s > 0.0) && parts.iter().sum::<f64>() < 5.0 * whole, "{m} rows: {parts:?}");
    }
    assert!(measure(&engine, &MeasureOptions { profile: false, ..asked.clone() }).expect("fits").profile.is_empty());
    assert_eq!(got.passes.iter().map(|p| p.0).collect::<Vec<_>>(), [1, 2, 5]);
    assert!(got.passes.iter().all(|p| p.1 > 0.0) && got.drafts.iter().all(|d| d.1 > 0.0));
    assert_eq!(got.b(1), Some(1.0));
    assert_eq!((got.b(3), got.c(&head_path(&LayerPlan::exit(4, 2).expect("a plan")))), (None, None));
    assert!(got.c(&head_path(&plan)).expect("measured") > 0.0 && got.prefill_rows_s.expect("measured") > 0.0);
    assert!(got.read_bytes_s.expect("measured") > 0.0 && got.bound_share().expect("all there") > 0.0);
    let loaded = engine.loaded().expect("opened on a model");
    let kv = |layers: u64| layers * 40 * engine.info().kv_bytes_per_position(kv_type) as u64 / 4;
    let weights = |plan: &LayerPlan| loaded.pass_bytes(plan, kv_type, 0);
    assert_eq!(got.pass_bytes, Some(weights(&full) + kv(4)));
    assert_eq!(loaded.pass_bytes(&plan, kv_type, 40), weights(&plan) + kv(1));
    assert!(weights(&plan) < weights(&full));
    let parts = PassPart::ALL.iter().map(|part| loaded.part_bytes(*part, kv_type, 40)).sum::<u64>();
    assert_eq!(Some(parts), got.pass_bytes, "the parts stream what the pass does");
    let (free, total) = engine.exclusive(|b| (b.free_pages(), b.total_pages())).expect("idle");
    assert_eq!(free, total);
    let error = measure(&engine, &MeasureOptions { context: 1 << 30, ..asked.clone() }).expect_err("too long");
    assert!(matches!(error, EngineError::Backend(_)), "{error}");
    let (free, total) = engine.exclusive(|b| (b.free_pages(), b.total_pages())).expect("idle");
    assert_eq!(free, total, "also after an error");
    let times = engine
        .exclusive(move |b| (pass_times(b, &asked).expect("fits"), prefill_rows_s(b, 30, 8, 1).expect("fits")))
        .expect("no panic");
    assert_eq!((times.0.passes.len(), times.0.drafts.len(), times.1 > 0.0), (3, 2, true));
}
