//! The one forward pass: rows enter at one layer and leave at another, and each layer runs the rows
//! that are active there.

use selfspec_kernels::{InputForms, MatrixProduct, rms_norm};

use crate::forward::layers::Pass;
use crate::forward::scratch::grow;
use crate::kv::step::ValidatedStep;
use crate::output::{HiddenState, StepOutput, StepReadouts};
use crate::profile::PassPart;
use crate::row::Readout;

impl Pass<'_> {
    /// Runs the rows of a step through the layers, the exit head and the heads.
    pub(crate) fn run(&mut self, step: &ValidatedStep<'_>, readouts: &StepReadouts<'_>, out: &mut StepOutput) {
        let (n_layers, dim) = (self.model.config().n_layers, self.model.config().dim);
        let len = step.rows().len() * dim;
        let mut layer_rows = 0;
        self.profiler.begin();
        out.prepare_states(readouts);
        self.enter(step);
        self.enter_taps(step);
        self.scratch.was_active.clear();
        for l in 0..n_layers {
            self.reach_taps(step, l);
            self.keep(step, l);
            out.keep_state(HiddenState::AfterLayers(l), &self.scratch.hidden[..len], dim);
            let scratch = &mut *self.scratch;
            scratch.active.clear();
            scratch.active.extend((0..step.rows().len()).filter(|i| step.runs(*i, l)));
            if scratch.active.is_empty() {
                continue;
            }
            layer_rows += scratch.active.len() as u64;
            self.set_positions(step);
            self.layer(self.model.layer(l), l, step);
        }
        self.reach_taps(step, n_layers);
        self.keep(step, n_layers);
        out.keep_state(HiddenState::AfterLayers(n_layers), &self.scratch.hidden[..len], dim);
        self.profiler.lap(PassPart::Enter);
        self.exit_head(step);
        // The head's states are there as far as rows have needed them.
        if let Some(states) = self.scratch.head_hidden.get(..len) {
            out.keep_state(HiddenState::ExitHead, states, dim);
        }
        self.leave(step, out);
        if let Some(choose) = readouts.choose {
            out.choose(self.compute.team(), choose);
        }
        self.keep_normed(len, out);
        out.layer_rows = layer_rows;
    }

    /// Fills the residual stream: embeddings, or hidden states kept by earlier rows.
    fn enter(&mut self, step: &ValidatedStep<'_>) {
        let config = self.model.config();
        let hidden = &mut self.scratch.hidden;
        grow(hidden, step.rows().len() * config.dim);
        for (i, (row, hidden)) in step.rows().iter().zip(hidden.chunks_exact_mut(config.dim)).enumerate() {
            match step.enter_slot(i) {
                Some(slot) => hidden.copy_from_slice(self.states.hidden.at(slot, config.dim)),
                None => {
                    self.model.embedding().row(row.token as usize, hidden);
                    if config.embedding_scale != 1.0 {
                        hidden.iter_mut().for_each(|h| *h *= config.embedding_scale);
                    }
                }
            }
        }
    }

    /// Keeps the hidden states of the rows whose exact prefix ends before layer `l`.
    fn keep(&mut self, step: &ValidatedStep<'_>, l: usize) {
        let dim = self.model.config().dim;
        let s = &*self.scratch;
        for (i, row) in step.rows().iter().enumerate() {
            let Some(slot) = step.keep_slot(i).filter(|_| row.plan.exact_prefix() == l) else { continue };
            self.states.hidden.set(slot, &s.hidden[i * dim..][..dim]);
            if let Some(head) = &self.heads.exit {
                let width = head.taps().count() * dim;
                self.states.taps.set(slot, &s.taps[i * width..][..width]);
            }
        }
    }

    /// Leaves the hidden states of all rows after the final norm, where they are asked for.
    fn keep_normed(&mut self, len: usize, out: &mut StepOutput) {
        let (c, norm) = (self.model.config(), self.model.output_norm());
        if !out.wants_state(HiddenState::AfterNorm) {
            return;
        }
        let mut normed = self.scratch.hidden[..len].to_vec();
        normed.chunks_exact_mut(c.dim).for_each(|row| rms_norm(row, norm, c.norm_eps));
        out.keep_state(HiddenState::AfterNorm, &normed, c.dim);
    }

    /// Norm and head of the rows with a readout, each by its own.
    fn leave(&mut self, step: &ValidatedStep<'_>, out: &mut StepOutput) {
        let (c, rows) = (self.model.config(), step.rows());
        let s = &mut *self.scratch;
        let weights = |readout: Readout| match readout {
            Readout::Nothing => None,
            Readout::Head => Some((self.model.head(), self.model.output_norm())),
            Readout::DraftVocab => self.heads.vocab.as_deref().map(|v| (&v.head, self.model.output_norm())),
            Readout::ExitHead => self.heads.exit.as_deref().map(|e| (&e.vocab.head, e.output_norm())),
        };
        let len = |(i, readout)| weights(readout).map(|(head, _)| (i, readout, head.n()));
        let lens = rows.iter().map(|row| row.readout).enumerate().filter_map(len);
        let mut rest = out.prepare(lens);
        for readout in [Readout::Head, Readout::DraftVocab, Readout::ExitHead] {
            let Some((head, norm)) = weights(readout) else { continue };
            s.active.clear();
            s.active.extend((0..rows.len()).filter(|i| rows[*i].readout == readout));
            if s.active.is_empty() {
                continue;
            }
            let (logits, others) = rest.split_at_mut(s.active.len() * head.n());
            rest = others;
            let hidden = if readout == Readout::ExitHead { &s.head_hidden } else { &s.hidden };
            self.compute.norm(hidden, c.dim, &s.active, norm, c.norm_eps, InputForms::of(&[head]), &mut s.input);
            self.profiler.lap(PassPart::Norm);
            self.compute.matmul(&s.input, &mut [MatrixProduct { weights: head, out: &mut logits[..] }]);
            self.profiler.lap(PassPart::Head);
            if self.without_exit_norm {
                let drafts =
                    s.active.iter().zip(logits.chunks_exact_mut(head.n())).filter(|(i, _)| !rows[**i].plan.is_full());
                for (i, out) in drafts {
                    self.compute.load(&hidden[i * c.dim..][..c.dim], c.dim, InputForms::of(&[head]), &mut s.input);
                    self.compute.matmul(&s.input, &mut [MatrixProduct { weights: head, out }]);
                }
            }
        }
    }
}
