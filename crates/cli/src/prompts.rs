//! Prompt files: JSON lines, each with `prompt`, `messages` or `turns` (of which the first is taken), and perhaps `category`.

use std::path::Path;

use anyhow::Context;
use selfspec_engine::{Message, Prompt};
use serde_json::Value;

use crate::failure::usage;
use crate::request::{Style, message, prompt};

/// The set that this program brings: small, written for it, with tasks whose answers copy from the prompt.
const BUILT_IN: &str = include_str!("prompts/builtin.jsonl");

/// The category of built-in prompts whose answers repeat their prompt.
pub(crate) const COPYING: &str = "copying";

/// One prompt of a set.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Case {
    /// The line of its file, from 1.
    pub(crate) line: usize,
    /// Kind of task; `other` where the line says nothing.
    pub(crate) category: String,
    input: Input,
}

#[derive(Debug, Clone, PartialEq)]
enum Input {
    Text(String),
    Messages(Vec<(String, String)>), // (role, content)
}

impl Case {
    /// A prompt that is not from a file.
    pub(crate) fn of_text(category: &str, text: String) -> Self {
        Case { line: 0, category: category.to_owned(), input: Input::Text(text) }
    }

    /// The prompt in a style. Messages as plain text are their contents, a blank line between them.
    pub(crate) fn prompt(&self, style: Style) -> Prompt {
        match (&self.input, style) {
            (Input::Text(text), _) => prompt(style, None, text),
            (Input::Messages(messages), Style::Chat) => {
                Prompt::Chat(messages.iter().map(|(role, content)| message(role, content)).collect::<Vec<Message>>())
            }
            (Input::Messages(messages), Style::Plain) => {
                Prompt::Text(messages.iter().map(|(_, content)| content.as_str()).collect::<Vec<_>>().join("\n\n"))
            }
        }
    }

    /// Role and content of each message; a text is the user's.
    pub(crate) fn messages(&self) -> Vec<(&str, &str)> {
        match &self.input {
            Input::Text(text) => vec![("user", text)],
            Input::Messages(messages) => {
                messages.iter().map(|(role, content)| (role.as_str(), content.as_str())).collect()
            }
        }
    }

    /// The text, if it can be given to `run -p`.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.input {
            Input::Text(text) => Some(text),
            Input::Messages(_) => None,
        }
    }
}

/// The prompts of a file, or the built-in ones.
pub(crate) fn load(path: Option<&Path>, limit: Option<usize>) -> anyhow::Result<Vec<Case>> {
    let mut cases = match path {
        None => built_in(),
        Some(path) => {
            let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
            parse(&bytes, &path.display().to_string())?
        }
    };
    cases.truncate(limit.unwrap_or(usize::MAX));
    Ok(cases)
}

pub(crate) fn built_in() -> Vec<Case> {
    parse(BUILT_IN.as_bytes(), "the built-in prompts").expect("a test reads the built-in prompts")
}

/// The first prompt of each category.
pub(crate) fn one_of_each(prompts: Vec<Case>) -> Vec<Case> {
    let mut kept: Vec<Case> = Vec::new();
    for case in prompts {
        if kept.iter().all(|k| k.category != case.category) {
            kept.push(case);
        }
    }
    kept
}

/// The prompts in the text of a file; `name` stands in errors.
pub(crate) fn parse(bytes: &[u8], name: &str) -> anyhow::Result<Vec<Case>> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes); // a byte order mark
    let mut cases = Vec::new();
    for (i, line) in bytes.split(|b| *b == b'\n').enumerate() {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let case = parse_line(line, i + 1).map_err(|why| usage(format!("{name}, line {}: {why}", i + 1), None))?;
        cases.push(case);
    }
    if cases.is_empty() {
        return Err(usage(format!("{name}: no prompts"), None));
    }
    Ok(cases)
}

fn parse_line(line: &[u8], number: usize) -> Result<Case, String> {
    let value: Value = serde_json::from_slice(line).map_err(|e| not_json(&e))?;
    let object = value.as_object().ok_or("not a JSON object")?;
    let category = match object.get("category") {
        None | Some(Value::Null) => "other".to_owned(),
        Some(Value::String(category)) => category.clone(),
        Some(_) => return Err("`category` is not a string".to_owned()),
    };
    let mut inputs = Vec::new();
    if let Some(prompt) = object.get("prompt") {
        inputs.push(Input::Text(string(prompt, "`prompt`")?));
    }
    if let Some(messages) = object.get("messages") {
        inputs.push(Input::Messages(read_messages(messages)?));
    }
    if let Some(turns) = object.get("turns") {
        let first = turns.as_array().ok_or("`turns` is not an array")?.first().ok_or("`turns` is empty")?;
        inputs.push(Input::Text(string(first, "the first of `turns`")?));
    }
    match <[Input; 1]>::try_from(inputs) {
        Ok([input]) => Ok(Case { line: number, category, input }),
        Err(inputs) if inputs.is_empty() => Err("none of `prompt`, `messages` and `turns`".to_owned()),
        Err(_) => Err("more than one of `prompt`, `messages` and `turns`".to_owned()),
    }
}

/// What the parser says, without its own count of lines: it sees one line of the file.
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
    use super::*;

    #[test]
    fn the_built_in_prompts_cover_their_categories() {
        let cases = built_in();
        for category in ["chat", "code", COPYING, "unicode"] {
            assert!(cases.iter().filter(|c| c.category == category).count() >= 3, "{category}");
        }
        assert!(cases.iter().all(|c| c.text().is_some_and(|t| !t.is_empty())));
    }

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
        let Prompt::Text(plain) = cases[1].prompt(Style::Plain) else { panic!("plain text") };
        assert_eq!(plain, "s\n\nu");
        let Prompt::Chat(chat) = cases[0].prompt(Style::Chat) else { panic!("a chat") };
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
