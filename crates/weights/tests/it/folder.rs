//! Hugging Face folders and their safetensors, right and wrong.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use selfspec_testkit::{Family, FolderBuilder, TinyModel};
use selfspec_weights::{Checkpoint, Source, TensorType, WeightsError};
use serde_json::json;
use tempfile::TempDir;

/// A safetensors file of this header and so many bytes of data.
fn file(header: &str, data: usize) -> Vec<u8> {
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(header.as_bytes());
    out.resize(out.len() + data, 0);
    out
}

fn open(bytes: Vec<u8>) -> Result<Checkpoint, WeightsError> {
    Checkpoint::from_safetensors_bytes(Path::new("dir/model.safetensors"), bytes, b"{}")
}

fn fault(bytes: Vec<u8>) -> String {
    one_line(open(bytes).expect_err("the file is wrong"), "dir/model.safetensors: ")
}

fn one_line(e: WeightsError, start: &str) -> String {
    let e = e.to_string();
    assert!(e.starts_with(start) && e.contains(" at byte "), "{e}");
    assert!(!e.contains('\n') && !e.ends_with('.'), "{e}");
    e
}

fn tiny() -> FolderBuilder {
    TinyModel::new(Family::Llama).folder()
}

fn folder(write: impl FnOnce(&Path)) -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    write(dir.path());
    dir
}

fn folder_fault(dir: &TempDir) -> String {
    let e = Checkpoint::open(dir.path()).expect_err("the folder is wrong").to_string();
    assert!(!e.contains('\n') && !e.ends_with('.'), "{e}");
    e
}

#[test]
fn folders_open_single_and_sharded_in_every_type() {
    for ty in [TensorType::F32, TensorType::F16, TensorType::Bf16] {
        for family in Family::ALL {
            let builder = TinyModel::new(family).ty(ty).untied().folder();
            for count in [1, 2, 5] {
                let dir = folder(|d| if count == 1 { builder.write(d) } else { builder.write_sharded(d, count) });
                let c = Checkpoint::open(dir.path()).expect("valid");
                assert_eq!(c.files().len(), count);
                assert_eq!(c.tensors().len(), builder.tensors.len());
                for t in &builder.tensors {
                    let read = c.need_tensor(&t.name).expect("there");
                    assert_eq!((read.bytes, &read.info.shape, read.info.ty), (&t.data[..], &t.shape, t.ty));
                }
                let Source::HuggingFace { config, dir: d } = c.source() else { panic!("a folder has a config") };
                assert_eq!((config, d.as_path()), (&builder.config, dir.path()));
            }
        }
    }
}

#[test]
fn header_lengths_are_held_against_the_file() {
    assert!(
        fault(b"1234567".to_vec()).contains("header length at byte 0: the file ends early: 8 bytes needed, 7 left")
    );
    for len in [1u64 << 60, u64::MAX, 1 << 63, 3] {
        let mut bytes = len.to_le_bytes().to_vec();
        bytes.extend(b"{}");
        let e = fault(bytes);
        assert!(e.contains(&format!("header at byte 8: the file ends early: {len} bytes needed, 2 left")), "{e}");
    }
    let e = fault(vec![0; 8]);
    assert!(e.contains("header at byte 8: expected a JSON object"), "{e}");
    let long = " ".repeat(16 << 20);
    let e = fault(file(&format!("{{}}{long}"), 0));
    assert!(e.contains("header length at byte 0: too long: 16777218 bytes, at most 16777216 are allowed"), "{e}");
}

#[test]
fn headers_are_json_objects() {
    for (header, offset, why) in [
        ("[]", 8, "expected a JSON object"),
        ("GGUF", 8, "expected a JSON object"),
        (" {}", 8, "expected a JSON object"),
        ("{", 8, "EOF"),
        ("{}}", 10, "trailing characters"),
        ("{\"a\": 1}", 14, "invalid type"),
        ("{\"a\": nope}", 15, "expected ident"),
    ] {
        let e = fault(file(header, 0));
        assert!(e.contains(why), "{header}: {e}");
        assert!(e.contains(&format!("header at byte {offset}: ")), "{header}: {e}");
    }
    let mut bad = file("{\"a\": 1}", 0);
    bad[10] = 0xff;
    assert!(fault(bad).contains("header at byte 10: not UTF-8"));
    // Deeper than any parser's stack would bear.
    let deep = format!("{{\"a\":{}", "[".repeat(100_000));
    assert!(fault(file(&deep, 0)).contains("header at byte "));
}

#[test]
fn tensors_have_exactly_their_three_fields() {
    for tensor in [
        r#"{"dtype":"F32","shape":[1]}"#,
        r#"{"dtype":"F32","data_offsets":[0,4]}"#,
        r#"{"shape":[1],"data_offsets":[0,4]}"#,
        r#"{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1}"#,
        r#"{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}"#,
        r#"{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}"#,
        r#"{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}"#,
        r#"{"dtype":"F32","shape":[1],"data_offsets":[0]}"#,
        r#"{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}"#,
        r#"{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551616]}"#,
        r#"{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,4],"data_offsets":[0,4]}"#,
    ] {
        let e = fault(file(&format!("{{\"a\":{tensor}}}"), 4));
        assert!(e.contains("header at byte "), "{tensor}: {e}");
    }
}

