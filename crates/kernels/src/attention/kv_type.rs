//! [`KvType`]: the number types of the KV cache, and the operations that attention and the cache
//! need of each.
//!
//! - f16: two bytes a value.
//! - q8: one byte a value and, for each position and KV head, one f32 scale for K and one for V,
//!   the largest magnitude / 127. A scale depends on its own position's values only, so the way K
//!   and V came into the cache never changes their bits. Attention multiplies a score by its key's
//!   scale and a weight by its value's scale, never single values.

use std::fmt;
use std::str::FromStr;

use bytemuck::Pod;

use crate::error::KernelError;
use crate::simd::{Lanes, MAGIC, largest_magnitude};

/// The number type of the KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum KvType {
    /// 16-bit floating point. A magnitude above 65,504 becomes infinite.
    #[default]
    F16,
    /// 8-bit integers with an f32 scale for each position and head: about half the memory of f16.
    Q8,
}

impl KvType {
    /// Every type.
    pub const ALL: [KvType; 2] = [KvType::F16, KvType::Q8];

    fn name(self) -> &'static str {
        match self {
            KvType::F16 => "f16",
            KvType::Q8 => "q8",
        }
    }

    /// Bytes of one value.
    pub(crate) fn value_bytes(self) -> usize {
        match self {
            KvType::F16 => size_of::<u16>(),
            KvType::Q8 => size_of::<i8>(),
        }
    }

    /// Bytes of the scale of one position's K or V.
    pub(crate) fn scale_bytes(self) -> usize {
        match self {
            KvType::F16 => 0,
            KvType::Q8 => size_of::<f32>(),
        }
    }

    /// Bytes of K and V of one head at one position, without the padding that a page may have.
    pub fn head_bytes(self, head_dim: usize) -> usize {
        2 * (head_dim * self.value_bytes() + self.scale_bytes())
    }
}

impl fmt::Display for KvType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// `f16` or `q8`.
impl FromStr for KvType {
    type Err = KernelError;

    fn from_str(name: &str) -> Result<KvType, KernelError> {
        let unknown = || KernelError::UnknownKvType { name: name.chars().take(40).collect() };
        KvType::ALL.into_iter().find(|ty| ty.name() == name).ok_or_else(unknown)
    }
}

/// A value of the cache.
pub(crate) trait Element: Pod {
    /// Its type.
    const TYPE: KvType;
    /// Whether each position's K and V have scales.
    const SCALED: bool;

    /// `WIDTH` values, widened.
    ///
    /// # Safety
    /// `from` must be valid for reading `WIDTH` values.
    unsafe fn load<L: Lanes>(l: L, from: *const Self) -> L::V;

    /// The scale of one position's K or V, (head_dim): the factor of the values that
    /// [`Element::narrow`] returns.
    fn scale(x: &[f32]) -> f32;

    /// At most 16 values, narrowed. Except for NaN, the bits are the same on every instruction set.
    fn narrow<L: Lanes>(l: L, x: &[f32], scale: f32) -> [Self; 16];
}

/// The bits of an f16.
impl Element for u16 {
    const TYPE: KvType = KvType::F16;
    const SCALED: bool = false;

    #[inline(always)]
    unsafe fn load<L: Lanes>(l: L, from: *const u16) -> L::V {
        // SAFETY: the caller's promise.
        unsafe { l.load_f16(from) }
    }

    #[inline(always)]
    fn scale(_: &[f32]) -> f32 {
        1.0
    }

    #[inline(always)]
    fn narrow<L: Lanes>(l: L, x: &[f32], _: f32) -> [u16; 16] {
        let mut narrow = [0; 16];
        for (part, narrow) in x.chunks(L::WIDTH).zip(narrow.chunks_exact_mut(L::WIDTH)) {
            // SAFETY: `narrow` has WIDTH values.
            unsafe { l.store_f16(l.load(part), narrow.as_mut_ptr()) };
        }
        narrow
    }
}

impl Element for i8 {
    const TYPE: KvType = KvType::Q8;
    const SCALED: bool = true;

    #[inline(always)]
    unsafe fn load<L: Lanes>(l: L, from: *const i8) -> L::V {
        // SAFETY: the caller's promise.
        unsafe { l.load_i8(from) }
    }

    /// NaN if any value is NaN or infinite; 0 if all are too small for a scale that is a normal
    /// number.
    #[inline(always)]
    fn scale(x: &[f32]) -> f32 {
        let largest = largest_magnitude(x);
        let scale = f32::from_bits(largest) / 127.0;
        match largest {
            0x7f80_0000.. => f32::NAN,
            _ if scale < f32::MIN_POSITIVE => 0.0,
            _ => scale,
        }
    }

    #[inline(always)]
    fn narrow<L: Lanes>(l: L, x: &[f32], scale: f32) -> [i8; 16] {
        // Values whose scale is 0 are themselves far below 1/2.
        let scale = l.splat(if scale == 0.0 { 1.0 } else { scale });
        let mut sums = [0.0f32; 16];
        for (part, sums) in x.chunks(L::WIDTH).zip(sums.chunks_exact_mut(L::WIDTH)) {
            l.store(l.add(l.div(l.load(part), scale), l.splat(MAGIC)), sums);
        }
        // The integer, at most 127 in magnitude, is the low byte of the sum.
        sums.map(|sum| sum.to_bits() as i8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_unknown_ones_are_refused() {
        for ty in KvType::ALL {
            assert_eq!(ty.to_string().parse(), Ok(ty));
        }
        assert_eq!("q4".parse::<KvType>(), Err(KernelError::UnknownKvType { name: "q4".into() }));
        assert_eq!((KvType::F16.head_bytes(64), KvType::Q8.head_bytes(64)), (256, 136));
    }
}
