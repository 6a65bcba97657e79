//! GGUF models in several files.

use std::fs;
use std::path::PathBuf;

use selfspec_testkit::{Family, GgufBuilder, TinyModel};
use selfspec_weights::{Checkpoint, Source};
use tempfile::TempDir;

fn model() -> GgufBuilder {
    TinyModel::new(Family::Llama).gguf()
}

fn sharded(count: usize) -> (TempDir, Vec<PathBuf>) {
    let dir = tempfile::tempdir().expect("a folder");
    let paths = model().write_shards(dir.path(), "tiny-llama", count);
    (dir, paths)
}

fn fault(path: &std::path::Path) -> String {
    let e = Checkpoint::open(path).expect_err("the shards are wrong").to_string();
    assert!(!e.contains('\n') && !e.ends_with('.'), "{e}");
    e
}

#[test]
fn any_shard_opens_all_of_them() {
    for count in [2, 3, 5] {
        let (_dir, paths) = sharded(count);
        for path in &paths {
            let c = Checkpoint::open(path).expect("valid");
            assert_eq!(c.files().collect::<Vec<_>>(), paths);
            assert_eq!(c.tensors().len(), model().tensors.len());
            for t in &model().tensors {
                assert_eq!(c.need_tensor(&t.name).expect("there").bytes, t.data, "{}", t.name);
            }
            let Source::Gguf(metadata) = c.source() else { panic!("a GGUF file has metadata") };
            assert_eq!(metadata.need_str("general.architecture").expect("of the first shard"), "llama");
            let sizes: u64 = paths.iter().map(|p| fs::metadata(p).expect("there").len()).sum();
            assert_eq!(c.size_bytes(), sizes);
        }
    }
}

#[test]
fn a_first_shard_may_hold_only_metadata() {
    let dir = tempfile::tempdir().expect("a folder");
    let [mut first, mut second]: [GgufBuilder; 2] = model().shards(2).try_into().expect("two");
    let mut tensors = std::mem::take(&mut first.tensors);
    tensors.append(&mut second.tensors);
    second.tensors = tensors;
    first.write(&dir.path().join("m-00001-of-00002.gguf"));
    second.write(&dir.path().join("m-00002-of-00002.gguf"));
    let c = Checkpoint::open(&dir.path().join("m-00001-of-00002.gguf")).expect("valid");
    assert_eq!(c.tensors().len(), model().tensors.len());
}

#[test]
fn a_missing_shard_is_named() {
    for gone in 0..3 {
        let (_dir, paths) = sharded(3);
        fs::remove_file(&paths[gone]).expect("removed");
        let e = fault(&paths[(gone + 1) % 3]);
        assert_eq!(e, format!("{}: missing: shard {} of 3", paths[gone].display(), gone + 1));
    }
}

#[test]
fn a_renamed_shard_says_what_it_should_be_called() {
    let (dir, paths) = sharded(2);
    for name in ["x.gguf", "tiny-llama-00002-of-00002x.gguf", "tiny-llama-00001-of-00003.gguf"] {
        let path = dir.path().join(name);
        fs::copy(&paths[0], &path).expect("copied");
        let e = fault(&path);
        assert!(e.contains("split.no at byte ") && e.contains("must end in -00001-of-00002.gguf"), "{e}");
    }
    // The second shard in the place of the first.
    fs::copy(&paths[1], &paths[0]).expect("copied");
    let e = fault(&paths[0]);
    assert!(e.contains("must end in -00002-of-00002.gguf"), "{e}");
}

#[test]
fn shards_of_different_models_do_not_mix() {
    let (dir, paths) = sharded(3);
    let path = |i: usize| dir.path().join(format!("tiny-llama-{i:05}-of-00003.gguf"));
    // Another number of shards.
    model().shards(3)[1].clone().metadata("split.count", 4u16).write(&path(2));
    let e = fault(&paths[0]);
    assert!(e.contains("split.count at byte ") && e.contains("the shards disagree: expected 3, got 4"), "{e}");
    // No split at all.
    model().shards(3)[1].clone().remove("split.count").write(&path(2));
    let e = fault(&paths[0]);
    assert!(e.contains("split.count at byte ") && e.contains("the metadata lacks this key"), "{e}");
    // A shard twice, under two names.
    fs::copy(path(3), path(2)).expect("copied");
    let e = fault(&paths[0]);
    assert!(e.contains("split.no at byte ") && e.contains("the shards disagree: expected 1, got 2"), "{e}");
    // A tensor in two shards.
    let all = model().tensors.len();
    let mut twice = model().shards(3)[1].clone();
    twice.tensors.push(model().tensors[0].clone());
    twice.write(&path(2));
    assert!(fault(&paths[0]).contains(&format!("the shards disagree: expected {all}, got {}", all + 1)));
    model().shards(3)[0].clone().metadata("split.tensors.count", all as i32 + 1).write(&path(1));
    let e = fault(&paths[0]);
    assert!(e.contains("tensor token_embd.weight at byte ") && e.contains("the tensor occurs twice"), "{e}");
    // A tensor too few.
    model().shards(3)[0].write(&path(1));
    let mut fewer = model().shards(3)[1].clone();
    fewer.tensors.pop();
    fewer.write(&path(2));
    let e = fault(&paths[0]);
    assert!(e.contains("split.tensors.count at byte "), "{e}");
    assert!(e.contains(&format!("the shards disagree: expected {all}, got {}", all - 1)), "{e}");
}

#[test]
fn a_split_count_of_millions_names_the_first_missing_shard() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("m-00001-of-4294967296.gguf");
    model().metadata("split.no", 0u64).metadata("split.count", 1u64 << 32).write(&path);
    let e = fault(&path);
    assert!(e.contains("m-00002-of-4294967296.gguf: missing: shard 2 of 4294967296"), "{e}");
    let e = {
        model().metadata("split.no", u64::MAX).metadata("split.count", u64::MAX).write(&path);
        fault(&path)
    };
    assert!(e.contains("must end in"), "{e}");
}

#[test]
fn paths_that_are_no_regular_file_are_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let e = fault(&dir.path().join("nothing.gguf"));
    assert!(e.contains("nothing.gguf: cannot open: "), "{e}");
    fs::write(dir.path().join("empty.gguf"), "").expect("written");
    assert!(fault(&dir.path().join("empty.gguf")).contains("the file is empty"));
    #[cfg(unix)]
    assert!(fault(std::path::Path::new("/dev/null")).contains("/dev/null: not a regular file"));
}

#[test]
fn released_tensors_read_the_same_again() {
    let (_dir, paths) = sharded(2);
    let c = Checkpoint::open(&paths[0]).expect("valid");
    for t in &model().tensors {
        let tensor = c.need_tensor(&t.name).expect("there");
        assert_eq!(tensor.bytes, t.data);
        c.release(&t.name);
        assert_eq!(tensor.bytes, t.data);
    }
    c.release("nothing");
}
