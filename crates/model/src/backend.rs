//! The interface of a model on a device: sequences, and steps over rows.
//!
//! A **row** is one token of one sequence at one position. It enters the model at one layer and
//! leaves it at another. A **step** is one pass over a ragged list of rows (see [`Row`]).
//!
//! **Row invariance.** The bits of a row's logits, K and V depend on its own token, position and
//! plan and on the K and V before it. They never depend on the other rows of the step, their order,
//! the number of threads, or how the K and V got there.

use std::sync::Arc;

use crate::choice::NoChoice;
use crate::draft::{ChooseRow, DraftOutput, DraftRequest, DraftStep};
use crate::output::{StepOutput, StepReadouts};
use crate::profile::Profiler;
use crate::row::{ExitHeadInfo, Row, SeqId, TokenId};

/// Why a backend refuses a call.
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
    /// A token outside the vocabulary.
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
    /// A row that breaks the contract of [`Row`]: a gap before its position, a missing kept state,
    /// a plan of another depth.
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

/// A model that runs steps and holds the KV cache: on the CPU, on another device, or as a test
/// double.
///
/// **Auxiliary layers** are layers beside the model's own that the backend keeps up for a sequence:
/// rows of the full plan write their K and V too, so that a later row can draft with them. Today
/// this is the exit head. Every new sequence has them; [`Backend::drop_auxiliary`] ends it, and the
/// sequence's rows then cost what plain decoding costs.
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
    /// A new, empty sequence. It has the auxiliary layers that the backend offers.
    fn create(&mut self) -> SeqId;
    /// A new sequence that shares the first `len` positions of `seq`: whole pages are shared, the
    /// last partial one is copied. It has the auxiliary layers if `seq` has them.
    ///
    /// # Errors
    /// `seq` is not live, `len` is beyond its length, or no page is free for the copy.
    fn fork(&mut self, seq: SeqId, len: usize) -> Result<SeqId, BackendError>;
    /// Frees a sequence and its pages. A sequence that is not live is left alone.
    fn free(&mut self, seq: SeqId);
    /// Committed positions of `seq`: those with K and V in every layer that [`Backend::set_len`]
    /// has declared.
    ///
    /// # Errors
    /// `seq` is not live.
    fn kv_len(&self, seq: SeqId) -> Result<usize, BackendError>;
    /// Commits or rolls back: makes the length of `seq` exactly `len` in every layer, frees the
    /// pages wholly beyond it, and forgets the kept hidden states.
    ///
    /// # Errors
    /// `seq` is not live, or positions up to `len` have not all been computed through all layers (a
    /// [`BackendError::BadRow`]).
    fn set_len(&mut self, seq: SeqId, len: usize) -> Result<(), BackendError>;
    /// Whether the auxiliary layers of `seq` are kept up. False where the backend has none.
    ///
    /// # Errors
    /// `seq` is not live.
    fn has_auxiliary(&self, seq: SeqId) -> Result<bool, BackendError>;
    /// Ends the upkeep of the auxiliary layers of `seq` for good: `seq` cannot draft with them any
    /// more, and neither can its later forks.
    ///
    /// # Errors
    /// `seq` is not live.
    fn drop_auxiliary(&mut self, seq: SeqId) -> Result<(), BackendError>;
    /// Runs one step. `out` is cleared, then holds the readouts of the rows with a head, in order:
    /// the chosen token where `readouts` chooses it, else the logits. Hidden states are there as
    /// asked. KV pages for the rows' positions are taken as needed. On an error nothing has been
    /// computed and no length changed. After a [`BackendError::BadRow`], or a fault of the device,
    /// positions of the step's sequences that were not committed are forgotten.
    ///
    /// # Errors
    /// Every fault that [`BackendError`] names.
    fn step_with(
        &mut self,
        rows: &[Row],
        readouts: &StepReadouts<'_>,
        out: &mut StepOutput,
    ) -> Result<(), BackendError>;
    /// Runs one step whose rows leave their logits, and nothing else. See [`Backend::step_with`].
    ///
    /// # Errors
    /// As [`Backend::step_with`].
    fn step(&mut self, rows: &[Row], out: &mut StepOutput) -> Result<(), BackendError> {
        self.step_with(rows, &StepReadouts::default(), out)
    }
    /// Makes a whole draft of one sequence: rows one after the other, each fed with the token
    /// chosen from the row before, until the stop rule ends it. The tokens are those that as many
    /// steps of one row would have given.
    ///
    /// This implementation runs these steps. A device overrides it where a round trip for each
    /// token costs more than it computes.
    ///
    /// # Errors
    /// As [`Backend::step_with`]. Rows before the fault have been run.
    fn draft(&mut self, request: &DraftRequest<'_>, out: &mut DraftOutput) -> Result<(), BackendError> {
        (out.rows, out.layer_rows, out.panic) = (0, 0, None);
        out.drafts.clear();
        let (mut row, mut reached) = (request.first.clone(), request.stop.reached);
        loop {
            let choose = ChooseRow { choose: request.choose, row: out.rows };
            let readouts = StepReadouts { choose: Some(&choose), ..StepReadouts::default() };
            self.step_with(std::slice::from_ref(&row), &readouts, &mut out.step)?;
            out.rows += 1;
            out.layer_rows += out.step.layer_rows;
            let choice = match out.step.choice(0) {
                Some(Ok(choice)) => choice,
                Some(Err(NoChoice::Panic(message))) => {
                    out.panic = Some(message.clone());
                    return Ok(());
                }
                // Logits that cannot be sampled from end the draft as an unsure row does.
                Some(Err(NoChoice::Logits(_))) | None => return Ok(()),
            };
            let judged = request.stop.judge(out.drafts.len(), choice, &mut reached);
            if judged == DraftStep::Decline {
                return Ok(());
            }
            (row.pos, row.token) = (row.pos + 1, choice.token);
            out.drafts.push(choice.clone());
            if judged == DraftStep::Last {
                return Ok(());
            }
        }
    }
    /// The tokens that [`Readout::DraftVocab`](crate::Readout::DraftVocab) has logits for,
    /// ascending, if there is a draft vocabulary.
    fn draft_vocab(&self) -> Option<&Arc<[TokenId]>> {
        None
    }
    /// The exit head, if there is one.
    fn exit_head(&self) -> Option<&ExitHeadInfo> {
        None
    }
    /// The profiler of the parts of its steps, if it has one.
    fn profiler(&mut self) -> Option<&mut Profiler> {
        None
    }
}
