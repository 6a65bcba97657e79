//! Any bytes as the file of an exit head, for a tiny model: a head that fits the model, or an error
//! on one line.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use selfspec_kernels::Team;
use selfspec_model::{CpuModel, ExitHead};
use selfspec_testkit::{Family, TinyModel};
use selfspec_weights::Checkpoint;

static MODEL: LazyLock<Arc<CpuModel>> = LazyLock::new(|| {
    let bytes = TinyModel::new(Family::Llama).gguf().bytes();
    let checkpoint = Checkpoint::from_gguf_bytes("tiny.gguf".as_ref(), bytes).expect("a sound file");
    Arc::new(CpuModel::open(&checkpoint, &Team::new(1)).expect("a sound model"))
});

fuzz_target!(|data: &[u8]| {
    match ExitHead::read(data, &MODEL, "tiny", "f", &Team::new(1)) {
        Ok(head) => assert!(head.vocab().ids().iter().all(|id| (*id as usize) < MODEL.vocab())),
        Err(error) => {
            let message = error.to_string();
            assert!(!message.is_empty() && !message.contains('\n'), "{message}");
        }
    }
});
