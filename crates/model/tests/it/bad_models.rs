//! Models whose files are whole but whose contents are impossible: each is refused with the field
//! or tensor named, before any of it runs.

use std::path::Path;

use selfspec_kernels::Team;
use selfspec_model::{CpuModel, ModelError};
use selfspec_testkit::{Dims, Family, GgufBuilder, TinyModel, Value};
use selfspec_weights::{Checkpoint, TensorType};

fn open(builder: &GgufBuilder) -> Result<CpuModel, ModelError> {
    let checkpoint = Checkpoint::from_gguf_bytes(Path::new("tiny.gguf"), builder.bytes()).expect("whole as a file");
    CpuModel::open(&checkpoint, &Team::new(1))
}

/// The message, which is one line and names `field`.
fn fault(builder: &GgufBuilder, field: &str) -> String {
    let e = open(builder).expect_err("the model cannot be").to_string();
    assert!(e.contains(field) && !e.contains('\n') && !e.ends_with('.'), "{field}: {e}");
    assert!(e.contains(".gguf: "), "{field}: the file is named: {e}");
    e
}

fn llama() -> GgufBuilder {
    TinyModel::new(Family::Llama).gguf()
}

#[test]
fn sizes_that_are_missing_zero_huge_or_of_the_wrong_type_are_refused() {
    for family in Family::ALL {
        let model = TinyModel::new(family).gguf();
        for size in ["block_count", "embedding_length", "feed_forward_length", "attention.head_count", "context_length"]
        {
            let key = format!("{}.{size}", family.name());
            fault(&model.clone().remove(&key), &key);
            for bad in [Value::U32(0), Value::U32(u32::MAX), Value::U64(u64::MAX), Value::I32(-1)] {
                fault(&model.clone().metadata(&key, bad), &key);
            }
            for bad in [Value::Str("four".into()), Value::F32(4.0), Value::Bool(true), Value::U32s(vec![4])] {
                let e = fault(&model.clone().metadata(&key, bad), &key);
                assert!(e.contains("expected an integer, got "), "{e}");
            }
        }
    }
}

#[test]
fn heads_that_do_not_divide_are_refused() {
    fault(&llama().metadata("llama.attention.head_count_kv", 3u32), "llama.attention.head_count_kv");
    fault(&llama().metadata("llama.attention.head_count_kv", 0u32), "llama.attention.head_count_kv");
    let seven = llama().remove("llama.attention.key_length").remove("llama.attention.value_length");
    fault(&seven.metadata("llama.attention.head_count", 7u32), "llama.attention.head_count");
    // Heads that divide, of matrices that have another number of rows.
    fault(&llama().metadata("llama.attention.head_count", 8u32), "blk.0.attn_q.weight");
    fault(&llama().metadata("llama.attention.head_count_kv", 4u32), "blk.0.attn_k.weight");
    for dims in [0u32, 3, 12] {
        fault(&llama().metadata("llama.rope.dimension_count", dims), "llama.rope.dimension_count");
    }
}

#[test]
fn more_blocks_than_tensors_or_fewer_are_refused() {
    fault(&llama().metadata("llama.block_count", 5u32), "blk.4.");
    fault(&llama().metadata("llama.block_count", 1u32 << 24), "blk.4.");
    fault(&llama().metadata("llama.block_count", 3u32), "blk.3.");
}

#[test]
fn a_vocabulary_that_does_not_fit_the_embedding_is_refused() {
    let tokens = |n: usize| (0..n).map(|i| format!("t{i}")).collect::<Vec<_>>();
    let e = fault(&llama().metadata("tokenizer.ggml.tokens", tokens(272)), "llama.vocab_size");
    assert!(e.contains("272") && e.contains("273"), "{e}");
    let without_size = llama().remove("llama.vocab_size");
    fault(&without_size.clone().metadata("tokenizer.ggml.tokens", tokens(272)), "token_embd.weight");
    fault(&without_size.metadata("tokenizer.ggml.tokens", tokens(274)), "token_embd.weight");
    let untied = TinyModel::new(Family::Llama).untied().gguf();
    let short = vec![0.0; 272 * 40];
    fault(&untied.tensor("output.weight", &[272, 40], TensorType::F32, &short), "output.weight");
}

