//! [`Lanes`]: a vector of f32 values, which every instruction set implements.
//!
//! Every operation is defined lane by lane, so which lane holds a value never changes its bits. The
//! only reductions over lanes, [`Lanes::sum`] and [`Lanes::maximum`], run in a fixed order.

/// 1.5 * 2^23. Adding it to an x of magnitude below 2^22 rounds x to an integer, ties to even, in
/// the low bits of the sum.
pub(crate) const MAGIC: f32 = 12_582_912.0;

/// Subtracting the bits of a positive d from these gives the bits of about 1 / d: the difference
/// negates the exponent, and the low bits balance the error.
pub(crate) const RECIPROCAL: u32 = 0x7ef3_11c7;

/// A vector of [`Lanes::WIDTH`] f32 values and its operations.
///
/// Every method is inlined into the caller, which [`per_isa!`] compiles for the right instruction
/// set.
pub(crate) trait Lanes: Copy {
    /// The vector.
    type V: Copy;
    /// Lanes in a vector; it divides 16.
    const WIDTH: usize;

    /// The proof that the processor has the instruction set.
    ///
    /// # Safety
    /// It must have it.
    unsafe fn assume() -> Self;

    /// All lanes `x`.
    fn splat(self, x: f32) -> Self::V;
    /// The first `WIDTH` values of `from`; lanes beyond its end are 0.
    fn load(self, from: &[f32]) -> Self::V;
    /// Writes as many lanes as `to` has room for.
    fn store(self, v: Self::V, to: &mut [f32]);
    /// `WIDTH` values of f16, widened.
    ///
    /// # Safety
    /// `from` must be valid for reading `WIDTH` values of 2 bytes. It may be unaligned.
    unsafe fn load_f16(self, from: *const u16) -> Self::V;
    /// `WIDTH` values of bf16, widened.
    ///
    /// # Safety
    /// `from` must be valid for reading `WIDTH` values of 2 bytes. It may be unaligned.
    unsafe fn load_bf16(self, from: *const u16) -> Self::V;
    /// `WIDTH` values of i8, as f32: exact.
    ///
    /// # Safety
    /// `from` must be valid for reading `WIDTH` bytes.
    unsafe fn load_i8(self, from: *const i8) -> Self::V;
    /// `WIDTH` bytes: `(byte >> shift) & mask` as f32, exact.
    ///
    /// # Safety
    /// `from` must be valid for reading `WIDTH` bytes.
    unsafe fn load_u8(self, from: *const u8, shift: u32, mask: u8) -> Self::V;
    /// `WIDTH` values.
    ///
    /// # Safety
    /// `from` must be valid for reading `WIDTH` f32. It may be unaligned.
    unsafe fn load_at(self, from: *const f32) -> Self::V;
    /// Writes all lanes.
    ///
    /// # Safety
    /// `to` must be valid for writing `WIDTH` f32. It may be unaligned.
    unsafe fn store_at(self, v: Self::V, to: *mut f32);
    /// a + b.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// -a: the sign turned, that of a zero too.
    fn neg(self, a: Self::V) -> Self::V;
    /// a - b.
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// a * b.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// a / b, correctly rounded.
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// a * b + c; rounded once where the instruction set has it, twice in scalar code.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger lane; `b` when either is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// In each lane `yes` if a < b, else (also when either is NaN) `no`.
    fn select_less(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V;
    /// In lane i `yes` if `from <= i < to`, else `no`.
    fn select_range(self, from: usize, to: usize, yes: Self::V, no: Self::V) -> Self::V;
    /// 2^n for the integer n in -126..=127 that `t` = n + [`MAGIC`] holds.
    fn exp2_of_magic(self, t: Self::V) -> Self::V;
    /// 1 / d within 6%, for d from 2^-126 to 2^126: the start of Newton's method.
    fn reciprocal_guess(self, d: Self::V) -> Self::V;
    /// Writes all lanes as f16, rounded to nearest, ties to even.
    ///
    /// # Safety
    /// `to` must be valid for writing `WIDTH` values of 2 bytes. It may be unaligned.
    unsafe fn store_f16(self, v: Self::V, to: *mut u16);
    /// Sum of all lanes, in a fixed order.
    fn sum(self, v: Self::V) -> f32;
    /// The largest lane. It may ignore lanes that are NaN.
    fn maximum(self, v: Self::V) -> f32;

    /// All lanes 0.
    #[inline(always)]
    fn zero(self) -> Self::V {
        self.splat(0.0)
    }
}
