//! One safetensors file: a length, a JSON header, and the tensors' data without gaps.
//!
//! Format: <https://github.com/huggingface/safetensors#format>. Types and their widths are the
//! crate `safetensors`'. The header is read here, for two reasons: the crate accepts names that
//! occur twice and fields that it does not know, and its errors lack the tensor and the byte
//! offset. The data of the tensors covers the rest of the file exactly, each tensor is as long as
//! its shape and type say, and names are unique.

use std::fmt;
use std::path::Path;

use safetensors::Dtype;
use serde::de::value::StrDeserializer;
use serde::de::{self, Deserialize, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};

use crate::checkpoint::{Stored, TensorInfo, Unsupported};
use crate::cursor::Cursor;
use crate::error::{FilePlace, WeightsError, one_line};
use crate::gguf::MAX_TENSORS;
use crate::json::{self, Name};
use crate::types::TensorType;

/// Longest header that is read: room for every tensor that is allowed. It bounds what parsing
/// allocates.
const MAX_HEADER: u64 = 16 << 20;
/// Most dimensions of a tensor.
const MAX_DIMS: usize = 8;

/// The contents of a safetensors file.
pub(crate) struct SafetensorsFile {
    pub(crate) tensors: Vec<Stored>,
    pub(crate) unsupported: Vec<(String, Unsupported)>,
}

/// Reads the header of a safetensors file and checks everything but the tensors' values. `index` is
/// the file's number.
pub(crate) fn read(file: &Path, bytes: &[u8], index: usize) -> Result<SafetensorsFile, WeightsError> {
    let mut cursor = Cursor::new(file, bytes);
    let len = cursor.u64("header length")?;
    if len > MAX_HEADER && len <= cursor.left() as u64 {
        return Err(WeightsError::TooLong { at: cursor.at("header length", 0), len, limit: MAX_HEADER });
    }
    let text = cursor.take(len, "header")?;
    if text.first() != Some(&b'{') {
        let why = "expected a JSON object that starts with {".to_owned();
        return Err(WeightsError::Json { at: cursor.at("header", 8), why });
    }
    let header: Header = json::parse(file, "header", 8, text)?;
    let (data, section) = (cursor.pos(), cursor.left() as u64);
    let at =
        |t: &HeaderTensor| FilePlace::new(file, format_args!("tensor {}", t.name), 8 + json::find_name(text, &t.name));

    let mut entries = header.tensors;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some(pair) = entries.windows(2).find(|pair| pair[0].name == pair[1].name) {
        return Err(WeightsError::DuplicateTensor { at: at(&pair[1]) });
    }
    let mut out = SafetensorsFile { tensors: Vec::new(), unsupported: Vec::new() };
    entries.sort_by_key(|t| t.tensor.data_offsets);
    let mut end = 0;
    let mut before: Option<&str> = None;
    for t in &entries {
        let (from, to) = t.tensor.data_offsets;
        if from > to || to > section {
            let len = to.saturating_sub(from);
            return Err(WeightsError::OutOfRange { at: at(t), start: from, len, section });
        }
        let dtype = dtype_named(&t.tensor.dtype.0)
            .ok_or_else(|| WeightsError::UnknownType { at: at(t), id: one_line(&t.tensor.dtype.0) })?;
        let needed = data_bytes(dtype, &t.tensor.shape.0, || at(t))?;
        if needed != to - from {
            let shape = format!("{:?}", t.tensor.shape.0);
            return Err(WeightsError::DataSize {
                at: at(t),
                ty: dtype.to_string(),
                shape,
                expected: needed,
                found: to - from,
            });
        }
        if from < end {
            return Err(WeightsError::Overlap { at: at(t), other: one_line(before.unwrap_or_default()) });
        }
        if from > end {
            let at = FilePlace::new(file, format_args!("data before tensor {}", t.name), data as u64 + end);
            return Err(WeightsError::TokenGap { at, len: from - end });
        }
        (end, before) = (to, Some(t.name.as_str()));
        match tensor_type(dtype) {
            Some(ty) => {
                // The product of the dimensions, which are not 0, is at most the file's size, so
                // each fits.
                let shape = t.tensor.shape.0.iter().map(|d| *d as usize).collect();
                let info = TensorInfo { name: t.name.clone(), shape, ty };
                out.tensors.push(Stored { info, file: index, start: data + from as usize, len: (to - from) as usize });
            }
            None => out.unsupported.push((t.name.clone(), Unsupported { at: at(t), ty: dtype.to_string() })),
        }
    }
    if end < section {
        return Err(WeightsError::TokenGap {
            at: FilePlace::new(file, "end of the data", data as u64 + end),
            len: section - end,
        });
    }
    Ok(out)
}

