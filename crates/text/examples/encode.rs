//! Encodes texts for `tools/tokenizer-check`: reads JSON lines with a string each, writes JSON
//! lines with ids each.
//!
//! `encode (gguf FILE | hf DIR) [plain|prompt] < texts.jsonl > ids.jsonl`; `prompt` takes spellings
//! of control tokens as tokens. Figures about loading and speed go to standard error.

#![allow(clippy::print_stdout, reason = "its output is the data")]

use std::io::{BufRead, Write};
use std::time::Instant;

use selfspec_text::{RenderedPrompt, Tokenizer};

#[allow(clippy::unwrap_used, dead_code, reason = "the tests use all of it")]
#[path = "../tests/it/support.rs"]
mod support;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, kind, path, mode] = &args[..] else {
        return Err("usage: encode gguf|hf PATH plain|prompt".into());
    };
    let tokenizer = if kind == "gguf" {
        let (vocab, _) = support::vocab(path);
        let start = Instant::now();
        let tokenizer = Tokenizer::from_gguf(vocab)?;
        eprintln!("from_gguf: {:?}", start.elapsed());
        tokenizer
    } else {
        let read = |name: &str| std::fs::read(std::path::Path::new(path).join(name));
        let (json, config) = (read("tokenizer.json")?, read("tokenizer_config.json").ok());
        let start = Instant::now();
        let tokenizer = Tokenizer::from_hf(&json, config.as_deref())?;
        eprintln!("from_hf: {:?}", start.elapsed());
        tokenizer
    };
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let (mut bytes, mut seconds, mut round_trips, mut texts) = (0, 0.0, 0, 0);
    for line in std::io::stdin().lock().lines() {
        let text: String = serde_json::from_str(&line?)?;
        let start = Instant::now();
        let ids = match mode.as_str() {
            "plain" => tokenizer.encode(&text, false)?,
            _ => tokenizer.encode_prompt(&RenderedPrompt::trusted(text.as_str()))?,
        };
        seconds += start.elapsed().as_secs_f64();
        bytes += text.len();
        texts += 1;
        round_trips += usize::from(tokenizer.decode(&ids) == text);
        serde_json::to_writer(&mut out, &ids)?;
        writeln!(out)?;
    }
    eprintln!(
        "{texts} texts, {bytes} bytes in {seconds:.3} s: {:.1} MB/s; {round_trips} decode to the same text",
        bytes as f64 / seconds / 1e6
    );
    Ok(())
}
