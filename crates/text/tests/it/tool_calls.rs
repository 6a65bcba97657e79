use std::sync::Arc;

use proptest::prelude::*;
use selfspec_text::{AnswerPiece, ToolCallReader, ToolStyle};

/// Reads an answer in parts. Texts that follow each other are one.
fn read(style: ToolStyle, most: usize, parts: &[&str]) -> Vec<AnswerPiece> {
    let names: Arc<[String]> = ["add", "get_weather"].map(str::to_owned).into();
    let mut reader = ToolCallReader::new(style, names, most);
    let mut all: Vec<AnswerPiece> = Vec::new();
    let mut take = |pieces: Vec<AnswerPiece>| {
        for piece in pieces {
            match (all.last_mut(), piece) {
                (Some(AnswerPiece::Text(before)), AnswerPiece::Text(text)) => before.push_str(&text),
                (_, piece) => all.push(piece),
            }
        }
    };
    for part in parts {
        let mut pieces = Vec::new();
        reader.push(part, &mut pieces);
        take(pieces);
    }
    let mut pieces = Vec::new();
    reader.finish(&mut pieces);
    take(pieces);
    all
}

/// Texts as they are, calls as `name(arguments)`.
fn shown(style: ToolStyle, answer: &str) -> Vec<String> {
    let pieces = read(style, 8, &[answer]);
    let show = |piece: AnswerPiece| match piece {
        AnswerPiece::Text(text) => Some(text),
        AnswerPiece::Call(call) => Some(format!("{}({})", call.name, call.arguments)),
        AnswerPiece::Space(_) => None,
    };
    pieces.into_iter().filter_map(show).collect()
}

#[test]
fn hermes_calls_stand_between_tags() {
    let shown = |answer: &str| shown(ToolStyle::Hermes, answer);
    let one = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2.50}}\n</tool_call>";
    let call = "add({\"a\": 1, \"b\": 2.50})";
    assert_eq!(shown(one), [call]);
    assert_eq!(shown(&format!("{one}\n{one}\n")), [call, call]);
    assert_eq!(shown(&format!("I add.\n\n{one}\nDone.")), ["I add.", call, "\nDone."]);
    // The answer may end before the tag does.
    assert_eq!(shown(one.strip_suffix("</tool_call>").unwrap()), [call]);
    assert_eq!(shown(one.strip_suffix("call>").unwrap()), [call]);
    // A closing tag in a string closes nothing.
    let tricky = "<tool_call>{\"arguments\": {\"a\": \"</tool_call>{\"}, \"name\": \"add\"}</tool_call>";
    assert_eq!(shown(tricky), ["add({\"a\": \"</tool_call>{\"})"]);
    let twice = "<tool_call>{\"name\": \"add\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>";
    assert_eq!(shown(twice), ["add({\"a\": 1})"], "arguments written as a string");
}

#[test]
fn llama_calls_stand_bare_or_after_a_tag() {
    let shown = |answer: &str| shown(ToolStyle::Llama3, answer);
    let one = "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\"}}";
    let call = "get_weather({\"city\": \"Oslo\"})";
    assert_eq!(shown(one), [call]);
    assert_eq!(shown(&format!("\n{one}; {one};\n")), [call, call]);
    assert_eq!(shown(&format!("{one}\n{one}")), [call, call]);
    assert_eq!(shown(&format!("<|python_tag|>{one}")), [call]);
    assert_eq!(shown(&format!("Let me see. <|python_tag|>{one}")), ["Let me see.", call]);
    assert_eq!(shown("<|python_tag|>print(1)"), ["<|python_tag|>print(1)"]);
    let prose = format!("{one} is how to ask.");
    assert_eq!(shown(&prose), [prose.as_str()]);
    let late = format!("Ask {one}");
    assert_eq!(shown(&late), [late.as_str()]);
    let typed = "{\"type\": \"function\", \"name\": \"add\", \"parameters\": {}}";
    assert_eq!(shown(typed), ["add({})"]);
}

#[test]
fn json_calls_are_the_whole_answer() {
    let shown = |answer: &str| shown(ToolStyle::Json, answer);
    let one = "{\"name\": \"add\", \"arguments\": {\"a\": 1}}";
    let call = "add({\"a\": 1})";
    assert_eq!(shown(one), [call]);
    assert_eq!(shown(&format!(" [{one}, {one}]\n")), [call, call]);
    assert_eq!(shown(&format!("```json\n{one}\n```\n")), [call]);
    assert_eq!(shown(&format!("```\n[{one}]\n```")), [call]);
    for whole in [
        format!("{one} and more"),
        format!("{one}{one}"),
        format!("[{one}"),
        format!("[{one},]"),
        format!("[{one}, {{\"name\": \"other\", \"arguments\": {{}}}}]"),
        format!("```json\n{one}\n```\nThat is it."),
        format!("``{one}``"),
        format!("Here: {one}"),
        "[]".to_owned(),
    ] {
        assert_eq!(shown(&whole), [whole.as_str()]);
    }
}

