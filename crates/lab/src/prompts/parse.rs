//! Prompt files: JSON lines, each with `prompt`, `messages` or `turns` (of which the first is
//! taken), and perhaps `category`.

use std::path::PathBuf;

use serde_json::Value;

use super::case::{PromptCase, PromptInput};

/// Why a set of prompts cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PromptsError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line is no prompt.
    #[error("{name}, line {line}: {why}")]
    Line {
        /// The file.
        name: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// There are no prompts.
    #[error("{name}: no prompts")]
    Empty {
        /// The file.
        name: String,
    },
}

/// The prompts in the text of a file; `name` stands in errors.
///
/// # Errors
/// A line is no prompt, or there are none.
pub fn parse(bytes: &[u8], name: &str) -> Result<Vec<PromptCase>, PromptsError> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes); // a byte order mark
    let mut cases = Vec::new();
    for (i, line) in bytes.split(|b| *b == b'\n').enumerate() {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let wrong = |why| PromptsError::Line { name: name.to_owned(), line: i + 1, why };
        cases.push(parse_line(line, i + 1).map_err(wrong)?);
    }
    if cases.is_empty() {
        return Err(PromptsError::Empty { name: name.to_owned() });
    }
    Ok(cases)
}

fn parse_line(line: &[u8], number: usize) -> Result<PromptCase, String> {
    let value: Value = serde_json::from_slice(line).map_err(|e| not_json(&e))?;
    let object = value.as_object().ok_or("not a JSON object")?;
    let category = match object.get("category") {
        None | Some(Value::Null) => "other".to_owned(),
        Some(Value::String(category)) => category.clone(),
        Some(_) => return Err("`category` is not a string".to_owned()),
    };
    let mut inputs = Vec::new();
    if let Some(prompt) = object.get("prompt") {
        inputs.push(PromptInput::Text(string(prompt, "`prompt`")?));
    }
    if let Some(messages) = object.get("messages") {
        inputs.push(PromptInput::Messages(read_messages(messages)?));
    }
    if let Some(turns) = object.get("turns") {
        let first = turns.as_array().ok_or("`turns` is not an array")?.first().ok_or("`turns` is empty")?;
        inputs.push(PromptInput::Text(string(first, "the first of `turns`")?));
    }
    match <[PromptInput; 1]>::try_from(inputs) {
        Ok([input]) => Ok(PromptCase { line: number, category, input }),
        Err(inputs) if inputs.is_empty() => Err("none of `prompt`, `messages` and `turns`".to_owned()),
        Err(_) => Err("more than one of `prompt`, `messages` and `turns`".to_owned()),
    }
}

/// The parser's message without its line number: it sees one line of the file.
fn not_json(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    format!("not JSON: {what} at column {}", error.column())
}

fn string(value: &Value, what: &str) -> Result<String, String> {
    match value.as_str() {
        Some("") => Err(format!("{what} is empty")),
        Some(text) => Ok(text.to_owned()),
        None => Err(format!("{what} is not a string")),
    }
}

fn read_messages(value: &Value) -> Result<Vec<(String, String)>, String> {
    let messages = value.as_array().ok_or("`messages` is not an array")?;
    if messages.is_empty() {
        return Err("`messages` is empty".to_owned());
    }
    let field = |i: usize, message: &Value, key: &str| {
        let value = message.get(key).and_then(Value::as_str).map(str::to_owned);
        value.ok_or_else(|| format!("`messages`, number {}: no string `{key}`", i + 1))
    };
    messages.iter().enumerate().map(|(i, m)| Ok((field(i, m, "role")?, field(i, m, "content")?))).collect()
}

#[cfg(test)]
mod tests {
    use selfspec_engine::Prompt;

    use super::*;
    use crate::prompts::PromptStyle;

    #[test]
    fn the_three_forms_are_read() {
        let text = concat!(
            "\u{feff}{\"prompt\": \"a\", \"category\": \"x\"}\n\n",
            "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"u\"}]}\n",
            "{\"turns\": [\"first\", \"second\"], \"question_id\": 7}"
        );
        let cases = parse(text.as_bytes(), "f").expect("valid");
        assert_eq!((cases[0].line, cases[0].category.as_str(), cases[0].text()), (1, "x", Some("a")));
        assert_eq!((cases[1].line, cases[1].category.as_str(), cases[1].text()), (3, "other", None));
        assert_eq!(cases[2].text(), Some("first"));
        let Prompt::Text(plain) = cases[1].prompt(PromptStyle::Plain) else { panic!("plain text") };
        assert_eq!(plain, "s\n\nu");
        let Prompt::Chat(chat) = cases[0].prompt(PromptStyle::Chat) else { panic!("a chat") };
        assert_eq!((chat.len(), chat[0].role.as_str(), chat[0].content.as_str()), (1, "user", "a"));
    }

    #[test]
    fn bad_lines_are_named_by_number() {
        for (line, why) in [
            ("{\"a\" 1}", "line 2: not JSON: expected `:` at column 6"),
            ("[]", "line 2: not a JSON object"),
            ("{}", "line 2: none of"),
            ("{\"prompt\": 1}", "line 2: `prompt` is not a string"),
            ("{\"prompt\": \"\"}", "line 2: `prompt` is empty"),
            ("{\"turns\": []}", "line 2: `turns` is empty"),
            ("{\"messages\": [{\"role\": \"user\"}]}", "line 2: `messages`, number 1: no string `content`"),
            ("{\"prompt\": \"a\", \"turns\": [\"b\"]}", "line 2: more than one of"),
            ("{\"prompt\": \"a\", \"category\": 3}", "line 2: `category` is not a string"),
        ] {
            let text = format!("{{\"prompt\": \"a\"}}\n{line}\n");
            let error = parse(text.as_bytes(), "f.jsonl").expect_err(line).to_string();
            assert!(error.starts_with("f.jsonl, ") && error.contains(why), "{error}");
        }
        assert!(parse(b"\xff\n", "f").is_err() && parse(b" \n", "f").is_err());
    }
}
