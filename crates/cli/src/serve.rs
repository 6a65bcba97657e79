//! `selfspec serve`: a model behind HTTP.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use selfspec_engine::{Engine, EngineOptions};
use selfspec_server::{RecordOptions, ServeOptions, Server};

use crate::args::ServeArgs;
use crate::failure::usage;
use crate::model;
use crate::output::Ui;
use crate::signals::Pausing;

pub(crate) fn run(args: &ServeArgs, ui: &Ui) -> anyhow::Result<()> {
    if args.watch.record_prompts && args.watch.record.is_none() {
        return Err(usage("--record-prompts: there is no record", "--record names its file"));
    }
    let loaded = model::load(&args.model.model, args.compute.threads, &args.compute.heads, ui)?;
    let most = loaded.info().context;
    if let Some(context) = args.load.context.filter(|context| *context > most) {
        return Err(usage(format!("-c {context}: the model was made for {most} positions"), None));
    }
    let options = EngineOptions {
        context: args.load.context,
        kv_bytes: args.load.kv_mib.map(|mib| mib << 20),
        max_batch: args.load.max_batch,
        prefix_cache: true,
        ..args.compute.engine()
    };
    let engine = Arc::new(Engine::open_with(&loaded, &options)?);
    let addr = SocketAddr::new(args.access.host, args.access.port);
    let name = args.access.model_name.clone().unwrap_or_else(|| name(&args.model.model));
    let options = ServeOptions {
        tool_style: args.access.tool_style.0,
        api_keys: args.access.api_key.clone(),
        most_requests: args.load.max_requests,
        speculate_share: args.watch.speculate_share,
        record: args.watch.record.clone().map(|path| RecordOptions { path, prompts: args.watch.record_prompts }),
        ..ServeOptions::new(addr, name.clone())
    };
    let server = Server::bind(engine, options)?;
    if !args.access.host.is_loopback() && args.access.api_key.is_empty() {
        ui.note("anyone who can reach this machine can use the server: --api-key asks for a key");
    }
    ui.note(&format!("{name} is served on http://{}/v1 (Ctrl-C ends it)", server.addr()));
    let pausing = Pausing::new();
    server.run(move || pausing.interrupted())?;
    Ok(())
}

/// The model's name in the API: an alias as it is, of a path the last part without its ending.
fn name(model: &str) -> String {
    let path = Path::new(model);
    let last = if path.extension().is_some_and(|end| end == "gguf") { path.file_stem() } else { path.file_name() };
    last.map_or_else(|| model.to_owned(), |last| last.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short() {
        let named = ["smollm2-135m", "a/b/Model.Q4_1.gguf", "folder/model/", "hf:org/repo"].map(name);
        assert_eq!(named, ["smollm2-135m", "Model.Q4_1", "model", "repo"]);
    }
}
