//! GGUF metadata: keys and typed values, read where they lie in the file.
//!
//! Only the keys and the places of their values are held. A getter decodes its value. All values
//! are checked (bounds, UTF-8, bools) before a [`Metadata`] exists.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cursor::Cursor;
use crate::error::{FilePlace, WeightsError, one_line};
use crate::map::FileBytes;

/// Longest key: the bound of the format.
pub(crate) const MAX_KEY: u64 = 65535;
/// Most metadata keys; real files have tens.
pub(crate) const MAX_KEYS: u64 = 65536;
/// Most elements of an array of strings: eight times the largest known vocabulary. It bounds what
/// [`Metadata::strings`] allocates.
const MAX_STRINGS: u64 = 1 << 21;
/// Deepest array of arrays that is stepped over.
const MAX_NESTING: u32 = 4;

/// Type of a metadata value (`enum gguf_metadata_value_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    Str,
    Array,
    U64,
    I64,
    F64,
}

impl ValueType {
    pub(crate) fn from_id(id: u32) -> Option<ValueType> {
        use ValueType::*;
        [U8, I8, U16, I16, U32, I32, F32, Bool, Str, Array, U64, I64, F64].get(id as usize).copied()
    }

    /// Least bytes that a value takes: all of them, except for strings and arrays.
    fn min_bytes(self) -> u64 {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => 1,
            ValueType::U16 | ValueType::I16 => 2,
            ValueType::U32 | ValueType::I32 | ValueType::F32 => 4,
            ValueType::Str | ValueType::U64 | ValueType::I64 | ValueType::F64 => 8,
            ValueType::Array => 12,
        }
    }

    fn name(self) -> &'static str {
        match self {
            ValueType::U8 => "u8",
            ValueType::I8 => "i8",
            ValueType::U16 => "u16",
            ValueType::I16 => "i16",
            ValueType::U32 => "u32",
            ValueType::I32 => "i32",
            ValueType::F32 => "f32",
            ValueType::Bool => "bool",
            ValueType::Str => "string",
            ValueType::Array => "array",
            ValueType::U64 => "u64",
            ValueType::I64 => "i64",
            ValueType::F64 => "f64",
        }
    }
}

/// The place and the type of a value.
#[derive(Debug, Clone, Copy)]
struct Entry {
    ty: ValueType,
    elem: ValueType,       // of an array; else the type itself
    count: usize,          // elements of an array; else 1
    start: usize,          // first byte of the value, or of an array's first element
    whole: (usize, usize), // from the type's id to the end of the value
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ty {
            ValueType::Array => write!(f, "array of {} {}", self.count, self.elem.name()),
            ty => f.write_str(ty.name()),
        }
    }
}

/// The metadata of a GGUF file. Getters return `None` for a missing key and an error for a value of
/// another type.
#[derive(Clone)]
pub struct Metadata {
    file: PathBuf,
    bytes: Arc<FileBytes>,
    end: usize, // first byte after the metadata
    entries: BTreeMap<String, Entry>,
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.entries.iter().map(|(key, entry)| (key, entry.to_string()))).finish()
    }
}

impl Metadata {
    /// Reads `count` key-value pairs.
    pub(crate) fn read(
        cursor: &mut Cursor<'_>,
        count: u64,
        file: &Path,
        bytes: &Arc<FileBytes>,
    ) -> Result<Metadata, WeightsError> {
        let mut entries = BTreeMap::new();
        for i in 0..count {
            let start = cursor.pos();
            let key = cursor.string(MAX_KEY, format_args!("metadata key {i}"))?;
            let from = cursor.pos();
            let mut entry = read_entry(cursor, key)?;
            entry.whole = (from, cursor.pos());
            if entries.insert(key.to_owned(), entry).is_some() {
                return Err(WeightsError::DuplicateKey { at: cursor.at(key, start) });
            }
        }
        Ok(Metadata { file: file.to_path_buf(), bytes: Arc::clone(bytes), end: cursor.pos(), entries })
    }

    /// All keys, in alphabetical order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Every key with the bytes of its value, in the file's order: the type's id, then the value,
    /// little-endian.
    pub fn raw(&self) -> Vec<(&str, &[u8])> {
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_by_key(|(_, entry)| entry.whole);
        entries.into_iter().map(|(key, entry)| (key.as_str(), &self.bytes[entry.whole.0..entry.whole.1])).collect()
    }

