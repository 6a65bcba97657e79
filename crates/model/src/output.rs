//! What a step leaves behind.

use crate::row::Readout;

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
