//! The arms of an A/B comparison. Without a share, every request that does not set `speculation`
//! drafts. With a share, the hash of the request id decides, so that one server compares both arms.

use std::fmt;

use selfspec_speculate::{DrafterChoice, SpeculationParams};
use serde::Serialize;
use sha2::{Digest, Sha256};

/// How a request is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
#[serde(rename_all = "lowercase")]
pub(crate) enum DecodingArm {
    /// Without drafts.
    Plain,
    /// With drafts, as long as the speculation policy allows them.
    Speculation,
}

/// How a request came to its arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
#[serde(rename_all = "lowercase")]
pub(crate) enum ArmSource {
    /// The request's own field `speculation`.
    Request,
    /// The server's share, by the request's id. Only these requests can be compared: their content
    /// did not influence the arm.
    Share,
    /// The server's default, which is the same for all requests.
    Default,
}

impl DecodingArm {
    /// Both arms, in the order of pairs of counters.
    pub(crate) const ALL: [DecodingArm; 2] = [DecodingArm::Plain, DecodingArm::Speculation];

    /// `plain` or `speculation`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            DecodingArm::Plain => "plain",
            DecodingArm::Speculation => "speculation",
        }
    }
}

impl fmt::Display for DecodingArm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The arm of a request, and how it drafts there.
#[derive(Debug, Clone)]
pub(crate) struct ArmAssignment {
    pub(crate) arm: DecodingArm,
    pub(crate) source: ArmSource,
    pub(crate) speculation: SpeculationParams,
}

impl ArmAssignment {
    /// Assigns a request to an arm. `chosen`: the request itself says how to draft. With a `share`,
    /// other requests draft if the hash of their id is below it. An id keeps its arm as long as the
    /// share stays; with a larger share every request that drafted still drafts.
    pub(crate) fn new(speculation: SpeculationParams, chosen: bool, share: Option<f64>, id: &str) -> Self {
        let (source, speculation) = match share {
            _ if chosen => (ArmSource::Request, speculation),
            None => (ArmSource::Default, speculation),
            Some(share) if fraction_of(id) < share => (ArmSource::Share, speculation),
            Some(_) => (ArmSource::Share, SpeculationParams::off()),
        };
        let drafts = speculation.drafter != DrafterChoice::Off;
        let arm = if drafts { DecodingArm::Speculation } else { DecodingArm::Plain };
        ArmAssignment { arm, source, speculation }
    }
}

/// A number in [0, 1) that depends on the id alone.
fn fraction_of(id: &str) -> f64 {
    let hash = Sha256::digest(id.as_bytes());
    let first = hash.iter().take(6).fold(0u64, |all, byte| all << 8 | u64::from(*byte));
    first as f64 / (1u64 << 48) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_stable_and_even() {
        assert_eq!(fraction_of("a"), fraction_of("a"));
        let fractions: Vec<f64> = (0..4000).map(|i| fraction_of(&format!("req-{i}"))).collect();
        assert!(fractions.iter().all(|p| (0.0..1.0).contains(p)));
        for share in [0.05, 0.2, 0.5, 0.9] {
            let within = fractions.iter().filter(|p| **p < share).count() as f64 / 4000.0;
            assert!((within - share).abs() < 0.03, "{share}: {within}");
        }
    }
}