#[test]
fn numbers_that_are_not_positive_are_refused() {
    for family in Family::ALL {
        let model = TinyModel::new(family).gguf();
        for key in ["rope.freq_base", "attention.layer_norm_rms_epsilon"] {
            let key = format!("{}.{key}", family.name());
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -1.0] {
                fault(&model.clone().metadata(&key, bad), &key);
            }
        }
    }
    let linear = llama().metadata("llama.rope.scaling.type", "linear");
    fault(&linear, "llama.rope.scaling.factor");
    fault(&linear.metadata("llama.rope.scaling.factor", f32::NAN), "llama.rope.scaling.factor");
    fault(&llama().metadata("llama.rope.scaling.type", "sideways"), "llama.rope.scaling.type");
}

#[test]
fn rotary_factors_are_held_to_the_heads() {
    let factors = |values: &[f32]| llama().tensor("rope_freqs.weight", &[values.len()], TensorType::F32, values);
    open(&factors(&[1.0; 5])).expect("valid");
    fault(&factors(&[1.0; 4]), "rope_freqs.weight");
    fault(&factors(&[1.0; 10]), "rope_freqs.weight");
    for bad in [f32::NAN, 0.0, -1.0, f32::INFINITY] {
        fault(&factors(&[1.0, 1.0, bad, 1.0, 1.0]), "rope_freqs.weight");
    }
}

#[test]
fn every_tensor_is_needed_in_its_shape() {
    for family in Family::ALL {
        let model = TinyModel::new(family).gguf();
        for name in model.tensors.iter().map(|t| t.name.clone()).filter(|n| !n.contains("blk") || n.contains("blk.1."))
        {
            fault(&model.clone().remove(&name), &name);
            fault(
                &model.clone().change(&name, |t| t.dims.push(2)).change(&name, |t| t.data.extend(t.data.clone())),
                &name,
            );
        }
    }
    let e = fault(&llama().metadata("general.architecture", "mamba"), "architecture `mamba`");
    assert!(e.contains("at byte"), "{e}");
    fault(&llama().remove("general.architecture"), "general.architecture");
}

#[test]
fn a_tied_and_an_untied_model_of_every_type_open() {
    for ty in TensorType::ALL {
        for family in Family::ALL {
            let model = TinyModel::new(family).ty(ty);
            let dims = Dims { layers: 1, ..model.dims() };
            open(&model.clone().with_dims(dims).gguf()).expect("tied");
            open(&model.with_dims(dims).untied().gguf()).expect("untied");
        }
    }
}

/// The message of a Hugging Face folder whose configuration was changed in one field.
fn folder_fault(family: Family, field: &str, value: serde_json::Value) -> String {
    let dir = tempfile::tempdir().expect("a temporary folder");
    TinyModel::new(family).folder().config(field, value.clone()).write(dir.path());
    let opened = Checkpoint::open(dir.path()).map_err(ModelError::from).and_then(|c| CpuModel::open(&c, &Team::new(1)));
    let e = opened.map(|_| ()).expect_err(&format!("{field}: {value}")).to_string();
    assert!(!e.contains('\n') && !e.ends_with('.'), "{e}");
    e
}

#[test]
fn a_folder_whose_configuration_says_what_its_tensors_do_not_is_refused() {
    use serde_json::json;
    for (field, value, says) in [
        ("tie_word_embeddings", json!(false), "tensor `lm_head.weight` is missing"),
        ("tie_word_embeddings", json!("x"), "tie_word_embeddings: \"x\" is neither true nor false"),
        ("attention_bias", json!(true), "tensor `model.layers.0.self_attn.q_proj.bias` is missing"),
        ("attention_bias", json!(1), "attention_bias: 1 is neither true nor false"),
        ("rope_scaling", json!(5), "rope_scaling: 5 is not an object"),
        ("rope_scaling", json!({"type": "yarn", "factor": 2.0}), "rope_scaling.rope_type: `yarn` is not supported"),
        ("rope_scaling", json!({"rope_type": "linear"}), "rope_scaling.factor: missing"),
        ("rope_parameters", json!("x"), "rope_parameters: \"x\" is not an object"),
        ("rope_theta", json!("x"), "rope_theta: not a number"),
        ("hidden_act", json!(5), "hidden_act: 5 is not supported"),
        ("hidden_act", json!("gelu"), "hidden_act: \"gelu\" is not supported"),
        ("quantization_config", json!({"quant_method": "gptq"}), "quantization_config: quantised folders"),
        ("num_key_value_heads", json!(3), "num_key_value_heads"),
        ("vocab_size", json!(7), "model.embed_tokens.weight"),
    ] {
        let e = folder_fault(Family::Llama, field, value);
        assert!(e.contains(says), "{field}: {e}");
    }
    assert!(folder_fault(Family::Gemma3, "layer_types", json!(["other"])).contains("layer_types"));
}
