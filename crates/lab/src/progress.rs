//! Progress reports of measurements and proofs.

use std::fmt;

/// Hears how far a measurement or a proof is. Stages follow one another; the next begins after the
/// last has ended.
///
/// Every method has an empty default: `&()` hears nothing.
pub trait StageProgress: Sync {
    /// A stage of `steps` steps begins.
    fn begin(&self, stage: &str, steps: u64) {
        let _ = (stage, steps);
    }

    /// A step of the stage is done. Called from any thread.
    fn step(&self) {}

    /// The stage has ended, with all its steps done or not.
    fn end(&self) {}

    /// Something to know that is no error.
    fn note(&self, note: &LabNote) {
        let _ = note;
    }
}

impl StageProgress for () {}

/// Something to know about a measurement that is no error.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum LabNote {
    /// Prompts are left out because they leave no room for an answer.
    LongPrompts {
        /// Prompts left out.
        left_out: usize,
        /// Prompts in all.
        all: usize,
        /// The line of the longest of them.
        line: usize,
        /// Its tokens.
        tokens: usize,
        /// Positions of the model's context.
        context: usize,
    },
    /// A candidate of a tuning was faster than its costs and acceptance promised.
    UnexpectedSpeedup {
        /// The candidate's name.
        name: String,
        /// Speed-up over plain decoding that was promised.
        promised: f64,
        /// Speed-up over plain decoding that was measured.
        measured: f64,
    },
    /// The acceptance of a tuning's candidate.
    CandidateAcceptance {
        /// The candidate's name.
        name: String,
        /// Share of the first drafts of a round that were accepted.
        first: f64,
    },
    /// A replay begins.
    Replay {
        /// Requests that are sent.
        requests: usize,
        /// Address of the server.
        url: String,
    },
}

impl LabNote {
    /// Whether only a user who asks for more wants to see it.
    pub fn is_detail(&self) -> bool {
        matches!(self, LabNote::CandidateAcceptance { .. } | LabNote::Replay { .. })
    }
}

impl fmt::Display for LabNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabNote::LongPrompts { left_out, all, line, tokens, context } => write!(
                f,
                "{left_out} of {all} prompts are left out, which leave no room for an answer: the prompt of line {line} has \
                 {tokens} tokens, the model takes {context} positions"
            ),
            LabNote::UnexpectedSpeedup { name, promised, measured } => write!(
                f,
                "{name} promised {promised:.2} and was measured at {measured:.2}: more prompts, or a machine without other \
                 work, would tell more"
            ),
            LabNote::CandidateAcceptance { name, first } => write!(f, "{name}: first draft accepted {first:.2}"),
            LabNote::Replay { requests, url } => write!(f, "{requests} requests to {url}"),
        }
    }
}

/// A stage under way; it ends when this is dropped.
pub(crate) struct Stage<'p>(&'p dyn StageProgress);

impl<'p> Stage<'p> {
    pub(crate) fn begin(progress: &'p dyn StageProgress, name: &str, steps: usize) -> Self {
        progress.begin(name, steps as u64);
        Stage(progress)
    }

    pub(crate) fn step(&self) {
        self.0.step();
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
