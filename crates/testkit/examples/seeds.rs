//! Writes small valid files for the fuzz targets to start from: `cargo run -p selfspec-testkit
//! --example seeds -- fuzz/corpus`.
#![allow(clippy::print_stdout)]

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use selfspec_model::ArchConfig;
use selfspec_testkit::{Family, FolderBuilder, GgufBuilder, TinyExitHead, TinyModel, Value};
use selfspec_weights::{Checkpoint, TensorType};

fn main() -> io::Result<ExitCode> {
    let Some(corpus) = std::env::args_os().nth(1) else {
        println!("usage: seeds FOLDER");
        return Ok(ExitCode::from(2));
    };
    let corpus = Path::new(&corpus);
    fs::create_dir_all(corpus.join("gguf"))?;
    fs::create_dir_all(corpus.join("safetensors"))?;

    let nested =
        [&9u32.to_le_bytes()[..], &1u64.to_le_bytes(), &7u32.to_le_bytes(), &1u64.to_le_bytes(), &[1]].concat();
    let metadata = GgufBuilder::new()
        .metadata("general.alignment", 32u32)
        .metadata("s", "text")
        .metadata("u8", 1u8)
        .metadata("i16", -1i16)
        .metadata("f64", 0.5f64)
        .metadata("b", true)
        .metadata("strings", vec!["a".to_owned(), "bc".to_owned()])
        .metadata("floats", vec![0.5f32, 1.5])
        .metadata("bools", vec![true, false])
        .metadata("nested", Value::Raw(9, nested));
    fs::write(corpus.join("gguf/metadata"), metadata.bytes())?;
    for ty in TensorType::ALL {
        let len = ty.block_len() * 2;
        let file = GgufBuilder::new()
            .metadata("general.architecture", "llama")
            .tensor("a", &[2, ty.block_len()], ty, &vec![1.0; len])
            .tensor("b", &[3], TensorType::F32, &[1.0, 2.0, 3.0]);
        fs::write(corpus.join("gguf").join(ty.name()), file.bytes())?;
        if ty.block_len() == 1 {
            let folder = FolderBuilder::default().tensor("a", &[2, 1], ty, &[1.0; 2]).tensor(
                "b",
                &[3],
                TensorType::F32,
                &[1.0; 3],
            );
            fs::write(corpus.join("safetensors").join(ty.name()), folder.safetensors())?;
        }
    }
    let other = r#"{"__metadata__":{"k":"v"},"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}}"#;
    let file = [&(other.len() as u64).to_le_bytes()[..], other.as_bytes(), &[0; 8]].concat();
    fs::write(corpus.join("safetensors/other"), &file)?;
    fs::write(corpus.join("safetensors/config"), [&file[..], br#"{"a":[1,"b",null,{"c":1.5}]}"#].concat())?;
    requests(corpus)?;
    exit_heads(corpus)?;
    Ok(ExitCode::SUCCESS)
}

/// Bodies, records, tunings, grammars and answers: the bytes by which a target chooses, then a
/// text.
fn requests(corpus: &Path) -> io::Result<()> {
    let seeds: [(&str, &[u8], &str); 12] = [
        (
            "request_body",
            &[0],
            r#"{"messages": [{"role": "user", "content": "Hello"}], "stream": true, "max_tokens": 5}"#,
        ),
        (
            "request_body",
            &[0],
            r#"{"messages": [{"role": "assistant", "content": null, "tool_calls": [{"id": "a", "type": "function",
            "function": {"name": "f", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "a", "content": "1"}],
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]}"#,
        ),
        (
            "request_body",
            &[1],
            r#"{"prompt": "Once", "temperature": 0.5, "seed": 3, "stop": ["\n"], "logit_bias": {"5": -100},
            "speculation": {"drafter": "layer-skip", "exit_layer": 2, "draft_len": 3}}"#,
        ),
        ("request_body", &[1], r#"{"prompt": [1, 2], "response_format": {"type": "json_object"}}"#),
        ("tuning", &[], r#"{"version": 1, "drafter": {"layer-skip": {"from": 2, "to": 4}}}"#),
        ("record", &[], r#"{"time": 0.5, "endpoint": "chat", "body": {"messages": []}, "choices": []}"#),
        ("grammar", &[0], r#"{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}"#),
        ("grammar", &[0], r#"{"enum": ["red", "green", 3, null]}"#),
        ("grammar", &[1], "[a-c]{2,4}(x|yz)*"),
        ("grammar", &[2], r#"start: "yes" | "no" /[0-9]+/"#),
        ("tool_calls", &[0, 3], "aaaaaaaa"),
        ("tool_calls", &[1, 2], "bcdefghij"),
    ];
    for (i, (target, choices, text)) in seeds.into_iter().enumerate() {
        fs::create_dir_all(corpus.join(target))?;
        fs::write(corpus.join(target).join(i.to_string()), [choices, text.as_bytes()].concat())?;
    }
    Ok(())
}

/// Exit heads of the tiny Llama, of each design.
fn exit_heads(corpus: &Path) -> io::Result<()> {
    fs::create_dir_all(corpus.join("exit_head"))?;
    let checkpoint = Checkpoint::from_gguf_bytes("tiny.gguf".as_ref(), TinyModel::new(Family::Llama).gguf().bytes());
    let config = ArchConfig::read(&checkpoint.map_err(io::Error::other)?).map_err(io::Error::other)?;
    for (i, (exit, features)) in [(0, &[4, 2][..]), (2, &[4]), (1, &[])].into_iter().enumerate() {
        let head = TinyExitHead::new("f", exit, features, (0..64).collect());
        fs::write(corpus.join("exit_head").join(i.to_string()), head.bytes(&config))?;
    }
    Ok(())
}
