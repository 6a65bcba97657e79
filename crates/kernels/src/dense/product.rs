//! The dense product: blocks of left-hand rows, packed as they come, by a packed right-hand matrix.
//!
//! The inner loop keeps a tile of 12 rows by 2 vectors in registers, or 6 rows where registers are
//! few. On AVX-512 it runs near the processor's peak rate. The order of a sum depends on k only, so
//! the number of rows never changes a row's bits.

use std::ops::Range;

use crate::dense::packed::{AlignedFloats, MatrixView, PANEL_VECTORS, PackedMatrix, PackedPart, WIDEST};
use crate::simd::{Lanes, per_isa};

/// Most values of k in a block: several blocks of a panel and of a tile fit the second-level cache.
const K_BLOCK: usize = 640;
/// Most rows in a block: its packed rows stay in the second-level cache.
const ROW_BLOCK: usize = 480;

/// What happens to the previous contents of a product's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accumulate {
    /// The product overwrites them.
    Overwrite,
    /// The product is added to them.
    Add,
}

/// Memory that products reuse.
#[derive(Debug, Default)]
pub struct ProductScratch {
    rows: AlignedFloats,
}

/// `out = a b`, or `out += a b`: `a` is (m, k) and `b` (k, n).
///
/// `out`: (m, stride), of which the first n values of each row are written. The bits of a row of
/// `out` depend on its own row of `a`, on `b` and on its previous contents, never on m.
///
/// # Panics
/// If the shapes do not fit.
pub fn multiply(
    a: MatrixView<'_>,
    b: PackedPart<'_>,
    accumulate: Accumulate,
    out: &mut [f32],
    stride: usize,
    scratch: &mut ProductScratch,
) {
    let (m, k, n) = (a.rows, b.k, b.n);
    assert!(a.cols == k, "a product of ({m}, {}) and ({k}, {n})", a.cols);
    if m == 0 || n == 0 {
        return;
    }
    assert!(n <= stride && (m - 1) * stride + n <= out.len(), "{m} rows of {n} values in {}", out.len());
    if k == 0 {
        if accumulate == Accumulate::Overwrite {
            (0..m).for_each(|i| out[i * stride..][..n].fill(0.0));
        }
        return;
    }
    product(b.packed.isa, a, b, accumulate, out, stride, scratch);
}

per_isa! {
    fn product(
        a: MatrixView<'_>,
        b: PackedPart<'_>,
        accumulate: Accumulate,
        out: &mut [f32],
        stride: usize,
        scratch: &mut ProductScratch,
    ) = |l| by_blocks(l, a, b, accumulate, out, stride, scratch)
}

#[inline(always)]
fn by_blocks<L: Lanes>(
    l: L,
    a: MatrixView<'_>,
    b: PackedPart<'_>,
    accumulate: Accumulate,
    out: &mut [f32],
    stride: usize,
    scratch: &mut ProductScratch,
) {
    if L::WIDTH == WIDEST {
        by_tiles::<L, 12>(l, a, b, accumulate, out, stride, scratch);
    } else {
        by_tiles::<L, 6>(l, a, b, accumulate, out, stride, scratch);
    }
}

/// `total` cut into the fewest pieces of at most `most`, all of about one size.
fn even(total: usize, most: usize) -> usize {
    total.div_ceil(total.div_ceil(most))
}

