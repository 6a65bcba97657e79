//! A fingerprint that tells one set of weights from another.

use sha2::{Digest, Sha256};

use crate::checkpoint::Checkpoint;

/// Bytes of a tensor that are read at each of three places.
const SAMPLE: usize = 4096;

impl Checkpoint {
    /// A fingerprint of the weights: the SHA-256, in lower-case hexadecimal, of all tensors' names,
    /// types and shapes, and of 4 KiB from the start, the middle and the end of each one's data.
    /// Any training or quantisation changes it. The place of the weights on disk does not. It reads
    /// a few MiB, whatever the size of the model.
    pub fn fingerprint(&self) -> String {
        let mut tensors: Vec<_> = self.tensors().collect();
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        let mut hash = Sha256::new();
        for info in tensors {
            let Ok(Some(tensor)) = self.tensor(&info.name) else { continue };
            hash.update(format!("{}\n{}\n{:?}\n", info.name, info.ty, info.shape));
            let bytes = tensor.bytes;
            if bytes.len() <= 3 * SAMPLE {
                hash.update(bytes);
                continue;
            }
            for start in [0, (bytes.len() - SAMPLE) / 2, bytes.len() - SAMPLE] {
                hash.update(&bytes[start..start + SAMPLE]);
            }
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
