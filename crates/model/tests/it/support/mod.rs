//! What the model's tests share: opening a model that a test made, and steps in short form.

use std::path::Path;
use std::sync::Arc;

use selfspec_kernels::{Isa, KvType, Team};
use selfspec_model::{
    Backend, BackendError, CpuBackend, CpuModel, CpuOptions, Enter, LayerPlan, ModelError, Readout, Row, SeqId,
};
use selfspec_model::{StepOutput, TokenId};
use selfspec_testkit::GgufBuilder;
use selfspec_weights::Checkpoint;

pub(crate) fn open(path: &Path) -> Result<Arc<CpuModel>, ModelError> {
    Ok(Arc::new(CpuModel::open(&Checkpoint::open(path)?, &Team::new(1))?))
}

pub(crate) fn open_gguf(builder: &GgufBuilder) -> Result<Arc<CpuModel>, ModelError> {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("model.gguf");
    builder.write(&path);
    open(&path)
}

pub(crate) fn backend(model: &Arc<CpuModel>, isa: Isa, threads: usize) -> CpuBackend {
    backend_of(KvType::F16, model, isa, threads)
}

pub(crate) fn backend_of(kv_type: KvType, model: &Arc<CpuModel>, isa: Isa, threads: usize) -> CpuBackend {
    let context = model.config().context;
    let options = CpuOptions { isa, threads, context, kv_positions: 4 * context, kv_type };
    CpuBackend::new(model.clone(), &options).expect("a small cache")
}

/// A row of the full plan with logits.
pub(crate) fn plain(seq: SeqId, pos: usize, token: TokenId, plan: &LayerPlan) -> Row {
    Row { seq, pos, token, enter: Enter::Token, plan: plan.clone(), keep: false, readout: Readout::Head }
}

/// Logits of rows as bits, so that equality is equality of bits. Shape: (row, vocab).
pub(crate) fn bits(out: &StepOutput) -> Vec<Vec<u32>> {
    (0..out.len()).map(|i| out.logits(i).iter().map(|l| l.to_bits()).collect()).collect()
}

/// Logits of every position of `tokens`, computed `chunk` rows at a time on a sequence of its own.
pub(crate) fn run(backend: &mut CpuBackend, tokens: &[TokenId], chunk: usize) -> Result<Vec<Vec<u32>>, BackendError> {
    let full = LayerPlan::full(backend.n_layers());
    let seq = backend.create();
    let mut out = StepOutput::default();
    let mut logits = Vec::new();
    for (c, tokens) in tokens.chunks(chunk).enumerate() {
        let rows: Vec<Row> = tokens.iter().enumerate().map(|(i, t)| plain(seq, c * chunk + i, *t, &full)).collect();
        backend.step(&rows, &mut out)?;
        backend.set_len(seq, c * chunk + rows.len())?;
        logits.extend(bits(&out));
    }
    backend.free(seq);
    Ok(logits)
}

/// `len` tokens that repeat nowhere soon.
pub(crate) fn tokens(len: usize, vocab: usize) -> Vec<TokenId> {
    (0..len).map(|i| ((i * i * 7 + i * 31 + 5) % vocab) as TokenId).collect()
}
