//! Writes a tiny model: `cargo run -p selfspec-testkit --example tiny -- FAMILY TYPE PATH`, for
//! example `llama Q4_K /tmp/tiny.gguf`. A path that ends in `.gguf` becomes a GGUF file, any other
//! a Hugging Face folder.
#![allow(clippy::print_stdout)]

use std::path::Path;
use std::process::ExitCode;

use selfspec_testkit::{Family, TinyModel};
use selfspec_weights::TensorType;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [family, ty, path] = &args[..] else {
        println!("usage: tiny FAMILY TYPE PATH");
        return ExitCode::from(2);
    };
    let family = Family::ALL.into_iter().find(|f| f.name() == family);
    let ty = TensorType::ALL.into_iter().find(|t| t.name() == ty);
    let (Some(family), Some(ty)) = (family, ty) else {
        println!("families: {:?}; types: {:?}", Family::ALL.map(Family::name), TensorType::ALL.map(TensorType::name));
        return ExitCode::from(2);
    };
    let model = TinyModel::new(family).ty(ty);
    let path = Path::new(path);
    if path.extension().is_some_and(|e| e == "gguf") {
        model.gguf().write(path);
    } else {
        model.folder().write(path);
    }
    ExitCode::SUCCESS
}
