//! Writes safetensors files, one tensor in memory at a time.
//!
//! Format: <https://github.com/huggingface/safetensors#format>. The header states PyTorch's layout,
//! which transformers requires.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use crate::checkpoint::TensorInfo;
use crate::types::TensorType;

/// Writes `tensors` of F32, F16 or BF16. `data` appends the bytes of each tensor, as many as its
/// shape and type say, to an empty buffer.
///
/// # Errors
/// Those of `out` and of `data`; [`io::ErrorKind::InvalidInput`] for a type that the format lacks.
///
/// # Panics
/// If `data` appends another number of bytes.
pub fn write_safetensors(
    out: &mut dyn Write,
    tensors: &[TensorInfo],
    data: &mut dyn FnMut(&TensorInfo, &mut Vec<u8>) -> io::Result<()>,
) -> io::Result<()> {
    let mut header = Map::new();
    header.insert("__metadata__".to_owned(), json!({ "format": "pt" }));
    let mut offset = 0;
    for t in tensors {
        let dtype = match t.ty {
            TensorType::F32 => "F32",
            TensorType::F16 => "F16",
            TensorType::Bf16 => "BF16",
            other => {
                let what = format!("{}: safetensors have no {other}", t.name);
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
        };
        let end = offset + t.size_bytes();
        header.insert(t.name.clone(), json!({ "dtype": dtype, "shape": t.shape, "data_offsets": [offset, end] }));
        offset = end;
    }
    let mut text = Value::Object(header).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    out.write_all(&(text.len() as u64).to_le_bytes())?;
    out.write_all(&text)?;
    let mut bytes = Vec::new();
    for t in tensors {
        bytes.clear();
        data(t, &mut bytes)?;
        assert_eq!(bytes.len(), t.size_bytes(), "the data of {}", t.name);
        out.write_all(&bytes)?;
    }
    Ok(())
}
