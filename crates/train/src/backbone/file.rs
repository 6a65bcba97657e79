//! Writes a trained model's files, in the format of the source model. Everything that is not
//! trained is copied from there.
//!
//! A GGUF file keeps its metadata (tokenizer and chat template with it) byte for byte, and its
//! layout: rows of q and k are trained in the order in which they lie there. A Hugging Face folder
//! keeps `config.json` and the files of its tokenizer.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use selfspec_kernels::write_q8_0;
use selfspec_model::{ArchConfig, ModelTensor, TensorNames};
use selfspec_weights::{Checkpoint, GgufWriter, Metadata, Source, TensorInfo, TensorType, write_safetensors};

use super::tensors::{Place, Tensors};
use crate::error::TrainError;
use crate::steps::checkpoint::{write_whole, write_whole_by};

/// The mix of tensor types, in GGUF.
const FILE_TYPE: &str = "general.file_type";
/// Metadata that describes only the source file: its layout, and its part of a split model.
const OWN: [&str; 4] = ["general.alignment", "split.no", "split.count", "split.tensors.count"];
/// Files of a folder that are copied if they exist. The file that makes it a model comes last.
const COPIED: [&str; 12] = [
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "LICENSE",
    "config.json",
];

/// Writes the model to `out` and returns the files.
pub(crate) fn write(
    tensors: &Tensors,
    values: &[f32],
    source: &Checkpoint,
    out: &Path,
) -> Result<Vec<PathBuf>, TrainError> {
    for place in &tensors.places {
        check(place, &values[place.place.clone()])?;
    }
    // A fused tensor has one place for each of its parts, in the order of their rows.
    let places = |name: &str| -> Vec<&Place> { tensors.places.iter().filter(|place| place.name == name).collect() };
    let unused = unused_head(tensors, source)?;
    let infos: Vec<TensorInfo> = source
        .tensors()
        .filter(|info| Some(&info.name) != unused.as_ref())
        .map(|info| TensorInfo { ty: places(&info.name).first().map_or(info.ty, |place| place.ty), ..info.clone() })
        .collect();
    let mut data = |info: &TensorInfo, bytes: &mut Vec<u8>| -> io::Result<()> {
        let places = places(&info.name);
        if places.is_empty() {
            let tensor = source.need_tensor(&info.name).map_err(|e| io::Error::other(e.to_string()))?;
            bytes.extend_from_slice(tensor.bytes);
        }
        places.iter().for_each(|place| encode(place.ty, &values[place.place.clone()], bytes));
        Ok(())
    };
    match source.source() {
        Source::Gguf(metadata) => {
            let writer = metadata_of(tensors, metadata);
            write_whole_by(out, |file: &mut dyn Write| writer.write(file, &infos, &mut data))?;
            Ok(vec![out.to_owned()])
        }
        Source::HuggingFace { dir, .. } => {
            std::fs::create_dir_all(out).map_err(TrainError::io("make the folder", out))?;
            let weights = out.join("model.safetensors");
            write_whole_by(&weights, |file: &mut dyn Write| write_safetensors(file, &infos, &mut data))?;
            let mut written = vec![weights];
            for name in COPIED {
                let (from, to) = (dir.join(name), out.join(name));
                match std::fs::read(&from) {
                    Ok(bytes) => write_whole(&to, &bytes)?,
                    Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                    Err(e) => return Err(TrainError::io("read", &from)(e)),
                }
                written.push(to);
            }
            Ok(written)
        }
    }
}

/// A separate head in the files of a model whose head is the embedding. Nothing reads it, and it
/// would no longer match.
fn unused_head(tensors: &Tensors, source: &Checkpoint) -> Result<Option<String>, TrainError> {
    let config = ArchConfig::read(source).map_err(|e| TrainError::bad(source.path(), e))?;
    let head = TensorNames::of(source, &config).place(&config.layer_form(), ModelTensor::Head).name;
    Ok((tensors.head == tensors.embedding).then_some(head))
}

fn metadata_of(tensors: &Tensors, metadata: &Metadata) -> GgufWriter {
    let mut writer = GgufWriter::new();
    for (key, value) in metadata.raw() {
        match key {
            FILE_TYPE => writer.u32(FILE_TYPE, file_type(tensors)),
            key if OWN.contains(&key) => {}
            key => writer.raw(key, value),
        }
    }
    writer
}

/// The number of `enum llama_ftype` for the type that most values of matrices have.
fn file_type(tensors: &Tensors) -> u32 {
    let known = [(TensorType::F32, 0), (TensorType::F16, 1), (TensorType::Q8_0, 7), (TensorType::Bf16, 32)];
    let of = |ty: TensorType| -> usize {
        tensors.places.iter().filter(|place| place.matrix && place.ty == ty).map(|place| place.place.len()).sum()
    };
    known.into_iter().max_by_key(|(ty, _)| of(*ty)).map_or(0, |(_, number)| number)
}

/// The values after a round trip through the file that [`write`] writes.
pub(crate) fn rounded(tensors: &Tensors, values: &[f32]) -> Vec<f32> {
    let mut out = values.to_vec();
    let mut bytes = Vec::new();
    for place in &tensors.places {
        let to = &mut out[place.place.clone()];
        bytes.clear();
        encode(place.ty, to, &mut bytes);
        decode(place.ty, &bytes, to);
    }
    out
}

/// # Errors
/// A value is not finite, or out of range for the type of the file.
fn check(place: &Place, values: &[f32]) -> Result<(), TrainError> {
    let most = match place.ty {
        TensorType::F16 => 65504.0,
        TensorType::Q8_0 => 65504.0 * 127.0,
        _ => f32::MAX,
    };
    match values.iter().find(|x| x.is_nan() || x.abs() > most) {
        Some(value) => Err(TrainError::Value { tensor: place.name.clone(), value: *value, ty: place.ty.name() }),
        None => Ok(()),
    }
}

fn encode(ty: TensorType, values: &[f32], bytes: &mut Vec<u8>) {
    match ty {
        TensorType::F16 => bytes.extend(values.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes())),
        TensorType::Bf16 => bytes.extend(values.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes())),
        TensorType::Q8_0 => write_q8_0(values, bytes),
        _ => bytes.extend(values.iter().flat_map(|x| x.to_le_bytes())),
    }
}

fn decode(ty: TensorType, bytes: &[u8], out: &mut [f32]) {
    let halves = || bytes.chunks_exact(2).map(|b| [b[0], b[1]]);
    match ty {
        TensorType::F16 => out.iter_mut().zip(halves()).for_each(|(x, b)| *x = f16::from_le_bytes(b).to_f32()),
        TensorType::Bf16 => out.iter_mut().zip(halves()).for_each(|(x, b)| *x = bf16::from_le_bytes(b).to_f32()),
        TensorType::Q8_0 => {
            for (out, block) in out.chunks_exact_mut(32).zip(bytes.chunks_exact(34)) {
                let scale = f16::from_le_bytes([block[0], block[1]]).to_f32();
                out.iter_mut().zip(&block[2..]).for_each(|(x, q)| *x = scale * f32::from(*q as i8));
            }
        }
        _ => {
            let floats = bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            out.iter_mut().zip(floats).for_each(|(x, value)| *x = value);
        }
    }
}
