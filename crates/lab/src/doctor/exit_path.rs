//! Whether drafts leave the model as they should: the hidden state of a draft row, through norm and
//! head in f64, against the logits of the row.
//!
//! Both start from the same hidden state and share no code after it: the reference reads the
//! weights as floats and sums them itself.

use std::sync::Arc;

use selfspec_engine::Engine;
use selfspec_model::{
    Backend, BackendError, CpuModel, DraftHeads, Enter, HiddenState, LayerPlan, Readout, Row, SeqId, StepOutput,
    StepReadouts, TokenId,
};
use serde_json::json;

use super::check::{DoctorCheck, DoctorFinding};
use crate::error::LabError;

/// Largest distance of sound logits from the reference: the kernels round a row's activations to 8
/// bits.
const CLOSE: f64 = 0.1;
/// Logits that are compared, approximately.
const COMPARED: usize = 4096;
/// Prompt positions that a step reads.
const CHUNK: usize = 256;

/// How far the logits of a draft path are from the reference, over the size of the reference.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LogitDistance {
    path: String,
    /// From norm and head.
    with_norm: f64,
    /// From the head alone.
    without_norm: f64,
}

/// The state at an exit, shape (dim), and the logits of the draft row, shape (logit).
type Drafted = (Vec<f32>, Vec<f32>);

/// A draft path and what its logits are compared with.
struct ExitPath {
    name: String,
    plan: LayerPlan,
    readout: Readout,
    norm: Vec<f32>,    // (dim)
    ids: Vec<TokenId>, // (logit)
}

/// Compares each draft path of the model after each of `texts`. Shape: (text, token).
pub(super) fn check_exit_path(
    engine: &Engine,
    plan: Option<&LayerPlan>,
    texts: &[Vec<TokenId>],
) -> Result<DoctorCheck, LabError> {
    const NAME: &str = "exit path";
    let Some(loaded) = engine.loaded() else {
        return Ok(DoctorCheck::not_checked(NAME, "the engine runs no model of its own"));
    };
    let (model, heads) = (loaded.model().clone(), loaded.draft_heads().clone());
    let exits = exits(&model, &heads, plan);
    if exits.is_empty() {
        return Ok(DoctorCheck::not_checked(
            NAME,
            "the model has one layer and no exit head: there is nowhere to leave it early",
        ));
    }
    let texts: Vec<Vec<TokenId>> = texts.iter().filter(|t| t.len() > 1).cloned().collect();
    if texts.is_empty() {
        return Ok(DoctorCheck::not_checked(NAME, "every prompt is a single token with an empty answer"));
    }
    Ok(judge(&engine.exclusive(move |backend| distances(backend, &model, &exits, &texts))??))
}

/// Layer skip at `plan`, with the model's head and with the draft vocabulary if there is one; and
/// the exit head.
fn exits(model: &CpuModel, heads: &DraftHeads, plan: Option<&LayerPlan>) -> Vec<ExitPath> {
    let n = model.config().n_layers;
    let norm = || model.output_norm().to_vec();
    let mut exits = Vec::new();
    if let Some(plan) = plan.filter(|p| p.cost_layers() > 0) {
        let name = format!("layers {plan}");
        let ids = (0..model.vocab() as TokenId).collect();
        exits.push(ExitPath { name: name.clone(), plan: plan.clone(), readout: Readout::Head, norm: norm(), ids });
        if let Some(vocab) = &heads.vocab {
            let (name, ids) = (format!("{name} and the draft vocabulary"), vocab.ids().to_vec());
            exits.push(ExitPath { name, plan: plan.clone(), readout: Readout::DraftVocab, norm: norm(), ids });
        }
    }
    if let Some(head) = &heads.exit {
        exits.push(ExitPath {
            name: "the exit head".to_owned(),
            plan: LayerPlan::exit(n, head.card().exit_layer).unwrap_or_else(|_| LayerPlan::none(n)),
            readout: Readout::ExitHead,
            norm: head.output_norm().to_vec(),
            ids: head.vocab().ids().to_vec(),
        });
    }
    exits
}

fn distances(
    backend: &mut dyn Backend,
    model: &Arc<CpuModel>,
    exits: &[ExitPath],
    texts: &[Vec<TokenId>],
) -> Result<Vec<LogitDistance>, BackendError> {
    let mut sums = vec![[0.0; 4]; exits.len()]; // (exit): squares off norm and head, of norm and head, off the head, of the head
    for text in texts {
        let seq = backend.create();
        let drafted = draft(backend, seq, text, exits);
        backend.free(seq);
        for ((exit, (state, logits)), sums) in exits.iter().zip(drafted?).zip(&mut sums) {
            add(model, exit, &state, &logits, sums);
        }
    }
    let distance = |(exit, sums): (&ExitPath, &[f64; 4])| LogitDistance {
        path: exit.name.clone(),
        with_norm: (sums[0] / sums[1]).sqrt(),
        without_norm: (sums[2] / sums[3]).sqrt(),
    };
    Ok(exits.iter().zip(&sums).map(distance).collect())
}