    /// Whether the key is there, whatever its type.
    pub fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// The file that the metadata is from.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The place of the value of `key`, for errors about its meaning; the end of the metadata for a
    /// missing key.
    pub fn at(&self, key: &str) -> FilePlace {
        FilePlace::new(&self.file, key, self.entries.get(key).map_or(self.end, |e| e.start) as u64)
    }

    /// A string.
    ///
    /// # Errors
    /// [`WeightsError::KeyType`] if the value is of another type.
    pub fn str(&self, key: &str) -> Result<Option<&str>, WeightsError> {
        let Some(entry) = self.entries.get(key) else { return Ok(None) };
        if entry.ty != ValueType::Str {
            return Err(self.wrong_type(key, entry, "a string"));
        }
        let mut cursor = self.cursor(entry);
        cursor.string(u64::MAX, key).map(Some)
    }

    /// An integer of any width that is not negative.
    ///
    /// # Errors
    /// [`WeightsError::KeyType`] for another type, [`WeightsError::KeyRange`] for a negative value.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, WeightsError> {
        let Some(entry) = self.entries.get(key) else { return Ok(None) };
        let value = self.integer(entry.ty, entry.start).ok_or_else(|| self.wrong_type(key, entry, "an integer"))?;
        u64::try_from(value).map(Some).map_err(|_| self.out_of_range(key, "at least 0", value))
    }

    /// A float of either width.
    ///
    /// # Errors
    /// [`WeightsError::KeyType`] if the value is of another type.
    pub fn f64(&self, key: &str) -> Result<Option<f64>, WeightsError> {
        let Some(entry) = self.entries.get(key) else { return Ok(None) };
        match entry.ty {
            ValueType::F32 => Ok(Some(f64::from(f32::from_le_bytes(self.array(entry.start))))),
            ValueType::F64 => Ok(Some(f64::from_le_bytes(self.array(entry.start)))),
            _ => Err(self.wrong_type(key, entry, "a float")),
        }
    }

    /// A bool.
    ///
    /// # Errors
    /// [`WeightsError::KeyType`] if the value is of another type.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, WeightsError> {
        let Some(entry) = self.entries.get(key) else { return Ok(None) };
        match entry.ty {
            ValueType::Bool => Ok(Some(self.bytes[entry.start] != 0)),
            _ => Err(self.wrong_type(key, entry, "a bool")),
        }
    }

    /// An array of strings, borrowed from the file.
    ///
    /// # Errors
    /// [`WeightsError::KeyType`] if the value is of another type.
    pub fn strings(&self, key: &str) -> Result<Option<Vec<&str>>, WeightsError> {
        let Some(entry) = self.entries.get(key) else { return Ok(None) };
        if entry.ty != ValueType::Array || entry.elem != ValueType::Str {
            return Err(self.wrong_type(key, entry, "an array of strings"));
        }
        let mut cursor = self.cursor(entry);
        // `count` was checked against the file's size when the array was read.
        let mut out = Vec::with_capacity(entry.count);
        for _ in 0..entry.count {
            out.push(cursor.string(u64::MAX, key)?);
        }
        Ok(Some(out))
    }

    /// An array of 32-bit floats.
    ///
    /// # Errors
    /// [`WeightsError::KeyType`] if the value is of another type.
    pub fn f32s(&self, key: &str) -> Result<Option<Vec<f32>>, WeightsError> {
        let Some(entry) = self.entries.get(key) else { return Ok(None) };
        if entry.ty != ValueType::Array || entry.elem != ValueType::F32 {
            return Err(self.wrong_type(key, entry, "an array of f32"));
        }
        let bytes = &self.bytes[entry.start..][..entry.count * 4];
        Ok(Some(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()))
    }

    /// An array of integers of any width whose values fit an i32.
    ///
    /// # Errors
    /// [`WeightsError::KeyType`] for another type, [`WeightsError::KeyRange`] for a value that does
    /// not fit.
    pub fn i32s(&self, key: &str) -> Result<Option<Vec<i32>>, WeightsError> {
        self.integers(key, "values of an i32", |v| i32::try_from(v).ok())
    }

    /// An array of integers of any width that are not negative.
    ///
    /// # Errors
    /// [`WeightsError::KeyType`] for another type, [`WeightsError::KeyRange`] for a negative value.
    pub fn u64s(&self, key: &str) -> Result<Option<Vec<u64>>, WeightsError> {
        self.integers(key, "at least 0", |v| u64::try_from(v).ok())
    }

    /// An array of bools.
    ///
    /// # Errors
    /// [`WeightsError::KeyType`] if the value is of another type.
    pub fn bools(&self, key: &str) -> Result<Option<Vec<bool>>, WeightsError> {
        let Some(entry) = self.entries.get(key) else { return Ok(None) };
        if entry.ty != ValueType::Array || entry.elem != ValueType::Bool {
            return Err(self.wrong_type(key, entry, "an array of bools"));
        }
        Ok(Some(self.bytes[entry.start..][..entry.count].iter().map(|b| *b != 0).collect()))
    }

    /// Whether the value of `key` is an array.
    pub fn is_array(&self, key: &str) -> bool {
        self.entries.get(key).is_some_and(|e| e.ty == ValueType::Array)
    }

    /// A value as text for people: scalars and strings (cut to one line), arrays as type and
    /// length.
    pub fn display(&self, key: &str) -> Option<String> {
        let entry = self.entries.get(key)?;
        if let Some(v) = self.integer(entry.ty, entry.start) {
            return Some(v.to_string());
        }
        Some(match entry.ty {
            ValueType::F32 | ValueType::F64 => self.f64(key).ok()??.to_string(),
            ValueType::Bool => self.bool(key).ok()??.to_string(),
            ValueType::Str => one_line(self.str(key).ok()??),
            _ => entry.to_string(),
        })
    }

    fn integers<T>(
        &self,
        key: &str,
        expected: &'static str,
        convert: impl Fn(i128) -> Option<T>,
    ) -> Result<Option<Vec<T>>, WeightsError> {
        let Some(entry) = self.entries.get(key) else { return Ok(None) };
        let width = entry.elem.min_bytes() as usize;
        let mut out = Vec::new();
        for i in 0..entry.count {
            let value = match entry.ty {
                ValueType::Array => self.integer(entry.elem, entry.start + i * width),
                _ => None,
            };
            let value = value.ok_or_else(|| self.wrong_type(key, entry, "an array of integers"))?;
            out.push(convert(value).ok_or_else(|| self.out_of_range(key, expected, value))?);
        }
        Ok(Some(out))
    }

    /// The integer of type `ty` at byte `start`, or `None` if the type is no integer.
    fn integer(&self, ty: ValueType, start: usize) -> Option<i128> {
        Some(match ty {
            ValueType::U8 => u8::from_le_bytes(self.array(start)).into(),
            ValueType::I8 => i8::from_le_bytes(self.array(start)).into(),
            ValueType::U16 => u16::from_le_bytes(self.array(start)).into(),
            ValueType::I16 => i16::from_le_bytes(self.array(start)).into(),
            ValueType::U32 => u32::from_le_bytes(self.array(start)).into(),
            ValueType::I32 => i32::from_le_bytes(self.array(start)).into(),
            ValueType::U64 => u64::from_le_bytes(self.array(start)).into(),
            ValueType::I64 => i64::from_le_bytes(self.array(start)).into(),
            _ => return None,
        })
    }

    fn array<const N: usize>(&self, start: usize) -> [u8; N] {
        self.bytes[start..][..N].try_into().expect("the slice is N long")
    }

    fn cursor(&self, entry: &Entry) -> Cursor<'_> {
        Cursor::starting_at(&self.file, &self.bytes, entry.start)
    }

    fn wrong_type(&self, key: &str, entry: &Entry, expected: &'static str) -> WeightsError {
        WeightsError::KeyType { at: self.at(key), expected, found: entry.to_string() }
    }

    fn out_of_range(&self, key: &str, expected: &'static str, found: i128) -> WeightsError {
        WeightsError::KeyRange { at: self.at(key), expected, found: found.to_string() }
    }

    fn missing(&self, key: &str) -> WeightsError {
        WeightsError::MissingKey { file: self.file.clone(), key: one_line(key), offset: self.end as u64 }
    }
}

