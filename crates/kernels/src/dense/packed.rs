//! The operands of a dense product: views of matrices in memory, and right-hand matrices packed
//! into panels of columns.

use std::ops::Range;

use crate::simd::Isa;

/// Vectors of columns in a panel.
pub(crate) const PANEL_VECTORS: usize = 2;
/// Floats in the widest vector of any instruction set.
pub(crate) const WIDEST: usize = 16;

/// A matrix in memory, row by row or, transposed, column by column.
#[derive(Debug, Clone, Copy)]
pub struct MatrixView<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) stride: usize, // from row to row, or from column to column
    pub(crate) transposed: bool,
}

impl<'a> MatrixView<'a> {
    /// A matrix whose rows lie one after the other. Shape of `data`: (rows, cols).
    ///
    /// # Panics
    /// If `data` is too short.
    pub fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// A matrix whose rows start every `stride` values. Shape of `data`: (rows, stride), of which
    /// the first `cols` of each row count.
    ///
    /// # Panics
    /// If `cols` exceeds `stride`, or `data` is too short.
    pub fn strided(data: &'a [f32], rows: usize, cols: usize, stride: usize) -> Self {
        assert!(cols <= stride, "rows of {cols} values every {stride}");
        assert!(rows == 0 || (rows - 1) * stride + cols <= data.len(), "{rows} rows in {} values", data.len());
        MatrixView { data, rows, cols, stride, transposed: false }
    }

    /// The same values as a matrix of shape (cols, rows).
    pub fn transposed(self) -> Self {
        MatrixView { rows: self.cols, cols: self.rows, transposed: !self.transposed, ..self }
    }
}

/// Floats that begin on a cache line.
#[derive(Debug, Default)]
pub(crate) struct AlignedFloats {
    store: Vec<f32>,
    len: usize,
}

impl AlignedFloats {
    /// Makes room for `len` values, whose contents are undefined.
    pub(crate) fn resize(&mut self, len: usize) {
        if self.store.len() < len + WIDEST {
            self.store = vec![0.0; len + WIDEST];
        }
        self.len = len;
    }

    fn start(&self) -> usize {
        (64 - self.store.as_ptr() as usize % 64) % 64 / size_of::<f32>()
    }

    pub(crate) fn values(&self) -> &[f32] {
        self.store.get(self.start()..).map_or(&[], |s| &s[..self.len])
    }

    pub(crate) fn values_mut(&mut self) -> &mut [f32] {
        let start = self.start();
        &mut self.store[start..start + self.len]
    }
}

/// A right-hand matrix, (k, n), in panels of columns for one instruction set. Packed once, it
/// serves many left-hand matrices.
#[derive(Debug)]
pub struct PackedMatrix {
    pub(crate) isa: Isa,
    pub(crate) k: usize,
    pub(crate) n: usize,
    pub(crate) width: usize,        // columns in a panel
    pub(crate) data: AlignedFloats, // (panel, k, width), the last panel padded with zeros
}

/// A part of a [`PackedMatrix`]: some rows and some whole panels of columns.
#[derive(Debug, Clone, Copy)]
pub struct PackedPart<'a> {
    pub(crate) packed: &'a PackedMatrix,
    pub(crate) from_k: usize,
    pub(crate) k: usize,
    pub(crate) panel: usize,
    pub(crate) n: usize,
}

/// An empty matrix for the fastest instruction set of this processor.
impl Default for PackedMatrix {
    fn default() -> Self {
        PackedMatrix::empty(Isa::fastest())
    }
}

impl PackedMatrix {
    fn empty(isa: Isa) -> Self {
        PackedMatrix { isa, k: 0, n: 0, width: PANEL_VECTORS * isa.lanes(), data: AlignedFloats::default() }
    }

    /// Columns in a panel on this processor. The columns of a part start at a multiple of it.
    pub fn panel_width() -> usize {
        PANEL_VECTORS * Isa::fastest().lanes()
    }

    /// Packs `matrix`, (k, n), in new memory.
    pub fn of(matrix: MatrixView<'_>) -> PackedMatrix {
        let mut packed = PackedMatrix::default();
        packed.pack(matrix);
        packed
    }

    /// Replaces the contents by `matrix`, (k, n), and reuses the memory.
    pub fn pack(&mut self, matrix: MatrixView<'_>) {
        let width = self.width;
        (self.k, self.n) = (matrix.rows, matrix.cols);
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
                // A few values of k at a time, so that the lines being written stay in the
                // first-level cache.
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
    pub fn all(&self) -> PackedPart<'_> {
        PackedPart { packed: self, from_k: 0, k: self.k, panel: 0, n: self.n }
    }

    /// Rows `k` and columns `n`.
    ///
    /// # Panics
    /// If a range exceeds the matrix, or the columns do not start at a multiple of
    /// [`PackedMatrix::panel_width`].
    pub fn part(&self, k: Range<usize>, n: Range<usize>) -> PackedPart<'_> {
        assert!(k.start <= k.end && k.end <= self.k, "rows {k:?} of {}", self.k);
        assert!(
            n.start <= n.end && n.end <= self.n && n.start.is_multiple_of(self.width),
            "columns {n:?} of {}",
            self.n
        );
        PackedPart { packed: self, from_k: k.start, k: k.len(), panel: n.start / self.width, n: n.len() }
    }
}

#[cfg(test)]
impl PackedMatrix {
    /// As [`PackedMatrix::of`], for a chosen instruction set.
    pub(crate) fn for_isa(isa: Isa, matrix: MatrixView<'_>) -> PackedMatrix {
        let mut packed = PackedMatrix::empty(isa);
        packed.pack(matrix);
        packed
    }
}
