//! `selfspec tokenize`: a text's tokens.

use anyhow::Context;
use selfspec_engine::Tokenizer;
use serde::Serialize;

use crate::args::{ComputeArgs, TokenizeArgs};
use crate::failure::usage;
use crate::output::{self, Ui};
use crate::request::Style;
use crate::{model, request, run};

#[derive(Debug, Serialize)]
struct Tokens {
    ids: Vec<u32>,
    pieces: Vec<String>,
}

pub(crate) fn run(args: &TokenizeArgs, ui: &Ui) -> anyhow::Result<()> {
    let Some(text) = run::read_prompt(&args.prompt)? else {
        return Err(usage("no text", "give it with -p, --prompt-file or on standard input"));
    };
    let engine = model::engine(&args.model.model, None, &ComputeArgs::default(), ui)?;
    let tokenizer = engine.tokenizer().context("the model has no tokenizer")?;
    let ids = if args.chat {
        engine.encode(&request::prompt(Style::Chat, None, &text))?
    } else {
        tokenizer.encode(&text, args.bos)?
    };
    print(args, ids, tokenizer)
}

fn print(args: &TokenizeArgs, ids: Vec<u32>, tokenizer: &Tokenizer) -> anyhow::Result<()> {
    if args.count {
        return Ok(output::println(&ids.len().to_string())?);
    }
    let pieces: Vec<String> = ids.iter().map(|id| piece(tokenizer, *id)).collect();
    if args.json {
        return output::print_json(&Tokens { ids, pieces });
    }
    let lines: String =
        ids.iter().zip(&pieces).map(|(id, piece)| format!("{id:>8}  {}\n", piece.escape_debug())).collect();
    Ok(output::print(&lines)?)
}

/// The text of one token. Bytes that are no characters by themselves are written as `\xNN`.
fn piece(tokenizer: &Tokenizer, id: u32) -> String {
    let Some(bytes) = tokenizer.bytes(id) else { return String::new() };
    if bytes.is_empty() {
        // Control tokens stand for no text; their spelling tells what they are.
        return tokenizer.token_text(id).unwrap_or_default().to_owned();
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().map(|b| format!("\\x{b:02x}")).collect(),
    }
}
