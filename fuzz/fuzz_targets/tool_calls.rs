//! Any answer in any style of calls, cut anywhere: all of its text comes out as words or calls,
//! however it is cut.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use selfspec_text::{AnswerPiece, ToolCallReader, ToolStyle};

fuzz_target!(|data: &[u8]| {
    let _ = run(&mut Unstructured::new(data));
});

fn run(u: &mut Unstructured) -> Result<()> {
    let style = *u.choose(&[ToolStyle::Llama3, ToolStyle::Hermes, ToolStyle::Json])?;
    let most = u.int_in_range(0..=3)?;
    let names: Arc<[String]> = Arc::from(["f".to_owned(), "weather".to_owned()]);
    let mut text = String::new();
    for _ in 0..u.int_in_range(0..=12)? {
        text.push_str(u.choose(&PARTS)?);
        if u.ratio(1, 6)? {
            text.push_str(u.arbitrary::<&str>()?);
        }
    }
    let whole = read(style, &names, most, &[&text]);
    let mut cut = u.int_in_range(0..=text.len())?;
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    let (before, after) = text.split_at(cut);
    assert_eq!(read(style, &names, most, &[before, after]), whole, "{style:?} {text:?} cut at {cut}");
    assert!(whole.1.len() <= most);
    Ok(())
}

/// The words that come out, and the calls: name and arguments.
fn read(style: ToolStyle, names: &Arc<[String]>, most: usize, parts: &[&str]) -> (String, Vec<(String, String)>) {
    let mut reader = ToolCallReader::new(style, names.clone(), most);
    let mut out = Vec::new();
    for part in parts {
        reader.push(part, &mut out);
    }
    reader.finish(&mut out);
    let (mut words, mut calls) = (String::new(), Vec::new());
    for piece in out {
        match piece {
            AnswerPiece::Text(text) => words.push_str(&text),
            AnswerPiece::Space(space) => words.push_str(&space),
            AnswerPiece::Call(call) => calls.push((call.name, call.arguments)),
        }
    }
    (words, calls)
}

const PARTS: [&str; 16] = [
    "<tool_call>",
    "</tool_call>",
    "<|python_tag|>",
    "```json",
    "```",
    "{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
    "{\"name\": \"weather\", \"parameters\": {}}",
    "{\"name\":",
    "\"arguments\": \"\\u00e9}\"",
    "}",
    "[",
    "]",
    ",",
    "\n",
    " ",
    "words",
];
