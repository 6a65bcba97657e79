//! The Hugging Face hub, through a server on this machine that answers like it.
#![cfg(unix)]

use crate::support::server::{Faults, Server};
use crate::support::{Bench, Recorder, files_below, read};
use selfspec_hub::{HubError, HubOptions, ModelLayout, SilentFetch, list, remove, resolve, verify};

fn at(bench: &Bench, server: &Server) -> HubOptions {
    HubOptions { hf_endpoint: server.endpoint.clone(), ..bench.options() }
}

#[test]
fn a_fetched_file_is_found_in_the_shared_cache() {
    let bench = Bench::new();
    let server = Server::start("org/repo", &[("sub/model.gguf", b"GGUF content")], Faults::default());
    let options = at(&bench, &server);
    let path = resolve("hf:org/repo/sub/model.gguf", &options, &SilentFetch).expect("served");
    assert_eq!(read(&path), b"GGUF content");
    assert!(path.starts_with(bench.path("hf/models--org--repo/snapshots")), "{}", path.display());
    assert_eq!(verify("hf:org/repo/sub/model.gguf", &options, &SilentFetch).expect("unharmed"), 1);
    let before = server.log().len();
    assert_eq!(resolve("hf:org/repo/sub/model.gguf", &options, &SilentFetch).expect("cached"), path);
    assert_eq!(server.log().len(), before);
    // Another cache of this program, but the same shared one: nothing is fetched, even offline.
    let other = HubOptions { home: bench.path("other"), offline: true, ..options };
    assert_eq!(resolve("hf:org/repo/sub/model.gguf", &other, &SilentFetch).expect("in the shared cache"), path);
    assert!(files_below(&bench.path("other")).is_empty());
}

#[test]
fn without_a_file_the_only_gguf_is_chosen_or_all_are_listed() {
    let bench = Bench::new();
    let one = Server::start("org/one", &[("README.md", b"x"), ("m.gguf", b"GGUF")], Faults::default());
    let options = at(&bench, &one);
    let path = resolve("hf:org/one", &options, &SilentFetch).expect("one GGUF");
    assert!(path.ends_with("m.gguf"));
    let offline = HubOptions { offline: true, ..options };
    assert_eq!(resolve("hf:org/one", &offline, &SilentFetch).expect("cached"), path);

    let two = Server::start("org/two", &[("a.gguf", b"a"), ("b.gguf", b"b")], Faults::default());
    let error = resolve("hf:org/two", &at(&bench, &two), &SilentFetch).expect_err("two models");
    assert_eq!(error.to_string(), "hf:org/two has 2 models: hf:org/two/a.gguf, hf:org/two/b.gguf");
    let none = Server::start("org/none", &[("README.md", b"x")], Faults::default());
    assert!(matches!(resolve("hf:org/none", &at(&bench, &none), &SilentFetch), Err(HubError::NoModel { .. })));
}

#[test]
fn all_shards_of_a_gguf_are_fetched() {
    let bench = Bench::new();
    let files: [(&str, &[u8]); 2] = [("m-00001-of-00002.gguf", b"one"), ("m-00002-of-00002.gguf", b"two")];
    let server = Server::start("org/repo", &files, Faults::default());
    let path = resolve("hf:org/repo/m-00002-of-00002.gguf", &at(&bench, &server), &SilentFetch).expect("served");
    assert!(path.ends_with("m-00001-of-00002.gguf"));
    assert_eq!(read(&path.with_file_name("m-00002-of-00002.gguf")), b"two");
}

