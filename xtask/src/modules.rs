//! Circles between the modules of a crate.
//!
//! A file depends on the file that defines what it names by a `crate::`, `super::` or `self::`
//! path. Files must not depend on one another in a circle, and neither must the folders of one
//! level. Paths are followed through re-exports (`pub use`), which are no dependency themselves: a
//! `mod.rs` that only declares and re-exports its children is never part of a circle. Test code is
//! left out.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::Finding;
use crate::rust_source::{is_word, lines};
use crate::tree::{Crate, File};

/// A module's path from the root of its crate: `["matmul", "tile"]`.
type ModulePath = Vec<String>;

/// A source file as a module.
#[derive(Debug)]
struct Module {
    path: String,
    name: ModulePath,
    imports: Vec<Import>,
}

/// A path that a file names.
#[derive(Debug, Clone)]
struct Import {
    /// From the root of the crate, the named item last; `*` for all items of a module.
    target: ModulePath,
    /// The name under which a `pub use` hands it on.
    reexported_as: Option<String>,
    line: usize,
}

/// Finds the circles in a crate.
pub(crate) fn circles(krate: &Crate, files: &[File]) -> Vec<Finding> {
    let modules = read(krate, files);
    let by_name: BTreeMap<&[String], usize> = modules.iter().enumerate().map(|(i, m)| (&m.name[..], i)).collect();
    let mut edges: BTreeMap<(usize, usize), usize> = BTreeMap::new(); // (from, to): line
    for (from, module) in modules.iter().enumerate() {
        for import in module.imports.iter().filter(|import| import.reexported_as.is_none()) {
            for to in resolve(&import.target, &modules, &by_name, 0) {
                if to != from {
                    edges.entry((from, to)).or_insert(import.line);
                }
            }
        }
    }
    let mut findings = between(&modules, &edges, |i| modules[i].path.clone(), "files");
    let folders: BTreeSet<&[String]> = modules.iter().flat_map(|m| (0..m.name.len()).map(|n| &m.name[..n])).collect();
    for folder in folders {
        // The children of one folder, each with all that lies below it.
        let child = |i: usize| {
            let name = &modules[i].name;
            (name.len() > folder.len() && name.starts_with(folder)).then(|| name[folder.len()].clone())
        };
        let mut between_children: BTreeMap<(String, String), (usize, usize)> = BTreeMap::new();
        for ((from, to), line) in &edges {
            if let (Some(a), Some(b)) = (child(*from), child(*to))
                && a != b
            {
                between_children.entry((a, b)).or_insert((*from, *line));
            }
        }
        let names: Vec<&String> =
            between_children.keys().map(|(a, _)| a).collect::<BTreeSet<_>>().into_iter().collect();
        let index = |name: &String| names.iter().position(|n| *n == name);
        let graph: Vec<(usize, usize)> =
            between_children.keys().filter_map(|(a, b)| Some((index(a)?, index(b)?))).collect();
        for component in components(names.len(), &graph).into_iter().filter(|c| c.len() > 1) {
            let members: Vec<&str> = component.iter().map(|i| names[*i].as_str()).collect();
            let place = between_children
                .iter()
                .find(|((a, b), _)| members.contains(&a.as_str()) && members.contains(&b.as_str()));
            let Some((_, (file, line))) = place else { continue };
            let what = format!("modules depend on one another in a circle: {}", members.join(", "));
            // Circles of single files are told above, file by file.
            let told = findings.iter().any(|f: &Finding| members.iter().all(|m| f.what.contains(&format!("/{m}.rs"))));
            if !told {
                findings.push(Finding::new(&modules[*file].path, *line, "module-circle", what));
            }
        }
    }
    findings
}

fn between(
    modules: &[Module],
    edges: &BTreeMap<(usize, usize), usize>,
    name: impl Fn(usize) -> String,
    kind: &str,
) -> Vec<Finding> {
    let graph: Vec<(usize, usize)> = edges.keys().copied().collect();
    let circles = components(modules.len(), &graph).into_iter().filter(|c| c.len() > 1);
    circles
        .map(|component| {
            let inside: Vec<String> = edges
                .iter()
                .filter(|((a, b), _)| component.contains(a) && component.contains(b))
                .map(|((a, b), line)| format!("{}:{line} -> {}", name(*a), name(*b)))
                .collect();
            let what = format!("{} {kind} depend on one another in a circle: {}", component.len(), inside.join("; "));
            Finding::new(&name(component[0]), 1, "module-circle", what)
        })
        .collect()
}

/// The modules of a crate's library or program, without test modules.
fn read(krate: &Crate, files: &[File]) -> Vec<Module> {
    let source = format!("{}/src/", krate.folder);
    let mut found = Vec::new();
    let mut tests: Vec<ModulePath> = Vec::new();
    for file in files {
        let Some(inner) = file.path.strip_prefix(&source).and_then(|p| p.strip_suffix(".rs")) else { continue };
        let mut name: ModulePath = inner.split('/').map(str::to_owned).collect();
        if name.last().is_some_and(|last| last == "mod") || name == ["lib"] || name == ["main"] {
            name.pop();
        }
        let code = code_without_tests(&file.text, &name, &mut tests);
        found.push((file.path.clone(), name, code));
    }
    let names: BTreeSet<ModulePath> = found.iter().map(|(_, name, _)| name.clone()).collect();
    found
        .into_iter()
        .filter(|(_, name, _)| !tests.iter().any(|t| name.starts_with(t)))
        .map(|(path, name, code)| Module { imports: imports(&code, &name, &names), path, name })
        .collect()
}

