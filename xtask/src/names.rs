//! Rules on names: one public type, one name.

use std::collections::BTreeMap;

use crate::finding::Finding;
use crate::rust_source::lines;
use crate::tree::{Crate, File, Tree};

/// Most types of lower crates that a crate may hand on: those that stand in its own signatures, not
/// a surface.
const MOST_REEXPORTS: usize = 10;

/// Public types of the workspace that share a name, and types of one crate that do.
pub(crate) fn types(tree: &Tree) -> Vec<Finding> {
    let mut public: BTreeMap<String, Vec<(String, usize)>> = BTreeMap::new();
    let mut findings = Vec::new();
    for krate in tree.crates.iter().filter(|c| c.folder.starts_with("crates/")) {
        let mut own: BTreeMap<String, Vec<(String, usize)>> = BTreeMap::new();
        let source = format!("{}/src/", krate.folder);
        for file in tree.files.iter().filter(|f| f.path.starts_with(&source) && f.path.ends_with(".rs")) {
            for (name, line, is_public) in defined(file) {
                let place = (file.path.clone(), line);
                own.entry(name.clone()).or_default().push(place.clone());
                if is_public {
                    public.entry(name).or_default().push(place);
                }
            }
        }
        findings.extend(shared(&own, &format!("crate `{}`", krate.name)));
    }
    findings.extend(shared(&public, "public types of the workspace"));
    findings
}

fn shared(types: &BTreeMap<String, Vec<(String, usize)>>, scope: &str) -> Vec<Finding> {
    let twice = types.iter().filter(|(_, places)| places.len() > 1);
    twice
        .map(|(name, places)| {
            let others: Vec<String> = places[1..].iter().map(|(path, line)| format!("{path}:{line}")).collect();
            let what = format!("{scope}: `{name}` is also the name of another type: {}", others.join(", "));
            Finding::new(&places[0].0, places[0].1, "type-name", what)
        })
        .collect()
}

/// The types that a file defines at its top level, their lines, and whether they are public.
fn defined(file: &File) -> Vec<(String, usize, bool)> {
    let mut found = Vec::new();
    let code_lines = lines(&file.text);
    for (index, line) in code_lines.iter().enumerate() {
        let code = line.code.as_str();
        if code.starts_with("mod tests") {
            break;
        }
        let (public, rest) = match code.strip_prefix("pub ") {
            Some(rest) => (true, rest),
            None => (false, code.strip_prefix("pub(crate) ").unwrap_or(code)),
        };
        let Some((kind, rest)) = rest.split_once(' ') else { continue };
        // Two definitions for two targets are one type.
        let for_a_target = index > 0 && code_lines[index - 1].code.starts_with("#[cfg(");
        if !for_a_target && matches!(kind, "struct" | "enum" | "trait" | "union") {
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            found.push((name, index + 1, public));
        }
    }
    found
}

/// Checks that a crate hands on no surface of another crate of the workspace.
pub(crate) fn reexports(krate: &Crate, files: &[File]) -> Vec<Finding> {
    let source = format!("{}/src/", krate.folder);
    let mut handed_on = Vec::new();
    for file in files.iter().filter(|f| f.path.starts_with(&source) && f.path.ends_with(".rs")) {
        let code: Vec<String> = lines(&file.text).into_iter().map(|l| l.code).collect();
        let text = code.join("\n");
        for (at, _) in text.match_indices("pub use selfspec") {
            let end = text[at..].find(';').map_or(text.len(), |n| at + n);
            let line = text[..at].matches('\n').count() + 1;
            let path = &text[at..end];
            let names = path.split_once('{').map_or(1, |(_, names)| {
                names.split(',').filter(|n| !n.trim_matches(['}', ' ', '\n']).is_empty()).count()
            });
            let names = if path.contains('*') { MOST_REEXPORTS + 1 } else { names };
            handed_on.push((file.path.clone(), line, names));
        }
    }
    let total: usize = handed_on.iter().map(|(_, _, n)| n).sum();
    match handed_on.first() {
        Some((path, line, _)) if total > MOST_REEXPORTS => {
            let what = format!(
                "{total} names of lower crates are handed on, at most {MOST_REEXPORTS} may be: callers depend on the crate that owns them"
            );
            vec![Finding::new(path, *line, "re-exports", what)]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        let krate = |name: &str| Crate { name: name.to_owned(), folder: format!("crates/{name}"), edges: Vec::new() };
        let file = |(path, text): &(&str, &str)| File { path: format!("crates/{path}"), text: (*text).to_owned() };
        Tree { files: files.iter().map(file).collect(), crates: vec![krate("a"), krate("b")], crate_roots: Vec::new() }
    }

    #[test]
    fn public_types_of_one_name_are_found_and_private_ones_of_two_crates_are_not() {
        let two =
            tree(&[("a/src/x.rs", "pub struct Part;\nstruct Own;"), ("b/src/y.rs", "pub enum Part {}\nstruct Own;")]);
        let found: Vec<String> = types(&two).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("`Part`") && found[0].contains("crates/b/src/y.rs:1"), "{found:?}");
        let one = tree(&[("a/src/x.rs", "struct Own;"), ("a/src/y.rs", "pub(crate) struct Own;")]);
        assert_eq!(types(&one).len(), 1);
        let tests = tree(&[("a/src/x.rs", "struct Own;\n#[cfg(test)]\nmod tests {\nstruct Own;\n}")]);
        assert!(types(&tests).is_empty());
    }

    #[test]
    fn a_surface_that_is_handed_on_is_found() {
        let few = tree(&[("a/src/lib.rs", "pub use selfspec_model::{A, B};")]);
        assert!(reexports(&few.crates[0], &few.files).is_empty());
        let all = tree(&[("a/src/lib.rs", "pub use selfspec_model::*;")]);
        assert_eq!(reexports(&all.crates[0], &all.files).len(), 1);
        let many =
            tree(&[("a/src/lib.rs", "pub use selfspec_model::{\n    A, B, C, D, E,\n    F, G, H, I, J, K,\n};")]);
        assert_eq!(reexports(&many.crates[0], &many.files).len(), 1);
    }
}
