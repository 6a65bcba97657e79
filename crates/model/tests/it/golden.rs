//! Logits against those of transformers and of the PyTorch reference (tools/golden).

use crate::support::{backend, open, plain};
use selfspec_kernels::Isa;
use selfspec_model::{Backend, CpuBackend, LayerPlan, Readout, StepOutput, TokenId};
use selfspec_testkit::FolderBuilder;
use selfspec_testkit::real_model::{GEMMA3, SMOLLM2, real_model};
use selfspec_weights::TensorType;
use serde_json::Value;

/// Logits of every position that `wanted` names.
fn logits_at(backend: &mut CpuBackend, tokens: &[TokenId], wanted: &[usize]) -> Vec<Vec<f32>> {
    let full = LayerPlan::full(backend.n_layers());
    let seq = backend.create();
    let mut out = StepOutput::default();
    let mut logits = Vec::new();
    for start in (0..tokens.len()).step_by(128) {
        let end = (start + 128).min(tokens.len());
        let mut rows: Vec<_> = (start..end).map(|pos| plain(seq, pos, tokens[pos], &full)).collect();
        for row in rows.iter_mut().filter(|row| !wanted.contains(&row.pos)) {
            row.readout = Readout::Nothing;
        }
        backend.step(&rows, &mut out).expect("a sound step");
        backend.set_len(seq, end).expect("computed");
        logits.extend((0..out.len()).map(|i| out.logits(i).to_vec()));
    }
    backend.free(seq);
    logits
}

/// The mixing function of tools/golden/README.md.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

fn weights(name: &str, len: usize, offset: f32, scale: f32) -> Vec<f32> {
    let fnv = name
        .bytes()
        .fold(14_695_981_039_346_656_037u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(1_099_511_628_211));
    let unit = |i: usize| (mix(fnv.wrapping_add(i as u64)) >> 40) as f32 / (1u32 << 23) as f32 - 1.0;
    (0..len).map(|i| offset + scale * unit(i)).collect()
}

/// Every architecture, in float32, against transformers. The differences that int8 activations
/// explain do not occur here.
#[test]
fn tiny_models_of_every_architecture_give_the_logits_of_transformers() {
    let golden: Value = serde_json::from_str(include_str!("golden/tiny.json")).expect("valid");
    let models = golden["models"].as_array().expect("a list");
    assert!(models.len() >= 6);
    for model in models {
        let name = model["name"].as_str().expect("a name");
        let mut folder = FolderBuilder::new(model["config"].clone());
        for tensor in model["tensors"].as_array().expect("a list") {
            let shape: Vec<usize> = serde_json::from_value(tensor["shape"].clone()).expect("a shape");
            let tensor_name = tensor["name"].as_str().expect("a name");
            let [offset, scale] = ["offset", "scale"].map(|f| tensor[f].as_f64().expect("a number") as f32);
            let values = weights(tensor_name, shape.iter().product(), offset, scale);
            folder = folder.tensor(tensor_name, &shape, TensorType::F32, &values);
        }
        let dir = tempfile::tempdir().expect("a temporary folder");
        folder.write(dir.path());
        let opened = open(dir.path()).unwrap_or_else(|e| panic!("{name}: {e}"));
        let seed = model["seed"].as_u64().expect("a seed");
        let length = model["length"].as_u64().expect("a length");
        let tokens: Vec<TokenId> =
            (0..length).map(|i| (mix(seed.wrapping_add(i)) % opened.vocab() as u64) as TokenId).collect();
        let expected: Vec<(usize, Vec<f32>)> = serde_json::from_value(model["logits"].clone()).expect("positions");
        let wanted: Vec<usize> = expected.iter().map(|(pos, _)| *pos).collect();
        for isa in Isa::available() {
            let got = logits_at(&mut backend(&opened, isa, 2), &tokens, &wanted);
            for ((pos, expected), got) in expected.iter().zip(&got) {
                let spread = expected.iter().fold(0f32, |max, e| max.max(e.abs()));
                for (i, (e, g)) in expected.iter().zip(got).enumerate() {
                    let error = (e - g).abs();
                    // K and V are kept in f16: a relative error of 2^-11 in each.
                    assert!(error <= 0.01 * spread, "{name} {isa}: position {pos}, token {i}: expected {e}, got {g}");
                }
            }
        }
    }
}

/// A real model's log-probabilities, within what int8 activations explain.
fn real_model_golden(variable: &str, golden: &str) {
    let path = real_model(variable);
    let golden: Value = serde_json::from_str(golden).expect("valid");
    let model = open(&path).expect("the model opens");
    let mut backend = backend(&model, Isa::detect().expect("an instruction set"), 2);
    for text in golden["texts"].as_array().expect("a list") {
        let name = text["name"].as_str().expect("a name");
        let tokens: Vec<TokenId> = serde_json::from_value(text["tokens"].clone()).expect("ids");
        let positions = text["positions"].as_array().expect("a list");
        let wanted: Vec<usize> = positions.iter().map(|p| p["pos"].as_u64().expect("a position") as usize).collect();
        let logits = logits_at(&mut backend, &tokens, &wanted);
        for ((pos, logits), position) in wanted.iter().zip(&logits).zip(positions) {
            let max = logits.iter().fold(f32::NEG_INFINITY, |max, l| max.max(*l));
            let sum: f64 = logits.iter().map(|l| f64::from(l - max).exp()).sum();
            let logprob = |token: usize| f64::from(logits[token] - max) - sum.ln();
            let top: Vec<(usize, f64)> = serde_json::from_value(position["top"].clone()).expect("pairs");
            // KL divergence over the reference's best tokens: what lies beyond them is small.
            let kl: f64 = top.iter().map(|(token, reference)| reference.exp() * (reference - logprob(*token))).sum();
            assert!(kl.abs() < 0.05, "{name}, position {pos}: divergence {kl} over the best tokens");
            for (token, reference) in &top[..2] {
                let error = (reference - logprob(*token)).abs();
                assert!(error < 0.7, "{name}, position {pos}, token {token}: expected {reference}, off by {error}");
            }
        }
    }
}

#[test]
#[ignore = "needs a published model: see CONTRIBUTING.md"]
fn real_model_smollm2_gives_the_reference_logits() {
    let golden = include_str!("golden/smollm2-135m.json");
    real_model_golden(SMOLLM2, golden);
}

#[test]
#[ignore = "needs a published model: see CONTRIBUTING.md"]
fn real_model_gemma3_gives_the_reference_logits() {
    let golden = include_str!("golden/gemma3-270m.json");
    real_model_golden(GEMMA3, golden);
}
