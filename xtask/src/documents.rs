//! Rules on documents: what may lie in the root, links that lead somewhere, and an architecture
//! page that knows every crate.

use crate::finding::Finding;
use crate::sources::COMMENT_WIDTH;
use crate::tree::{File, Tree};

/// The documents of the root. Plans and reports belong to the issue tracker; pages for readers to
/// `docs/`.
const ROOT_DOCUMENTS: &[&str] = &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];

/// Beginnings of the names of files that say what somebody means to do.
const PLANS: &[&str] = &["notes", "plan", "progress", "roadmap", "status", "summary", "todo"];

/// Pages that tests hold to the program that makes them.
const GENERATED: &[&str] = &["docs/api.md", "docs/metrics.md"];

/// The page that names every crate.
const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// Checks what lies in the root.
pub(crate) fn root_files(files: &[File]) -> Vec<Finding> {
    let in_root = files.iter().filter(|f| !f.path.contains('/') && !ROOT_DOCUMENTS.contains(&f.path.as_str()));
    in_root
        .filter_map(|file| {
            let name = file.path.to_lowercase();
            let document = [".md", ".txt", ".rst", ".adoc"].iter().any(|end| name.ends_with(end));
            let plan = PLANS.iter().any(|p| name.starts_with(p));
            let what = format!(
                "the root's documents are {}; plans belong to issues, other pages to docs/",
                ROOT_DOCUMENTS.join(", ")
            );
            (document || plan).then(|| Finding::new(&file.path, 1, "root-files", what))
        })
        .collect()
}

/// Checks that the architecture page is there and names every crate.
pub(crate) fn architecture(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.file(ARCHITECTURE) else {
        return vec![Finding::new(ARCHITECTURE, 1, "architecture", "the page is missing")];
    };
    let unnamed = tree
        .crates
        .iter()
        .filter(|c| !page.text.contains(&format!("`{}`", c.name)) && !page.text.contains(&format!("`{}/`", c.folder)));
    unnamed.map(|c| Finding::new(ARCHITECTURE, 1, "architecture", format!("crate `{}` is not named", c.name))).collect()
}

/// Checks that the relative links of a Markdown file lead to a file or folder of the repository,
/// and to a heading where they name one.
pub(crate) fn links(file: &File, tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, target) in targets(&file.text) {
        let scheme =
            target.split_once(':').is_some_and(|(s, _)| s.chars().all(|c| c.is_ascii_alphanumeric() || c == '+'));
        if scheme || target.starts_with("//") {
            continue;
        }
        let (path, heading) = target.split_once('#').map_or((target.as_str(), None), |(p, h)| (p, Some(h)));
        let Some(resolved) = resolve(&file.path, path) else {
            findings.push(Finding::new(&file.path, line, "links", format!("`{target}` leads out of the repository")));
            continue;
        };
        if !tree.exists(&resolved) {
            findings.push(Finding::new(
                &file.path,
                line,
                "links",
                format!("`{target}` leads nowhere: there is no {resolved}"),
            ));
            continue;
        }
        let page = tree.file(&resolved).filter(|f| f.path.ends_with(".md"));
        if let (Some(heading), Some(page)) = (heading, page)
            && !headings(&page.text).contains(&heading.to_owned())
        {
            findings.push(Finding::new(
                &file.path,
                line,
                "links",
                format!("`{target}` leads nowhere: {resolved} has no heading #{heading}"),
            ));
        }
    }
    findings
}

/// Checks that the prose of a Markdown file is no wider than a comment. Tables, code and lines that
/// one long word makes wide are left alone.
pub(crate) fn width(file: &File) -> Vec<Finding> {
    if GENERATED.contains(&file.path.as_str()) {
        return Vec::new();
    }
    let wide = prose_lines(&file.text).filter(|(_, line)| {
        let columns = line.chars().count();
        let longest_word = line.split_whitespace().map(|word| word.chars().count()).max().unwrap_or(0);
        columns > COMMENT_WIDTH
            && longest_word < COMMENT_WIDTH - 20
            && !line.trim_start().starts_with('|')
            && !line.starts_with("    ") // indented code
    });
    wide.map(|(number, line)| {
        let what = format!("{} columns; prose has at most {COMMENT_WIDTH}", line.chars().count());
        Finding::new(&file.path, number, "prose-width", what)
    })
    .collect()
}

/// The lines of a Markdown text outside fenced code, with their numbers, counted from 1.
fn prose_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

