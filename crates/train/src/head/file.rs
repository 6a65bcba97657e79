//! A head's file: safetensors, read by `selfspec_model::ExitHead`, and here when a training starts
//! from a head.
//!
//! Norms and biases are F32. Matrices are blocks of Q8_0 as bytes, (rows, k / 32 * 34), each block
//! an f16 scale and 32 8-bit values, or BF16.

use std::collections::HashMap;
use std::path::Path;

use half::{bf16, f16};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use selfspec_model::{ExitHeadCard, TokenId};

use crate::error::TrainError;
use crate::layer::layout::Layout;
use crate::steps::checkpoint::write_whole;

/// The number format of the matrices in a head's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeadPrecision {
    /// Blocks of 32 8-bit values with a scale.
    #[default]
    Q8_0,
    /// 16-bit floats.
    Bf16,
}

const BLOCK: usize = 32;

/// Writes a head's file: the values of `layout`, and the draft vocabulary, ascending.
pub(crate) fn write(
    path: &Path,
    card: &ExitHeadCard,
    layout: &Layout,
    values: &[f32],
    vocab: &[TokenId],
    precision: HeadPrecision,
) -> Result<(), TrainError> {
    let mut stored: Vec<(&str, Dtype, Vec<usize>, Vec<u8>)> = Vec::new();
    for slot in layout.slots() {
        let (values, name) = (&values[slot.place.clone()], slot.tensor.name());
        if !slot.is_matrix() {
            stored.push((name, Dtype::F32, vec![slot.cols], values.iter().flat_map(|x| x.to_le_bytes()).collect()));
            continue;
        }
        match precision {
            HeadPrecision::Bf16 => {
                let bytes = values.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect();
                stored.push((name, Dtype::BF16, vec![slot.rows, slot.cols], bytes));
            }
            HeadPrecision::Q8_0 => {
                if !slot.cols.is_multiple_of(BLOCK) {
                    return Err(TrainError::Blocks { tensor: name, cols: slot.cols, block: BLOCK });
                }
                let shape = vec![slot.rows, slot.cols / BLOCK * (2 + BLOCK)];
                stored.push((name, Dtype::U8, shape, values.chunks_exact(BLOCK).flat_map(quantize).collect()));
            }
        }
    }
    stored.push(("draft_vocab", Dtype::I32, vec![vocab.len()], vocab.iter().flat_map(|t| t.to_le_bytes()).collect()));
    let views: HashMap<_, _> = stored
        .iter()
        .map(|(name, ty, shape, bytes)| {
            ((*name).to_owned(), TensorView::new(*ty, shape.clone(), bytes).expect("shape and bytes agree"))
        })
        .collect();
    let card = serde_json::to_string(card).expect("a card is plain data");
    let metadata = HashMap::from([(ExitHeadCard::KEY.to_owned(), card)]);
    let bytes = safetensors::serialize(views, Some(metadata)).map_err(|e| TrainError::bad(path, e))?;
    write_whole(path, &bytes)
}

/// Reads the values of `layout` from a head's file, in the file's precision, and its card.
pub(crate) fn read(path: &Path, layout: &Layout) -> Result<(Vec<f32>, ExitHeadCard), TrainError> {
    let bytes = std::fs::read(path).map_err(TrainError::io("read", path))?;
    let card = ExitHeadCard::read(&bytes).map_err(|e| TrainError::bad(path, e))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|e| TrainError::bad(path, e))?;
    let mut values = vec![0.0; layout.len()];
    for slot in layout.slots() {
        let (name, to) = (slot.tensor.name(), &mut values[slot.place.clone()]);
        let tensor = file.tensor(name).map_err(|_| TrainError::bad(path, format!("tensor `{name}` is missing")))?;
        let blocks = [slot.rows, slot.cols / BLOCK * (2 + BLOCK)];
        let (shape, data) = (tensor.shape(), tensor.data());
        match tensor.dtype() {
            Dtype::F32 if !slot.is_matrix() && shape == [slot.cols] => {
                let from = data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
                to.iter_mut().zip(from).for_each(|(to, x)| *to = x);
            }
            Dtype::BF16 if slot.is_matrix() && shape == [slot.rows, slot.cols] => {
                let from = data.chunks_exact(2).map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32());
                to.iter_mut().zip(from).for_each(|(to, x)| *to = x);
            }
            Dtype::U8 if slot.is_matrix() && slot.cols.is_multiple_of(BLOCK) && shape == blocks => {
                for (to, block) in to.chunks_exact_mut(BLOCK).zip(data.chunks_exact(2 + BLOCK)) {
                    let scale = f16::from_le_bytes([block[0], block[1]]).to_f32();
                    to.iter_mut().zip(&block[2..]).for_each(|(to, q)| *to = scale * f32::from(*q as i8));
                }
            }
            ty => {
                let wanted = [slot.rows, slot.cols];
                let why = format!("tensor `{name}` is {ty:?} {shape:?}, which cannot be {wanted:?}");
                return Err(TrainError::bad(path, why));
            }
        }
        if !to.iter().all(|x| x.is_finite()) {
            return Err(TrainError::bad(path, format!("tensor `{name}` holds a number that is not finite")));
        }
    }
    Ok((values, card))
}

/// A block of Q8_0, rounded to the nearest of 255 values that are symmetric about 0.
fn quantize(block: &[f32]) -> [u8; 2 + BLOCK] {
    let largest = block.iter().fold(0.0f32, |a, b| a.max(b.abs()));
    let scale = f16::from_f32(largest / 127.0);
    let factor = if scale.to_f32() > 0.0 { 1.0 / scale.to_f32() } else { 0.0 };
    let mut bytes = [0; 2 + BLOCK];
    bytes[..2].copy_from_slice(&scale.to_le_bytes());
    for (to, x) in bytes[2..].iter_mut().zip(block) {
        *to = (x * factor).round().clamp(-127.0, 127.0) as i8 as u8;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_within_half_a_step() {
        for scale in [1.0f32, 1e-2, 300.0, 0.0] {
            let block: Vec<f32> = (0..32).map(|i| ((i * 7) as f32).sin() * scale).collect();
            let bytes = quantize(&block);
            let step = f16::from_le_bytes([bytes[0], bytes[1]]).to_f32();
            for (byte, x) in bytes[2..].iter().zip(&block) {
                let error = (f32::from(*byte as i8) * step - x).abs();
                assert!(error <= 0.51 * step + 1e-9, "{x}: off by {error} at a step of {step}");
            }
        }
    }
}
