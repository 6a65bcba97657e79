//! The rows of logits that rounds can meet after a prompt, computed once by the backend.

use std::collections::{BTreeSet, HashMap};

use selfspec_model::{Backend, BackendError, Enter, LayerPlan, Readout, Row, SeqId, StepOutput, TokenId};
use selfspec_speculate::SamplingParams;

use crate::statistics::exact_distribution;

/// A compact tree keeps at least this many of the most probable tokens of every row. Tokens that no
/// row has among them are left out.
const KEPT: usize = 32;

/// Rows of logits by the tokens between the prompt and them. Shape of a row: (token).
pub(super) type Rows = HashMap<Vec<TokenId>, Vec<f32>>;

/// How far the rows of a trial reach.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogitTreeShape {
    /// Tokens that sampling keeps of each row.
    pub(super) top_k: usize,
    /// Tokens drafted a round.
    pub(super) draft_len: usize,
    /// Tokens that are compared jointly.
    pub(super) length: usize,
}

/// Every row that a trial can meet.
#[derive(Debug, Default)]
pub(super) struct LogitTree {
    /// Rows of the full model.
    pub(super) target: Rows,
    /// Rows of the draft.
    pub(super) draft: Rows,
}

impl LogitTree {
    /// Computes the rows: the target's after every text that it can draw, the draft's after these
    /// and its own drafts.
    pub(super) fn collect(
        backend: &mut dyn Backend,
        prompt: &[TokenId],
        plan: &LayerPlan,
        shape: LogitTreeShape,
    ) -> Result<LogitTree, BackendError> {
        let mut tree = LogitTree::default();
        let mut source = RowSource::new(backend, prompt)?;
        let full = LayerPlan::full(plan.n_layers());
        let result = (|| {
            let mut level = vec![Vec::new()];
            for depth in 0..shape.length + shape.draft_len {
                let mut next = Vec::new();
                for before in level {
                    let row = source.row(&before, &full)?;
                    next.extend(likely(&row, shape.top_k).map(|token| extended(&before, token)));
                    if depth < shape.length {
                        tree.add_drafts(&mut source, &before, plan, shape)?;
                    }
                    tree.target.insert(before, row);
                }
                level = next;
            }
            Ok(())
        })();
        source.free();
        result.map(|()| tree)
    }

    /// The draft's rows of a round that begins after `before`.
    fn add_drafts(
        &mut self,
        source: &mut RowSource<'_>,
        before: &[TokenId],
        plan: &LayerPlan,
        shape: LogitTreeShape,
    ) -> Result<(), BackendError> {
        let mut level = vec![before.to_vec()];
        for _ in 0..shape.draft_len {
            let mut next = Vec::new();
            for before in level {
                let row = match self.draft.get(&before) {
                    Some(row) => row.clone(),
                    None => source.row(&before, plan)?,
                };
                next.extend(likely(&row, shape.top_k).map(|token| extended(&before, token)));
                self.draft.insert(before, row);
            }
            level = next;
        }
        Ok(())
    }

    /// Every other token, and the draft's rows over them: a draft vocabulary.
    pub(super) fn half_the_draft(&self) -> (Vec<TokenId>, Rows) {
        let half = |row: &Vec<f32>| row.iter().step_by(2).copied().collect();
        let rows = self.draft.iter().map(|(path, row)| (path.clone(), half(row))).collect();
        let most = self.draft.values().map(Vec::len).max().unwrap_or(0) as TokenId;
        ((0..most).step_by(2).collect(), rows)
    }

