//! Short names from hashes.

use sha2::{Digest, Sha256};

/// The first `len` bytes of a text's SHA-256, at most 32, in hexadecimal.
pub(crate) fn short_hash(text: &str, len: usize) -> String {
    Sha256::digest(text.as_bytes()).iter().take(len).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_prefix_of_the_hash() {
        // FIPS 180-2, appendix B.1.
        assert_eq!(short_hash("abc", 4), "ba7816bf");
    }
}
