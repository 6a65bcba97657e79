//! How a training reports its progress, and how it is stopped.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::progress::StageProgress;

/// How often long work without a progress bar reports how far it is.
const REPORT: Duration = Duration::from_secs(30);

/// Asked between steps whether to stop; dropped at the end of a stage that can stop.
pub type StopSignal<'c> = Box<dyn Fn() -> bool + 'c>;

/// Hears how far a training is, and can stop it.
///
/// `&()` hears nothing and never stops it.
pub trait TrainingControl: StageProgress {
    /// Something to know that is no error.
    fn training_note(&self, note: &TrainingNote) {
        let _ = note;
    }

    /// A stage begins that can be stopped without loss.
    fn stop_signal(&self) -> StopSignal<'_> {
        Box::new(|| false)
    }
}

impl TrainingControl for () {}

/// Something to know about a training that is no error.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum TrainingNote {
    /// How far a stage is.
    Progress {
        /// What the stage does.
        stage: &'static str,
        /// Units done, of all.
        done: usize,
        /// Units in all.
        of: usize,
        /// Tokens generated a second, where the stage generates.
        tokens_per_second: Option<f64>,
        /// Predicted time to its end, in seconds.
        seconds_left: f64,
    },
    /// The training continues an earlier run.
    Resumed {
        /// Steps done.
        step: usize,
        /// Steps in all.
        steps: usize,
    },
    /// Its state is saved.
    Saved {
        /// Steps done.
        step: usize,
        /// The file.
        path: PathBuf,
    },
    /// A figure of the data or of the course, as a line.
    Line(String),
}

impl TrainingNote {
    /// Whether only a user who asks for more wants to see it.
    pub fn is_detail(&self) -> bool {
        matches!(self, TrainingNote::Saved { .. })
    }
}

impl fmt::Display for TrainingNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrainingNote::Progress { stage, done, of, tokens_per_second, seconds_left } => {
                write!(f, "{stage}: {done} of {of}")?;
                if let Some(rate) = tokens_per_second {
                    write!(f, ", {rate:.0} tokens a second")?;
                }
                write!(f, ", {} left", time_words(*seconds_left))
            }
            TrainingNote::Resumed { step, steps } => write!(f, "going on from step {step} of {steps}"),
            TrainingNote::Saved { step, path } => write!(f, "step {step} is saved in {}", path.display()),
            TrainingNote::Line(line) => f.write_str(line),
        }
    }
}

/// Says when the next report of long work is due.
pub(super) struct ReportTimer(Instant);

impl ReportTimer {
    pub(super) fn start() -> Self {
        ReportTimer(Instant::now())
    }

    /// Whether a report is due; if it is, the next one is due 30 s from now.
    pub(super) fn is_due(&mut self) -> bool {
        let due = self.0.elapsed() >= REPORT;
        if due {
            self.0 = Instant::now();
        }
        due
    }
}

/// A time in the unit that suits it.
pub(super) fn time_words(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_unit_that_suits_them() {
        assert_eq!([8.2, 600.0, 9000.0].map(time_words), ["8 s", "10 min", "2.5 h"]);
    }

    #[test]
    fn notes_are_lines() {
        let progress = |tokens_per_second| TrainingNote::Progress {
            stage: "answering prompts",
            done: 3,
            of: 10,
            tokens_per_second,
            seconds_left: 7.0,
        };
        assert_eq!(progress(Some(99.6)).to_string(), "answering prompts: 3 of 10, 100 tokens a second, 7 s left");
        assert_eq!(progress(None).to_string(), "answering prompts: 3 of 10, 7 s left");
    }
}
