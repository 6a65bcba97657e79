//! The exit head's part of a step.
//!
//! At position p the head reads e, the hidden state after the layers below it, and, if it is fused, F, the final hidden state of position
//! p - 1: what the last verification computed there, or at drafted positions the head's own state in its place. Its one layer
//! attends to K and V of its own, which lie in the cache after those of the model's layers. Rows of the full plan write them from
//! exact states as they pass, so that every committed position has them whatever was drafted, or was not.

use selfspec_kernels::{Inputs, MatmulJob, rms_norm};

use crate::backend::{Enter, Readout, Row};
use crate::exit_head::{ExitHead, Fuse};
use crate::forward::{Pass, grow, live};
use crate::profile::Part;

/// What a row does for the exit head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// K and V, of a row of the full plan.
    KeyValue,
    /// The whole head, of a row that drafts.
    Draft,
}

fn work(row: &Row) -> Option<Work> {
    if row.readout == Readout::ExitHead {
        Some(Work::Draft)
    } else {
        (row.exit_kv && row.plan.is_full()).then_some(Work::KeyValue)
    }
}

impl Pass<'_> {
    /// Takes note of the states after `layers` layers, if those are what the exit head reads.
    pub(crate) fn reach_exit(&mut self, rows: &[Row], layers: usize) {
        if self.heads.exit.as_ref().is_none_or(|head| head.exit != layers) {
            return;
        }
        let (dim, s) = (self.model.config.dim, &mut *self.scratch);
        grow(&mut s.exits, rows.len() * dim);
        s.exits[..rows.len() * dim].copy_from_slice(&s.hidden[..rows.len() * dim]);
        for (row, exit) in rows.iter().zip(s.exits.chunks_exact_mut(dim)) {
            if row.enter == Enter::Kept {
                let sequence = live(self.sequences, row);
                let kept = sequence.kept(row.pos).expect("checked when the row was admitted");
                if kept.layers > layers {
                    exit.copy_from_slice(&sequence.exits[kept.slot * dim..][..dim]);
                }
            }
        }
    }

    /// Runs the exit head for the rows that draft with it, and writes its K and V for those of the full plan.
    pub(crate) fn exit_head(&mut self, rows: &[Row]) {
        let Some(head) = self.heads.exit.clone() else { return };
        for wanted in [Work::KeyValue, Work::Draft] {
            self.scratch.active.clear();
            self.scratch.active.extend((0..rows.len()).filter(|i| work(&rows[*i]) == Some(wanted)));
            if self.scratch.active.is_empty() {
                continue;
            }
            self.set_positions(rows);
            self.head_input(&head, rows, wanted);
            std::mem::swap(&mut self.scratch.hidden, &mut self.scratch.head_hidden);
            let l = self.model.config.n_layers;
            match wanted {
                Work::KeyValue => self.query_key_value(&head.layer, l, rows, false),
                Work::Draft => self.layer(&head.layer, l, rows),
            }
            std::mem::swap(&mut self.scratch.hidden, &mut self.scratch.head_hidden);
            if head.fuse.is_some() {
                self.keep_features(rows, wanted);
            }
        }
    }

    /// Fills the head's residual stream of the active rows.
    fn head_input(&mut self, head: &ExitHead, rows: &[Row], wanted: Work) {
        let (dim, s) = (self.model.config.dim, &mut *self.scratch);
        grow(&mut s.head_hidden, rows.len() * dim);
        let Some(fuse) = &head.fuse else {
            for i in &s.active {
                s.head_hidden[i * dim..][..dim].copy_from_slice(&s.exits[i * dim..][..dim]);
            }
            return;
        };
        let eps = self.model.config.norm_eps;
        let (n, m) = (2 * dim, s.active.len());
        grow(&mut s.fused, m * n);
        for (i, fused) in s.active.iter().zip(s.fused.chunks_exact_mut(n)) {
            let row = &rows[*i];
            let (exit, feature) = fused.split_at_mut(dim);
            exit.copy_from_slice(&s.exits[i * dim..][..dim]);
            rms_norm(exit, &fuse.exit_norm, eps);
            let sequence = live(self.sequences, row);
            let before = rows[..*i].last().filter(|b| wanted == Work::KeyValue && b.seq == row.seq);
            let stored = |pos: usize| match wanted {
                Work::Draft => sequence.guesses.at(pos, dim).or_else(|| sequence.finals.at(pos, dim)),
                Work::KeyValue => sequence.finals.at(pos, dim),
            };
            let found = match (before, row.pos.checked_sub(1)) {
                (Some(b), Some(pos)) if b.pos == pos && b.plan.is_full() => Some(&s.hidden[(i - 1) * dim..][..dim]),
                (_, Some(pos)) => stored(pos),
                (_, None) => None,
            };
            match found {
                Some(found) => {
                    feature.copy_from_slice(found);
                    rms_norm(feature, &fuse.feature_norm, eps);
                }
                // The first position has none, and neither has one whose past came from elsewhere.
                None => feature.fill(0.0),
            }
        }
        self.compute.load(&s.fused[..m * n], n, Inputs::of(&[&fuse.weight]), &mut s.input);
        grow(&mut s.out, m * dim);
        self.compute.matmul(&s.input, &mut [MatmulJob { w: &fuse.weight, out: &mut s.out[..m * dim] }]);
        for (i, out) in s.active.iter().zip(s.out.chunks_exact(dim)) {
            s.head_hidden[i * dim..][..dim].copy_from_slice(out);
        }
        self.profiler.lap(Part::Enter);
    }

    /// Keeps what the next positions read as their feature.
    fn keep_features(&mut self, rows: &[Row], wanted: Work) {
        let (dim, s) = (self.model.config.dim, &mut *self.scratch);
        for i in &s.active {
            let row = &rows[*i];
            let Some(sequence) = self.sequences[row.seq.0 as usize].as_mut() else { continue };
            match wanted {
                Work::KeyValue => sequence.finals.push(row.pos, &s.hidden[i * dim..][..dim]),
                Work::Draft => sequence.guesses.push(row.pos, &s.head_hidden[i * dim..][..dim]),
            }
        }
    }
}

impl Fuse {
    /// Bytes of its weights.
    pub(crate) fn bytes(&self) -> usize {
        self.weight.size_bytes()
    }
}
