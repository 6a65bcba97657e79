//! One round: draft, verify, accept, commit.
//!
//! `n` tokens are committed. The last one, the pending token, has no K and V yet: the cache holds
//! positions `0..n - 1`.
//!
//! 1. **Draft.** Draft step i feeds the pending token (i = 0) or draft i at position n - 1 + i
//!    through the layers of the draft path, and its logits propose draft i + 1. The hidden state
//!    after the path's leading layers is kept. A drafter that copies runs no rows.
//! 2. **Verify.** One pass of the full model over all rows, each at its position again: the rows
//!    that drafted enter from their kept states; the last draft enters from its token, for the
//!    bonus.
//! 3. **Accept** left to right. The first rejected draft is replaced by the model's own token and
//!    ends the round; after full acceptance the bonus row yields one more token.
//! 4. **Commit and roll back** (`sequence/rounds.rs`): the cache's length becomes committed - 1,
//!    which drops the positions of rejected drafts.
//!
//! Plain decoding is the round without drafts.

use selfspec_model::{Enter, LayerPlan, NoChoice, Readout, Row, SeqId, TokenChoice, TokenId, TokenLogprob};

use crate::draft::path::DraftPath;
use crate::policy::choice::DraftChoice;
use crate::policy::round_reason::RoundReason;
use crate::round::token_source::TokenSource;
use crate::round::waiting_cost::WaitingCost;
use crate::sample::noise::RoundPosition;
use crate::sample::sampler::DraftToken;
use crate::sample::sequence_sampler::{SequenceSampler, TokenChoiceError};

/// A round under way.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) choice: Option<DraftChoice>, // None: plain decoding
    pub(crate) reason: RoundReason,
    pub(crate) path: Option<DraftPath>, // of the draft rows; None: the drafts were copied
    pub(crate) drafts: Vec<DraftToken>,
    pub(crate) draft_rows: usize, // run so far
    pub(crate) waiting: WaitingCost,
    pub(crate) drafting: bool, // whether the next step drafts
    pub(crate) declined: bool, // whether the last draft row proposed nothing
    pub(crate) bonus: bool,
}

impl Round {
    /// A round without drafts so far.
    pub(crate) fn plain(choice: Option<DraftChoice>, reason: RoundReason) -> Self {
        Round {
            choice,
            reason,
            path: None,
            drafts: Vec::new(),
            draft_rows: 0,
            waiting: WaitingCost::default(),
            drafting: false,
            declined: false,
            bonus: false,
        }
    }

    /// Row i of the round: the pending token (i = 0) or draft i, at its position.
    fn row(&self, seq: SeqId, committed: &[TokenId], i: usize, plan: &LayerPlan) -> Row {
        let pending = committed.len() - 1;
        let token = if i == 0 { committed[pending] } else { self.drafts[i - 1].token };
        let (enter, readout, plan) = (Enter::Token, Readout::Head, plan.clone());
        Row { seq, pos: pending + i, token, enter, plan, keep: false, readout }
    }

    /// Draft: the next draft row. A path that skips layer 0 leaves no state to verify from.
    pub(crate) fn draft_row(&self, seq: SeqId, committed: &[TokenId], path: &DraftPath) -> Row {
        let keep = path.plan.exact_prefix() > 0;
        Row { keep, readout: path.readout, ..self.row(seq, committed, self.draft_rows, &path.plan) }
    }

    /// Draft: where the next draft will stand.
    pub(crate) fn next_position(&self, committed: &[TokenId]) -> RoundPosition {
        RoundPosition { pos: committed.len() + self.drafts.len(), row: self.drafts.len() }
    }

    /// Verify: the number of rows, one for each draft and one for the bonus; without drafts one.
    pub(crate) fn verify_len(&self) -> usize {
        self.drafts.len() + usize::from(self.bonus || self.drafts.is_empty())
    }

    /// Verify: row i. Rows that drafted enter from their kept states.
    pub(crate) fn verify_row(&self, seq: SeqId, committed: &[TokenId], i: usize, full: &LayerPlan) -> Row {
        let kept = i < self.draft_rows && self.path.as_ref().is_some_and(|p| p.plan.exact_prefix() > 0);
        let enter = if kept { Enter::Kept } else { Enter::Token };
        Row { enter, ..self.row(seq, committed, i, full) }
    }
}

/// How many drafts of a round the model accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedDrafts {
    /// Drafts accepted, from the first one on.
    pub accepted: usize,
    /// Whether the draft after them was rejected. Without a rejection the round ended for another
    /// reason.
    pub rejected: bool,
}

