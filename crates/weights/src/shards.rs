//! GGUF models of one file or several: `NAME-00001-of-00003.gguf` and so on, each with the metadata
//! `split.no`, `split.count` and `split.tensors.count`.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use crate::checkpoint::{Checkpoint, OpenFile, Source, Stored};
use crate::error::WeightsError;
use crate::gguf::{self, GgufFile, MAX_TENSORS};
use crate::map::FileBytes;
use crate::metadata::Metadata;

const NO: &str = "split.no"; // from 0
const COUNT: &str = "split.count";
const TENSORS: &str = "split.tensors.count";

/// Opens a GGUF file and, if it is a shard, all the others with it. The configuration is the first
/// shard's.
pub(crate) fn open(path: &Path) -> Result<Checkpoint, WeightsError> {
    let (opened, bytes) = read(path)?;
    let count = opened.metadata.u64(COUNT)?.unwrap_or(1);
    if count <= 1 {
        let files = vec![OpenFile { path: path.to_path_buf(), bytes }];
        return Checkpoint::new(path, Source::Gguf(opened.metadata), files, opened.tensors, HashMap::new());
    }
    let number = opened.metadata.need_u64(NO)?;
    let shard = number.saturating_add(1);
    let suffix = |i: u64| format!("-{i:05}-of-{count:05}.gguf");
    let stem = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(&suffix(shard)));
    let Some(stem) = stem.filter(|_| number < count) else {
        return Err(WeightsError::ShardName { at: opened.metadata.at(NO), shard, count });
    };

    let mut all = ShardContents { metadata: None, files: Vec::new(), tensors: Vec::new() };
    let mut opened = Some((opened, bytes));
    for i in 0..count {
        let file = path.with_file_name(format!("{stem}{}", suffix(i + 1)));
        let (gguf, bytes) = match opened.take_if(|_| i == number) {
            Some(opened) => opened,
            None => read(&file).map_err(|e| match e {
                WeightsError::Io { source, file, .. } if source.kind() == ErrorKind::NotFound => {
                    WeightsError::ShardMissing { file, shard: i + 1, count }
                }
                other => other,
            })?,
        };
        expect(&gguf.metadata, COUNT, count)?;
        expect(&gguf.metadata, NO, i)?;
        all.push(&file, gguf, bytes)?;
    }
    let metadata = all.metadata.expect("count is above 1, so a first shard was read");
    if let Some(expected) = metadata.u64(TENSORS)? {
        let found = all.tensors.len() as u64;
        if found != expected {
            return Err(WeightsError::ShardMismatch { at: metadata.at(TENSORS), expected, found });
        }
    }
    Checkpoint::new(path, Source::Gguf(metadata), all.files, all.tensors, HashMap::new())
}

/// The contents of the shards read so far.
struct ShardContents {
    metadata: Option<Metadata>, // of the first shard
    files: Vec<OpenFile>,
    tensors: Vec<Stored>,
}

impl ShardContents {
    fn push(&mut self, file: &Path, gguf: GgufFile, bytes: Arc<FileBytes>) -> Result<(), WeightsError> {
        let index = self.files.len();
        let found = (self.tensors.len() + gguf.tensors.len()) as u64;
        if found > MAX_TENSORS {
            let at = gguf.metadata.at(COUNT);
            return Err(WeightsError::Count { at, found, limit: MAX_TENSORS, why: "tensors are allowed" });
        }
        self.tensors.extend(gguf.tensors.into_iter().map(|t| Stored { file: index, ..t }));
        self.files.push(OpenFile { path: file.to_path_buf(), bytes });
        self.metadata.get_or_insert(gguf.metadata);
        Ok(())
    }
}

fn read(path: &Path) -> Result<(GgufFile, Arc<FileBytes>), WeightsError> {
    let bytes = Arc::new(FileBytes::map(path)?);
    Ok((gguf::read(path, &bytes)?, bytes))
}

fn expect(metadata: &Metadata, key: &str, expected: u64) -> Result<(), WeightsError> {
    let found = metadata.need_u64(key)?;
    if found != expected {
        return Err(WeightsError::ShardMismatch { at: metadata.at(key), expected, found });
    }
    Ok(())
}
