//! Matrix products in f32, for many rows at a time.
//!
//! The right-hand matrix is packed into panels of two vectors of columns once and used for many left-hand ones; blocks of the left-hand one
//! are packed as they come. The inner loop keeps a tile of 12 rows by 2 vectors in registers (6 rows where registers are few): on AVX-512
//! it runs near the processor's rate. Every sum is taken in the same order whatever the number of rows or threads.

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};

/// Most values of k in a block: a panel's block and a tile's fit the second cache many times over.
const K_BLOCK: usize = 640;
/// Most rows in a block: its packed rows stay in the second cache.
const ROW_BLOCK: usize = 480;
/// Vectors of columns in a panel.
const PANEL_VECTORS: usize = 2;
/// Floats in the widest vector of any processor.
const WIDEST: usize = 16;

/// A matrix in memory, row by row or, transposed, column by column.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    stride: usize, // from row to row, or from column to column
    transposed: bool,
}

impl<'a> View<'a> {
    /// `rows` by `cols`, rows one after the other.
    pub(crate) fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// `rows` by `cols`, each row `stride` after the one before.
    pub(crate) fn strided(data: &'a [f32], rows: usize, cols: usize, stride: usize) -> Self {
        assert!(cols <= stride, "rows of {cols} values every {stride}");
        assert!(rows == 0 || (rows - 1) * stride + cols <= data.len(), "{rows} rows in {} values", data.len());
        View { data, rows, cols, stride, transposed: false }
    }

    /// The same values as a matrix of `cols` by `rows`.
    pub(crate) fn transposed(self) -> Self {
        View { rows: self.cols, cols: self.rows, transposed: !self.transposed, ..self }
    }
}

/// Floats that begin on a cache line.
#[derive(Default)]
struct Aligned {
    store: Vec<f32>,
    len: usize,
}

impl Aligned {
    /// Makes room for `len` values, whose content is not defined.
    fn resize(&mut self, len: usize) {
        if self.store.len() < len + WIDEST {
            self.store = vec![0.0; len + WIDEST];
        }
        self.len = len;
    }

    fn start(&self) -> usize {
        (64 - self.store.as_ptr() as usize % 64) % 64 / size_of::<f32>()
    }

    fn values(&self) -> &[f32] {
        self.store.get(self.start()..).map_or(&[], |s| &s[..self.len])
    }

    fn values_mut(&mut self) -> &mut [f32] {
        let start = self.start();
        &mut self.store[start..start + self.len]
    }
}

/// A right-hand matrix, (k, n), in panels of columns.
#[derive(Default)]
pub(crate) struct Packed {
    k: usize,
    n: usize,
    width: usize,  // columns in a panel
    data: Aligned, // (panel, k, width), the last panel padded with zeros
}

/// A part of a packed matrix: some rows and some whole panels of columns.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    packed: &'a Packed,
    from_k: usize,
    k: usize,
    panel: usize,
    n: usize,
}

/// Memory that products reuse.
#[derive(Default)]
pub(crate) struct Scratch {
    rows: Aligned,
}

impl Packed {
    /// Columns in a panel on this processor: a part's columns begin at a multiple of it.
    pub(crate) fn panel_width() -> usize {
        struct Lanes;
        impl WithSimd for Lanes {
            type Output = usize;
            #[inline(always)]
            fn with_simd<S: Simd>(self, _: S) -> usize {
                S::F32_LANES
            }
        }
        PANEL_VECTORS * Arch::new().dispatch(Lanes)
    }

    /// Packs `matrix`, (k, n), in new memory.
    pub(crate) fn of(matrix: View<'_>) -> Packed {
        let mut packed = Packed::default();
        packed.pack(matrix);
        packed
    }

    /// Packs `matrix`, (k, n), over what was there.
    pub(crate) fn pack(&mut self, matrix: View<'_>) {
        let width = Self::panel_width();
        (self.k, self.n, self.width) = (matrix.rows, matrix.cols, width);
        let (k, n) = (self.k, self.n);
        self.data.resize(n.div_ceil(width) * width * k);
        if k == 0 {
            return;
        }
        for (p, panel) in self.data.values_mut().chunks_exact_mut(width * k).enumerate() {
            let from = p * width;
            let filled = width.min(n - from);
            if matrix.transposed {
                if filled < width {
                    panel.fill(0.0);
                }
                // A few values of k at a time, so that the lines that are written stay near.
                for (i, to) in panel.chunks_mut(width * WIDEST).enumerate() {
                    for j in 0..filled {
                        let column = &matrix.data[(from + j) * matrix.stride + i * WIDEST..];
                        for (to, x) in to.chunks_exact_mut(width).zip(column) {
                            to[j] = *x;
                        }
                    }
                }
            } else {
                for (i, to) in panel.chunks_exact_mut(width).enumerate() {
                    to[..filled].copy_from_slice(&matrix.data[i * matrix.stride + from..][..filled]);
                    to[filled..].fill(0.0);
                }
            }
        }
    }

