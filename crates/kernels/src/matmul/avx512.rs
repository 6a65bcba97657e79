//! The matrix kernels' operations in AVX-512 with VNNI: 16 lanes.

use std::arch::x86_64::*;

use crate::matmul::tile::kernel;
use crate::simd::Simd;

/// AVX-512 (F, BW, VL) with VNNI, FMA and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx512;

kernel!(Avx512, ["avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c"], [1 2 3 4 5 6 7 8], [1 2 3 4 5 6 7 8]);

/// The quad of bytes at `q` in every lane.
///
/// # Safety
/// As [`Simd`]; `q` points to 4 bytes.
#[inline(always)]
unsafe fn quad(q: *const i8) -> __m512i {
    // SAFETY: the caller's.
    unsafe { _mm512_set1_epi32(q.cast::<i32>().read_unaligned()) }
}

/// The products with vector `j` of each run. A loop over `j` would be too large for the compiler to unroll, and the vectors then lie in memory.
///
/// # Safety
/// As [`Simd::dot`]; `j < J`, a 4 or 8.
#[inline(always)]
unsafe fn turn<const M: usize, const N: usize, const J: usize>(
    sums: &mut [[__m512i; M]; N],
    u: &[[__m512i; J]; N],
    j: usize,
    q: &[[*const i8; M]; N],
) {
    for i in 0..N {
        for (sum, q) in sums[i].iter_mut().zip(&q[i]) {
            // SAFETY: the caller's; `q` is 4 * J long.
            *sum = unsafe { _mm512_dpbusd_epi32(*sum, u[i][j], quad(q.add(4 * j))) };
        }
    }
    let sums = sums.as_flattened_mut();
    for s in 1..if M < 4 { 0 } else { N * M } {
        // SAFETY: the instruction set is the caller's.
        unsafe { (sums[s - 1], sums[s]) = tie(sums[s - 1], sums[s]) };
    }
}

/// Two values, of which the compiler believes that each depends on both: it must have both before it goes on with either. Left alone, it may
/// finish one row's products before it begins the next row's, and every one then waits for the one before.
#[inline]
#[target_feature(enable = "avx512f")]
fn tie(mut a: __m512i, mut b: __m512i) -> (__m512i, __m512i) {
    // SAFETY: no instruction.
    unsafe {
        std::arch::asm!("/* {0} {1} */", inout(zmm_reg) a, inout(zmm_reg) b, options(pure, nomem, nostack, preserves_flags))
    };
    (a, b)
}

// SAFETY (all functions): the instruction set and the pointers are the caller's to vouch for, see `Simd`.
impl Simd for Avx512 {
    const LANES: usize = 16;
    const TILE: usize = 8;
    const BLOCKS: usize = 2;
    const FLOAT_TILE: usize = 8;
    type B = __m512i;
    type I = __m512i;
    type F = __m512;

    #[inline(always)]
    unsafe fn bytes(p: *const u8) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_loadu_si512(p.cast()) }
    }
    #[inline(always)]
    unsafe fn shr_and(b: __m512i, n: u32, mask: u8) -> __m512i {
        // Bits that cross bytes are masked away.
        // SAFETY: see above.
        unsafe { _mm512_and_si512(_mm512_srl_epi16(b, _mm_cvtsi32_si128(n as i32)), _mm512_set1_epi8(mask as i8)) }
    }
    #[inline(always)]
    unsafe fn shl_and(b: __m512i, n: u32, mask: u8) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_and_si512(_mm512_sll_epi16(b, _mm_cvtsi32_si128(n as i32)), _mm512_set1_epi8(mask as i8)) }
    }
    #[inline(always)]
    unsafe fn or(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_or_si512(a, b) }
    }

    #[inline(always)]
    unsafe fn int_zero() -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_setzero_si512() }
    }
    #[inline(always)]
    unsafe fn int_splat_shifted(p: *const i32, by: i32) -> __m512i {
        // SAFETY: see above.
        unsafe {
            let v = _mm512_set1_epi32(p.read());
            if by >= 0 {
                _mm512_sll_epi32(v, _mm_cvtsi32_si128(by))
            } else {
                _mm512_sra_epi32(v, _mm_cvtsi32_si128(-by))
            }
        }
    }
    #[inline(always)]
    unsafe fn dot<const M: usize, const N: usize, const J: usize>(
        sums: &mut [[__m512i; M]; N],
        u: &[[__m512i; J]; N],
        _bits: u32,
        q: &[[*const i8; M]; N],
    ) {
        // The runs and rows take turns, so that neighbouring products are independent of each other: the scheduler is not filled
        // with waiting ones. A product takes 5 cycles and two begin in each, so 10 are wanted.
        // SAFETY: see above; `j` is below J.
        unsafe {
            turn(sums, u, 0, q);
            turn(sums, u, 1, q);
            turn(sums, u, 2, q);
            turn(sums, u, 3, q);
            if J > 4 {
                turn(sums, u, 4, q);
                turn(sums, u, 5, q);
                turn(sums, u, 6, q);
                turn(sums, u, 7, q);
            }
        }
    }
    #[inline(always)]
    unsafe fn dot_128<const M: usize, const N: usize>(
        sums: &mut [[__m512i; M]; N],
        u: &[[__m512i; 8]; N],
        q: &[[*const i8; M]; N],
        neg_sum: &[[*const i32; M]; N],
    ) {
        // SAFETY: see above. No saturation: dpbusd adds 4 products of 16 bits in 32.
        unsafe {
            for (sum, neg) in sums.as_flattened_mut().iter_mut().zip(neg_sum.as_flattened()) {
                *sum = Self::int_splat_shifted(*neg, 0);
            }
            Self::dot(sums, u, 8, q);
        }
    }
    #[inline(always)]
    unsafe fn to_float(i: __m512i) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_cvtepi32_ps(i) }
    }

    #[inline(always)]
    unsafe fn zero() -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_setzero_ps() }
    }
    #[inline(always)]
    unsafe fn splat(p: *const f32) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_set1_ps(p.read()) }
    }
    #[inline(always)]
    unsafe fn load_f32(p: *const u8) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_loadu_ps(p.cast()) }
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u8) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_cvt_roundph_ps::<_MM_FROUND_CUR_DIRECTION>(_mm256_loadu_si256(p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u8) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast())))) }
    }
    #[inline(always)]
    unsafe fn load_u8(p: *const u8, n: u32, mask: u8) -> __m512 {
        // SAFETY: see above.
        unsafe {
            let i = _mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast()));
            let i = _mm512_srl_epi32(i, _mm_cvtsi32_si128(n as i32));
            _mm512_cvtepi32_ps(_mm512_and_si512(i, _mm512_set1_epi32(i32::from(mask))))
        }
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const u8) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast()))) }
    }
    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn neg(a: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(a), _mm512_set1_epi32(i32::MIN))) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: __m512) {
        // SAFETY: see above.
        unsafe { _mm512_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn prefetch(p: *const u8) {
        // SAFETY: see above.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
    #[inline(always)]
    unsafe fn prefetch_far(p: *const u8) {
        // SAFETY: see above.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
    }
}