    /// The same tree over the tokens that matter in any of its rows: thousands of draws over a
    /// whole vocabulary would take minutes.
    pub(super) fn compact(self) -> LogitTree {
        let mut kept = BTreeSet::new();
        for row in self.target.values().chain(self.draft.values()) {
            let mut order: Vec<TokenId> = (0..row.len() as TokenId).collect();
            let by_logit = |a: &TokenId, b: &TokenId| row[*b as usize].total_cmp(&row[*a as usize]);
            let most = KEPT.min(order.len());
            if most < order.len() {
                order.select_nth_unstable_by(most, by_logit);
            }
            kept.extend(&order[..most]);
        }
        let number: HashMap<TokenId, TokenId> = kept.iter().copied().zip(0..).collect();
        let shrink = |rows: Rows| -> Rows {
            let row = |row: Vec<f32>| kept.iter().map(|t| row[*t as usize]).collect();
            // A path's tokens are among the most probable of the rows before them, so every one has
            // a number.
            let path = |path: Vec<TokenId>| path.iter().filter_map(|t| number.get(t).copied()).collect();
            rows.into_iter().map(|(p, r)| (path(p), row(r))).collect()
        };
        LogitTree { target: shrink(self.target), draft: shrink(self.draft) }
    }
}

/// The tokens that sampling may draw from a row.
fn likely(row: &[f32], top_k: usize) -> impl Iterator<Item = TokenId> {
    let sampling = SamplingParams { temperature: 1.0, top_k, ..SamplingParams::default() };
    let tokens = exact_distribution(&sampling, row, &[]).into_iter().zip(0..).filter(|(p, _)| *p > 0.0);
    tokens.map(|(_, token)| token).collect::<Vec<_>>().into_iter()
}

fn extended(before: &[TokenId], token: TokenId) -> Vec<TokenId> {
    before.iter().copied().chain([token]).collect()
}

/// A prompt in the cache, all but its last token, from which rows are computed.
struct RowSource<'b> {
    backend: &'b mut dyn Backend,
    seq: SeqId,
    last: TokenId,
    committed: usize,
    out: StepOutput,
}

impl<'b> RowSource<'b> {
    fn new(backend: &'b mut dyn Backend, prompt: &[TokenId]) -> Result<Self, BackendError> {
        let (last, before) = prompt.split_last().expect("the engine gives an empty prompt a BOS");
        let seq = backend.create();
        backend.drop_auxiliary(seq)?;
        let out = StepOutput::default();
        let mut source = RowSource { backend, seq, last: *last, committed: before.len(), out };
        let full = LayerPlan::full(source.backend.n_layers());
        let rows: Vec<Row> =
            before.iter().enumerate().map(|(pos, t)| source.token_row(pos, *t, &full, false)).collect();
        for chunk in rows.chunks(128) {
            source.backend.step(chunk, &mut source.out)?;
        }
        source.backend.set_len(seq, before.len())?;
        Ok(source)
    }

    fn token_row(&self, pos: usize, token: TokenId, plan: &LayerPlan, logits: bool) -> Row {
        let readout = if logits { Readout::Head } else { Readout::Nothing };
        let (enter, plan) = (Enter::Token, plan.clone());
        Row { seq: self.seq, pos, token, enter, plan, keep: false, readout }
    }

    /// Logits of `plan` after the prompt and `before`.
    fn row(&mut self, before: &[TokenId], plan: &LayerPlan) -> Result<Vec<f32>, BackendError> {
        let tokens = [self.last].into_iter().chain(before.iter().copied());
        let rows = (self.committed..).zip(tokens);
        let rows: Vec<Row> =
            rows.map(|(pos, t)| self.token_row(pos, t, plan, pos == self.committed + before.len())).collect();
        self.backend.step(&rows, &mut self.out)?;
        self.backend.set_len(self.seq, self.committed)?;
        Ok(self.out.logits(0).to_vec())
    }

    fn free(self) {
        self.backend.free(self.seq);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compact_tree_keeps_paths_and_logits_together() {
        let mut tree = LogitTree::default();
        let mut row = vec![0.0; 100];
        row[70] = 9.0;
        tree.target.insert(Vec::new(), row.clone());
        tree.target.insert(vec![70], row);
        let compact = tree.compact();
        let root = &compact.target[&[][..]];
        assert_eq!(root.len(), KEPT);
        let at = root.iter().position(|l| *l == 9.0).expect("the most probable token is kept");
        assert!(compact.target.contains_key(&[at as TokenId][..]));
    }
}
