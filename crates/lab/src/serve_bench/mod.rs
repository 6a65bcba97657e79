//! Load on a server of OpenAI's API: throughput, TTFT, TPOT, ITL.
//!
//! The client knows the server by its API alone, so that other servers can be measured with the
//! same requests. Settings that are compared take turns in the same minutes: a slow moment of the
//! machine falls on all of them.

mod answer;
mod arrivals;
mod client;
mod failure;
mod figures;
mod load;
mod options;
mod report;
mod run;

pub use answer::{StreamedAnswer, TextChunk};
pub use failure::{LoadFailure, ServeBenchError};
pub use figures::{FigureKind, LoadFigure};
pub use load::{LoadRun, LoadTraffic, TimedRequest};
pub use options::{CompletionEndpoint, LoadOptions, RequestedSpeculation, ServerTarget};
pub use report::{LoadReport, LoadSetting};
pub use run::serve_bench;
