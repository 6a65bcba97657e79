//! Rolling speculation out on a server: its record of requests, the comparison of both arms, and
//! replays of the record.

mod arms;
mod record;
mod replay;

pub use arms::{ArmComparison, ArmError, ArmFigures, ArmRequests, FIGURE_NAMES, compare_arms};
pub use record::{
    ArmSource, RecordError, RecordedArm, RecordedChoice, RecordedRequest, RequestRecord, parse_record, read_record,
};
pub use replay::{
    ReplayCounts, ReplayError, ReplayOptions, ReplayReport, ReplayResult, ReplaySpeed, ReplayTarget, ReplayedRequest,
    replay,
};
