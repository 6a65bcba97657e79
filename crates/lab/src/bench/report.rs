//! The figures of a benchmark.

use selfspec_engine::Engine;
use selfspec_kernels::KvType;
use selfspec_model::{PartSeconds, PassPart, Readout};
use selfspec_speculate::DraftPath;

use super::speculation::ContenderResult;
use crate::measure::Measurements;

/// Row counts that are measured at the contexts after the first.
pub(super) const FEW_ROWS: [usize; 4] = [1, 2, 4, 8];

/// All figures of a benchmark.
#[derive(Debug, Clone)]
pub struct BenchReport {
    /// Tokens a second of plain decoding.
    pub plain_tok_s: f64,
    /// Prompt tokens a second.
    pub prefill_tok_s: Option<f64>,
    /// Gigabytes a second that the engine's threads read from memory.
    pub read_gb_s: Option<f64>,
    /// Costs at the first context.
    pub first: ContextCosts,
    /// Costs at the other contexts.
    pub others: Vec<ContextCosts>,
    /// Speculation by drafter and category, if it was measured.
    pub speculation: Vec<ContenderResult>,
    /// Threads that computed.
    pub threads: usize,
    /// Instruction set, or `none`.
    pub isa: String,
    /// Numbers of the KV cache.
    pub kv_type: KvType,
}

/// Costs of passes after a number of positions.
#[derive(Debug, Clone)]
pub struct ContextCosts {
    /// Positions before the measured rows.
    pub positions: usize,
    /// Passes by their row count.
    pub passes: Vec<PassCost>,
    /// Draft steps.
    pub drafts: Vec<DraftCost>,
    /// The share of the bandwidth bound that a plain step reaches: 1 streams its bytes as fast as
    /// memory gives them.
    pub bound_share: Option<f64>,
    /// Attention's share of a pass over one row, if passes were timed by part.
    pub attention_share: Option<f64>,
    /// Passes by part, if they were timed so.
    pub profile: Vec<PartCost>,
}

/// The cost of a pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PassCost {
    /// Rows m of the pass, each with logits.
    pub rows: usize,
    /// Milliseconds.
    pub ms: f64,
    /// b(m): the time of the pass over that of one row.
    pub b: f64,
}

/// The cost of a draft step.
#[derive(Debug, Clone, PartialEq)]
pub struct DraftCost {
    /// The exit layer, or `exit-head`.
    pub name: String,
    /// c: the time of the draft step over that of a plain step.
    pub c: f64,
}

/// The cost of one part of the forward pass, over all layers together.
#[derive(Debug, Clone, PartialEq)]
pub struct PartCost {
    /// The part's name.
    pub part: &'static str,
    /// (rows, milliseconds of the part in a pass over as many rows).
    pub ms: Vec<(usize, f64)>,
    /// Gigabytes a second that it streams in a pass over one row.
    pub gb_s: Option<f64>,
    /// Milliseconds in a draft step of the exit head.
    pub exit_head_ms: Option<f64>,
}

/// A draft step that is timed.
#[derive(Debug)]
pub(super) struct DraftStep {
    pub(super) name: String, // the exit layer, or `exit-head`
    pub(super) path: DraftPath,
}

impl BenchReport {
    /// The figures of measurements, of which there is at least one.
    pub(super) fn new(
        engine: &Engine,
        measured: &[Measurements],
        plain_tok_s: f64,
        drafts: &[DraftStep],
        speculation: Vec<ContenderResult>,
    ) -> Self {
        let (first, others) = measured.split_first().expect("the context was checked");
        BenchReport {
            plain_tok_s,
            prefill_tok_s: first.prefill_rows_s,
            read_gb_s: first.read_bytes_s.map(|b| b / 1e9),
            first: ContextCosts::new(engine, first, drafts),
            others: others.iter().map(|m| ContextCosts::new(engine, m, drafts)).collect(),
            speculation,
            threads: engine.threads(),
            isa: engine.isa().map_or_else(|| "none".to_owned(), |isa| isa.to_string()),
            kv_type: engine.kv_type(),
        }
    }
}

impl ContextCosts {
    fn new(engine: &Engine, measured: &Measurements, drafts: &[DraftStep]) -> Self {
        let pass = |(rows, seconds): &(usize, f64)| {
            let b = measured.b(*rows)?;
            Some(PassCost { rows: *rows, ms: seconds * 1e3, b })
        };
        let draft = |step: &DraftStep| Some(DraftCost { name: step.name.clone(), c: measured.c(&step.path)? });
        let one = measured.profile.iter().find(|(m, _)| *m == 1);
        let share = |times: &PartSeconds| times[PassPart::Attention as usize] / times.iter().sum::<f64>();
        ContextCosts {
            positions: measured.context,
            passes: measured.passes.iter().filter_map(pass).collect(),
            drafts: drafts.iter().filter_map(draft).collect(),
            bound_share: measured.bound_share(),
            attention_share: one.map(|(_, times)| share(times)),
            profile: profile(engine, measured),
        }
    }
}

fn profile(engine: &Engine, measured: &Measurements) -> Vec<PartCost> {
    let parts = PassPart::ALL.iter().filter(|_| !measured.profile.is_empty()).map(|part| {
        let seconds = |times: &PartSeconds| times[*part as usize];
        let one = measured.profile.iter().find(|(m, _)| *m == 1).map(|(_, times)| seconds(times));
        let head = measured.draft_profile.iter().find(|(path, _)| path.readout == Readout::ExitHead);
        let bytes = engine.loaded().map(|loaded| loaded.part_bytes(*part, engine.kv_type(), measured.context) as f64);
        PartCost {
            part: part.name(),
            ms: measured.profile.iter().map(|(m, times)| (*m, seconds(times) * 1e3)).collect(),
            gb_s: bytes.filter(|bytes| *bytes > 0.0).zip(one).map(|(bytes, seconds)| bytes / seconds / 1e9),
            exit_head_ms: head.map(|(_, times)| seconds(times) * 1e3),
        }
    });
    parts.collect()
}
