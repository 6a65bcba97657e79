//! GGUF files, right and wrong: each kind of fault gives its own error, on one line, with file,
//! field and offset.

use std::path::Path;

use selfspec_testkit::{Family, GgufBuilder, TinyModel, Value, blocks};
use selfspec_weights::{Checkpoint, Source, TensorType, WeightsError};

fn open(bytes: Vec<u8>) -> Result<Checkpoint, WeightsError> {
    Checkpoint::from_gguf_bytes(Path::new("dir/tiny.gguf"), bytes)
}

/// The error's text, after checking what holds for every one: a single line that begins with the
/// file, and an offset.
fn fault(builder: &GgufBuilder) -> String {
    fault_of(builder.bytes())
}

fn fault_of(bytes: Vec<u8>) -> String {
    let error = open(bytes).expect_err("the file is wrong").to_string();
    assert!(error.starts_with("dir/tiny.gguf: "), "{error}");
    assert!(error.contains(" at byte "), "{error}");
    assert!(!error.contains('\n') && !error.ends_with('.'), "{error}");
    error
}

/// Two small tensors and some metadata.
fn small() -> GgufBuilder {
    GgufBuilder::new()
        .metadata("general.architecture", "llama")
        .metadata("general.alignment", 32u32)
        .metadata("llama.block_count", 2u32)
        .metadata("llama.rope.freq_base", 10000.0f32)
        .metadata("tokenizer.ggml.tokens", vec!["a".to_owned(), "bc".to_owned()])
        .metadata("tokenizer.ggml.add_bos_token", true)
        .tensor("a.weight", &[3, 32], TensorType::Q8_0, &[1.0; 96])
        .tensor("b.weight", &[5], TensorType::F32, &[1.0, 2.0, 3.0, 4.0, 5.0])
}

fn metadata(checkpoint: &Checkpoint) -> &selfspec_weights::Metadata {
    match checkpoint.source() {
        Source::Gguf(metadata) => metadata,
        Source::HuggingFace { .. } => panic!("a GGUF file has metadata"),
    }
}

