//! What the writers write is what the readers read.

use std::path::Path;

use selfspec_testkit::{Family, TinyModel};
use selfspec_weights::{Checkpoint, GgufWriter, Source, TensorInfo, TensorType, write_safetensors};

#[test]
fn a_gguf_file_that_is_read_and_written_again_is_the_same_file() {
    for (family, ty) in [(Family::Llama, TensorType::F16), (Family::Qwen2, TensorType::Q8_0)] {
        let bytes = TinyModel::new(family).ty(ty).gguf().bytes();
        let read = Checkpoint::from_gguf_bytes(Path::new("tiny.gguf"), bytes.clone()).expect("sound");
        let Source::Gguf(metadata) = read.source() else { panic!("a GGUF file") };
        let mut writer = GgufWriter::new();
        metadata.raw().into_iter().for_each(|(key, value)| writer.raw(key, value));
        let (mut out, infos): (Vec<u8>, Vec<TensorInfo>) = (Vec::new(), read.tensors().cloned().collect());
        let mut data = |t: &TensorInfo, bytes: &mut Vec<u8>| {
            bytes.extend(read.need_tensor(&t.name).expect("there").bytes);
            Ok(())
        };
        writer.write(&mut out, &infos, &mut data).expect("memory takes all");
        assert!(out == bytes, "{family:?}: {} bytes of {}", out.len(), bytes.len());
    }
}

#[test]
fn a_number_that_is_added_is_read() {
    let mut writer = GgufWriter::new();
    writer.u32("general.file_type", 7);
    let mut out = Vec::new();
    writer.write(&mut out, &[], &mut |_, _| Ok(())).expect("memory takes all");
    let read = Checkpoint::from_gguf_bytes(Path::new("none.gguf"), out).expect("sound");
    let Source::Gguf(metadata) = read.source() else { panic!("a GGUF file") };
    assert_eq!(metadata.u64("general.file_type").expect("a number"), Some(7));
}

#[test]
fn safetensors_are_read_here_and_by_the_reference_reader() {
    let info = |name: &str, shape: &[usize], ty| TensorInfo { name: name.to_owned(), shape: shape.to_vec(), ty };
    let infos = [info("b", &[2, 3], TensorType::F32), info("a \"quoted\"", &[5], TensorType::Bf16)];
    let mut data = |t: &TensorInfo, bytes: &mut Vec<u8>| {
        bytes.extend((0..t.size_bytes()).map(|i| i as u8));
        Ok(())
    };
    let mut out = Vec::new();
    write_safetensors(&mut out, &infos, &mut data).expect("memory takes all");
    let theirs = safetensors::SafeTensors::deserialize(&out).expect("sound");
    assert_eq!(theirs.tensor("b").expect("there").data(), (0..24).collect::<Vec<u8>>());
    let ours = Checkpoint::from_safetensors_bytes(Path::new("m.safetensors"), out, b"{}").expect("sound");
    assert!(ours.tensors().eq(&infos));
    assert_eq!(ours.need_tensor("a \"quoted\"").expect("there").bytes, (0..10).collect::<Vec<u8>>());
    let e = write_safetensors(&mut Vec::new(), &[info("q", &[32], TensorType::Q8_0)], &mut data);
    assert_eq!(e.expect_err("no such type").to_string(), "q: safetensors have no Q8_0");
}
