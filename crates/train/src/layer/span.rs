//! [`Span`]: the rows of a sequence that a step computes. The results lie densely, without room for
//! other rows.

use std::ops::Range;

use crate::math::wide::add;

/// Neighbouring computed rows of one sequence. Results have the shape (computed row, ...).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// Position of the first in its sequence.
    pub(crate) position: usize,
    /// The first row of the sequence.
    pub(crate) base: usize,
    /// Number of rows.
    pub(crate) len: usize,
    /// Place of the first among the computed rows.
    pub(crate) at: usize,
}

impl Span {
    /// The rows.
    pub(crate) fn rows(&self) -> Range<usize> {
        self.base + self.position..self.base + self.position + self.len
    }

    /// Their places among the computed rows.
    pub(crate) fn places(&self) -> Range<usize> {
        self.at..self.at + self.len
    }
}

/// Number of computed rows.
pub(crate) fn computed(spans: &[Span]) -> usize {
    spans.last().map_or(0, |span| span.places().end)
}

/// The place of each of `rows` rows among the computed ones; `usize::MAX` for other rows. Shape:
/// (row).
pub(crate) fn places(rows: usize, spans: &[Span]) -> Vec<usize> {
    let mut places = vec![usize::MAX; rows];
    for span in spans {
        span.rows().zip(span.places()).for_each(|(row, place)| places[row] = place);
    }
    places
}

/// Copies the rows of `spans` from `all`, (row, dim), to `out`, (computed row, dim).
pub(crate) fn take(spans: &[Span], dim: usize, all: &[f32], out: &mut Vec<f32>) {
    out.clear();
    for span in spans {
        let rows = span.rows();
        out.extend_from_slice(&all[rows.start * dim..rows.end * dim]);
    }
}

/// Adds `from`, (computed row, dim), to the rows of `spans` in `all`, (row, dim).
pub(crate) fn give(spans: &[Span], dim: usize, from: &[f32], all: &mut [f32]) {
    for span in spans {
        let (rows, places) = (span.rows(), span.places());
        add(&mut all[rows.start * dim..rows.end * dim], &from[places.start * dim..places.end * dim]);
    }
}

/// For every row of the spans `now`, one span for each sequence, the place of the row before it
/// among those of `before`.
pub(crate) fn places_before<'a>(now: &'a [Span], before: &'a [Span]) -> impl Iterator<Item = usize> + 'a {
    now.iter()
        .zip(before)
        .flat_map(|(now, before)| (0..now.len).map(move |i| before.at + (now.position + i - 1 - before.position)))
}