#[test]
fn a_safetensors_folder_is_fetched_with_config_tokenizer_and_every_shard() {
    let bench = Bench::new();
    let index = br#"{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}"#;
    let files: [(&str, &[u8]); 7] = [
        ("config.json", b"{}"),
        ("tokenizer.json", b"{}"),
        ("README.md", b"no part of the model"),
        ("pytorch_model.bin", b"no part either"),
        ("model.safetensors.index.json", index),
        ("model-1.safetensors", b"1"),
        ("model-2.safetensors", b"2"),
    ];
    let server = Server::start("org/repo", &files, Faults::default());
    let options = at(&bench, &server);
    let path = resolve("hf:org/repo", &options, &SilentFetch).expect("served");
    let mut names: Vec<_> = std::fs::read_dir(&path).expect("a folder").flatten().map(|e| e.file_name()).collect();
    names.sort();
    let expected =
        ["config.json", "model-1.safetensors", "model-2.safetensors", "model.safetensors.index.json", "tokenizer.json"];
    assert_eq!(names, expected);
    let models = list(&options).expect("a readable cache");
    assert_eq!((models[0].layout, models[0].complete), (ModelLayout::Folder, true));
    let offline = HubOptions { offline: true, home: bench.path("other"), ..options };
    assert_eq!(resolve("hf:org/repo", &offline, &SilentFetch).expect("in the shared cache"), path);
    std::fs::remove_file(path.join("model-2.safetensors")).expect("a shard");
    assert!(matches!(resolve("hf:org/repo", &offline, &SilentFetch), Err(HubError::Offline { .. })));
}

#[test]
fn removing_a_model_keeps_files_that_another_model_or_revision_uses() {
    let bench = Bench::new();
    let files: [(&str, &[u8]); 2] = [("a.gguf", b"GGUF a"), ("b.gguf", b"GGUF b")];
    let server = Server::start("org/repo", &files, Faults::default());
    let options = at(&bench, &server);
    let a = resolve("hf:org/repo/a.gguf", &options, &SilentFetch).expect("served");
    let b = resolve("hf:org/repo/b.gguf", &options, &SilentFetch).expect("served");
    let other = a.parent().and_then(|p| p.parent()).expect("snapshots").join("other");
    std::fs::create_dir(&other).expect("another revision");
    let blob = std::fs::canonicalize(&a).expect("a blob");
    std::os::unix::fs::symlink(&blob, other.join("a.gguf")).expect("a link");
    assert_eq!(remove("hf:org/repo/a.gguf", &options, &SilentFetch).expect("listed"), 0);
    assert!(!a.exists() && blob.exists() && b.exists());
    std::fs::remove_dir_all(&other).expect("another revision");

    let same = HubOptions { home: bench.path("home"), ..options.clone() };
    let manifests = std::fs::read_dir(same.home.join("manifests")).expect("a folder").flatten();
    let manifest = manifests.map(|e| e.path()).next().expect("one");
    let twin = read(&manifest);
    std::fs::write(same.home.join("manifests/twin.json"), twin).expect("the same under another key");
    assert_eq!(remove("hf:org/repo/b.gguf", &options, &SilentFetch).expect("listed"), 0);
    assert!(b.exists(), "another model uses it");
    let freed = remove("hf:org/repo/b.gguf", &options, &SilentFetch).expect("the twin");
    assert_eq!(freed, 6);
    assert!(!b.exists() && !b.parent().expect("its revision").exists());
    assert_eq!(list(&options).expect("a readable cache"), []);
    let left = files_below(&bench.path("hf"));
    assert!(left.iter().filter(|f| f.contains("/blobs/")).count() <= 2, "{left:?}");
}

