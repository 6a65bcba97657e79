//! A row: one token of one sequence at one position, and how it runs through the model.
//!
//! Prefill, plain decoding, drafting and verification differ only in the rows that they ask for:
//!
//! | kind of row | `enter` | `plan` | `keep` | `readout` |
//! |---|---|---|---|---|
//! | plain decode | token | full | no | head |
//! | prefill | token | full | no | nothing; head in the prompt's last row |
//! | draft, layer skip | token | the draft's plan | yes | head, or its rows of the draft vocabulary |
//! | draft, exit head | token | the layers below it | yes | exit head |
//! | verify, after a draft | kept | full | no | head |
//! | verify, not drafted by layers | token | full | no | head |

use std::sync::Arc;

use crate::plan::LayerPlan;

/// Index of a token in the vocabulary.
pub type TokenId = u32;

/// Names a sequence that a [`Backend`](crate::Backend) holds. Ids of freed sequences are reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeqId(pub u32);

/// Where a row starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enter {
    /// At layer 0, from the token's embedding.
    Token,
    /// At the layer where an earlier row of this sequence and position was kept (see
    /// [`Row::keep`]), from that hidden state.
    Kept,
}

/// The head that reads a row when it leaves the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Readout {
    /// None: the row is run for its K and V.
    Nothing,
    /// The final norm, then the head. Logits over the vocabulary.
    Head,
    /// The final norm, then the head's rows of
    /// [`Backend::draft_vocab`](crate::Backend::draft_vocab). Logits over these tokens, in their
    /// order.
    DraftVocab,
    /// The exit head, whose plan is [`ExitHeadInfo::plan`]. Logits over [`ExitHeadInfo::vocab`], in
    /// its order.
    ExitHead,
}

/// An exit head as its callers see it: a small trained layer that reads the hidden state after the
/// first layers and predicts the whole model's next token.
#[derive(Debug, Clone, PartialEq)]
pub struct ExitHeadInfo {
    /// The layers below it, which its rows run. None, where it reads the embedding.
    pub plan: LayerPlan,
    /// The tokens that it can propose, ascending.
    pub vocab: Arc<[TokenId]>,
    /// The share of its drafts that was accepted when it was trained, if that is known.
    pub acceptance: Option<f64>,
}

/// One token of one sequence at one position, and the layers that it runs.
#[derive(Debug, Clone)]
pub struct Row {
    /// The sequence; it must be live.
    pub seq: SeqId,
    /// Position of the token in its sequence. Positions `0..pos` must have K and V in every layer
    /// that the row runs: committed, or written by earlier rows of this step or of this round.
    pub pos: usize,
    /// The token. Needed also when the row enters from a kept state (checked against what was
    /// kept).
    pub token: TokenId,
    /// Where the row starts.
    pub enter: Enter,
    /// The layers that the row runs.
    pub plan: LayerPlan,
    /// Keep the hidden state after `plan.exact_prefix()` layers, so that a verify row can enter
    /// there. Kept states live until the sequence's length is next set. Rows of the full plan keep
    /// nothing.
    pub keep: bool,
    /// The head that reads the row at its end.
    pub readout: Readout,
}
