//! Counters of what a sequence drafted, and the trace of its rounds.

use crate::draft::kind::DrafterKind;
use crate::draft::params::MAX_DRAFT;
use crate::draft::path::DraftPath;
use crate::policy::confidence::ConfidenceRecord;
use crate::policy::cost::path_record::PathDrafts;
use crate::policy::drafter_off::DrafterOff;
use crate::policy::round_reason::RoundReason;

/// Drafts at one place in the round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PositionStats {
    /// Tokens drafted there.
    pub drafted: u64,
    /// Of these, verified: every draft before them was accepted.
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
    /// Of these, rejected by the model. Drafts after a rejected one are never verified, and count
    /// as neither.
    pub rejected: u64,
    /// Draft rows that proposed nothing: their confidence was too low to be worth the verification.
    pub declined: u64,
}

impl DrafterStats {
    /// Accepted share of the verified drafts; `None` if none was verified.
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
    /// Drafted tokens that the model rejected; at most one a round, since drafts after it are not
    /// verified.
    pub rejected: u64,
    /// Index a: rounds with a draft that had a accepted tokens.
    pub accepted_lengths: [u64; MAX_DRAFT + 1],
    /// Index i: the drafts that were the (i + 1)-th of their round.
    pub by_position: [PositionStats; MAX_DRAFT],
    /// By drafter, in the order of [`DrafterKind::ALL`].
    pub by_drafter: [DrafterStats; DrafterKind::COUNT],
    /// Layers run, summed over the sequence's rows. Layers that kept states replace are not
    /// counted.
    pub layer_rows: u64,
    /// The drafter of the latest round with a draft.
    pub drafter: Option<DrafterKind>,
    /// The path of drafts with the model, where the request allows them.
    pub path: Option<DraftPath>,
    /// Tokens drafted in the latest round with a draft.
    pub draft_len: usize,
    /// The drafters that are off at present. [`SpecStats::off_reason`] has the sentence.
    pub drafters_off: Vec<DrafterOff>,
    /// Drafts with the model by their confidence: greedy drafts, sampled drafts.
    pub(crate) confidence: [ConfidenceRecord; 2],
}

impl SpecStats {
    /// Counters of one drafter.
    pub fn drafter(&self, kind: DrafterKind) -> &DrafterStats {
        &self.by_drafter[kind as usize]
    }

    /// Accepted share of the verified drafts; `None` if none was verified.
    pub fn acceptance(&self) -> Option<f64> {
        let (accepted, rejected) = (self.accepted, self.rejected);
        DrafterStats { accepted, rejected, ..DrafterStats::default() }.acceptance()
    }

    /// The drafts with the model, for the cost model to learn from; `None` where the request allows
    /// none.
    pub fn path_drafts(&self) -> Option<PathDrafts> {
        let path = self.path.clone()?;
        let kind = if path.uses_exit_head() { DrafterKind::ExitHead } else { DrafterKind::LayerSkip };
        let drafts = self.drafter(kind);
        let judged = (drafts.accepted + drafts.rejected + drafts.declined) as f64;
        Some(PathDrafts { path, accepted: drafts.accepted as f64, judged, confidence: self.confidence })
    }

    /// Adds the counters of `other`, and takes over its other values where it has them.
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
        if !other.drafters_off.is_empty() {
            self.drafters_off.clone_from(&other.drafters_off);
        }
    }

    /// Counts one round: `accepted` of `drafted` tokens by `drafter`; `rejected`: the next one was
    /// rejected.
    pub(crate) fn count_round(
        &mut self,
        drafter: Option<DrafterKind>,
        drafted: usize,
        accepted: usize,
        rejected: bool,
    ) {
        self.rounds += 1;
        let Some(kind) = drafter.filter(|_| drafted > 0) else { return };
        let rejections = u64::from(rejected);
        self.drafted += drafted as u64;
        self.accepted += accepted as u64;
        self.rejected += rejections;
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
        own.rejected += rejections;
        self.drafter = Some(kind);
        self.draft_len = drafted;
    }
}

/// One round, for debugging.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoundTrace {
    /// Tokens committed before the round, the prompt included.
    pub committed: usize,
    /// The drafter.
    pub drafter: Option<DrafterKind>,
    /// Tokens drafted.
    pub drafted: usize,
    /// Of these, accepted.
    pub accepted: usize,
    /// Tokens that the round committed.
    pub gained: usize,
    /// Why it drafted, or did not.
    pub reason: RoundReason,
}
