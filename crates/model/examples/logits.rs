//! Writes the logits of every position of given token windows, for comparison with a reference
//! (tools/golden).
//!
//!     cargo run --release -p selfspec-model --example logits -- \
//!         MODEL WINDOWS.json OUT.f32 [THREADS [f16|q8]]
//!
//! `WINDOWS.json` is `{"windows": [[ids...], ...]}`; `OUT.f32` gets f32 little-endian rows
//! (position, vocab), window after window.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use selfspec_kernels::{Isa, KvType, Team};
use selfspec_model::{Backend, CpuBackend, CpuModel, CpuOptions, Enter, LayerPlan, Readout, Row, StepOutput, TokenId};
use selfspec_weights::Checkpoint;

#[derive(serde::Deserialize)]
struct Windows {
    windows: Vec<Vec<TokenId>>,
}

/// Positions in a step: their logits are all held at once.
const CHUNK: usize = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, model, windows, out, rest @ ..] = &args[..] else {
        return Err("usage: logits MODEL WINDOWS.json OUT.f32 [THREADS [f16|q8]]".into());
    };
    let threads = rest.first().map_or(Ok(2), |t| t.parse())?;
    let kv_type = rest.get(1).map_or(Ok(KvType::default()), |t| t.parse())?;
    let windows: Windows = serde_json::from_reader(File::open(windows)?)?;
    let model = Arc::new(CpuModel::open(&Checkpoint::open(Path::new(model))?, &Team::new(threads))?);
    let longest = windows.windows.iter().map(Vec::len).max().unwrap_or(1);
    let options = CpuOptions { isa: Isa::detect()?, threads, context: longest, kv_positions: longest, kv_type };
    let mut backend = CpuBackend::new(model, &options)?;
    let plan = LayerPlan::full(backend.n_layers());
    let mut step = StepOutput::default();
    let mut file = BufWriter::new(File::create(out)?);
    for window in &windows.windows {
        let seq = backend.create();
        for (chunk, tokens) in window.chunks(CHUNK).enumerate() {
            let rows: Vec<Row> = tokens
                .iter()
                .enumerate()
                .map(|(i, token)| Row {
                    seq,
                    pos: chunk * CHUNK + i,
                    token: *token,
                    enter: Enter::Token,
                    plan: plan.clone(),
                    keep: false,
                    readout: Readout::Head,
                })
                .collect();
            backend.step(&rows, &mut step)?;
            backend.set_len(seq, chunk * CHUNK + rows.len())?;
            for i in 0..step.len() {
                for logit in step.logits(i) {
                    file.write_all(&logit.to_le_bytes())?;
                }
            }
        }
        backend.free(seq);
    }
    file.flush()?;
    Ok(())
}