/// The getters for keys that must be there.
macro_rules! need {
    ($($(#[$doc:meta])* $name:ident = $get:ident -> $ty:ty;)*) => {
        impl Metadata {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// [`WeightsError::MissingKey`], and those of the getter without `need_`.
                pub fn $name(&self, key: &str) -> Result<$ty, WeightsError> {
                    self.$get(key)?.ok_or_else(|| self.missing(key))
                }
            )*
        }
    };
}

need! {
    /// A string that must be there.
    need_str = str -> &str;
    /// An integer of any width, not negative, that must be there.
    need_u64 = u64 -> u64;
    /// A float of either width that must be there.
    need_f64 = f64 -> f64;
    /// A bool that must be there.
    need_bool = bool -> bool;
    /// An array of strings that must be there.
    need_strings = strings -> Vec<&str>;
    /// An array of 32-bit floats that must be there.
    need_f32s = f32s -> Vec<f32>;
    /// An array of integers, each fitting an i32, that must be there.
    need_i32s = i32s -> Vec<i32>;
}

/// Reads and checks one value, and returns its place.
fn read_entry(cursor: &mut Cursor<'_>, key: &str) -> Result<Entry, WeightsError> {
    let ty = read_type(cursor, key)?;
    if ty == ValueType::Array {
        return read_array(cursor, key, 1);
    }
    let start = cursor.pos();
    skip_values(cursor, key, ty, 1, 0)?;
    Ok(Entry { ty, elem: ty, count: 1, start, whole: (start, start) })
}

fn read_type(cursor: &mut Cursor<'_>, key: &str) -> Result<ValueType, WeightsError> {
    let start = cursor.pos();
    let id = cursor.u32(format_args!("type of {key}"))?;
    ValueType::from_id(id)
        .ok_or_else(|| WeightsError::ValueType { at: cursor.at(format_args!("type of {key}"), start), found: id })
}

fn read_array(cursor: &mut Cursor<'_>, key: &str, depth: u32) -> Result<Entry, WeightsError> {
    if depth > MAX_NESTING {
        return Err(WeightsError::Nesting { at: cursor.at(key, cursor.pos()), limit: MAX_NESTING });
    }
    let elem = read_type(cursor, key)?;
    let start = cursor.pos();
    let count = cursor.u64(format_args!("length of {key}"))?;
    let at = |cursor: &Cursor<'_>| cursor.at(format_args!("length of {key}"), start);
    let limit = cursor.left() as u64 / elem.min_bytes();
    if count > limit {
        let why = "fit the rest of the file";
        return Err(WeightsError::Count { at: at(cursor), found: count, limit, why });
    }
    if elem == ValueType::Str && count > MAX_STRINGS {
        let why = "strings are allowed";
        return Err(WeightsError::Count { at: at(cursor), found: count, limit: MAX_STRINGS, why });
    }
    let start = cursor.pos();
    skip_values(cursor, key, elem, count, depth)?;
    Ok(Entry { ty: ValueType::Array, elem, count: count as usize, start, whole: (start, start) })
}

/// Steps over `count` values of one type, checking each that can be wrong.
fn skip_values(cursor: &mut Cursor<'_>, key: &str, ty: ValueType, count: u64, depth: u32) -> Result<(), WeightsError> {
    match ty {
        ValueType::Str => {
            for i in 0..count {
                if depth == 0 {
                    cursor.string(u64::MAX, key)?;
                } else {
                    cursor.string(u64::MAX, format_args!("{key}[{i}]"))?;
                }
            }
        }
        ValueType::Array => {
            for _ in 0..count {
                read_array(cursor, key, depth + 1)?;
            }
        }
        ValueType::Bool => {
            let start = cursor.pos();
            let bytes = cursor.take(count, key)?;
            if let Some(i) = bytes.iter().position(|b| *b > 1) {
                return Err(WeightsError::Bool { at: cursor.at(key, start + i), found: bytes[i] });
            }
        }
        // `count` is 1 or was held against what is left of the file, so the product cannot
        // overflow.
        _ => {
            cursor.take(count * ty.min_bytes(), key)?;
        }
    }
    Ok(())
}