#[test]
fn metadata_is_an_object_of_strings_once() {
    let a = r#""a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}"#;
    open(file(&format!("{{\"__metadata__\":{{\"format\":\"pt\"}},{a}}}"), 4)).expect("valid");
    assert!(fault(file(&format!("{{\"__metadata__\":{{\"format\":1}},{a}}}"), 4)).contains("header at byte "));
    let e = fault(file(&format!("{{\"__metadata__\":{{}},\"__metadata__\":{{}},{a}}}"), 4));
    assert!(e.contains("__metadata__ occurs twice"), "{e}");
}

#[test]
fn offsets_cover_the_data_exactly() {
    let two = |a: (u64, u64), b: (u64, u64), data: usize| {
        let entry = |(from, to): (u64, u64)| json!({"dtype": "F32", "shape": [to.saturating_sub(from) / 4], "data_offsets": [from, to]});
        file(&json!({"a": entry(a), "b": entry(b)}).to_string(), data)
    };
    open(two((0, 8), (8, 12), 12)).expect("valid");
    open(two((4, 12), (0, 4), 12)).expect("any order in the header");
    let e = fault(two((0, 8), (4, 12), 12));
    assert!(e.contains("tensor b at byte ") && e.contains("data overlaps that of a"), "{e}");
    let e = fault(two((0, 8), (0, 8), 8));
    assert!(e.contains("data overlaps that of "), "{e}");
    let e = fault(two((0, 4), (8, 12), 12));
    assert!(e.contains("data before tensor b at byte ") && e.contains("4 bytes belong to no tensor"), "{e}");
    let e = fault(two((4, 8), (8, 12), 12));
    assert!(e.contains("data before tensor a at byte ") && e.contains("4 bytes belong to no tensor"), "{e}");
    let e = fault(two((0, 4), (4, 8), 12));
    assert!(e.contains("end of the data at byte ") && e.contains("4 bytes belong to no tensor"), "{e}");
    for (from, to) in [(4, 16), (1 << 60, (1 << 60) + 8), (8, 4), (u64::MAX - 3, u64::MAX)] {
        let e = fault(two((0, 4), (from, to), 12));
        assert!(e.contains("tensor b at byte ") && e.contains("data out of range"), "{e}");
    }
}

