//! What the rules look at: the files that git knows or would know, and the crates that cargo knows.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use cargo_metadata::{DependencyKind, MetadataCommand};

/// A text file of the repository.
#[derive(Debug, Clone)]
pub(crate) struct File {
    /// Path from the repository's root, with `/`.
    pub path: String,
    /// Its content; empty for files that are not text.
    pub text: String,
}

/// A dependency of a crate on another crate of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Edge {
    /// Folder name of the crate that is depended on.
    pub to: String,
    /// Whether it is a dev-dependency.
    pub dev: bool,
    /// Line of the manifest, counted from 1.
    pub line: usize,
}

/// A crate of the workspace.
#[derive(Debug, Clone)]
pub(crate) struct Crate {
    /// Folder name: `kernels`, `xtask`.
    pub name: String,
    /// Folder from the repository's root, with `/`.
    pub folder: String,
    /// Its dependencies within the workspace.
    pub edges: Vec<Edge>,
}

/// The repository.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// Every file that is tracked, or untracked and not ignored.
    pub files: Vec<File>,
    /// The crates of the workspace.
    pub crates: Vec<Crate>,
    /// Root files of the crates' libraries and binaries (not of tests, examples and benches).
    pub crate_roots: Vec<File>,
}

impl Tree {
    /// Reads the repository that this program was built from.
    pub(crate) fn read() -> Result<Tree> {
        let root = root()?;
        let root = root.as_path();
        let files = list(root)?
            .into_iter()
            .filter_map(|path| {
                let bytes = std::fs::read(root.join(&path)).ok()?; // listed but deleted: nothing to check
                Some(File { path, text: String::from_utf8(bytes).unwrap_or_default() })
            })
            .collect::<Vec<_>>();
        let metadata = MetadataCommand::new().manifest_path(root.join("Cargo.toml")).no_deps().exec()?;
        let mut crates = Vec::new();
        let mut crate_roots = Vec::new();
        for package in &metadata.packages {
            let folder = package.manifest_path.parent().context("a manifest lies in a folder")?.as_std_path();
            let manifest = std::fs::read_to_string(&package.manifest_path)?;
            let edges = package.dependencies.iter().filter_map(|dependency| {
                let path = dependency.path.as_ref()?;
                let line = manifest.lines().position(|l| l.trim_start().starts_with(&dependency.name)).unwrap_or(0) + 1;
                let dev = dependency.kind == DependencyKind::Development;
                Some(Edge { to: path.file_name()?.to_owned(), dev, line })
            });
            let name = folder.file_name().and_then(|n| n.to_str()).context("a crate's folder has a name")?;
            crates.push(Crate { name: name.to_owned(), folder: relative(root, folder)?, edges: edges.collect() });
            for target in package.targets.iter().filter(|t| t.is_lib() || t.is_bin()) {
                let text = std::fs::read_to_string(&target.src_path)?;
                crate_roots.push(File { path: relative(root, target.src_path.as_std_path())?, text });
            }
        }
        Ok(Tree { files, crates, crate_roots })
    }

    /// The crate that a file belongs to.
    pub(crate) fn owner(&self, path: &str) -> Option<&str> {
        let owner = self.crates.iter().find(|c| path.strip_prefix(&c.folder).is_some_and(|rest| rest.starts_with('/')));
        owner.map(|c| c.name.as_str())
    }

    /// Whether a path from the root is a file, or a folder with files.
    pub(crate) fn exists(&self, path: &str) -> bool {
        path.is_empty()
            || self
                .files
                .iter()
                .any(|f| f.path.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
    }

    /// A file by its path from the root.
    pub(crate) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|f| f.path == path)
    }
}

/// The repository that this program was built from.
pub(crate) fn root() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    root.map(Path::to_path_buf).context("xtask lies in the repository's root")
}

/// Files that are tracked, or untracked and not ignored.
fn list(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("cannot run git")?;
    if !output.status.success() {
        bail!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let names = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    Ok(names.split('\0').filter(|n| !n.is_empty()).map(str::to_owned).collect())
}

/// A path from the root, with `/`.
fn relative(root: &Path, path: &Path) -> Result<String> {
    let rest: PathBuf =
        path.strip_prefix(root).with_context(|| format!("{} is outside the repository", path.display()))?.into();
    let parts: Option<Vec<&str>> = rest.iter().map(|p| p.to_str()).collect();
    Ok(parts.context("a path is not UTF-8")?.join("/"))
}
