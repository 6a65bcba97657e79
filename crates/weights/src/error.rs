//! The faults of a checkpoint, each with its place.

use std::fmt::{self, Display, Write as _};
use std::path::{Path, PathBuf};

use crate::types::TensorType;

/// A place in a file: the field or tensor and the byte offset at which it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePlace {
    /// The file.
    pub file: PathBuf,
    /// The field, metadata key or tensor; on one line and cut to a readable length, whatever the
    /// file holds.
    pub field: String,
    /// Byte offset from the start of the file.
    pub offset: u64,
}

impl FilePlace {
    pub(crate) fn new(file: &Path, field: impl Display, offset: u64) -> FilePlace {
        let mut out = OneLine { text: String::new(), chars: 0 };
        // An error here only means that the text is as long as it may get.
        let _ = write!(out, "{field}");
        FilePlace { file: file.to_path_buf(), field: out.text, offset }
    }
}

impl Display for FilePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} at byte {}", self.file.display(), self.field, self.offset)
    }
}

/// The names of the types that can be read.
fn supported_types() -> String {
    TensorType::ALL.map(TensorType::name).join(", ")
}

/// Text from a file, escaped to one line and cut off, without first being built in full.
pub(crate) fn one_line(text: impl Display) -> String {
    let mut out = OneLine { text: String::new(), chars: 0 };
    let _ = write!(out, "{text}");
    out.text
}

struct OneLine {
    text: String,
    chars: usize,
}

impl fmt::Write for OneLine {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        for c in s.chars() {
            if self.chars == 160 {
                self.text.push('…');
                return Err(fmt::Error);
            }
            self.chars += 1;
            if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') {
                self.text.extend(c.escape_default());
            } else {
                self.text.push(c);
            }
        }
        Ok(())
    }
}

