//! [`Compute::matmul`]: rows of activations by packed weights, spread over the team by panels.

use std::ops::Range;

use crate::activations::Activations;
use crate::compute::Compute;
use crate::format::InputForm;
use crate::matmul::layout::{PANEL, with_layout};
use crate::matmul::panel::PanelMatrix;
use crate::matmul::tile::{Kernel, PanelTile};
#[cfg(target_arch = "aarch64")]
use crate::simd::Neon;
#[cfg(target_arch = "x86_64")]
use crate::simd::{Avx2, Avx512};
use crate::simd::{Isa, Scalar};
use crate::team::SendPtr;

/// Bytes of weights that make a part worth its claim by a thread, for one row.
const PART_BYTES: usize = 24 << 10;
/// Most parts for each thread: enough to even out, few enough to claim cheaply.
const PARTS_PER_THREAD: usize = 16;

/// One of the products of a [`Compute::matmul`]: a weight matrix and its output.
pub struct MatrixProduct<'a> {
    /// The weights, shape (n, k).
    pub weights: &'a PanelMatrix,
    /// The output, shape (row, n).
    pub out: &'a mut [f32],
}

impl Compute {
    /// For every product and row: `out[row] = w * x[row]`. All matrices share one input and one
    /// fork-join.
    ///
    /// The bits of an output row depend on that input row and the weights only.
    ///
    /// # Panics
    /// If a matrix has another `k` than `x`, an output is not (rows, n) long, or `x` lacks the
    /// representation that a matrix needs.
    pub fn matmul(&self, x: &Activations, products: &mut [MatrixProduct<'_>]) {
        let rows = x.rows();
        let (mut panels, mut bytes) = (0, 0);
        for product in &*products {
            product.weights.check_input(self.isa(), x);
            assert_eq!(
                product.out.len(),
                rows * product.weights.n(),
                "an output has {rows} rows of {}",
                product.weights.n()
            );
            panels += product.weights.panels();
            bytes += product.weights.size_bytes();
        }
        if rows == 0 || panels == 0 {
            return;
        }
        let parts = parts_for(self.team().threads(), bytes, rows, panels);
        let n_products = products.len();
        let products = SendPtr(products.as_mut_ptr());
        self.team().run(parts, &|part| {
            let (mut from, mut to) = (panels * part / parts, panels * (part + 1) / parts);
            for j in 0..n_products {
                // SAFETY: j is a product; only its fields are read, and nobody writes them while
                // the parts run.
                let (w, out) = unsafe {
                    let product = products.get().add(j);
                    ((*product).weights, (&raw const (*product).out).cast::<*mut [f32]>().read())
                };
                let here = w.panels();
                if from < here {
                    for p in from..to.min(here) {
                        // SAFETY: lengths were checked above; panel p of product j is in this part
                        // alone, so its columns of the output, which `products` borrows mutably
                        // until `run` returns, are ours.
                        unsafe { panel_rows(self.isa(), w, p, x, out.cast()) };
                    }
                }
                if to <= here {
                    break;
                }
                (from, to) = (from.saturating_sub(here), to - here);
            }
        });
    }
}

/// Number of parts for a product of `units` independent pieces with `bytes` of weights in all and
/// `rows` rows. More rows mean more arithmetic for the same bytes, so smaller parts pay. The split
/// never changes the results.
pub(crate) fn parts_for(threads: usize, bytes: usize, rows: usize, units: usize) -> usize {
    if threads == 1 {
        return 1;
    }
    let worth = bytes.saturating_mul(rows.div_ceil(4)) / PART_BYTES;
    worth.clamp(1, threads * PARTS_PER_THREAD).min(units)
}

/// Panel `p` of `w` by all rows of `x`, into the panel's columns of `out`.
///
/// # Safety
/// The processor has `isa`; `w` and `x` have one k, and `x` has the representation that `w` needs;
/// `out`, of shape (row, n), may be written at the panel's columns.
unsafe fn panel_rows(isa: Isa, w: &PanelMatrix, p: usize, x: &Activations, out: *mut f32) {
    const ROWS: usize = 8;
    let (rows, n) = (x.rows(), w.n());
    let width = PANEL.min(n - p * PANEL);
    let out = out.wrapping_add(p * PANEL);
    if width == PANEL {
        // SAFETY: the caller's.
        unsafe { panel_tile(isa, w, p, x, 0..rows, out, n) };
        return;
    }
    let mut edge = [0f32; ROWS * PANEL];
    for first in (0..rows).step_by(ROWS) {
        let count = ROWS.min(rows - first);
        // SAFETY: the caller's; `edge` has room for 8 rows of 16.
        unsafe { panel_tile(isa, w, p, x, first..first + count, edge.as_mut_ptr(), PANEL) };
        for (r, edge) in edge.chunks_exact(PANEL).take(count).enumerate() {
            // SAFETY: columns p * 16..n of row first + r, within the output; `edge` is a local.
            unsafe { std::ptr::copy_nonoverlapping(edge.as_ptr(), out.add((first + r) * n), width) };
        }
    }
}

/// Panel `p` of `w` by the rows `rows` of `x`: 16 columns of each row, `stride` floats from one row
/// to the next.
///
/// # Safety
/// The processor has `isa`; `w` and `x` have one k, and `x` has the representation that `w` needs,
/// and `rows`, which begin and end with a tile; `out` may be written there, its start being the
/// first of `rows`.
pub(crate) unsafe fn panel_tile(
    isa: Isa,
    w: &PanelMatrix,
    p: usize,
    x: &Activations,
    rows: Range<usize>,
    out: *mut f32,
    stride: usize,
) {
    // SAFETY: the caller's.
    unsafe {
        match isa {
            Isa::Scalar => tiles::<Scalar<1>>(w, p, x, rows, out, stride),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 if is_x86_feature_detected!("avxvnni") => tiles::<Avx2<true>>(w, p, x, rows, out, stride),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => tiles::<Avx2<false>>(w, p, x, rows, out, stride),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni => tiles::<Avx512>(w, p, x, rows, out, stride),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => tiles::<Neon>(w, p, x, rows, out, stride),
            #[allow(unreachable_patterns)]
            _ => tiles::<Scalar<1>>(w, p, x, rows, out, stride),
        }
    }
}

/// # Safety
/// As [`panel_tile`].
unsafe fn tiles<K: Kernel>(
    w: &PanelMatrix,
    p: usize,
    x: &Activations,
    rows: Range<usize>,
    out: *mut f32,
    stride: usize,
) {
    let max = if w.wants() == InputForm::F32 { K::FLOAT_TILE } else { K::TILE };
    let all = PanelTile {
        panel: w.panel(p).as_ptr(),
        k: w.k(),
        lane: 0,
        x: x.block_ptrs(),
        f32s: x.f32_rows().as_ptr(),
        out,
        stride,
        prefetch: true,
        backwards: cfg!(feature = "broken-invariance") && x.rows() > 1,
    }
    .at_row(rows.start);
    let mut first = 0;
    while first < rows.len() {
        let count = (rows.len() - first).min(max);
        let mut tile = all.skip(first);
        tile.prefetch = rows.start + first == 0;
        for lane in (0..PANEL).step_by(K::WIDTH) {
            tile.lane = lane;
            tile.prefetch &= lane == 0;
            // SAFETY: these rows exist in `x`, with the representation that `w` needs; the panel is
            // one of `w`; the output is the caller's.
            unsafe { with_layout!(w.format(), L => K::integer::<L>(count, tile), W => K::float::<W>(count, tile)) };
        }
        first += count;
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::format::{InputForms, WeightFormat};
    use crate::team::Team;

    #[test]
    fn avx2_gives_the_same_bits_with_and_without_vnni() {
        if !Isa::Avx2.is_available() {
            return; // nothing to compare on this processor
        }
        let (n, k, rows) = (32, 512, 5);
        let mut state = 1u32;
        let mut byte = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 9) as u8 & 0xbf // no exponent of an f16 infinity or NaN
        };
        let compute = Compute::new(Isa::Avx2, 1);
        let values: Vec<f32> = (0..rows * k).map(|_| f32::from(byte()) - 100.0).collect();
        let mut x = Activations::new();
        compute.load(&values, k, InputForms::BOTH, &mut x);
        for format in WeightFormat::ALL.into_iter().filter(|f| f.input() == InputForm::Int8) {
            let bytes: Vec<u8> = (0..n * k / format.block_len() * format.block_bytes()).map(|_| byte()).collect();
            let w = PanelMatrix::pack(&Team::new(1), format, n, k, &bytes).expect("a sound matrix");
            let run = |vnni: bool| {
                let mut out = vec![0f32; rows * n];
                for p in 0..w.panels() {
                    // SAFETY: AVX2 is there, and `vnni` is asked for only where AVX-VNNI is; shapes
                    // agree.
                    unsafe {
                        match vnni {
                            true => tiles::<Avx2<true>>(&w, p, &x, 0..rows, out.as_mut_ptr().add(p * PANEL), n),
                            false => tiles::<Avx2<false>>(&w, p, &x, 0..rows, out.as_mut_ptr().add(p * PANEL), n),
                        }
                    }
                }
                out
            };
            let plain = run(false);
            assert!(plain.iter().all(|y| y.is_finite()) && plain.iter().any(|y| *y != 0.0), "{format}");
            if is_x86_feature_detected!("avxvnni") {
                assert_eq!(run(true), plain, "{format}");
            }
            let mut out = vec![0f32; rows * n];
            Compute::new(Isa::Scalar, 1).matmul(&x, &mut [MatrixProduct { weights: &w, out: &mut out }]);
            for (i, (a, b)) in plain.iter().zip(&out).enumerate() {
                let size = plain.iter().fold(0f32, |m, y| m.max(y.abs()));
                assert!((a - b).abs() <= 1e-4 * size, "{format}: {a} with AVX2, {b} in scalar, at {i}");
            }
        }
    }
}
