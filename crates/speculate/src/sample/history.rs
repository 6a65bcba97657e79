//! The token counts behind the penalties.

use std::collections::HashMap;

use selfspec_model::TokenId;

use crate::sample::params::SamplingParams;

#[derive(Debug, Clone, Copy, Default)]
struct TokenCount {
    in_prompt: bool,
    in_output: u32,
}

/// The tokens of a sequence, followed by the drafts of the round under way.
///
/// Row i of a verification must see drafts 1 to i, as plain decoding would have committed them. An
/// accepted draft counts once, a rejected one never. So drafts are counted when they are made, all
/// taken back before the verification, and counted again one by one as they are committed.
#[derive(Debug)]
pub struct PenaltyHistory {
    counts: Option<HashMap<TokenId, TokenCount>>, // None without penalties
    drafts: Vec<TokenId>,
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

    /// Counts a draft, until [`PenaltyHistory::drop_drafts`].
    pub fn draft(&mut self, token: TokenId) {
        if self.counts.is_some() {
            self.drafts.push(token);
            self.commit(token);
        }
    }

    /// Takes all drafts back.
    pub fn drop_drafts(&mut self) {
        let Some(counts) = &mut self.counts else { return };
        for token in self.drafts.drain(..) {
            let count = counts.entry(token).or_default();
            count.in_output = count.in_output.saturating_sub(1);
        }
    }

    /// Whether [`PenaltyHistory::penalize`] would change anything.
    pub(crate) fn penalizes(&self) -> bool {
        self.counts.is_some()
    }

    /// Applies the repetition penalty, then the frequency and presence penalties, to a row of
    /// logits. `place` maps a token to the index of its logit.
    pub(crate) fn penalize(&self, params: &SamplingParams, place: impl Fn(TokenId) -> Option<usize>, row: &mut [f32]) {
        for (token, count) in self.counts.iter().flatten() {
            let Some(logit) = place(*token).and_then(|i| row.get_mut(i)) else { continue };
            if count.in_prompt || count.in_output > 0 {
                let r = params.repetition_penalty;
                *logit = if *logit > 0.0 { *logit / r } else { *logit * r };
            }
            if count.in_output > 0 {
                *logit -= params.frequency_penalty * count.in_output as f32;
                *logit -= params.presence_penalty;
            }
        }
    }
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
        history.penalize(&params, by_id, &mut row);
        assert_eq!(row, [2.0, 2.0 - 0.5 - 0.5, 2.0 - 0.25 - 0.5, 4.0]);
        history.drop_drafts();
        history.commit(1);
        let mut row = [4.0f32, -4.0, 4.0, 4.0];
        history.penalize(&params, by_id, &mut row);
        assert_eq!(row, [2.0, -8.0 - 0.25 - 0.5, 4.0, 4.0]);
    }
}
