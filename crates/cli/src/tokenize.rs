//! `selfspec tokenize`: a text's tokens.

use anyhow::Context;
use selfspec::Message;
use selfspec_engine::{EngineError, LoadedModel};
use selfspec_text::Tokenizer;
use serde::Serialize;

use crate::args::TokenizeArgs;
use crate::failure::usage;
use crate::model;
use crate::output::{self, Ui};
use crate::prompt_input::read_prompt;

#[derive(Debug, Serialize)]
struct Tokens {
    ids: Vec<u32>,
    pieces: Vec<String>,
}

pub(crate) fn run(args: &TokenizeArgs, ui: &Ui) -> anyhow::Result<()> {
    let Some(text) = read_prompt(&args.prompt)? else {
        return Err(usage("no text", "give it with -p, --prompt-file or on standard input"));
    };
    let path = model::locate(&args.model.model, ui)?;
    let (tokenizer, template) =
        LoadedModel::text_only(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let tokenizer = tokenizer.context("the model has no tokenizer")?;
    let ids = if args.chat {
        let template = template?.ok_or(EngineError::NoChatTemplate)?;
        let rendered = template.render(&[Message::new("user", text)], true, &serde_json::Map::new())?;
        tokenizer.encode_prompt(&rendered)?
    } else {
        tokenizer.encode(&text, args.bos)?
    };
    print(args, ids, &tokenizer)
}

fn print(args: &TokenizeArgs, ids: Vec<u32>, tokenizer: &Tokenizer) -> anyhow::Result<()> {
    if args.count {
        return Ok(output::println(&ids.len().to_string())?);
    }
    let pieces: Vec<String> = ids.iter().map(|id| piece(tokenizer, *id, str::to_owned)).collect();
    if args.json {
        return output::print_json(&Tokens { ids, pieces });
    }
    // Characters that would break a line are escaped.
    let line = |id: &u32| format!("{id:>8}  {}\n", piece(tokenizer, *id, |text| text.escape_debug().to_string()));
    Ok(output::print(&ids.iter().map(line).collect::<String>())?)
}

/// The text of one token, through `show`. Bytes that are no whole character become `\xNN`.
fn piece(tokenizer: &Tokenizer, id: u32, show: impl Fn(&str) -> String) -> String {
    let Some(bytes) = tokenizer.bytes(id) else { return String::new() };
    if bytes.is_empty() {
        // A control token has no text; its spelling identifies it.
        return show(tokenizer.token_text(id).unwrap_or_default());
    }
    let chunk = |c: std::str::Utf8Chunk<'_>| {
        let invalid: String = c.invalid().iter().map(|b| format!("\\x{b:02x}")).collect();
        show(c.valid()) + &invalid
    };
    bytes.utf8_chunks().map(chunk).collect()
}
