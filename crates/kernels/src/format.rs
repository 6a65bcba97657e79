//! Number formats of weight matrices, as GGUF lays them out.

use std::fmt;

/// The representation that a weight matrix needs of its input rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InputForm {
    /// Blocks of 32 8-bit values with a scale: quantised weights.
    Int8,
    /// Plain 32-bit floats: float weights.
    F32,
}

/// The representations of its rows that an input of matrix products holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InputForms {
    /// Plain floats, for [`InputForm::F32`].
    pub f32: bool,
    /// 8-bit blocks, for [`InputForm::Int8`].
    pub int8: bool,
}

impl InputForms {
    /// Floats only.
    pub const F32: InputForms = InputForms { f32: true, int8: false };
    /// 8-bit blocks only.
    pub const INT8: InputForms = InputForms { f32: false, int8: true };
    /// Both.
    pub const BOTH: InputForms = InputForms { f32: true, int8: true };

    /// Whether these include `input`.
    pub fn has(self, input: InputForm) -> bool {
        match input {
            InputForm::F32 => self.f32,
            InputForm::Int8 => self.int8,
        }
    }
}

/// The number format of a weight matrix. Names and layouts are those of GGUF tensor types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are the documentation: GGUF's own
pub enum WeightFormat {
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

impl WeightFormat {
    /// Every format.
    pub const ALL: [WeightFormat; 13] = [
        WeightFormat::F32,
        WeightFormat::F16,
        WeightFormat::Bf16,
        WeightFormat::Q4_0,
        WeightFormat::Q4_1,
        WeightFormat::Q5_0,
        WeightFormat::Q5_1,
        WeightFormat::Q8_0,
        WeightFormat::Q2K,
        WeightFormat::Q3K,
        WeightFormat::Q4K,
        WeightFormat::Q5K,
        WeightFormat::Q6K,
    ];

    /// Values in a block of the file: 1, 32 or 256. The length of a row is a multiple of it.
    pub fn block_len(self) -> usize {
        match self {
            WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 => 1,
            WeightFormat::Q4_0 | WeightFormat::Q4_1 | WeightFormat::Q5_0 | WeightFormat::Q5_1 | WeightFormat::Q8_0 => {
                32
            }
            WeightFormat::Q2K | WeightFormat::Q3K | WeightFormat::Q4K | WeightFormat::Q5K | WeightFormat::Q6K => 256,
        }
    }

    /// Bytes of a block of the file.
    pub fn block_bytes(self) -> usize {
        match self {
            WeightFormat::F32 => 4,
            WeightFormat::F16 | WeightFormat::Bf16 => 2,
            WeightFormat::Q4_0 => 18,
            WeightFormat::Q4_1 => 20,
            WeightFormat::Q5_0 => 22,
            WeightFormat::Q5_1 => 24,
            WeightFormat::Q8_0 => 34,
            WeightFormat::Q2K => 84,
            WeightFormat::Q3K => 110,
            WeightFormat::Q4K => 144,
            WeightFormat::Q5K => 176,
            WeightFormat::Q6K => 210,
        }
    }

    /// The representation that a matrix of this format needs of its input.
    pub fn input(self) -> InputForm {
        match self {
            WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 => InputForm::F32,
            _ => InputForm::Int8,
        }
    }
}

impl fmt::Display for WeightFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WeightFormat::F32 => "F32",
            WeightFormat::F16 => "F16",
            WeightFormat::Bf16 => "BF16",
            WeightFormat::Q4_0 => "Q4_0",
            WeightFormat::Q4_1 => "Q4_1",
            WeightFormat::Q5_0 => "Q5_0",
            WeightFormat::Q5_1 => "Q5_1",
            WeightFormat::Q8_0 => "Q8_0",
            WeightFormat::Q2K => "Q2_K",
            WeightFormat::Q3K => "Q3_K",
            WeightFormat::Q4K => "Q4_K",
            WeightFormat::Q5K => "Q5_K",
            WeightFormat::Q6K => "Q6_K",
        })
    }
}
