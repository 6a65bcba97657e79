//! One GGUF file: header, metadata, tensor infos, and where the tensors' data lies.
//!
//! Format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>, versions 2 and 3 (they
//! differ only in that version 3 allows big-endian files, which are refused here).

use std::path::Path;
use std::sync::Arc;

use crate::checkpoint::{Stored, TensorInfo};
use crate::cursor::Cursor;
use crate::error::{WeightsError, one_line};
use crate::map::FileBytes;
use crate::metadata::{MAX_KEY, MAX_KEYS, Metadata};
use crate::types::{TensorType, ggml_type_name};

/// Most tensors of a checkpoint; real ones have at most some thousands.
pub(crate) const MAX_TENSORS: u64 = 65536;
/// Alignment of files that do not state one.
const DEFAULT_ALIGNMENT: u64 = 32;
/// Largest alignment: a page of any machine. The format wants a multiple of 8.
const MAX_ALIGNMENT: u64 = 65536;

/// The contents of a GGUF file.
pub(crate) struct GgufFile {
    pub(crate) metadata: Metadata,
    pub(crate) tensors: Vec<Stored>,
}

/// Reads a whole GGUF file and checks everything but the tensors' values.
pub(crate) fn read(file: &Path, bytes: &Arc<FileBytes>) -> Result<GgufFile, WeightsError> {
    let mut cursor = Cursor::new(file, bytes);
    let (tensors, keys) = read_header(&mut cursor)?;
    let metadata = Metadata::read(&mut cursor, keys, file, bytes)?;
    let alignment = match metadata.u64("general.alignment")? {
        None => DEFAULT_ALIGNMENT,
        Some(a) if a.is_power_of_two() && (8..=MAX_ALIGNMENT).contains(&a) => a,
        Some(found) => return Err(WeightsError::Alignment { at: metadata.at("general.alignment"), found }),
    };
    let mut infos = Vec::new();
    for i in 0..tensors {
        infos.push(read_info(&mut cursor, i)?);
    }
    // A file without tensors (the first shard of a model may hold only metadata) need not be
    // padded.
    let data = (cursor.pos() as u64).next_multiple_of(alignment);
    let section = (bytes.len() as u64).saturating_sub(data);
    let tensors = place(&cursor, infos, data, section, alignment)?;
    Ok(GgufFile { metadata, tensors })
}

/// Magic, version, and the counts of tensors and metadata keys.
fn read_header(cursor: &mut Cursor<'_>) -> Result<(u64, u64), WeightsError> {
    let magic = cursor.take(4, "magic")?;
    if magic != b"GGUF" && magic != b"FUGG" {
        return Err(WeightsError::Magic { at: cursor.at("magic", 0), found: format!("\"{}\"", magic.escape_ascii()) });
    }
    let version = cursor.u32("version")?;
    let at = cursor.at("version", 4);
    match version {
        2 | 3 if magic == b"GGUF" => {}
        // Writers of big-endian files leave the magic as it is, so a version below 65536 shows in
        // the upper half only.
        found if magic == b"FUGG" || (found != 0 && found & 0xffff == 0) => {
            return Err(WeightsError::BigEndian { at, version: found.swap_bytes() });
        }
        found => return Err(WeightsError::Version { at, found }),
    }
    let tensors = read_count(cursor, "tensor count", MAX_TENSORS, 8 + 4 + 8 + 4 + 8)?;
    let keys = read_count(cursor, "metadata count", MAX_KEYS, 8 + 4 + 1)?;
    Ok((tensors, keys))
}

/// A count of items that each take at least `bytes` of what is left.
fn read_count(cursor: &mut Cursor<'_>, field: &str, most: u64, bytes: u64) -> Result<u64, WeightsError> {
    let start = cursor.pos();
    let found = cursor.u64(field)?;
    let fits = cursor.left() as u64 / bytes;
    let (limit, why) = if fits < most { (fits, "fit the rest of the file") } else { (most, "are allowed") };
    if found > limit {
        return Err(WeightsError::Count { at: cursor.at(field, start), found, limit, why });
    }
    Ok(found)
}

