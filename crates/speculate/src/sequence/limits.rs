//! What ends a sequence's output.

use selfspec_model::TokenId;

/// Why a sequence ended: the first that applies, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceEnd {
    /// An end token was committed; it is the last token.
    Stop,
    /// The requested number of tokens was generated.
    Length,
    /// Prompt and output fill the context.
    Context,
}

/// The limits of one sequence. All lengths are in tokens.
#[derive(Debug)]
pub(crate) struct SequenceLimits {
    pub(crate) max_tokens: usize,
    pub(crate) context: usize,
    pub(crate) eos: Vec<TokenId>,
    pub(crate) prompt_len: usize,
}

impl SequenceLimits {
    /// Tokens that may still be generated after `committed` ones, the prompt included.
    pub(crate) fn left(&self, committed: usize) -> usize {
        let wanted = self.max_tokens.saturating_sub(committed - self.prompt_len);
        wanted.min(self.context.saturating_sub(committed))
    }

    /// Why a sequence of `committed` tokens, the last one generated, is over; `None` if it goes on.
    pub(crate) fn finish(&self, last: TokenId, committed: usize) -> Option<SequenceEnd> {
        if self.is_end(last) {
            Some(SequenceEnd::Stop)
        } else if committed - self.prompt_len >= self.max_tokens {
            Some(SequenceEnd::Length)
        } else if committed >= self.context {
            Some(SequenceEnd::Context)
        } else {
            None
        }
    }

    /// Whether a token ends the output.
    pub(crate) fn is_end(&self, token: TokenId) -> bool {
        self.eos.contains(&token)
    }
}
