//! The exit head's part of a step.
//!
//! At position p the head reads the hidden state after the layers below it, and its features:
//! hidden states of position p - 1. The last verification computed them; at drafted positions the
//! head's own state takes their place. The states that it reads of a row are the row's **taps**.
//! Its one layer attends to K and V of its own, which follow those of the model's layers in the
//! cache. Rows of the full plan write them from exact states, so that every committed position has
//! them whatever was drafted.

use selfspec_kernels::{InputForms, MatrixProduct, rms_norm};

use crate::forward::layers::Pass;
use crate::forward::scratch::grow;
use crate::kv::place::{AuxiliaryWork, FeatureSource};
use crate::kv::step::ValidatedStep;
use crate::panels::exit_head::ExitHead;
use crate::profile::PassPart;

impl Pass<'_> {
    /// Restores the taps of rows that enter from a kept state, as far as the drafting row had come.
    pub(super) fn enter_taps(&mut self, step: &ValidatedStep<'_>) {
        let Some(head) = &self.heads.exit else { return };
        let width = head.taps().count() * self.model.config().dim;
        let taps = &mut self.scratch.taps;
        grow(taps, step.rows().len() * width);
        for (i, taps) in taps.chunks_exact_mut(width).take(step.rows().len()).enumerate() {
            if let Some(slot) = step.enter_slot(i) {
                taps.copy_from_slice(self.states.taps.at(slot, width));
            }
        }
    }

    /// Records the taps that are reached after `layers` layers.
    pub(super) fn reach_taps(&mut self, step: &ValidatedStep<'_>, layers: usize) {
        let Some(head) = &self.heads.exit else { return };
        let (dim, n, s) = (self.model.config().dim, head.taps().count(), &mut *self.scratch);
        for (tap, _) in head.taps().enumerate().filter(|(_, l)| *l == layers) {
            for i in (0..step.rows().len()).filter(|i| step.first_layer(*i) <= layers) {
                s.taps[(i * n + tap) * dim..][..dim].copy_from_slice(&s.hidden[i * dim..][..dim]);
            }
        }
    }

    /// Writes the exit head's K and V for the rows of the full plan, then runs the head for the
    /// rows that draft with it.
    pub(super) fn exit_head(&mut self, step: &ValidatedStep<'_>) {
        let Some(head) = self.heads.exit.clone() else { return };
        for drafts in [false, true] {
            self.scratch.active.clear();
            let wanted = |i: &usize| match step.auxiliary(*i) {
                Some(AuxiliaryWork::KeepUp { .. }) => !drafts,
                Some(AuxiliaryWork::Draft { .. }) => drafts,
                None => false,
            };
            self.scratch.active.extend((0..step.rows().len()).filter(wanted));
            if self.scratch.active.is_empty() {
                continue;
            }
            self.set_positions(step);
            self.head_input(&head, step);
            std::mem::swap(&mut self.scratch.hidden, &mut self.scratch.head_hidden);
            let l = self.model.config().n_layers;
            match drafts {
                false => self.query_key_value(&head.layer, l, step, false),
                true => self.layer(&head.layer, l, step),
            }
            std::mem::swap(&mut self.scratch.hidden, &mut self.scratch.head_hidden);
            if head.fuse.is_some() {
                self.keep_features(&head, step);
            }
        }
    }

    /// Fills the head's residual stream of the active rows.
    fn head_input(&mut self, head: &ExitHead, step: &ValidatedStep<'_>) {
        let (dim, n, s) = (self.model.config().dim, head.taps().count(), &mut *self.scratch);
        grow(&mut s.head_hidden, step.rows().len() * dim);
        let Some(fuse) = &head.fuse else {
            for i in &s.active {
                s.head_hidden[i * dim..][..dim].copy_from_slice(&s.taps[i * n * dim..][..dim]);
            }
            return;
        };
        // Rows whose position before was computed by the model, then rows whose position before was
        // drafted.
        for drafted in [false, true] {
            let chosen: Vec<usize> = s.active.iter().copied().filter(|i| reads_draft(step, *i) == drafted).collect();
            if chosen.is_empty() {
                continue;
            }
            let weight = if drafted { &fuse.guess_weight } else { &fuse.weight };
            let width = weight.k();
            grow(&mut s.fused, chosen.len() * width);
            for (i, fused) in chosen.iter().zip(s.fused.chunks_exact_mut(width)) {
                let (exit, features) = fused.split_at_mut(dim);
                exit.copy_from_slice(&s.taps[i * n * dim..][..dim]);
                rms_norm(exit, &fuse.exit_norm, self.model.config().norm_eps);
                let found = match source(step, *i) {
                    FeatureSource::Missing => {
                        features.fill(0.0);
                        continue;
                    }
                    FeatureSource::Row(before) => &s.taps[(before * n + 1) * dim..(before + 1) * n * dim],
                    FeatureSource::Exact(slot) => self.states.features.at(slot, features.len()),
                    FeatureSource::Drafted(slot) => self.states.drafted.at(slot, features.len()),
                };
                features.copy_from_slice(found);
                for (j, feature) in features.chunks_exact_mut(dim).enumerate() {
                    let norm = if drafted { &fuse.guess_norm } else { &fuse.features[j].1 };
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
        self.profiler.lap(PassPart::Enter);
    }

    /// Keeps the features that the next positions read.
    fn keep_features(&mut self, head: &ExitHead, step: &ValidatedStep<'_>) {
        let (dim, n, s) = (self.model.config().dim, head.taps().count(), &*self.scratch);
        for i in &s.active {
            match step.auxiliary(*i) {
                Some(AuxiliaryWork::KeepUp { keep, .. }) => {
                    self.states.features.set(keep, &s.taps[(i * n + 1) * dim..(i + 1) * n * dim]);
                }
                Some(AuxiliaryWork::Draft { keep, .. }) => {
                    self.states.drafted.set(keep, &s.head_hidden[i * dim..][..dim]);
                }
                None => {}
            }
        }
    }
}

fn source(step: &ValidatedStep<'_>, i: usize) -> FeatureSource {
    match step.auxiliary(i) {
        Some(AuxiliaryWork::KeepUp { source, .. } | AuxiliaryWork::Draft { source, .. }) => source,
        None => FeatureSource::Missing,
    }
}

fn reads_draft(step: &ValidatedStep<'_>, i: usize) -> bool {
    matches!(source(step, i), FeatureSource::Drafted(_))
}
