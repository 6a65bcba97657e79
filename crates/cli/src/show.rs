//! `selfspec show`: what a model is.

use std::path::Path;

use anyhow::Context;
use selfspec_engine::{EngineError, LoadedModel, ModelInfo};
use serde::Serialize;

use crate::args::ShowArgs;
use crate::model;
use crate::output::{self, Ui, bytes, table};

/// The object of `show --json`.
#[derive(Debug, Serialize)]
struct ShowJson<'a> {
    path: String,
    name: Option<&'a str>,
    architecture: &'a str,
    parameters: u64,
    layers: usize,
    dim: usize,
    ffn_dim: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    vocab: usize,
    context: usize,
    chat_template: bool,
    tensor_types: Vec<TensorType<'a>>,
    file_bytes: u64,
    weight_bytes: u64,
    kv_bytes_per_position: usize,
    memory: Memory,
    /// Why the model cannot be run, if it cannot.
    fault: Option<String>,
}

#[derive(Debug, Serialize)]
struct TensorType<'a> {
    name: &'a str,
    tensors: usize,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct Memory {
    context: usize,
    bytes: u64,
}

pub(crate) fn run(args: &ShowArgs, ui: &Ui) -> anyhow::Result<()> {
    let path = model::locate(&args.model.model, ui)?;
    let info = ModelInfo::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let fault = LoadedModel::check(&path).err();
    print(args, &path, &info, fault.as_ref())?;
    fault.map_or(Ok(()), |fault| Err(anyhow::Error::new(fault).context("the model cannot be run")))
}

fn print(args: &ShowArgs, path: &Path, info: &ModelInfo, fault: Option<&EngineError>) -> anyhow::Result<()> {
    let kv_type = args.kv.kv_type;
    let context = args.context.unwrap_or(info.context);
    if context > info.context {
        anyhow::bail!("a context of {context} positions: the model was made for {}", info.context);
    }
    if args.json {
        let types = info.tensor_types.iter();
        return output::print_json(&ShowJson {
            path: path.display().to_string(),
            name: info.name.as_deref(),
            architecture: &info.architecture,
            parameters: info.parameters,
            layers: info.n_layers,
            dim: info.dim,
            ffn_dim: info.ffn_dim,
            heads: info.heads,
            kv_heads: info.kv_heads,
            head_dim: info.head_dim,
            vocab: info.vocab,
            context: info.context,
            chat_template: info.chat_template,
            tensor_types: types.map(|t| TensorType { name: &t.name, tensors: t.tensors, bytes: t.bytes }).collect(),
            file_bytes: info.file_bytes,
            weight_bytes: info.weight_bytes,
            kv_bytes_per_position: info.kv_bytes_per_position(kv_type),
            memory: Memory { context, bytes: info.memory_bytes(kv_type, context) },
            fault: fault.map(ToString::to_string),
        });
    }
    let mut rows = Vec::new();
    let mut row = |label: &str, value: String| rows.push(vec![label.to_owned(), value]);
    row("path", path.display().to_string());
    if let Some(name) = &info.name {
        row("name", name.clone());
    }
    row("architecture", info.architecture.clone());
    row("parameters", millions(info.parameters));
    row("layers", info.n_layers.to_string());
    row("width", format!("{}, feed-forward {}", info.dim, info.ffn_dim));
    row("heads", format!("{} of {} values, {} for keys and values", info.heads, info.head_dim, info.kv_heads));
    row("vocabulary", info.vocab.to_string());
    row("context", format!("{} positions", info.context));
    row("chat template", if info.chat_template { "yes" } else { "no" }.to_owned());
    for (i, t) in info.tensor_types.iter().enumerate() {
        let label = if i == 0 { "tensors" } else { "" };
        row(label, format!("{} x {}, {}", t.tensors, t.name, bytes(t.bytes)));
    }
    row("file", bytes(info.file_bytes));
    let kv = info.kv_bytes_per_position(kv_type) as u64 * context as u64;
    row(
        "memory",
        format!(
            "{}: weights {}, KV cache {} for {context} positions",
            bytes(info.memory_bytes(kv_type, context)),
            bytes(info.weight_bytes),
            bytes(kv)
        ),
    );
    Ok(output::print(&table(&rows, &[]))?)
}

/// A model's kind in a few words: architecture, size, and its file type or the type of most bytes.
pub(crate) fn type_words(info: &ModelInfo) -> String {
    let most = info.tensor_types.first().map(|t| t.name.as_str());
    let ty = info.file_type.or(most).unwrap_or("no tensors");
    format!("{} {} {ty}", info.architecture, millions(info.parameters))
}

fn millions(parameters: u64) -> String {
    match parameters {
        0..1_000_000 => format!("{:.1}K", parameters as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.0}M", parameters as f64 / 1e6),
        _ => format!("{:.1}B", parameters as f64 / 1e9),
    }
}
