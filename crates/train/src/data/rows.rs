//! [`Rows`]: the rows of a shard, whole sequences one after the other.

use std::ops::Range;

use crate::layer::span::Span;

/// The roles of the hidden states, as indices in [`Rows::states`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Taps {
    /// The state after the layers below the head.
    pub(crate) exit: usize,
    /// The head's features, which it reads at the position before.
    pub(crate) features: Vec<usize>,
    /// The state after the last layer.
    pub(crate) last: usize,
}

/// The rows of a list of sequences.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Rows {
    /// The rows of each sequence, in order, without gaps.
    pub(crate) sequences: Vec<Range<usize>>,
    /// The model's hidden states after some numbers of layers. Shape: (tap, row, dim).
    pub(crate) states: Vec<Vec<f32>>,
    /// The states that the head reads.
    pub(crate) taps: Taps,
    /// Whether the token after the row belongs to the answer. Shape: (row).
    pub(crate) answer: Vec<bool>,
    /// Position of each row in its sequence. Shape: (row).
    pub(crate) positions: Vec<usize>,
}

impl Rows {
    /// Removes all sequences and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.sequences.clear();
        self.states.iter_mut().for_each(Vec::clear);
        self.answer.clear();
        self.positions.clear();
    }

    /// Adds a sequence whose states have been appended to `states`. Its answer starts at token
    /// `prompt_len`.
    pub(crate) fn close(&mut self, len: usize, prompt_len: usize) {
        let from = self.len();
        self.sequences.push(from..from + len);
        self.positions.extend(0..len);
        self.answer.extend((0..len).map(|p| p + 1 >= prompt_len && p + 1 < len));
    }

    /// The states at the exit. Shape: (row, dim).
    pub(crate) fn exit(&self) -> &[f32] {
        &self.states[self.taps.exit]
    }

    /// The states after the last layer. Shape: (row, dim).
    pub(crate) fn last(&self) -> &[f32] {
        &self.states[self.taps.last]
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.positions.len()
    }

    /// Whether a row counts in step `step` of a rollout: it predicts a token of the answer, and so
    /// does the first row of its round.
    pub(crate) fn counts(&self, row: usize, step: usize) -> bool {
        self.answer[row] && self.positions[row] >= step && self.answer[row - step]
    }

    /// Spans of all rows.
    pub(crate) fn everything(&self) -> Vec<Span> {
        let span = |rows: &Range<usize>| Span { position: 0, base: rows.start, len: rows.len(), at: rows.start };
        self.sequences.iter().map(span).collect()
    }

    /// The rows that count in a step, one span for each sequence.
    pub(crate) fn counting(&self, step: usize) -> Vec<Span> {
        let mut at = 0;
        let span = |rows: &Range<usize>| {
            let counts = |row: &usize| self.counts(*row, step);
            let first = rows.clone().find(counts).unwrap_or(rows.end);
            let len = (first..rows.end).take_while(counts).count();
            let span = Span { position: first - rows.start, base: rows.start, len, at };
            at += len;
            span
        };
        self.sequences.iter().map(span).collect()
    }

    /// Number of rows that count in each of `steps` steps.
    #[cfg(test)]
    pub(crate) fn counted(&self, steps: usize) -> Vec<usize> {
        (0..steps).map(|step| (0..self.len()).filter(|row| self.counts(*row, step)).count()).collect()
    }
}

/// Copies to `column` of every row of `to`, (row, columns, dim), the row of `from`, (row, dim), of
/// the position before; zeros at first positions.
pub(crate) fn shift(
    sequences: &[Range<usize>],
    dim: usize,
    from: &[f32],
    column: usize,
    columns: usize,
    to: &mut [f32],
) {
    for rows in sequences {
        for row in rows.clone() {
            let to = &mut to[(row * columns + column) * dim..][..dim];
            if row == rows.start {
                to.fill(0.0);
            } else {
                to.copy_from_slice(&from[(row - 1) * dim..][..dim]);
            }
        }
    }
}
