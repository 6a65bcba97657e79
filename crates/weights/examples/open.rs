//! Opens a checkpoint, prints what it holds, and times it: `cargo run --release -p selfspec-weights
//! --example open -- PATH`.
#![allow(clippy::print_stdout)]

use std::path::Path;
use std::time::Instant;

use selfspec_weights::{Checkpoint, Source, WeightsError};

fn main() -> Result<(), WeightsError> {
    let Some(path) = std::env::args_os().nth(1) else {
        println!("usage: open PATH");
        return Ok(());
    };
    let start = Instant::now();
    let checkpoint = Checkpoint::open(Path::new(&path))?;
    let opened = start.elapsed();
    if let Source::Gguf(metadata) = checkpoint.source() {
        let start = Instant::now();
        let tokens = metadata.strings("tokenizer.ggml.tokens")?.unwrap_or_default();
        println!("{} tokens in {:.1} ms", tokens.len(), start.elapsed().as_secs_f64() * 1e3);
        for key in metadata.keys() {
            println!("  {key} = {}", metadata.display(key).unwrap_or_default());
        }
    }
    for t in checkpoint.tensors() {
        println!("  {} {:?} {}", t.name, t.shape, t.ty);
    }
    println!(
        "opened in {:.1} ms: {} tensors, {} bytes",
        opened.as_secs_f64() * 1e3,
        checkpoint.tensors().len(),
        checkpoint.size_bytes()
    );
    Ok(())
}
