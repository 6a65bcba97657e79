//! Rules on Rust files: their length, and where and how code may be unsafe.

use crate::finding::Finding;
use crate::rust_source::{Line, lines, occurrences};
use crate::tree::{Crate, File};

/// A file of more lines is too long: one noun a file.
const LONGEST_FILE: usize = 500;

/// The same in `kernels`, where one instruction set's kernels stand together.
const LONGEST_KERNEL_FILE: usize = 800;

/// Crates that are to stay thin, and the most lines of their `src`.
const THIN: &[(&str, usize)] = &[("cli", 5000)];

/// Columns of a line that holds only a comment.
pub(crate) const COMMENT_WIDTH: usize = 100;

/// The crates that may hold unsafe code. All others forbid it.
const MAY_BE_UNSAFE: &[&str] = &["kernels", "weights"];

/// Checks one Rust file of the crate `owner`.
pub(crate) fn check(file: &File, owner: Option<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = lines(&file.text);
    let length = file.text.lines().count();
    let longest = if owner == Some("kernels") { LONGEST_KERNEL_FILE } else { LONGEST_FILE };
    if length > longest {
        let what = format!("{length} lines; a file has at most {longest}");
        findings.push(Finding::new(&file.path, length, "file-length", what));
    }
    if file.path.contains("/src/") && !file.text.trim_start().starts_with("//!") {
        findings.push(Finding::new(&file.path, 1, "module-doc", "the file does not begin with `//!`: say what it is"));
    }
    findings.extend(wide_comments(file, &lines));
    let allowed = owner.is_some_and(|name| MAY_BE_UNSAFE.contains(&name));
    let mut scopes = Scopes::default();
    for (index, line) in lines.iter().enumerate() {
        for at in occurrences(&line.code, "unsafe") {
            let Some(kind) = kind(&lines, index, at) else { continue };
            if !allowed {
                let what = format!("{kind} outside {}", MAY_BE_UNSAFE.join(" and "));
                findings.push(Finding::new(&file.path, index + 1, "unsafe-place", what));
            } else if !(is_argued(&lines, index) || kind == "unsafe fn" && scopes.give_contract(&line.code[..at])) {
                let what = format!("{kind} without a `SAFETY:` comment or a `# Safety` section above it");
                findings.push(Finding::new(&file.path, index + 1, "safety-comment", what));
            }
        }
        scopes.read(&lines, index);
    }
    findings
}

/// Comments that stand alone on their lines and are wider than they may be; a line of one word (an
/// address) may be.
fn wide_comments(file: &File, lines: &[Line]) -> Vec<Finding> {
    let wide = file.text.lines().zip(lines).enumerate().filter(|(_, (text, line))| {
        line.code.trim().is_empty()
            && line.comment.starts_with("//")
            && text.chars().count() > COMMENT_WIDTH
            && line.comment.split_whitespace().count() > 2
            && !line.comment.trim_start_matches(['/', '!']).trim_start().starts_with('|')
    });
    wide.map(|(index, (text, _))| {
        let what = format!("{} columns; a comment has at most {COMMENT_WIDTH}", text.chars().count());
        Finding::new(&file.path, index + 1, "comment-width", what)
    })
    .collect()
}

/// Checks that a crate that is to stay thin does.
pub(crate) fn crate_length(krate: &Crate, files: &[File]) -> Vec<Finding> {
    let Some((_, most)) = THIN.iter().find(|(name, _)| *name == krate.name) else { return Vec::new() };
    let source = format!("{}/src/", krate.folder);
    let own = files.iter().filter(|f| f.path.starts_with(&source) && f.path.ends_with(".rs"));
    let length: usize = own.map(|f| f.text.lines().count()).sum();
    if length <= *most {
        return Vec::new();
    }
    let what = format!("{length} lines in src, at most {most}: what is not arguments or printing belongs to a library");
    vec![Finding::new(&format!("{}/Cargo.toml", krate.folder), 1, "crate-length", what)]
}

/// Checks that the root file of a crate that may hold no unsafe code forbids it.
pub(crate) fn forbids_unsafe(root: &File, owner: Option<&str>) -> Vec<Finding> {
    let forbids = lines(&root.text).iter().any(|l| l.code.replace(' ', "").contains("#![forbid(unsafe_code)]"));
    if forbids || owner.is_some_and(|name| MAY_BE_UNSAFE.contains(&name)) {
        return Vec::new();
    }
    vec![Finding::new(&root.path, 1, "forbid-unsafe", "`#![forbid(unsafe_code)]` is missing")]
}

