//! The input of matrix products: rows of floats and, for quantised weights, the same rows as 8-bit
//! blocks.
//!
//! A block is 32 values of one row with a scale (see `quantize.rs`). Beside it stand the sums that
//! quantised weights need for their offsets. A block's bits depend on its 32 values only, and are
//! the same on every instruction set. A block with a NaN or an infinity gets a NaN scale, so that
//! every product with it is NaN: quantising must not hide a fault.
//!
//! The rows of a tile, which a kernel multiplies by a panel together, lie together: their first
//! blocks, then their second blocks, and so on. So a kernel finds the blocks of all its rows at
//! constant distances from one pointer.

use std::cell::RefCell;

use crate::activations::blocks::{BLOCK, BlockPtrs};
use crate::activations::quantize::quantize_blocks;
use crate::compute::Compute;
use crate::format::InputForms;
use crate::simd::Isa;
use crate::team::{SendPtr, Team};

/// Rows as floats, as 8-bit blocks, or as both. The buffers are reused from step to step: they grow
/// and never shrink.
#[derive(Debug)]
pub struct Activations {
    rows: usize,
    k: usize,
    inputs: InputForms,
    tile: usize,             // rows of a tile
    f32s: Vec<f32>,          // (row, k)
    q: Vec<i8>,              // (tile, block, row of the tile, 32), zeros beyond k
    scale: Vec<f32>,         // (tile, block, row)
    sum: Vec<f32>,           // (tile, block, row): scale * sum of q
    half_sum: Vec<[f32; 2]>, // (tile, block, row, half): scale * sum of q
    neg_sum: Vec<[i32; 2]>,  // (tile, block, row, scaling): minus the sum of q, shifted by NEG_SUM
    neg_half: Vec<[i32; 2]>, // (tile, block, row, half): minus the sum of q, shifted by NEG_HALF
}

/// The order of the 8-bit blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BlockOrder {
    rows: usize,
    blocks: usize,
    tile: usize, // rows of a tile; the last one may have fewer
}

impl BlockOrder {
    /// First row of the tile that holds `row`, and the number of its rows.
    fn tile_of(self, row: usize) -> (usize, usize) {
        let first = row / self.tile * self.tile;
        (first, self.tile.min(self.rows - first))
    }

    /// Index of block `b` of `row`.
    fn place(self, row: usize, b: usize) -> usize {
        let (first, count) = self.tile_of(row);
        first * self.blocks + b * count + (row - first)
    }
}

/// The rows that [`Activations::fill`] makes.
pub(crate) struct FillShape {
    /// Rows.
    pub(crate) rows: usize,
    /// Values in a row.
    pub(crate) k: usize,
    /// The representations to make.
    pub(crate) inputs: InputForms,
    /// Values that make a part worth its claim by a thread of the team.
    pub(crate) grain: usize,
}

