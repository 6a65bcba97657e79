//! Which requests draft: all that do not say otherwise, or a share of them that is chosen by the requests' ids, so that both ways can be compared on one server.

use std::fmt;

use selfspec_speculate::{DrafterChoice, SpeculationParams};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::api::request::Asked;

/// How a request is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arm {
    /// Without drafts.
    Plain,
    /// With drafts, where they pay.
    Speculation,
}

/// Who chose the arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChosenBy {
    /// The request's own field `speculation`.
    Request,
    /// The server's share, by the request's id. Such requests can be compared: nothing about them has chosen their arm.
    Share,
    /// Nobody: the server does what it does for all.
    Default,
}

impl Arm {
    /// Both, in the order of counters that come in pairs.
    pub const ALL: [Arm; 2] = [Arm::Plain, Arm::Speculation];

    /// `plain` or `speculation`.
    pub fn name(self) -> &'static str {
        match self {
            Arm::Plain => "plain",
            Arm::Speculation => "speculation",
        }
    }

    fn of(speculation: &SpeculationParams) -> Arm {
        if speculation.drafter == DrafterChoice::Off { Arm::Plain } else { Arm::Speculation }
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Gives a request its arm. With a `share`, requests that do not choose themselves draft if the hash of their id lies within it; that changes for no id while
/// the share stays, and where it grows, none that drafted stops.
pub(crate) fn assign(asked: &mut Asked, share: Option<f64>, id: &str) -> (Arm, ChosenBy) {
    let by = match share {
        _ if asked.chose => ChosenBy::Request,
        None => ChosenBy::Default,
        Some(share) => {
            if place(id) >= share {
                asked.speculation = SpeculationParams::off();
            }
            ChosenBy::Share
        }
    };
    (Arm::of(&asked.speculation), by)
}

/// A number from 0 to below 1 that an id always has.
fn place(id: &str) -> f64 {
    let hash = Sha256::digest(id.as_bytes());
    let first = hash.iter().take(6).fold(0u64, |all, byte| all << 8 | u64::from(*byte));
    first as f64 / (1u64 << 48) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_stable_and_even() {
        assert_eq!(place("a"), place("a"));
        let places: Vec<f64> = (0..4000).map(|i| place(&format!("req-{i}"))).collect();
        assert!(places.iter().all(|p| (0.0..1.0).contains(p)));
        for share in [0.05, 0.2, 0.5, 0.9] {
            let within = places.iter().filter(|p| **p < share).count() as f64 / 4000.0;
            assert!((within - share).abs() < 0.03, "{share}: {within}");
        }
    }
}
