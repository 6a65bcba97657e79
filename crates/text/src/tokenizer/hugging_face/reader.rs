//! Tokenizers from a Hugging Face folder: tokenizer.json and tokenizer_config.json.
//!
//! Of tokenizer.json's many components those are implemented that decoder-only models use; any
//! other is an error, since leaving it out would give other tokens.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use crate::error::{TextError, in_json_words, short};
use crate::tokenizer::added_tokens::{AddedToken, AddedTokenMatcher};
use crate::tokenizer::bpe::{Bpe, Merges, Start};
use crate::tokenizer::encode::Tokenizer;
use crate::tokenizer::end_tokens;
use crate::tokenizer::hugging_face::bpe_model::{Entries, Merge, Model};
use crate::tokenizer::hugging_face::components::{Spaces, TextPipeline};
use crate::tokenizer::normalize::{Normalizer, Prefix, SPACE_MARK};
use crate::tokenizer::spelling::{byte_level_bpe, byte_level_vocab, byte_of, byte_tokens, index, spaced_vocab};
use crate::tokenizer::vocab::{TokenKind, Vocab};

const TOKENIZER: &str = "tokenizer.json";
const CONFIG: &str = "tokenizer_config.json";

#[derive(Deserialize)]
#[serde(expecting = "an object with the field `model`")]
struct File {
    #[serde(default)]
    added_tokens: Vec<AddedTokenJson>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    model: Model,
}

#[derive(Deserialize)]
#[serde(expecting = "an added token: an object with `id` and `content`")]
struct AddedTokenJson {
    id: u32,
    content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    normalized: bool,
    #[serde(default)]
    special: bool,
}

/// The fields of tokenizer_config.json that matter here.
#[derive(Deserialize, Default)]
#[serde(expecting = "an object")]
struct Config {
    #[serde(default)]
    bos_token: Named,
    #[serde(default)]
    eos_token: Named,
    #[serde(default)]
    additional_special_tokens: Option<Vec<Named>>,
    add_bos_token: Option<bool>,
    #[serde(default)]
    chat_template: Templates,
}

/// A token's spelling, alone or as an object.
#[derive(Deserialize, Default)]
#[serde(untagged, expecting = "a token must be a string, an object with `content`, or null")]
enum Named {
    Text(String),
    Object {
        content: String,
    },
    #[default]
    None,
}

