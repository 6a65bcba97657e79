//! [`per_isa!`]: a generic kernel, compiled once for each instruction set and chosen at run time.

/// Defines a function `name(isa, arguments...)` that runs a generic kernel with the lanes of an
/// instruction set.
///
/// The kernel is compiled once for each set, with its features on. It must be `#[inline(always)]`
/// all the way down: code that is not inlined is compiled without the features.
macro_rules! per_isa {
    ($(#[$meta:meta])* $vis:vis fn $name:ident $(<$e:ident: $bound:ident $(, const $n:ident: usize)?>)? ($($arg:ident: $ty:ty),* $(,)?) = |$l:ident| $body:expr) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name $(<$e: $bound $(, const $n: usize)?>)? (isa: $crate::simd::Isa, $($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2 $(<$e: $bound $(, const $n: usize)?>)? ($($arg: $ty),*) {
                // SAFETY: this function has these features, so its caller has made sure that the
                // processor has them.
                let $l = unsafe { <$crate::simd::Avx2<false> as $crate::simd::Lanes>::assume() };
                $body
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
            fn avx512 $(<$e: $bound $(, const $n: usize)?>)? ($($arg: $ty),*) {
                // SAFETY: this function has these features, so its caller has made sure that the
                // processor has them.
                let $l = unsafe { <$crate::simd::Avx512 as $crate::simd::Lanes>::assume() };
                $body
            }
            match isa {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: an `Isa` other than scalar exists only where the CPU has its features.
                $crate::simd::Isa::Avx2 => unsafe { avx2 $(::<$e $(, $n)?>)? ($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above.
                $crate::simd::Isa::Avx512Vnni => unsafe { avx512 $(::<$e $(, $n)?>)? ($($arg),*) },
                #[cfg(target_arch = "aarch64")]
                $crate::simd::Isa::Neon => {
                    // SAFETY: as above; NEON itself is on in every function of this target.
                    let $l = unsafe { <$crate::simd::Neon as $crate::simd::Lanes>::assume() };
                    $body
                }
                #[allow(unreachable_patterns)]
                _ => {
                    let $l = $crate::simd::Scalar::<4>;
                    $body
                }
            }
        }
    };
}
pub(crate) use per_isa;
