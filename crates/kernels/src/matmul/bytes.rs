//! [`ByteLanes`]: the products of bytes, which the matrix kernels need of an instruction set beside
//! floats.

use crate::simd::Lanes;

/// Vectors of bytes and of 32-bit integers beside those of f32. A lane is an output row, so no
/// operation crosses lanes.
///
/// Every method is inlined into the kernels, which are compiled for the instruction set.
pub(crate) trait ByteLanes: Lanes {
    /// Rows of activations that a kernel keeps in registers: at most 8.
    const TILE: usize;
    /// Blocks of whole sums that a kernel multiplies at a time, 1 or 2.
    const BLOCKS: usize;
    /// As `TILE`, for float weights: at most 8.
    const FLOAT_TILE: usize;
    /// `WIDTH` quads of bytes.
    type B: Copy;
    /// `WIDTH` 32-bit integers.
    type I: Copy;

    /// Reads `4 * WIDTH` bytes.
    ///
    /// # Safety
    /// `p` must be valid for reading them.
    unsafe fn bytes(self, p: *const u8) -> Self::B;
    /// `(b >> n) & mask` in every byte. `mask << n` must fit a byte.
    fn shr_and(self, b: Self::B, n: u32, mask: u8) -> Self::B;
    /// `(b << n) & mask` in every byte. `mask >> n` must be exact.
    fn shl_and(self, b: Self::B, n: u32, mask: u8) -> Self::B;
    /// a | b.
    fn or(self, a: Self::B, b: Self::B) -> Self::B;

    /// Zero in every lane.
    fn int_zero(self) -> Self::I;
    /// `x` times 2 to the power of `by`, which must be exact, in every lane.
    fn int_splat_shifted(self, x: i32, by: i32) -> Self::I;
    /// For each run of weights i and each row r: `sums[i][r] += sum over j, t of u[i][j][4 * lane +
    /// t] * q[i][r][4 * j + t]`. The `u` are below `1 << bits`, `bits <= 6`, and |q| <= 127; a run
    /// has `J` vectors, 4 or 8. Exact.
    ///
    /// # Safety
    /// Each of `q` must be valid for reading `4 * J` values.
    unsafe fn dot<const M: usize, const N: usize, const J: usize>(
        self,
        sums: &mut [[Self::I; M]; N],
        u: &[[Self::B; J]; N],
        bits: u32,
        q: &[[*const i8; M]; N],
    );
    /// For each block i and row r: `sums[i][r] = sum over j, t of (u[i][j][4 * lane + t] - 128) *
    /// q[i][r][4 * j + t]` for 8 vectors of any bytes; `neg_sum[i][r]` is minus 128 times the sum
    /// of `q[i][r]`. Exact.
    ///
    /// # Safety
    /// Each of `q` must be valid for reading 32 values, each of `neg_sum` for one.
    unsafe fn dot_128<const M: usize, const N: usize>(
        self,
        sums: &mut [[Self::I; M]; N],
        u: &[[Self::B; 8]; N],
        q: &[[*const i8; M]; N],
        neg_sum: &[[*const i32; M]; N],
    );
    /// Nearest floats.
    fn to_float(self, i: Self::I) -> Self::V;
}
