//! One round: draft, verify, accept.
//!
//! `n` tokens are committed; the last one, the pending token, has no K and V yet. The cache holds positions `0..n - 1`.
//!
//! 1. **Draft.** Row i feeds the pending token (i = 0) or draft i at position n - 1 + i through the layers of the draft's path, and its
//!    logits propose draft i + 1. The hidden state where the plan leaves the model's own layers is kept. A drafter that copies
//!    needs no rows.
//! 2. **Verify.** One step of the full model: the rows that were drafted enter from their kept states, the last draft, which no
//!    row has fed yet, enters by its token; it is there for the bonus.
//! 3. **Accept** left to right; the first refusal ends the round with the model's own token, full acceptance with the bonus token.
//! 4. **Commit** (the caller's): the cache's length becomes committed - 1, which drops what the refused drafts wrote.

use selfspec_model::{Enter, LayerPlan, Readout, Row, SeqId, TokenId};

use crate::draft::path::DraftPath;
use crate::error::LogitsFault;
use crate::policy::controller::Choice;
use crate::policy::reason::Reason;
use crate::round::source::TokenSource;
use crate::sample::history::History;
use crate::sample::mask::Constraint;
use crate::sample::noise::Place;
use crate::sample::sampler::{Draft, LogitsRow, Sampler, Verdict};

/// A round under way. Plain decoding is a round without a choice.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) choice: Option<Choice>,
    /// How the draft rows run; `None` where the drafts were copied.
    pub(crate) path: Option<DraftPath>,
    pub(crate) drafts: Vec<Draft>,
    /// Draft rows run so far.
    pub(crate) draft_rows: usize,
    /// Of these, rows whose price is known, and these rows, each as often as sequences waited for it.
    pub(crate) billed: usize,
    pub(crate) held_up: f64,
    /// Whether the next step drafts.
    pub(crate) drafting: bool,
    /// Whether the last draft row proposed nothing.
    pub(crate) declined: bool,
    pub(crate) bonus: bool,
    pub(crate) reason: Reason,
}

/// What the target made of a round's drafts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) accepted: usize,
    pub(crate) rejected: bool,
}

impl Round {
    /// Row i of the round, wherever it enters: the pending token or a draft, at its position.
    fn row(&self, seq: SeqId, committed: &[TokenId], i: usize, plan: &LayerPlan) -> Row {
        let pending = committed.len() - 1;
        let token = if i == 0 { committed[pending] } else { self.drafts[i - 1].token };
        Row {
            seq,
            pos: pending + i,
            token,
            enter: Enter::Token,
            plan: plan.clone(),
            keep: false,
            readout: Readout::Head,
        }
    }

    /// The next draft row.
    pub(crate) fn draft_row(&self, seq: SeqId, committed: &[TokenId], path: &DraftPath) -> Row {
        // A plan that skips from layer 0 on leaves nothing that verification could start from.
        let keep = path.plan.exact_prefix() > 0;
        Row { keep, readout: path.readout, ..self.row(seq, committed, self.draft_rows, &path.plan) }
    }

    /// Rows of the verification: one for each draft, and one for the bonus; without drafts one.
    pub(crate) fn verify_len(&self) -> usize {
        self.drafts.len() + usize::from(self.bonus || self.drafts.is_empty())
    }

    /// The `i`-th row of the verification.
    pub(crate) fn verify_row(&self, seq: SeqId, committed: &[TokenId], i: usize, full: &LayerPlan) -> Row {
        let kept = i < self.draft_rows && self.path.as_ref().is_some_and(|p| p.plan.exact_prefix() > 0);
        let enter = if kept { Enter::Kept } else { Enter::Token };
        Row { enter, ..self.row(seq, committed, i, full) }
    }
}

/// What the tokens before say of the next one: counts for penalties, and a grammar's state.
#[derive(Debug)]
pub(crate) struct Past<'a> {
    pub(crate) history: &'a mut History,
    pub(crate) constraint: Option<&'a mut Constraint>,
}

/// Why no token can be chosen from a row.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Logits(LogitsFault),
    Mask(String),
}

impl From<LogitsFault> for Fault {
    fn from(fault: LogitsFault) -> Self {
        Fault::Logits(fault)
    }
}

