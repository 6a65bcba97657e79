//! Finds the calls of functions in an answer while it is written: calls come out whole, everything
//! else as text, at once where it cannot be part of a call.
//!
//! The reader looks at one character after the other, so that how the answer is cut does not
//! matter. What it holds back is text that may still become a call; if that turns out otherwise it
//! comes out unchanged. Nothing is lost: texts, spaces and the calls' raw texts, joined, are the
//! answer.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json};

use crate::tools::json_scan::{JsonScan, Scanned};
use crate::tools::style::ToolStyle;

/// A part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerPiece {
    /// Words.
    Text(String),
    /// A call.
    Call(FoundCall),
    /// White space after the last call of an answer: layout, and no words.
    Space(String),
}

/// A call of one of the functions that were offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundCall {
    /// The function.
    pub name: String,
    /// The JSON of an object, as the model wrote it.
    pub arguments: String,
    /// What the model wrote in all, with tags and the white space before it.
    pub raw: String,
}

/// Reads an answer as it comes.
#[derive(Debug, Clone)]
pub struct ToolCallReader {
    style: ToolStyle,
    names: Arc<[String]>,
    most: usize,
    state: ReadState,
    held: String,                   // what has not come out
    object: usize,                  // where in it the object under way begins
    scan: JsonScan,                 // of that object
    keys: Vec<usize>,               // of that object, so far, as places in `KEYS`
    calls: Vec<(FoundCall, usize)>, // in `held`, and where each ends
    list: List,
    fenced: bool,
    came_out: usize,  // calls
    after_call: bool, // nothing came out since the last one
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadState {
    /// White space that an answer begins with.
    Start,
    /// Words; a tag may open a call.
    Words,
    /// White space; a call may follow.
    Space,
    /// So many bytes of the opening tag.
    Opening(usize),
    /// So many bytes of an opening fence.
    Fence(usize),
    /// An object must begin.
    Before,
    /// In the object.
    Object,
    /// After an object.
    After,
    /// So many bytes of the closing tag.
    Closing(usize),
    /// So many bytes of the closing fence.
    Unfence(usize),
    /// The answer must end.
    End,
    /// No call can follow.
    Rest,
}

/// Whether calls stand in an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    No,
    Open,
    Closed,
}

/// What a character did.
enum CharacterStep {
    /// It is held back.
    Hold,
    /// All that is held, it included, is text.
    Text,
    /// What was held before it is text; it is looked at again.
    TextBefore,
    /// All that is held, it included, is calls.
    Calls,
    /// What was held before it is calls; it is looked at again.
    CallsBefore,
}

/// The keys that a call may have. Another one shows at once that an object is none.
const KEYS: [&str; 5] = ["name", "arguments", "parameters", "type", "id"];
const FENCE: &str = "```json";
const UNFENCE: &str = "```";

impl ToolCallReader {
    /// A reader of an answer in this style, that may call functions of these names at most `most`
    /// times.
    pub fn new(style: ToolStyle, names: Arc<[String]>, most: usize) -> ToolCallReader {
        ToolCallReader {
            style,
            names,
            most,
            state: ReadState::Start,
            held: String::new(),
            object: 0,
            scan: JsonScan::default(),
            keys: Vec::new(),
            calls: Vec::new(),
            list: List::No,
            fenced: false,
            came_out: 0,
            after_call: false,
        }
    }

    /// Takes the next part of the answer and appends what is certain to `out`.
    pub fn push(&mut self, text: &str, out: &mut Vec<AnswerPiece>) {
        for c in text.chars() {
            loop {
                self.held.push(c);
                let before = self.held.len() - c.len_utf8();
                match self.step(c) {
                    CharacterStep::Hold => {}
                    CharacterStep::Text => self.give_text(self.held.len(), out),
                    CharacterStep::Calls => self.give_calls(self.held.len(), out),
                    CharacterStep::TextBefore => {
                        self.give_text(before, out);
                        continue;
                    }
                    CharacterStep::CallsBefore => {
                        self.give_calls(before, out);
                        continue;
                    }
                }
                break;
            }
        }
    }

