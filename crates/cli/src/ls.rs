//! `selfspec ls`: the models of the cache.

use selfspec_engine::ModelInfo;
use selfspec_hub::{CachedModel, ModelLayout};
use serde::Serialize;

use crate::args::LsArgs;
use crate::output::{self, Ui, bytes, table};
use crate::{model, show};

#[derive(Debug, Serialize)]
struct Line {
    name: String,
    bytes: u64,
    #[serde(rename = "type")]
    ty: Option<String>,
    layout: &'static str,
    source: String,
    path: String,
    complete: bool,
}

impl Line {
    fn new(cached: CachedModel) -> Self {
        // A file that cannot be read as a model is listed too, so that the user can find it.
        let info = if cached.complete { ModelInfo::read(&cached.root).ok() } else { None };
        Line {
            ty: info.map(|i| show::type_words(&i)),
            layout: match cached.layout {
                ModelLayout::Gguf => "gguf",
                ModelLayout::Folder => "safetensors",
            },
            bytes: cached.bytes,
            source: cached.source,
            path: cached.root.display().to_string(),
            complete: cached.complete,
            name: cached.name,
        }
    }
}

pub(crate) fn run(args: &LsArgs, ui: &Ui) -> anyhow::Result<()> {
    let options = model::hub_options(ui)?;
    let lines: Vec<Line> = selfspec_hub::list(&options)?.into_iter().map(Line::new).collect();
    if args.json {
        return output::print_json(&lines);
    }
    if lines.is_empty() {
        ui.note(&format!("no models in {}", options.home.display()));
        return Ok(());
    }
    let mut rows = vec![["NAME", "SIZE", "TYPE", "PATH"].map(str::to_owned).to_vec()];
    rows.extend(lines.into_iter().map(|line| {
        let ty = match (line.ty, line.complete) {
            (Some(ty), _) => ty,
            (None, true) => "not readable".to_owned(),
            (None, false) => "incomplete".to_owned(),
        };
        vec![line.name, bytes(line.bytes), ty, line.path]
    }));
    Ok(output::print(&table(&rows, &[1]))?)
}