impl Past<'_> {
    /// Chooses the token at `at` by a row, and takes it.
    fn judge(
        &mut self,
        sampler: &mut Sampler,
        logits: &[f32],
        at: Place,
        draft: Option<&Draft>,
    ) -> Result<Verdict, Fault> {
        let mask = self.constraint.as_deref_mut().map(Constraint::mask).transpose().map_err(Fault::Mask)?;
        let verdict = sampler.judge(LogitsRow { mask, ..LogitsRow::all(logits) }, self.history, at, draft)?;
        self.history.commit(verdict.token);
        if let Some(constraint) = self.constraint.as_deref_mut() {
            constraint.commit(verdict.token).map_err(Fault::Mask)?;
        }
        Ok(verdict)
    }

    fn drop_drafts(&mut self) -> Result<(), Fault> {
        self.history.drop_drafts();
        self.constraint.as_deref_mut().map_or(Ok(()), Constraint::drop_drafts).map_err(Fault::Mask)
    }
}

/// Judges `drafts` left to right by the target's `rows`, and calls `commit` with each token that stands, its source, and its
/// row. `commit` says whether the sequence goes on. With all drafts accepted, `bonus` draws one more token.
///
/// # Errors
/// The index of a row from which nothing can be chosen, and why; tokens before it are committed, as they would have been without drafts.
pub(crate) fn accept<'a>(
    sampler: &mut Sampler,
    past: &mut Past<'_>,
    drafts: &[Draft],
    bonus: bool,
    start: usize,
    rows: impl Fn(usize) -> &'a [f32],
    mut commit: impl FnMut(TokenId, TokenSource, &'a [f32]) -> bool,
) -> Result<Accepted, (usize, Fault)> {
    past.drop_drafts().map_err(|fault| (0, fault))?;
    let mut accepted = 0;
    for i in 0..drafts.len() + usize::from(bonus || drafts.is_empty()) {
        let (row, draft) = (rows(i), drafts.get(i));
        let at = Place { pos: start + i, row: i };
        let verdict = past.judge(sampler, row, at, draft).map_err(|fault| (i, fault))?;
        accepted += usize::from(verdict.accepted);
        let source = TokenSource::of(draft.map(|_| verdict.accepted), drafts.len());
        let goes_on = commit(verdict.token, source, row);
        if !verdict.accepted || !goes_on {
            return Ok(Accepted { accepted, rejected: draft.is_some() && !verdict.accepted });
        }
    }
    Ok(Accepted { accepted, rejected: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::SamplingParams;

    /// Rows whose best tokens are 10, 11, 12 (the end), 20, 21, 22, 23; all six drafts are right.
    fn run(last: TokenId, most: usize) -> (Vec<TokenId>, Accepted) {
        let best = [10, 11, 12, 20, 21, 22, 23];
        let rows: Vec<Vec<f32>> = best.iter().map(|b| (0..30).map(|x| f32::from(x == *b)).collect()).collect();
        let drafts: Vec<Draft> = best[..6].iter().map(|b| Draft::point(*b)).collect();
        let params = SamplingParams::default();
        let (mut sampler, mut history) = (Sampler::new(&params, 0), History::new(&params, &[]));
        let mut committed = Vec::new();
        let rows = |i: usize| rows[i].as_slice();
        let mut past = Past { history: &mut history, constraint: None };
        let accepted = accept(&mut sampler, &mut past, &drafts, true, 5, rows, |token, _, _| {
            committed.push(token);
            token != last && committed.len() < most
        });
        (committed, accepted.expect("rows without faults"))
    }

    #[test]
    fn a_run_is_cut_at_the_end_token_even_where_more_was_accepted() {
        assert_eq!(run(12, 5), (vec![10, 11, 12], Accepted { accepted: 3, rejected: false }));
        assert_eq!(run(99, 5), (vec![10, 11, 12, 20, 21], Accepted { accepted: 5, rejected: false }));
        assert_eq!(run(22, 5).0.len(), 5, "a stop beyond the cap is not reached");
        assert_eq!(run(99, 99), (vec![10, 11, 12, 20, 21, 22, 23], Accepted { accepted: 6, rejected: false }));
    }

    #[test]
    fn every_token_says_where_it_comes_from() {
        let rows: Vec<Vec<f32>> = (0..3u8).map(|best| (0..9u8).map(|x| f32::from(x == best)).collect()).collect();
        let sources = |drafts: &[TokenId], bonus: bool| {
            let params = SamplingParams::default();
            let (mut sampler, mut history) = (Sampler::new(&params, 0), History::new(&params, &[]));
            let drafts: Vec<Draft> = drafts.iter().map(|d| Draft::point(*d)).collect();
            let (rows, mut sources) = (|i: usize| rows[i].as_slice(), Vec::new());
            let commit = |_, source, _: &[f32]| {
                sources.push(source);
                true
            };
            accept(
                &mut sampler,
                &mut Past { history: &mut history, constraint: None },
                &drafts,
                bonus,
                5,
                rows,
                commit,
            )
            .expect("rows without faults");
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
