//! The matrix kernels: one panel of weights by a tile of rows, written once for all formats and
//! instruction sets.
//!
//! Block by block along k, a kernel unpacks a block's values once and uses them for all rows of the
//! tile. Each row adds the block's product to its own accumulator. So a row's bits come from the
//! same operations in the same order, whatever the tile.

use crate::activations::{BLOCK, BlockPtrs, NEG_HALF, NEG_SUM};
use crate::matmul::bytes::ByteLanes;
use crate::matmul::layout::{FloatLayout, IntegerLayout, PANEL, ProductFormula};
use crate::simd::{Lanes, prefetch, prefetch_far};

/// Distance of the prefetch into the first-level cache, in bytes of the stream of weights.
///
/// The hardware's own prefetch stays too close to reach the memory's speed. Lines that enter the
/// first level much earlier leave it before use.
pub(crate) const AHEAD: usize = 4096;
/// Distance of the prefetch from memory into the second-level cache. With one distance alone the
/// memory is idle where the stream begins or the next matrix follows.
pub(crate) const FAR_AHEAD: usize = 16 << 10;
/// Distance from one far prefetch to the next, in bytes. Each occupies one of the few fill buffers
/// of the first-level cache until the line arrives; the hardware brings the lines between.
pub(crate) const FAR_STEP: usize = 192;

/// A panel, the rows to multiply by it, and where their products go.
#[derive(Clone, Copy)]
pub(crate) struct PanelTile {
    /// The panel.
    pub(crate) panel: *const u8,
    /// Values along k.
    pub(crate) k: usize,
    /// First lane of the panel to compute; a kernel computes a vector of them.
    pub(crate) lane: usize,
    /// The tile's rows as 8-bit blocks.
    pub(crate) x: BlockPtrs,
    /// The tile's first row as floats, rows `k` apart.
    pub(crate) f32s: *const f32,
    /// Output of lane 0 of the tile's first row.
    pub(crate) out: *mut f32,
    /// Floats from one row of `out` to the next.
    pub(crate) stride: usize,
    /// Whether to prefetch: only the first tile that reads the panel does.
    pub(crate) prefetch: bool,
    /// Whether the reduction runs backwards. Set only to break row invariance on purpose.
    pub(crate) backwards: bool,
}

impl PanelTile {
    /// The tile whose first row is `rows` further on, in input and output.
    pub(crate) fn skip(self, rows: usize) -> PanelTile {
        PanelTile { out: self.out.wrapping_add(rows * self.stride), ..self.at_row(rows) }
    }

    /// The tile whose input is `rows` further on, with the same output.
    pub(crate) fn at_row(self, rows: usize) -> PanelTile {
        let blocks = self.k.div_ceil(BLOCK);
        PanelTile {
            // Wrapping, as only one of the two representations may exist. The kernel reads that
            // one.
            x: self.x.skip(rows * blocks),
            f32s: self.f32s.wrapping_add(rows * self.k),
            ..self
        }
    }
}

/// Prefetches ahead of the `bytes` at `at`: every line into the first-level cache, some into the
/// second.
#[inline(always)]
fn fetch_ahead(at: *const u8, bytes: usize) {
    for line in (0..bytes).step_by(64) {
        prefetch(at.wrapping_add(AHEAD + line));
    }
    for line in (0..bytes).step_by(FAR_STEP) {
        prefetch_far(at.wrapping_add(FAR_AHEAD + line));
    }
}

/// Multiplies a tile of `M` rows by a panel of an integer format.
///
/// # Safety
/// The panel holds `k / 32` blocks of `L` in whole groups, the rows are there as 8-bit blocks,
/// `lane + WIDTH <= 16`, and `out` may be written at `lane..lane + WIDTH` of `M` rows.
#[inline(always)]
pub(crate) unsafe fn integer_tile<S: ByteLanes, L: IntegerLayout, const M: usize>(s: S, t: PanelTile) {
    // SAFETY: pointers stay within the panel (groups * group_bytes) and the rows (M * blocks);
    // prefetch takes any address.
    unsafe {
        let blocks = t.k / BLOCK;
        let groups = blocks / L::GROUP;
        let group_bytes = L::HEAD + L::GROUP * L::BLOCK;
        let mut acc = [s.zero(); M];
        // Two blocks at a time where that is faster: more independent products. Formats with halves
        // have two sums anyway.
        let halves = matches!(L::FORMULA, ProductFormula::HalvesOffset(_) | ProductFormula::HalvesMinimum);
        let pairs = S::BLOCKS == 2 && !halves && (L::BITS < 8 || M >= 6);
        let step = if pairs && L::GROUP == 1 { 2 } else { 1 };
        let steps = groups.div_ceil(step);
        for i in 0..steps {
            let g = step * if cfg!(feature = "broken-invariance") && t.backwards { steps - 1 - i } else { i };
            let group = t.panel.add(g * group_bytes);
            let head = L::head(s, group, t.lane);
            if t.prefetch {
                fetch_ahead(group, L::HEAD);
            }
            let at = group.add(L::HEAD);
            if step == 2 && g + 1 < groups {
                add_blocks::<S, L, M, 2>(s, &mut acc, head, at, &t, g);
            } else if step == 1 && pairs {
                for i in (0..L::GROUP).step_by(2) {
                    add_blocks::<S, L, M, 2>(s, &mut acc, head, at.add(i * L::BLOCK), &t, g * L::GROUP + i);
                }
            } else {
                for i in 0..L::GROUP {
                    add_blocks::<S, L, M, 1>(s, &mut acc, head, at.add(i * L::BLOCK), &t, g * L::GROUP + i);
                }
            }
        }
        for (r, acc) in acc.iter().enumerate() {
            s.store_at(*acc, t.out.add(r * t.stride + t.lane));
        }
    }
}

