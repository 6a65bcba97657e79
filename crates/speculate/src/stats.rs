//! What speculation did: counters of a sequence, and the trace of its rounds.

use std::fmt;

use crate::draft::path::DraftPath;
use crate::params::MAX_DRAFT;
use crate::policy::confidence::Confidence;
use crate::policy::reason::Reason;

/// A way to draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DrafterKind {
    /// The model itself on fewer layers.
    LayerSkip,
    /// Copying from the prompt and the output.
    PromptLookup,
    /// A trained head on an early layer of the model.
    ExitHead,
    /// The tokens that a grammar forces.
    Grammar,
    /// Copying from the output that the request predicts.
    Prediction,
}

impl DrafterKind {
    /// All kinds, in the order of [`SpecStats::by_drafter`].
    pub const ALL: [DrafterKind; 5] = [
        DrafterKind::LayerSkip,
        DrafterKind::PromptLookup,
        DrafterKind::ExitHead,
        DrafterKind::Grammar,
        DrafterKind::Prediction,
    ];
}

/// `layer skip`, `prompt lookup`, `exit head`, `grammar` or `prediction`.
impl fmt::Display for DrafterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DrafterKind::LayerSkip => "layer skip",
            DrafterKind::PromptLookup => "prompt lookup",
            DrafterKind::ExitHead => "exit head",
            DrafterKind::Grammar => "grammar",
            DrafterKind::Prediction => "prediction",
        })
    }
}

/// Drafts at one place in their round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PositionStats {
    /// Tokens drafted there.
    pub drafted: u64,
    /// Of these, judged: every draft before them was accepted.
    pub judged: u64,
    /// Of these, accepted.
    pub accepted: u64,
}

/// Drafts of one drafter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DrafterStats {
    /// Rounds that it drafted for.
    pub rounds: u64,
    /// Tokens that it drafted.
    pub drafted: u64,
    /// Of these, accepted.
    pub accepted: u64,
    /// Of these, refused by the model. Drafts after a refused one are neither accepted nor rejected: nobody judged them.
    pub rejected: u64,
    /// Rows that were run and proposed nothing, because the draft was too unsure to be worth its verification.
    pub declined: u64,
}

impl DrafterStats {
    /// Accepted share of the judged drafts; `None` if none was judged.
    pub fn acceptance(&self) -> Option<f64> {
        let judged = self.accepted + self.rejected;
        (judged > 0).then(|| self.accepted as f64 / judged as f64)
    }
}

/// Counters of one sequence, or of several merged.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SpecStats {
    /// Passes of the full model that committed tokens, those without a draft included.
    pub rounds: u64,
    /// Tokens drafted.
    pub drafted: u64,
    /// Drafted tokens accepted and committed.
    pub accepted: u64,
    /// Drafted tokens that the model refused; at most one a round, since those after it are not judged.
    pub rejected: u64,
    /// Index a: rounds with a draft that had a accepted tokens.
    pub accepted_lengths: [u64; MAX_DRAFT + 1],
    /// Index i: the drafts that were the (i + 1)-th of their round.
    pub by_position: [PositionStats; MAX_DRAFT],
    /// By drafter, in the order of [`DrafterKind::ALL`].
    pub by_drafter: [DrafterStats; DrafterKind::ALL.len()],
    /// Rows times layers that the sequence's rows stand for: what the model must compute when kept states are reused.
    pub layer_rows: u64,
    /// The drafter of the latest round with a draft.
    pub drafter: Option<DrafterKind>,
    /// How drafts with the model run through it, where the request allows them.
    pub path: Option<DraftPath>,
    /// Tokens drafted in the latest round with a draft.
    pub draft_len: usize,
    /// Why a drafter is turned off at present, with the figures behind it.
    pub off_reason: Option<String>,
    /// How drafts with the model fared by their confidence: greedy ones, sampled ones.
    pub(crate) confidence: [Confidence; 2],
}

impl SpecStats {
    /// Counters of one drafter.
    pub fn drafter(&self, kind: DrafterKind) -> &DrafterStats {
        &self.by_drafter[kind as usize]
    }

    /// Accepted share of the judged drafts; `None` if none was judged.
    pub fn acceptance(&self) -> Option<f64> {
        let (accepted, rejected) = (self.accepted, self.rejected);
        DrafterStats { accepted, rejected, ..DrafterStats::default() }.acceptance()
    }

    /// Adds the counters of `other`; what is not a count is taken from `other` where it has it.
    pub fn merge(&mut self, other: &SpecStats) {
        self.rounds += other.rounds;
        self.drafted += other.drafted;
        self.accepted += other.accepted;
        self.rejected += other.rejected;
        self.layer_rows += other.layer_rows;
        for (mine, theirs) in self.accepted_lengths.iter_mut().zip(&other.accepted_lengths) {
            *mine += theirs;
        }
        for (mine, theirs) in self.by_position.iter_mut().zip(&other.by_position) {
            mine.drafted += theirs.drafted;
            mine.judged += theirs.judged;
            mine.accepted += theirs.accepted;
        }
        for (mine, theirs) in self.by_drafter.iter_mut().zip(&other.by_drafter) {
            mine.rounds += theirs.rounds;
            mine.drafted += theirs.drafted;
            mine.accepted += theirs.accepted;
            mine.rejected += theirs.rejected;
            mine.declined += theirs.declined;
        }
        for (mine, theirs) in self.confidence.iter_mut().zip(&other.confidence) {
            mine.merge(theirs);
        }
        if other.drafter.is_some() {
            self.drafter = other.drafter;
            self.draft_len = other.draft_len;
        }
        if other.path.is_some() {
            self.path.clone_from(&other.path);
        }
        if other.off_reason.is_some() {
            self.off_reason.clone_from(&other.off_reason);
        }
    }

    /// Counts one round: `accepted` of `drafted` tokens by `drafter`; `rejected` says whether the next one was refused.
    pub(crate) fn count_round(
        &mut self,
        drafter: Option<DrafterKind>,
        drafted: usize,
        accepted: usize,
        rejected: bool,
    ) {
        self.rounds += 1;
        let Some(kind) = drafter.filter(|_| drafted > 0) else { return };
        let refused = u64::from(rejected);
        self.drafted += drafted as u64;
        self.accepted += accepted as u64;
        self.rejected += refused;
        self.accepted_lengths[accepted] += 1;
        for (i, place) in self.by_position.iter_mut().enumerate().take(drafted) {
            place.drafted += 1;
            place.accepted += u64::from(i < accepted);
            place.judged += u64::from(i < accepted || (i == accepted && rejected));
        }
        let own = &mut self.by_drafter[kind as usize];
        own.rounds += 1;
        own.drafted += drafted as u64;
        own.accepted += accepted as u64;
        own.rejected += refused;
        self.drafter = Some(kind);
        self.draft_len = drafted;
    }
}

/// One round, for debugging.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoundTrace {
    /// Tokens committed before the round, the prompt included.
    pub committed: usize,
    /// Who drafted.
    pub drafter: Option<DrafterKind>,
    /// Tokens drafted.
    pub drafted: usize,
    /// Of these, accepted.
    pub accepted: usize,
    /// Tokens that the round committed.
    pub gained: usize,
    /// Why it drafted as it did.
    pub reason: Reason,
}
