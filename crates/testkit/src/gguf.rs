//! Writes GGUF files, right ones and wrong ones: every field can be set to something else before
//! the bytes are made.

use std::fs;
use std::path::{Path, PathBuf};

use selfspec_weights::TensorType;

/// A metadata value. [`Value::Raw`] writes any type id and bytes.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Str(String),
    U64(u64),
    I64(i64),
    F64(f64),
    U8s(Vec<u8>),
    I32s(Vec<i32>),
    U32s(Vec<u32>),
    F32s(Vec<f32>),
    Bools(Vec<bool>),
    Strs(Vec<String>),
    /// A type id and the bytes after it.
    Raw(u32, Vec<u8>),
}

macro_rules! from {
    ($($ty:ty => $variant:ident),*) => { $(
        impl From<$ty> for Value {
            fn from(v: $ty) -> Value { Value::$variant(v) }
        }
    )* };
}
from!(u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, f32 => F32, bool => Bool, String => Str, u64 => U64,
    i64 => I64, f64 => F64, Vec<u8> => U8s, Vec<i32> => I32s, Vec<u32> => U32s, Vec<f32> => F32s, Vec<bool> => Bools,
    Vec<String> => Strs);

impl From<&str> for Value {
    fn from(v: &str) -> Value {
        Value::Str(v.to_owned())
    }
}

impl Value {
    /// The type id, then the value.
    fn write(&self, out: &mut Vec<u8>) {
        /// An array: its elements' type id, their number, their bytes.
        fn array(out: &mut Vec<u8>, id: u32, len: usize, bytes: impl IntoIterator<Item = u8>) {
            out.extend(9u32.to_le_bytes());
            out.extend(id.to_le_bytes());
            out.extend((len as u64).to_le_bytes());
            out.extend(bytes);
        }
        fn scalar<const N: usize>(out: &mut Vec<u8>, id: u32, bytes: [u8; N]) {
            out.extend(id.to_le_bytes());
            out.extend(bytes);
        }
        match self {
            Value::U8(v) => scalar(out, 0, v.to_le_bytes()),
            Value::I8(v) => scalar(out, 1, v.to_le_bytes()),
            Value::U16(v) => scalar(out, 2, v.to_le_bytes()),
            Value::I16(v) => scalar(out, 3, v.to_le_bytes()),
            Value::U32(v) => scalar(out, 4, v.to_le_bytes()),
            Value::I32(v) => scalar(out, 5, v.to_le_bytes()),
            Value::F32(v) => scalar(out, 6, v.to_le_bytes()),
            Value::Bool(v) => scalar(out, 7, [u8::from(*v)]),
            Value::Str(v) => {
                out.extend(8u32.to_le_bytes());
                string(out, v);
            }
            Value::U64(v) => scalar(out, 10, v.to_le_bytes()),
            Value::I64(v) => scalar(out, 11, v.to_le_bytes()),
            Value::F64(v) => scalar(out, 12, v.to_le_bytes()),
            Value::U8s(v) => array(out, 0, v.len(), v.iter().copied()),
            Value::I32s(v) => array(out, 5, v.len(), v.iter().flat_map(|x| x.to_le_bytes())),
            Value::U32s(v) => array(out, 4, v.len(), v.iter().flat_map(|x| x.to_le_bytes())),
            Value::F32s(v) => array(out, 6, v.len(), v.iter().flat_map(|x| x.to_le_bytes())),
            Value::Bools(v) => array(out, 7, v.len(), v.iter().map(|x| u8::from(*x))),
            Value::Strs(v) => {
                array(out, 8, v.len(), []);
                v.iter().for_each(|s| string(out, s));
            }
            Value::Raw(id, bytes) => {
                out.extend(id.to_le_bytes());
                out.extend(bytes);
            }
        }
    }
}

fn string(out: &mut Vec<u8>, s: &str) {
    out.extend((s.len() as u64).to_le_bytes());
    out.extend(s.as_bytes());
}

