//! Writes Hugging Face folders: `config.json`, safetensors in one file or several, and any other
//! file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use selfspec_weights::TensorType;
use serde_json::{Value, json};

/// A tensor of a folder.
#[derive(Debug, Clone, PartialEq)]
pub struct FolderTensor {
    /// The name.
    pub name: String,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// F32, F16 or BF16.
    pub ty: TensorType,
    /// The data.
    pub data: Vec<u8>,
}

/// A Hugging Face folder in the making.
#[derive(Debug, Clone, Default)]
pub struct FolderBuilder {
    /// `config.json`.
    pub config: Value,
    /// The tensors.
    pub tensors: Vec<FolderTensor>,
    /// Other files by name, such as `tokenizer.json`.
    pub files: BTreeMap<String, String>,
}

impl FolderBuilder {
    /// A folder with this configuration and nothing else.
    pub fn new(config: Value) -> Self {
        FolderBuilder { config, ..FolderBuilder::default() }
    }

    /// Sets a value of `config.json`.
    pub fn config(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.config[key] = value.into();
        self
    }

    /// Adds a tensor of F32, F16 or BF16, in place if the name is there already.
    ///
    /// # Panics
    /// If `ty` is another type.
    pub fn tensor(mut self, name: &str, shape: &[usize], ty: TensorType, values: &[f32]) -> Self {
        assert!(ty.block_len() == 1, "safetensors do not hold {ty}");
        let data = crate::blocks::quantize(ty, values);
        let tensor = FolderTensor { name: name.to_owned(), shape: shape.to_vec(), ty, data };
        match self.tensors.iter_mut().find(|t| t.name == name) {
            Some(old) => *old = tensor,
            None => self.tensors.push(tensor),
        }
        self
    }

    /// Joins tensors of each layer to one called `name`, row by row: `parts` in this order. All
    /// names stand after `layers.N.`.
    ///
    /// # Panics
    /// If no layer has the first part, or if a layer lacks another part.
    pub fn fuse(mut self, name: &str, parts: &[&str]) -> Self {
        let prefixes: Vec<String> =
            self.tensors.iter().filter_map(|t| t.name.strip_suffix(parts[0]).map(str::to_owned)).collect();
        assert!(!prefixes.is_empty(), "there is no {} to fuse", parts[0]);
        for prefix in prefixes {
            let find = |name: &str| self.tensors.iter().find(|t| t.name == name);
            let part = |part: &&str| find(&format!("{prefix}{part}")).expect("every part is there").clone();
            let parts: Vec<FolderTensor> = parts.iter().map(part).collect();
            let mut fused = FolderTensor { name: format!("{prefix}{name}"), ..parts[0].clone() };
            for part in &parts[1..] {
                fused.shape[0] += part.shape[0];
                fused.data.extend(&part.data);
            }
            self.tensors.retain(|t| parts.iter().all(|part| part.name != t.name));
            self.tensors.push(fused);
        }
        self
    }

    /// Removes the configuration's key, the tensor or the file of this name.
    ///
    /// # Panics
    /// If there is none.
    pub fn remove(mut self, name: &str) -> Self {
        let before = self.tensors.len();
        self.tensors.retain(|t| t.name != name);
        let config = self.config.as_object_mut().is_some_and(|c| c.shift_remove(name).is_some());
        let file = self.files.remove(name).is_some();
        assert!(before > self.tensors.len() || config || file, "there is no {name} to remove");
        self
    }

    /// One safetensors file with all tensors.
    ///
    /// # Panics
    /// If a tensor's shape and data contradict each other.
    pub fn safetensors(&self) -> Vec<u8> {
        serialize(&self.tensors)
    }

    /// Writes the folder with a single `model.safetensors`.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, dir: &Path) {
        self.write_config(dir);
        write(&dir.join("model.safetensors"), self.safetensors());
    }

    /// Writes the folder with `count` shards and an index.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write_sharded(&self, dir: &Path, count: usize) {
        self.write_config(dir);
        let mut map = serde_json::Map::new();
        let per = self.tensors.len().div_ceil(count).max(1);
        for (i, tensors) in self.tensors.chunks(per).enumerate() {
            let name = format!("model-{:05}-of-{count:05}.safetensors", i + 1);
            write(&dir.join(&name), serialize(tensors));
            map.extend(tensors.iter().map(|t| (t.name.clone(), Value::from(name.as_str()))));
        }
        let total: usize = self.tensors.iter().map(|t| t.data.len()).sum();
        let index = json!({ "metadata": { "total_size": total }, "weight_map": map });
        write(&dir.join("model.safetensors.index.json"), index.to_string());
    }

    fn write_config(&self, dir: &Path) {
        fs::create_dir_all(dir).expect("the test's folder can be made");
        write(&dir.join("config.json"), format!("{:#}", self.config));
        self.files.iter().for_each(|(name, text)| write(&dir.join(name), text));
    }
}

fn write(path: &Path, content: impl AsRef<[u8]>) {
    fs::write(path, content).expect("the test's file can be written");
}

fn serialize(tensors: &[FolderTensor]) -> Vec<u8> {
    let views = tensors.iter().map(|t| {
        let dtype = match t.ty {
            TensorType::F16 => Dtype::F16,
            TensorType::Bf16 => Dtype::BF16,
            _ => Dtype::F32,
        };
        (t.name.as_str(), TensorView::new(dtype, t.shape.clone(), &t.data).expect("shape and data agree"))
    });
    safetensors::serialize(views, None).expect("the header can be written")
}
