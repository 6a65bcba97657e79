//! [`Batches`]: the texts of each step, a function of the seed, the epoch and the lengths of the
//! texts.

use std::ops::Range;

use crate::math::random::Random;

/// Consecutive batches without a finite loss that end a training.
pub(crate) const MOST_FAILED: usize = 10;

/// Fewest tokens for which a shard pays.
pub(crate) const LEAST_TOKENS: usize = 192;

/// The batches of a training.
pub(crate) struct Batches {
    texts: Vec<(usize, usize)>, // number and length
    tokens: usize,              // in a batch, about
    seed: u64,
    starts: Vec<usize>, // (epoch): its first step; the last is the end of all
    epochs: f64,
    epoch: usize, // the one in `order`
    order: Vec<Vec<usize>>,
}

impl Batches {
    /// Batches of about `tokens` tokens of `texts`, each a number and a length, for so many
    /// `epochs`, which may be a fraction.
    pub(crate) fn new(texts: Vec<(usize, usize)>, tokens: usize, epochs: f64, seed: u64) -> Batches {
        let mut batches =
            Batches { texts, tokens, seed, starts: vec![0], epochs, epoch: usize::MAX, order: Vec::new() };
        let mut left = epochs;
        let mut epoch = 0;
        while left > 1e-9 {
            let steps = batches.of_epoch(epoch).len() as f64;
            let steps = (steps * left.min(1.0)).ceil() as usize;
            batches.starts.push(batches.starts[epoch] + steps);
            left -= 1.0;
            epoch += 1;
        }
        batches
    }

    /// Number of steps.
    pub(crate) fn steps(&self) -> usize {
        self.starts[self.starts.len() - 1]
    }

    /// Epochs completed at step `step`.
    pub(crate) fn epochs(&self, step: usize) -> f64 {
        let epoch = self.epoch_of(step);
        let (from, to) = (self.starts[epoch], self.starts[epoch + 1]);
        let share = (self.epochs - epoch as f64).min(1.0);
        epoch as f64 + share * (step - from) as f64 / (to - from).max(1) as f64
    }

    fn epoch_of(&self, step: usize) -> usize {
        self.starts.partition_point(|start| *start <= step).clamp(1, self.starts.len() - 1) - 1
    }

    /// The texts of a step.
    pub(crate) fn get(&mut self, step: usize) -> &[usize] {
        let epoch = self.epoch_of(step);
        if self.epoch != epoch {
            self.order = self.of_epoch(epoch);
            self.epoch = epoch;
        }
        &self.order[step - self.starts[epoch]]
    }

    fn of_epoch(&self, epoch: usize) -> Vec<Vec<usize>> {
        let mut texts = self.texts.clone();
        Random::new(self.seed, &format!("epoch {epoch}")).shuffle(&mut texts);
        let mut batches: Vec<Vec<usize>> = Vec::new();
        let mut tokens = usize::MAX;
        for (text, len) in texts {
            if tokens.saturating_add(len) > self.tokens {
                batches.push(Vec::new());
                tokens = 0;
            }
            batches.last_mut().expect("just made").push(text);
            tokens += len;
        }
        batches
    }
}

/// Cuts texts, each a number and a length, into `shards` parts of about one size, some of them
/// perhaps empty.
pub(crate) fn shards(texts: &[(usize, usize)], shards: usize) -> Vec<Vec<usize>> {
    let mut order = texts.to_vec();
    order.sort_by_key(|(_, len)| std::cmp::Reverse(*len));
    let mut parts = vec![(0, Vec::new()); shards.max(1)];
    for (text, len) in order {
        let lightest = parts.iter_mut().min_by_key(|part| part.0).expect("at least one");
        lightest.0 += len;
        lightest.1.push(text);
    }
    parts.into_iter().map(|part| part.1).collect()
}

/// `len` cut into `parts` neighbouring ranges of about one size.
pub(crate) fn ranges(len: usize, parts: usize) -> impl Iterator<Item = Range<usize>> {
    let parts = parts.max(1);
    (0..parts).map(move |i| len * i / parts..len * (i + 1) / parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_epoch_has_every_text_once_in_an_order_of_its_own() {
        let texts: Vec<(usize, usize)> = (0..50).map(|i| (i, 10 + i % 7)).collect();
        let mut batches = Batches::new(texts.clone(), 60, 2.5, 3);
        assert!(batches.starts.len() == 4 && batches.steps() > 2 * batches.starts[1]);
        let end = batches.starts[1];
        let mut seen: Vec<usize> = (0..end).flat_map(|step| batches.get(step).to_vec()).collect();
        let first = seen.clone();
        seen.sort_unstable();
        assert_eq!(seen, (0..50).collect::<Vec<_>>());
        let second: Vec<usize> = (end..batches.starts[2]).flat_map(|step| batches.get(step).to_vec()).collect();
        assert_ne!(first, second);
        for step in 0..batches.steps() {
            let tokens: usize = batches.get(step).iter().map(|i| texts[*i].1).sum();
            assert!((1..=60).contains(&tokens), "step {step}");
        }
        let again = Batches::new(texts, 60, 2.5, 3).get(4).to_vec();
        assert_eq!(batches.get(4), again, "any step, in any order");
        assert_eq!([0, end, batches.steps()].map(|step| batches.epochs(step)), [0.0, 1.0, 2.5]);
    }

    #[test]
    fn a_text_longer_than_a_batch_is_a_batch() {
        let mut batches = Batches::new(vec![(0, 100), (1, 100), (2, 3)], 50, 1.0, 1);
        assert!((2..=3).contains(&batches.steps()));
        assert!((0..batches.steps()).all(|step| !batches.get(step).is_empty()));
        assert_eq!(Batches::new(vec![(0, 5)], 50, 0.0, 1).steps(), 0);
    }

    #[test]
    fn shards_are_of_about_one_size() {
        let texts: Vec<(usize, usize)> = (0..20).map(|i| (i, 50 + 13 * i)).collect();
        let parts = shards(&texts, 4);
        let sizes: Vec<usize> = parts.iter().map(|p| p.iter().map(|i| texts[*i].1).sum()).collect();
        assert!(sizes.iter().max().expect("four") - sizes.iter().min().expect("four") < 120, "{sizes:?}");
        assert_eq!(shards(&texts[..2], 4).iter().filter(|p| p.is_empty()).count(), 2);
        assert_eq!(ranges(10, 3).collect::<Vec<_>>(), [0..3, 3..6, 6..10]);
    }
}
