//! The matrix kernels: one panel of weights by a tile of rows, written once for all formats and instruction sets.
//!
//! Block by block along k, a block's values are unpacked once and used for all rows of the tile; each row adds the block's
//! product to its own accumulator. So a row's bits are made by the same operations in the same order whatever the tile.

use crate::activations::{BLOCK, BlockPtrs};
use crate::panel_layout::{FloatLayout, Layout, PANEL, Shape};
use crate::simd::Simd;

/// Distances of the prefetches in the stream of weights, in bytes: into the first-level cache, and from memory into the second.
/// The hardware's own prefetch stays too close to reach the memory's speed; lines that come into the first level much earlier leave it
/// before they are used, and one distance alone leaves it idle where the stream begins or another matrix is next.
pub(crate) const AHEAD: usize = 2560;
pub(crate) const FAR_AHEAD: usize = 16 << 10;

/// A panel and the rows that meet it.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    /// The panel.
    pub(crate) panel: *const u8,
    /// Values along k.
    pub(crate) k: usize,
    /// First lane of the panel to compute; `S::LANES` are.
    pub(crate) lane: usize,
    /// The tile's first row as 8-bit blocks.
    pub(crate) x: BlockPtrs,
    /// The tile's first row as floats, rows `k` apart.
    pub(crate) f32s: *const f32,
    /// Where lane 0 of the tile's first row goes.
    pub(crate) out: *mut f32,
    /// Floats from one row of `out` to the next.
    pub(crate) stride: usize,
    /// Whether to prefetch: the panel's first reader does.
    pub(crate) prefetch: bool,
    /// Whether the reduction runs backwards. Only ever set to break row invariance on purpose.
    pub(crate) backwards: bool,
}

impl Tile {
    /// The tile whose first row is `rows` further on.
    pub(crate) fn skip(self, rows: usize) -> Tile {
        Tile { out: self.out.wrapping_add(rows * self.stride), ..self.at_row(rows) }
    }

    /// The tile whose input is `rows` further on, with its output where it is.
    pub(crate) fn at_row(self, rows: usize) -> Tile {
        let blocks = self.k.div_ceil(BLOCK);
        let x = self.x;
        Tile {
            // Wrapping, as only one of the two representations need exist; the kernel reads the one that does.
            x: BlockPtrs {
                q: x.q.wrapping_add(rows * blocks * BLOCK),
                scale: x.scale.wrapping_add(rows * blocks),
                sum: x.sum.wrapping_add(rows * blocks),
                half_sum: x.half_sum.wrapping_add(rows * blocks),
                neg_sum: x.neg_sum.wrapping_add(rows * blocks),
                neg_half: x.neg_half.wrapping_add(rows * blocks),
            },
            f32s: self.f32s.wrapping_add(rows * self.k),
            ..self
        }
    }
}

/// Asks for what lies ahead of the `bytes` at `at`, so that every line of the stream is asked for once a level.
///
/// # Safety
/// As [`Simd`].
#[inline(always)]
unsafe fn fetch_ahead<S: Simd>(at: *const u8, bytes: usize) {
    for line in (0..bytes).step_by(64) {
        // SAFETY: a prefetch takes any address; the instruction set is the caller's.
        unsafe {
            S::prefetch(at.wrapping_add(AHEAD + line));
            S::prefetch_far(at.wrapping_add(FAR_AHEAD + line));
        }
    }
}

/// A tile of `M` rows by a panel of an integer format.
///
/// # Safety
/// As [`Simd`]; the panel holds `k / 32` blocks of `L` in whole groups, the rows are there as 8-bit blocks, `lane + LANES <= 16`,
/// and `out` may be written at `lane..lane + LANES` of `M` rows.
#[inline(always)]
pub(crate) unsafe fn integer_tile<S: Simd, L: Layout, const M: usize>(t: Tile) {
    // SAFETY: pointers stay within the panel (groups * group_bytes) and the rows (M * blocks); prefetch takes any address.
    unsafe {
        let blocks = t.k / BLOCK;
        let groups = blocks / L::GROUP;
        let group_bytes = L::HEAD + L::GROUP * L::BLOCK;
        let mut acc = [S::zero(); M];
        for g in 0..groups {
            let g = if cfg!(feature = "broken-invariance") && t.backwards { groups - 1 - g } else { g };
            let group = t.panel.add(g * group_bytes);
            let head = L::head::<S>(group, t.lane);
            if t.prefetch {
                fetch_ahead::<S>(group, L::HEAD);
            }
            for i in 0..L::GROUP {
                let at = group.add(L::HEAD + i * L::BLOCK);
                if t.prefetch {
                    fetch_ahead::<S>(at, L::BLOCK);
                }
                let u = L::unpack::<S>(at, t.lane);
                let c = L::scales::<S>(head, at, t.lane);
                fold::<S, L, M>(&mut acc, &u, c, t.x, g * L::GROUP + i, blocks);
            }
        }
        for (r, acc) in acc.iter().enumerate() {
            S::store(t.out.add(r * t.stride + t.lane), *acc);
        }
    }
}

