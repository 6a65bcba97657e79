//! Damaged files: whatever is cut or changed in a valid one, reading it ends in a value or an
//! error.

use std::path::Path;

use proptest::prelude::*;
use selfspec_testkit::{Family, TinyModel};
use selfspec_weights::{Checkpoint, Source, TensorType, WeightsError};

/// Everything that a caller can ask of a GGUF file.
fn read_all(bytes: Vec<u8>) -> Result<(), WeightsError> {
    let len = bytes.len();
    let c = Checkpoint::from_gguf_bytes(Path::new("damaged.gguf"), bytes)?;
    let mut total = 0;
    for t in c.tensors() {
        let tensor = c.need_tensor(&t.name).expect("a tensor that is listed is there");
        assert_eq!(tensor.bytes.len(), t.size_bytes());
        assert!(t.shape.iter().all(|d| *d > 0) && (1..=4).contains(&t.shape.len()));
        total += tensor.bytes.len();
    }
    assert!(total <= len, "no byte belongs to two tensors");
    let Source::Gguf(m) = c.source() else { unreachable!("a GGUF file has metadata") };
    for key in m.keys() {
        m.display(key).expect("a key that is listed has a value");
        // One getter at most fits the value; the others must say so and nothing else.
        let fits = [
            m.str(key).is_ok(),
            m.u64(key).is_ok(),
            m.f64(key).is_ok(),
            m.bool(key).is_ok(),
            m.strings(key).is_ok(),
            m.f32s(key).is_ok(),
            m.bools(key).is_ok(),
        ];
        assert!(fits.iter().filter(|f| **f).count() <= 1, "{key}");
        let (_, _) = (m.i32s(key), m.u64s(key));
    }
    Ok(())
}

fn model(ty: TensorType) -> (Vec<u8>, usize) {
    let file = TinyModel::new(Family::Qwen3).ty(ty).layers(1).gguf().layout();
    (file.bytes, file.data)
}

/// A single-line message that names the file.
fn check(result: Result<(), WeightsError>) -> bool {
    if let Err(e) = &result {
        let e = e.to_string();
        assert!(e.starts_with("damaged.gguf: ") && !e.contains('\n') && e.len() < 1000, "{e}");
    }
    result.is_ok()
}

#[test]
fn a_model_cut_at_every_byte_of_its_header_is_an_error() {
    let (bytes, data) = model(TensorType::F16);
    // Every byte near the start and the end of the header, every seventh between: the vocabulary
    // makes it long.
    for cut in (0..2000).chain((2000..data - 2000).step_by(7)).chain(data - 2000..data) {
        assert!(!check(read_all(bytes[..cut].to_vec())), "cut at byte {cut} of {data}");
    }
}

#[test]
fn every_byte_of_a_small_header_set_to_extremes_never_panics() {
    let file = selfspec_testkit::GgufBuilder::new()
        .metadata("general.alignment", 32u32)
        .metadata("s", "text")
        .metadata("a", vec!["x".to_owned(), "yz".to_owned()])
        .metadata("b", vec![true, false])
        .metadata("f", vec![1.0f32, 2.0])
        .tensor("t", &[2, 32], TensorType::Q4_0, &[1.0; 64])
        .tensor("u", &[3], TensorType::F32, &[1.0; 3])
        .layout();
    let mut refused = 0;
    for at in 0..file.data {
        for value in [0, 1, 2, 9, 0x7f, 0x80, 0xff] {
            let mut bytes = file.bytes.clone();
            bytes[at] = value;
            refused += usize::from(!check(read_all(bytes)));
        }
    }
    assert!(refused > file.data, "most changes are noticed: {refused}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_cuts_never_panic(cut in any::<prop::sample::Index>()) {
        let (bytes, _) = model(TensorType::Q5_1);
        let cut = cut.index(bytes.len());
        check(read_all(bytes[..cut].to_vec()));
    }

    #[test]
    fn random_changes_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20), infos: bool) {
        let (mut bytes, data) = model(TensorType::Q4_0);
        // Half of the cases where the tensor infos are: they are a small part of the header.
        let (from, to) = if infos { (data - 700, data) } else { (0, bytes.len()) };
        for (at, value) in changes {
            bytes[from + at.index(to - from)] = value;
        }
        check(read_all(bytes));
    }

    #[test]
    fn random_bytes_after_a_valid_start_never_panic(tail in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut bytes = b"GGUF\x03\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0".to_vec();
        bytes.extend(tail);
        check(read_all(bytes));
    }
}