/// Multiplies the `N` weight blocks at `at`, number `b` and on along k, by the rows' blocks, and
/// adds the products to the rows' accumulators, one block after the other.
///
/// # Safety
/// As [`integer_tile`].
#[inline(always)]
unsafe fn add_blocks<S: ByteLanes, L: IntegerLayout, const M: usize, const N: usize>(
    s: S,
    acc: &mut [S::V; M],
    head: [S::V; 2],
    at: *const u8,
    t: &PanelTile,
    b: usize,
) {
    // SAFETY: `b + N <= blocks`: every array of `x` has entries for these blocks of the tile's
    // rows, and the panel has the blocks.
    unsafe {
        if t.prefetch {
            fetch_ahead(at, N * L::BLOCK);
        }
        // Loops, not closures over vectors: a closure that is not inlined would pass them through
        // memory.
        let x = t.x.skip(b * M);
        let mut u = [L::unpack(s, at, t.lane); N];
        let mut q = [[x.q.cast_const(); M]; N];
        for i in 0..N {
            u[i] = L::unpack(s, at.add(i * L::BLOCK), t.lane);
            for (r, q) in q[i].iter_mut().enumerate() {
                *q = q.add((i * M + r) * BLOCK);
            }
        }
        let mut sums = [[s.int_zero(); M]; N];
        let mut halves = [[s.int_zero(); M]; 2];
        match L::FORMULA {
            ProductFormula::Offset(shift) => {
                let kept = usize::from(L::BITS == 8);
                let mut neg = [[x.neg_sum.cast_const().cast::<i32>().add(kept); M]; N];
                for (i, neg) in neg.iter_mut().enumerate() {
                    for (r, neg) in neg.iter_mut().enumerate() {
                        *neg = neg.add(2 * (i * M + r));
                    }
                }
                if L::BITS == 8 {
                    s.dot_128(&mut sums, &u, &q, &neg);
                } else {
                    for (sum, neg) in sums.as_flattened_mut().iter_mut().zip(neg.as_flattened()) {
                        *sum = s.int_splat_shifted(neg.read(), shift as i32 - NEG_SUM[kept]);
                    }
                    s.dot(&mut sums, &u, L::BITS, &q);
                }
            }
            ProductFormula::Minimum => s.dot(&mut sums, &u, L::BITS, &q),
            ProductFormula::HalvesOffset(_) | ProductFormula::HalvesMinimum => {
                if let ProductFormula::HalvesOffset(shift) = L::FORMULA {
                    let [first, second] = &mut halves;
                    for ((r, first), second) in first.iter_mut().enumerate().zip(second) {
                        let neg = x.neg_half.add(r).cast::<i32>();
                        *first = s.int_splat_shifted(neg.read(), shift as i32 - NEG_HALF);
                        *second = s.int_splat_shifted(neg.add(1).read(), shift as i32 - NEG_HALF);
                    }
                }
                let u = u[0];
                let mut second = q[0];
                for q in &mut second {
                    *q = q.add(16);
                }
                let u = [[u[0], u[1], u[2], u[3]], [u[4], u[5], u[6], u[7]]];
                s.dot(&mut halves, &u, L::BITS, &[q[0], second]);
            }
        }
        for (i, sums) in sums.iter().enumerate() {
            let c = L::scales(s, head, at.add(i * L::BLOCK), t.lane);
            for (r, acc) in acc.iter_mut().enumerate() {
                let entry = i * M + r;
                let scale = s.splat(x.scale.add(entry).read());
                match L::FORMULA {
                    ProductFormula::Offset(_) => *acc = s.fma(s.to_float(sums[r]), s.mul(c[0], scale), *acc),
                    ProductFormula::Minimum => {
                        let products = s.fma(s.to_float(sums[r]), s.mul(c[0], scale), *acc);
                        *acc = s.fma(c[1], s.splat((x.sum.add(entry)).read()), products);
                    }
                    ProductFormula::HalvesOffset(_) | ProductFormula::HalvesMinimum => {
                        let first = s.mul(s.to_float(halves[0][r]), c[0]);
                        let sum = s.fma(s.to_float(halves[1][r]), c[1], first);
                        *acc = s.fma(sum, scale, *acc);
                        if matches!(L::FORMULA, ProductFormula::HalvesMinimum) {
                            let half_sum = x.half_sum.add(entry).cast::<f32>();
                            *acc = s.fma(c[2], s.splat((half_sum).read()), *acc);
                            *acc = s.fma(c[3], s.splat((half_sum.add(1)).read()), *acc);
                        }
                    }
                }
            }
        }
    }
}

