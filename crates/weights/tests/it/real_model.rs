//! The published models open, with all their tensors and metadata.

use selfspec_testkit::real_model::{GEMMA3, SMOLLM2, real_model};
use selfspec_weights::{Checkpoint, Source, TensorType};

fn open(variable: &str) -> Checkpoint {
    Checkpoint::open(&real_model(variable)).expect("a published model is valid")
}

#[test]
#[ignore = "needs a published model: see CONTRIBUTING.md"]
fn real_model_smollm2_opens() {
    let c = open(SMOLLM2);
    assert_eq!(c.tensors().len(), 272);
    let embedding = c.need_tensor("token_embd.weight").expect("there");
    assert_eq!((&embedding.info.shape[..], embedding.info.ty), (&[49152, 576][..], TensorType::Q8_0));
    let Source::Gguf(m) = c.source() else { panic!("a GGUF file has metadata") };
    assert_eq!(m.need_u64("llama.block_count").expect("there"), 30);
    assert_eq!(m.need_strings("tokenizer.ggml.merges").expect("there").len(), 48900);
}

#[test]
#[ignore = "needs a published model: see CONTRIBUTING.md"]
fn real_model_gemma_opens() {
    let c = open(GEMMA3);
    assert_eq!(c.tensors().len(), 236);
    let Source::Gguf(m) = c.source() else { panic!("a GGUF file has metadata") };
    assert_eq!(m.need_strings("tokenizer.ggml.tokens").expect("there").len(), 262_144);
    assert_eq!(m.need_f32s("tokenizer.ggml.scores").expect("there").len(), 262_144);
    assert_eq!(m.need_i32s("tokenizer.ggml.token_type").expect("there").len(), 262_144);
}