/// The state at the exit and the logits of a row that drafts after all but the last token of
/// `text`, for each exit.
fn draft(
    backend: &mut dyn Backend,
    seq: SeqId,
    text: &[TokenId],
    exits: &[ExitPath],
) -> Result<Vec<Drafted>, BackendError> {
    let n = backend.n_layers();
    let full = LayerPlan::full(n);
    let row = |pos: usize, plan: &LayerPlan, readout| Row {
        seq,
        pos,
        token: text[pos],
        enter: Enter::Token,
        plan: plan.clone(),
        keep: false,
        readout,
    };
    let (last, mut out) = (text.len() - 1, StepOutput::default());
    for from in (0..last).step_by(CHUNK) {
        let to = last.min(from + CHUNK);
        let rows: Vec<Row> = (from..to).map(|pos| row(pos, &full, Readout::Nothing)).collect();
        backend.step(&rows, &mut out)?;
        backend.set_len(seq, to)?;
    }
    let mut drafted = Vec::new();
    for exit in exits {
        // A row that skips layers keeps its state through them.
        let states = &[HiddenState::AfterLayers(n), HiddenState::ExitHead];
        let readouts = StepReadouts { states, ..StepReadouts::default() };
        backend.step_with(&[row(last, &exit.plan, exit.readout)], &readouts, &mut out)?;
        let state = out.state(usize::from(exit.readout == Readout::ExitHead), 0).to_vec();
        drafted.push((state, out.logits(0).to_vec()));
        backend.set_len(seq, last)?;
    }
    Ok(drafted)
}

fn add(model: &CpuModel, exit: &ExitPath, state: &[f32], logits: &[f32], sums: &mut [f64; 4]) {
    let wide = |x: &f32| f64::from(*x);
    let mean = state.iter().map(|x| wide(x).powi(2)).sum::<f64>() / state.len() as f64;
    let scale = 1.0 / (mean + f64::from(model.config().norm_eps)).sqrt();
    let (raw, mut row) = (state.iter().map(wide).collect::<Vec<_>>(), vec![0.0; state.len()]);
    let normed: Vec<f64> = raw.iter().zip(&exit.norm).map(|(x, w)| x * scale * wide(w)).collect();
    let stride = exit.ids.len().div_ceil(COMPARED).max(1);
    for (id, got) in exit.ids.iter().zip(logits).step_by(stride) {
        model.head_row(*id, &mut row);
        let times = |x: &[f64]| row.iter().zip(x).map(|(w, x)| wide(w) * x).sum::<f64>();
        let (with, without, got) = (times(&normed), times(&raw), wide(got));
        for (sum, square) in
            sums.iter_mut().zip([(got - with).powi(2), with.powi(2), (got - without).powi(2), without.powi(2)])
        {
            *sum += square;
        }
    }
}

fn judge(distances: &[LogitDistance]) -> DoctorCheck {
    const NAME: &str = "exit path";
    let words = |d: &LogitDistance| {
        format!(
            "logits of {} are {:.1}% off norm and head in full precision ({:.0}% off the head without the norm)",
            d.path,
            d.with_norm * 100.0,
            d.without_norm * 100.0
        )
    };
    // NaN is not close.
    let wrong = distances.iter().find(|d| !d.with_norm.is_finite() || d.with_norm > CLOSE);
    let check = match wrong {
        None => DoctorCheck::fine(NAME, distances.iter().map(words).collect::<Vec<_>>().join("; ")),
        Some(d) if d.without_norm < d.with_norm => DoctorCheck::fault(
            NAME,
            DoctorFinding {
                cause: "norm",
                symptom: "drafts are garbage from the start".to_owned(),
                words: format!("the norm before the head is left out on the exit path: {}", words(d)),
                remedy: "apply the final norm before the head wherever a draft leaves the model; this is a fault of the engine, please report it"
                    .to_owned(),
            },
        ),
        Some(d) => DoctorCheck::fault(
            NAME,
            DoctorFinding {
                cause: "exit-path",
                symptom: "drafts are garbage from the start".to_owned(),
                words: format!("the exit path does not compute norm and head: {}", words(d)),
                remedy: "try another instruction set with --isa; this is a fault of the engine, please report it".to_owned(),
            },
        ),
    };
    let figures =
        distances.iter().map(|d| json!({"path": d.path, "off": d.with_norm, "off_without_norm": d.without_norm}));
    check.with("paths", figures.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::CheckResult;

    #[test]
    fn what_is_near_the_head_alone_lacks_the_norm_and_what_is_near_neither_is_otherwise_wrong() {
        let of = |with_norm, without_norm| {
            let check = judge(&[LogitDistance { path: "layers 0..3".to_owned(), with_norm, without_norm }]);
            (check.result, check.finding.map(|f| f.cause))
        };
        assert_eq!(of(0.02, 0.7), (CheckResult::Fine, None));
        assert_eq!(of(3.1, 0.02), (CheckResult::Fault, Some("norm")));
        assert_eq!(of(1.4, 1.6), (CheckResult::Fault, Some("exit-path")));
        assert_eq!(of(f64::NAN, f64::NAN), (CheckResult::Fault, Some("exit-path")));
    }
}
