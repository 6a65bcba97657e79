//! The tiny models are fit for what tests use them for: both ways of writing agree, logits are
//! spread, text varies, and an early exit is sometimes right and sometimes wrong.

use std::path::Path;
use std::sync::Arc;

use selfspec_kernels::{Isa, KvType, Team};
use selfspec_model::{
    Backend, CpuBackend, CpuModel, CpuOptions, Enter, LayerPlan, Readout, Row, SeqId, StepOutput, TokenId,
};
use selfspec_testkit::{Dims, Family, Scaling, TinyModel};
use selfspec_weights::{Checkpoint, TensorType};

fn backend(checkpoint: &Checkpoint) -> CpuBackend {
    let model = CpuModel::open(checkpoint, &Team::new(1)).expect("a tiny model is valid");
    let options = CpuOptions {
        isa: Isa::detect().expect("supported"),
        threads: 1,
        context: 8192,
        kv_positions: 8192,
        kv_type: KvType::F16,
    };
    CpuBackend::new(Arc::new(model), &options).expect("a small cache")
}

fn from_gguf(model: &TinyModel) -> CpuBackend {
    backend(&Checkpoint::from_gguf_bytes(Path::new("tiny.gguf"), model.gguf().bytes()).expect("valid"))
}

fn from_folder(model: &TinyModel) -> CpuBackend {
    let dir = tempfile::tempdir().expect("a folder");
    model.folder().write(dir.path());
    backend(&Checkpoint::open(dir.path()).expect("valid"))
}

fn row(seq: SeqId, pos: usize, token: TokenId, plan: &LayerPlan) -> Row {
    Row { seq, pos, token, enter: Enter::Token, plan: plan.clone(), keep: false, readout: Readout::Head }
}

/// Logits of each of `tokens`.
fn logits(b: &mut CpuBackend, tokens: &[TokenId]) -> Vec<Vec<f32>> {
    let seq = b.create();
    let full = LayerPlan::full(b.n_layers());
    let rows: Vec<Row> = tokens.iter().enumerate().map(|(pos, t)| row(seq, pos, *t, &full)).collect();
    let mut out = StepOutput::default();
    b.step(&rows, &mut out).expect("a valid step");
    (0..out.len()).map(|i| out.logits(i).to_vec()).collect()
}

fn argmax(logits: &[f32]) -> TokenId {
    (0..logits.len()).rev().max_by(|a, b| logits[*a].total_cmp(&logits[*b])).expect("not empty") as TokenId
}

/// Greedy text, and how often an early exit after `exit` layers would have said the same.
fn greedy(b: &mut CpuBackend, prompt: &[TokenId], len: usize, exit: usize) -> (Vec<TokenId>, usize) {
    let seq = b.create();
    let (full, early) = (LayerPlan::full(b.n_layers()), LayerPlan::exit(b.n_layers(), exit).expect("an exit"));
    let mut out = StepOutput::default();
    let rows: Vec<Row> = prompt.iter().enumerate().map(|(pos, t)| row(seq, pos, *t, &full)).collect();
    b.step(&rows, &mut out).expect("a valid step");
    let mut next = argmax(out.logits(out.len() - 1));
    b.set_len(seq, prompt.len()).expect("computed");
    let (mut text, mut agreed) = (Vec::new(), 0);
    for pos in prompt.len()..prompt.len() + len {
        text.push(next);
        b.step(&[row(seq, pos, next, &early)], &mut out).expect("a valid step");
        let draft = argmax(out.logits(0));
        b.set_len(seq, pos).expect("rolled back");
        b.step(&[row(seq, pos, next, &full)], &mut out).expect("a valid step");
        next = argmax(out.logits(0));
        b.set_len(seq, pos + 1).expect("computed");
        agreed += usize::from(draft == next);
    }
    (text, agreed)
}

const PROMPT: [TokenId; 12] = [70, 111, 9, 200, 261, 3, 70, 42, 180, 5, 99, 258];

/// Long enough that rotary scaling and Gemma's window show.
fn passage() -> Vec<TokenId> {
    (0..90).map(|i| (i * 37 + 11) % 270).collect()
}

fn furthest(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max)
}