    /// Ends the answer: what is held back comes out.
    pub fn finish(&mut self, out: &mut Vec<AnswerPiece>) {
        let closed = self.list != List::Open;
        match self.state {
            ReadState::After | ReadState::Closing(_) | ReadState::Unfence(_) | ReadState::End if closed => {
                self.give_calls(self.held.len(), out);
            }
            ReadState::Space | ReadState::Start if self.after_call && !self.held.is_empty() => {
                out.push(AnswerPiece::Space(std::mem::take(&mut self.held)));
            }
            _ => self.give_text(self.held.len(), out),
        }
        self.state = ReadState::Rest;
    }

    fn step(&mut self, c: char) -> CharacterStep {
        let space = c.is_ascii_whitespace();
        let opens = self.style.opening().filter(|tag| self.has_room() && tag.starts_with(c)).is_some();
        let bare = self.style != ToolStyle::Hermes && self.has_room();
        match self.state {
            ReadState::Rest => CharacterStep::Text,
            ReadState::Start | ReadState::Space | ReadState::Words if opens => self.to(ReadState::Opening(1)),
            ReadState::Start | ReadState::Space if space => CharacterStep::Hold,
            ReadState::Start if bare && c == '{' => self.begin(),
            // After Llama's separator.
            ReadState::Space if bare && self.after_call && c == '{' => self.begin(),
            ReadState::Start if self.style == ToolStyle::Json && c == '[' => self.begin_list(),
            ReadState::Start if self.style == ToolStyle::Json && c == '`' => {
                self.fenced = true;
                self.to(ReadState::Fence(1))
            }
            ReadState::Start | ReadState::Space => CharacterStep::Text,
            ReadState::Words if space => self.to(ReadState::Space),
            ReadState::Words => CharacterStep::Text,
            ReadState::Opening(n) => match self.style.opening().map(|tag| follow(tag, n, c)) {
                Some(Follow::Whole) => self.to(ReadState::Before),
                Some(Follow::More) => self.to(ReadState::Opening(n + 1)),
                _ => CharacterStep::TextBefore,
            },
            ReadState::Fence(n) => match follow(FENCE, n, c) {
                _ if space && (n == UNFENCE.len() || n == FENCE.len()) => self.to(ReadState::Before),
                Follow::Not => CharacterStep::TextBefore,
                _ => self.to(ReadState::Fence(n + 1)),
            },
            ReadState::Before if space => CharacterStep::Hold,
            ReadState::Before if c == '{' => self.begin(),
            ReadState::Before if self.style == ToolStyle::Json && self.list == List::No && c == '[' => {
                self.begin_list()
            }
            ReadState::Before => CharacterStep::TextBefore,
            ReadState::Object => self.in_object(c),
            ReadState::After if space => CharacterStep::Hold,
            ReadState::After => self.after_object(c),
            ReadState::Closing(n) => match self.style.closing().map(|tag| follow(tag, n, c)) {
                Some(Follow::Whole) => CharacterStep::Calls,
                Some(Follow::More) => self.to(ReadState::Closing(n + 1)),
                _ => CharacterStep::TextBefore,
            },
            ReadState::Unfence(n) => match follow(UNFENCE, n, c) {
                Follow::Whole => self.to(ReadState::End),
                Follow::More => self.to(ReadState::Unfence(n + 1)),
                Follow::Not => CharacterStep::TextBefore,
            },
            ReadState::End if space => CharacterStep::Hold,
            ReadState::End => CharacterStep::TextBefore,
        }
    }

    fn to(&mut self, state: ReadState) -> CharacterStep {
        self.state = state;
        CharacterStep::Hold
    }

    /// An object begins with the character that was held last.
    fn begin(&mut self) -> CharacterStep {
        self.object = self.held.len() - 1;
        self.scan = JsonScan::default();
        self.keys.clear();
        self.scan.push('{');
        self.to(ReadState::Object)
    }

    fn begin_list(&mut self) -> CharacterStep {
        self.list = List::Open;
        self.to(ReadState::Before)
    }

