//! A model on the CPU: its weights, packed for the kernels.

use selfspec_kernels::{PanelMatrix, Team};
use selfspec_weights::Checkpoint;

use super::layer::Layer;
use super::pack::Packer;
use crate::arch::config::ArchConfig;
use crate::arch::tensor::{LayerTensor as T, ModelTensor};
use crate::error::ModelError;
use crate::load::sink::{SinkError, StoredTensor, WeightSink};
use crate::plan::LayerPlan;
use crate::profile::PassPart;
use crate::spec::ModelSpec;

/// A model in the CPU's memory. Shared by every backend that runs it; never changed.
#[derive(Debug)]
pub struct CpuModel {
    model: ModelSpec,
    embedding: PanelMatrix,    // (vocab, dim)
    head: Option<PanelMatrix>, // (vocab, dim); the embedding where the two are tied
    output_norm: Vec<f32>,     // (dim)
    layers: Vec<Layer>,        // (layer)
}

impl CpuModel {
    /// Reads and packs every weight of `checkpoint`. Pages of the file are given back as soon as a
    /// tensor is packed, so that resident memory stays near the size of the file.
    ///
    /// # Errors
    /// [`ModelError`] names the field or tensor that is missing, of the wrong shape, or not
    /// supported, and where it is.
    pub fn open(checkpoint: &Checkpoint, team: &Team) -> Result<CpuModel, ModelError> {
        let mut panels = Panels::new(Packer { team, whole: true });
        let model = ModelSpec::load(checkpoint, &mut panels)?;
        Ok(panels.finish(model))
    }

    /// Checks what [`CpuModel::open`] does, but packs only the first row of each matrix: little is
    /// read, and little memory taken.
    ///
    /// # Errors
    /// As [`CpuModel::open`].
    pub fn check(checkpoint: &Checkpoint) -> Result<(), ModelError> {
        let team = Team::new(1);
        ModelSpec::load(checkpoint, &mut Panels::new(Packer { team: &team, whole: false })).map(drop)
    }

    /// The model without its weights.
    pub fn spec(&self) -> &ModelSpec {
        &self.model
    }

    /// The configuration.
    pub fn config(&self) -> &ArchConfig {
        self.model.config()
    }

    /// Size of the vocabulary.
    pub fn vocab(&self) -> usize {
        self.model.vocab()
    }

    /// Whether the head is the embedding.
    pub fn tied(&self) -> bool {
        self.model.tied()
    }

    /// Bytes of weights that a pass over one plan streams: its layers and the head. The embedding's
    /// single rows are not counted.
    pub fn pass_bytes(&self, plan: &LayerPlan) -> usize {
        let layers = self.layers.iter().enumerate().filter(|(l, _)| plan.runs(*l));
        layers.map(|(_, layer)| layer.bytes()).sum::<usize>() + self.head().size_bytes()
    }

    /// Bytes of weights that one part of a full pass streams.
    pub fn part_bytes(&self, part: PassPart) -> usize {
        let over_layers = |tensors: &[T]| -> usize { self.layers.iter().map(|l| l.bytes_of(tensors)).sum() };
        match part {
            PassPart::QueryKeyValue => over_layers(&[T::Query, T::Key, T::Value]),
            PassPart::AttentionOutput => over_layers(&[T::AttentionOutput]),
            PassPart::Gate => over_layers(&[T::Gate, T::Up]),
            PassPart::Down => over_layers(&[T::Down]),
            PassPart::Head => self.head().size_bytes(),
            _ => 0,
        }
    }

    /// Bytes of all packed weights.
    pub fn weight_bytes(&self) -> usize {
        self.pass_bytes(&LayerPlan::full(self.layers.len()))
            + self.head.as_ref().map_or(0, |_| self.embedding.size_bytes())
    }

    /// The weight of the norm before the head. Shape: (dim).
    pub fn output_norm(&self) -> &[f32] {
        &self.output_norm
    }

    pub(crate) fn embedding(&self) -> &PanelMatrix {
        &self.embedding
    }

    pub(crate) fn head(&self) -> &PanelMatrix {
        self.head.as_ref().unwrap_or(&self.embedding)
    }

    pub(crate) fn layer(&self, l: usize) -> &Layer {
        &self.layers[l]
    }
}

/// Packs a model's weights as they are loaded.
pub(crate) struct Panels<'a> {
    packer: Packer<'a>,
    embedding: Option<PanelMatrix>,
    head: Option<PanelMatrix>,
    output_norm: Vec<f32>,
    layers: Vec<Layer>,
}

impl<'a> Panels<'a> {
    pub(crate) fn new(packer: Packer<'a>) -> Self {
        Panels { packer, embedding: None, head: None, output_norm: Vec::new(), layers: Vec::new() }
    }

