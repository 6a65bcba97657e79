//! The input of matrix products: rows of floats and, for quantised weights, the same rows as 8-bit blocks.
//!
//! A block is 32 values of one row with a scale (see `quantize.rs`). The sums that quantised weights need for their offsets are kept
//! with it. A block's bits depend on its 32 values only, and are the same on every instruction set. A block with a NaN or an
//! infinity gets a NaN scale, so that every product with it is NaN: quantising must not hide a fault.

use crate::isa::Isa;
use crate::quantize::quantize_row;
use crate::team::{SendPtr, Team};

/// Values in a block.
pub(crate) const BLOCK: usize = 32;

/// Rows of floats, and on demand their 8-bit blocks. Reused from step to step: it grows and never shrinks.
#[derive(Debug, Default)]
pub struct Activations {
    rows: usize,
    k: usize,
    int8: bool,
    f32s: Vec<f32>,          // (row, k)
    q: Vec<i8>,              // (row, block, 32), zeros beyond k
    scale: Vec<f32>,         // (row, block)
    sum: Vec<f32>,           // (row, block): scale * sum of q
    half_sum: Vec<[f32; 2]>, // (row, block, half): scale * sum of q
    neg_sum: Vec<i32>,       // (row, block): minus the sum of q
    neg_half: Vec<[i32; 2]>, // (row, block, half): minus the sum of q
}

/// The shape of [`Activations::fill`].
pub(crate) struct Fill {
    /// Rows.
    pub(crate) rows: usize,
    /// Values in a row.
    pub(crate) k: usize,
    /// Whether 8-bit blocks are wanted.
    pub(crate) int8: bool,
    /// Values that one call of the closure makes: `k`, or a multiple of 32.
    pub(crate) chunk: usize,
    /// Values that are worth a part of their own on the team.
    pub(crate) grain: usize,
}

/// The 8-bit blocks of a run of values within one row.
pub(crate) struct Blocks<'a> {
    pub(crate) q: &'a mut [i8],
    pub(crate) scale: &'a mut [f32],
    pub(crate) sum: &'a mut [f32],
    pub(crate) half_sum: &'a mut [[f32; 2]],
    pub(crate) neg_sum: &'a mut [i32],
    pub(crate) neg_half: &'a mut [[i32; 2]],
}

/// The 8-bit blocks of all rows, for the matrix kernels. Pointers to the first row; rows are `blocks` (of `q`: 32 `blocks`) apart.
#[derive(Clone, Copy)]
pub(crate) struct BlockPtrs {
    pub(crate) q: *const i8,
    pub(crate) scale: *const f32,
    pub(crate) sum: *const f32,
    pub(crate) half_sum: *const [f32; 2],
    pub(crate) neg_sum: *const i32,
    pub(crate) neg_half: *const [i32; 2],
}

fn grow<T: Copy + Default>(v: &mut Vec<T>, len: usize) {
    if v.len() < len {
        v.resize(len, T::default());
    }
}