    fn in_object(&mut self, c: char) -> CharacterStep {
        let scanned = self.scan.push(c);
        let text = &self.held[self.object..];
        match scanned {
            Scanned::More => CharacterStep::Hold,
            Scanned::Key(place) => match KEYS.iter().position(|key| *key == &text[place.clone()]) {
                Some(key) if !self.keys.contains(&key) => {
                    self.keys.push(key);
                    CharacterStep::Hold
                }
                _ => CharacterStep::Text,
            },
            Scanned::Text(place) => {
                let is_name = self.keys.last().is_some_and(|key| KEYS[*key] == "name");
                let known = || self.names.iter().any(|name| *name == text[place.clone()]);
                if is_name && !known() { CharacterStep::Text } else { CharacterStep::Hold }
            }
            Scanned::Broken => CharacterStep::TextBefore,
            Scanned::Whole => match call(text) {
                Some(call) if self.names.contains(&call.name) && self.has_room() => {
                    self.calls.push((call, self.held.len()));
                    self.to(ReadState::After)
                }
                _ => CharacterStep::Text,
            },
        }
    }

    fn after_object(&mut self, c: char) -> CharacterStep {
        match (self.style, c) {
            (ToolStyle::Hermes, '<') => self.to(ReadState::Closing(1)),
            (ToolStyle::Llama3, ';') => CharacterStep::Calls,
            (ToolStyle::Llama3, '{') => CharacterStep::CallsBefore,
            (ToolStyle::Json, ',') if self.list == List::Open => self.to(ReadState::Before),
            (ToolStyle::Json, ']') if self.list == List::Open => {
                self.list = List::Closed;
                CharacterStep::Hold
            }
            (ToolStyle::Json, '`') if self.fenced && self.list != List::Open => self.to(ReadState::Unfence(1)),
            _ => CharacterStep::TextBefore,
        }
    }

    fn has_room(&self) -> bool {
        self.came_out + self.calls.len() < self.most
    }

    /// Gives out the first `length` bytes of what is held as text, and drops the others.
    fn give_text(&mut self, length: usize, out: &mut Vec<AnswerPiece>) {
        self.held.truncate(length);
        self.calls.clear();
        if length > 0 {
            match out.last_mut() {
                Some(AnswerPiece::Text(text)) => text.push_str(&self.held),
                _ => out.push(AnswerPiece::Text(self.held.clone())),
            }
            self.held.clear();
            self.after_call = false;
        }
        let more = self.style.opening().is_some() && self.has_room();
        self.state = if more { ReadState::Words } else { ReadState::Rest };
    }

    /// The same as the calls that it holds.
    fn give_calls(&mut self, length: usize, out: &mut Vec<AnswerPiece>) {
        self.held.truncate(length);
        let count = self.calls.len();
        let mut from = 0;
        for (i, (mut call, end)) in std::mem::take(&mut self.calls).into_iter().enumerate() {
            let end = if i + 1 == count { length } else { end };
            self.held[from..end].clone_into(&mut call.raw);
            from = end;
            out.push(AnswerPiece::Call(call));
        }
        self.held.clear();
        self.came_out += count;
        self.after_call = true;
        self.state = ReadState::Space;
    }
}

/// Whether a character goes on with a tag of which `n` bytes were there.
enum Follow {
    More,
    Whole,
    Not,
}

fn follow(tag: &str, n: usize, c: char) -> Follow {
    match tag.get(n..).and_then(|rest| rest.strip_prefix(c)) {
        Some("") => Follow::Whole,
        Some(_) => Follow::More,
        None => Follow::Not,
    }
}

/// The call that an object is.
fn call(object: &str) -> Option<FoundCall> {
    #[derive(Deserialize)]
    struct Call<'a> {
        name: String,
        #[serde(borrow, alias = "parameters")]
        arguments: &'a RawValue,
    }
    let call: Call = serde_json::from_str(object).ok()?;
    let is_object = |text: &str| serde_json::from_str::<Map<String, Json>>(text).is_ok();
    let text = call.arguments.get();
    let arguments = if is_object(text) {
        text.to_owned()
    } else {
        // Some models write the object as a string.
        serde_json::from_str::<String>(text).ok().filter(|text| is_object(text))?
    };
    Some(FoundCall { name: call.name, arguments, raw: String::new() })
}