/// A tensor info as it stands in the file, its size computed.
struct Info {
    info: TensorInfo,
    start: usize, // of the info itself, for errors
    offset: u64,  // of the data, within the data section
    len: u64,     // of the data
}

fn read_info(cursor: &mut Cursor<'_>, index: u64) -> Result<Info, WeightsError> {
    let start = cursor.pos();
    let name = cursor.string(MAX_KEY, format_args!("name of tensor {index}"))?;
    let at = |cursor: &Cursor<'_>| cursor.at(format_args!("tensor {name}"), start);
    let dims = cursor.u32(format_args!("tensor {name}: dimensions"))?;
    if !(1..=4).contains(&dims) {
        return Err(WeightsError::Dimensions { at: at(cursor), found: dims.into(), expected: "1 to 4" });
    }
    let mut shape = Vec::with_capacity(dims as usize); // innermost first, as in the file
    for d in 0..dims {
        shape.push(cursor.u64(format_args!("tensor {name}: dimension {d}"))?);
    }
    if let Some(dim) = shape.iter().position(|d| *d == 0) {
        return Err(WeightsError::ZeroDimension { at: at(cursor), dim });
    }
    let id = cursor.u32(format_args!("tensor {name}: type"))?;
    let offset = cursor.u64(format_args!("tensor {name}: offset"))?;
    let Some(ty) = TensorType::from_ggml_id(id) else {
        return Err(match ggml_type_name(id) {
            Some(ty) => WeightsError::UnsupportedType { at: at(cursor), ty: ty.to_owned() },
            None => WeightsError::UnknownType { at: at(cursor), id: id.to_string() },
        });
    };
    let block = ty.block_len();
    if shape[0] % block as u64 != 0 {
        return Err(WeightsError::BlockLength { at: at(cursor), k: shape[0], ty: ty.name(), block });
    }
    let blocks = shape.iter().skip(1).try_fold(shape[0] / block as u64, |n, d| n.checked_mul(*d));
    // The count of values must fit as well: it is what readers of the tensor compute with.
    let values = blocks.and_then(|n| n.checked_mul(block as u64)).filter(|n| *n <= isize::MAX as u64);
    let len = blocks.and_then(|n| n.checked_mul(ty.block_bytes() as u64)).filter(|n| *n <= isize::MAX as u64);
    let (Some(_), Some(len)) = (values, len) else {
        return Err(WeightsError::SizeOverflow { at: at(cursor), shape: format!("{shape:?}") });
    };
    // Every dimension divides a product that fits, so it fits itself.
    let shape = shape.iter().rev().map(|d| *d as usize).collect();
    Ok(Info { info: TensorInfo { name: name.to_owned(), shape, ty }, start, offset, len })
}

/// Checks where the tensors' data lies: aligned, inside the section, no two on the same bytes.
fn place(
    cursor: &Cursor<'_>,
    infos: Vec<Info>,
    data: u64,
    section: u64,
    alignment: u64,
) -> Result<Vec<Stored>, WeightsError> {
    let at = |t: &Info| cursor.at(format_args!("tensor {}", t.info.name), t.start);
    for t in &infos {
        if t.offset % alignment != 0 {
            return Err(WeightsError::Unaligned { at: at(t), found: t.offset, alignment });
        }
        if t.offset.checked_add(t.len).is_none_or(|end| end > section) {
            return Err(WeightsError::OutOfRange { at: at(t), start: t.offset, len: t.len, section });
        }
    }
    let mut order: Vec<&Info> = infos.iter().collect();
    order.sort_by_key(|t| (t.offset, t.start));
    for pair in order.windows(2) {
        if pair[0].offset + pair[0].len > pair[1].offset {
            return Err(WeightsError::Overlap { at: at(pair[1]), other: one_line(&pair[0].info.name) });
        }
    }
    order.sort_by(|a, b| (&a.info.name, a.start).cmp(&(&b.info.name, b.start)));
    if let Some(pair) = order.windows(2).find(|pair| pair[0].info.name == pair[1].info.name) {
        return Err(WeightsError::DuplicateTensor { at: at(pair[1]) });
    }
    Ok(infos
        .into_iter()
        .map(|t| Stored { info: t.info, file: 0, start: (data + t.offset) as usize, len: t.len as usize })
        .collect())
}