/// A tensor as it is written: nothing need agree with anything.
#[derive(Debug, Clone, PartialEq)]
pub struct GgufTensor {
    /// The name.
    pub name: String,
    /// Dimensions, innermost first, as in the file.
    pub dims: Vec<u64>,
    /// The type's id.
    pub type_id: u32,
    /// The data.
    pub data: Vec<u8>,
    /// The offset to write instead of the right one.
    pub offset: Option<u64>,
}

/// The bytes of a GGUF file and where its parts begin.
#[derive(Debug, Clone)]
pub struct GgufBytes {
    /// The file.
    pub bytes: Vec<u8>,
    /// First byte of the tensor infos.
    pub infos: usize,
    /// First byte of the data section.
    pub data: usize,
}

/// A GGUF file in the making.
#[derive(Debug, Clone)]
pub struct GgufBuilder {
    /// The first four bytes.
    pub magic: [u8; 4],
    /// The version.
    pub version: u32,
    /// The number of tensors to write instead of the right one.
    pub tensor_count: Option<u64>,
    /// The number of metadata keys to write instead of the right one.
    pub metadata_count: Option<u64>,
    /// The alignment that the data is laid out for; it is not written into the metadata by itself.
    pub alignment: usize,
    /// Metadata in the file's order; a key may be there twice.
    pub metadata: Vec<(String, Value)>,
    /// Tensors in the file's order.
    pub tensors: Vec<GgufTensor>,
}

impl Default for GgufBuilder {
    fn default() -> Self {
        GgufBuilder {
            magic: *b"GGUF",
            version: 3,
            tensor_count: None,
            metadata_count: None,
            alignment: 32,
            metadata: Vec::new(),
            tensors: Vec::new(),
        }
    }
}

impl GgufBuilder {
    /// An empty file of version 3.
    pub fn new() -> Self {
        GgufBuilder::default()
    }

    /// Sets a metadata value, in place if the key is there already.
    pub fn metadata(mut self, key: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        match self.metadata.iter_mut().find(|(k, _)| k == key) {
            Some(entry) => entry.1 = value,
            None => self.metadata.push((key.to_owned(), value)),
        }
        self
    }

    /// Appends a metadata value, even if the key is there already.
    pub fn metadata_again(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.metadata.push((key.to_owned(), value.into()));
        self
    }

    /// Removes the metadata or tensors of this name.
    ///
    /// # Panics
    /// If there are none: a test that removes nothing tests nothing.
    pub fn remove(mut self, name: &str) -> Self {
        let before = self.metadata.len() + self.tensors.len();
        self.metadata.retain(|(k, _)| k != name);
        self.tensors.retain(|t| t.name != name);
        assert!(before > self.metadata.len() + self.tensors.len(), "there is no {name} to remove");
        self
    }

    /// Adds a tensor of quantised `values`, in place if the name is there already. `shape` is
    /// outermost first.
    pub fn tensor(self, name: &str, shape: &[usize], ty: TensorType, values: &[f32]) -> Self {
        self.tensor_bytes(name, shape, ty.ggml_id(), crate::blocks::quantize(ty, values))
    }

    /// Adds a tensor of any type id and bytes, in place if the name is there already. `shape` is
    /// outermost first.
    pub fn tensor_bytes(mut self, name: &str, shape: &[usize], type_id: u32, data: Vec<u8>) -> Self {
        let dims = shape.iter().rev().map(|d| *d as u64).collect();
        let tensor = GgufTensor { name: name.to_owned(), dims, type_id, data, offset: None };
        match self.tensors.iter_mut().find(|t| t.name == name) {
            Some(old) => *old = tensor,
            None => self.tensors.push(tensor),
        }
        self
    }

