//! Repository checks: `cargo xtask tidy`.
//!
//! Tidy holds the rules that no compiler or linter knows: which crate may know which, where unsafe
//! code may live, how long a file may be, and that the documents speak of what is there. Every
//! finding reads `path:line: rule: what`.
#![forbid(unsafe_code)]

mod documents;
mod edges;
mod finding;
mod modules;
mod msrv;
mod names;
mod rust_source;
mod sources;
mod tree;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy(),
        _ => bail!("usage: cargo xtask tidy"),
    }
}

/// Runs every rule over the repository and prints the findings. Exit code 1 when there is any.
fn tidy() -> Result<ExitCode> {
    let tree = tree::Tree::read()?;
    let mut findings = edges::check(&tree.crates);
    for file in &tree.files {
        let owner = tree.owner(&file.path);
        if file.path.ends_with(".rs") {
            findings.extend(sources::check(file, owner));
        }
        if file.path.ends_with(".md") {
            findings.extend(documents::links(file, &tree));
            findings.extend(documents::width(file));
        }
    }
    for krate in &tree.crates {
        findings.extend(modules::circles(krate, &tree.files));
        findings.extend(names::reexports(krate, &tree.files));
        findings.extend(sources::crate_length(krate, &tree.files));
    }
    findings.extend(names::types(&tree));
    for root in &tree.crate_roots {
        findings.extend(sources::forbids_unsafe(root, tree.owner(&root.path)));
    }
    findings.extend(msrv::check(&tree::root()?)?);
    findings.extend(documents::root_files(&tree.files));
    findings.extend(documents::architecture(&tree));
    findings.sort();

    let mut out = std::io::stdout().lock();
    for finding in &findings {
        writeln!(out, "{finding}").context("cannot write to standard output")?;
    }
    if findings.is_empty() {
        writeln!(out, "tidy: {} crates, {} files, nothing to say", tree.crates.len(), tree.files.len())?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "tidy: {} findings", findings.len())?;
    Ok(ExitCode::FAILURE)
}
