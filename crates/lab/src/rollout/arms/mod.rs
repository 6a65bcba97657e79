//! Whether speculation pays on a server: the requests of both arms, compared with intervals.

mod compare;
mod figures;
mod report;

pub use compare::{ArmComparison, ArmError, ArmFigures, compare_arms};
pub use figures::{ArmRequests, FIGURE_NAMES};