#[test]
fn a_gguf_file_and_a_folder_of_one_model_give_the_same_logits() {
    for family in Family::ALL {
        for (scaling, tied) in [
            (Scaling::None, true),
            (Scaling::None, false),
            (Scaling::Linear(3.0), true),
            (Scaling::Llama3 { factor: 8.0, original: 64 }, false),
        ] {
            // Only Llama's GGUF files have the factors of Llama 3's scaling.
            if family != Family::Llama && matches!(scaling, Scaling::Llama3 { .. }) {
                continue;
            }
            let model = TinyModel { tied, ..TinyModel::new(family).scaling(scaling) };
            let tokens = passage();
            let (a, b) = (logits(&mut from_gguf(&model), &tokens), logits(&mut from_folder(&model), &tokens));
            if family == Family::Llama {
                // The sums over a permuted head round otherwise, and K is then kept in 16 bits.
                let worst = a.iter().zip(&b).map(|(x, y)| furthest(x, y)).fold(0.0, f32::max);
                assert!(worst < 0.02, "{scaling:?}: {worst}");
            } else {
                assert_eq!(a, b, "without permuted heads not a bit differs: {family:?} {scaling:?}");
            }
        }
    }
}

#[test]
fn scaling_changes_logits_at_a_distance() {
    let tokens = passage();
    let plain = logits(&mut from_gguf(&TinyModel::new(Family::Llama)), &tokens);
    for scaling in [Scaling::Linear(3.0), Scaling::Llama3 { factor: 8.0, original: 64 }] {
        let scaled = logits(&mut from_gguf(&TinyModel::new(Family::Llama).scaling(scaling)), &tokens);
        let (near, far) = (furthest(&plain[0], &scaled[0]), furthest(&plain[89], &scaled[89]));
        assert!(near < 1e-3 && far > 0.1, "{scaling:?}: {near} at position 0 and {far} at 89");
    }
}

#[test]
fn logits_are_spread_text_varies_and_exits_are_sometimes_right() {
    for family in Family::ALL {
        for ty in [TensorType::F32, TensorType::Q4_1, TensorType::Q4K] {
            let model = TinyModel::new(family).ty(ty);
            let mut b = from_gguf(&model);
            let last = logits(&mut b, &PROMPT).pop().expect("rows");
            let mean = last.iter().sum::<f32>() / last.len() as f32;
            let std = (last.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / last.len() as f32).sqrt();
            let exit = model.dims().layers / 2;
            let (text, agreed) = greedy(&mut b, &PROMPT, 200, exit);
            let mut seen = text.clone();
            seen.sort_unstable();
            seen.dedup();
            println!(
                "{family:?} {ty}: std {std:.2}, {} different of 200, exit {exit} right {agreed} times",
                seen.len()
            );
            assert!((1.0..8.0).contains(&std), "{family:?} {ty}: {std}");
            assert!(seen.len() > 20, "{family:?} {ty}: {text:?}");
            assert!((20..190).contains(&agreed), "{family:?} {ty}: {agreed}");
        }
    }
}

/// A GGUF file brings Llama 3's scaling as a tensor of divisors, a folder as numbers to compute
/// them from.
#[test]
fn llama3_scaling_is_the_same_from_both_sources_beyond_4000_positions() {
    let plain = TinyModel::new(Family::Llama);
    let plain = plain.clone().with_dims(Dims { context: 8192, layers: 2, ..plain.dims() });
    let scaled = plain.clone().scaling(Scaling::Llama3 { factor: 8.0, original: 512 });
    let last = |b: &mut CpuBackend| {
        let (seq, full) = (b.create(), LayerPlan::full(b.n_layers()));
        let mut out = StepOutput::default();
        for start in (0..4200).step_by(300) {
            let rows: Vec<Row> = (start..start + 300)
                .map(|pos| Row {
                    readout: if pos == 4199 { Readout::Head } else { Readout::Nothing },
                    ..row(seq, pos, (pos * 37 % 270) as TokenId, &full)
                })
                .collect();
            b.step(&rows, &mut out).expect("a valid step");
        }
        out.logits(0).to_vec()
    };
    let (tensor, config) = (last(&mut from_gguf(&scaled)), last(&mut from_folder(&scaled)));
    assert!(furthest(&tensor, &config) < 0.02, "{}", furthest(&tensor, &config));
    let without = last(&mut from_gguf(&plain));
    assert!(furthest(&tensor, &without) > 0.1, "{}", furthest(&tensor, &without));
}
