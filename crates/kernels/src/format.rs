//! Number formats of weight matrices, as GGUF lays them out.

use std::fmt;

/// The representation that a weight matrix needs of its input rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Input {
    /// Blocks of 32 8-bit values with a scale: quantised weights.
    Int8,
    /// Plain 32-bit floats: float weights.
    F32,
}

/// The representations of its rows that an input of matrix products holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Inputs {
    /// Plain floats, for [`Input::F32`].
    pub f32: bool,
    /// 8-bit blocks, for [`Input::Int8`].
    pub int8: bool,
}

impl Inputs {
    /// Floats only.
    pub const F32: Inputs = Inputs { f32: true, int8: false };
    /// 8-bit blocks only.
    pub const INT8: Inputs = Inputs { f32: false, int8: true };
    /// Both.
    pub const BOTH: Inputs = Inputs { f32: true, int8: true };

    /// Whether these include `input`.
    pub fn has(self, input: Input) -> bool {
        match input {
            Input::F32 => self.f32,
            Input::Int8 => self.int8,
        }
    }
}

/// The number format of a weight matrix. Names and layouts are those of GGUF tensor types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are the documentation: GGUF's own
pub enum Format {
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

impl Format {
    /// Every format.
    pub const ALL: [Format; 13] = [
        Format::F32,
        Format::F16,
        Format::Bf16,
        Format::Q4_0,
        Format::Q4_1,
        Format::Q5_0,
        Format::Q5_1,
        Format::Q8_0,
        Format::Q2K,
        Format::Q3K,
        Format::Q4K,
        Format::Q5K,
        Format::Q6K,
    ];

    /// Values in a block of the file: 1, 32 or 256. The length of a row is a multiple of it.
    pub fn block_len(self) -> usize {
        match self {
            Format::F32 | Format::F16 | Format::Bf16 => 1,
            Format::Q4_0 | Format::Q4_1 | Format::Q5_0 | Format::Q5_1 | Format::Q8_0 => 32,
            Format::Q2K | Format::Q3K | Format::Q4K | Format::Q5K | Format::Q6K => 256,
        }
    }

    /// Bytes of a block of the file.
    pub fn block_bytes(self) -> usize {
        match self {
            Format::F32 => 4,
            Format::F16 | Format::Bf16 => 2,
            Format::Q4_0 => 18,
            Format::Q4_1 => 20,
            Format::Q5_0 => 22,
            Format::Q5_1 => 24,
            Format::Q8_0 => 34,
            Format::Q2K => 84,
            Format::Q3K => 110,
            Format::Q4K => 144,
            Format::Q5K => 176,
            Format::Q6K => 210,
        }
    }

    /// The representation that a matrix of this format needs of its input.
    pub fn input(self) -> Input {
        match self {
            Format::F32 | Format::F16 | Format::Bf16 => Input::F32,
            _ => Input::Int8,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::F32 => "F32",
            Format::F16 => "F16",
            Format::Bf16 => "BF16",
            Format::Q4_0 => "Q4_0",
            Format::Q4_1 => "Q4_1",
            Format::Q5_0 => "Q5_0",
            Format::Q5_1 => "Q5_1",
            Format::Q8_0 => "Q8_0",
            Format::Q2K => "Q2_K",
            Format::Q3K => "Q3_K",
            Format::Q4K => "Q4_K",
            Format::Q5K => "Q5_K",
            Format::Q6K => "Q6_K",
        })
    }
}
