//! The layout of weights in a panel, for each format, and how a block is multiplied by activations.
//!
//! A panel holds 16 output rows. Along k it is cut into blocks of 32. A block unpacks to 8 vectors
//! of 64 bytes: byte `4 * lane + t` of vector `j` is the value of row `lane` at k = `4j + t`. All
//! values are stored unsigned. The sums of the activations account for a format's minimum, or for
//! its offset: 8 for Q4_0, 128 for Q8_0.
//!
//! | part | bytes | holds |
//! |---|---|---|
//! | nibbles | 256 | vector 2j in the low halves of bytes 64j.., vector 2j + 1 in the high halves |
//! | pairs | 128 | vector 4i + f in bits 2f, 2f + 1 of bytes 64i.. |
//! | bits | 64 | vector j in bit j |
//! | bytes | 512 | vector j in bytes 64j.. |
//! | scales | 32 or 16 | one f16, or one 6-bit or 8-bit integer, a row |
//!
//! K-quants come in groups of 8 blocks that share f16 scales at the head of the group.

use crate::matmul::bytes::ByteLanes;
use crate::simd::Lanes;

/// Output rows in a panel.
pub(crate) const PANEL: usize = 16;

const F16S: usize = 2 * PANEL; // bytes of a row of f16 scales
const NIBBLES: usize = 256;
const PAIRS: usize = 128;
const BITS: usize = 64;

/// The formula of a product of unpacked integers `u` and activations `q`. `s` is the activations'
/// scale, `S` the sum of `q`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProductFormula {
    /// `c0 * s * (sum(u q) - (1 << shift) * S)`
    Offset(u32),
    /// `c0 * s * sum(u q) + c1 * s * S`
    Minimum,
    /// `s * (c0 * (sum(u q) - (1 << shift) * S) + c1 * (...))`, of the first and second 16 values
    HalvesOffset(u32),
    /// `s * (c0 * sum(u q) + c1 * (...)) + c2 * s * S + c3 * (...)`, of the first and second 16
    /// values
    HalvesMinimum,
}

/// The layout of an integer format.
pub(crate) trait IntegerLayout {
    /// Blocks that share a head: 1 or 8.
    const GROUP: usize;
    /// Bytes of the head.
    const HEAD: usize;
    /// Bytes of a block.
    const BLOCK: usize;
    /// Bits of a stored value.
    const BITS: u32;
    const FORMULA: ProductFormula;

    /// The head's scales for the lanes from `lane` on.
    ///
    /// # Safety
    /// `at` points to a group, and `lane + S::WIDTH <= 16`.
    #[inline(always)]
    unsafe fn head<S: ByteLanes>(s: S, at: *const u8, lane: usize) -> [S::V; 2] {
        let _ = (at, lane);
        [s.zero(); 2]
    }

    /// The 8 vectors of the block at `at`, for the lanes from `lane` on.
    ///
    /// # Safety
    /// As [`IntegerLayout::head`]; `at` points to a block.
    unsafe fn unpack<S: ByteLanes>(s: S, at: *const u8, lane: usize) -> [S::B; 8];

    /// The block's coefficients `c0..c3` (see [`ProductFormula`]); those that the formula lacks are
    /// zero.
    ///
    /// # Safety
    /// As [`IntegerLayout::unpack`].
    unsafe fn scales<S: ByteLanes>(s: S, head: [S::V; 2], at: *const u8, lane: usize) -> [S::V; 4];
}

/// The layout of a float format: for every k, 16 values.
pub(crate) trait FloatLayout {
    /// Bytes of a value.
    const BYTES: usize;

    /// Values of `S::WIDTH` rows.
    ///
    /// # Safety
    /// `at` points to that many values.
    unsafe fn load<S: Lanes>(s: S, at: *const u8) -> S::V;
}

/// # Safety
/// As [`IntegerLayout::unpack`]; `at` points to 256 bytes of nibbles.
#[inline(always)]
unsafe fn nibbles<S: ByteLanes>(s: S, at: *const u8, lane: usize) -> [S::B; 8] {
    // SAFETY: the four reads lie within the 256 bytes, as lane + WIDTH <= 16; the rest is the
    // caller's.
    unsafe {
        let a = s.bytes(at.add(4 * lane));
        let b = s.bytes(at.add(64 + 4 * lane));
        let c = s.bytes(at.add(128 + 4 * lane));
        let d = s.bytes(at.add(192 + 4 * lane));
        [
            s.shr_and(a, 0, 15),
            s.shr_and(a, 4, 15),
            s.shr_and(b, 0, 15),
            s.shr_and(b, 4, 15),
            s.shr_and(c, 0, 15),
            s.shr_and(c, 4, 15),
            s.shr_and(d, 0, 15),
            s.shr_and(d, 4, 15),
        ]
    }
}

