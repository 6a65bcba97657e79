//! Byte products in AVX-512 with VNNI: 16 lanes.

use std::arch::x86_64::*;

use crate::matmul::bytes::ByteLanes;
use crate::matmul::tile::kernel;
use crate::simd::{Avx512, Isa};

kernel!(Avx512, ["avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c"], [1 2 3 4 5 6 7 8], [1 2 3 4 5 6 7 8]);

/// The quad of bytes at `q` in every lane.
///
/// # Safety
/// The processor has AVX-512; `q` points to 4 bytes.
#[inline(always)]
unsafe fn quad(q: *const i8) -> __m512i {
    // SAFETY: the caller's.
    unsafe { _mm512_set1_epi32(q.cast::<i32>().read_unaligned()) }
}

/// Adds the products with vector `j` of each run. The compiler does not unroll a loop over `j`,
/// which is too large, and would keep the vectors in memory.
///
/// # Safety
/// The processor has AVX-512 with VNNI; as [`ByteLanes::dot`]; `j < J`, a 4 or 8.
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

/// Returns its arguments, but makes the compiler believe that each result depends on both: it must
/// compute both before it uses either. Otherwise it may finish one row's products before it begins
/// the next row's, and each product waits for the one before.
#[inline]
#[target_feature(enable = "avx512f")]
fn tie(mut a: __m512i, mut b: __m512i) -> (__m512i, __m512i) {
    // SAFETY: no instruction.
    unsafe {
        std::arch::asm!("/* {0} {1} */", inout(zmm_reg) a, inout(zmm_reg) b, options(pure, nomem, nostack, preserves_flags))
    };
    (a, b)
}

impl ByteLanes for Avx512 {
    const TILE: usize = Isa::Avx512Vnni.tile_rows();
    const BLOCKS: usize = 2;
    const FLOAT_TILE: usize = 8;
    type B = __m512i;
    type I = __m512i;

    #[inline(always)]
    unsafe fn bytes(self, p: *const u8) -> __m512i {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_loadu_si512(p.cast()) }
    }
    #[inline(always)]
    fn shr_and(self, b: __m512i, n: u32, mask: u8) -> __m512i {
        // Bits that cross bytes are masked away.
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_and_si512(_mm512_srl_epi16(b, _mm_cvtsi32_si128(n as i32)), _mm512_set1_epi8(mask as i8)) }
    }
    #[inline(always)]
    fn shl_and(self, b: __m512i, n: u32, mask: u8) -> __m512i {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_and_si512(_mm512_sll_epi16(b, _mm_cvtsi32_si128(n as i32)), _mm512_set1_epi8(mask as i8)) }
    }
    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_or_si512(a, b) }
    }

    #[inline(always)]
    fn int_zero(self) -> __m512i {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_setzero_si512() }
    }
    #[inline(always)]
    fn int_splat_shifted(self, x: i32, by: i32) -> __m512i {
        // SAFETY: `self` proves the instruction set.
        unsafe {
            let v = _mm512_set1_epi32(x);
            if by >= 0 {
                _mm512_sll_epi32(v, _mm_cvtsi32_si128(by))
            } else {
                _mm512_sra_epi32(v, _mm_cvtsi32_si128(-by))
            }
        }
    }
    #[inline(always)]
    unsafe fn dot<const M: usize, const N: usize, const J: usize>(
        self,
        sums: &mut [[__m512i; M]; N],
        u: &[[__m512i; J]; N],
        _bits: u32,
        q: &[[*const i8; M]; N],
    ) {
        // The runs and rows take turns, so that neighbouring products are independent and do not
        // fill the scheduler with waiting ones. A product takes 5 cycles and two begin in each, so
        // at least 10 should be independent.
        // SAFETY: `self` proves the instruction set; `j` is below J.
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
        self,
        sums: &mut [[__m512i; M]; N],
        u: &[[__m512i; 8]; N],
        q: &[[*const i8; M]; N],
        neg_sum: &[[*const i32; M]; N],
    ) {
        // SAFETY: `self` proves the instruction set. No saturation: dpbusd adds 4 products of 16
        // bits in 32.
        unsafe {
            for (sum, neg) in sums.as_flattened_mut().iter_mut().zip(neg_sum.as_flattened()) {
                *sum = self.int_splat_shifted(neg.read(), 0);
            }
            self.dot(sums, u, 8, q);
        }
    }
    #[inline(always)]
    fn to_float(self, i: __m512i) -> __m512 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_cvtepi32_ps(i) }
    }
}
