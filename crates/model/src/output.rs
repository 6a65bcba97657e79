//! Readouts: what leaves a step.

use selfspec_kernels::Team;

use crate::choice::{ChooseToken, NoChoice, TokenChoice, choose_token};
use crate::row::Readout;

/// A hidden state that a step leaves behind for each row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HiddenState {
    /// After so many layers of the model; 0 is the embedding, the model's depth the state before
    /// the final norm. A row passes layers that it does not run unchanged.
    AfterLayers(usize),
    /// After all layers and the final norm: an embedding of the text up to the row.
    AfterNorm,
    /// After the exit head's own layer. Only rows that draft with it have one.
    ExitHead,
}

/// What leaves a step beside the logits of rows with a head. The default is nothing else.
#[derive(Clone, Copy, Default)]
pub struct StepReadouts<'a> {
    /// Chooses tokens where the logits are. A row whose token is chosen leaves no logits.
    pub choose: Option<&'a dyn ChooseToken>,
    /// Hidden states to leave, of every row.
    pub states: &'a [HiddenState],
}

/// The readout of one row.
#[derive(Debug, Clone, Default)]
struct RowOutput {
    row: usize,   // of the step
    start: usize, // of its logits
    len: usize,
    choice: Option<Result<TokenChoice, NoChoice>>,
}

/// Hidden states of all rows of a step.
#[derive(Debug)]
struct StepStates {
    state: HiddenState,
    values: Vec<f32>, // (row of the step, dim)
    dim: usize,
}

/// What a step leaves behind. Reused from step to step, so that decoding does not allocate.
#[derive(Debug, Default)]
pub struct StepOutput {
    logits: Vec<f32>, // of all rows, and memory of earlier steps beyond them
    rows: Vec<RowOutput>,
    states: Vec<StepStates>,
    /// Rows times layers of the model that this step computed: the measure that shows reuse of kept
    /// states.
    pub layer_rows: u64,
}

impl StepOutput {
    /// Number of rows with a readout: logits or a chosen token.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether no row has a readout.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Logits of the `i`-th row with a readout, in the order of the step's rows. Shape: the tokens
    /// of its [`Readout`]; empty if its token was chosen.
    ///
    /// # Panics
    /// If fewer than `i + 1` rows have a readout.
    pub fn logits(&self, i: usize) -> &[f32] {
        assert!(i < self.rows.len(), "row {i} of {} rows with a readout", self.rows.len());
        let row = &self.rows[i];
        if row.choice.is_some() { &[] } else { &self.logits[row.start..][..row.len] }
    }

    /// The token chosen for the `i`-th row with a readout; `None` if the row has logits.
    ///
    /// # Panics
    /// If fewer than `i + 1` rows have a readout.
    pub fn choice(&self, i: usize) -> Option<&Result<TokenChoice, NoChoice>> {
        self.rows[i].choice.as_ref()
    }

    /// The hidden state of row `row` of the step, the `i`-th of the states asked for. Shape: (dim);
    /// empty if the backend left none.
    pub fn state(&self, i: usize, row: usize) -> &[f32] {
        let Some(states) = self.states.get(i) else { return &[] };
        states.values.get(row * states.dim..(row + 1) * states.dim).unwrap_or_default()
    }