#[test]
fn shape_times_type_is_the_length() {
    for (dtype, shape, data) in
        [("F32", vec![2, 3], 20), ("F32", vec![2, 3], 28), ("F16", vec![5], 8), ("I64", vec![1], 4)]
    {
        let header = json!({"a": {"dtype": dtype, "shape": shape, "data_offsets": [0, data]}}).to_string();
        let e = fault(file(&header, data));
        assert!(e.contains("tensor a at byte 9: ") && e.contains(&format!("{dtype} of {shape:?} needs ")), "{e}");
        assert!(e.contains(&format!("got {data}")), "{e}");
    }
    for shape in ["[9223372036854775808,2]", "[4294967296,4294967296]", "[18446744073709551615]"] {
        let header = format!(r#"{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":[0,4]}}}}"#);
        assert!(fault(file(&header, 4)).contains("overflows"));
    }
    let header = r#"{"a":{"dtype":"F32","shape":[4,0],"data_offsets":[0,0]}}"#;
    assert!(fault(file(header, 0)).contains("tensor a at byte 9: dimension 1 is 0"));
}

#[test]
fn duplicate_tensors_are_refused() {
    let header = r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#;
    assert!(fault(file(header, 8)).contains("the tensor occurs twice"));
}

#[test]
fn types_that_cannot_be_run_are_named_when_they_are_asked_for() {
    let header = r#"{"a":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},"b":{"dtype":"F32","shape":[1],"data_offsets":[16,20]}}"#;
    let c = open(file(header, 20)).expect("a buffer that nobody reads does no harm");
    assert_eq!(c.tensors().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["b"]);
    let e = one_line(c.tensor("a").expect_err("not supported"), "dir/model.safetensors: ");
    assert!(e.contains("tensor a at byte 9: tensor type I64 is not supported"), "{e}");
    let e = fault(file(r#"{"a":{"dtype":"F99","shape":[2],"data_offsets":[0,16]}}"#, 16));
    assert!(e.contains("tensor a at byte 9: unknown tensor type F99"), "{e}");
}

#[test]
fn cut_at_every_byte_is_an_error() {
    let whole = file(r#"{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}"#, 24);
    open(whole.clone()).expect("valid");
    for cut in 0..whole.len() {
        fault(whole[..cut].to_vec());
    }
}

#[test]
fn missing_files_are_named() {
    let dir = folder(|_| ());
    assert!(folder_fault(&dir).ends_with("config.json: missing: a Hugging Face folder needs it"));
    let dir = folder(|d| fs::write(d.join("config.json"), "{}").expect("written"));
    assert!(folder_fault(&dir).contains("model.safetensors: missing: "));
    let dir = folder(|d| tiny().write_sharded(d, 3));
    fs::remove_file(dir.path().join("model-00002-of-00003.safetensors")).expect("removed");
    let e = folder_fault(&dir);
    assert!(e.contains("model-00002-of-00003.safetensors: missing: ") && e.contains("index.json: tensor "), "{e}");
}

#[test]
fn configs_are_strict_objects() {
    for (config, why) in [
        ("", "EOF"),
        ("[]", "expected a JSON object"),
        ("1", "expected a JSON object"),
        ("{\"a\": 1,\n \"a\": 2}", "occurs twice"),
        ("{\"a\": {\"b\": 1, \"b\": 2}}", "occurs twice"),
        ("{\"a\": 1} x", "trailing characters"),
    ] {
        let dir = folder(|d| {
            tiny().write(d);
            fs::write(d.join("config.json"), config).expect("written");
        });
        let e = folder_fault(&dir);
        assert!(e.contains("config.json: config at byte ") && e.contains(why), "{config}: {e}");
    }
    let dir = folder(|d| {
        tiny().write(d);
        fs::write(d.join("config.json"), "{\"a\":0}".to_owned() + &" ".repeat(600_000)).expect("written");
    });
    assert!(folder_fault(&dir).contains("config.json: the file at byte 0: too long: 600007 bytes"));
}

#[test]
fn indexes_stay_inside_their_folder() {
    let outside = tempfile::tempdir().expect("a folder");
    fs::write(outside.path().join("x.safetensors"), tiny().safetensors()).expect("written");
    let absolute = outside.path().join("x.safetensors");
    for name in
        ["../x", "a/../../x", "/etc/passwd", "..", ".", "", "./x", "a\\b", "C:x", absolute.to_str().expect("UTF-8")]
    {
        let dir = folder(|d| {
            tiny().write_sharded(d, 2);
            let index = json!({"weight_map": {"lm_head.weight": name}}).to_string();
            fs::write(d.join("model.safetensors.index.json"), index).expect("written");
        });
        let e = folder_fault(&dir);
        assert!(e.contains("model.safetensors.index.json: tensor lm_head.weight at byte 15: "), "{name}: {e}");
        assert!(e.contains(&format!("names the file \"{name}\", which is not inside the folder")), "{name}: {e}");
    }
}

#[test]
fn indexes_are_strict() {
    for (index, why) in [
        ("", "EOF"),
        ("[]", "invalid type"),
        ("{}", "missing field `weight_map`"),
        (r#"{"weight_map":[]}"#, "invalid type"),
        (r#"{"weight_map":{"a":1}}"#, "invalid type"),
        (r#"{"weight_map":{},"weight_map":{}}"#, "occurs twice"),
        (r#"{"weight_map":{"a":"b","a":"b"}}"#, "the tensor occurs twice"),
        (
            r#"{"weight_map":{"nothing":"model-00001-of-00002.safetensors"}}"#,
            "is not in model-00001-of-00002.safetensors",
        ),
    ] {
        let dir = folder(|d| {
            tiny().write_sharded(d, 2);
            fs::write(d.join("model.safetensors.index.json"), index).expect("written");
        });
        let e = folder_fault(&dir);
        assert!(
            e.contains("model.safetensors.index.json: ") && e.contains(" at byte ") && e.contains(why),
            "{index}: {e}"
        );
    }
}

#[test]
fn a_tensor_in_two_shards_is_refused() {
    let dir = folder(|d| {
        tiny().write_sharded(d, 2);
        let first = fs::read(d.join("model-00001-of-00002.safetensors")).expect("there");
        fs::write(d.join("model-00003-of-00003.safetensors"), first).expect("written");
        let path = d.join("model.safetensors.index.json");
        let text = fs::read_to_string(&path).expect("there");
        let mut index: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let name = tiny().tensors[0].name.clone();
        index["weight_map"][&name] = "model-00003-of-00003.safetensors".into();
        fs::write(&path, index.to_string()).expect("written");
    });
    assert!(folder_fault(&dir).contains("the tensor occurs twice"));
}

proptest! {
    /// Whatever is accepted here, the format's own library accepts as well, with the same tensors.
    #[test]
    fn nothing_is_accepted_that_the_library_refuses(cut in any::<prop::sample::Index>(), flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4), whole: bool) {
        let mut bytes = FolderBuilder::default()
            .tensor("a", &[2, 3], TensorType::F32, &[1.0; 6])
            .tensor("b", &[5], TensorType::F16, &[2.0; 5])
            .tensor("c", &[1, 2, 2], TensorType::Bf16, &[3.0; 4])
            .safetensors();
        let header = bytes.len() - 24 - 10 - 8;
        for (at, value) in flips {
            let at = at.index(header);
            bytes[at] = value;
        }
        if !whole {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(c) = open(bytes.clone()) {
            let other = safetensors::SafeTensors::deserialize(&bytes).expect("accepted by the library");
            for t in c.tensors() {
                let view = other.tensor(&t.name).expect("the library finds the tensor");
                prop_assert_eq!(view.shape(), &t.shape);
                prop_assert_eq!(view.data(), c.need_tensor(&t.name).expect("there").bytes);
            }
        }
    }
}
