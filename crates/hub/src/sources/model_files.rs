//! Chooses the files of a repository that are the model.

use std::collections::BTreeMap;

use crate::error::HubError;

/// The files of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ModelFiles {
    /// A GGUF file, or all shards of one in order.
    Gguf(Vec<String>),
    /// config.json, tokenizer and safetensors.
    Folder,
}

/// Small files of a Hugging Face folder: configuration, tokenizer, chat template. Each is optional.
pub(crate) const FOLDER_FILES: &[&str] = &[
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
];

/// Name of the file that maps tensors to shards.
pub(crate) const INDEX: &str = "model.safetensors.index.json";

/// The only model among `files`: a GGUF (its shards count as one), else a folder of safetensors.
/// `what` names the place in messages.
pub(crate) fn choose(what: &str, files: &[String]) -> Result<ModelFiles, HubError> {
    let mut models: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files.iter().filter(|f| is_gguf_model(f)) {
        models.entry(shard_of(file).map_or_else(|| file.clone(), |s| s.stem)).or_default().push(file.clone());
    }
    for shards in models.values_mut() {
        shards.sort();
    }
    let has = |name: &str| files.iter().any(|f| f == name);
    match (models.len(), models.into_values().next_back()) {
        (1, Some(shards)) => Ok(ModelFiles::Gguf(shards)),
        (0, _) if has("config.json") && (has(INDEX) || has("model.safetensors")) => Ok(ModelFiles::Folder),
        (0, _) => Err(HubError::NoModel { what: what.to_owned(), have: files.to_vec() }),
        _ => Err(HubError::Ambiguous { what: what.to_owned(), choices: gguf_choices(what, files) }),
    }
}

fn gguf_choices(what: &str, files: &[String]) -> Vec<String> {
    let first = |f: &&String| is_gguf_model(f) && shard_of(f).is_none_or(|s| s.index == 1);
    let mut names: Vec<_> = files.iter().filter(first).map(|f| format!("{what}/{f}")).collect();
    names.sort();
    names
}

/// A GGUF that holds a language model; image projectors and importance matrices do not.
fn is_gguf_model(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file).to_ascii_lowercase();
    name.ends_with(".gguf") && !name.starts_with("mmproj") && !name.contains("imatrix")
}

/// A shard's place among its siblings.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GgufShard {
    pub(crate) stem: String, // everything before `-0000i-of-0000n.gguf`
    pub(crate) index: usize,
    pub(crate) count: usize,
}

/// Reads `stem-00002-of-00005.gguf`.
pub(crate) fn shard_of(file: &str) -> Option<GgufShard> {
    let rest = file.strip_suffix(".gguf")?;
    let (rest, count) = rest.rsplit_once("-of-")?;
    let (stem, index) = rest.rsplit_once('-')?;
    let number = |s: &str| (s.len() == 5).then(|| s.parse::<usize>().ok()).flatten();
    let (index, count) = (number(index)?, number(count)?);
    (1 <= index && index <= count).then(|| GgufShard { stem: stem.to_owned(), index, count })
}

/// All shards of the model that `file` belongs to, in order; just the file if it is not a shard.
pub(crate) fn with_siblings(file: &str) -> Vec<String> {
    match shard_of(file) {
        Some(s) => (1..=s.count).map(|i| format!("{}-{i:05}-of-{:05}.gguf", s.stem, s.count)).collect(),
        None => vec![file.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(files: &[&str]) -> Vec<String> {
        files.iter().map(|f| (*f).to_owned()).collect()
    }

    #[test]
    fn a_single_gguf_is_chosen_whatever_is_beside_it() {
        let files = names(&["README.md", "mmproj-model-f16.gguf", "model.gguf", "config.json", "model.safetensors"]);
        assert_eq!(choose("hf:o/r", &files).expect("one"), ModelFiles::Gguf(names(&["model.gguf"])));
    }

    #[test]
    fn shards_count_as_one_model() {
        let files = names(&["m-00002-of-00002.gguf", "m-00001-of-00002.gguf"]);
        let shards = names(&["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]);
        assert_eq!(choose("hf:o/r", &files).expect("one"), ModelFiles::Gguf(shards.clone()));
        assert_eq!(with_siblings("m-00002-of-00002.gguf"), shards);
        assert_eq!(with_siblings("m.gguf"), names(&["m.gguf"]));
        for odd in ["m-00003-of-00002.gguf", "m-00000-of-00002.gguf", "m-1-of-2.gguf", "m-of-00002.gguf"] {
            assert_eq!(shard_of(odd), None, "{odd}");
        }
    }

    #[test]
    fn several_models_are_listed_with_names_that_select_one() {
        let files = names(&["q8.gguf", "q4.gguf", "big-00001-of-00002.gguf", "big-00002-of-00002.gguf"]);
        let Err(HubError::Ambiguous { choices, .. }) = choose("hf:o/r", &files) else { panic!("ambiguous") };
        assert_eq!(choices, ["hf:o/r/big-00001-of-00002.gguf", "hf:o/r/q4.gguf", "hf:o/r/q8.gguf"]);
    }

    #[test]
    fn without_a_gguf_a_folder_needs_config_and_weights() {
        assert_eq!(choose("w", &names(&["config.json", INDEX])).expect("folder"), ModelFiles::Folder);
        assert_eq!(choose("w", &names(&["config.json", "model.safetensors"])).expect("folder"), ModelFiles::Folder);
        for files in [&["config.json"][..], &["model.safetensors"], &[]] {
            assert!(matches!(choose("w", &names(files)), Err(HubError::NoModel { .. })), "{files:?}");
        }
    }
}