/// The bits of `mask` after moving bit `from` of every byte to bit `to`.
#[inline(always)]
fn field<S: ByteLanes>(s: S, z: S::B, from: u32, to: u32, mask: u8) -> S::B {
    if to >= from { s.shl_and(z, to - from, mask) } else { s.shr_and(z, from - to, mask) }
}

/// Two bits a value, moved up by `up` (0 or 4).
///
/// # Safety
/// As [`IntegerLayout::unpack`]; `at` points to 128 bytes of pairs.
#[inline(always)]
unsafe fn pairs<S: ByteLanes>(s: S, at: *const u8, lane: usize, up: u32) -> [S::B; 8] {
    // SAFETY: both reads lie within the 128 bytes, as lane + WIDTH <= 16; the rest is the caller's.
    unsafe {
        let a = s.bytes(at.add(4 * lane));
        let b = s.bytes(at.add(64 + 4 * lane));
        let mask = 3 << up;
        [
            field(s, a, 0, up, mask),
            field(s, a, 2, up, mask),
            field(s, a, 4, up, mask),
            field(s, a, 6, up, mask),
            field(s, b, 0, up, mask),
            field(s, b, 2, up, mask),
            field(s, b, 4, up, mask),
            field(s, b, 6, up, mask),
        ]
    }
}

/// One bit a value, moved up by `up` (2 or 4).
///
/// # Safety
/// As [`IntegerLayout::unpack`]; `at` points to 64 bytes of bits.
#[inline(always)]
unsafe fn bits<S: ByteLanes>(s: S, at: *const u8, lane: usize, up: u32) -> [S::B; 8] {
    // SAFETY: the read lies within the 64 bytes, as lane + WIDTH <= 16; the rest is the caller's.
    unsafe {
        let z = s.bytes(at.add(4 * lane));
        let mask = 1 << up;
        [
            field(s, z, 0, up, mask),
            field(s, z, 1, up, mask),
            field(s, z, 2, up, mask),
            field(s, z, 3, up, mask),
            field(s, z, 4, up, mask),
            field(s, z, 5, up, mask),
            field(s, z, 6, up, mask),
            field(s, z, 7, up, mask),
        ]
    }
}

/// # Safety
/// As [`IntegerLayout::unpack`]; `at` points to 512 bytes.
#[inline(always)]
unsafe fn bytes<S: ByteLanes>(s: S, at: *const u8, lane: usize) -> [S::B; 8] {
    // SAFETY: the eight reads lie within the 512 bytes, as lane + WIDTH <= 16; the rest is the
    // caller's.
    unsafe {
        [
            s.bytes(at.add(4 * lane)),
            s.bytes(at.add(64 + 4 * lane)),
            s.bytes(at.add(128 + 4 * lane)),
            s.bytes(at.add(192 + 4 * lane)),
            s.bytes(at.add(256 + 4 * lane)),
            s.bytes(at.add(320 + 4 * lane)),
            s.bytes(at.add(384 + 4 * lane)),
            s.bytes(at.add(448 + 4 * lane)),
        ]
    }
}

#[inline(always)]
fn or<S: ByteLanes>(s: S, a: [S::B; 8], b: [S::B; 8]) -> [S::B; 8] {
    [
        s.or(a[0], b[0]),
        s.or(a[1], b[1]),
        s.or(a[2], b[2]),
        s.or(a[3], b[3]),
        s.or(a[4], b[4]),
        s.or(a[5], b[5]),
        s.or(a[6], b[6]),
        s.or(a[7], b[7]),
    ]
}