#[test]
fn versions_2_and_3_give_the_same_tensors_and_metadata() {
    for version in [2, 3] {
        let c = open(GgufBuilder { version, ..small() }.bytes()).expect("valid");
        let shapes: Vec<_> = c.tensors().map(|t| (t.name.as_str(), t.shape.clone(), t.ty)).collect();
        assert_eq!(shapes, [("a.weight", vec![3, 32], TensorType::Q8_0), ("b.weight", vec![5], TensorType::F32)]);
        let b = c.need_tensor("b.weight").expect("there");
        assert_eq!(blocks::dequantize(TensorType::F32, b.bytes), [1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(c.need_tensor("a.weight").expect("there").bytes.len(), 3 * 34);
        assert!(c.tensor("c.weight").expect("no fault").is_none());
        let m = metadata(&c);
        assert_eq!(m.need_str("general.architecture").expect("there"), "llama");
        assert_eq!(m.need_u64("llama.block_count").expect("there"), 2);
        assert_eq!(m.need_f64("llama.rope.freq_base").expect("there"), 10000.0);
        assert!(m.need_bool("tokenizer.ggml.add_bos_token").expect("there"));
        assert_eq!(m.need_strings("tokenizer.ggml.tokens").expect("there"), ["a", "bc"]);
        assert_eq!(m.str("nothing").expect("no fault"), None);
        assert_eq!(m.keys().count(), 6);
    }
}

#[test]
fn tiny_models_of_every_family_and_type_open_with_the_bytes_they_were_given() {
    for family in Family::ALL {
        for ty in TensorType::ALL {
            let builder = TinyModel::new(family).ty(ty).gguf();
            let c = open(builder.bytes()).expect("valid");
            assert_eq!(c.tensors().len(), builder.tensors.len());
            for t in &builder.tensors {
                let read = c.need_tensor(&t.name).expect("there");
                assert_eq!(read.bytes, t.data, "{family:?} {ty} {}", t.name);
                assert_eq!(read.info.size_bytes(), t.data.len());
            }
            assert_eq!(c.need_tensor("blk.0.ffn_gate.weight").expect("there").info.ty, ty);
        }
    }
}

#[test]
fn empty_and_three_bytes() {
    assert!(fault_of(Vec::new()).contains("magic at byte 0: the file is empty"));
    assert!(fault_of(b"GGU".to_vec()).contains("magic at byte 0: the file ends early: 4 bytes needed, 3 left"));
}

#[test]
fn wrong_magic_is_shown() {
    let e = fault(&GgufBuilder { magic: *b"GG\nF", ..small() });
    assert!(e.contains(r#"magic at byte 0: not a GGUF file: expected "GGUF", got "GG\nF""#), "{e}");
}

#[test]
fn versions_other_than_2_and_3_are_refused() {
    for version in [0, 1, 4, 99] {
        let e = fault(&GgufBuilder { version, ..small() });
        assert!(e.contains(&format!("version at byte 4: GGUF version {version} is not supported")), "{e}");
    }
}

#[test]
fn big_endian_files_are_named_as_such() {
    for (magic, version) in [(*b"GGUF", 3), (*b"GGUF", 2), (*b"FUGG", 3)] {
        let e = fault(&GgufBuilder { magic, version: u32::swap_bytes(version), ..small() });
        assert!(e.contains(&format!("version at byte 4: the file is big-endian (GGUF version {version})")), "{e}");
    }
}

#[test]
fn cut_at_every_byte_before_the_last_tensors_end_is_an_error() {
    let file = small().layout();
    let needed = file.data + 128 + 5 * 4; // a.weight takes 102 bytes, padded to 128
    for cut in 0..needed {
        fault_of(file.bytes[..cut].to_vec());
    }
    open(file.bytes[..needed].to_vec()).expect("the padding after the last tensor may be missing");
}

#[test]
fn counts_that_the_file_cannot_hold_are_refused() {
    for count in [1 << 63, u64::MAX, 1000] {
        let e = fault(&GgufBuilder { tensor_count: Some(count), ..small() });
        assert!(e.contains(&format!("tensor count at byte 8: a count of {count} is too large")), "{e}");
        let e = fault(&GgufBuilder { metadata_count: Some(count), ..small() });
        assert!(e.contains(&format!("metadata count at byte 16: a count of {count} is too large")), "{e}");
    }
}

#[test]
fn strings_longer_than_the_file_are_refused() {
    for len in [1 << 63, u64::MAX, 1000] {
        let mut bytes = small().bytes();
        bytes[24..32].copy_from_slice(&len.to_le_bytes());
        let e = fault_of(bytes);
        assert!(e.contains(&format!("metadata key 0 at byte 32: the file ends early: {len} bytes needed")), "{e}");
        let e = fault(&GgufBuilder::new().metadata("k", Value::Raw(8, len.to_le_bytes().to_vec())));
        assert!(e.contains(&format!("k at byte 45: the file ends early: {len} bytes needed")), "{e}");
    }
}

#[test]
fn a_key_longer_than_the_format_allows_is_refused() {
    let e = fault(&GgufBuilder::new().metadata(&"k".repeat(65536), 1u8));
    assert!(e.contains("metadata key 0 at byte 24: too long: 65536 bytes, at most 65535 are allowed"), "{e}");
}

#[test]
fn array_lengths_that_overflow_or_do_not_fit_are_refused() {
    for elem in 0u32..=12 {
        for count in [1u64 << 63, u64::MAX, u64::MAX / 8 + 1, 1 << 32] {
            let raw = [&elem.to_le_bytes()[..], &count.to_le_bytes()].concat();
            let e = fault(&small().metadata("array", Value::Raw(9, raw)));
            assert!(e.contains("length of array at byte "), "{e}");
            assert!(e.contains(&format!("a count of {count} is too large")), "{e}");
        }
    }
}

#[test]
fn arrays_of_arrays_are_stepped_over_up_to_a_depth() {
    let nested = |depth: usize| {
        let mut raw = Vec::new();
        for _ in 1..depth {
            raw.extend(9u32.to_le_bytes());
            raw.extend(1u64.to_le_bytes());
        }
        raw.extend(4u32.to_le_bytes());
        raw.extend(1u64.to_le_bytes());
        raw.extend(7u32.to_le_bytes());
        small().metadata("nested", Value::Raw(9, raw))
    };
    for depth in 1..=4 {
        let c = open(nested(depth).bytes()).expect("valid");
        assert_eq!(c.tensors().len(), 2);
    }
    for depth in [5, 6, 10_000] {
        let e = fault(&nested(depth));
        assert!(e.contains("nested at byte ") && e.contains("arrays are nested more than 4 deep"), "{e}");
    }
}

#[test]
fn unknown_value_types_are_refused() {
    let e = fault(&small().metadata("odd", Value::Raw(13, vec![0; 8])));
    assert!(e.contains("type of odd at byte ") && e.contains("unknown value type 13"), "{e}");
    let raw = [&77u32.to_le_bytes()[..], &0u64.to_le_bytes()].concat();
    let e = fault(&small().metadata("odd", Value::Raw(9, raw)));
    assert!(e.contains("unknown value type 77"), "{e}");
}

#[test]
fn bools_are_0_or_1() {
    let e = fault(&small().metadata("flag", Value::Raw(7, vec![2])));
    assert!(e.contains("flag at byte ") && e.contains("a bool of 2"), "{e}");
    let raw = [&7u32.to_le_bytes()[..], &3u64.to_le_bytes(), &[0, 1, 9]].concat();
    let e = fault(&small().metadata("flags", Value::Raw(9, raw)));
    assert!(e.contains("a bool of 9"), "{e}");
}

#[test]
fn strings_are_utf8() {
    let raw = [&2u64.to_le_bytes()[..], &[b'a', 0xff]].concat();
    let e = fault(&GgufBuilder::new().metadata("s", Value::Raw(8, raw)));
    // 24 bytes of header, 9 of key, 4 of type, 8 of length, and one good byte.
    assert!(e.contains("s at byte 46: not UTF-8"), "{e}");
    let mut bytes = small().bytes();
    bytes[32] = 0xff;
    assert!(fault_of(bytes).contains("metadata key 0 at byte 32: not UTF-8"));
}

#[test]
fn wrong_types_name_key_expected_and_found() {
    let builder = small()
        .metadata("tokenizer.ggml.scores", vec![1u8, 2])
        .metadata("llama.attention.head_count", "four")
        .metadata("negative", -1i32)
        .metadata("large", vec![1u32, u32::MAX]);
    let file = builder.layout();
    let c = open(file.bytes).expect("valid as a file");
    let m = metadata(&c);
    let text = |e: WeightsError| {
        let e = e.to_string();
        assert!(e.starts_with("dir/tiny.gguf: ") && e.contains(" at byte "), "{e}");
        e
    };
    let e = text(m.f32s("tokenizer.ggml.scores").expect_err("wrong"));
    assert!(e.contains("tokenizer.ggml.scores") && e.contains("expected an array of f32, got array of 2 u8"), "{e}");
    let e = text(m.u64("llama.attention.head_count").expect_err("wrong"));
    assert!(e.contains("llama.attention.head_count") && e.contains("expected an integer, got string"), "{e}");
    let e = text(m.u64("negative").expect_err("wrong"));
    assert!(e.contains("out of range: expected at least 0, got -1"), "{e}");
    let e = text(m.i32s("large").expect_err("wrong"));
    assert!(e.contains("got 4294967295"), "{e}");
    let e = text(m.str("llama.block_count").expect_err("wrong"));
    assert!(e.contains("expected a string, got u32"), "{e}");
    let e = text(m.f64("llama.block_count").expect_err("wrong"));
    assert!(e.contains("expected a float, got u32"), "{e}");
    let e = text(m.bool("llama.block_count").expect_err("wrong"));
    assert!(e.contains("expected a bool, got u32"), "{e}");
    let e = text(m.strings("llama.block_count").expect_err("wrong"));
    assert!(e.contains("expected an array of strings, got u32"), "{e}");
    let e = text(m.i32s("llama.block_count").expect_err("wrong"));
    assert!(e.contains("expected an array of integers, got u32"), "{e}");
    let e = text(m.i32s("tokenizer.ggml.tokens").expect_err("wrong"));
    assert!(e.contains("expected an array of integers, got array of 2 string"), "{e}");
    let e = text(m.need_u64("llama.context_length").expect_err("missing"));
    assert!(e.contains(&format!("llama.context_length at byte {}: the metadata lacks this key", file.infos)), "{e}");
}

#[test]
fn integers_of_every_width_are_read() {
    let values: [(Value, u64); 8] = [
        (200u8.into(), 200),
        (100i8.into(), 100),
        (60_000u16.into(), 60_000),
        (30_000i16.into(), 30_000),
        (u32::MAX.into(), u32::MAX.into()),
        (i32::MAX.into(), i32::MAX as u64),
        (u64::MAX.into(), u64::MAX),
        (i64::MAX.into(), i64::MAX as u64),
    ];
    for (value, expected) in values {
        let c = open(GgufBuilder::new().metadata("n", value).bytes()).expect("valid");
        assert_eq!(metadata(&c).u64("n").expect("an integer"), Some(expected));
    }
    let c = open(GgufBuilder::new().metadata("x", 0.5f64).metadata("a", vec![1i32, -2]).bytes()).expect("valid");
    assert_eq!(metadata(&c).f64("x").expect("a float"), Some(0.5));
    assert_eq!(metadata(&c).i32s("a").expect("integers"), Some(vec![1, -2]));
}

#[test]
fn duplicate_keys_and_tensors_are_refused() {
    let e = fault(&small().metadata_again("llama.block_count", 3u32));
    assert!(e.contains("llama.block_count at byte ") && e.contains("the key occurs twice"), "{e}");
    let mut builder = small();
    let mut again = builder.tensors[0].clone();
    again.dims = vec![32];
    again.data.truncate(34);
    builder.tensors.push(again);
    let e = fault(&builder);
    assert!(e.contains("tensor a.weight at byte ") && e.contains("the tensor occurs twice"), "{e}");
}

#[test]
fn dimensions_are_1_to_4_and_not_0() {
    for dims in [vec![], vec![1; 5], vec![1; 1000]] {
        let found = dims.len();
        let e = fault(&small().change("b.weight", |t| t.dims = dims));
        assert!(e.contains("tensor b.weight at byte ") && e.contains(&format!("{found} dimensions")), "{e}");
    }
    for zero in 0..3 {
        let e = fault(&small().change("b.weight", |t| t.dims = (0..3).map(|d| u64::from(d != zero)).collect()));
        assert!(e.contains("tensor b.weight at byte ") && e.contains(&format!("dimension {zero} is 0")), "{e}");
    }
    open(small().change("b.weight", |t| t.dims = vec![5, 1, 1, 1]).bytes()).expect("four dimensions are valid");
}

#[test]
fn products_that_overflow_are_refused() {
    let cases: [&[u64]; 5] = [&[1 << 63, 2], &[1 << 32, 1 << 32], &[1 << 31, 1 << 31, 4], &[u64::MAX], &[1 << 62, 1]];
    for dims in cases {
        let e = fault(&small().change("b.weight", |t| t.dims = dims.to_vec()));
        assert!(e.contains("tensor b.weight at byte ") && e.contains("overflows"), "{e}");
    }
    // A product that fits, of data that does not.
    let e = fault(&small().change("b.weight", |t| t.dims = vec![1 << 30, 1 << 20]));
    assert!(e.contains("tensor b.weight at byte ") && e.contains("data out of range"), "{e}");
}

#[test]
fn rows_are_whole_blocks() {
    for ty in TensorType::ALL.into_iter().filter(|t| t.block_len() > 1) {
        let k = ty.block_len() as u64 / 2;
        let e = fault(&small().change("a.weight", |t| (t.type_id, t.dims) = (ty.ggml_id(), vec![k, 2])));
        let expected = format!("rows of {k} values do not divide into {ty} blocks of {}", ty.block_len());
        assert!(e.contains("tensor a.weight at byte ") && e.contains(&expected), "{e}");
    }
}

#[test]
fn tensors_outside_the_file_are_refused() {
    let section = small().layout();
    let section = (section.bytes.len() - section.data) as u64;
    for offset in [section, section + 32, 1 << 40, u64::MAX - 31] {
        let e = fault(&small().change("b.weight", |t| t.offset = Some(offset)));
        let expected = format!("data out of range: 20 bytes from {offset} in a data section of {section}");
        assert!(e.contains("tensor b.weight at byte ") && e.contains(&expected), "{e}");
    }
}

#[test]
fn overlapping_and_unaligned_tensors_are_refused() {
    for offset in [0, 32, 96] {
        let e = fault(&small().change("b.weight", |t| t.offset = Some(offset)));
        // The later of the two in the file's data is the one that is named first.
        assert!(e.contains("data overlaps that of "), "{e}");
        assert!(e.contains("a.weight") && e.contains("b.weight"), "{e}");
    }
    for offset in [1, 16, 127, 129] {
        let e = fault(&small().change("b.weight", |t| t.offset = Some(offset)));
        assert!(e.contains(&format!("data offset {offset} is not a multiple of the alignment 32")), "{e}");
    }
}

#[test]
fn alignments_are_powers_of_two_within_bounds() {
    for bad in [0u32, 1, 3, 4, 24, 131_072, 1 << 31] {
        let e = fault(&small().metadata("general.alignment", bad));
        assert!(e.contains("general.alignment at byte ") && e.contains(&format!("an alignment of {bad}")), "{e}");
    }
    for good in [8usize, 64, 65_536] {
        let builder = small().metadata("general.alignment", good as u32);
        open(GgufBuilder { alignment: good, ..builder }.bytes()).expect("valid");
    }
    let e = fault(&small().metadata("general.alignment", "32"));
    assert!(e.contains("general.alignment at byte ") && e.contains("expected an integer, got string"), "{e}");
}

#[test]
fn unsupported_tensor_types_are_named_and_unknown_ones_numbered() {
    let named = [
        (16, "IQ2_XXS"),
        (20, "IQ4_NL"),
        (24, "I8"),
        (26, "I32"),
        (28, "F64"),
        (34, "TQ1_0"),
        (39, "MXFP4"),
        (9, "Q8_1"),
    ];
    for (id, name) in named {
        let e = fault(&small().change("a.weight", |t| t.type_id = id));
        assert!(
            e.contains("tensor a.weight at byte ") && e.contains(&format!("tensor type {name} is not supported")),
            "{e}"
        );
    }
    for id in [43, 1000, u32::MAX] {
        let e = fault(&small().change("a.weight", |t| t.type_id = id));
        assert!(e.contains("tensor a.weight at byte ") && e.contains(&format!("unknown tensor type {id}")), "{e}");
    }
}

#[test]
fn names_from_the_file_cannot_break_the_line_or_flood_it() {
    let name = format!("a\nb\r\u{1b}[31m{}", "x".repeat(5000));
    let e = fault(&small().tensor_bytes(&name, &[1], 999, vec![0; 4]));
    assert!(e.len() < 400 && e.contains(r"a\nb\r\u{1b}[31mxxx") && e.contains('…'), "{e}");
}

#[test]
fn a_file_without_tensors_or_padding_opens() {
    let file = GgufBuilder::new().metadata("general.architecture", "llama").layout();
    let c = open(file.bytes[..file.infos].to_vec()).expect("valid");
    assert_eq!(c.tensors().len(), 0);
}