/// What an `unsafe` at byte `at` of a line introduces; `None` where it is part of a type or an
/// attribute.
fn kind(lines: &[Line], index: usize, at: usize) -> Option<&'static str> {
    let here = &lines[index].code[at + "unsafe".len()..];
    let mut rest = here.trim_start();
    for line in &lines[index + 1..] {
        if !rest.is_empty() {
            break;
        }
        rest = line.code.trim_start();
    }
    match rest {
        r if r.starts_with('{') => Some("unsafe block"),
        r if r.starts_with("impl") => Some("unsafe impl"),
        r if r.starts_with("trait") => Some("unsafe trait"),
        // `unsafe fn(` and `unsafe extern "C" fn(` are types of pointers; a name follows in a
        // function.
        r if r.starts_with("fn") && !r["fn".len()..].trim_start().starts_with('(') => Some("unsafe fn"),
        r if r.starts_with("extern") && !r.contains("fn(") => Some("unsafe extern"),
        _ => None,
    }
}

/// Whether the comments above line `index` argue its safety: directly above, or above the statement
/// that the line is part of.
fn is_argued(lines: &[Line], index: usize) -> bool {
    if argues(&lines[index].comment) {
        return true;
    }
    for line in lines[..index].iter().rev() {
        if argues(&line.comment) {
            return true;
        }
        let code = line.code.trim();
        let attribute = code.starts_with("#[") || code.starts_with("#!");
        let is_comment = code.is_empty() && !line.comment.is_empty();
        let continues = !code.is_empty() && !code.ends_with([';', '{', '}', ',']);
        if !(attribute || is_comment || continues) {
            return false;
        }
    }
    false
}

/// The blocks that are open at a place in a file.
#[derive(Default)]
struct Scopes {
    open: Vec<bool>, // (block): whether it gives its functions their contract
    head: String,    // code since the last statement or block
    head_argued: bool,
}

impl Scopes {
    /// Reads on over line `index`.
    fn read(&mut self, lines: &[Line], index: usize) {
        for c in lines[index].code.chars() {
            match c {
                '{' => {
                    self.open.push(gives_contract(&self.head) || self.head_argued);
                    self.clear();
                }
                '}' => {
                    self.open.pop();
                    self.clear();
                }
                ';' => self.clear(),
                c => {
                    if self.head.is_empty() && !c.is_whitespace() && c != '#' {
                        self.head_argued = is_argued(lines, index);
                    }
                    if !(self.head.is_empty() && c.is_whitespace()) {
                        self.head.push(c);
                    }
                }
            }
        }
        if !self.head.is_empty() {
            self.head.push(' ');
        }
        if self.head.starts_with("#[") && self.head.trim_end().ends_with(']') {
            self.clear(); // an attribute; what it belongs to begins on the next line
        }
    }

    fn clear(&mut self) {
        self.head.clear();
        self.head_argued = false;
    }

    /// Whether an enclosing block states the contract of the functions within: a trait or impl with
    /// a safety comment of its own, or the implementation of a trait, whose functions keep to the
    /// trait's. `before`: the code before the place on its line.
    fn give_contract(&self, before: &str) -> bool {
        self.open.contains(&true) || before.contains('{') && gives_contract(before)
    }
}

/// Whether the head of a block is that of a trait's implementation.
fn gives_contract(head: &str) -> bool {
    occurrences(head, "impl").next().is_some_and(|at| occurrences(&head[at..], "for").next().is_some())
}

