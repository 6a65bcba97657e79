//! The layers that a step skips and the exits that count in it: functions of the seed, the step and
//! the options.

use serde::{Deserialize, Serialize};

use crate::math::random::Random;

/// Share of the steps, at the end, in which layer dropout falls to 0: the last steps train the full
/// pass.
const FADE: f32 = 0.25;

/// The exits that count in each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Curriculum {
    /// One exit a step, by turns: a step costs one more reading of the head, whatever the number of
    /// exits.
    #[default]
    Rotate,
    /// The deepest exit from the beginning, the others one by one over the first half, deeper ones
    /// first; those that count share the weight.
    Gradual,
    /// All exits in every step; they share the weight.
    All,
}

/// Layer dropout and exits over the course of a training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Course {
    /// Probability of skipping the last layer; it rises from 0 at the first layer.
    pub(crate) layer_dropout: f32,
    /// Numbers of layers before each trained exit, ascending.
    pub(crate) exits: Vec<usize>,
    /// Total weight of the exits' losses, relative to 1 for the loss after all layers.
    pub(crate) exit_weight: f32,
    pub(crate) curriculum: Curriculum,
    pub(crate) seed: u64,
}

/// A loss of a step: the number of layers before it, and its weight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Term {
    pub(crate) layers: usize,
    pub(crate) weight: f32,
}

impl Course {
    /// The probability of skipping layer `l` of `n`, before it falls.
    pub(crate) fn probability(&self, l: usize, n: usize) -> f32 {
        self.layer_dropout * l as f32 / (n.max(2) - 1) as f32
    }

    /// Whether each of `n` layers runs for the span at place `place` of the batch of step `step` of
    /// `steps`. Shape: (layer).
    pub(crate) fn runs(&self, step: usize, steps: usize, place: usize, n: usize) -> Vec<bool> {
        if self.layer_dropout <= 0.0 {
            return vec![true; n];
        }
        let left = (steps - step) as f32 / (FADE * steps as f32);
        let mut random = Random::new(self.seed, &format!("layers of step {step}, span {place}"));
        (0..n).map(|l| random.unit() >= self.probability(l, n) * left.min(1.0)).collect()
    }

    /// The losses of step `step` of `steps`, for a model of `n` layers. The last is that after all
    /// layers.
    pub(crate) fn terms(&self, step: usize, steps: usize, n: usize) -> Vec<Term> {
        let mut exits: &[usize] = if self.exit_weight > 0.0 { &self.exits } else { &[] };
        let len = exits.len();
        match self.curriculum {
            _ if len < 2 => {}
            Curriculum::All => {}
            // Otherwise odd and even steps would see the same data in every epoch.
            Curriculum::Rotate => {
                let round = step / len;
                let mut order: Vec<usize> = (0..len).collect();
                Random::new(self.seed, &format!("exits of round {round}")).shuffle(&mut order);
                let at = order[step % len];
                exits = &exits[at..=at];
            }
            Curriculum::Gradual => {
                let along = 2.0 * step as f64 / steps.max(1) as f64;
                let in_play = (1 + (along * len as f64) as usize).min(len);
                exits = &exits[len - in_play..];
            }
        }
        let weight = self.exit_weight / exits.len().max(1) as f32;
        let mut terms: Vec<Term> = exits.iter().map(|layers| Term { layers: *layers, weight }).collect();
        terms.push(Term { layers: n, weight: 1.0 });
        terms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(curriculum: Curriculum) -> Course {
        Course { layer_dropout: 0.4, exits: vec![2, 4, 6], exit_weight: 0.6, curriculum, seed: 5 }
    }

    #[test]
    fn layers_are_left_out_more_often_with_depth_and_never_the_first() {
        let course = course(Curriculum::All);
        let mut skipped = [0; 9];
        for step in 0..200 {
            for place in 0..10 {
                for (count, runs) in skipped.iter_mut().zip(course.runs(step, 400, place, 9)) {
                    *count += usize::from(!runs);
                }
            }
        }
        assert_eq!(skipped[0], 0);
        for (l, count) in skipped.iter().enumerate() {
            let expected = 2000.0 * course.probability(l, 9);
            assert!((*count as f32 - expected).abs() < 0.2 * expected + 1.0, "layer {l}: {count} for {expected}");
        }
        assert_eq!(course.runs(7, 400, 1, 9), course.runs(7, 400, 1, 9));
        let late = (0..1000).filter(|place| !course.runs(395, 400, *place, 9)[8]).count();
        assert!((5..50).contains(&late), "{late} of 1000, where 400 would be without the end");
        assert_eq!(Course { layer_dropout: 0.0, ..course.clone() }.runs(3, 9, 0, 4), [true; 4]);
        assert_eq!(course.runs(0, 9, 0, 1), [true], "a model of one layer runs it");
    }

    #[test]
    fn the_curriculum_says_which_exits_count() {
        let layers = |course: &Course, step| -> Vec<usize> {
            course.terms(step, 60, 8).iter().map(|term| term.layers).collect()
        };
        let rotate = course(Curriculum::Rotate);
        for round in 0..20 {
            let mut seen: Vec<usize> = (0..3).map(|i| layers(&rotate, 3 * round + i)[0]).collect();
            seen.sort_unstable();
            assert_eq!(seen, [2, 4, 6], "each once in round {round}");
        }
        let gradual = course(Curriculum::Gradual);
        let expected: [&[usize]; 4] = [&[6, 8], &[4, 6, 8], &[2, 4, 6, 8], &[2, 4, 6, 8]];
        assert_eq!([0, 10, 20, 59].map(|step| layers(&gradual, step)), expected.map(<[usize]>::to_vec));
        assert_eq!(layers(&course(Curriculum::All), 0), [2, 4, 6, 8]);
        for curriculum in [Curriculum::Rotate, Curriculum::Gradual, Curriculum::All] {
            let terms = course(curriculum).terms(3, 60, 8);
            let exits: f32 = terms[..terms.len() - 1].iter().map(|term| term.weight).sum();
            assert!((exits - 0.6).abs() < 1e-6 && terms[terms.len() - 1].weight == 1.0);
            let plain = Course { exit_weight: 0.0, ..course(curriculum) };
            assert_eq!(layers(&plain, 3), [8]);
        }
    }
}