/// The crate's type of this name.
fn dtype_named(name: &str) -> Option<Dtype> {
    let name: StrDeserializer<'_, de::value::Error> = name.into_deserializer();
    Dtype::deserialize(name).ok()
}

/// The type of a tensor that can be run.
fn tensor_type(dtype: Dtype) -> Option<TensorType> {
    match dtype {
        Dtype::F32 => Some(TensorType::F32),
        Dtype::F16 => Some(TensorType::F16),
        Dtype::BF16 => Some(TensorType::Bf16),
        _ => None,
    }
}

/// Bytes of a tensor of this type.
fn data_bytes(dtype: Dtype, shape: &[u64], at: impl Fn() -> FilePlace) -> Result<u64, WeightsError> {
    if let Some(dim) = shape.iter().position(|d| *d == 0) {
        return Err(WeightsError::ZeroDimension { at: at(), dim });
    }
    let bits = shape.iter().try_fold(dtype.bitsize() as u64, |n, d| n.checked_mul(*d));
    let bits = bits.ok_or_else(|| WeightsError::SizeOverflow { at: at(), shape: format!("{shape:?}") })?;
    Ok(bits.div_ceil(8))
}

/// One tensor of the header.
struct HeaderTensor {
    name: String,
    tensor: TensorJson,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with `dtype`, `shape` and `data_offsets`")]
struct TensorJson {
    dtype: Name,
    shape: Shape,
    data_offsets: (u64, u64),
}

/// The header: tensors in the file's order. Its `__metadata__` is checked and dropped.
struct Header {
    tensors: Vec<HeaderTensor>,
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct HeaderVisitor;
        impl<'de> Visitor<'de> for HeaderVisitor {
            type Value = Header;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut tensors = Vec::new();
                let mut metadata = false;
                while let Some(Name(name)) = map.next_key()? {
                    if name == "__metadata__" {
                        if metadata {
                            return Err(de::Error::custom("__metadata__ occurs twice"));
                        }
                        metadata = true;
                        map.next_value::<StringMap>()?;
                        continue;
                    }
                    if tensors.len() as u64 == MAX_TENSORS {
                        return Err(de::Error::custom(format_args!("more than {MAX_TENSORS} tensors")));
                    }
                    tensors.push(HeaderTensor { name, tensor: map.next_value()? });
                }
                Ok(Header { tensors })
            }
        }
        d.deserialize_map(HeaderVisitor)
    }
}

/// An object of strings, checked and dropped.
struct StringMap;

impl<'de> Deserialize<'de> for StringMap {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct StringMapVisitor;
        impl<'de> Visitor<'de> for StringMapVisitor {
            type Value = StringMap;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<StringMap, A::Error> {
                while map.next_entry::<AnyString, AnyString>()?.is_some() {}
                Ok(StringMap)
            }
        }
        d.deserialize_map(StringMapVisitor)
    }
}

/// A string of any length, checked and dropped.
struct AnyString;

impl<'de> Deserialize<'de> for AnyString {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct AnyStringVisitor;
        impl Visitor<'_> for AnyStringVisitor {
            type Value = AnyString;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_str<E>(self, _: &str) -> Result<AnyString, E> {
                Ok(AnyString)
            }
        }
        d.deserialize_str(AnyStringVisitor)
    }
}

/// Dimensions, outermost first, at most [`MAX_DIMS`].
struct Shape(Vec<u64>);

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct ShapeVisitor;
        impl<'de> Visitor<'de> for ShapeVisitor {
            type Value = Shape;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of dimensions")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Shape, A::Error> {
                let mut out = Vec::new();
                while let Some(d) = seq.next_element()? {
                    if out.len() == MAX_DIMS {
                        return Err(de::Error::custom(format_args!("more than {MAX_DIMS} dimensions")));
                    }
                    out.push(d);
                }
                Ok(Shape(out))
            }
        }
        d.deserialize_seq(ShapeVisitor)
    }
}
