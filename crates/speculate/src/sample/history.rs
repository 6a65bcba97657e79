//! The token counts behind the penalties.

use std::collections::HashMap;

use selfspec_model::TokenId;

use crate::sample::params::SamplingParams;

#[derive(Debug, Clone, Copy, Default)]
struct TokenCount {
    in_prompt: bool,
    in_output: u32,
}

/// The tokens of a sequence's prompt and output, counted, and the drafts of the round under way.
///
/// Row i of a verification must see drafts 1 to i, as plain decoding would have committed them. So
/// drafts are listed beside the counts, and each row looks at as many of them as come before it.
#[derive(Debug)]
pub struct PenaltyHistory {
    counts: Option<HashMap<TokenId, TokenCount>>, // None without penalties
    drafts: Vec<TokenId>,
}

/// The history as one row sees it.
#[derive(Debug, Clone, Copy)]
pub struct PenaltyView<'a> {
    counts: Option<&'a HashMap<TokenId, TokenCount>>,
    drafts: &'a [TokenId],
}

impl PenaltyHistory {
    /// The history of a prompt. Without penalties in `params` nothing is counted.
    pub fn new(params: &SamplingParams, prompt: &[TokenId]) -> Self {
        let counts = params
            .has_penalties()
            .then(|| prompt.iter().map(|token| (*token, TokenCount { in_prompt: true, in_output: 0 })).collect());
        PenaltyHistory { counts, drafts: Vec::new() }
    }

    /// Counts a committed token.
    pub fn commit(&mut self, token: TokenId) {
        if let Some(counts) = &mut self.counts {
            counts.entry(token).or_default().in_output += 1;
        }
    }

    /// Lists a draft, until [`PenaltyHistory::drop_drafts`].
    pub fn draft(&mut self, token: TokenId) {
        self.drafts.push(token);
    }

    /// Takes all drafts back.
    pub fn drop_drafts(&mut self) {
        self.drafts.clear();
    }

    /// The drafts of the round.
    pub(crate) fn drafts(&self) -> &[TokenId] {
        &self.drafts
    }

    /// The history after all drafts of the round.
    pub fn view(&self) -> PenaltyView<'_> {
        self.after(&self.drafts)
    }

    /// The history after these drafts of the round.
    pub(crate) fn after<'a>(&'a self, drafts: &'a [TokenId]) -> PenaltyView<'a> {
        PenaltyView { counts: self.counts.as_ref(), drafts }
    }
}

impl PenaltyView<'_> {
    /// Whether [`PenaltyView::penalize`] would change anything.
    pub(crate) fn penalizes(&self) -> bool {
        self.counts.is_some()
    }

    /// Applies the repetition penalty, then the frequency and presence penalties, to a row of
    /// logits. `place` is where a token's logit is. Shape of `row`: any.
    pub(crate) fn penalize(&self, params: &SamplingParams, place: impl Fn(TokenId) -> Option<usize>, row: &mut [f32]) {
        let Some(counts) = self.counts else { return };
        let mut distinct: Vec<TokenId> = self.drafts.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        // The drafted tokens' logits as they are, for their own counts below.
        let logit = |token: &TokenId, row: &[f32]| Some((*token, *row.get(place(*token)?)?));
        let drafted: Vec<(TokenId, f32)> = distinct.iter().filter_map(|token| logit(token, row)).collect();
        for (token, count) in counts {
            if let Some(logit) = place(*token).and_then(|i| row.get_mut(i)) {
                *logit = penalized(*logit, *count, params);
            }
        }
        for (token, before) in drafted {
            let mut count = counts.get(&token).copied().unwrap_or_default();
            count.in_output += self.drafts.iter().filter(|draft| **draft == token).count() as u32;
            if let Some(logit) = place(token).and_then(|i| row.get_mut(i)) {
                *logit = penalized(before, count, params);
            }
        }
    }
}

/// A logit after the penalties for its token.
fn penalized(mut logit: f32, count: TokenCount, params: &SamplingParams) -> f32 {
    if count.in_prompt || count.in_output > 0 {
        let r = params.repetition_penalty;
        logit = if logit > 0.0 { logit / r } else { logit * r };
    }
    if count.in_output > 0 {
        logit -= params.frequency_penalty * count.in_output as f32;
        logit -= params.presence_penalty;
    }
    logit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_drafts_count_once_and_rejected_ones_never() {
        let params = SamplingParams {
            repetition_penalty: 2.0,
            presence_penalty: 0.5,
            frequency_penalty: 0.25,
            ..SamplingParams::default()
        };
        let mut history = PenaltyHistory::new(&params, &[0]);
        history.draft(1);
        history.draft(1);
        history.draft(2);
        let by_id = |token: TokenId| Some(token as usize);
        let mut row = [4.0f32; 4];
        history.view().penalize(&params, by_id, &mut row);
        assert_eq!(row, [2.0, 2.0 - 0.5 - 0.5, 2.0 - 0.25 - 0.5, 4.0]);
        history.drop_drafts();
        history.commit(1);
        let mut row = [4.0f32, -4.0, 4.0, 4.0];
        history.view().penalize(&params, by_id, &mut row);
        assert_eq!(row, [2.0, -8.0 - 0.25 - 0.5, 4.0, 4.0]);
    }
}