impl Named {
    fn text(&self) -> Option<&str> {
        match self {
            Named::Text(text) | Named::Object { content: text } => Some(text),
            Named::None => None,
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(
    untagged,
    expecting = "`chat_template` must be a string, null, or a list of objects with `name` and `template`"
)]
enum Templates {
    One(String),
    Several(Vec<NamedTemplate>),
    #[default]
    None,
}

#[derive(Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

impl Templates {
    /// The one called "default", else the first.
    fn choose(self) -> Option<String> {
        match self {
            Templates::One(source) => Some(source),
            Templates::Several(mut all) => {
                let at = all.iter().position(|t| t.name == "default").unwrap_or(0);
                (at < all.len()).then(|| all.swap_remove(at).template)
            }
            Templates::None => None,
        }
    }
}

impl Tokenizer {
    /// Makes a tokenizer from the bytes of tokenizer.json and, if there is one,
    /// tokenizer_config.json (which names BOS and EOS and holds the chat template:
    /// [`Tokenizer::chat_template_source`]).
    ///
    /// # Errors
    /// [`TextError::BadJson`], and [`TextError::Unsupported`] for components that are not
    /// implemented.
    pub fn from_hf(tokenizer_json: &[u8], tokenizer_config: Option<&[u8]>) -> Result<Tokenizer, TextError> {
        let bad = |file: &'static str| move |e: serde_json::Error| TextError::BadJson { file, what: in_json_words(&e) };
        let file: File = serde_json::from_slice(tokenizer_json).map_err(bad(TOKENIZER))?;
        let config: Config = match tokenizer_config {
            Some(bytes) => serde_json::from_slice(bytes).map_err(bad(CONFIG))?,
            None => Config::default(),
        };
        build(file, config)
    }
}

fn unsupported(part: &'static str, found: impl Into<String>) -> TextError {
    TextError::Unsupported { part, found: short(&found.into()) }
}

fn build(file: File, config: Config) -> Result<Tokenizer, TextError> {
    let model = file.model;
    if let Some(ty) = model.ty.as_deref().filter(|&ty| ty != "BPE") {
        return Err(unsupported("model", ty));
    }
    if model.dropout.is_some_and(|d| d != 0.0) {
        return Err(unsupported("model", "BPE with dropout"));
    }
    if [&model.continuing_subword_prefix, &model.end_of_word_suffix].into_iter().flatten().any(|s| !s.is_empty()) {
        return Err(unsupported("model", "BPE with subword prefix or word suffix"));
    }
    let Entries::Map(ids) = model.vocab else {
        return Err(unsupported("model", "vocabulary that is not a map from text to id"));
    };
    let parts = TextPipeline::read(&file.normalizer, &file.pre_tokenizer)?;

    let special = special_spellings(&file.added_tokens, &config);
    let (tokens, kinds) = tokens(&ids, &file.added_tokens, &special, model.byte_fallback)?;
    let id = |text: &str| {
        let added = file.added_tokens.iter().find(|a| a.content == text).map(|a| a.id);
        added.or_else(|| ids.get(text).copied())
    };
    let bos_of_template = bos_of_template(&file.post_processor);
    let bos = config.bos_token.text().or(bos_of_template.as_deref()).and_then(id);
    let eos = config.eos_token.text().and_then(id);
    let unknown = model.unk_token.as_deref().and_then(id);
    let merges = Merges::Pairs(pairs(&model.merges, &ids, &kinds)?);

    let spaced = parts.spaces == Spaces::Marked;
    let (vocab, bpe) = match parts.spaces {
        Spaces::Bytes => {
            let vocab = byte_level_vocab(tokens, kinds);
            let mut bpe = byte_level_bpe(&vocab, merges, model.ignore_merges, unknown);
            bpe.fuse_unknown = model.fuse_unk;
            (vocab, bpe)
        }
        Spaces::Marked => {
            // Text has no space left after the normalizer, so a piece that holds one is never made.
            let reachable: Vec<bool> = tokens.iter().map(|t| !t.contains(' ')).collect();
            let vocab = spaced_vocab(tokens, kinds);
            let made = |id: u32| {
                reachable[id as usize] && matches!(vocab.kind(id), Some(TokenKind::Normal | TokenKind::UserDefined))
            };
            let bpe = Bpe {
                start: Start::Chars(if model.byte_fallback { byte_tokens(&vocab) } else { None }),
                merges,
                index: index(&vocab, made),
                whole_first: model.ignore_merges,
                unknown,
                fuse_unknown: model.fuse_unk,
                has_unused: false,
            };
            (vocab, bpe)
        }
    };
    let (controls, user, user_normalized) = matchers(&file.added_tokens, &vocab, &parts.normalizer)?;
    Ok(Tokenizer {
        controls,
        user,
        user_normalized,
        bpe,
        stages: parts.stages,
        strips_first_space: spaced && parts.normalizer.prefix != Prefix::Never,
        normalizer: parts.normalizer,
        bos,
        add_bos: config.add_bos_token.unwrap_or(bos_of_template.is_some()),
        eos,
        eos_ids: end_tokens::ids(&vocab, [eos, None]),
        chat_template: config.chat_template.choose(),
        vocab,
    })
}

/// Spellings that some file calls special.
fn special_spellings<'f>(added: &'f [AddedTokenJson], config: &'f Config) -> Vec<&'f str> {
    let from_config = config.additional_special_tokens.iter().flatten().filter_map(Named::text);
    let named = [config.bos_token.text(), config.eos_token.text()].into_iter().flatten();
    let flagged = added.iter().filter(|a| a.special).map(|a| a.content.as_str());
    let mut all: Vec<&str> = from_config.chain(named).chain(flagged).collect();
    all.sort_unstable();
    all
}

/// Texts and kinds by id; ids that no token has are unused and empty.
fn tokens(
    ids: &HashMap<String, u32>,
    added: &[AddedTokenJson],
    special: &[&str],
    byte_fallback: bool,
) -> Result<(Vec<String>, Vec<TokenKind>), TextError> {
    let count = ids.len() + added.len();
    let highest = ids.values().copied().chain(added.iter().map(|a| a.id)).max();
    let Some(highest) = highest.map(|id| id as usize) else {
        return Err(TextError::vocab("model.vocab", "at least one token", "none"));
    };
    // A list by id must not be much longer than what the file holds.
    if highest >= 2 * count + 1024 {
        return Err(TextError::vocab(
            "model.vocab",
            format!("ids near the number of tokens, {count}"),
            highest.to_string(),
        ));
    }
    let mut tokens = vec![String::new(); highest + 1];
    let mut kinds = vec![TokenKind::Unused; highest + 1];
    for (text, &id) in ids {
        let byte = byte_fallback && byte_of(text).is_some();
        tokens[id as usize].clone_from(text);
        kinds[id as usize] = if byte { TokenKind::Byte } else { TokenKind::Normal };
    }
    for token in added {
        tokens[token.id as usize].clone_from(&token.content);
        kinds[token.id as usize] = TokenKind::UserDefined;
    }
    for (text, kind) in tokens.iter().zip(&mut kinds) {
        if *kind != TokenKind::Unused && (special.binary_search(&text.as_str()).is_ok() || end_tokens::ends_turn(text))
        {
            *kind = TokenKind::Control;
        }
    }
    Ok((tokens, kinds))
}

type Pairs = HashMap<(u32, u32), (u32, u32)>;

fn pairs(merges: &[Merge], ids: &HashMap<String, u32>, kinds: &[TokenKind]) -> Result<Pairs, TextError> {
    let mut pairs = HashMap::with_capacity(merges.len());
    for (i, merge) in merges.iter().enumerate() {
        let bad = |got: &str| {
            TextError::vocab(
                format!("model.merges[{i}]"),
                "two tokens whose whole is a token",
                format!("{:?}", short(got)),
            )
        };
        let (left, right) = match merge {
            Merge::Pair(left, right) => (left.as_str(), right.as_str()),
            Merge::Line(line) => line.split_once(' ').ok_or_else(|| bad(line))?,
        };
        let id = |text: &str| ids.get(text).copied().ok_or_else(|| bad(text));
        let whole = id(&format!("{left}{right}"))?;
        if kinds[whole as usize] != TokenKind::Control {
            pairs.insert((id(left)?, id(right)?), (i as u32, whole));
        }
    }
    Ok(pairs)
}

fn matchers(
    added: &[AddedTokenJson],
    vocab: &Vocab,
    normalizer: &Normalizer,
) -> Result<(AddedTokenMatcher, AddedTokenMatcher, AddedTokenMatcher), TextError> {
    let changes_text = !normalizer.steps.is_empty() || normalizer.marks_are_spaces;
    let (mut controls, mut user, mut user_normalized) = (Vec::new(), Vec::new(), Vec::new());
    for token in added {
        let mut added = AddedToken {
            id: token.id,
            spelling: token.content.clone(),
            left_strip: token.lstrip,
            right_strip: token.rstrip,
            single_word: token.single_word,
        };
        if vocab.kind(token.id) == Some(TokenKind::Control) {
            controls.push(added);
        } else if token.normalized && changes_text {
            if normalizer.marks_are_spaces {
                added.spelling = added.spelling.replace(SPACE_MARK, " ");
            }
            user_normalized.push(added);
        } else {
            user.push(added);
        }
    }
    // Control tokens that only the vocabulary and tokenizer_config.json name.
    let listed: std::collections::HashSet<u32> = added.iter().map(|a| a.id).collect();
    let others = vocab.ids().filter(|t| t.2 == TokenKind::Control && !listed.contains(&t.0));
    controls.extend(others.map(|(id, text, _)| AddedToken::plain(id, text)));
    Ok((AddedTokenMatcher::new(controls)?, AddedTokenMatcher::new(user)?, AddedTokenMatcher::new(user_normalized)?))
}

/// The token that the post-processor puts before a single text.
fn bos_of_template(processor: &Value) -> Option<String> {
    match processor.get("type")?.as_str()? {
        "Sequence" => processor.get("processors")?.as_array()?.iter().find_map(bos_of_template),
        "TemplateProcessing" => {
            let first = processor.get("single")?.as_array()?.first()?;
            Some(first.get("SpecialToken")?.get("id")?.as_str()?.to_owned())
        }
        _ => None,
    }
}