/// A block with its own f16 scales after `$values` bytes of values: `[d]`, or `[d, m]` for the
/// formula with a minimum.
macro_rules! plain_layout {
    ($(#[$doc:meta])* $name:ident, $values:expr, $bits:expr, $shape:expr, |$s:ident, $at:ident, $lane:ident| $unpack:expr) => {
        $(#[$doc])*
        pub(crate) struct $name;

        impl IntegerLayout for $name {
            const GROUP: usize = 1;
            const HEAD: usize = 0;
            const BLOCK: usize = $values + if matches!($shape, ProductFormula::Minimum) { 2 * F16S } else { F16S };
            const BITS: u32 = $bits;
            const FORMULA: ProductFormula = $shape;

            #[inline(always)]
            unsafe fn unpack<S: ByteLanes>($s: S, $at: *const u8, $lane: usize) -> [S::B; 8] {
                // SAFETY: `at` points to a block, which holds these parts; the rest is the
                // caller's.
                unsafe { $unpack }
            }

            #[inline(always)]
            unsafe fn scales<S: ByteLanes>(s: S, _: [S::V; 2], at: *const u8, lane: usize) -> [S::V; 4] {
                // SAFETY: the scales follow the values within the block, and lane + WIDTH <= 16.
                unsafe {
                    let d = s.load_f16(at.add($values + 2 * lane).cast());
                    let m = match $shape {
                        ProductFormula::Minimum => s.load_f16(at.add($values + F16S + 2 * lane).cast()),
                        _ => s.zero(),
                    };
                    [d, m, s.zero(), s.zero()]
                }
            }
        }
    };
}

plain_layout!(
    /// Nibbles, d.
    Q4_0, NIBBLES, 4, ProductFormula::Offset(3), |s, at, lane| nibbles(s, at, lane)
);
plain_layout!(
    /// Nibbles, d, m.
    Q4_1, NIBBLES, 4, ProductFormula::Minimum, |s, at, lane| nibbles(s, at, lane)
);
plain_layout!(
    /// Nibbles, bits, d.
    Q5_0, NIBBLES + BITS, 5, ProductFormula::Offset(4),
    |s, at, lane| or(s, nibbles(s, at, lane), bits(s, at.add(NIBBLES), lane, 4))
);
plain_layout!(
    /// Nibbles, bits, d, m.
    Q5_1, NIBBLES + BITS, 5, ProductFormula::Minimum,
    |s, at, lane| or(s, nibbles(s, at, lane), bits(s, at.add(NIBBLES), lane, 4))
);
plain_layout!(
    /// Bytes (the value + 128), d.
    Q8_0, 512, 8, ProductFormula::Offset(7),
    |s, at, lane| bytes(s, at, lane)
);

/// Head: d, dmin. Block: nibbles, 16 scales, 16 minima.
pub(crate) struct Q4K;
/// Head: d, dmin. Block: nibbles, bits, 16 scales, 16 minima.
pub(crate) struct Q5K;

/// `d` and `dmin` of a group.
///
/// # Safety
/// As [`IntegerLayout::head`].
#[inline(always)]
unsafe fn two_scales<S: ByteLanes>(s: S, at: *const u8, lane: usize) -> [S::V; 2] {
    // SAFETY: the head holds 16 + 16 f16, and lane + WIDTH <= 16.
    unsafe { [s.load_f16(at.add(2 * lane).cast()), s.load_f16(at.add(F16S + 2 * lane).cast())] }
}

/// `d * scale` and `-dmin * minimum`, the 16 scales and 16 minima at `at`.
///
/// # Safety
/// As [`IntegerLayout::scales`].
#[inline(always)]
unsafe fn scale_and_minimum<S: ByteLanes>(s: S, head: [S::V; 2], at: *const u8, lane: usize) -> [S::V; 4] {
    // SAFETY: the block holds 16 + 16 bytes there, and lane + WIDTH <= 16.
    unsafe {
        let d = s.mul(head[0], s.load_u8(at.add(lane), 0, 63));
        let m = s.mul(head[1], s.load_u8(at.add(PANEL + lane), 0, 63));
        [d, s.neg(m), s.zero(), s.zero()]
    }
}

impl IntegerLayout for Q4K {
    const GROUP: usize = 8;
    const HEAD: usize = 2 * F16S;
    const BLOCK: usize = NIBBLES + 2 * PANEL;
    const BITS: u32 = 4;
    const FORMULA: ProductFormula = ProductFormula::Minimum;

    #[inline(always)]
    unsafe fn head<S: ByteLanes>(s: S, at: *const u8, lane: usize) -> [S::V; 2] {
        // SAFETY: the caller's.
        unsafe { two_scales(s, at, lane) }
    }

    #[inline(always)]
    unsafe fn unpack<S: ByteLanes>(s: S, at: *const u8, lane: usize) -> [S::B; 8] {
        // SAFETY: the caller's.
        unsafe { nibbles(s, at, lane) }
    }

    #[inline(always)]
    unsafe fn scales<S: ByteLanes>(s: S, head: [S::V; 2], at: *const u8, lane: usize) -> [S::V; 4] {
        // SAFETY: the scales follow the nibbles.
        unsafe { scale_and_minimum(s, head, at.add(NIBBLES), lane) }
    }
}

impl IntegerLayout for Q5K {
    const GROUP: usize = 8;
    const HEAD: usize = 2 * F16S;
    const BLOCK: usize = NIBBLES + BITS + 2 * PANEL;
    const BITS: u32 = 5;
    const FORMULA: ProductFormula = ProductFormula::Minimum;

    #[inline(always)]
    unsafe fn head<S: ByteLanes>(s: S, at: *const u8, lane: usize) -> [S::V; 2] {
        // SAFETY: the caller's.
        unsafe { two_scales(s, at, lane) }
    }

    #[inline(always)]
    unsafe fn unpack<S: ByteLanes>(s: S, at: *const u8, lane: usize) -> [S::B; 8] {
        // SAFETY: the bits follow the nibbles.
        unsafe { or(s, nibbles(s, at, lane), bits(s, at.add(NIBBLES), lane, 4)) }
    }

    #[inline(always)]
    unsafe fn scales<S: ByteLanes>(s: S, head: [S::V; 2], at: *const u8, lane: usize) -> [S::V; 4] {
        // SAFETY: the scales follow the bits.
        unsafe { scale_and_minimum(s, head, at.add(NIBBLES + BITS), lane) }
    }
}

/// Head: d, dmin. Block: pairs; for each half 16 bytes with the scale in the low and the minimum in
/// the high half.
pub(crate) struct Q2K;
/// Head: d. Block: pairs, bits; for each half 16 scales (i8).
pub(crate) struct Q3K;
/// Head: d. Block: nibbles, pairs; for each half 16 scales (i8).
pub(crate) struct Q6K;

/// `d * scale` of both halves, the 16 + 16 signed scales at `at`.
///
/// # Safety
/// As [`IntegerLayout::scales`].
#[inline(always)]
unsafe fn half_scales<S: ByteLanes>(s: S, head: [S::V; 2], at: *const u8, lane: usize) -> [S::V; 4] {
    // SAFETY: the block holds 16 + 16 bytes there, and lane + WIDTH <= 16.
    unsafe {
        let first = s.mul(head[0], s.load_i8(at.add(lane).cast()));
        let second = s.mul(head[0], s.load_i8(at.add(PANEL + lane).cast()));
        [first, second, s.zero(), s.zero()]
    }
}

impl IntegerLayout for Q2K {
    const GROUP: usize = 8;
    const HEAD: usize = 2 * F16S;
    const BLOCK: usize = PAIRS + 2 * PANEL;
    const BITS: u32 = 2;
    const FORMULA: ProductFormula = ProductFormula::HalvesMinimum;

    #[inline(always)]
    unsafe fn head<S: ByteLanes>(s: S, at: *const u8, lane: usize) -> [S::V; 2] {
        // SAFETY: the caller's.
        unsafe { two_scales(s, at, lane) }
    }

    #[inline(always)]
    unsafe fn unpack<S: ByteLanes>(s: S, at: *const u8, lane: usize) -> [S::B; 8] {
        // SAFETY: the caller's.
        unsafe { pairs(s, at, lane, 0) }
    }

    #[inline(always)]
    unsafe fn scales<S: ByteLanes>(s: S, head: [S::V; 2], at: *const u8, lane: usize) -> [S::V; 4] {
        // SAFETY: 16 + 16 bytes follow the pairs, and lane + WIDTH <= 16.
        unsafe {
            let (first, second) = (at.add(PAIRS + lane), at.add(PAIRS + PANEL + lane));
            [
                s.mul(head[0], s.load_u8(first, 0, 15)),
                s.mul(head[0], s.load_u8(second, 0, 15)),
                s.neg(s.mul(head[1], s.load_u8(first, 4, 15))),
                s.neg(s.mul(head[1], s.load_u8(second, 4, 15))),
            ]
        }
    }
}

impl IntegerLayout for Q3K {
    const GROUP: usize = 8;
    const HEAD: usize = F16S;
    const BLOCK: usize = PAIRS + BITS + 2 * PANEL;
    const BITS: u32 = 3;
    const FORMULA: ProductFormula = ProductFormula::HalvesOffset(2);

    #[inline(always)]
    unsafe fn head<S: ByteLanes>(s: S, at: *const u8, lane: usize) -> [S::V; 2] {
        // SAFETY: the head holds 16 f16, and lane + WIDTH <= 16.
        unsafe { [s.load_f16(at.add(2 * lane).cast()), s.zero()] }
    }

    #[inline(always)]
    unsafe fn unpack<S: ByteLanes>(s: S, at: *const u8, lane: usize) -> [S::B; 8] {
        // SAFETY: the bits follow the pairs.
        unsafe { or(s, pairs(s, at, lane, 0), bits(s, at.add(PAIRS), lane, 2)) }
    }

    #[inline(always)]
    unsafe fn scales<S: ByteLanes>(s: S, head: [S::V; 2], at: *const u8, lane: usize) -> [S::V; 4] {
        // SAFETY: the scales follow the bits.
        unsafe { half_scales(s, head, at.add(PAIRS + BITS), lane) }
    }
}

impl IntegerLayout for Q6K {
    const GROUP: usize = 8;
    const HEAD: usize = F16S;
    const BLOCK: usize = NIBBLES + PAIRS + 2 * PANEL;
    const BITS: u32 = 6;
    const FORMULA: ProductFormula = ProductFormula::HalvesOffset(5);

    #[inline(always)]
    unsafe fn head<S: ByteLanes>(s: S, at: *const u8, lane: usize) -> [S::V; 2] {
        // SAFETY: the head holds 16 f16, and lane + WIDTH <= 16.
        unsafe { [s.load_f16(at.add(2 * lane).cast()), s.zero()] }
    }

    #[inline(always)]
    unsafe fn unpack<S: ByteLanes>(s: S, at: *const u8, lane: usize) -> [S::B; 8] {
        // SAFETY: the pairs follow the nibbles.
        unsafe { or(s, nibbles(s, at, lane), pairs(s, at.add(NIBBLES), lane, 4)) }
    }

    #[inline(always)]
    unsafe fn scales<S: ByteLanes>(s: S, head: [S::V; 2], at: *const u8, lane: usize) -> [S::V; 4] {
        // SAFETY: the scales follow the pairs.
        unsafe { half_scales(s, head, at.add(NIBBLES + PAIRS), lane) }
    }
}

/// f32 values.
pub(crate) struct F32;
/// f16 values.
pub(crate) struct F16;
/// bf16 values.
pub(crate) struct Bf16;

impl FloatLayout for F32 {
    const BYTES: usize = 4;
    #[inline(always)]
    unsafe fn load<S: Lanes>(s: S, at: *const u8) -> S::V {
        // SAFETY: the caller's.
        unsafe { s.load_at(at.cast()) }
    }
}

impl FloatLayout for F16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load<S: Lanes>(s: S, at: *const u8) -> S::V {
        // SAFETY: the caller's.
        unsafe { s.load_f16(at.cast()) }
    }
}

impl FloatLayout for Bf16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load<S: Lanes>(s: S, at: *const u8) -> S::V {
        // SAFETY: the caller's.
        unsafe { s.load_bf16(at.cast()) }
    }
}

/// Evaluates `$integer` with `$L` as the layout of `$format` if that is an integer format, else
/// `$float` with `$W` as its layout.
macro_rules! with_layout {
    ($format:expr, $L:ident => $integer:expr, $W:ident => $float:expr) => {{
        use crate::format::WeightFormat;
        use crate::matmul::layout;
        with_layout!(@arms $format, $L, $integer, $W, $float,
            [F32 F16 Bf16], [Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2K Q3K Q4K Q5K Q6K])
    }};
    (@arms $format:expr, $L:ident, $integer:expr, $W:ident, $float:expr, $floats:tt, [$($name:ident)*]) => {
        with_layout!(@floats $format, $W, $float, $floats, { $(WeightFormat::$name => { type $L = layout::$name; $integer })* })
    };
    (@floats $format:expr, $W:ident, $float:expr, [$($name:ident)*], { $($integers:tt)* }) => {
        match $format {
            $(WeightFormat::$name => { type $W = layout::$name; $float })*
            $($integers)*
        }
    };
}
pub(crate) use with_layout;