fn argues(comment: &str) -> bool {
    comment.contains("SAFETY:") || comment.contains("# Safety")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, owner: &str) -> Vec<String> {
        let file = File { path: "a.rs".to_owned(), text: text.to_owned() };
        check(&file, Some(owner)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_long_file_is_found_at_the_limit() {
        assert!(found(&"//!\n".repeat(500), "speculate").is_empty());
        assert_eq!(
            found(&"//!\n".repeat(501), "speculate"),
            ["a.rs:501: file-length: 501 lines; a file has at most 500"]
        );
        assert!(found(&"//!\n".repeat(800), "kernels").is_empty());
        assert_eq!(found(&"//!\n".repeat(801), "kernels").len(), 1);
    }

    #[test]
    fn unsafe_code_stays_in_its_crates() {
        let text = "fn f() {\n    // SAFETY: argued.\n    unsafe { g() }\n}\n";
        assert!(found(text, "kernels").is_empty());
        assert_eq!(found(text, "model"), ["a.rs:3: unsafe-place: unsafe block outside kernels and weights"]);
        assert!(found("#![forbid(unsafe_code)]\n// unsafe {}\nlet a = \"unsafe {}\";\n", "model").is_empty());
    }

    #[test]
    fn every_kind_of_unsafe_wants_its_argument() {
        for (text, kind) in [
            ("unsafe impl Send for X {}\n", "unsafe impl"),
            ("pub unsafe fn f() {}\n", "unsafe fn"),
            ("unsafe trait T {}\n", "unsafe trait"),
            ("let x = unsafe { f() };\n", "unsafe block"),
            ("let x = unsafe\n{ f() };\n", "unsafe block"),
            ("unsafe extern \"C\" {}\n", "unsafe extern"),
        ] {
            let what =
                format!("a.rs:1: safety-comment: {kind} without a `SAFETY:` comment or a `# Safety` section above it");
            assert_eq!(found(text, "kernels"), [what]);
            assert!(found(&format!("// SAFETY: it is fine.\n{text}"), "kernels").is_empty(), "{text}");
        }
    }

    #[test]
    fn an_argument_reaches_over_attributes_documentation_and_an_open_statement() {
        assert!(found("/// Adds.\n///\n/// # Safety\n/// `p` is valid.\n#[inline]\n#[target_feature(enable = \"avx2\")]\nunsafe fn f() {}\n", "kernels").is_empty());
        assert!(found("// SAFETY: in bounds.\nlet x: f32 =\n    unsafe { f() };\n", "kernels").is_empty());
    }

    #[test]
    fn an_argument_does_not_reach_past_a_statement_or_a_blank_line() {
        assert_eq!(found("// SAFETY: in bounds.\nunsafe { f() };\nunsafe { g() };\n", "kernels").len(), 1);
        assert_eq!(found("// SAFETY: in bounds.\n\nunsafe { f() };\n", "kernels").len(), 1);
    }

    #[test]
    fn a_module_says_what_it_is_and_its_comments_are_narrow() {
        let file = |text: String| File { path: "crates/a/src/b.rs".to_owned(), text };
        let rules = |text: String| check(&file(text), Some("a")).iter().map(|f| f.rule).collect::<Vec<_>>();
        assert_eq!(rules("fn f() {}\n".to_owned()), ["module-doc"]);
        assert_eq!(rules(format!("//! What it is.\n// {}\n", "word ".repeat(20))), ["comment-width"]);
        assert!(rules(format!("//! What it is.\n// {}\n", "word ".repeat(19))).is_empty());
        assert!(rules(format!("//! What it is.\n//! | {} |\n", "cell ".repeat(30))).is_empty(), "a table");
    }

    #[test]
    fn a_thin_crate_that_grows_is_found() {
        let krate = Crate { name: "cli".to_owned(), folder: "crates/cli".to_owned(), edges: Vec::new() };
        let file = |lines| File { path: "crates/cli/src/a.rs".to_owned(), text: "//\n".repeat(lines) };
        assert!(crate_length(&krate, &[file(2500), file(2500)]).is_empty());
        assert_eq!(crate_length(&krate, &[file(2500), file(2501)]).len(), 1);
    }

    #[test]
    fn functions_may_take_their_contract_from_the_block_around_them() {
        let contract = "/// # Safety\n/// The set is there.\n#[doc(hidden)]\ntrait T: Copy {\n    fn f();\n    unsafe fn g();\n}\n";
        assert!(found(contract, "kernels").is_empty());
        assert!(found("impl<A> T for B<A> {\n    fn f() {}\n    unsafe fn g() {}\n}\n", "kernels").is_empty());
        assert_eq!(found("trait T {\n    unsafe fn g();\n}\n", "kernels").len(), 1);
        assert_eq!(found("impl B {\n    unsafe fn g() {}\n}\n", "kernels").len(), 1);
        assert_eq!(found("impl T for B {}\nunsafe fn g() {}\n", "kernels").len(), 1, "the block has ended");
        let block = "impl T for B {\n    fn f() {\n        unsafe { g() }\n    }\n}\n";
        assert_eq!(found(block, "kernels").len(), 1, "a block argues for itself");
    }

    #[test]
    fn types_and_attributes_are_not_unsafe_code() {
        assert!(found("type F = unsafe fn(&[f32]);\nstruct S { f: unsafe extern \"C\" fn(i32) }\n#[unsafe(no_mangle)]\nfn g() {}\n", "kernels").is_empty());
    }

    #[test]
    fn a_crate_root_forbids_unsafe_code() {
        let root = |text: &str| File { path: "lib.rs".to_owned(), text: text.to_owned() };
        assert!(forbids_unsafe(&root("#![forbid(unsafe_code)]\n"), Some("spec")).is_empty());
        assert!(forbids_unsafe(&root(""), Some("kernels")).is_empty());
        let missing = forbids_unsafe(&root("// #![forbid(unsafe_code)]\n"), Some("spec"));
        assert_eq!(missing[0].to_string(), "lib.rs:1: forbid-unsafe: `#![forbid(unsafe_code)]` is missing");
    }
}
