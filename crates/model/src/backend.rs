//! What speculation and the engine may ask of a model: sequences, and steps over rows.
//!
//! A **row** is one token of one sequence at one position. It enters the model at one layer and leaves it at another; a
//! **step** is one pass over a ragged list of rows. Prefill, plain decoding, drafting and verification differ only in the
//! rows they ask for:
//!
//! | kind of row | `enter` | `plan` | `keep` | `logits` |
//! |---|---|---|---|---|
//! | plain decode | token | full | no | yes |
//! | prefill | token | full | no | last row of the prompt only |
//! | draft | token | the draft's plan | yes | yes |
//! | verify, after a draft | kept | full | no | yes |
//! | verify, not drafted by layers | token | full | no | yes |
//!
//! **Row invariance.** The bits of a row's logits, K and V depend on its own token, position and plan and on the K and V
//! before it, never on the other rows of the step, their order, the number of threads, or how the K and V got there.

use crate::plan::LayerPlan;
use crate::profile::Profiler;

/// Index of a token in the vocabulary.
pub type TokenId = u32;

/// Names a sequence that a [`Backend`] holds. Ids of freed sequences may be given out again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeqId(pub u32);

/// Where a row starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enter {
    /// At layer 0, from the token's embedding.
    Token,
    /// At the layer where an earlier row of this sequence and position was kept (see [`Row::keep`]), from that hidden state.
    Kept,
}

/// One token of one sequence at one position, and the layers that it runs.
#[derive(Debug, Clone)]
pub struct Row {
    /// The sequence; it must be live.
    pub seq: SeqId,
    /// Position of the token in its sequence. Positions `0..pos` must have K and V in every layer that the row runs:
    /// committed, or written by earlier rows of this step or of this round.
    pub pos: usize,
    /// The token. Needed also when the row enters from a kept state (checked against what was kept).
    pub token: TokenId,
    /// Where the row starts.
    pub enter: Enter,
    /// The layers that the row runs.
    pub plan: LayerPlan,
    /// Keep the hidden state after `plan.exact_prefix()` layers, so that a verify row can enter there.
    /// Kept states live until the sequence's length is next set.
    pub keep: bool,
    /// Whether the row's logits are wanted (final norm, then the head).
    pub logits: bool,
}

/// What a step leaves behind. Reused from step to step, so that decoding does not allocate.
#[derive(Debug, Default)]
pub struct StepOutput {
    logits: Vec<f32>, // (wanted row, vocab), and memory of earlier steps beyond them
    rows: usize,
    vocab: usize,
    /// Rows times layers that this step computed: the measure that shows reuse of kept states.
    pub layer_rows: u64,
}

impl StepOutput {
    /// An empty output for rows of `vocab` logits.
    pub fn new(vocab: usize) -> Self {
        StepOutput { logits: Vec::new(), rows: 0, vocab, layer_rows: 0 }
    }

    /// Number of rows with logits.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether no row has logits.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Logits of the `i`-th row that asked for them, in the order of the step's rows. Shape: (vocab).
    ///
    /// # Panics
    /// If fewer than `i + 1` rows asked.
    pub fn logits(&self, i: usize) -> &[f32] {
        assert!(i < self.rows, "row {i} of {} rows with logits", self.rows);
        &self.logits[i * self.vocab..][..self.vocab]
    }

    /// Makes room for `rows` rows of `vocab` logits and returns it, to be written by the backend. Shape: (rows, vocab).
    pub fn prepare(&mut self, rows: usize, vocab: usize) -> &mut [f32] {
        self.rows = rows;
        self.vocab = vocab;
        self.layer_rows = 0;
        if self.logits.len() < rows * vocab {
            self.logits.resize(rows * vocab, 0.0);
        }
        &mut self.logits[..rows * vocab]
    }

    /// Forgets all rows and keeps the memory.
    pub fn clear(&mut self) {
        self.rows = 0;
        self.layer_rows = 0;
    }

    /// Appends one row of logits.
    ///
    /// # Panics
    /// If `row` is not `vocab` long.
    pub fn push(&mut self, row: &[f32]) {
        assert_eq!(row.len(), self.vocab, "a row of logits is as long as the vocabulary");
        self.logits.truncate(self.rows * self.vocab);
        self.logits.extend_from_slice(row);
        self.rows += 1;
    }
}

/// Why a backend cannot do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// No free KV page is left.
    #[error("the KV cache is full: {wanted} more pages needed, {free} free")]
    KvFull {
        /// Pages needed.
        wanted: usize,
        /// Pages free.
        free: usize,
    },
    /// A position at or beyond the context length.
    #[error("position {pos} is beyond the context length {context}")]
    BeyondContext {
        /// The position.
        pos: usize,
        /// The context length.
        context: usize,
    },
    /// A token that the vocabulary lacks.
    #[error("token {token} is not in a vocabulary of {vocab}")]
    UnknownToken {
        /// The token.
        token: TokenId,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// A sequence that is not live.
    #[error("sequence {0:?} is not live")]
    UnknownSequence(SeqId),
    /// A row that breaks the contract of [`Row`]: a gap before its position, a kept state that is not there, a plan of another depth.
    #[error("row of {seq:?} at position {pos}: {why}")]
    BadRow {
        /// The row's sequence.
        seq: SeqId,
        /// The row's position.
        pos: usize,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// A model that runs steps and holds the KV cache: the CPU's, later a GPU's, and the test double.
pub trait Backend: Send {
    /// Number of layers N.
    fn n_layers(&self) -> usize;
    /// Size of the vocabulary, which is the length of a row of logits.
    fn vocab(&self) -> usize;
    /// Longest sequence, in positions.
    fn context(&self) -> usize;
    /// Positions in a KV page.
    fn page_positions(&self) -> usize;
    /// KV pages that are free.
    fn free_pages(&self) -> usize;
    /// KV pages in all.
    fn total_pages(&self) -> usize;
    /// A new, empty sequence.
    fn create(&mut self) -> SeqId;
    /// A new sequence that shares the first `len` positions of `seq` (its pages are counted, the last partial one copied).
    ///
    /// # Errors
    /// `seq` is not live, `len` is beyond its length, or the partial page cannot be copied for want of a free one.
    fn fork(&mut self, seq: SeqId, len: usize) -> Result<SeqId, BackendError>;
    /// Frees a sequence and its pages. A sequence that is not live is left alone.
    fn free(&mut self, seq: SeqId);
    /// Committed positions of `seq`: those with K and V in every layer that [`Backend::set_len`] has declared.
    ///
    /// # Errors
    /// `seq` is not live.
    fn kv_len(&self, seq: SeqId) -> Result<usize, BackendError>;
    /// Commits or rolls back: makes the length of `seq` exactly `len` in every layer, frees the pages wholly beyond it,
    /// and forgets the kept hidden states.
    ///
    /// # Errors
    /// `seq` is not live, or positions up to `len` have not all been computed through all layers (a [`BackendError::BadRow`]).
    fn set_len(&mut self, seq: SeqId, len: usize) -> Result<(), BackendError>;
    /// Runs one step. `out` is cleared, then holds the logits of the rows that want them, in order.
    /// KV pages for the rows' positions are taken as needed. On an error nothing has been computed and no length changed; after
    /// a [`BackendError::BadRow`], positions that were not committed are forgotten.
    ///
    /// # Errors
    /// Every fault that [`BackendError`] names.
    fn step(&mut self, rows: &[Row], out: &mut StepOutput) -> Result<(), BackendError>;
    /// What times the parts of its steps, if it has such a thing.
    fn profiler(&mut self) -> Option<&mut Profiler> {
        None
    }
}
