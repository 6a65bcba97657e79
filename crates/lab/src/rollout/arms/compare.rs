//! Both arms with the intervals of their figures.
//!
//! The bootstrap draws requests and not tokens, because the tokens of one request are alike. The
//! draws are the same each time.

use super::figures::{ArmRequests, FIGURE_NAMES};
use crate::rollout::record::{ArmSource, RecordedArm, RecordedRequest};
use crate::statistics::{ConfidenceInterval, SplitMix64, resample};

/// Draws of the bootstrap, if the record is short enough to run through them in some seconds.
const DRAWS: usize = 1000;
const FEWEST_DRAWS: usize = 200;
/// Times that all draws may look at together.
const WORK: usize = 1_000_000_000;
/// Seed of the draws.
pub(super) const SEED: u64 = 1;

/// Figures with their intervals, in the order of [`FIGURE_NAMES`]; none if nothing was measured.
pub type ArmFigures = [Option<ConfidenceInterval>; FIGURE_NAMES.len()];

/// Both arms of a record.
#[derive(Debug, Clone)]
pub struct ArmComparison {
    /// Requests that are left out because no share chose their arm.
    pub left_out: usize,
    /// The requests of the arms, plain first.
    pub arms: [ArmRequests; 2],
    /// The figures of the arms, plain first.
    pub figures: [ArmFigures; 2],
    /// Each figure with speculation over that of plain decoding.
    pub ratios: ArmFigures,
    /// Draws of the bootstrap.
    pub draws: usize,
}

/// Why the arms cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ArmError {
    /// No request's arm was chosen by a share.
    #[error(
        "of its {requests} requests none was given its arm by a share, so that the arms may differ in what they were asked"
    )]
    NoShare {
        /// Requests of the record.
        requests: usize,
    },
    /// An arm has no requests.
    #[error("none of the {requests} requests that can be compared is of the arm {arm}")]
    EmptyArm {
        /// Requests that can be compared.
        requests: usize,
        /// The arm without requests.
        arm: RecordedArm,
    },
}

/// Compares requests with and without speculation: those whose arm was chosen by a share, or with
/// `all` all of them.
///
/// # Errors
/// No request can be compared, or an arm has none.
pub fn compare_arms(requests: &[RecordedRequest], all: bool) -> Result<ArmComparison, ArmError> {
    let compared: Vec<&RecordedRequest> =
        requests.iter().filter(|request| all || request.arm_by == ArmSource::Share).collect();
    if compared.is_empty() {
        return Err(ArmError::NoShare { requests: requests.len() });
    }
    let of = |arm: RecordedArm| compared.iter().copied().filter(move |request| request.arm == arm);
    if let Some(arm) = RecordedArm::ALL.into_iter().find(|arm| of(*arm).next().is_none()) {
        return Err(ArmError::EmptyArm { requests: compared.len(), arm });
    }
    let arms = RecordedArm::ALL.map(|arm| ArmRequests::of(of(arm)));
    Ok(with_intervals(requests.len() - compared.len(), arms))
}

fn with_intervals(left_out: usize, arms: [ArmRequests; 2]) -> ArmComparison {
    let size = arms[0].size() + arms[1].size();
    let draws = (WORK / size.max(1)).clamp(FEWEST_DRAWS, DRAWS);
    let once = arms.each_ref().map(|arm| arm.figures(&vec![1.0; arm.requests]));
    let mut drawn: [Vec<[Option<f64>; FIGURE_NAMES.len()]>; 2] = [Vec::new(), Vec::new()];
    let mut random = SplitMix64::new(SEED);
    for _ in 0..draws {
        for (arm, drawn) in arms.iter().zip(&mut drawn) {
            drawn.push(arm.figures(&resample(&mut random, arm.requests)));
        }
    }
    let over = |a: Option<f64>, b: Option<f64>| a.zip(b).filter(|(_, b)| *b > 0.0).map(|(a, b)| a / b);
    let of_arm = |arm: usize| {
        std::array::from_fn(|i| ConfidenceInterval::of_draws(once[arm][i], drawn[arm].iter().map(|figures| figures[i])))
    };
    let ratio = |i: usize| {
        let pairs = drawn[1].iter().zip(&drawn[0]).map(|(second, first)| over(second[i], first[i]));
        ConfidenceInterval::of_draws(over(once[1][i], once[0][i]), pairs)
    };
    ArmComparison { left_out, figures: [of_arm(0), of_arm(1)], ratios: std::array::from_fn(ratio), arms, draws }
}
