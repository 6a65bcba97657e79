//! The exit head's part of a step.
//!
//! At position p the head reads the hidden state after the layers below it, and its features: hidden states of position p - 1, which the last
//! verification computed, or at drafted positions the head's own state in their place. The states that it reads of a row are the row's **taps**. Its one
//! layer attends to K and V of its own, which lie in the cache after those of the model's layers. Rows of the full plan write them
//! from exact states as they pass, so that every committed position has them whatever was drafted, or was not.

use selfspec_kernels::{InputForms, MatrixProduct, rms_norm};

use crate::backend::{Enter, Readout, Row};
use crate::forward::pass::{Pass, grow, live};
use crate::kv::sequence::Sequence;
use crate::panels::exit_head::ExitHead;
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
    /// Takes the taps of rows that enter from a kept state, as far as the drafting row had come.
    pub(crate) fn enter_taps(&mut self, rows: &[Row]) {
        let Some(head) = &self.heads.exit else { return };
        let width = head.taps().count() * self.model.config().dim;
        let s = &mut *self.scratch;
        grow(&mut s.taps, rows.len() * width);
        for (row, taps) in rows.iter().zip(s.taps.chunks_exact_mut(width)).filter(|(row, _)| row.enter == Enter::Kept) {
            let sequence = live(self.sequences, row);
            let kept = sequence.kept(row.pos).expect("checked when the row was admitted");
            taps.copy_from_slice(&sequence.taps[kept.slot * width..][..width]);
        }
    }

    /// Takes the taps that are reached after `layers` layers.
    pub(crate) fn reach_taps(&mut self, rows: &[Row], layers: usize) {
        let Some(head) = &self.heads.exit else { return };
        let (dim, n, s) = (self.model.config().dim, head.taps().count(), &mut *self.scratch);
        for (tap, _) in head.taps().enumerate().filter(|(_, l)| *l == layers) {
            for i in (0..rows.len()).filter(|i| s.first_layer[*i] <= layers) {
                s.taps[(i * n + tap) * dim..][..dim].copy_from_slice(&s.hidden[i * dim..][..dim]);
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
            let l = self.model.config().n_layers;
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
        let (dim, n, s) = (self.model.config().dim, head.taps().count(), &mut *self.scratch);
        grow(&mut s.head_hidden, rows.len() * dim);
        let Some(fuse) = &head.fuse else {
            for i in &s.active {
                s.head_hidden[i * dim..][..dim].copy_from_slice(&s.taps[i * n * dim..][..dim]);
            }
            return;
        };
        // Rows whose position before was computed by the model, then rows whose position before was drafted.
        for guessed in [false, true] {
            let drafted = |row: &Row| guess(self.sequences, row, wanted).is_some();
            let chosen: Vec<usize> = s.active.iter().copied().filter(|i| drafted(&rows[*i]) == guessed).collect();
            if chosen.is_empty() {
                continue;
            }
            let weight = if guessed { &fuse.guess_weight } else { &fuse.weight };
            let width = weight.k();
            grow(&mut s.fused, chosen.len() * width);
            for (i, fused) in chosen.iter().zip(s.fused.chunks_exact_mut(width)) {
                let (row, taps) = (&rows[*i], &s.taps);
                let (exit, features) = fused.split_at_mut(dim);
                exit.copy_from_slice(&taps[i * n * dim..][..dim]);
                rms_norm(exit, &fuse.exit_norm, self.model.config().norm_eps);
                let before = rows[..*i].last().filter(|b| wanted == Work::KeyValue && b.seq == row.seq);
                let before = before.filter(|b| b.pos + 1 == row.pos && b.plan.is_full());
                let found = match (guess(self.sequences, row, wanted), before) {
                    (Some(guess), _) => Some(guess),
                    (None, Some(_)) => Some(&taps[((i - 1) * n + 1) * dim..i * n * dim]),
                    (None, None) => row.pos.checked_sub(1).and_then(|pos| live(self.sequences, row).features.at(pos)),
                };
                let Some(found) = found else {
                    // The first position has none, and neither has one whose past came from elsewhere.
                    features.fill(0.0);
                    continue;
                };
                features.copy_from_slice(found);
                for (j, feature) in features.chunks_exact_mut(dim).enumerate() {
                    let norm = if guessed { &fuse.guess_norm } else { &fuse.features[j].1 };
                    rms_norm(feature, norm, self.model.config().norm_eps);
                }
            }
            let m = chosen.len();
            self.compute.load(&s.fused[..m * width], width, InputForms::of(&[weight]), &mut s.input);
            grow(&mut s.out, m * dim);
            self.compute.matmul(&s.input, &mut [MatrixProduct { weights: weight, out: &mut s.out[..m * dim] }]);
            for (i, out) in chosen.iter().zip(s.out.chunks_exact(dim)) {
                s.head_hidden[i * dim..][..dim].copy_from_slice(out);
            }
        }
        self.profiler.lap(Part::Enter);
    }

    /// Keeps what the next positions read.
    fn keep_features(&mut self, rows: &[Row], wanted: Work) {
        let Some(head) = &self.heads.exit else { return };
        let (dim, n, s) = (self.model.config().dim, head.taps().count(), &mut *self.scratch);
        for i in &s.active {
            let row = &rows[*i];
            let Some(sequence) = self.sequences[row.seq.0 as usize].as_mut() else { continue };
            match wanted {
                Work::KeyValue => sequence.features.push(row.pos, &s.taps[(i * n + 1) * dim..(i + 1) * n * dim]),
                Work::Draft => sequence.guesses.push(row.pos, &s.head_hidden[i * dim..][..dim]),
            }
        }
    }
}

/// The head's own state at the position before, of a row that drafts after a draft.
fn guess<'a>(sequences: &'a [Option<Sequence>], row: &Row, wanted: Work) -> Option<&'a [f32]> {
    let pos = row.pos.checked_sub(1).filter(|_| wanted == Work::Draft)?;
    live(sequences, row).guesses.at(pos)
}