/// Multiplies a tile of `M` rows by a panel of a float format. Values of even and odd k have
/// separate sums, which are added last.
///
/// # Safety
/// The panel holds `k` times 16 values of `W`, the rows are there as floats, `lane + WIDTH <= 16`,
/// and `out` may be written at `lane..lane + WIDTH` of `M` rows.
#[inline(always)]
pub(crate) unsafe fn float_tile<S: Lanes, W: FloatLayout, const M: usize>(s: S, t: PanelTile) {
    // SAFETY: i < k for every read of the panel and of the rows; prefetch takes any address.
    unsafe {
        let step = PANEL * W::BYTES;
        let mut even = [s.zero(); M];
        let mut odd = [s.zero(); M];
        let pairs = t.k / 2;
        for p in 0..pairs {
            let p = if cfg!(feature = "broken-invariance") && t.backwards { pairs - 1 - p } else { p };
            let at = t.panel.add(2 * p * step);
            if t.prefetch {
                fetch_ahead(at, 2 * step);
            }
            let w0 = W::load(s, at.add(t.lane * W::BYTES));
            let w1 = W::load(s, at.add(step + t.lane * W::BYTES));
            for r in 0..M {
                let x = t.f32s.add(r * t.k + 2 * p);
                even[r] = s.fma(w0, s.splat((x).read()), even[r]);
                odd[r] = s.fma(w1, s.splat((x.add(1)).read()), odd[r]);
            }
        }
        if t.k % 2 == 1 {
            let w = W::load(s, t.panel.add((t.k - 1) * step + t.lane * W::BYTES));
            for (r, even) in even.iter_mut().enumerate() {
                *even = s.fma(w, s.splat((t.f32s.add(r * t.k + t.k - 1)).read()), *even);
            }
        }
        for r in 0..M {
            s.store_at(s.add(even[r], odd[r]), t.out.add(r * t.stride + t.lane));
        }
    }
}

/// The matrix kernels of an instruction set: they run one tile of 1 to 8 rows.
pub(crate) trait Kernel: ByteLanes {
    /// `rows <= TILE` rows by a panel of an integer format.
    ///
    /// # Safety
    /// As [`integer_tile`].
    unsafe fn integer<L: IntegerLayout>(rows: usize, t: PanelTile);

    /// `rows <= FLOAT_TILE` rows by a panel of a float format.
    ///
    /// # Safety
    /// As [`float_tile`].
    unsafe fn float<W: FloatLayout>(rows: usize, t: PanelTile);
}

/// Implements [`Kernel`] for an instruction set, compiled with these features: one kernel for each
/// number of rows listed.
macro_rules! kernel {
    ($set:ty, [$($feature:literal)?], [$($m:literal)*], [$($fm:literal)*]) => {
        impl crate::matmul::tile::Kernel for $set {
            unsafe fn integer<L: crate::matmul::layout::IntegerLayout>(rows: usize, t: crate::matmul::tile::PanelTile) {
                $(#[target_feature(enable = $feature)])?
                unsafe fn tile<L: crate::matmul::layout::IntegerLayout, const M: usize>(t: crate::matmul::tile::PanelTile) {
                    // SAFETY: the caller's.
                    unsafe { crate::matmul::tile::integer_tile::<$set, L, M>(crate::simd::Lanes::assume(), t) }
                }
                match rows {
                    // SAFETY: the caller's.
                    $($m => unsafe { tile::<L, $m>(t) },)*
                    _ => unreachable!("a tile has at most {} rows", <$set as crate::matmul::bytes::ByteLanes>::TILE),
                }
            }

            unsafe fn float<W: crate::matmul::layout::FloatLayout>(rows: usize, t: crate::matmul::tile::PanelTile) {
                $(#[target_feature(enable = $feature)])?
                unsafe fn tile<W: crate::matmul::layout::FloatLayout, const M: usize>(t: crate::matmul::tile::PanelTile) {
                    // SAFETY: the caller's.
                    unsafe { crate::matmul::tile::float_tile::<$set, W, M>(crate::simd::Lanes::assume(), t) }
                }
                match rows {
                    // SAFETY: the caller's.
                    $($fm => unsafe { tile::<W, $fm>(t) },)*
                    _ => unreachable!("a tile of floats has at most {} rows", <$set as crate::matmul::bytes::ByteLanes>::FLOAT_TILE),
                }
            }
        }
    };
}
pub(crate) use kernel;
