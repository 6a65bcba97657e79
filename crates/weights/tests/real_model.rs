//! The published models, where there are any: set `SELFSPEC_TEST_MODEL` and `SELFSPEC_TEST_GEMMA` to their paths
//! (`selfspec pull smollm2-135m` and `selfspec pull gemma3-270m` fetch them).

use std::path::Path;

use selfspec_weights::{Checkpoint, Source, TensorType};

fn open(variable: &str) -> Option<Checkpoint> {
    let Some(path) = std::env::var_os(variable) else {
        eprintln!("skipped: set {variable} to the path of the model");
        return None;
    };
    Some(Checkpoint::open(Path::new(&path)).expect("a published model is valid"))
}

#[test]
fn real_model_smollm2_opens() {
    let Some(c) = open("SELFSPEC_TEST_MODEL") else { return };
    assert_eq!(c.tensors().len(), 272);
    let embedding = c.need_tensor("token_embd.weight").expect("there");
    assert_eq!((&embedding.info.shape[..], embedding.info.ty), (&[49152, 576][..], TensorType::Q8_0));
    let Source::Gguf(m) = c.source() else { panic!("a GGUF file has metadata") };
    assert_eq!(m.need_u64("llama.block_count").expect("there"), 30);
    assert_eq!(m.need_strings("tokenizer.ggml.merges").expect("there").len(), 48900);
}

#[test]
fn real_model_gemma_opens() {
    let Some(c) = open("SELFSPEC_TEST_GEMMA") else { return };
    assert_eq!(c.tensors().len(), 236);
    let Source::Gguf(m) = c.source() else { panic!("a GGUF file has metadata") };
    assert_eq!(m.need_strings("tokenizer.ggml.tokens").expect("there").len(), 262_144);
    assert_eq!(m.need_f32s("tokenizer.ggml.scores").expect("there").len(), 262_144);
    assert_eq!(m.need_i32s("tokenizer.ggml.token_type").expect("there").len(), 262_144);
}