/// Why a checkpoint cannot be read. Every message is one line that names the file and, inside a
/// file, field and byte offset.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// The operating system refused.
    #[error("{}: cannot {doing}: {source}", .file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The operation that failed.
        doing: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Neither a regular file nor a folder.
    #[error("{}: not a regular file", .file.display())]
    NotAFile {
        /// The path.
        file: PathBuf,
    },
    /// A file of 0 bytes.
    #[error("{}: magic at byte 0: the file is empty", .file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
    /// A Hugging Face folder, or one of its indexes, without a file that it must have.
    #[error("{}: missing: {wanted_by} needs it", .file.display())]
    MissingFile {
        /// The file that is not there.
        file: PathBuf,
        /// The file or folder that needs it.
        wanted_by: String,
    },
    /// The file ends before the field does.
    #[error("{at}: the file ends early: {needed} bytes needed, {available} left")]
    Truncated {
        /// The field.
        at: FilePlace,
        /// Bytes that the field needs.
        needed: u64,
        /// Bytes from there to the end of the file.
        available: u64,
    },
    /// The first four bytes are not "GGUF".
    #[error("{at}: not a GGUF file: expected \"GGUF\", got {found}")]
    Magic {
        /// The magic.
        at: FilePlace,
        /// The first four bytes, escaped.
        found: String,
    },
    /// A big-endian GGUF file.
    #[error("{at}: the file is big-endian (GGUF version {version}); only little-endian files can be read")]
    BigEndian {
        /// The version.
        at: FilePlace,
        /// The version, read as big-endian.
        version: u32,
    },
    /// A GGUF version other than 2 and 3.
    #[error("{at}: GGUF version {found} is not supported: expected 2 or 3")]
    Version {
        /// The version.
        at: FilePlace,
        /// The value in the file.
        found: u32,
    },
    /// A count that the rest of the file cannot hold, or beyond this reader's limit.
    #[error("{at}: a count of {found} is too large: at most {limit} {why}")]
    Count {
        /// The count.
        at: FilePlace,
        /// The value in the file.
        found: u64,
        /// The largest possible here.
        limit: u64,
        /// Where the limit comes from.
        why: &'static str,
    },
    /// A string or header that is longer than this reader allows.
    #[error("{at}: too long: {len} bytes, at most {limit} are allowed")]
    TooLong {
        /// The string or header.
        at: FilePlace,
        /// Its length in bytes.
        len: u64,
        /// The longest allowed.
        limit: u64,
    },
    /// A string that is not UTF-8.
    #[error("{at}: not UTF-8")]
    Utf8 {
        /// The string, at its first bad byte.
        at: FilePlace,
    },
    /// A metadata value type that GGUF does not define.
    #[error("{at}: unknown value type {found}: expected 0 to 12")]
    ValueType {
        /// The type.
        at: FilePlace,
        /// The value in the file.
        found: u32,
    },
    /// A bool that is neither 0 nor 1.
    #[error("{at}: a bool of {found}: expected 0 or 1")]
    Bool {
        /// The value.
        at: FilePlace,
        /// The value in the file.
        found: u8,
    },
    /// Arrays of arrays, deeper than the limit.
    #[error("{at}: arrays are nested more than {limit} deep")]
    Nesting {
        /// The array.
        at: FilePlace,
        /// The deepest allowed.
        limit: u32,
    },
    /// A metadata key, or a key of a JSON object, that occurs twice.
    #[error("{at}: the key occurs twice")]
    DuplicateKey {
        /// The second one.
        at: FilePlace,
    },
    /// A tensor name that occurs twice.
    #[error("{at}: the tensor occurs twice")]
    DuplicateTensor {
        /// The second one.
        at: FilePlace,
    },
    /// A metadata key that must be there and is not.
    #[error("{}: {key} at byte {offset}: the metadata lacks this key", .file.display())]
    MissingKey {
        /// The file.
        file: PathBuf,
        /// The key.
        key: String,
        /// Where the metadata ends.
        offset: u64,
    },
    /// A metadata value of another type than its key needs.
    #[error("{at}: wrong type: expected {expected}, got {found}")]
    KeyType {
        /// The value.
        at: FilePlace,
        /// The type that is needed.
        expected: &'static str,
        /// The type that it has.
        found: String,
    },
    /// A metadata value of the right type that is out of range.
    #[error("{at}: out of range: expected {expected}, got {found}")]
    KeyRange {
        /// The value.
        at: FilePlace,
        /// The range.
        expected: &'static str,
        /// The value.
        found: String,
    },
    /// An alignment that is not a power of two from 8 to 65536.
    #[error("{at}: an alignment of {found}: expected a power of two from 8 to 65536")]
    Alignment {
        /// The value.
        at: FilePlace,
        /// The value in the file.
        found: u64,
    },
    /// A tensor with too few or too many dimensions.
    #[error("{at}: {found} dimensions: expected {expected}")]
    Dimensions {
        /// The tensor.
        at: FilePlace,
        /// Their number.
        found: u64,
        /// The allowed values.
        expected: &'static str,
    },
    /// A dimension of 0.
    #[error("{at}: dimension {dim} is 0")]
    ZeroDimension {
        /// The tensor.
        at: FilePlace,
        /// Which one, in the file's order.
        dim: usize,
    },
    /// Dimensions whose product, in bytes, overflows.
    #[error("{at}: the size of {shape} overflows")]
    SizeOverflow {
        /// The tensor.
        at: FilePlace,
        /// The dimensions, in the file's order.
        shape: String,
    },
    /// An innermost dimension that is no multiple of the type's block.
    #[error("{at}: rows of {k} values do not divide into {ty} blocks of {block}")]
    BlockLength {
        /// The tensor.
        at: FilePlace,
        /// Innermost dimension.
        k: u64,
        /// The type.
        ty: &'static str,
        /// Its block length.
        block: usize,
    },
    /// A tensor type that is not known at all.
    #[error("{at}: unknown tensor type {id}")]
    UnknownType {
        /// The tensor.
        at: FilePlace,
        /// The id or name in the file.
        id: String,
    },
    /// A tensor type that is known but cannot be run.
    #[error("{at}: tensor type {ty} is not supported: expected one of {}", supported_types())]
    UnsupportedType {
        /// The tensor.
        at: FilePlace,
        /// The type's name.
        ty: String,
    },
    /// A tensor's data is not where the alignment wants it.
    #[error("{at}: data offset {found} is not a multiple of the alignment {alignment}")]
    Unaligned {
        /// The tensor.
        at: FilePlace,
        /// The offset within the data section.
        found: u64,
        /// The alignment.
        alignment: u64,
    },
    /// A tensor's data lies outside the data section.
    #[error("{at}: data out of range: {len} bytes from {start} in a data section of {section}")]
    OutOfRange {
        /// The tensor.
        at: FilePlace,
        /// First byte within the data section.
        start: u64,
        /// Length of the data.
        len: u64,
        /// Length of the data section.
        section: u64,
    },
    /// Two tensors share bytes.
    #[error("{at}: data overlaps that of {other}")]
    Overlap {
        /// The later tensor.
        at: FilePlace,
        /// The earlier tensor.
        other: String,
    },
    /// Bytes of a safetensors file that belong to no tensor.
    #[error("{at}: {len} bytes belong to no tensor")]
    TokenGap {
        /// The tensor after the gap; the offset is that of the gap.
        at: FilePlace,
        /// Its length.
        len: u64,
    },
    /// A tensor whose data is not as long as shape and type say.
    #[error("{at}: {ty} of {shape} needs {expected} bytes, got {found}")]
    DataSize {
        /// The tensor.
        at: FilePlace,
        /// Its type.
        ty: String,
        /// Its shape.
        shape: String,
        /// Bytes that it needs.
        expected: u64,
        /// Bytes that it is given.
        found: u64,
    },
    /// Text that is not the JSON it should be.
    #[error("{at}: {why}")]
    Json {
        /// Where the parser stopped.
        at: FilePlace,
        /// The parser's reason.
        why: String,
    },
    /// A shard of a GGUF model whose file is not named `NAME-0000i-of-0000n.gguf` as its metadata
    /// says.
    #[error("{at}: the file is shard {shard} of {count}, so its name must end in -{shard:05}-of-{count:05}.gguf")]
    ShardName {
        /// The metadata.
        at: FilePlace,
        /// Which shard it is, from 1.
        shard: u64,
        /// How many there are.
        count: u64,
    },
    /// A shard that does not belong to the others.
    #[error("{at}: the shards disagree: expected {expected}, got {found}")]
    ShardMismatch {
        /// The metadata.
        at: FilePlace,
        /// The value in the other shards.
        expected: u64,
        /// The value in this shard.
        found: u64,
    },
    /// A shard that is not there.
    #[error("{}: missing: shard {shard} of {count}", .file.display())]
    ShardMissing {
        /// Where it should be.
        file: PathBuf,
        /// Which shard it is, from 1.
        shard: u64,
        /// How many there are.
        count: u64,
    },
    /// An index that names a file which is not inside its folder.
    #[error("{at}: names the file \"{name}\", which is not inside the folder")]
    OutsideFolder {
        /// The tensor of the index.
        at: FilePlace,
        /// The name.
        name: String,
    },
    /// A tensor that the index promises and its shard lacks.
    #[error("{at}: the tensor is not in {shard}, where the index puts it")]
    NotInShard {
        /// The tensor of the index.
        at: FilePlace,
        /// The shard's file name.
        shard: String,
    },
    /// A tensor that must be there and is not.
    #[error("{}: the tensor {name} is missing", .file.display())]
    MissingTensor {
        /// The checkpoint.
        file: PathBuf,
        /// The tensor.
        name: String,
    },
}
