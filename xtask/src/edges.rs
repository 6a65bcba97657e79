//! Which crate may know which.

use crate::finding::Finding;
use crate::tree::Crate;

/// The direct dependencies within the workspace that a crate may have. A crate that is not listed
/// is a finding: a new crate is added here and to ARCHITECTURE.md in the same commit.
const ALLOWED: &[(&str, &[&str])] = &[
    ("kernels", &[]),
    ("weights", &[]),
    ("text", &[]),
    ("hub", &[]),
    ("model", &["kernels", "weights"]),
    ("speculate", &["model"]),
    ("train", &["model", "kernels", "weights"]),
    ("engine", &["speculate", "model", "weights", "text", "kernels"]),
    ("selfspec", &["engine", "hub", "speculate", "model", "text", "kernels"]),
    ("lab", &["selfspec", "hub", "engine", "train", "speculate", "model", "text", "kernels"]),
    ("server", &["selfspec", "engine", "speculate", "model", "text"]),
    ("cli", &["selfspec", "lab", "engine", "speculate", "text", "hub", "train", "server"]),
    ("testkit", &["model", "weights"]),
    ("xtask", &[]),
];

/// Everyone's tests may use it; nothing that is shipped may.
const DEV_ONLY: &str = "testkit";

/// Names under which unrelated things collect.
const DRAWERS: &[&str] = &["common", "helpers", "misc", "shared", "util", "utils"];

/// Checks the edges and the names of the crates.
pub(crate) fn check(crates: &[Crate]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for krate in crates {
        let manifest = format!("{}/Cargo.toml", krate.folder);
        if DRAWERS.contains(&krate.name.as_str()) {
            findings.push(Finding::new(
                &manifest,
                1,
                "crate-name",
                format!("a crate named `{}` collects unrelated things; name it after the one thing it is", krate.name),
            ));
        }
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == krate.name) else {
            findings.push(Finding::new(
                &manifest,
                1,
                "edges",
                format!("crate `{}` is not in the table of allowed edges (xtask/src/edges.rs)", krate.name),
            ));
            continue;
        };
        for edge in &krate.edges {
            let (from, to) = (&krate.name, &edge.to);
            if to == DEV_ONLY && !edge.dev {
                findings.push(Finding::new(
                    &manifest,
                    edge.line,
                    "edges",
                    format!("`{from}` ships `{to}`, which is for tests: make it a dev-dependency"),
                ));
            } else if to != DEV_ONLY && !allowed.contains(&to.as_str()) {
                let may = if allowed.is_empty() {
                    "no other crate".to_owned()
                } else {
                    format!("only {}", allowed.join(", "))
                };
                findings.push(Finding::new(
                    &manifest,
                    edge.line,
                    "edges",
                    format!("`{from}` depends on `{to}`; it may know {may}"),
                ));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Edge;

    fn krate(name: &str, edges: &[(&str, bool)]) -> Crate {
        let edges = edges.iter().map(|(to, dev)| Edge { to: (*to).to_owned(), dev: *dev, line: 7 }).collect();
        Crate { name: name.to_owned(), folder: format!("crates/{name}"), edges }
    }

    fn messages(crates: &[Crate]) -> Vec<String> {
        check(crates).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_edges_of_the_design_pass() {
        let crates = [
            krate("kernels", &[]),
            krate("model", &[("kernels", false), ("weights", false), ("testkit", true)]),
            krate("cli", &[("engine", false), ("hub", false), ("testkit", true)]),
        ];
        assert_eq!(messages(&crates), Vec::<String>::new());
    }

    #[test]
    fn an_edge_against_the_design_is_found_in_either_kind_of_dependency() {
        let crates = [krate("speculate", &[("text", false)]), krate("kernels", &[("model", true)])];
        assert_eq!(
            messages(&crates),
            [
                "crates/speculate/Cargo.toml:7: edges: `speculate` depends on `text`; it may know only model",
                "crates/kernels/Cargo.toml:7: edges: `kernels` depends on `model`; it may know no other crate",
            ]
        );
    }

    #[test]
    fn testkit_must_not_be_shipped() {
        let found = messages(&[krate("engine", &[("testkit", false)])]);
        assert_eq!(
            found,
            [
                "crates/engine/Cargo.toml:7: edges: `engine` ships `testkit`, which is for tests: make it a dev-dependency"
            ]
        );
    }

    #[test]
    fn unknown_crates_and_drawers_are_found() {
        let found = messages(&[krate("utils", &[])]);
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("crate-name"), "{found:?}");
        assert!(found[1].contains("not in the table"), "{found:?}");
    }
}
