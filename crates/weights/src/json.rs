//! Strict and bounded reading of JSON files: duplicate keys are errors, and sizes are limited
//! before anything is parsed.

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::error::{FilePlace, WeightsError, one_line};

/// Longest name of a tensor, type or file in JSON, in bytes.
const MAX_NAME: usize = 65535;

/// Reads a whole file that may be at most `limit` bytes long. `None` if there is no such file.
pub(crate) fn read_file(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, WeightsError> {
    let io = |doing| move |source| WeightsError::Io { file: path.to_path_buf(), doing, source };
    let kind = match std::fs::metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.map_err(io("open"))?,
    };
    if !kind.is_file() {
        return Err(WeightsError::NotAFile { file: path.to_path_buf() });
    }
    if kind.len() > limit {
        return Err(WeightsError::TooLong { at: FilePlace::new(path, "the file", 0), len: kind.len(), limit });
    }
    let mut bytes = Vec::new();
    File::open(path).map_err(io("open"))?.take(limit).read_to_end(&mut bytes).map_err(io("read"))?;
    Ok(Some(bytes))
}

/// Parses `text`, which lies at byte `base` of the file, from its first to its last byte.
pub(crate) fn parse<'de, T: Deserialize<'de>>(
    file: &Path,
    field: &str,
    base: u64,
    text: &'de [u8],
) -> Result<T, WeightsError> {
    let text = std::str::from_utf8(text)
        .map_err(|e| WeightsError::Utf8 { at: FilePlace::new(file, field, base + e.valid_up_to() as u64) })?;
    serde_json::from_str(text).map_err(|e| {
        let line = text.split_inclusive('\n').take(e.line().saturating_sub(1)).map(str::len).sum::<usize>();
        let offset = (line + e.column().saturating_sub(1)).min(text.len());
        let message = e.to_string();
        let why = message.rsplit_once(" at line ").map_or(message.as_str(), |(why, _)| why);
        WeightsError::Json { at: FilePlace::new(file, field, base + offset as u64), why: one_line(why) }
    })
}

/// Byte offset in `text` at which the quoted `name` starts, for errors; 0 if it is spelt otherwise.
pub(crate) fn find_name(text: &[u8], name: &str) -> u64 {
    let quoted = Value::from(name).to_string();
    text.windows(quoted.len()).position(|w| w == quoted.as_bytes()).unwrap_or(0) as u64
}

/// A string of at most [`MAX_NAME`] bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Name(pub(crate) String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct NameVisitor;
        impl Visitor<'_> for NameVisitor {
            type Value = Name;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_str<E: de::Error>(self, s: &str) -> Result<Name, E> {
                if s.len() > MAX_NAME {
                    return Err(E::custom(format_args!(
                        "a string of {} bytes, at most {MAX_NAME} are allowed",
                        s.len()
                    )));
                }
                Ok(Name(s.to_owned()))
            }
        }
        d.deserialize_str(NameVisitor)
    }
}

/// An object whose keys are all different.
pub(crate) struct Object(pub(crate) Value);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_map(StrictVisitor).map(Object)
    }
}

/// Any JSON value, refusing duplicate keys at every depth.
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Value, D::Error> {
        d.deserialize_any(StrictVisitor)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        while let Some(value) = seq.next_element_seed(Strict)? {
            out.push(value);
        }
        Ok(out.into())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut out = serde_json::Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = map.next_value_seed(Strict)?;
            if out.contains_key(&key) {
                return Err(de::Error::custom(format_args!("the key {key:?} occurs twice")));
            }
            out.insert(key, value);
        }
        Ok(out.into())
    }
}
