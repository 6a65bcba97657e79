//! The vector operations that the matrix kernels are written in, one implementation for each instruction set.

/// Vectors of `LANES` 32-bit lanes. A lane is an output row, so no operation crosses lanes.
///
/// # Safety
/// Every function needs the implementation's instruction set to be there, and pointers that may be read or written for
/// the length named (no alignment is asked for). They are inlined into the kernels, which are compiled for that set.
pub(crate) trait Simd: Copy {
    /// Output rows in a vector. Divides 16.
    const LANES: usize;
    /// Rows of activations that a kernel keeps in registers: at most 8.
    const TILE: usize;
    /// Blocks of whole sums that a kernel multiplies at a time, 1 or 2.
    const BLOCKS: usize;
    /// As `TILE`, for float weights: at most 8.
    const FLOAT_TILE: usize;
    /// `LANES` quads of bytes.
    type B: Copy;
    /// `LANES` 32-bit integers.
    type I: Copy;
    /// `LANES` floats.
    type F: Copy;

    /// Reads `4 * LANES` bytes.
    unsafe fn bytes(p: *const u8) -> Self::B;
    /// `(b >> n) & mask` in every byte. `mask << n` must fit a byte.
    unsafe fn shr_and(b: Self::B, n: u32, mask: u8) -> Self::B;
    /// `(b << n) & mask` in every byte. `mask >> n` must be exact.
    unsafe fn shl_and(b: Self::B, n: u32, mask: u8) -> Self::B;
    unsafe fn or(a: Self::B, b: Self::B) -> Self::B;

    /// Zero in every lane.
    unsafe fn int_zero() -> Self::I;
    /// `*p` times 2 to the power of `by`, which must be exact, in every lane.
    unsafe fn int_splat_shifted(p: *const i32, by: i32) -> Self::I;
    /// For each run of weights i and each row r: `sums[i][r] += sum over j, t of u[i][j][4 * lane + t] * q[i][r][4 * j + t]`. The `u` are
    /// below `1 << bits`, `bits <= 6`, and |q| <= 127; a run has `J` vectors, 4 or 8, and each of `q` is `4 * J` long. Exact.
    unsafe fn dot<const M: usize, const N: usize, const J: usize>(
        sums: &mut [[Self::I; M]; N],
        u: &[[Self::B; J]; N],
        bits: u32,
        q: &[[*const i8; M]; N],
    );
    /// For each block i and row r: `sums[i][r] = sum over j, t of (u[i][j][4 * lane + t] - 128) * q[i][r][4 * j + t]` for 8 vectors of any
    /// bytes; `*neg_sum[i][r]` is minus 128 times the sum of `q[i][r]`. Exact.
    unsafe fn dot_128<const M: usize, const N: usize>(
        sums: &mut [[Self::I; M]; N],
        u: &[[Self::B; 8]; N],
        q: &[[*const i8; M]; N],
        neg_sum: &[[*const i32; M]; N],
    );
    /// Nearest floats.
    unsafe fn to_float(i: Self::I) -> Self::F;

    /// Zero in every lane.
    unsafe fn zero() -> Self::F;
    /// `*p` in every lane.
    unsafe fn splat(p: *const f32) -> Self::F;
    /// Reads `LANES` f32.
    unsafe fn load_f32(p: *const u8) -> Self::F;
    /// Reads `LANES` f16.
    unsafe fn load_f16(p: *const u8) -> Self::F;
    /// Reads `LANES` bf16.
    unsafe fn load_bf16(p: *const u8) -> Self::F;
    /// Reads `LANES` u8: `(byte >> n) & mask` as a float.
    unsafe fn load_u8(p: *const u8, n: u32, mask: u8) -> Self::F;
    /// Reads `LANES` i8 as floats.
    unsafe fn load_i8(p: *const u8) -> Self::F;
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, fused where the set can.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    unsafe fn neg(a: Self::F) -> Self::F;
    /// Writes `LANES` floats.
    unsafe fn store(p: *mut f32, v: Self::F);
    /// Asks for the cache line at `p`, which may be any address.
    unsafe fn prefetch(p: *const u8);
    /// Asks for the line at `p` to come as near as the second-level cache.
    unsafe fn prefetch_far(p: *const u8);
}