    /// The whole matrix.
    pub(crate) fn all(&self) -> Part<'_> {
        Part { packed: self, from_k: 0, k: self.k, panel: 0, n: self.n }
    }

    /// Rows `k` and columns `n`, which begin at a multiple of the panel's width.
    pub(crate) fn part(&self, k: Range<usize>, n: Range<usize>) -> Part<'_> {
        assert!(k.start <= k.end && k.end <= self.k, "rows {k:?} of {}", self.k);
        assert!(
            n.start <= n.end && n.end <= self.n && n.start.is_multiple_of(self.width),
            "columns {n:?} of {}",
            self.n
        );
        Part { packed: self, from_k: k.start, k: k.len(), panel: n.start / self.width, n: n.len() }
    }
}

/// What becomes of what was in the product's place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Into {
    /// It is overwritten.
    Set,
    /// The product is added to it.
    Add,
}

/// `out = a b` or `out += a b`: `a` is (m, k), `b` (k, n), and `out` has m rows of n values, each `stride` after the one before.
///
/// # Panics
/// If the shapes do not fit.
pub(crate) fn multiply(a: View<'_>, b: Part<'_>, into: Into, out: &mut [f32], stride: usize, scratch: &mut Scratch) {
    let (m, k, n) = (a.rows, b.k, b.n);
    assert!(a.cols == k, "a product of ({m}, {}) and ({k}, {n})", a.cols);
    if m == 0 || n == 0 {
        return;
    }
    assert!(n <= stride && (m - 1) * stride + n <= out.len(), "{m} rows of {n} values in {}", out.len());
    if k == 0 {
        if into == Into::Set {
            (0..m).for_each(|i| out[i * stride..][..n].fill(0.0));
        }
        return;
    }
    Arch::new().dispatch(Product { a, b, into, out, stride, scratch });
}

struct Product<'a> {
    a: View<'a>,
    b: Part<'a>,
    into: Into,
    out: &'a mut [f32],
    stride: usize,
    scratch: &'a mut Scratch,
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        if S::F32_LANES == WIDEST {
            run::<S, 12>(simd, self);
        } else {
            run::<S, 6>(simd, self);
        }
    }
}

/// `total` cut into the fewest pieces of at most `most`, all of about one size.
fn even(total: usize, most: usize) -> usize {
    total.div_ceil(total.div_ceil(most))
}

#[inline(always)]
fn run<S: Simd, const ROWS: usize>(simd: S, job: Product<'_>) {
    let Product { a, b, into, out, stride, scratch } = job;
    let (m, k, n) = (a.rows, b.k, b.n);
    let Packed { k: whole_k, width, ref data, .. } = *b.packed;
    let k_block = even(k, K_BLOCK);
    let row_block = even(m, ROW_BLOCK).next_multiple_of(ROWS);
    scratch.rows.resize(row_block * k_block);
    for from_k in (0..k).step_by(k_block) {
        let len = k_block.min(k - from_k);
        let add = into == Into::Add || from_k > 0;
        for first in (0..m).step_by(row_block) {
            let count = row_block.min(m - first);
            let tiles = count.div_ceil(ROWS);
            let packed = &mut scratch.rows.values_mut()[..tiles * ROWS * len];
            pack_rows::<ROWS>(a, first..first + count, from_k..from_k + len, packed);
            for p in 0..n.div_ceil(width) {
                let panel = &data.values()[((b.panel + p) * whole_k + b.from_k + from_k) * width..][..len * width];
                let (column, columns) = (p * width, width.min(n - p * width));
                for (t, tile) in packed.chunks_exact(ROWS * len).enumerate() {
                    let sums = tile_product::<S, ROWS>(simd, tile, panel);
                    let row = first + t * ROWS;
                    for (i, sums) in sums.iter().enumerate().take(m.min(first + count) - row) {
                        let out = &mut out[(row + i) * stride + column..][..columns];
                        put(simd, sums, width, add, out);
                    }
                }
            }
        }
    }
}

