//! [`Isa`]: the instruction sets, chosen at run time.

use std::fmt;
use std::str::FromStr;

use crate::error::KernelError;

/// An instruction set that the kernels are written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Isa {
    /// Plain Rust: runs on every processor. The other sets are tested against it.
    Scalar,
    /// AVX2 with FMA and F16C. AVX-VNNI is used where the processor has it; the bits are the same.
    Avx2,
    /// AVX-512 (F, BW, VL) with VNNI, FMA and F16C.
    Avx512Vnni,
    /// NEON with the dot product extension.
    Neon,
}

impl Isa {
    /// Every set, whether this processor has it or not.
    const ALL: [Isa; 4] = [Isa::Scalar, Isa::Avx2, Isa::Avx512Vnni, Isa::Neon];

    /// The sets that this processor can run, from the slowest to the fastest. Never empty: it
    /// starts with [`Isa::Scalar`].
    pub fn available() -> Vec<Isa> {
        Isa::ALL.into_iter().filter(|isa| isa.is_available()).collect()
    }

    /// Whether this processor can run the set.
    pub fn is_available(self) -> bool {
        match self {
            Isa::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => {
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni => {
                Isa::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => std::arch::is_aarch64_feature_detected!("dotprod"),
            #[allow(unreachable_patterns)]
            _ => false,
        }
    }

    /// The fastest set of this processor.
    pub fn fastest() -> Isa {
        Isa::available().pop().unwrap_or(Isa::Scalar)
    }

    /// The fastest set of this processor, or the one that the environment variable `SELFSPEC_ISA`
    /// names.
    ///
    /// # Errors
    /// `SELFSPEC_ISA` names a set that is unknown or that this processor lacks.
    pub fn detect() -> Result<Isa, KernelError> {
        Isa::choose(std::env::var_os("SELFSPEC_ISA").map(|name| name.to_string_lossy().into_owned()).as_deref())
    }

    /// As [`Isa::detect`], for a given value of the variable. Unset or empty means the fastest.
    fn choose(name: Option<&str>) -> Result<Isa, KernelError> {
        match name {
            Some(name) if !name.is_empty() => name.parse(),
            _ => Ok(Isa::fastest()),
        }
    }

    /// Floats in a vector of the set.
    pub(crate) const fn lanes(self) -> usize {
        match self {
            Isa::Scalar | Isa::Neon => 4,
            Isa::Avx2 => 8,
            Isa::Avx512Vnni => 16,
        }
    }

    /// Rows of activations that a matrix kernel keeps in registers, 1 to 8: what the registers of
    /// the set have room for.
    pub(crate) const fn tile_rows(self) -> usize {
        match self {
            Isa::Scalar | Isa::Avx2 => 4,
            Isa::Avx512Vnni | Isa::Neon => 8,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::Avx512Vnni => "avx512",
            Isa::Neon => "neon",
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// `scalar`, `avx2`, `avx512` or `neon`. A set that this processor lacks is an error, so a parsed
/// set always runs.
impl FromStr for Isa {
    type Err = KernelError;

    fn from_str(name: &str) -> Result<Isa, KernelError> {
        let isa = Isa::ALL
            .into_iter()
            .find(|isa| isa.name() == name)
            .ok_or_else(|| KernelError::UnknownIsa { name: name.chars().take(40).collect() })?;
        if isa.is_available() { Ok(isa) } else { Err(KernelError::UnsupportedIsa { name: isa.name() }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_unknown_ones_are_refused() {
        for isa in Isa::available() {
            assert_eq!(isa.to_string().parse(), Ok(isa));
            assert_eq!(Isa::choose(Some(&isa.to_string())), Ok(isa));
        }
        assert_eq!(Isa::choose(Some("sse9")), Err(KernelError::UnknownIsa { name: "sse9".into() }));
        assert_eq!(Isa::choose(None).ok(), Isa::available().last().copied());
        assert_eq!(Isa::choose(Some("")), Isa::choose(None));
        for isa in Isa::ALL {
            if !isa.is_available() {
                assert_eq!(isa.name().parse::<Isa>(), Err(KernelError::UnsupportedIsa { name: isa.name() }));
            }
        }
    }
}