#[inline(always)]
fn by_tiles<L: Lanes, const ROWS: usize>(
    l: L,
    a: MatrixView<'_>,
    b: PackedPart<'_>,
    accumulate: Accumulate,
    out: &mut [f32],
    stride: usize,
    scratch: &mut ProductScratch,
) {
    let (m, k, n) = (a.rows, b.k, b.n);
    let PackedMatrix { k: whole_k, width, ref data, .. } = *b.packed;
    assert!(width == PANEL_VECTORS * L::WIDTH, "panels of {width} columns for vectors of {}", L::WIDTH);
    let k_block = even(k, K_BLOCK);
    let row_block = even(m, ROW_BLOCK).next_multiple_of(ROWS);
    scratch.rows.resize(row_block * k_block);
    for from_k in (0..k).step_by(k_block) {
        let len = k_block.min(k - from_k);
        let add = accumulate == Accumulate::Add || from_k > 0;
        for first in (0..m).step_by(row_block) {
            let count = row_block.min(m - first);
            let tiles = count.div_ceil(ROWS);
            let packed = &mut scratch.rows.values_mut()[..tiles * ROWS * len];
            pack_rows::<ROWS>(a, first..first + count, from_k..from_k + len, packed);
            for p in 0..n.div_ceil(width) {
                let panel = &data.values()[((b.panel + p) * whole_k + b.from_k + from_k) * width..][..len * width];
                let (column, columns) = (p * width, width.min(n - p * width));
                for (t, tile) in packed.chunks_exact(ROWS * len).enumerate() {
                    let sums = tile_product::<L, ROWS>(l, tile, panel);
                    let row = first + t * ROWS;
                    for (i, sums) in sums.iter().enumerate().take(m.min(first + count) - row) {
                        let out = &mut out[(row + i) * stride + column..][..columns];
                        put(l, sums, add, out);
                    }
                }
            }
        }
    }
}

/// Rows `rows` of `a` at `ks`, in tiles of `ROWS`. Shape of `packed`: (tile, k, row), missing rows
/// as zeros.
#[inline(always)]
fn pack_rows<const ROWS: usize>(a: MatrixView<'_>, rows: Range<usize>, ks: Range<usize>, packed: &mut [f32]) {
    let len = ks.len();
    for (t, tile) in packed.chunks_exact_mut(ROWS * len).enumerate() {
        let from = rows.start + t * ROWS;
        let count = ROWS.min(rows.end - from);
        if a.transposed {
            for (k, to) in ks.clone().zip(tile.chunks_exact_mut(ROWS)) {
                to[..count].copy_from_slice(&a.data[k * a.stride + from..][..count]);
                to[count..].fill(0.0);
            }
        } else {
            if count < ROWS {
                tile.fill(0.0);
            }
            for i in 0..count {
                let row = &a.data[(from + i) * a.stride + ks.start..][..len];
                for (to, x) in tile.as_chunks_mut::<ROWS>().0.iter_mut().zip(row) {
                    to[i] = *x;
                }
            }
        }
    }
}

/// The product of a tile, (k, row), and a panel, (k, width): for each row its `PANEL_VECTORS`
/// vectors.
#[inline(always)]
fn tile_product<L: Lanes, const ROWS: usize>(l: L, tile: &[f32], panel: &[f32]) -> [[L::V; PANEL_VECTORS]; ROWS] {
    let (tile, _) = tile.as_chunks::<ROWS>();
    assert!(panel.len() == tile.len() * PANEL_VECTORS * L::WIDTH);
    let mut sums = [[l.zero(); PANEL_VECTORS]; ROWS];
    for (k, a) in tile.iter().enumerate() {
        let mut b = [l.zero(); PANEL_VECTORS];
        for (v, b) in b.iter_mut().enumerate() {
            // SAFETY: vector v of the panel's row k, which the panel has for every k of the tile.
            *b = unsafe { l.load_at(panel.as_ptr().add((k * PANEL_VECTORS + v) * L::WIDTH)) };
        }
        for (sums, a) in sums.iter_mut().zip(a) {
            let a = l.splat(*a);
            for (sum, b) in sums.iter_mut().zip(b) {
                *sum = l.fma(a, b, *sum);
            }
        }
    }
    sums
}