/// Rows `rows` of `a` at `ks`, in tiles of `ROWS`: (tile, k, row), missing rows as zeros.
#[inline(always)]
fn pack_rows<const ROWS: usize>(a: View<'_>, rows: Range<usize>, ks: Range<usize>, packed: &mut [f32]) {
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

#[inline(always)]
fn tile_product<S: Simd, const ROWS: usize>(simd: S, tile: &[f32], panel: &[f32]) -> [[S::f32s; PANEL_VECTORS]; ROWS] {
    let mut sums = [[simd.splat_f32s(0.0); PANEL_VECTORS]; ROWS];
    let (panel, _) = S::as_simd_f32s(panel);
    for (a, b) in tile.as_chunks::<ROWS>().0.iter().zip(panel.as_chunks::<PANEL_VECTORS>().0) {
        for (sums, a) in sums.iter_mut().zip(a) {
            let a = simd.splat_f32s(*a);
            for (sum, b) in sums.iter_mut().zip(b) {
                *sum = simd.mul_add_e_f32s(a, *b, *sum);
            }
        }
    }
    sums
}

#[inline(always)]
fn put<S: Simd>(simd: S, sums: &[S::f32s; PANEL_VECTORS], width: usize, add: bool, out: &mut [f32]) {
    if out.len() == width {
        let (to, _) = S::as_mut_simd_f32s(out);
        for (to, sum) in to.iter_mut().zip(sums) {
            *to = if add { simd.add_f32s(*to, *sum) } else { *sum };
        }
        return;
    }
    let mut whole = [0.0; PANEL_VECTORS * WIDEST];
    let (to, _) = S::as_mut_simd_f32s(&mut whole[..width]);
    to.iter_mut().zip(sums).for_each(|(to, sum)| *to = *sum);
    for (to, sum) in out.iter_mut().zip(&whole) {
        *to = if add { *to + sum } else { *sum };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

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
        let mut random = Random::new(1, "product");
        for (m, k, n) in [(1, 1, 1), (13, 7, 33), (12, 320, 32), (250, 641, 65), (5, 0, 4), (97, 64, 100)] {
            let (a, b) = (random.normals(m * k, 1.0), random.normals(k * n, 1.0));
            let start = random.normals(m * (n + 3), 1.0);
            let expected = naive(&|i, q| a[i * k + q], &|q, j| b[q * n + j], m, k, n);
            let (mut at, mut bt) = (vec![0.0; m * k], vec![0.0; k * n]);
            (0..m * k).for_each(|i| at[i % k * m + i / k] = a[i]);
            (0..k * n).for_each(|i| bt[i % n * k + i / n] = b[i]);
            for view_a in [View::new(&a, m, k), View::new(&at, k, m).transposed()] {
                for view_b in [View::new(&b, k, n), View::new(&bt, n, k).transposed()] {
                    for into in [Into::Set, Into::Add] {
                        let mut out = start.clone();
                        let packed = Packed::of(view_b);
                        multiply(view_a, packed.all(), into, &mut out, n + 3, &mut Scratch::default());
                        for (at, (got, was)) in out.iter().zip(&start).enumerate() {
                            let (i, j) = (at / (n + 3), at % (n + 3));
                            if j >= n {
                                assert_eq!(got, was, "outside");
                                continue;
                            }
                            let base = if into == Into::Add { f64::from(*was) } else { 0.0 };
                            let error = f64::from(*got) - base - expected[i * n + j];
                            assert!(error.abs() < 1e-5 * (k as f64).sqrt().max(1.0), "{m} {k} {n} at {i} {j}: {error}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_part_is_a_smaller_matrix() {
        let mut random = Random::new(2, "part");
        let width = Packed::panel_width();
        let (m, k, n) = (9, 50, 3 * width + 5);
        let (a, b) = (random.normals(m * k, 1.0), random.normals(k * n, 1.0));
        let packed = Packed::of(View::new(&b, k, n));
        for (ks, ns) in [(0..50, 0..n), (7..41, width..2 * width + 3), (3..4, 2 * width..n), (5..5, 0..4)] {
            let len = ks.len();
            let expected = naive(&|i, q| a[i * k + q], &|q, j| b[(ks.start + q) * n + ns.start + j], m, len, ns.len());
            let mut out = vec![7.0; m * ns.len()];
            let part = packed.part(ks.clone(), ns.clone());
            multiply(View::strided(&a, m, len, k), part, Into::Set, &mut out, ns.len(), &mut Scratch::default());
            assert!(out.iter().zip(&expected).all(|(o, e)| (f64::from(*o) - e).abs() < 1e-4), "{ks:?} {ns:?}");
        }
    }

    #[test]
    fn a_row_does_not_depend_on_how_many_there_are() {
        let mut random = Random::new(3, "rows");
        let (k, n) = (700, 70);
        let (a, b) = (random.normals(300 * k, 1.0), random.normals(k * n, 1.0));
        let packed = Packed::of(View::new(&b, k, n));
        let mut whole = vec![0.0; 300 * n];
        multiply(View::new(&a, 300, k), packed.all(), Into::Set, &mut whole, n, &mut Scratch::default());
        for m in [1, 12, 37, 250] {
            let mut out = vec![0.0; m * n];
            multiply(View::new(&a, m, k), packed.all(), Into::Set, &mut out, n, &mut Scratch::default());
            assert!(out == whole[..m * n], "{m} rows");
        }
    }
}
