//! The model's hidden states for a text, from the engine that will draft.

use std::sync::Arc;

use selfspec_engine::{Engine, EngineError};
use selfspec_model::{
    Backend, BackendError, Enter, HiddenState, LayerPlan, Readout, Row, StepOutput, StepReadouts, TokenId,
};

/// Rows of a step.
const CHUNK: usize = 256;

/// Hidden states of texts, after given numbers of layers.
pub(super) struct States<'e> {
    engine: &'e Engine,
    taps: Arc<[usize]>,
}

impl<'e> States<'e> {
    /// States of the engine's model after each of these numbers of layers.
    pub(super) fn new(engine: &'e Engine, taps: &[usize]) -> Self {
        States { engine, taps: taps.into() }
    }

    /// The states of every token of a text, for each tap. Shape: (tap, token, dim).
    ///
    /// # Errors
    /// The text does not fit the context, or the engine has stopped.
    pub(super) fn of(&self, tokens: &[TokenId]) -> Result<Vec<Vec<f32>>, EngineError> {
        let (taps, tokens) = (self.taps.clone(), tokens.to_vec());
        Ok(self.engine.exclusive(move |backend| read(backend, &taps, &tokens))??)
    }
}

fn read(backend: &mut dyn Backend, taps: &[usize], tokens: &[TokenId]) -> Result<Vec<Vec<f32>>, BackendError> {
    let seq = backend.create();
    backend.drop_auxiliary(seq)?;
    let (full, mut out) = (LayerPlan::full(backend.n_layers()), StepOutput::default());
    let after = taps.iter().copied().map(HiddenState::AfterLayers).collect::<Vec<_>>();
    let readouts = StepReadouts { states: &after, ..StepReadouts::default() };
    let mut states = vec![Vec::new(); taps.len()];
    let mut result = Ok(());
    for (c, chunk) in tokens.chunks(CHUNK).enumerate() {
        let row = |(i, token): (usize, &TokenId)| Row {
            seq,
            pos: c * CHUNK + i,
            token: *token,
            enter: Enter::Token,
            plan: full.clone(),
            keep: false,
            readout: Readout::Nothing,
        };
        let rows: Vec<Row> = chunk.iter().enumerate().map(row).collect();
        result =
            backend.step_with(&rows, &readouts, &mut out).and_then(|()| backend.set_len(seq, c * CHUNK + rows.len()));
        if result.is_err() {
            break;
        }
        for (tap, states) in states.iter_mut().enumerate() {
            (0..rows.len()).for_each(|row| states.extend_from_slice(out.state(tap, row)));
        }
    }
    backend.free(seq);
    result.map(|()| states)
}