thread_local! {
    /// Holds a row while it is made, when only its 8-bit blocks are kept.
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

fn grow<T: Copy + Default>(v: &mut Vec<T>, len: usize) {
    if v.len() < len {
        v.resize(len, T::default());
    }
}

impl Default for Activations {
    fn default() -> Self {
        Activations::new()
    }
}

impl Activations {
    /// No rows.
    pub fn new() -> Self {
        Activations {
            rows: 0,
            k: 0,
            inputs: InputForms::BOTH,
            tile: 1,
            f32s: Vec::new(),
            q: Vec::new(),
            scale: Vec::new(),
            sum: Vec::new(),
            half_sum: Vec::new(),
            neg_sum: Vec::new(),
            neg_half: Vec::new(),
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values in a row.
    pub fn k(&self) -> usize {
        self.k
    }

    /// The representations that these rows have.
    pub fn inputs(&self) -> InputForms {
        self.inputs
    }

    /// The rows as floats. Shape: (row, k); empty if the rows have no floats.
    pub fn f32_rows(&self) -> &[f32] {
        if self.inputs.f32 { &self.f32s[..self.rows * self.k] } else { &[] }
    }

    /// Rows of a tile.
    pub(crate) fn tile(&self) -> usize {
        self.tile
    }

    /// The first block of the first tile, for reading.
    pub(crate) fn block_ptrs(&self) -> BlockPtrs {
        BlockPtrs {
            q: self.q.as_ptr().cast_mut(),
            scale: self.scale.as_ptr().cast_mut(),
            sum: self.sum.as_ptr().cast_mut(),
            half_sum: self.half_sum.as_ptr().cast_mut(),
            neg_sum: self.neg_sum.as_ptr().cast_mut(),
            neg_half: self.neg_half.as_ptr().cast_mut(),
        }
    }

    /// Makes room for `rows` rows of `k` values, and returns their writer. Until it writes them the
    /// contents are old values.
    pub(crate) fn prepare(&mut self, isa: Isa, rows: usize, k: usize, inputs: InputForms) -> ActivationWriter {
        (self.rows, self.k, self.inputs, self.tile) = (rows, k, inputs, isa.tile_rows());
        if inputs.f32 {
            grow(&mut self.f32s, rows * k);
        }
        let blocks = k.div_ceil(BLOCK);
        if inputs.int8 {
            grow(&mut self.q, rows * blocks * BLOCK);
            grow(&mut self.scale, rows * blocks);
            grow(&mut self.sum, rows * blocks);
            grow(&mut self.half_sum, rows * blocks);
            grow(&mut self.neg_sum, rows * blocks);
            grow(&mut self.neg_half, rows * blocks);
        }
        ActivationWriter {
            isa,
            k,
            order: BlockOrder { rows, blocks, tile: self.tile },
            inputs,
            f32s: SendPtr(self.f32s.as_mut_ptr()),
            first: BlockPtrs {
                q: self.q.as_mut_ptr(),
                scale: self.scale.as_mut_ptr(),
                sum: self.sum.as_mut_ptr(),
                half_sum: self.half_sum.as_mut_ptr(),
                neg_sum: self.neg_sum.as_mut_ptr(),
                neg_half: self.neg_half.as_mut_ptr(),
            },
        }
    }

    /// Replaces the contents: calls `f(row, out)` to write each row, then quantises it while it is
    /// in cache. The team shares the calls. `out` holds arbitrary values when `f` is called. `f`
    /// must not fill activations itself.
    ///
    /// # Panics
    /// If `f` panics.
    pub(crate) fn fill(&mut self, team: &Team, isa: Isa, shape: FillShape, f: impl Fn(usize, &mut [f32]) + Sync) {
        let FillShape { rows, k, inputs, grain } = shape;
        let writer = self.prepare(isa, rows, k, inputs);
        if rows == 0 || k == 0 {
            return;
        }
        // Parts are whole tiles: the blocks of a tile's rows share cache lines, which two threads
        // would take from each other.
        let per_part = grain.div_ceil(k).next_multiple_of(self.tile);
        team.run(rows.div_ceil(per_part), &|part| {
            for row in part * per_part..rows.min((part + 1) * per_part) {
                // SAFETY: row < rows, every row is in one part, and `self` is borrowed until all
                // parts have returned.
                unsafe {
                    if inputs.f32 {
                        let out = writer.values(row, 0, k);
                        f(row, out);
                        writer.quantize(row, out);
                    } else {
                        SCRATCH.with_borrow_mut(|out| {
                            grow(out, k);
                            f(row, &mut out[..k]);
                            writer.quantize(row, &out[..k]);
                        });
                    }
                }
            }
        });
    }
}

impl Compute {
    /// Copies `rows`, shape (row, k), to `x`, in the representations `inputs`.
    ///
    /// # Panics
    /// If `k` is 0 or `rows` is not a whole number of rows.
    pub fn load(&self, rows: &[f32], k: usize, inputs: InputForms, x: &mut Activations) {
        assert!(k > 0 && rows.len().is_multiple_of(k), "{} values are no whole number of rows of {k}", rows.len());
        let shape = FillShape { rows: rows.len() / k, k, inputs, grain: 1 << 14 };
        x.fill(self.team(), self.isa(), shape, |row, out| out.copy_from_slice(&rows[row * k..][..k]));
    }
}

/// Writes [`Activations`] from several threads; each thread writes its own ranges of values.
pub(crate) struct ActivationWriter {
    isa: Isa,
    k: usize,
    order: BlockOrder,
    inputs: InputForms,
    f32s: SendPtr<f32>,
    first: BlockPtrs, // the first row's first block
}

// SAFETY: sharing the pointers alone is harmless; each method's caller says which range is its own.
unsafe impl Sync for ActivationWriter {}

impl ActivationWriter {
    /// The floats `from..from + len` of `row`, for writing; only if the activations have floats.
    ///
    /// # Safety
    /// The activations must be borrowed for as long as the writer is used, `row` be one of their
    /// rows and `from + len <= k`; nobody else may use the range as long as the slice lives.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn values(&self, row: usize, from: usize, len: usize) -> &mut [f32] {
        // SAFETY: the range lies in the row; the rest is the caller's.
        unsafe { std::slice::from_raw_parts_mut(self.f32s.get().add(row * self.k + from), len) }
    }

    /// The pointers to block `b` of `row`.
    fn block(&self, row: usize, b: usize) -> BlockPtrs {
        self.first.skip(self.order.place(row, b))
    }

    /// Writes the 8-bit blocks of a whole row, if the activations have blocks. Zeros pad the last
    /// block.
    ///
    /// # Safety
    /// As [`ActivationWriter::values`], for all of the row.
    unsafe fn quantize(&self, row: usize, values: &[f32]) {
        if !self.inputs.int8 {
            return;
        }
        let (whole, rest) = values.as_chunks::<BLOCK>();
        let out = self.block(row, 0);
        let (_, step) = self.order.tile_of(row);
        // SAFETY: the blocks are the row's own, and end with its last one.
        unsafe {
            quantize_blocks(self.isa, whole.as_flattened().as_ptr(), whole.len(), out, step);
            if !rest.is_empty() {
                let mut padded = [0f32; BLOCK];
                padded[..rest.len()].copy_from_slice(rest);
                quantize_blocks(self.isa, padded.as_ptr(), 1, out.skip(whole.len() * step), step);
            }
        }
    }

    /// Writes one block of each of a few rows, `first_row` and on: values and 8-bit block.
    /// `values`: (row, 32), of which `len` are written; `len` is 32, or less at the end of a row.
    ///
    /// # Safety
    /// As [`ActivationWriter::values`] for each of the rows; `from` must be a multiple of 32.
    pub(crate) unsafe fn put_column(&self, first_row: usize, from: usize, len: usize, values: &[[f32; BLOCK]]) {
        if self.inputs.f32 {
            for (r, values) in values.iter().enumerate() {
                // SAFETY: the caller's.
                unsafe { self.values(first_row + r, from, len) }.copy_from_slice(&values[..len]);
            }
        }
        if self.inputs.int8 {
            let mut done = 0;
            while done < values.len() {
                let row = first_row + done;
                let (tile, rows) = self.order.tile_of(row);
                let count = (tile + rows - row).min(values.len() - done);
                // SAFETY: block `from / 32` of each row belongs to the caller's range, and those of
                // a tile's rows lie side by side.
                unsafe {
                    quantize_blocks(
                        self.isa,
                        values[done..].as_flattened().as_ptr(),
                        count,
                        self.block(row, from / BLOCK),
                        1,
                    )
                };
                done += count;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything stored for a row's blocks, as bits.
    fn quantised(isa: Isa, src: &[f32]) -> (Vec<i8>, Vec<[u32; 8]>) {
        let team = Team::new(1);
        let mut x = Activations::new();
        let k = src.len();
        x.fill(&team, isa, FillShape { rows: 1, k, inputs: InputForms::BOTH, grain: 1 }, |_, out| {
            out.copy_from_slice(src)
        });
        let blocks = (0..k.div_ceil(BLOCK)).map(|b| {
            let [n0, n1] = x.neg_half[b].map(|n| n as u32);
            let [s0, s1] = x.neg_sum[b].map(|n| n as u32);
            let [h0, h1] = x.half_sum[b].map(f32::to_bits);
            [x.scale[b].to_bits(), x.sum[b].to_bits(), s0, s1, n0, n1, h0, h1]
        });
        let blocks = blocks.collect();
        (x.q, blocks)
    }

    fn noise(len: usize, seed: u32) -> Vec<f32> {
        let mut state = seed | 1;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as f32 / u32::MAX as f32 - 0.5
        };
        (0..len).map(|_| next()).collect()
    }

    #[test]
    fn sets_quantise_alike() {
        for seed in 0..300 {
            let size = 10f32.powi(seed as i32 % 80 - 42);
            let mut src: Vec<f32> = noise(32 + seed as usize, seed).iter().map(|x| x * size).collect();
            match seed % 10 {
                7 => src[seed as usize / 2] = f32::NAN,
                8 => src[seed as usize / 2] = f32::NEG_INFINITY,
                9 => src[..32].copy_from_slice(&std::array::from_fn::<f32, 32, _>(|i| i as f32 * 0.5 + 111.5)), // ties
                _ => (),
            }
            let expected = quantised(Isa::Scalar, &src);
            for isa in Isa::available() {
                assert!(quantised(isa, &src) == expected, "{isa} differs, seed {seed}");
            }
        }
    }

    #[test]
    fn values_are_within_half_a_step_and_sums_are_theirs() {
        let src = noise(3 * 32 + 7, 5);
        let (q, blocks) = quantised(Isa::Scalar, &src);
        assert_eq!((q.len(), blocks.len()), (4 * 32, 4));
        for (b, [scale, sum, s0, s1, n0, n1, h0, h1]) in blocks.iter().enumerate() {
            let scale = f32::from_bits(*scale);
            let q = &q[b * 32..][..32];
            for (i, q) in q.iter().enumerate() {
                let x = src.get(b * 32 + i).copied().unwrap_or(0.0);
                assert!((f32::from(*q) * scale - x).abs() <= scale * 0.5001, "value {i} of block {b}");
            }
            let sums = [0, 1].map(|h| q[16 * h..][..16].iter().map(|q| i32::from(*q)).sum::<i32>());
            assert_eq!([*s0 as i32, *s1 as i32], [-8 * (sums[0] + sums[1]), -128 * (sums[0] + sums[1])]);
            assert_eq!([*n0 as i32, *n1 as i32], [-32 * sums[0], -32 * sums[1]]);
            assert_eq!(f32::from_bits(*sum), scale * (sums[0] + sums[1]) as f32);
            assert_eq!([*h0, *h1].map(f32::from_bits), sums.map(|s| scale * s as f32));
        }
    }

    #[test]
    fn threads_and_parts_do_not_show() {
        let (rows, k) = (21, 200);
        let src = noise(rows * k, 3);
        let mut whole = Activations::new();
        let fill = |x: &mut Activations, threads, grain| {
            let shape = FillShape { rows, k, inputs: InputForms::BOTH, grain };
            x.fill(&Team::new(threads), Isa::Scalar, shape, |row, out| out.copy_from_slice(&src[row * k..][..k]));
        };
        fill(&mut whole, 1, 1 << 20);
        for (threads, grain) in [(2, 1), (3, 1000), (3, 1)] {
            let mut x = Activations::new();
            fill(&mut x, threads, grain);
            assert_eq!(x.f32_rows(), whole.f32_rows());
            assert_eq!((&x.q, &x.scale, &x.sum, &x.neg_half), (&whole.q, &whole.scale, &whole.sum, &whole.neg_half));
        }
    }
}