/// The code of a file line by line, without its `#[cfg(test)]` modules; such modules in files of
/// their own are added to `tests`.
fn code_without_tests(text: &str, module: &[String], tests: &mut Vec<ModulePath>) -> Vec<String> {
    let mut code: Vec<String> = Vec::new();
    let (mut after_cfg_test, mut depth) = (false, 0usize);
    for line in lines(text) {
        let trimmed = line.code.trim();
        if depth > 0 {
            depth = (depth + trimmed.matches('{').count()).saturating_sub(trimmed.matches('}').count());
            code.push(String::new());
            continue;
        }
        if trimmed.contains("#[cfg(test)]") {
            after_cfg_test = true;
            code.push(String::new());
            continue;
        }
        if after_cfg_test && !trimmed.is_empty() && !trimmed.starts_with("#[") {
            after_cfg_test = false;
            if let Some(name) = trimmed.split("mod ").nth(1).and_then(|rest| rest.strip_suffix(';')) {
                tests.push(module.iter().cloned().chain([name.trim().to_owned()]).collect());
            }
            depth = trimmed.matches('{').count().saturating_sub(trimmed.matches('}').count());
            code.push(String::new());
            continue;
        }
        code.push(line.code);
    }
    code
}

/// The modules in which the named item may be defined: the longest path that is a module, through
/// re-exports.
fn resolve(target: &[String], modules: &[Module], by_name: &BTreeMap<&[String], usize>, depth: usize) -> Vec<usize> {
    let Some(known) = (0..=target.len()).rev().find(|n| by_name.contains_key(&target[..*n])) else { return Vec::new() };
    let module = by_name[&target[..known]];
    let Some(item) = target.get(known).filter(|_| depth < 8) else { return vec![module] };
    let handed_on = |import: &&Import| match import.reexported_as.as_deref() {
        Some("*") | None => false,
        Some(name) => item == "*" || name == item,
    };
    let through: Vec<usize> = modules[module]
        .imports
        .iter()
        .filter(handed_on)
        .flat_map(|import| {
            let rest = target[known + 1..].iter().cloned();
            let target: ModulePath = import.target.iter().cloned().chain(rest).collect();
            resolve(&target, modules, by_name, depth + 1)
        })
        .collect();
    if through.is_empty() { vec![module] } else { through }
}