/// Adds the products of an unpacked block with block `b` of the rows, which are `blocks` apart, to their accumulators.
///
/// # Safety
/// As [`integer_tile`].
#[inline(always)]
unsafe fn fold<S: Simd, L: Layout, const M: usize>(
    acc: &mut [S::F; M],
    u: &[S::B; 8],
    c: [S::F; 4],
    x: BlockPtrs,
    b: usize,
    blocks: usize,
) {
    // SAFETY: `b` is a block of the tile's rows, of which every array of `x` has an entry.
    unsafe {
        // Loops and no closures over vectors: what is not inlined would pass them through memory.
        let at = |r: usize| r * blocks + b;
        let mut q = [x.q; M];
        for (r, q) in q.iter_mut().enumerate() {
            *q = q.add(at(r) * BLOCK);
        }
        let mut first = [S::int_zero(); M];
        let mut second = [S::int_zero(); M];
        match L::SHAPE {
            Shape::Offset(_) if L::BITS == 8 => {
                let mut neg = [x.neg_sum; M];
                for (r, neg) in neg.iter_mut().enumerate() {
                    *neg = neg.add(at(r));
                }
                S::dot_128(&mut first, u, &q, &neg);
            }
            Shape::Offset(shift) => {
                for (r, first) in first.iter_mut().enumerate() {
                    *first = S::int_splat_shl(x.neg_sum.add(at(r)), shift);
                }
                S::dot(&mut first, u, L::BITS, &q);
            }
            Shape::Minimum => S::dot(&mut first, u, L::BITS, &q),
            Shape::HalvesOffset(_) | Shape::HalvesMinimum => {
                if let Shape::HalvesOffset(shift) = L::SHAPE {
                    for r in 0..M {
                        let neg = x.neg_half.add(at(r)).cast::<i32>();
                        first[r] = S::int_splat_shl(neg, shift);
                        second[r] = S::int_splat_shl(neg.add(1), shift);
                    }
                }
                S::dot(&mut first, &u[..4], L::BITS, &q);
                for q in &mut q {
                    *q = q.add(16);
                }
                S::dot(&mut second, &u[4..], L::BITS, &q);
            }
        }
        for (r, acc) in acc.iter_mut().enumerate() {
            let s = S::splat(x.scale.add(at(r)));
            match L::SHAPE {
                Shape::Offset(_) => *acc = S::fma(S::to_float(first[r]), S::mul(c[0], s), *acc),
                Shape::Minimum => {
                    let products = S::fma(S::to_float(first[r]), S::mul(c[0], s), *acc);
                    *acc = S::fma(c[1], S::splat(x.sum.add(at(r))), products);
                }
                Shape::HalvesOffset(_) => {
                    let sum = S::fma(S::to_float(second[r]), c[1], S::mul(S::to_float(first[r]), c[0]));
                    *acc = S::fma(sum, s, *acc);
                }
                Shape::HalvesMinimum => {
                    let sum = S::fma(S::to_float(second[r]), c[1], S::mul(S::to_float(first[r]), c[0]));
                    let half_sum = x.half_sum.add(at(r)).cast::<f32>();
                    let products = S::fma(sum, s, *acc);
                    let products = S::fma(c[2], S::splat(half_sum), products);
                    *acc = S::fma(c[3], S::splat(half_sum.add(1)), products);
                }
            }
        }
    }
}

