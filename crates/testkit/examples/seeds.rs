//! Writes small valid files for the fuzz targets to start from: `cargo run -p selfspec-testkit
//! --example seeds -- fuzz/corpus`.
#![allow(clippy::print_stdout)]

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use selfspec_testkit::{FolderBuilder, GgufBuilder, Value};
use selfspec_weights::TensorType;

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
    Ok(ExitCode::SUCCESS)
}
