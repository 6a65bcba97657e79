//! Speed on this machine: costs of passes and drafts, plain decoding, and the speed-up of
//! speculation on prompts.

mod csv;
mod draft_lengths;
mod json;
mod markdown;
mod report;
mod run;
mod speculation;

pub use draft_lengths::{DraftLengthOptions, DraftLengthRow, DraftLengthTable, draft_lengths};
pub use report::{BenchReport, ContextCosts, DraftCost, PartCost, PassCost};
pub use run::{BenchOptions, bench};
pub use speculation::{BenchContender, ContenderResult};
