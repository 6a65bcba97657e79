//! Any bytes as a GGUF file: reading ends in a checkpoint whose every tensor and value can be had,
//! or in an error on one line.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use selfspec_weights::{Checkpoint, Source};

fuzz_target!(|data: &[u8]| {
    let checkpoint = match Checkpoint::from_gguf_bytes(Path::new("fuzz.gguf"), data.to_vec()) {
        Ok(checkpoint) => checkpoint,
        Err(e) => {
            let e = e.to_string();
            assert!(e.starts_with("fuzz.gguf: ") && e.contains(" at byte ") && !e.contains('\n'), "{e}");
            return;
        }
    };
    let mut held = 0;
    for info in checkpoint.tensors() {
        let tensor = checkpoint.need_tensor(&info.name).expect("a tensor that is listed is there");
        assert_eq!(tensor.bytes.len(), info.size_bytes());
        held += tensor.bytes.len();
    }
    assert!(held <= data.len(), "no byte belongs to two tensors");
    let Source::Gguf(metadata) = checkpoint.source() else { unreachable!("a GGUF file has metadata") };
    for key in metadata.keys() {
        assert!(metadata.display(key).is_some());
        let _ = (metadata.str(key), metadata.u64(key), metadata.f64(key), metadata.bool(key));
        let _ = (metadata.strings(key), metadata.f32s(key), metadata.i32s(key), metadata.u64s(key), metadata.bools(key));
    }
});
