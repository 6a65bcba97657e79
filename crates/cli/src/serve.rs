//! `selfspec serve`: a model behind HTTP.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;
use selfspec_server::{RecordOptions, ServeError, ServeOptions, Server};

use crate::args::ServeArgs;
use crate::failure::usage;
use crate::model;
use crate::output::Ui;
use crate::signals::Pausing;

pub(crate) fn run(args: &ServeArgs, ui: &Ui) -> anyhow::Result<()> {
    if args.watch.record_prompts && args.watch.record.is_none() {
        return Err(usage("--record-prompts: there is no record", "--record names its file"));
    }
    let mut api_keys = args.access.api_key.clone();
    if let Some(file) = &args.access.api_key_file {
        api_keys.extend(keys_of(file)?);
    }
    let model = model::serve(&args.model.model, &args.load, &args.compute, ui)?;
    let addr = SocketAddr::new(args.access.host, args.access.port);
    let name = args.access.model_name.clone().unwrap_or_else(|| name(&args.model.model));
    let open = api_keys.is_empty();
    let options = ServeOptions {
        tool_style: args.access.tool_style.0,
        api_keys,
        most_requests: args.load.max_requests,
        most_connections: args.load.max_connections,
        stall_timeout: args.load.stall_timeout,
        request_timeout: args.load.request_timeout,
        cors_origins: args.access.cors_origin.clone(),
        speculate_share: args.watch.speculate_share,
        record: args.watch.record.clone().map(|path| RecordOptions { path, prompts: args.watch.record_prompts }),
        ..ServeOptions::new(addr, name.clone())
    };
    let server = Server::bind(model.engine().clone(), options).map_err(|error| match error {
        ServeError::Origin { .. } => usage(format!("--cors-origin: {error}"), None),
        error => error.into(),
    })?;
    if !args.access.host.is_loopback() && open {
        ui.note("anyone who can reach this machine can use the server: --api-key asks for a key");
    }
    ui.note(&format!("{name} is served on http://{}/v1 (Ctrl-C stops it)", server.addr()));
    let pausing = Pausing::new();
    server.run(move || pausing.interrupted())?;
    Ok(())
}

/// The keys of a file, one on each line; text after a `#` is a comment.
fn keys_of(file: &Path) -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("--api-key-file {}", file.display()))?;
    let keys = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let keys: Vec<String> = keys.filter(|key| !key.is_empty()).map(str::to_owned).collect();
    if keys.is_empty() {
        // Without keys the server would be open, which a user with a file of keys does not want.
        return Err(usage(format!("--api-key-file {}: there is no key in it", file.display()), None));
    }
    Ok(keys)
}

/// The model's name in the API: an alias, or the last part of a path without its extension.
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
