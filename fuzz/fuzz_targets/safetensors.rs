//! Any bytes as a safetensors file and its `config.json` (the bytes after the last zero byte):
//! reading ends in a checkpoint whose tensors cover the file, or in an error on one line.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use selfspec_weights::Checkpoint;

fuzz_target!(|data: &[u8]| {
    // Most inputs bring no configuration: then a valid one stands in, so that the header is what is
    // tried.
    let (file, config) = match data.iter().rposition(|b| *b == 0) {
        Some(zero) if data.len() - zero > 2 && data[zero + 1] == b'{' => (&data[..zero], &data[zero + 1..]),
        _ => (data, &b"{}"[..]),
    };
    match Checkpoint::from_safetensors_bytes(Path::new("fuzz/model.safetensors"), file.to_vec(), config) {
        Ok(checkpoint) => {
            let held: usize = checkpoint.tensors().map(|t| t.size_bytes()).sum();
            assert!(held <= file.len(), "no byte belongs to two tensors");
            for info in checkpoint.tensors() {
                let tensor = checkpoint.need_tensor(&info.name).expect("a tensor that is listed is there");
                assert_eq!(tensor.bytes.len(), info.size_bytes());
            }
        }
        Err(e) => {
            let e = e.to_string();
            assert!(e.starts_with("fuzz/") && e.contains(" at byte ") && !e.contains('\n'), "{e}");
        }
    }
});
