//! The `model` of tokenizer.json as it is written, read without intermediate copies: it holds
//! nearly all of the file.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

#[derive(Deserialize)]
#[serde(expecting = "a model: an object with `vocab` and `merges`")]
pub(crate) struct Model {
    #[serde(rename = "type")]
    pub(crate) ty: Option<String>,
    #[serde(default)]
    pub(crate) vocab: Entries,
    #[serde(default)]
    pub(crate) merges: Vec<Merge>,
    pub(crate) unk_token: Option<String>,
    pub(crate) dropout: Option<f64>,
    pub(crate) continuing_subword_prefix: Option<String>,
    pub(crate) end_of_word_suffix: Option<String>,
    #[serde(default)]
    pub(crate) fuse_unk: bool,
    #[serde(default)]
    pub(crate) byte_fallback: bool,
    #[serde(default)]
    pub(crate) ignore_merges: bool,
}

/// The vocabulary of a BPE model, or what another model has in its place.
#[derive(Default)]
pub(crate) enum Entries {
    Map(HashMap<String, u32>),
    #[default]
    Other,
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from token to id")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Entries, A::Error> {
                let mut map = HashMap::new();
                while let Some((text, id)) = entries.next_entry()? {
                    map.insert(text, id);
                }
                Ok(Entries::Map(map))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Entries, A::Error> {
                while items.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Entries::Other)
            }

            fn visit_unit<E: Error>(self) -> Result<Entries, E> {
                Ok(Entries::Other)
            }
        }
        deserializer.deserialize_any(Read)
    }
}

/// "left right", or both apart since tokenizers 0.20.
pub(crate) enum Merge {
    Pair(String, String),
    Line(String),
}

impl<'de> Deserialize<'de> for Merge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Merge;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a merge: two tokens")
            }

            fn visit_str<E: Error>(self, line: &str) -> Result<Merge, E> {
                Ok(Merge::Line(line.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Merge, A::Error> {
                let mut part = |i| items.next_element()?.ok_or_else(|| A::Error::invalid_length(i, &self));
                let pair = Merge::Pair(part(0)?, part(1)?);
                match items.next_element::<IgnoredAny>()? {
                    None => Ok(pair),
                    Some(_) => Err(A::Error::invalid_length(3, &self)),
                }
            }
        }
        deserializer.deserialize_any(Read)
    }
}