    /// Forgets all readouts and keeps the memory.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.states.clear();
        self.layer_rows = 0;
    }

    /// Appends the readout of the step's row `row`: the token that `choose` takes from `logits`, or
    /// the logits themselves.
    pub fn push(&mut self, row: usize, logits: &[f32], choose: Option<&dyn ChooseToken>) {
        match choose.filter(|choose| choose.chooses(row)) {
            Some(choose) => self.push_choice(row, choose_token(choose, row, logits)),
            None => {
                let start = self.rows.iter().map(|row| row.start + row.len).max().unwrap_or(0);
                self.logits.truncate(start);
                self.logits.extend_from_slice(logits);
                self.rows.push(RowOutput { row, start, len: logits.len(), choice: None });
            }
        }
    }

    /// Appends a row whose token was chosen elsewhere.
    pub fn push_choice(&mut self, row: usize, choice: Result<TokenChoice, NoChoice>) {
        self.rows.push(RowOutput { row, choice: Some(choice), ..RowOutput::default() });
    }

    /// Makes room for rows of logits, each with its index, readout and length, in the order of the
    /// step's rows. Returns the room: rows of one readout lie one after the other, the readouts in
    /// their order.
    pub(crate) fn prepare(&mut self, rows: impl Iterator<Item = (usize, Readout, usize)> + Clone) -> &mut [f32] {
        self.rows.clear();
        self.rows.extend(rows.clone().map(|(row, _, len)| RowOutput { row, len, ..RowOutput::default() }));
        let mut end = 0;
        for readout in [Readout::Head, Readout::DraftVocab, Readout::ExitHead] {
            for (row, _) in self.rows.iter_mut().zip(rows.clone()).filter(|(_, (_, r, _))| *r == readout) {
                row.start = end;
                end += row.len;
            }
        }
        if self.logits.len() < end {
            self.logits.resize(end, 0.0);
        }
        &mut self.logits[..end]
    }

    /// Chooses the tokens of the rows that `choose` names, shared out over the team by rows.
    pub(crate) fn choose(&mut self, team: &Team, choose: &dyn ChooseToken) {
        let logits = &self.logits;
        team.chunks_mut(&mut self.rows, 1, |_, rows| {
            for row in rows.iter_mut().filter(|row| choose.chooses(row.row)) {
                row.choice = Some(choose_token(choose, row.row, &logits[row.start..][..row.len]));
            }
        });
    }

    /// Makes room for the hidden states of `readouts`.
    pub(crate) fn prepare_states(&mut self, readouts: &StepReadouts<'_>) {
        self.states.clear();
        let empty = |state: &HiddenState| StepStates { state: *state, values: Vec::new(), dim: 0 };
        self.states.extend(readouts.states.iter().map(empty));
    }

    /// Whether a hidden state was asked for.
    pub(crate) fn wants_state(&self, state: HiddenState) -> bool {
        self.states.iter().any(|s| s.state == state)
    }

    /// Keeps `hidden`, one state of all rows, where it was asked for. Shape: (row, dim).
    pub(crate) fn keep_state(&mut self, state: HiddenState, hidden: &[f32], dim: usize) {
        for states in self.states.iter_mut().filter(|s| s.state == state) {
            states.dim = dim;
            states.values.clear();
            states.values.extend_from_slice(hidden);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::LogitsError;

    /// Chooses the highest logit of even rows; row 4 panics, row 6 has unusable logits.
    struct Highest;

    impl ChooseToken for Highest {
        fn chooses(&self, row: usize) -> bool {
            row.is_multiple_of(2)
        }

        fn choose(&self, row: usize, logits: &[f32]) -> Result<TokenChoice, LogitsError> {
            assert_ne!(row, 4, "a choice that panics");
            if row == 6 {
                return Err(LogitsError::NotANumber);
            }
            let token = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).expect("not empty") as u32;
            Ok(TokenChoice { token, accepted: false, confidence: 0.0, logprob: None })
        }
    }

    #[test]
    fn choices_are_the_same_on_any_team_and_a_panic_stays_in_its_row() {
        let logits: Vec<Vec<f32>> = (0..8).map(|r| (0..5).map(|i| ((i * 3 + r) % 5) as f32).collect()).collect();
        let expected: Vec<_> = {
            let mut out = StepOutput::default();
            logits.iter().enumerate().for_each(|(row, logits)| out.push(row, logits, Some(&Highest)));
            assert_eq!(out.logits(1), logits[1]);
            assert!(out.logits(2).is_empty() && out.choice(1).is_none());
            assert_eq!(
                out.choice(4),
                Some(&Err(NoChoice::Panic(
                    "assertion `left != right` failed: a choice that panics\n  left: 4\n right: 4".to_owned()
                )))
            );
            assert_eq!(out.choice(6), Some(&Err(NoChoice::Logits(LogitsError::NotANumber))));
            (0..8).map(|i| out.choice(i).cloned()).collect()
        };
        for threads in [1, 2, 4] {
            let (team, mut out) = (Team::new(threads), StepOutput::default());
            let rows = (0..8).map(|row| (row, Readout::Head, 5));
            out.prepare(rows).copy_from_slice(&logits.concat());
            out.choose(&team, &Highest);
            assert_eq!((0..8).map(|i| out.choice(i).cloned()).collect::<Vec<_>>(), expected, "{threads} threads");
            assert_eq!(out.logits(3), logits[3]);
        }
    }
}