/// Every path of the crate that the code of `module` names.
fn imports(code: &[String], module: &[String], names: &BTreeSet<ModulePath>) -> Vec<Import> {
    let tokens = tokens(code);
    let mut found = Vec::new();
    let mut at = 0;
    let mut head: Option<(bool, bool)> = None; // in a `use`: whether it is public
    while at < tokens.len() {
        let (token, line) = (tokens[at].0.as_str(), tokens[at].1);
        match token {
            "use" => {
                let public =
                    tokens[..at].iter().rev().take_while(|(t, _)| !matches!(t.as_str(), ";" | "}" | "{" | "]"));
                head = Some((true, public.into_iter().any(|(t, _)| t == "pub")));
                at += 1;
                // `use child::Name;` names a module that the file itself declares.
                let child = tokens.get(at).is_some_and(|(t, _)| {
                    names.contains(&module.iter().cloned().chain([t.clone()]).collect::<ModulePath>())
                });
                if child {
                    at = tree(&tokens, at, module.to_vec(), head, line, &mut found);
                }
                continue;
            }
            ";" => head = None,
            "crate" | "super" | "self" if tokens.get(at + 1).is_some_and(|(t, _)| t == "::") => {
                let mut base = if token == "crate" { Vec::new() } else { module.to_vec() };
                let mut next = at;
                while let Some((step, _)) =
                    tokens.get(next).filter(|(t, _)| matches!(t.as_str(), "crate" | "super" | "self"))
                {
                    if step == "super" {
                        base.pop();
                    }
                    next += 2;
                }
                at = tree(&tokens, next, base, head, line, &mut found);
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// Reads the rest of a path, or a tree of them in braces, that begins at `at` below `base`; the
/// place after it.
fn tree(
    tokens: &[(String, usize)],
    mut at: usize,
    mut base: ModulePath,
    head: Option<(bool, bool)>,
    line: usize,
    found: &mut Vec<Import>,
) -> usize {
    loop {
        match tokens.get(at).map(|(t, _)| t.as_str()) {
            Some("{") if head.is_some() => {
                at += 1;
                while let Some((token, _)) = tokens.get(at) {
                    match token.as_str() {
                        "}" => return at + 1,
                        "," => at += 1,
                        _ => at = tree(tokens, at, base.clone(), head, line, found),
                    }
                }
                return at;
            }
            Some("self") if head.is_some() => at += 1,
            Some(name) if name == "*" || name.chars().all(is_word) => {
                base.push(name.to_owned());
                at += 1;
            }
            _ => return at,
        }
        if tokens.get(at).is_some_and(|(t, _)| t == "::") {
            at += 1;
            continue;
        }
        let mut name = base.last().cloned();
        if head.is_some() && tokens.get(at).is_some_and(|(t, _)| t == "as") {
            name = tokens.get(at + 1).map(|(t, _)| t.clone());
            at += 2;
        }
        let public = head.is_some_and(|(_, public)| public);
        found.push(Import { target: base, reexported_as: name.filter(|_| public), line });
        return at;
    }
}

/// Words, `::` and single signs, each with its line.
fn tokens(code: &[String]) -> Vec<(String, usize)> {
    let mut found: Vec<(String, usize)> = Vec::new();
    for (index, line) in code.iter().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let length = if is_word(first) {
                rest.find(|c| !is_word(c)).unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            found.push((rest[..length].to_owned(), index + 1));
            rest = rest[length..].trim_start();
        }
    }
    found
}

/// The strongly connected components of a graph of `n` nodes.
fn components(n: usize, edges: &[(usize, usize)]) -> Vec<Vec<usize>> {
    let reach = |start: usize, forward: bool| {
        let (mut seen, mut left) = (vec![false; n], vec![start]);
        while let Some(node) = left.pop() {
            for (a, b) in edges {
                let (from, to) = if forward { (*a, *b) } else { (*b, *a) };
                if from == node && !seen[to] {
                    seen[to] = true;
                    left.push(to);
                }
            }
        }
        seen
    };
    let mut taken = vec![false; n];
    let mut found = Vec::new();
    for node in 0..n {
        if taken[node] {
            continue;
        }
        let (to, from) = (reach(node, true), reach(node, false));
        let component: Vec<usize> = (0..n).filter(|i| *i == node || to[*i] && from[*i]).collect();
        component.iter().for_each(|i| taken[*i] = true);
        found.push(component);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let krate = Crate { name: "a".to_owned(), folder: "crates/a".to_owned(), edges: Vec::new() };
        let files: Vec<File> = files
            .iter()
            .map(|(path, text)| File { path: format!("crates/a/src/{path}"), text: (*text).to_owned() })
            .collect();
        circles(&krate, &files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn files_that_use_one_another_are_found_with_the_lines() {
        let root = ("lib.rs", "mod b;\nmod c;\npub use b::B;\npub use c::C;\n");
        assert!(found(&[root, ("b.rs", "pub struct B;"), ("c.rs", "use crate::b::B;")]).is_empty());
        let circle = found(&[root, ("b.rs", "\nuse crate::c::{C, other};"), ("c.rs", "fn f() { crate::b::f() }")]);
        assert_eq!(circle.len(), 1);
        assert!(circle[0].contains("b.rs:2 -> crates/a/src/c.rs"), "{circle:?}");
    }

    #[test]
    fn a_circle_through_a_reexport_is_found() {
        let root = ("lib.rs", "mod b;\nmod c;\npub use b::B;\npub use c::C;\n");
        let circle = found(&[root, ("b.rs", "use crate::C;"), ("c.rs", "use crate::B;")]);
        assert_eq!(circle.len(), 1, "{circle:?}");
    }

    #[test]
    fn a_parent_that_defines_what_its_children_use_and_uses_them_is_a_circle() {
        let parent = ("b/mod.rs", "mod c;\nuse c::C;\npub struct B(C);");
        assert_eq!(found(&[("lib.rs", "mod b;"), parent, ("b/c.rs", "use super::B;")]).len(), 1);
        let facade = ("b/mod.rs", "mod c;\npub use c::C;\npub struct B;");
        assert!(found(&[("lib.rs", "mod b;"), facade, ("b/c.rs", "use super::B;")]).is_empty());
    }

    #[test]
    fn folders_in_a_circle_are_found_although_no_two_files_are() {
        let files = [
            ("lib.rs", "mod b;\nmod c;"),
            ("b/mod.rs", "mod x;\nmod y;"),
            ("b/x.rs", "use crate::c::z::Z;"),
            ("b/y.rs", "pub struct Y;"),
            ("c/mod.rs", "pub mod z;\nmod w;"),
            ("c/z.rs", "pub struct Z;"),
            ("c/w.rs", "use crate::b::y::Y;"),
        ];
        let circle = found(&files);
        assert_eq!(circle.len(), 1, "{circle:?}");
        assert!(circle[0].contains("in a circle: b, c"), "{circle:?}");
    }

    #[test]
    fn test_code_and_comments_are_left_out() {
        let root = ("lib.rs", "mod b;\n#[cfg(test)]\nmod t;\nmod c;");
        let b = ("b.rs", "// crate::c::C\n#[cfg(test)]\nmod tests {\n    use crate::c::C;\n}\n");
        assert!(found(&[root, b, ("c.rs", "use crate::b::B;"), ("t.rs", "use crate::c::C;")]).is_empty());
    }
}
