//! Help pages. Run with `INSTA_UPDATE=always` after a deliberate change, and read the difference.

use super::support::ran;

fn page(args: &[&str]) -> String {
    let ran = ran(args);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{args:?}");
    ran.stdout
}

#[test]
fn the_overview() {
    insta::assert_snapshot!("help", page(&["--help"]));
    assert_eq!(page(&["help"]), page(&["--help"]));
}

#[test]
fn run_in_short_and_in_full() {
    insta::assert_snapshot!("help-run-short", page(&["run", "-h"]));
    insta::assert_snapshot!("help-run", page(&["run", "--help"]));
}

#[test]
fn every_other_subcommand() {
    for command in [
        "serve",
        "ab",
        "replay",
        "pull",
        "ls",
        "rm",
        "show",
        "verify",
        "bench",
        "bench serve",
        "bench table",
        "train",
        "train head",
        "train layer-skip",
        "tune",
        "doctor",
        "tokenize",
        "completions",
    ] {
        let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        insta::assert_snapshot!(format!("help-{}", command.replace(' ', "-")), page(&words));
    }
}

#[test]
fn the_version() {
    assert_eq!(page(&["--version"]), format!("selfspec {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn every_flag_has_a_variable() {
    // The pages do not list the variables, so that they stay readable: the rule does it.
    let page = page(&["--help"]);
    assert!(page.contains("SELFSPEC_DRAFT_LEN"), "{page}");
}

#[test]
fn completions_for_every_shell_name_the_subcommands() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = page(&["completions", shell]);
        for word in ["run", "rm", "verify", "bench", "exit-layer"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}
