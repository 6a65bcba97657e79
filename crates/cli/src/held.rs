//! What a text must be, or is expected to be, as flags say it: grammars and predictions from files.

use std::path::Path;

use anyhow::Context;
use selfspec_engine::{Engine, GrammarSource, Request};

use crate::args::HeldArgs;

/// Puts into the request what the flags say.
///
/// # Errors
/// A file cannot be read, is not what it should be, or the grammar cannot be used.
pub(crate) fn apply(args: &HeldArgs, engine: &Engine, request: &mut Request) -> anyhow::Result<()> {
    if let Some((flag, source)) = source(args)? {
        request.grammar = Some(engine.grammar(&source).with_context(|| flag)?);
    }
    if let Some(path) = &args.prediction {
        let tokenizer = engine.tokenizer().context("--prediction: the model has no tokenizer")?;
        let text = text("--prediction", path)?;
        request.prediction = tokenizer.encode(&text, false)?;
    }
    Ok(())
}

/// The grammar asked for, and the flag that asks.
fn source(args: &HeldArgs) -> anyhow::Result<Option<(String, GrammarSource)>> {
    Ok(if let Some(schema) = &args.json_schema {
        let flag = format!("--json-schema {schema}");
        let source = match schema.as_str() {
            "object" => GrammarSource::JsonObject,
            path => {
                let text = text("--json-schema", Path::new(path))?;
                GrammarSource::JsonSchema(serde_json::from_str(&text).with_context(|| format!("{flag}: not JSON"))?)
            }
        };
        Some((flag, source))
    } else if let Some(regex) = &args.regex {
        Some((format!("--regex {regex}"), GrammarSource::Regex(regex.clone())))
    } else if let Some(path) = &args.lark {
        Some((format!("--lark {}", path.display()), GrammarSource::Lark(text("--lark", path)?)))
    } else {
        None
    })
}

fn text(flag: &str, path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("{flag} {}", path.display()))
}
