//! The oldest supported Rust version, against what the dependencies ask for.

use std::path::Path;

use anyhow::{Context, Result};
use cargo_metadata::semver::Version;
use cargo_metadata::{MetadataCommand, Package};

use crate::finding::Finding;

/// Dependencies, direct or not, that need a newer Rust than the workspace promises.
pub(crate) fn check(root: &Path) -> Result<Vec<Finding>> {
    let metadata = MetadataCommand::new().manifest_path(root.join("Cargo.toml")).exec()?;
    let own = metadata.workspace_packages();
    let promised = own.iter().filter_map(|package| package.rust_version.clone()).min();
    let promised = promised.context("the workspace states no rust-version")?;
    Ok(too_new(&metadata.packages, &promised))
}

fn too_new(packages: &[Package], promised: &Version) -> Vec<Finding> {
    let newer = packages.iter().filter(|p| p.rust_version.as_ref().is_some_and(|needed| needed > promised));
    newer
        .map(|package| {
            let needed = package.rust_version.as_ref().map(ToString::to_string).unwrap_or_default();
            let what = format!("{} {} needs Rust {needed}, and {promised} is promised", package.name, package.version);
            Finding::new("Cargo.lock", 1, "rust-version", what)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_that_needs_a_newer_rust_is_found() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository");
        let metadata = MetadataCommand::new().manifest_path(root.join("Cargo.toml")).exec().expect("a workspace");
        let needs_some = metadata.packages.iter().any(|p| p.rust_version.is_some());
        assert!(needs_some);
        assert!(!too_new(&metadata.packages, &Version::new(1, 0, 0)).is_empty());
        assert!(too_new(&metadata.packages, &Version::new(9, 0, 0)).is_empty());
    }
}