/// Path from the root of a link in `file`; `None` when it climbs above the root.
fn resolve(file: &str, link: &str) -> Option<String> {
    if link.is_empty() {
        return Some(file.to_owned());
    }
    let mut parts: Vec<&str> = if link.starts_with('/') { Vec::new() } else { file.split('/').collect() };
    parts.pop(); // the file itself; the rest is its folder
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Targets of the links and images of a Markdown text with their lines, outside code.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, prose) in prose(text) {
        for (at, _) in prose.match_indices("](") {
            let rest = &prose[at + 2..];
            let end = rest.find(')').unwrap_or(rest.len());
            // `[a](target "title")`
            if let Some(target) = rest[..end].split_whitespace().next() {
                found.push((line, target.trim_matches(['<', '>']).to_owned()));
            }
        }
        // `[name]: target`
        if let Some((name, target)) = prose.split_once("]: ")
            && name.starts_with('[')
            && !name.starts_with("[^")
            && let Some(target) = target.split_whitespace().next()
        {
            found.push((line, target.to_owned()));
        }
    }
    found
}

/// Anchors of the headings of a Markdown text, as forges make them.
fn headings(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        if fenced || !line.starts_with('#') {
            continue;
        }
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let base: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let earlier = anchors
            .iter()
            .filter(|a| {
                **a == base
                    || a.strip_prefix(&base).is_some_and(|r| r.starts_with('-') && r[1..].parse::<u32>().is_ok())
            })
            .count();
        anchors.push(if earlier == 0 { base } else { format!("{base}-{earlier}") });
    }
    anchors
}

/// Lines of a Markdown text outside fenced blocks, with code spans blanked.
fn prose(text: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if fence || fenced {
            continue;
        }
        let spans = line.split('`').enumerate().map(|(i, part)| if i % 2 == 0 { part } else { "" });
        found.push((index + 1, spans.collect()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Crate;

    fn tree(files: &[(&str, &str)]) -> Tree {
        let files =
            files.iter().map(|(path, text)| File { path: (*path).to_owned(), text: (*text).to_owned() }).collect();
        Tree { files, ..Tree::default() }
    }

    fn broken(text: &str) -> Vec<String> {
        let tree = tree(&[
            ("docs/page.md", text),
            ("README.md", "# The Title, 2.0\n## Same\n## Same\n"),
            ("crates/model/src/lib.rs", ""),
        ]);
        links(&tree.files[0], &tree).iter().map(|f| f.what.clone()).collect()
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        let text = "# Here\n[a](../README.md) [b](../crates/model) ![c](page.md \"title\") [d](#here) [e](../README.md#the-title-20) \
                    [f](../README.md#same-1) [g](https://example.org/x) [h](mailto:a@b) [i](/README.md)\n[j]: ../README.md\n";
        assert_eq!(broken(text), Vec::<String>::new());
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        assert_eq!(broken("[a](gone.md)"), ["`gone.md` leads nowhere: there is no docs/gone.md"]);
        assert_eq!(broken("[a](../../x)"), ["`../../x` leads out of the repository"]);
        assert_eq!(broken("[a](../README.md#no)"), ["`../README.md#no` leads nowhere: README.md has no heading #no"]);
        assert_eq!(broken("[a](../crates/mod)"), ["`../crates/mod` leads nowhere: there is no crates/mod"]);
        assert_eq!(broken("[a]: gone.md"), ["`gone.md` leads nowhere: there is no docs/gone.md"]);
    }

    #[test]
    fn code_holds_no_links() {
        assert_eq!(broken("`[a](gone.md)`\n```\n[b](gone.md)\n# not a heading\n```\n"), Vec::<String>::new());
    }

    #[test]
    fn the_root_holds_its_documents_and_no_plans() {
        let tree = tree(&[
            ("README.md", ""),
            ("LICENSE-MIT", ""),
            ("Cargo.toml", ""),
            ("docs/plan.md", ""),
            ("NOTES", ""),
            ("design.md", ""),
        ]);
        let found: Vec<String> = root_files(&tree.files).into_iter().map(|f| f.path).collect();
        assert_eq!(found, ["NOTES", "design.md"]);
    }

    #[test]
    fn wide_prose_is_found_and_tables_code_and_addresses_are_not() {
        let file = |text: String| File { path: "a.md".to_owned(), text };
        let long = "word ".repeat(21);
        assert_eq!(width(&file(format!("short\n{long}\n"))).len(), 1);
        assert!(width(&file(format!("| {long} |\n```\n{long}\n```\n"))).is_empty());
        assert!(width(&file(format!("see [it](https://example.org/{})\n", "a".repeat(90)))).is_empty());
    }

    #[test]
    fn the_architecture_names_every_crate() {
        let named = |name: &str| Crate { name: name.to_owned(), folder: format!("crates/{name}"), edges: Vec::new() };
        let mut tree = tree(&[("ARCHITECTURE.md", "| `kernels` | arithmetic |\n")]);
        tree.crates = vec![named("kernels"), named("spec")];
        let found: Vec<String> = architecture(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["ARCHITECTURE.md:1: architecture: crate `spec` is not named"]);
        tree.files.clear();
        assert_eq!(architecture(&tree)[0].what, "the page is missing");
    }
}
