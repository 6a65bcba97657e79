//! The normalizer and the pre-tokenizer of tokenizer.json, as steps and stages.

use serde_json::Value;

use crate::error::{TextError, short};
use crate::tokenizer::normalize::{Normalizer, Prefix, SPACE_MARK, Step};
use crate::tokenizer::pretokenize::{Behavior, GPT2, Stage};

/// How the vocabulary writes a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spaces {
    /// In the byte alphabet, as `Ġ`.
    Bytes,
    /// As `▁`.
    Marked,
}

pub(crate) struct TextPipeline {
    pub(crate) normalizer: Normalizer,
    pub(crate) stages: Vec<Stage>,
    pub(crate) spaces: Spaces,
}

impl TextPipeline {
    pub(crate) fn read(normalizer: &Value, pre_tokenizer: &Value) -> Result<TextPipeline, TextError> {
        let mut parts = TextPipeline { normalizer: Normalizer::default(), stages: Vec::new(), spaces: Spaces::Marked };
        parts.normalizer(normalizer)?;
        parts.pre_tokenizer(pre_tokenizer, false)?;
        if parts.spaces == Spaces::Marked && !parts.normalizer.marks_are_spaces {
            let found = pre_tokenizer.get("type").and_then(Value::as_str).unwrap_or("none");
            return Err(TextError::Unsupported {
                part: "pre_tokenizer",
                found: format!("{} without ByteLevel", short(found)),
            });
        }
        Ok(parts)
    }

    fn normalizer(&mut self, value: &Value) -> Result<(), TextError> {
        if value.is_null() {
            return Ok(());
        }
        let ty = text(value, "type").unwrap_or_default();
        let steps = &mut self.normalizer.steps;
        match ty {
            "Sequence" => {
                for item in value.get("normalizers").and_then(Value::as_array).into_iter().flatten() {
                    self.normalizer(item)?;
                }
            }
            "NFC" => steps.push(Step::Nfc),
            "NFD" => steps.push(Step::Nfd),
            "NFKC" => steps.push(Step::Nfkc),
            "NFKD" => steps.push(Step::Nfkd),
            "Lowercase" => steps.push(Step::Lowercase),
            "Strip" => steps.push(Step::Strip { left: flag(value, "strip_left"), right: flag(value, "strip_right") }),
            "Prepend" => match text(value, "prepend") {
                Some("▁") => self.normalizer.prefix = Prefix::Always,
                Some(prefix) => steps.push(Step::Prepend(prefix.to_owned())),
                None => return Err(unsupported("normalizer", value)),
            },
            "Replace" => {
                let from = value.get("pattern").and_then(|p| text(p, "String"));
                match (from, text(value, "content")) {
                    (Some(" "), Some("▁")) => self.normalizer.marks_are_spaces = true,
                    (Some(from), Some(to)) if !from.is_empty() && !from.contains(SPACE_MARK) => {
                        steps.push(Step::Replace { from: from.to_owned(), to: to.to_owned() });
                    }
                    _ => return Err(unsupported("normalizer", value)),
                }
            }
            _ => return Err(unsupported("normalizer", value)),
        }
        Ok(())
    }

    /// `inside`: another component of a sequence came before.
    fn pre_tokenizer(&mut self, value: &Value, inside: bool) -> Result<(), TextError> {
        if value.is_null() {
            return Ok(());
        }
        match text(value, "type").unwrap_or_default() {
            "Sequence" => {
                let items = value.get("pretokenizers").and_then(Value::as_array);
                for (i, item) in items.into_iter().flatten().enumerate() {
                    self.pre_tokenizer(item, inside || i > 0)?;
                }
            }
            "ByteLevel" => {
                self.spaces = Spaces::Bytes;
                if flag(value, "add_prefix_space") {
                    if inside {
                        return Err(unsupported("pre_tokenizer", value));
                    }
                    self.normalizer.prefix = Prefix::UnlessSpace;
                }
                if value.get("use_regex").and_then(Value::as_bool).unwrap_or(true) {
                    self.stages.push(Stage::isolated(GPT2)?);
                }
            }
            "Digits" => {
                self.stages.push(if flag(value, "individual_digits") { Stage::Digits } else { Stage::DigitRuns })
            }
            "Metaspace" => self.metaspace(value)?,
            "Split" => self.split(value)?,
            _ => return Err(unsupported("pre_tokenizer", value)),
        }
        Ok(())
    }

    fn metaspace(&mut self, value: &Value) -> Result<(), TextError> {
        if text(value, "replacement") != Some("▁") {
            return Err(unsupported("pre_tokenizer", value));
        }
        self.normalizer.marks_are_spaces = true;
        // Before tokenizers 0.15 a flag stood in place of the scheme.
        let by_flag =
            if value.get("add_prefix_space").and_then(Value::as_bool) == Some(false) { "never" } else { "always" };
        self.normalizer.prefix = match text(value, "prepend_scheme").unwrap_or(by_flag) {
            "always" => Prefix::UnlessSpace,
            "first" => Prefix::First,
            "never" => Prefix::Never,
            _ => return Err(unsupported("pre_tokenizer", value)),
        };
        if value.get("split").and_then(Value::as_bool).unwrap_or(true) {
            self.stages.push(Stage::Spaces);
        }
        Ok(())
    }

    fn split(&mut self, value: &Value) -> Result<(), TextError> {
        let pattern = value.get("pattern");
        let literal = pattern.and_then(|p| text(p, "String"));
        let Some(expression) = literal
            .map(|s| fancy_regex::escape(s).into_owned())
            .or_else(|| pattern.and_then(|p| text(p, "Regex")).map(str::to_owned))
        else {
            return Err(unsupported("pre_tokenizer", value));
        };
        if self.normalizer.marks_are_spaces {
            // After spaces have become `▁`, a pattern for a space matches nothing; others would see
            // real spaces here.
            return if literal == Some(" ") { Ok(()) } else { Err(unsupported("pre_tokenizer", value)) };
        }
        let behavior = match text(value, "behavior") {
            Some("Isolated") => Behavior::Isolated,
            Some("Removed") => Behavior::Removed,
            Some("MergedWithPrevious") => Behavior::MergedWithPrevious,
            Some("MergedWithNext") => Behavior::MergedWithNext,
            Some("Contiguous") => Behavior::Contiguous,
            _ => return Err(unsupported("pre_tokenizer", value)),
        };
        let invert = flag(value, "invert");
        self.stages.push(if behavior == Behavior::Isolated && !invert {
            Stage::isolated(&expression)?
        } else {
            Stage::general(&expression, behavior, invert)?
        });
        Ok(())
    }
}

fn text<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    value.get(key).and_then(Value::as_str)
}

fn flag(value: &Value, key: &str) -> bool {
    value.get(key).and_then(Value::as_bool).unwrap_or(false)
}

fn unsupported(part: &'static str, value: &Value) -> TextError {
    TextError::Unsupported { part, found: short(&value.to_string()) }
}