/// A tile of `M` rows by a panel of a float format. Values of even and odd k are summed apart, then added.
///
/// # Safety
/// As [`Simd`]; the panel holds `k` times 16 values of `W`, the rows are there as floats, `lane + LANES <= 16`, and `out` may be
/// written at `lane..lane + LANES` of `M` rows.
#[inline(always)]
pub(crate) unsafe fn float_tile<S: Simd, W: FloatLayout, const M: usize>(t: Tile) {
    // SAFETY: i < k for every read of the panel and of the rows; prefetch takes any address.
    unsafe {
        let step = PANEL * W::BYTES;
        let mut even = [S::zero(); M];
        let mut odd = [S::zero(); M];
        let pairs = t.k / 2;
        for p in 0..pairs {
            let p = if cfg!(feature = "broken-invariance") && t.backwards { pairs - 1 - p } else { p };
            let at = t.panel.add(2 * p * step);
            if t.prefetch {
                fetch_ahead::<S>(at, 2 * step);
            }
            let w0 = W::load::<S>(at.add(t.lane * W::BYTES));
            let w1 = W::load::<S>(at.add(step + t.lane * W::BYTES));
            for r in 0..M {
                let x = t.f32s.add(r * t.k + 2 * p);
                even[r] = S::fma(w0, S::splat(x), even[r]);
                odd[r] = S::fma(w1, S::splat(x.add(1)), odd[r]);
            }
        }
        if t.k % 2 == 1 {
            let w = W::load::<S>(t.panel.add((t.k - 1) * step + t.lane * W::BYTES));
            for (r, even) in even.iter_mut().enumerate() {
                *even = S::fma(w, S::splat(t.f32s.add(r * t.k + t.k - 1)), *even);
            }
        }
        for r in 0..M {
            S::store(t.out.add(r * t.stride + t.lane), S::add(even[r], odd[r]));
        }
    }
}

/// Runs one tile of 1 to 8 rows in code compiled for the instruction set.
pub(crate) trait Kernel: Simd {
    /// `rows <= TILE` rows by a panel of an integer format.
    ///
    /// # Safety
    /// As [`integer_tile`].
    unsafe fn integer<L: Layout>(rows: usize, t: Tile);

    /// `rows <= FLOAT_TILE` rows by a panel of a float format.
    ///
    /// # Safety
    /// As [`float_tile`].
    unsafe fn float<W: FloatLayout>(rows: usize, t: Tile);
}

/// Implements [`Kernel`] for a set: its kernels are compiled with these features, one for each number of rows listed.
macro_rules! kernel {
    ($set:ty, [$($feature:literal)?], [$($m:literal)*], [$($fm:literal)*]) => {
        impl crate::matmul_tile::Kernel for $set {
            unsafe fn integer<L: crate::panel_layout::Layout>(rows: usize, t: crate::matmul_tile::Tile) {
                $(#[target_feature(enable = $feature)])?
                unsafe fn tile<L: crate::panel_layout::Layout, const M: usize>(t: crate::matmul_tile::Tile) {
                    // SAFETY: the caller's.
                    unsafe { crate::matmul_tile::integer_tile::<$set, L, M>(t) }
                }
                match rows {
                    // SAFETY: the caller's.
                    $($m => unsafe { tile::<L, $m>(t) },)*
                    _ => unreachable!("a tile has at most {} rows", <$set as crate::simd::Simd>::TILE),
                }
            }

            unsafe fn float<W: crate::panel_layout::FloatLayout>(rows: usize, t: crate::matmul_tile::Tile) {
                $(#[target_feature(enable = $feature)])?
                unsafe fn tile<W: crate::panel_layout::FloatLayout, const M: usize>(t: crate::matmul_tile::Tile) {
                    // SAFETY: the caller's.
                    unsafe { crate::matmul_tile::float_tile::<$set, W, M>(t) }
                }
                match rows {
                    // SAFETY: the caller's.
                    $($fm => unsafe { tile::<W, $fm>(t) },)*
                    _ => unreachable!("a tile of floats has at most {} rows", <$set as crate::simd::Simd>::FLOAT_TILE),
                }
            }
        }
    };
}
pub(crate) use kernel;

kernel!(crate::matmul_scalar::Scalar, [], [1 2 3 4], [1 2 3 4]);
