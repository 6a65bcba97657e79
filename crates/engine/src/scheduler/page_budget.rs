//! The KV pages that a request needs at most, and for its next round.
//!
//! A request is accepted if it fits an empty cache. It is admitted when the pages of its next round
//! are free. When requests grow until the cache is full, the youngest is preempted (see
//! [`crate::scheduler::engine_thread`]).

use selfspec_model::Backend;
use selfspec_speculate::{DraftLen, DrafterChoice, MAX_DRAFT, SpeculationParams};

use crate::error::EngineError;

/// The sizes of the backend's cache, which never change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheShape {
    model_context: usize,
    page_positions: usize,
    total_pages: usize,
}

/// The limits of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageGrant {
    /// Most tokens to generate; `usize::MAX` where only the context's end bounds them.
    pub(crate) max_tokens: usize,
    /// Most pages that it may need.
    pub(crate) pages: usize,
    /// Positions beyond the committed ones that a round may write.
    pub(crate) draft_room: usize,
}

impl PageGrant {
    /// Pages of `page_positions` positions for `committed` tokens, the next round and one token
    /// more.
    pub(crate) fn next_round(&self, committed: usize, page_positions: usize) -> usize {
        committed.saturating_add(1 + self.draft_room).div_ceil(page_positions).min(self.pages)
    }
}

/// Positions beyond the committed ones that a round may write.
fn draft_room(speculation: &SpeculationParams) -> usize {
    match (&speculation.drafter, speculation.draft_len) {
        (DrafterChoice::Off, _) => 0,
        (_, DraftLen::Fixed(k)) => k,
        (_, DraftLen::Adaptive | DraftLen::Window) => MAX_DRAFT,
    }
}

impl CacheShape {
    pub(crate) fn of(backend: &dyn Backend) -> Self {
        CacheShape {
            model_context: backend.context(),
            page_positions: backend.page_positions(),
            total_pages: backend.total_pages(),
        }
    }

    /// Longest sequence that can be held: the model's context, or the whole cache if that is
    /// smaller.
    pub(crate) fn context(&self) -> usize {
        self.model_context.min(self.total_pages.saturating_mul(self.page_positions))
    }

    /// The grant for a prompt of `prompt` tokens.
    ///
    /// # Errors
    /// [`EngineError::PromptTooLong`], and [`EngineError::NeverFits`] when even an empty cache is
    /// too small.
    pub(crate) fn grant(
        &self,
        prompt: usize,
        max_tokens: Option<usize>,
        speculation: &SpeculationParams,
    ) -> Result<PageGrant, EngineError> {
        if prompt >= self.model_context {
            return Err(EngineError::PromptTooLong { tokens: prompt, context: self.model_context });
        }
        let draft_room = draft_room(speculation);
        let bound = match max_tokens {
            Some(_) => self.model_context,
            // There must be room for one token, whatever the size of the cache.
            None => self.context().max(prompt + 1),
        };
        let max_tokens = max_tokens.unwrap_or(usize::MAX);
        let positions = prompt.saturating_add(max_tokens).saturating_add(draft_room).min(bound);
        let pages = positions.div_ceil(self.page_positions);
        if pages > self.total_pages {
            return Err(EngineError::NeverFits {
                prompt,
                max_tokens: max_tokens.min(bound - prompt),
                draft_room,
                pages,
                page_positions: self.page_positions,
                total: self.total_pages,
            });
        }
        Ok(PageGrant { max_tokens, pages, draft_room })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(context: usize, pages: usize) -> CacheShape {
        CacheShape { model_context: context, page_positions: 16, total_pages: pages }
    }

    fn drafting(k: usize) -> SpeculationParams {
        SpeculationParams {
            drafter: DrafterChoice::PromptLookup,
            draft_len: DraftLen::Fixed(k),
            ..SpeculationParams::default()
        }
    }

    fn plain() -> SpeculationParams {
        SpeculationParams::off()
    }

    #[test]
    fn pages_cover_prompt_tokens_and_drafts() {
        let shape = shape(1000, 50);
        let grant = |max_tokens, pages, draft_room| PageGrant { max_tokens, pages, draft_room };
        assert_eq!(shape.grant(10, Some(6), &plain()).expect("fits"), grant(6, 1, 0));
        assert_eq!(shape.grant(10, Some(7), &plain()).expect("fits"), grant(7, 2, 0));
        assert_eq!(shape.grant(10, Some(6), &drafting(4)).expect("fits"), grant(6, 2, 4));
    }

    #[test]
    fn a_round_needs_its_drafts_and_a_token_more_but_never_more_than_the_grant() {
        let grant = PageGrant { max_tokens: 100, pages: 4, draft_room: 8 };
        assert_eq!([7, 8, 23, 24, 1000].map(|committed| grant.next_round(committed, 16)), [1, 2, 2, 3, 4]);
    }

    #[test]
    fn nothing_is_set_aside_beyond_the_context() {
        let grant = shape(100, 50).grant(10, Some(100_000), &drafting(8)).expect("the context bounds it");
        assert_eq!(grant.pages, 7);
        let grant =
            shape(usize::MAX, usize::MAX / 16 + 1).grant(10, Some(usize::MAX), &drafting(8)).expect("saturates");
        assert_eq!(grant.max_tokens, usize::MAX);
    }

    #[test]
    fn without_a_bound_a_request_takes_the_context_or_the_cache() {
        let unbounded = |pages| PageGrant { max_tokens: usize::MAX, pages, draft_room: 8 };
        assert_eq!(shape(100, 50).grant(10, None, &drafting(8)).expect("fits"), unbounded(7));
        assert_eq!(shape(100, 3).grant(10, None, &drafting(8)).expect("fits"), unbounded(3));
        assert_eq!(shape(100, 3).context(), 48, "which is where the sequence ends");
    }

    #[test]
    fn what_cannot_fit_is_an_error_with_the_numbers() {
        let error = shape(100, 3).grant(40, Some(9), &plain()).expect_err("49 positions in 48");
        assert_eq!(
            error.to_string(),
            "40 prompt tokens, 9 to generate and 0 of room for drafts need 4 KV pages of 16 positions, the cache has 3"
        );
        let error = shape(100, 3).grant(100, None, &plain()).expect_err("no room");
        assert_eq!(error.to_string(), "the prompt has 100 tokens, the context 100 positions: no room to generate");
        assert!(matches!(shape(100, 3).grant(60, None, &plain()), Err(EngineError::NeverFits { pages: 4, .. })));
    }
}