/// What a row of the full model left: its logits, or the token that was chosen where they are.
#[derive(Debug, Clone, Copy)]
pub enum VerifyReadout<'a> {
    /// Shape: (vocabulary).
    Logits(&'a [f32]),
    /// The choice of the sequence's own sampler for this row.
    Choice(&'a Result<TokenChoice, NoChoice>),
}

/// Accept: verifies `drafts` left to right by what the full model's rows left, and calls `commit`
/// with each token, its source and its log-probability. `commit` says whether the sequence goes on.
/// After full acceptance `bonus` draws one more token.
///
/// `start` is the position of the first draft. `rows(i)` is the readout for position `start + i`.
///
/// # Errors
/// The index of a row from which no token can be chosen, and why. Tokens before it are committed,
/// as they would have been without drafts.
pub fn accept_drafts<'a>(
    sampler: &mut SequenceSampler,
    drafts: &[DraftToken],
    bonus: bool,
    start: usize,
    rows: impl Fn(usize) -> VerifyReadout<'a>,
    mut commit: impl FnMut(TokenId, TokenSource, Option<TokenLogprob>) -> bool,
) -> Result<AcceptedDrafts, (usize, TokenChoiceError)> {
    sampler.drop_drafts().map_err(|error| (0, error))?;
    let mut accepted = 0;
    for i in 0..drafts.len() + usize::from(bonus || drafts.is_empty()) {
        let draft = drafts.get(i);
        let at = RoundPosition { pos: start + i, row: i };
        let verified = match rows(i) {
            VerifyReadout::Logits(logits) => sampler.verify(logits, at, draft),
            VerifyReadout::Choice(choice) => sampler.take_choice(choice),
        };
        let verified = verified.map_err(|error| (i, error))?;
        accepted += usize::from(verified.accepted);
        let source = TokenSource::of(draft.map(|_| verified.accepted), drafts.len());
        let goes_on = commit(verified.token, source, verified.logprob);
        if !verified.accepted || !goes_on {
            return Ok(AcceptedDrafts { accepted, rejected: draft.is_some() && !verified.accepted });
        }
    }
    Ok(AcceptedDrafts { accepted, rejected: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::params::SamplingParams;

    /// Rows whose best tokens are 10, 11, 12 (the end), 20, 21, 22, 23; all six drafts are right.
    fn run(last: TokenId, most: usize) -> (Vec<TokenId>, AcceptedDrafts) {
        let best = [10, 11, 12, 20, 21, 22, 23];
        let rows: Vec<Vec<f32>> = best.iter().map(|b| (0..30).map(|x| f32::from(x == *b)).collect()).collect();
        let drafts: Vec<DraftToken> = best[..6].iter().map(|b| DraftToken::point(*b)).collect();
        let mut sampler = SequenceSampler::new(&SamplingParams::default(), &[], 0);
        let mut committed = Vec::new();
        let rows = |i: usize| VerifyReadout::Logits(&rows[i]);
        let accepted = accept_drafts(&mut sampler, &drafts, true, 5, rows, |token, _, _| {
            committed.push(token);
            token != last && committed.len() < most
        });
        (committed, accepted.expect("the logits can be sampled from"))
    }

    #[test]
    fn a_run_is_cut_at_the_end_token_even_where_more_was_accepted() {
        assert_eq!(run(12, 5), (vec![10, 11, 12], AcceptedDrafts { accepted: 3, rejected: false }));
        assert_eq!(run(99, 5), (vec![10, 11, 12, 20, 21], AcceptedDrafts { accepted: 5, rejected: false }));
        assert_eq!(run(22, 5).0.len(), 5, "a stop beyond the cap is not reached");
        let all = vec![10, 11, 12, 20, 21, 22, 23];
        assert_eq!(run(99, 99), (all, AcceptedDrafts { accepted: 6, rejected: false }));
    }

    #[test]
    fn every_token_has_its_source() {
        let rows: Vec<Vec<f32>> = (0..3u8).map(|best| (0..9u8).map(|x| f32::from(x == best)).collect()).collect();
        let sources = |drafts: &[TokenId], bonus: bool| {
            let mut sampler = SequenceSampler::new(&SamplingParams::default(), &[], 0);
            let drafts: Vec<DraftToken> = drafts.iter().map(|d| DraftToken::point(*d)).collect();
            let (rows, mut sources) = (|i: usize| VerifyReadout::Logits(&rows[i]), Vec::new());
            let commit = |_, source, _| {
                sources.push(source);
                true
            };
            let accepted = accept_drafts(&mut sampler, &drafts, bonus, 5, rows, commit);
            accepted.expect("the logits can be sampled from");
            sources
        };
        use TokenSource::{Bonus, Correction, Draft as Drafted, Plain};
        assert_eq!(sources(&[], false), [Plain]);
        assert_eq!(sources(&[0, 1], true), [Drafted, Drafted, Bonus]);
        assert_eq!(sources(&[0, 1], false), [Drafted, Drafted]);
        assert_eq!(sources(&[0, 7], true), [Drafted, Correction]);
        assert_eq!(sources(&[7, 1], true), [Correction]);
    }
}
