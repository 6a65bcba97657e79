//! Faults that are planted do what they say, and nothing else; and the states that a step leaves
//! behind show the first one.

use std::sync::Arc;

use crate::support::{bits, open_gguf, plain, tokens};
use selfspec_kernels::{Isa, KvType, Team};
use selfspec_model::{
    Backend, BackendFault, CpuBackend, CpuModel, CpuOptions, DraftHeads, DraftVocab, ExitHead, HiddenState, LayerPlan,
    Readout, Row, StepOutput, StepReadouts, TokenId,
};
use selfspec_testkit::{Family, TensorType, TinyExitHead, TinyModel};

fn with_head(model: &Arc<CpuModel>) -> (CpuBackend, Arc<ExitHead>) {
    let ids: Vec<TokenId> = (0..model.vocab() as TokenId).filter(|x| x % 3 != 1).collect();
    let bytes = TinyExitHead::new("f", 1, &[2], ids.clone()).bytes(model.config());
    let exit = Arc::new(ExitHead::read(&bytes, model, "tiny", "f", &Team::new(1)).expect("a sound head"));
    let vocab = DraftVocab::new(model, ids, &Team::new(1)).expect("sound");
    let heads = DraftHeads { vocab: Some(Arc::new(vocab)), exit: Some(exit.clone()) };
    let isa = Isa::detect().expect("an instruction set");
    let options = CpuOptions { isa, threads: 1, context: 100, kv_positions: 400, kv_type: KvType::F16 };
    (CpuBackend::with_heads(model.clone(), heads, &options).expect("a small cache"), exit)
}

/// How far `got` is from norm and head of `state` in f64, over the size of the latter.
fn distance(model: &CpuModel, state: &[f32], norm: &[f32], ids: &[TokenId], got: &[f32]) -> f64 {
    let mean = state.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / state.len() as f64;
    let scale = 1.0 / (mean + f64::from(model.config().norm_eps)).sqrt();
    let normed: Vec<f64> = state.iter().zip(norm).map(|(x, w)| f64::from(*x) * scale * f64::from(*w)).collect();
    let (mut row, mut off, mut all) = (vec![0.0; state.len()], 0.0, 0.0);
    for (id, got) in ids.iter().zip(got) {
        model.head_row(*id, &mut row);
        let want: f64 = row.iter().zip(&normed).map(|(w, x)| f64::from(*w) * x).sum();
        off += (f64::from(*got) - want).powi(2);
        all += want * want;
    }
    (off / all).sqrt()
}

#[test]
fn without_the_norm_drafts_are_wrong_and_nothing_else_is() {
    for family in Family::ALL {
        let model = open_gguf(&TinyModel::new(family).ty(TensorType::Q8_0).gguf()).expect("a sound model");
        let (mut sound, head) = with_head(&model);
        let (mut faulty, _) = with_head(&model);
        faulty.plant(BackendFault::ExitNorm);
        let (text, n) = (tokens(21, model.vocab()), sound.n_layers());
        let all: Vec<TokenId> = (0..model.vocab() as TokenId).collect();
        let some = head.vocab().ids().to_vec();
        let step = |backend: &mut CpuBackend, readout: Readout, plan: &LayerPlan| {
            let (seq, mut out) = (backend.create(), StepOutput::default());
            let full = LayerPlan::full(n);
            let before: Vec<Row> = (0..20).map(|pos| plain(seq, pos, text[pos], &full)).collect();
            backend.step(&before, &mut out).expect("sound");
            let verified = bits(&out);
            backend.set_len(seq, 20).expect("computed");
            // Together with a row of the full plan, whose logits are of the same kind where the
            // model's own head drafts.
            let other = backend.create();
            let rows = [Row { readout, ..plain(seq, 20, text[20], plan) }, plain(other, 0, text[0], &full)];
            let states = &[HiddenState::AfterLayers(n), HiddenState::ExitHead];
            let readouts = StepReadouts { states, ..StepReadouts::default() };
            backend.step_with(&rows, &readouts, &mut out).expect("sound");
            let state = out.state(usize::from(readout == Readout::ExitHead), 0).to_vec();
            (verified, state, out.logits(0).to_vec(), out.logits(1).to_vec())
        };
        let exit = |layers| LayerPlan::exit(n, layers).expect("fits");
        for (readout, plan, norm, ids) in [
            (Readout::Head, exit(2), model.output_norm(), &all),
            (Readout::DraftVocab, exit(3), model.output_norm(), &some),
            (Readout::ExitHead, exit(1), head.output_norm(), &some),
        ] {
            let (verified, state, draft, beside) = step(&mut sound, readout, &plan);
            let right = distance(&model, &state, norm, ids, &draft);
            let (also_verified, state, draft, also_beside) = step(&mut faulty, readout, &plan);
            let wrong = distance(&model, &state, norm, ids, &draft);
            assert!(right < 0.03 && wrong > 0.2, "{family:?}, {readout:?}: {right:.3} and without the norm {wrong:.3}");
            assert!(verified == also_verified && beside == also_beside, "rows of the full plan are as they were");
        }
    }
}

#[test]
fn a_short_rollback_is_one_position_too_long_and_only_a_rollback_is() {
    let model = open_gguf(&TinyModel::new(Family::Llama).gguf()).expect("a sound model");
    let (mut backend, _) = with_head(&model);
    backend.plant(BackendFault::Rollback);
    let (full, seq) = (LayerPlan::full(backend.n_layers()), backend.create());
    let rows: Vec<Row> = (0..6).map(|pos| plain(seq, pos, 3, &full)).collect();
    backend.step(&rows, &mut StepOutput::default()).expect("sound");
    for (asked, got) in [(6, 6), (4, 5)] {
        backend.set_len(seq, asked).expect("computed");
        assert_eq!(backend.kv_len(seq), Ok(got), "asked for {asked}");
    }
}
