//! Quantises floats to Q8_0: blocks of 32 values, each an f16 scale and 32 signed bytes (GGUF
//! specification, tensor types).

use half::f16;

use crate::error::KernelError;
use crate::format::WeightFormat;
use crate::matmul::panel::PanelMatrix;
use crate::team::Team;

/// Appends `values` in Q8_0 to `out`. A block's scale is its largest magnitude over 127, as f16.
/// Its integers are the values over that scale, rounded to the nearest. Values that came from Q8_0,
/// with a magnitude of 127 in each block, give the same bytes again.
///
/// # Panics
/// If `values` is no whole number of blocks.
pub fn write_q8_0(values: &[f32], out: &mut Vec<u8>) {
    assert!(values.len().is_multiple_of(32), "{} values are no whole number of blocks", values.len());
    for block in values.chunks_exact(32) {
        let largest = block.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        let scale = f16::from_f32(largest / 127.0);
        let inverse = if scale > f16::ZERO { 1.0 / scale.to_f32() } else { 0.0 };
        out.extend_from_slice(&scale.to_le_bytes());
        out.extend(block.iter().map(|x| (x * inverse).round_ties_even().clamp(-127.0, 127.0) as i8 as u8));
    }
}

impl PanelMatrix {
    /// A new matrix of the given rows, in this order: in Q8_0, or in F16 if the length of a row is
    /// not a multiple of 32.
    ///
    /// # Errors
    /// `rows` is empty, or there is no memory.
    ///
    /// # Panics
    /// If a row is not in the matrix.
    pub fn select(&self, team: &Team, rows: &[u32]) -> Result<PanelMatrix, KernelError> {
        let format = if self.k().is_multiple_of(32) { WeightFormat::Q8_0 } else { WeightFormat::F16 };
        let mut bytes = Vec::with_capacity(rows.len() * self.k() / format.block_len() * format.block_bytes());
        let mut values = vec![0.0; self.k()];
        for row in rows {
            self.row(*row as usize, &mut values);
            match format {
                WeightFormat::Q8_0 => write_q8_0(&values, &mut bytes),
                _ => bytes.extend(values.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes())),
            }
        }
        PanelMatrix::pack(team, format, rows.len(), self.k(), &bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_q8_0_matrix_come_out_as_they_were() {
        let team = Team::new(1);
        let values: Vec<f32> = (0..40 * 64).map(|i| ((i * 7919 % 255) as f32 - 127.0) * 0.125).collect();
        let mut bytes = Vec::new();
        write_q8_0(&values, &mut bytes);
        let whole = PanelMatrix::pack(&team, WeightFormat::Q8_0, 40, 64, &bytes).expect("sound");
        let some = whole.select(&team, &[39, 0, 17]).expect("sound");
        let (mut a, mut b) = ([0.0; 64], [0.0; 64]);
        for (i, row) in [39, 0, 17].into_iter().enumerate() {
            whole.row(row, &mut a);
            some.row(i, &mut b);
            assert_eq!(a, b);
            let off = a.iter().zip(&values[row * 64..]).map(|(x, y)| (x - y).abs()).fold(0.0f32, f32::max);
            assert!(off <= 0.07, "row {row} is off by {off}");
        }
        assert!(whole.select(&team, &[]).is_err());
    }

    #[test]
    fn blocks_of_zeros_and_rows_of_other_lengths_have_their_form() {
        let mut bytes = Vec::new();
        write_q8_0(&[0.0; 32], &mut bytes);
        assert_eq!(bytes, [0; 34]);
        let values: Vec<u8> = (0..3 * 40).flat_map(|i| (i as f32).to_le_bytes()).collect();
        let team = Team::new(1);
        let whole = PanelMatrix::pack(&team, WeightFormat::F32, 3, 40, &values).expect("sound");
        let last = whole.select(&team, &[2]).expect("sound");
        assert_eq!((last.format(), last.n()), (WeightFormat::F16, 1));
        let mut row = [0.0; 40];
        last.row(0, &mut row);
        assert_eq!((row[0], row[39]), (80.0, 119.0));
    }
}