#[test]
fn an_index_that_leads_out_of_the_folder_is_refused() {
    let bench = Bench::new();
    let files: [(&str, &[u8]); 2] =
        [("config.json", b"{}"), ("model.safetensors.index.json", br#"{"weight_map": {"a": "../x"}}"#)];
    let server = Server::start("org/repo", &files, Faults::default());
    let error = resolve("hf:org/repo", &at(&bench, &server), &SilentFetch).expect_err("a bad index");
    assert!(error.to_string().contains("not an index of safetensors"), "{error}");
}

#[test]
fn a_broken_transfer_continues_where_it_broke() {
    let bench = Bench::new();
    let content: Vec<u8> = (0..200_000u32).map(|i| (i * 7) as u8).collect();
    let faults = Faults { break_after: Some(120_000), ..Faults::default() };
    let server = Server::start("org/repo", &[("m.gguf", &content)], faults);
    let path = resolve("hf:org/repo/m.gguf", &at(&bench, &server), &SilentFetch).expect("served in two pieces");
    assert_eq!(read(&path), content);
    let log = server.log();
    assert!(log.len() == 2 && log[0].ends_with(" 0") && !log[1].ends_with(" 0"), "{log:?}");
}

#[test]
fn content_that_differs_from_the_etag_is_fetched_again_and_then_refused() {
    let bench = Bench::new();
    let once = Server::start("org/once", &[("m.gguf", b"GGUF content")], Faults { corrupt: 1, ..Faults::default() });
    let recorder = Recorder::default();
    let path = resolve("hf:org/once/m.gguf", &at(&bench, &once), &recorder).expect("right the second time");
    assert_eq!(read(&path), b"GGUF content");
    assert!(recorder.told().iter().any(|t| t.starts_with("Discarded")), "{:?}", recorder.told());

    let twice = Server::start("org/twice", &[("m.gguf", b"GGUF content")], Faults { corrupt: 9, ..Faults::default() });
    let options = at(&bench, &twice);
    assert!(matches!(resolve("hf:org/twice/m.gguf", &options, &SilentFetch), Err(HubError::Mismatch { .. })));
    let offline = HubOptions { offline: true, ..options };
    assert!(matches!(resolve("hf:org/twice/m.gguf", &offline, &SilentFetch), Err(HubError::Offline { .. })));
}

#[test]
fn a_token_is_sent_and_its_lack_has_a_hint() {
    let bench = Bench::new();
    let faults = Faults { token: Some("secret".to_owned()), ..Faults::default() };
    let server = Server::start("org/repo", &[("m.gguf", b"GGUF")], faults);
    let error = resolve("hf:org/repo/m.gguf", &at(&bench, &server), &SilentFetch).expect_err("no token");
    assert!(matches!(error, HubError::Http { status: Some(401), .. }), "{error}");
    assert!(error.hint().is_some_and(|h| h.contains("HF_TOKEN")));
    let options = HubOptions { hf_token: Some("secret".to_owned()), ..at(&bench, &server) };
    resolve("hf:org/repo/m.gguf", &options, &SilentFetch).expect("allowed");
}

#[test]
fn missing_files_and_repositories_are_named() {
    let bench = Bench::new();
    let server = Server::start("org/repo", &[("m.gguf", b"GGUF")], Faults::default());
    let error = resolve("hf:org/other", &at(&bench, &server), &SilentFetch).expect_err("no such repository");
    assert!(matches!(error, HubError::Http { status: Some(404), .. }), "{error}");
    let error =
        resolve("hf:org/repo/n.gguf", &at(&bench, &server), &SilentFetch).expect_err("no such file").to_string();
    assert!(error.ends_with("no file `n.gguf`; it has m.gguf"), "{error}");
}

#[test]
fn a_hub_that_does_not_answer_fails_within_the_time_limit() {
    let bench = Bench::new();
    let mute = Server::start("org/repo", &[], Faults { mute: true, ..Faults::default() });
    let options = HubOptions { connect_timeout: std::time::Duration::from_millis(300), ..at(&bench, &mute) };
    let error = resolve("hf:org/repo/m.gguf", &options, &SilentFetch).expect_err("no answer");
    assert!(matches!(error, HubError::Http { status: None, .. }), "{error}");
    // Nothing listens there at all.
    let error = resolve("hf:org/repo/m.gguf", &bench.options(), &SilentFetch).expect_err("no server");
    assert!(matches!(error, HubError::Http { status: None, .. }), "{error}");
}