/// Writes one row of a tile's product to `out`, at most `PANEL_VECTORS` vectors of values, or adds
/// it.
#[inline(always)]
fn put<L: Lanes>(l: L, sums: &[L::V; PANEL_VECTORS], add: bool, out: &mut [f32]) {
    for (out, sum) in out.chunks_mut(L::WIDTH).zip(sums) {
        l.store(if add { l.add(l.load(out), *sum) } else { *sum }, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Isa;

    /// Numbers in -1..1.
    fn noise(seed: u32, len: usize) -> Vec<f32> {
        let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as f32 / (1u32 << 31) as f32 - 1.0
        };
        (0..len).map(|_| next()).collect()
    }

    fn naive(
        a: &dyn Fn(usize, usize) -> f32,
        b: &dyn Fn(usize, usize) -> f32,
        m: usize,
        k: usize,
        n: usize,
    ) -> Vec<f64> {
        let cell = |i: usize, j: usize| (0..k).map(|q| f64::from(a(i, q)) * f64::from(b(q, j))).sum();
        (0..m * n).map(|at| cell(at / n, at % n)).collect()
    }

    #[test]
    fn products_are_those_of_f64_in_every_layout() {
        for (m, k, n) in [(1, 1, 1), (13, 7, 33), (12, 320, 32), (250, 641, 65), (5, 0, 4), (97, 64, 100)] {
            let (a, b) = (noise(1, m * k), noise(2, k * n));
            let start = noise(3, m * (n + 3));
            let expected = naive(&|i, q| a[i * k + q], &|q, j| b[q * n + j], m, k, n);
            let (mut at, mut bt) = (vec![0.0; m * k], vec![0.0; k * n]);
            (0..m * k).for_each(|i| at[i % k * m + i / k] = a[i]);
            (0..k * n).for_each(|i| bt[i % n * k + i / n] = b[i]);
            for view_a in [MatrixView::new(&a, m, k), MatrixView::new(&at, k, m).transposed()] {
                for view_b in [MatrixView::new(&b, k, n), MatrixView::new(&bt, n, k).transposed()] {
                    for (accumulate, isa) in [Accumulate::Overwrite, Accumulate::Add]
                        .into_iter()
                        .flat_map(|accumulate| Isa::available().into_iter().map(move |isa| (accumulate, isa)))
                    {
                        let mut out = start.clone();
                        let packed = PackedMatrix::for_isa(isa, view_b);
                        multiply(view_a, packed.all(), accumulate, &mut out, n + 3, &mut ProductScratch::default());
                        for (at, (got, was)) in out.iter().zip(&start).enumerate() {
                            let (i, j) = (at / (n + 3), at % (n + 3));
                            if j >= n {
                                assert_eq!(got, was, "outside");
                                continue;
                            }
                            let base = if accumulate == Accumulate::Add { f64::from(*was) } else { 0.0 };
                            let error = f64::from(*got) - base - expected[i * n + j];
                            let bound = 1e-5 * (k as f64).sqrt().max(1.0);
                            assert!(error.abs() < bound, "{isa} {m} {k} {n} at {i} {j}: {error}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_part_is_a_smaller_matrix() {
        let width = PackedMatrix::panel_width();
        let (m, k, n) = (9, 50, 3 * width + 5);
        let (a, b) = (noise(4, m * k), noise(5, k * n));
        let packed = PackedMatrix::of(MatrixView::new(&b, k, n));
        for (ks, ns) in [(0..50, 0..n), (7..41, width..2 * width + 3), (3..4, 2 * width..n), (5..5, 0..4)] {
            let len = ks.len();
            let expected = naive(&|i, q| a[i * k + q], &|q, j| b[(ks.start + q) * n + ns.start + j], m, len, ns.len());
            let mut out = vec![7.0; m * ns.len()];
            let part = packed.part(ks.clone(), ns.clone());
            let rows = MatrixView::strided(&a, m, len, k);
            multiply(rows, part, Accumulate::Overwrite, &mut out, ns.len(), &mut ProductScratch::default());
            assert!(out.iter().zip(&expected).all(|(o, e)| (f64::from(*o) - e).abs() < 1e-4), "{ks:?} {ns:?}");
        }
    }

    #[test]
    fn a_row_does_not_depend_on_how_many_there_are() {
        let (k, n) = (700, 70);
        let (a, b) = (noise(6, 300 * k), noise(7, k * n));
        for isa in Isa::available() {
            let packed = PackedMatrix::for_isa(isa, MatrixView::new(&b, k, n));
            let run = |m: usize| {
                let mut out = vec![0.0; m * n];
                let rows = MatrixView::new(&a, m, k);
                multiply(rows, packed.all(), Accumulate::Overwrite, &mut out, n, &mut ProductScratch::default());
                out
            };
            let whole = run(300);
            for m in [1, 12, 37, 250] {
                assert!(run(m) == whole[..m * n], "{isa}, {m} rows");
            }
        }
    }
}
