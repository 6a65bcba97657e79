//! What training computes against what the engine's forward pass computes with the head's file.

use std::path::Path;
use std::sync::Arc;

use half::bf16;
use selfspec_kernels::dense::ProductScratch;
use selfspec_kernels::{Isa, KvType, Team};
use selfspec_model::{
    Backend, CpuBackend, CpuModel, CpuOptions, DraftHeads, Enter, ExitHead, ExitHeadCard, ExitHeadTensor, HiddenState,
    LayerPlan, Readout, Row, SeqId, StepOutput, StepReadouts, TokenId,
};
use selfspec_testkit::{Family, TensorType, TinyModel};
use selfspec_weights::Checkpoint;

use crate::data::rows::{Rows, Taps};
use crate::head::file::{HeadPrecision, write};
use crate::head::frozen::Frozen;
use crate::head::plan::HeadPlan;
use crate::head::rollout::Rollout;
use crate::layer::layout::Layout;
use crate::layer::weights::Weights;
use crate::math::norm::norm;
use crate::math::random::Random;

fn backend(model: &Arc<CpuModel>, heads: DraftHeads) -> CpuBackend {
    let (isa, context) = (Isa::detect().expect("an instruction set"), model.config().context);
    let options = CpuOptions { isa, threads: 1, context, kv_positions: 2 * context, kv_type: KvType::F16 };
    CpuBackend::with_heads(model.clone(), heads, &options).expect("a small cache")
}

fn row(seq: SeqId, pos: usize, token: TokenId, plan: &LayerPlan, readout: Readout) -> Row {
    Row { seq, pos, token, enter: Enter::Token, plan: plan.clone(), keep: false, readout }
}

#[test]
fn the_engine_drafts_with_a_heads_file_what_training_computes() {
    for family in Family::ALL {
        let gguf = TinyModel::new(family).ty(TensorType::F32).gguf();
        let checkpoint = Checkpoint::from_gguf_bytes(Path::new("tiny.gguf"), gguf.bytes()).expect("whole");
        let model = Arc::new(CpuModel::open(&checkpoint, &Team::new(1)).expect("sound"));
        let n = model.config().n_layers;
        for (exit_layer, features, ffn_dim) in
            [(0, vec![n], 72), (1, vec![2, 0, n], 100), (2, vec![], 40), (3, vec![1], 0)]
        {
            compare(&model, &HeadPlan { exit_layer, features, ffn_dim });
        }
    }
}

fn compare(model: &Arc<CpuModel>, plan: &HeadPlan) {
    const STEPS: usize = 4;
    let (dim, n) = (model.config().dim, model.config().n_layers);
    let tokens: Vec<TokenId> = (0..30).map(|i| ((i * i * 5 + i * 37 + 3) % model.vocab()) as TokenId).collect();
    let vocab: Vec<TokenId> = (0..model.vocab() as TokenId).filter(|t| t % 3 != 1).collect();
    let shape = plan.shape(model, tokens.len());
    let layout = Layout::new(&shape);
    // Not the initial values, in which many a tensor does nothing.
    let mut values = plan.initial(model, &shape, 1, 3.0);
    let noise = Random::new(4, "noise").normals(values.len(), 0.1);
    for slot in layout.slots() {
        for i in slot.place.clone() {
            values[i] += noise[i];
            if slot.is_matrix() {
                values[i] = bf16::from_f32(values[i]).to_f32();
            }
        }
    }

    // The engine: the model's own states, and the head's logits of rounds that begin at every
    // position.
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("head.safetensors");
    let card = ExitHeadCard {
        version: ExitHeadCard::VERSION,
        model_fingerprint: "f".to_owned(),
        exit_layer: plan.exit_layer,
        features: plan.features.clone(),
        ffn_dim: plan.ffn_dim,
        vocab: vocab.len(),
        ..ExitHeadCard::default()
    };
    write(&path, &card, &layout, &values, &vocab, HeadPrecision::Bf16).expect("written");
    let bytes = std::fs::read(&path).expect("written");
    let head = ExitHead::read(&bytes, model, "tiny", "f", &Team::new(1)).expect("sound");
    let mut engine = backend(model, DraftHeads { exit: Some(Arc::new(head)), ..DraftHeads::default() });
    let (full, mut out) = (LayerPlan::full(n), StepOutput::default());
    let mut taps = plan.features.clone();
    taps.extend([n, plan.exit_layer]);
    let taps: Vec<HiddenState> = taps.into_iter().map(HiddenState::AfterLayers).collect();
    let seq = engine.create();
    let rows: Vec<Row> = (0..tokens.len()).map(|i| row(seq, i, tokens[i], &full, Readout::Nothing)).collect();
    let readouts = StepReadouts { states: &taps, ..StepReadouts::default() };
    engine.step_with(&rows, &readouts, &mut out).expect("sound");
    engine.free(seq);
    let states = |tap: usize| (0..tokens.len()).flat_map(|r| out.state(tap, r).to_vec()).collect();
    let states: Vec<Vec<f32>> = (0..taps.len()).map(states).collect();

    // Training.
    let last = plan.features.len();
    let taps = Taps { exit: last + 1, features: (0..last).collect(), last };
    let mut all = Rows { states, taps, ..Rows::default() };
    all.close(tokens.len(), 1);
    let (weights, frozen) = (Weights::new(shape, &values), Frozen::of_model(model, &vocab));
    let mut rollout = Rollout::default();
    rollout.forward(&weights, &all, STEPS);

    let draft_plan = engine.exit_head().expect("there").plan.clone();
    for start in [0, 1, 2, 13, 25] {
        let seq = engine.create();
        if start > 0 {
            let rows: Vec<Row> = (0..start).map(|i| row(seq, i, tokens[i], &full, Readout::Nothing)).collect();
            engine.step(&rows, &mut out).expect("sound");
            engine.set_len(seq, start).expect("computed");
        }
        for step in 0..STEPS {
            let pos = start + step;
            engine.step(&[row(seq, pos, tokens[pos], &draft_plan, Readout::ExitHead)], &mut out).expect("sound");
            let (mut normed, mut logits) = (vec![0.0; dim], vec![0.0; vocab.len()]);
            let mut state = Vec::new();
            rollout.states(&all, step.min(rollout.steps() - 1), &[pos], &mut state);
            norm(&state, dim, weights.vector(ExitHeadTensor::OutputNorm), weights.shape.eps, &mut [0.0], &mut normed);
            frozen.logits(&normed, &mut logits, &mut ProductScratch::default());
            let size = (logits.iter().map(|l| l * l).sum::<f32>() / logits.len() as f32).sqrt();
            let error = logits.iter().zip(out.logits(0)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(size > 0.5 && error < 4e-3 * size, "{plan:?}, start {start}, draft {step}: {error} of {size}");
        }
        engine.free(seq);
    }
}