    /// The model whose weights have all come.
    pub(crate) fn finish(mut self, model: ModelSpec) -> CpuModel {
        for (l, layer) in self.layers.iter_mut().enumerate() {
            layer.window = model.config().window(l);
        }
        CpuModel {
            embedding: self.embedding.expect("a model is loaded with its embedding"),
            head: self.head,
            output_norm: self.output_norm,
            layers: self.layers,
            model,
        }
    }
}

impl WeightSink<ModelTensor> for Panels<'_> {
    fn put(&mut self, tensor: ModelTensor, values: StoredTensor<'_>) -> Result<(), SinkError> {
        match (tensor, values) {
            (ModelTensor::Layer(l, tensor), values) => {
                if self.layers.len() <= l {
                    self.layers.resize_with(l + 1, Layer::default);
                }
                self.layers[l].put(tensor, values, self.packer)?;
            }
            (ModelTensor::Head, StoredTensor::Matrix(matrix)) => self.head = Some(self.packer.pack(&matrix)?),
            (_, StoredTensor::Matrix(matrix)) => self.embedding = Some(self.packer.pack(&matrix)?),
            (_, StoredTensor::Vector(values)) => self.output_norm = values,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use selfspec_testkit::{Family as TinyFamily, TinyModel};

    use super::*;
    use crate::arch::family::{Architecture, Family, FusedTensor, LLAMA};

    /// Phi-3's layout: one tensor for q, k and v, one for gate and up.
    static FUSED: Family = Family {
        fused: &[
            FusedTensor {
                gguf: "attn_qkv.weight",
                folder: "self_attn.qkv_proj.weight",
                parts: &[T::Query, T::Key, T::Value],
            },
            FusedTensor { gguf: "ffn_up.weight", folder: "mlp.gate_up_proj.weight", parts: &[T::Gate, T::Up] },
        ],
        ..LLAMA
    };

    fn open_fused(checkpoint: &Checkpoint) -> Result<CpuModel, ModelError> {
        let config = ArchConfig { architecture: Architecture(&FUSED), ..ArchConfig::read(checkpoint)? };
        let team = Team::new(1);
        let mut panels = Panels::new(Packer { team: &team, whole: true });
        let model = ModelSpec::load_as(config, checkpoint, &mut panels)?;
        Ok(panels.finish(model))
    }

    #[test]
    fn fused_tensors_load_as_their_parts() {
        for ty in [selfspec_weights::TensorType::Bf16, selfspec_weights::TensorType::Q4_1] {
            let tiny = TinyModel::new(TinyFamily::Llama).ty(ty);
            let (gguf, folder) = (tiny.gguf(), tiny.folder());
            let fused_gguf = gguf
                .clone()
                .fuse("attn_qkv.weight", &["attn_q.weight", "attn_k.weight", "attn_v.weight"])
                .fuse("ffn_up.weight", &["ffn_gate.weight", "ffn_up.weight"]);
            let from_gguf = |builder: &selfspec_testkit::GgufBuilder| {
                Checkpoint::from_gguf_bytes(Path::new("tiny.gguf"), builder.bytes()).expect("whole")
            };
            let projections = ["q", "k", "v"].map(|p| format!("self_attn.{p}_proj.weight"));
            let fused_folder = folder
                .clone()
                .fuse("self_attn.qkv_proj.weight", &projections.each_ref().map(String::as_str))
                .fuse("mlp.gate_up_proj.weight", &["mlp.gate_proj.weight", "mlp.up_proj.weight"]);
            let from_folder = |builder: &selfspec_testkit::FolderBuilder| {
                let (bytes, config) = (builder.safetensors(), builder.config.to_string());
                Checkpoint::from_safetensors_bytes(Path::new("model.safetensors"), bytes, config.as_bytes())
                    .expect("whole")
            };
            for (plain, fused) in
                [(from_gguf(&gguf), from_gguf(&fused_gguf)), (from_folder(&folder), from_folder(&fused_folder))]
            {
                let (plain, fused) =
                    (CpuModel::open(&plain, &Team::new(1)).expect("sound"), open_fused(&fused).expect("sound"));
                for l in 0..plain.config().n_layers {
                    assert_eq!(plain.dense_layer(l), fused.dense_layer(l), "{ty}, layer {l}");
                }
            }
            let e = open_fused(&from_gguf(&gguf)).expect_err("not fused").to_string();
            assert!(e.contains("tensor `blk.0.attn_qkv.weight` is missing"), "{e}");
            let short = fused_gguf.change("blk.1.attn_qkv.weight", |t| {
                let row = t.data.len() / t.dims[1] as usize;
                t.dims[1] -= 1;
                t.data.truncate(t.data.len() - row);
            });
            let e = open_fused(&from_gguf(&short)).expect_err("a row is missing").to_string();
            assert!(e.contains("tensor `blk.1.attn_qkv.weight`: expected shape ["), "{e}");
        }
    }
}
