//! [`PanelMatrix`]: a weight matrix in panels of 16 output rows, ready for the kernels.

use crate::activations::Activations;
use crate::error::KernelError;
use crate::format::{InputForm, InputForms, WeightFormat};
use crate::matmul::layout::{FloatLayout, IntegerLayout, PANEL, ProductFormula, with_layout};
use crate::matmul::pack::pack_row;
use crate::matmul::store::WeightMemory;
use crate::simd::{Isa, Scalar};
use crate::team::Team;

/// A weight matrix of shape (n, k): n output rows, k inputs. It holds exactly the file's values, in
/// another order.
pub struct PanelMatrix {
    format: WeightFormat,
    n: usize,
    k: usize,
    panel_bytes: usize,
    store: WeightMemory, // (panel, panel_bytes)
}

/// Bytes of a panel of one block of the file.
fn block_panel_bytes(format: WeightFormat) -> usize {
    with_layout!(format, L => L::HEAD + L::GROUP * L::BLOCK, W => PANEL * W::BYTES)
}

impl PanelMatrix {
    /// Packs a matrix of `n` rows and `k` columns from the bytes of a GGUF tensor: rows one after
    /// the other, each a whole number of `format`'s blocks. The packed matrix takes about the size
    /// of its bytes in the file. The team shares the work.
    ///
    /// # Errors
    /// `n` or `k` is 0, `k` is not a whole number of blocks, `bytes` is not as long as the shape
    /// asks, a size overflows, or there is no memory.
    pub fn pack(
        team: &Team,
        format: WeightFormat,
        n: usize,
        k: usize,
        bytes: &[u8],
    ) -> Result<PanelMatrix, KernelError> {
        const WHAT: &str = "a weight matrix";
        let overflow = KernelError::Overflow { what: WHAT };
        let block_len = format.block_len();
        if n == 0 || k == 0 {
            return Err(KernelError::Empty { format, n, k });
        }
        if !k.is_multiple_of(block_len) {
            return Err(KernelError::PartialBlock { format, k, block_len });
        }
        let blocks = k / block_len;
        let row_bytes = blocks.checked_mul(format.block_bytes()).ok_or(overflow.clone())?;
        let expected = n.checked_mul(row_bytes).ok_or(overflow.clone())?;
        if bytes.len() != expected {
            return Err(KernelError::WrongLength { format, n, k, expected, got: bytes.len() });
        }
        let panel_bytes = blocks.checked_mul(block_panel_bytes(format)).ok_or(overflow.clone())?;
        let size = n.div_ceil(PANEL).checked_mul(panel_bytes).ok_or(overflow)?;
        let mut store = WeightMemory::zeroed(size, WHAT)?;
        team.chunks_mut(store.bytes_mut(), panel_bytes, |p, panel| {
            let rows = bytes[p * PANEL * row_bytes..].chunks_exact(row_bytes).take(PANEL);
            for (lane, row) in rows.enumerate() {
                pack_row(format, row, lane, panel);
            }
        });
        Ok(PanelMatrix { format, n, k, panel_bytes, store })
    }

    /// Output rows.
    pub fn n(&self) -> usize {
        self.n
    }

    /// InputForms: values in a row.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Number format of the file.
    pub fn format(&self) -> WeightFormat {
        self.format
    }

    /// The representation that the matrix needs of its input.
    pub fn wants(&self) -> InputForm {
        self.format.input()
    }

    /// Bytes of the packed weights; one pass over the matrix reads all of them.
    pub fn size_bytes(&self) -> usize {
        self.store.bytes().len()
    }

    /// Panels of 16 rows, the last one padded with zeros.
    pub(crate) fn panels(&self) -> usize {
        self.n.div_ceil(PANEL)
    }

    pub(crate) fn panel(&self, p: usize) -> &[u8] {
        &self.store.bytes()[p * self.panel_bytes..][..self.panel_bytes]
    }

    /// # Panics
    /// If `x` cannot be multiplied by this matrix on this instruction set.
    pub(crate) fn check_input(&self, isa: Isa, x: &Activations) {
        assert_eq!(self.k, x.k(), "the matrix and its input differ in k");
        assert_eq!(x.tile(), isa.tile_rows(), "the rows lie in tiles of {isa}");
        assert!(x.inputs().has(self.wants()), "{self:?} wants {:?} rows", self.wants());
    }

    /// Writes row `i` to `out` as floats, the exact values of the file's numbers. ProductFormula of
    /// `out`: (k).
    ///
    /// # Panics
    /// If `i >= n` or `out` is not `k` long.
    pub fn row(&self, i: usize, out: &mut [f32]) {
        assert!(i < self.n, "row {i} of a matrix of {} rows", self.n);
        assert_eq!(out.len(), self.k, "a row has {} values", self.k);
        let (panel, lane) = (self.panel(i / PANEL), i % PANEL);
        with_layout!(self.format,
            L => integer_row::<L>(panel, lane, out),
            W => float_row::<W>(panel, lane, out));
    }
}

impl InputForms {
    /// The representations that these matrices need together.
    pub fn of(weights: &[&PanelMatrix]) -> InputForms {
        let any = |input| weights.iter().any(|w| w.wants() == input);
        InputForms { f32: any(InputForm::F32), int8: any(InputForm::Int8) }
    }
}

fn float_row<W: FloatLayout>(panel: &[u8], lane: usize, out: &mut [f32]) {
    for (at, out) in panel.chunks_exact(PANEL * W::BYTES).zip(out) {
        // SAFETY: `at` holds 16 values and lane < 16.
        [*out] = unsafe { W::load(Scalar::<1>, at.as_ptr().add(lane * W::BYTES)) };
    }
}

fn integer_row<L: IntegerLayout>(panel: &[u8], lane: usize, out: &mut [f32]) {
    let groups = panel.chunks_exact(L::HEAD + L::GROUP * L::BLOCK);
    for (group, out) in groups.zip(out.chunks_exact_mut(32 * L::GROUP)) {
        // SAFETY: `group` starts with a head and lane < 16.
        let head = unsafe { L::head(Scalar::<1>, group.as_ptr(), lane) };
        for (at, out) in group[L::HEAD..].chunks_exact(L::BLOCK).zip(out.chunks_exact_mut(32)) {
            // SAFETY: as above, and `at` is a block.
            let (u, c) =
                unsafe { (L::unpack(Scalar::<1>, at.as_ptr(), lane), L::scales(Scalar::<1>, head, at.as_ptr(), lane)) };
            let c = c.map(|[c]| c);
            for (i, (u, out)) in u.as_flattened().iter().zip(out).enumerate() {
                let (u, half) = (i32::from(*u), i / 16);
                *out = match L::FORMULA {
                    ProductFormula::Offset(shift) => c[0] * (u - (1 << shift)) as f32,
                    ProductFormula::Minimum => c[0] * u as f32 + c[1],
                    ProductFormula::HalvesOffset(shift) => c[half] * (u - (1 << shift)) as f32,
                    ProductFormula::HalvesMinimum => c[half] * u as f32 + c[2 + half],
                };
            }
        }
    }
}

impl std::fmt::Debug for PanelMatrix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PanelMatrix({}, {} by {})", self.format, self.n, self.k)
    }
}
