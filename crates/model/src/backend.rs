//! What speculation and the engine may ask of a model: sequences, and steps over rows.
//!
//! A **row** is one token of one sequence at one position. It enters the model at one layer and leaves it at another; a
//! **step** is one pass over a ragged list of rows. Prefill, plain decoding, drafting and verification differ only in the
//! rows they ask for:
//!
//! | kind of row | `enter` | `plan` | `keep` | `readout` |
//! |---|---|---|---|---|
//! | plain decode | token | full | no | head |
//! | prefill | token | full | no | nothing; head in the prompt's last row |
//! | draft, layer skip | token | the draft's plan | yes | head, or its rows of the draft vocabulary |
//! | draft, exit head | token | the layers below it | yes | exit head |
//! | verify, after a draft | kept | full | no | head |
//! | verify, not drafted by layers | token | full | no | head |
//!
//! **Row invariance.** The bits of a row's logits, K and V depend on its own token, position and plan and on the K and V
//! before it, never on the other rows of the step, their order, the number of threads, or how the K and V got there.

use std::sync::Arc;

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

/// What a row gives when it leaves the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Readout {
    /// Nothing: the row is there for its K and V.
    Nothing,
    /// The final norm, then the head. Logits over the vocabulary.
    Head,
    /// The final norm, then the head's rows of [`Backend::draft_vocab`]. Logits over these tokens, in their order.
    DraftVocab,
    /// The exit head, whose plan is [`ExitHeadInfo::plan`]. Logits over [`ExitHeadInfo::vocab`], in its order.
    ExitHead,
}

/// What a caller needs to know of a backend's exit head: a small trained layer that reads the hidden state after the first layers and
/// predicts what the whole model will.
#[derive(Debug, Clone, PartialEq)]
pub struct ExitHeadInfo {
    /// The layers below it, which its rows run. None, where it reads the embedding.
    pub plan: LayerPlan,
    /// The tokens that it can propose, ascending.
    pub vocab: Arc<[TokenId]>,
    /// The share of its drafts that was accepted when it was made, if that is known.
    pub acceptance: Option<f64>,
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
    /// What the row gives at its end.
    pub readout: Readout,
    /// A row of the full plan also writes the exit head's K and V at its position, if the backend has an exit head. Where rows before did
    /// not, the exit head drafts badly; nothing else depends on it.
    pub exit_kv: bool,
}

/// What a step leaves behind. Reused from step to step, so that decoding does not allocate.
#[derive(Debug, Default)]
pub struct StepOutput {
    logits: Vec<f32>,          // all rows' logits, and memory of earlier steps beyond them
    rows: Vec<(usize, usize)>, // (wanted row): where its logits begin, and how many they are
    taps: Vec<Tap>,
    /// Rows times layers of the model that this step computed: the measure that shows reuse of kept states.
    pub layer_rows: u64,
}

/// Hidden states to be copied out of a step.
#[derive(Debug, Default)]
struct Tap {
    layers: usize,    // layers that the states have passed
    states: Vec<f32>, // (row of the step, dim)
    dim: usize,
}

impl StepOutput {
    /// Has later steps leave the hidden state of every row behind as it is after each of these numbers of layers: 0 is the embedding, the
    /// model's depth the state before the final norm. A row that does not run a layer passes it unchanged. One more than the depth is the state
    /// after the exit head's own layer, of the rows that draft with it. Only the CPU's backend does so.
    pub fn tap(&mut self, layers: &[usize]) {
        self.taps = layers.iter().map(|l| Tap { layers: *l, ..Tap::default() }).collect();
    }

    /// The hidden state of row `row` of the latest step at the `i`-th of the taps asked for. Shape: (dim); empty if the backend left none.
    pub fn tapped(&self, i: usize, row: usize) -> &[f32] {
        let tap = &self.taps[i];
        tap.states.get(row * tap.dim..(row + 1) * tap.dim).unwrap_or_default()
    }

    /// Takes note of `hidden`, the states of all rows after `layers` layers, where they are asked for. Shape: (row, dim).
    pub(crate) fn pass_taps(&mut self, layers: usize, hidden: &[f32], dim: usize) {
        for tap in self.taps.iter_mut().filter(|t| t.layers == layers) {
            tap.dim = dim;
            tap.states.clear();
            tap.states.extend_from_slice(hidden);
        }
    }

    /// The same for the states of the exit head, which are there as far as rows have needed them.
    pub(crate) fn pass_head_states(&mut self, layers: usize, states: &[f32], len: usize, dim: usize) {
        if states.len() >= len {
            self.pass_taps(layers, &states[..len], dim);
        }
    }

    /// Number of rows with logits.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether no row has logits.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Logits of the `i`-th row that asked for them, in the order of the step's rows: as many as its [`Readout`] says.
    ///
    /// # Panics
    /// If fewer than `i + 1` rows asked.
    pub fn logits(&self, i: usize) -> &[f32] {
        assert!(i < self.rows.len(), "row {i} of {} rows with logits", self.rows.len());
        let (start, len) = self.rows[i];
        &self.logits[start..][..len]
    }

    /// Makes room for rows of logits, each with a readout and a length, in the order of the step's rows, and returns it, to be written by the
    /// backend: rows of one readout lie one after the other, the readouts in their order.
    pub(crate) fn prepare(&mut self, rows: impl Iterator<Item = (Readout, usize)> + Clone) -> &mut [f32] {
        self.rows.clear();
        self.rows.extend(rows.clone().map(|(_, len)| (0, len)));
        let mut end = 0;
        for readout in [Readout::Head, Readout::DraftVocab, Readout::ExitHead] {
            for (row, _) in self.rows.iter_mut().zip(rows.clone()).filter(|(_, (r, _))| *r == readout) {
                row.0 = end;
                end += row.1;
            }
        }
        self.layer_rows = 0;
        if self.logits.len() < end {
            self.logits.resize(end, 0.0);
        }
        &mut self.logits[..end]
    }

    /// Forgets all rows and keeps the memory.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.layer_rows = 0;
    }

    /// Appends one row of logits.
    pub fn push(&mut self, row: &[f32]) {
        let start = self.rows.iter().map(|(start, len)| start + len).max().unwrap_or(0);
        self.logits.truncate(start);
        self.logits.extend_from_slice(row);
        self.rows.push((start, row.len()));
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
    /// The tokens that [`Readout::DraftVocab`] has logits for, ascending, if there is a draft vocabulary.
    fn draft_vocab(&self) -> Option<&Arc<[TokenId]>> {
        None
    }
    /// The exit head, if there is one.
    fn exit_head(&self) -> Option<&ExitHeadInfo> {
        None
    }
    /// What times the parts of its steps, if it has such a thing.
    fn profiler(&mut self) -> Option<&mut Profiler> {
        None
    }
}
