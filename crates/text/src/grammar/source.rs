//! What a text must be, before it is compiled.

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use serde_json::{Value, json};

/// What a text must be.
#[derive(Debug, Clone, PartialEq)]
pub enum GrammarSource {
    /// A JSON value by this schema, written as [`one_line`] has it.
    JsonSchema(Value),
    /// Any JSON object, written likewise.
    JsonObject,
    /// A text that this regular expression matches from end to end (syntax of the crate `regex`,
    /// without look-around).
    Regex(String),
    /// A text by this grammar (llguidance's variant of Lark; the rule `start` is the whole text).
    Lark(String),
}

impl GrammarSource {
    /// Whether expressions may hold at the same time, so that the work is bounded by fuel alone.
    pub fn intersects(&self) -> bool {
        let keywords = ["\"pattern", "\"format\"", "\"multipleOf\""];
        let holds = |text: &str| keywords.iter().any(|keyword| text.contains(keyword));
        match self {
            GrammarSource::JsonSchema(schema) => holds(&schema.to_string()),
            GrammarSource::Lark(text) => holds(text),
            GrammarSource::JsonObject | GrammarSource::Regex(_) => false,
        }
    }

    /// As llguidance reads it.
    pub(crate) fn for_compiler(&self) -> TopLevelGrammar {
        let schema = |schema: Value| GrammarWithLexer::from_json_schema(one_line(schema));
        TopLevelGrammar::from_grammar(match self {
            GrammarSource::JsonSchema(source) => schema(source.clone()),
            GrammarSource::JsonObject => schema(json!({ "type": "object" })),
            GrammarSource::Regex(source) => GrammarWithLexer::from_regex(source),
            GrammarSource::Lark(source) => GrammarWithLexer::from_lark(source.clone()),
        })
    }
}

/// The schema, of values on one line, with one space after `,` and `:`, unless it says otherwise
/// (`x-guidance`): with one way to write a value more of the text is forced, and a small model
/// cannot lose itself in white space.
pub fn one_line(mut schema: Value) -> Value {
    if let Value::Object(map) = &mut schema {
        let style = json!({ "item_separator": ", ", "key_separator": ": ", "whitespace_flexible": false });
        map.entry("x-guidance").or_insert(style);
    }
    schema
}