#[test]
fn what_is_no_call_is_text() {
    for style in ToolStyle::ALL {
        let (open, close) = (style.opening().unwrap_or_default(), style.closing().unwrap_or_default());
        for inner in [
            "{\"name\": \"other\", \"arguments\": {}}",
            "{\"name\": \"add\", \"arguments\": [1]}",
            "{\"name\": \"add\", \"arguments\": \"no object\"}",
            "{\"name\": \"add\"}",
            "{\"name\": \"add\", \"arguments\": {}, \"parameters\": {}}",
            "{\"name\": \"add\", \"arguments\": {}, \"arguments\": {}}",
            "{\"name\": \"add\", \"more\": 1, \"arguments\": {}}",
            "{\"name\": \"add\", \"arguments\": {\"a\": 01}}",
            "{\"name\": \"add\", \"arguments\": {\"a\": 1}",
            "{\"arguments\": {}}",
            "{\"name\": 3, \"arguments\": {}}",
            "",
        ] {
            let whole = format!("{open}{inner}{close}");
            let text: &[String] = if whole.is_empty() { &[] } else { std::slice::from_ref(&whole) };
            assert_eq!(shown(style, &whole), text);
        }
    }
}

/// The bytes that came out after each character.
fn progress(style: ToolStyle, answer: &str) -> usize {
    let mut reader = ToolCallReader::new(style, ["add".to_owned()].into(), 8);
    let mut out = Vec::new();
    reader.push(answer, &mut out);
    out.iter().map(|piece| if let AnswerPiece::Text(text) = piece { text.len() } else { 0 }).sum()
}

#[test]
fn only_what_may_become_a_call_is_held_back() {
    for style in ToolStyle::ALL {
        for text in ["Hello", "Hello, world", "1 < 2", "<b>bold", "\n\nWell"] {
            assert_eq!(progress(style, text), text.len(), "{style}: {text}");
        }
    }
    assert_eq!(progress(ToolStyle::Hermes, "I think <tool_"), "I think".len());
    assert_eq!(progress(ToolStyle::Hermes, "<tool_call>{\"na"), 0);
    // An object that shows early that it is none.
    assert_eq!(progress(ToolStyle::Json, "{\"city\""), "{\"city\"".len());
    assert_eq!(progress(ToolStyle::Json, "{\"name\": \"Oslo\""), "{\"name\": \"Oslo\"".len());
    assert_eq!(progress(ToolStyle::Llama3, "{x"), 2);
    assert_eq!(progress(ToolStyle::Json, "```python"), "```python".len());
    // What follows the end of a call is looked at before a bare one counts.
    assert_eq!(progress(ToolStyle::Llama3, "{\"name\": \"add\", \"parameters\": {}} "), 0);
}

#[test]
fn no_more_calls_come_out_than_are_wanted() {
    let call = "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>";
    let pieces = read(ToolStyle::Hermes, 1, &[&format!("{call}\n{call}")]);
    assert!(
        matches!(&pieces[..], [AnswerPiece::Call(_), AnswerPiece::Text(text)] if *text == format!("\n{call}")),
        "{pieces:?}"
    );
    let bare = "{\"name\": \"add\", \"parameters\": {}}";
    let pieces = read(ToolStyle::Llama3, 1, &[&format!("{bare}; {bare}")]);
    assert!(
        matches!(&pieces[..], [AnswerPiece::Call(_), AnswerPiece::Text(text)] if *text == format!(" {bare}")),
        "{pieces:?}"
    );
    let list = format!("[{bare}, {bare}]");
    assert_eq!(read(ToolStyle::Json, 1, &[&list]), [AnswerPiece::Text(list)]);
}

/// Answers with much that looks like calls.
fn answer() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("<tool_call>".to_owned()),
        Just("</tool_call>".to_owned()),
        Just("<|python_tag|>".to_owned()),
        Just("```json\n".to_owned()),
        Just("```".to_owned()),
        Just("{\"name\": \"add\", \"arguments\": {\"a\": [1, \"}é\"]}}".to_owned()),
        Just("{\"name\": \"get_weather\", \"parameters\": {}}".to_owned()),
        Just("{\"name\": \"add\",".to_owned()),
        Just("{\"name\": \"other\", \"arguments\": {}}".to_owned()),
        prop::sample::select(vec!["[", "]", "{", "}", "; ", ", ", "\n", " ", "<", "\"", "日本"])
            .prop_map(str::to_owned),
        ".{0,4}",
    ];
    prop::collection::vec(part, 0..10).prop_map(|parts| parts.concat())
}

fn style() -> impl Strategy<Value = ToolStyle> {
    prop::sample::select(ToolStyle::ALL.to_vec())
}

proptest! {
    /// Texts, spaces and raw calls give the answer back, and every cut of the answer gives the
    /// same.
    #[test]
    fn nothing_is_lost_however_the_answer_is_cut(style in style(), answer in answer(), most in 1usize..4, cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let whole = read(style, most, &[&answer]);
        let again: String = whole.iter().map(|piece| match piece {
            AnswerPiece::Text(text) | AnswerPiece::Space(text) => text.as_str(),
            AnswerPiece::Call(call) => call.raw.as_str(),
        }).collect();
        prop_assert_eq!(&again, &answer);
        for piece in &whole {
            if let AnswerPiece::Call(call) = piece {
                prop_assert!(call.raw.contains(&call.name) && ["add", "get_weather"].contains(&call.name.as_str()));
                prop_assert!(serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&call.arguments).is_ok());
            }
        }
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(answer.len() + 1)).filter(|at| answer.is_char_boundary(*at)).collect();
        places.extend([0, answer.len()]);
        places.sort_unstable();
        let parts: Vec<&str> = places.windows(2).map(|pair| &answer[pair[0]..pair[1]]).collect();
        prop_assert_eq!(&read(style, most, &parts), &whole);
    }
}