    /// Joins tensors of each layer to one called `name`, row by row: `parts` in this order. All
    /// names stand after `blk.N.`.
    ///
    /// # Panics
    /// If no layer has the first part, or if a layer lacks another part.
    pub fn fuse(mut self, name: &str, parts: &[&str]) -> Self {
        let prefixes: Vec<String> =
            self.tensors.iter().filter_map(|t| t.name.strip_suffix(parts[0]).map(str::to_owned)).collect();
        assert!(!prefixes.is_empty(), "there is no {} to fuse", parts[0]);
        for prefix in prefixes {
            let part = |part: &&str| self.find(&format!("{prefix}{part}")).expect("every part is there").clone();
            let parts: Vec<GgufTensor> = parts.iter().map(part).collect();
            let mut fused = GgufTensor { name: format!("{prefix}{name}"), ..parts[0].clone() };
            for part in &parts[1..] {
                let rows = fused.dims.len() - 1;
                fused.dims[rows] += part.dims[rows];
                fused.data.extend(&part.data);
            }
            self.tensors.retain(|t| parts.iter().all(|part| part.name != t.name));
            self.tensors.push(fused);
        }
        self
    }

    /// Changes a tensor in any way.
    ///
    /// # Panics
    /// If there is no such tensor.
    pub fn change(mut self, name: &str, f: impl FnOnce(&mut GgufTensor)) -> Self {
        f(self.tensors.iter_mut().find(|t| t.name == name).expect("the tensor to change is there"));
        self
    }

    /// The tensor of this name.
    pub fn find(&self, name: &str) -> Option<&GgufTensor> {
        self.tensors.iter().find(|t| t.name == name)
    }

    /// The file's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.layout().bytes
    }

    /// The file's bytes, and where its parts begin.
    pub fn layout(&self) -> GgufBytes {
        let mut out = Vec::new();
        out.extend(self.magic);
        out.extend(self.version.to_le_bytes());
        out.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.metadata_count.unwrap_or(self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            string(&mut out, key);
            value.write(&mut out);
        }
        let infos = out.len();
        let mut offset = 0;
        for t in &self.tensors {
            string(&mut out, &t.name);
            out.extend((t.dims.len() as u32).to_le_bytes());
            t.dims.iter().for_each(|d| out.extend(d.to_le_bytes()));
            out.extend(t.type_id.to_le_bytes());
            out.extend(t.offset.unwrap_or(offset).to_le_bytes());
            offset += t.data.len().next_multiple_of(self.alignment) as u64;
        }
        out.resize(out.len().next_multiple_of(self.alignment), 0);
        let data = out.len();
        for t in &self.tensors {
            out.extend(&t.data);
            out.resize(out.len().next_multiple_of(self.alignment), 0);
        }
        GgufBytes { bytes: out, infos, data }
    }

    /// Writes the file.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, path: &Path) {
        fs::write(path, self.bytes()).expect("the test's file can be written");
    }

    /// The same model in `count` shards: the first has the metadata, the tensors are dealt out in
    /// runs.
    pub fn shards(&self, count: usize) -> Vec<GgufBuilder> {
        let per = self.tensors.len().div_ceil(count);
        (0..count)
            .map(|i| {
                let metadata = if i == 0 { self.metadata.clone() } else { Vec::new() };
                let tensors = self.tensors.iter().skip(i * per).take(per).cloned().collect();
                GgufBuilder { metadata, tensors, ..self.clone() }
                    .metadata("split.no", i as u16)
                    .metadata("split.count", count as u16)
                    .metadata("split.tensors.count", self.tensors.len() as i32)
            })
            .collect()
    }

    /// Writes the model in `count` shards and returns their paths.
    ///
    /// # Panics
    /// If they cannot be written.
    pub fn write_shards(&self, dir: &Path, stem: &str, count: usize) -> Vec<PathBuf> {
        let paths: Vec<PathBuf> = (1..=count).map(|i| dir.join(format!("{stem}-{i:05}-of-{count:05}.gguf"))).collect();
        for (path, shard) in paths.iter().zip(self.shards(count)) {
            shard.write(path);
        }
        paths
    }
}
