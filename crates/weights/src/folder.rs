//! A Hugging Face folder: `config.json`, and `model.safetensors` or `model.safetensors.index.json`
//! with its shards.

use std::collections::HashMap;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::checkpoint::{Checkpoint, OpenFile, Source, Stored, Unsupported};
use crate::error::{FilePlace, WeightsError, one_line};
use crate::gguf::MAX_TENSORS;
use crate::json::{self, Name};
use crate::map::FileBytes;
use crate::safetensors;

const CONFIG: &str = "config.json";
const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Longest `config.json`: its values are held, at up to some eighty times their size.
const MAX_CONFIG: u64 = 512 << 10;
/// Longest index: room for the tensors that are allowed.
const MAX_INDEX: u64 = 16 << 20;

/// Opens a folder. Tensors of a sharded model come in the order of the shards' names.
pub(crate) fn open(dir: &Path) -> Result<Checkpoint, WeightsError> {
    let config_path = dir.join(CONFIG);
    let text = json::read_file(&config_path, MAX_CONFIG)?.ok_or_else(|| WeightsError::MissingFile {
        file: config_path.clone(),
        wanted_by: "a Hugging Face folder".to_owned(),
    })?;
    let mut model = FolderContents::default();
    let single = dir.join(SINGLE);
    match std::fs::metadata(&single) {
        Ok(_) => model.push_file(single)?,
        Err(e) if e.kind() == ErrorKind::NotFound => model.push_indexed(dir)?,
        Err(source) => return Err(WeightsError::Io { file: single, doing: "open", source }),
    }
    model.finish(dir, &config_path, &text)
}

/// A model of one safetensors file, from memory.
pub(crate) fn from_bytes(name: &Path, bytes: Vec<u8>, config: &[u8]) -> Result<Checkpoint, WeightsError> {
    let dir = name.parent().unwrap_or(Path::new(""));
    let mut model = FolderContents::default();
    model.push(name.to_path_buf(), FileBytes::Held(bytes))?;
    model.finish(dir, &dir.join(CONFIG), config)
}

#[derive(Default)]
struct FolderContents {
    files: Vec<OpenFile>,
    tensors: Vec<Stored>,
    unsupported: HashMap<String, Unsupported>,
}

impl FolderContents {
    fn push_file(&mut self, path: PathBuf) -> Result<(), WeightsError> {
        let bytes = FileBytes::map(&path)?;
        self.push(path, bytes)
    }

    fn push(&mut self, path: PathBuf, bytes: FileBytes) -> Result<(), WeightsError> {
        let read = safetensors::read(&path, &bytes, self.files.len())?;
        let found = (self.tensors.len() + read.tensors.len() + self.unsupported.len() + read.unsupported.len()) as u64;
        if found > MAX_TENSORS {
            let at = FilePlace::new(&path, "header", 8);
            return Err(WeightsError::Count { at, found, limit: MAX_TENSORS, why: "tensors are allowed" });
        }
        self.tensors.extend(read.tensors);
        for (name, tensor) in read.unsupported {
            let at = tensor.at.clone();
            if self.unsupported.insert(name, tensor).is_some() {
                return Err(WeightsError::DuplicateTensor { at });
            }
        }
        self.files.push(OpenFile { path, bytes: Arc::new(bytes) });
        Ok(())
    }

    /// Opens the shards that the index names, and checks that each holds the tensors that the index
    /// puts there.
    fn push_indexed(&mut self, dir: &Path) -> Result<(), WeightsError> {
        let path = dir.join(INDEX);
        let text = json::read_file(&path, MAX_INDEX)?.ok_or_else(|| WeightsError::MissingFile {
            file: dir.join(SINGLE),
            wanted_by: format!("a Hugging Face folder without {INDEX}"),
        })?;
        let Index { mut weights } = json::parse(&path, "index", 0, &text)?;
        let at = |name: &str| FilePlace::new(&path, format_args!("tensor {name}"), json::find_name(&text, name));
        weights.sort();
        if let Some(pair) = weights.windows(2).find(|pair| pair[0].1 == pair[1].1 && pair[0].0 == pair[1].0) {
            return Err(WeightsError::DuplicateTensor { at: at(&pair[1].1) });
        }
        for shard in weights.chunk_by(|a, b| a.0 == b.0) {
            let (file, first) = &shard[0];
            if !stays_inside(file) {
                return Err(WeightsError::OutsideFolder { at: at(first), name: one_line(file) });
            }
            let before = self.tensors.len();
            self.push_file(dir.join(file)).map_err(|e| match e {
                WeightsError::Io { source, file, .. } if source.kind() == ErrorKind::NotFound => {
                    WeightsError::MissingFile { file, wanted_by: at(first).to_string() }
                }
                other => other,
            })?;
            let mut held: Vec<&str> = self.tensors[before..].iter().map(|t| t.info.name.as_str()).collect();
            held.sort_unstable();
            for (_, name) in shard {
                if held.binary_search(&name.as_str()).is_err() && !self.unsupported.contains_key(name) {
                    return Err(WeightsError::NotInShard { at: at(name), shard: one_line(file) });
                }
            }
        }
        Ok(())
    }

    fn finish(self, dir: &Path, config_path: &Path, config: &[u8]) -> Result<Checkpoint, WeightsError> {
        let json::Object(config) = json::parse(config_path, "config", 0, config)?;
        let source = Source::HuggingFace { dir: dir.to_path_buf(), config };
        Checkpoint::new(dir, source, self.files, self.tensors, self.unsupported)
    }
}

/// Whether a name in an index is a plain relative path downwards, on any system.
fn stays_inside(name: &str) -> bool {
    !name.is_empty()
        && !name.contains(['\\', ':', '\0'])
        && Path::new(name).components().all(|c| matches!(c, Component::Normal(_)))
}

/// The index: (file, tensor) in the file's order.
struct Index {
    weights: Vec<(String, String)>,
}

impl<'de> Deserialize<'de> for Index {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct IndexVisitor;
        impl<'de> Visitor<'de> for IndexVisitor {
            type Value = Index;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object with a weight_map")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Index, A::Error> {
                let mut weights = None;
                while let Some(Name(key)) = map.next_key()? {
                    if key != "weight_map" {
                        map.next_value::<IgnoredAny>()?;
                    } else if weights.replace(map.next_value::<WeightMap>()?.0).is_some() {
                        return Err(de::Error::custom("weight_map occurs twice"));
                    }
                }
                weights.map(|weights| Index { weights }).ok_or_else(|| de::Error::missing_field("weight_map"))
            }
        }
        d.deserialize_map(IndexVisitor)
    }
}

struct WeightMap(Vec<(String, String)>);

impl<'de> Deserialize<'de> for WeightMap {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct WeightMapVisitor;
        impl<'de> Visitor<'de> for WeightMapVisitor {
            type Value = WeightMap;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object from tensor names to file names")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WeightMap, A::Error> {
                let mut out = Vec::new();
                while let Some((Name(tensor), Name(file))) = map.next_entry()? {
                    if out.len() as u64 == MAX_TENSORS {
                        return Err(de::Error::custom(format_args!("more than {MAX_TENSORS} tensors")));
                    }
                    out.push((file, tensor));
                }
                Ok(WeightMap(out))
            }
        }
        d.deserialize_map(WeightMapVisitor)
    }
}
