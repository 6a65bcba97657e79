//! Tensor types: those that can be read, and the names of all that GGML has had.

use std::fmt;

/// The format of a tensor's numbers. Block layouts are those of GGUF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum TensorType {
    F32,
    F16,
    Bf16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
}

impl TensorType {
    /// Every type that can be read.
    pub const ALL: [TensorType; 13] = [
        TensorType::F32,
        TensorType::F16,
        TensorType::Bf16,
        TensorType::Q4_0,
        TensorType::Q4_1,
        TensorType::Q5_0,
        TensorType::Q5_1,
        TensorType::Q8_0,
        TensorType::Q2K,
        TensorType::Q3K,
        TensorType::Q4K,
        TensorType::Q5K,
        TensorType::Q6K,
    ];

    /// Values in a block; the innermost dimension is a multiple of it.
    pub fn block_len(self) -> usize {
        self.layout().0
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        self.layout().1
    }

    /// The id that GGUF files use (`enum ggml_type`).
    pub fn ggml_id(self) -> u32 {
        match self {
            TensorType::F32 => 0,
            TensorType::F16 => 1,
            TensorType::Q4_0 => 2,
            TensorType::Q4_1 => 3,
            TensorType::Q5_0 => 6,
            TensorType::Q5_1 => 7,
            TensorType::Q8_0 => 8,
            TensorType::Q2K => 10,
            TensorType::Q3K => 11,
            TensorType::Q4K => 12,
            TensorType::Q5K => 13,
            TensorType::Q6K => 14,
            TensorType::Bf16 => 30,
        }
    }

    /// The type with this GGUF id, if it can be read.
    pub fn from_ggml_id(id: u32) -> Option<TensorType> {
        TensorType::ALL.into_iter().find(|t| t.ggml_id() == id)
    }

    /// Name as model files and their makers spell it, for example `Q4_K`.
    pub fn name(self) -> &'static str {
        match self {
            TensorType::F32 => "F32",
            TensorType::F16 => "F16",
            TensorType::Bf16 => "BF16",
            TensorType::Q4_0 => "Q4_0",
            TensorType::Q4_1 => "Q4_1",
            TensorType::Q5_0 => "Q5_0",
            TensorType::Q5_1 => "Q5_1",
            TensorType::Q8_0 => "Q8_0",
            TensorType::Q2K => "Q2_K",
            TensorType::Q3K => "Q3_K",
            TensorType::Q4K => "Q4_K",
            TensorType::Q5K => "Q5_K",
            TensorType::Q6K => "Q6_K",
        }
    }

    /// (values, bytes) of a block.
    fn layout(self) -> (usize, usize) {
        match self {
            TensorType::F32 => (1, 4),
            TensorType::F16 | TensorType::Bf16 => (1, 2),
            TensorType::Q4_0 => (32, 2 + 16),
            TensorType::Q4_1 => (32, 4 + 16),
            TensorType::Q5_0 => (32, 2 + 4 + 16),
            TensorType::Q5_1 => (32, 4 + 4 + 16),
            TensorType::Q8_0 => (32, 2 + 32),
            TensorType::Q2K => (256, 16 + 64 + 4),
            TensorType::Q3K => (256, 32 + 64 + 12 + 2),
            TensorType::Q4K => (256, 4 + 12 + 128),
            TensorType::Q5K => (256, 4 + 12 + 32 + 128),
            TensorType::Q6K => (256, 128 + 64 + 16 + 2),
        }
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The name of any id of `enum ggml_type`, for the error about an unsupported tensor.
pub(crate) fn ggml_type_name(id: u32) -> Option<&'static str> {
    if let Some(ty) = TensorType::from_ggml_id(id) {
        return Some(ty.name());
    }
    Some(match id {
        4 => "Q4_2 (removed from GGML)",
        5 => "Q4_3 (removed from GGML)",
        9 => "Q8_1",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        20 => "IQ4_NL",
        21 => "IQ3_S",
        22 => "IQ2_S",
        23 => "IQ4_XS",
        24 => "I8",
        25 => "I16",
        26 => "I32",
        27 => "I64",
        28 => "F64",
        29 => "IQ1_M",
        31 => "Q4_0_4_4 (removed from GGML)",
        32 => "Q4_0_4_8 (removed from GGML)",
        33 => "Q4_0_8_8 (removed from GGML)",
        34 => "TQ1_0",
        35 => "TQ2_0",
        36 => "IQ4_NL_4_4 (removed from GGML)",
        37 => "IQ4_NL_4_8 (removed from GGML)",
        38 => "IQ4_NL_8_8 (removed from GGML)",
        39 => "MXFP4",
        40 => "NVFP4",
        41 => "Q1_0",
        42 => "Q2_0",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_readable_type_has_its_own_id_and_a_whole_block() {
        for (i, a) in TensorType::ALL.into_iter().enumerate() {
            assert_eq!(TensorType::from_ggml_id(a.ggml_id()), Some(a));
            assert_eq!(ggml_type_name(a.ggml_id()), Some(a.name()));
            assert!(a.block_len().is_power_of_two() && a.block_bytes() >= 2);
            assert!(TensorType::ALL[i + 1..].iter().all(|b| b.ggml_id() != a.ggml_id()));
        }
    }
}
