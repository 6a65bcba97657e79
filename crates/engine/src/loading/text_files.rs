//! The vocabulary, the chat template and the end tokens of a checkpoint, read from its files.
//!
//! GGUF keeps them in its metadata (GGUF specification, "tokenizer"); a Hugging Face folder in
//! `tokenizer.json`, `tokenizer_config.json`, `chat_template.jinja`, `generation_config.json` and
//! `config.json`.

use std::path::Path;

use selfspec_model::TokenId;
use selfspec_text::{GgufVocab, Tokenizer};
use selfspec_weights::{Metadata, Source, WeightsError};
use serde_json::Value;

use crate::error::EngineError;

/// The text side of a checkpoint.
pub(crate) struct Vocabulary {
    pub(crate) tokenizer: Tokenizer,
    /// Source of the chat template.
    pub(crate) template: Option<String>,
    /// Ids that end a text, from the files beside the tokenizer.
    pub(crate) eos: Vec<TokenId>,
}

/// Reads the text side of a checkpoint. `None` if it has no tokenizer: a model can run on token
/// ids.
///
/// # Errors
/// A file or key is there and is malformed.
pub(crate) fn read(source: &Source) -> Result<Option<Vocabulary>, EngineError> {
    match source {
        Source::Gguf(metadata) => read_gguf(metadata),
        Source::HuggingFace { dir, config } => read_folder(dir, config),
    }
}

fn read_gguf(metadata: &Metadata) -> Result<Option<Vocabulary>, EngineError> {
    if metadata.str("tokenizer.ggml.model")?.is_none() && metadata.strings("tokenizer.ggml.tokens")?.is_none() {
        return Ok(None);
    }
    let tokenizer = Tokenizer::from_gguf(gguf_vocab(metadata)?)?;
    let template = metadata.str("tokenizer.chat_template")?.map(str::to_owned);
    Ok(Some(Vocabulary { tokenizer, template, eos: Vec::new() }))
}

/// The vocabulary in a GGUF file's metadata.
fn gguf_vocab(metadata: &Metadata) -> Result<GgufVocab, WeightsError> {
    let strings = |key: &str| -> Result<Vec<String>, WeightsError> {
        Ok(metadata.strings(key)?.unwrap_or_default().into_iter().map(str::to_owned).collect())
    };
    // An id beyond 32 bits is in no vocabulary. The tokenizer refuses the largest id by its name.
    let id = |key: &str| -> Result<Option<TokenId>, WeightsError> {
        Ok(metadata.u64(key)?.map(|id| TokenId::try_from(id).unwrap_or(TokenId::MAX)))
    };
    Ok(GgufVocab {
        model: metadata.need_str("tokenizer.ggml.model")?.to_owned(),
        pre: metadata.str("tokenizer.ggml.pre")?.map(str::to_owned),
        tokens: strings("tokenizer.ggml.tokens")?,
        scores: metadata.f32s("tokenizer.ggml.scores")?.unwrap_or_default(),
        token_types: metadata.i32s("tokenizer.ggml.token_type")?.unwrap_or_default(),
        merges: strings("tokenizer.ggml.merges")?,
        bos: id("tokenizer.ggml.bos_token_id")?,
        eos: id("tokenizer.ggml.eos_token_id")?,
        eot: id("tokenizer.ggml.eot_token_id")?,
        unk: id("tokenizer.ggml.unknown_token_id")?,
        pad: id("tokenizer.ggml.padding_token_id")?,
        add_bos: metadata.bool("tokenizer.ggml.add_bos_token")?,
        add_eos: metadata.bool("tokenizer.ggml.add_eos_token")?,
        add_space_prefix: metadata.bool("tokenizer.ggml.add_space_prefix")?,
    })
}

fn read_folder(dir: &Path, config: &Value) -> Result<Option<Vocabulary>, EngineError> {
    let Some(tokenizer_json) = read_file(dir, "tokenizer.json")? else { return Ok(None) };
    let tokenizer_config = read_file(dir, "tokenizer_config.json")?;
    let tokenizer = Tokenizer::from_hf(&tokenizer_json, tokenizer_config.as_deref())?;
    let template = folder_template(dir)?;
    let mut eos = eos_in(dir, "config.json", config)?;
    if let Some(bytes) = read_file(dir, "generation_config.json")? {
        let generation = parse(dir, "generation_config.json", &bytes)?;
        eos.extend(eos_in(dir, "generation_config.json", &generation)?);
    }
    Ok(Some(Vocabulary { tokenizer, template, eos }))
}

/// The chat template of a folder: a file of its own, or a field of the tokenizer's configuration.
fn folder_template(dir: &Path) -> Result<Option<String>, EngineError> {
    if let Some(bytes) = read_file(dir, "chat_template.jinja")? {
        let text = String::from_utf8(bytes);
        return text.map(Some).map_err(|_| file_error(dir, "chat_template.jinja", "not UTF-8"));
    }
    match read_file(dir, "tokenizer_config.json")? {
        Some(bytes) => Ok(template_in(&parse(dir, "tokenizer_config.json", &bytes)?)),
        None => Ok(None),
    }
}

/// The field `chat_template`: the template, or a list of named ones of which `default` is for chat.
fn template_in(tokenizer_config: &Value) -> Option<String> {
    match tokenizer_config.get("chat_template")? {
        Value::String(template) => Some(template.clone()),
        Value::Array(named) => {
            let default = named.iter().find(|t| t.get("name").and_then(Value::as_str) == Some("default"))?;
            default.get("template").and_then(Value::as_str).map(str::to_owned)
        }
        _ => None,
    }
}

/// The field `eos_token_id`: an id or a list of ids.
fn eos_in(dir: &Path, file: &str, value: &Value) -> Result<Vec<TokenId>, EngineError> {
    let id = |value: &Value| {
        let id = value.as_u64().and_then(|id| TokenId::try_from(id).ok());
        id.ok_or_else(|| file_error(dir, file, &format!("eos_token_id: {value} is not a token id")))
    };
    match value.get("eos_token_id") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(ids)) => ids.iter().map(id).collect(),
        Some(one) => Ok(vec![id(one)?]),
    }
}

fn parse(dir: &Path, file: &str, bytes: &[u8]) -> Result<Value, EngineError> {
    serde_json::from_slice(bytes).map_err(|error| file_error(dir, file, &format!("not JSON: {error}")))
}

fn file_error(dir: &Path, file: &str, why: &str) -> EngineError {
    EngineError::File { path: dir.join(file), why: why.to_owned() }
}

/// A file of the folder, if it is there.
fn read_file(dir: &Path, file: &str) -> Result<Option<Vec<u8>>, EngineError> {
    let path = dir.join(file);
    match std::fs::read(&path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(EngineError::Io { path, source }),
    }
}

/// Whether the checkpoint brings a chat template, looked up without building the tokenizer.
pub(crate) fn has_template(source: &Source) -> Result<bool, EngineError> {
    match source {
        Source::Gguf(metadata) => Ok(metadata.str("tokenizer.chat_template")?.is_some()),
        Source::HuggingFace { dir, .. } => Ok(folder_template(dir)?.is_some()),
    }
}
