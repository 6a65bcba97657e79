//! Buffers that grow and are reused.

/// Sets the length of a buffer. Existing values keep their contents, new ones are zero.
pub(crate) fn fit(buffer: &mut Vec<f32>, len: usize) -> &mut [f32] {
    buffer.resize(len, 0.0);
    buffer
}

/// Sets the length of a buffer and fills it with zeros.
pub(crate) fn zeros(buffer: &mut Vec<f32>, len: usize) -> &mut [f32] {
    buffer.clear();
    buffer.resize(len, 0.0);
    buffer
}

/// Copies the given rows of `from`, (row, dim), to `out`.
pub(crate) fn gather(from: &[f32], dim: usize, rows: impl Iterator<Item = usize>, out: &mut Vec<f32>) {
    out.clear();
    rows.for_each(|row| out.extend_from_slice(&from[row * dim..][..dim]));
}