impl Activations {
    /// No rows.
    pub fn new() -> Self {
        Activations::default()
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values in a row.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Whether the rows are there as 8-bit blocks too.
    pub fn has_int8(&self) -> bool {
        self.int8
    }

    /// The rows as floats. Shape: (row, k).
    pub fn f32_rows(&self) -> &[f32] {
        &self.f32s[..self.rows * self.k]
    }

    /// Blocks in a row, the last one padded with zeros if need be.
    pub(crate) fn blocks(&self) -> usize {
        self.k.div_ceil(BLOCK)
    }

    pub(crate) fn block_ptrs(&self) -> BlockPtrs {
        BlockPtrs {
            q: self.q.as_ptr(),
            scale: self.scale.as_ptr(),
            sum: self.sum.as_ptr(),
            half_sum: self.half_sum.as_ptr(),
            neg_sum: self.neg_sum.as_ptr(),
            neg_half: self.neg_half.as_ptr(),
        }
    }

    /// Replaces the contents: calls `f(row, first, out)` to write the values `first..first + out.len()` of each row, then
    /// quantises them while they are in cache. Calls are spread over the team; `out` holds old values when `f` is called.
    ///
    /// # Panics
    /// If `chunk` is neither `k` nor a positive multiple of 32, or if `f` panics.
    pub(crate) fn fill(&mut self, team: &Team, isa: Isa, shape: Fill, f: impl Fn(usize, usize, &mut [f32]) + Sync) {
        let Fill { rows, k, int8, chunk, grain } = shape;
        assert!(chunk == k || (chunk > 0 && chunk.is_multiple_of(BLOCK)), "chunks hold whole blocks");
        (self.rows, self.k, self.int8) = (rows, k, int8);
        grow(&mut self.f32s, rows * k);
        let blocks = self.blocks();
        if int8 {
            grow(&mut self.q, rows * blocks * BLOCK);
            grow(&mut self.scale, rows * blocks);
            grow(&mut self.sum, rows * blocks);
            grow(&mut self.half_sum, rows * blocks);
            grow(&mut self.neg_sum, rows * blocks);
            grow(&mut self.neg_half, rows * blocks);
        }
        if rows == 0 || k == 0 {
            return;
        }
        let f32s = SendPtr(self.f32s.as_mut_ptr());
        let q = SendPtr(self.q.as_mut_ptr());
        let scale = SendPtr(self.scale.as_mut_ptr());
        let sum = SendPtr(self.sum.as_mut_ptr());
        let half_sum = SendPtr(self.half_sum.as_mut_ptr());
        let neg_sum = SendPtr(self.neg_sum.as_mut_ptr());
        let neg_half = SendPtr(self.neg_half.as_mut_ptr());

        let chunks = k.div_ceil(chunk);
        let items = rows * chunks;
        let per_part = grain.div_ceil(chunk).max(1);
        team.run(items.div_ceil(per_part), &|part| {
            for item in part * per_part..items.min((part + 1) * per_part) {
                let (row, from) = (item / chunks, item % chunks * chunk);
                let len = chunk.min(k - from);
                // SAFETY: row < rows and from + len <= k, so the range lies in f32s; every item has its own, and `self` is
                // borrowed until all parts have returned.
                let out = unsafe { std::slice::from_raw_parts_mut(f32s.get().add(row * k + from), len) };
                f(row, from, out);
                if int8 {
                    let (b0, n) = (row * blocks + from / BLOCK, len.div_ceil(BLOCK));
                    // SAFETY: as above: `from` is a multiple of 32 (or 0), so blocks b0..b0 + n belong to this item alone and
                    // end at most with the row's last block.
                    let blocks = unsafe {
                        Blocks {
                            q: std::slice::from_raw_parts_mut(q.get().add(b0 * BLOCK), n * BLOCK),
                            scale: std::slice::from_raw_parts_mut(scale.get().add(b0), n),
                            sum: std::slice::from_raw_parts_mut(sum.get().add(b0), n),
                            half_sum: std::slice::from_raw_parts_mut(half_sum.get().add(b0), n),
                            neg_sum: std::slice::from_raw_parts_mut(neg_sum.get().add(b0), n),
                            neg_half: std::slice::from_raw_parts_mut(neg_half.get().add(b0), n),
                        }
                    };
                    quantize_row(isa, out, blocks);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that is kept of a row's blocks, as bits.
    fn quantised(isa: Isa, src: &[f32]) -> (Vec<i8>, Vec<[u32; 7]>) {
        let team = Team::new(1);
        let mut x = Activations::new();
        let k = src.len();
        x.fill(&team, isa, Fill { rows: 1, k, int8: true, chunk: k, grain: 1 }, |_, _, out| out.copy_from_slice(src));
        let blocks = (0..x.blocks()).map(|b| {
            let [n0, n1] = x.neg_half[b].map(|n| n as u32);
            let [h0, h1] = x.half_sum[b].map(f32::to_bits);
            [x.scale[b].to_bits(), x.sum[b].to_bits(), x.neg_sum[b] as u32, n0, n1, h0, h1]
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
        for (b, [scale, sum, neg, n0, n1, h0, h1]) in blocks.iter().enumerate() {
            let scale = f32::from_bits(*scale);
            let q = &q[b * 32..][..32];
            for (i, q) in q.iter().enumerate() {
                let x = src.get(b * 32 + i).copied().unwrap_or(0.0);
                assert!((f32::from(*q) * scale - x).abs() <= scale * 0.5001, "value {i} of block {b}");
            }
            let sums = [0, 1].map(|h| q[16 * h..][..16].iter().map(|q| i32::from(*q)).sum::<i32>());
            assert_eq!([*neg as i32, *n0 as i32, *n1 as i32], [-(sums[0] + sums[1]), -sums[0], -sums[1]]);
            assert_eq!(f32::from_bits(*sum), scale * (sums[0] + sums[1]) as f32);
            assert_eq!([*h0, *h1].map(f32::from_bits), sums.map(|s| scale * s as f32));
        }
    }

    #[test]
    fn chunks_and_threads_do_not_show() {
        let (rows, k) = (5, 200);
        let src = noise(rows * k, 3);
        let mut whole = Activations::new();
        let fill = |x: &mut Activations, threads, chunk, grain| {
            let shape = Fill { rows, k, int8: true, chunk, grain };
            x.fill(&Team::new(threads), Isa::Scalar, shape, |row, from, out| {
                out.copy_from_slice(&src[row * k + from..][..out.len()]);
            });
        };
        fill(&mut whole, 1, k, 1 << 20);
        for (threads, chunk, grain) in [(2, 32, 1), (3, 64, 100), (2, k, 1), (3, 160, 500)] {
            let mut x = Activations::new();
            fill(&mut x, threads, chunk, grain);
            assert_eq!(x.f32_rows(), whole.f32_rows());
            assert_eq!((&x.q, &x.scale, &x.sum, &x.neg_half), (&whole.q, &whole.scale, &whole.sum, &whole.neg_half));
        }
    }
}
