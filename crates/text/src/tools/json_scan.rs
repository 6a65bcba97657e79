//! One JSON object (RFC 8259), character by character: whether it can still become one, and when it
//! is whole.

use std::ops::Range;

/// Deepest nesting: what the parser of the whole takes.
const DEPTH: usize = 100;

/// What a character did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scanned {
    /// More must come.
    More,
    /// A key of the outermost object ended; the place of its letters, without the quotes.
    Key(Range<usize>),
    /// A value of the outermost object that is a string ended; the place of its letters.
    Text(Range<usize>),
    /// The object is whole.
    Whole,
    /// No JSON object begins so.
    Broken,
}

/// The scan of one object, whose first character must be `{`.
#[derive(Debug, Clone, Default)]
pub(crate) struct JsonScan {
    open: Vec<Container>,
    at: usize, // bytes seen
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Container {
    Object,
    Array,
}

#[derive(Debug, Clone, Default)]
enum State {
    #[default]
    Start,
    Value {
        or_end: bool, // of an array
    },
    Key {
        or_end: bool,
    },
    Colon,
    AfterValue,
    Quoted {
        key: bool,
        from: usize,
        escape: Escape,
    },
    Word(&'static str), // what is left of it
    Number(Number),
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Escape {
    None,
    Begun,
    Hex(u8), // digits that must follow
}

/// Which part of a number was seen last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    Minus,
    Zero,
    Digits,
    Point,
    Decimals,
    E,
    Sign,
    Exponent,
}

impl JsonScan {
    /// Takes the next character.
    pub(crate) fn push(&mut self, c: char) -> Scanned {
        let scanned = self.step(c);
        self.at += c.len_utf8();
        if scanned == Scanned::Broken || scanned == Scanned::Whole {
            self.state = State::Over;
        }
        scanned
    }

    fn step(&mut self, c: char) -> Scanned {
        let space = matches!(c, ' ' | '\t' | '\n' | '\r');
        match (&mut self.state, c) {
            (State::Start, '{') => self.enter(Container::Object),
            (State::Value { .. } | State::Key { .. } | State::Colon | State::AfterValue, _) if space => Scanned::More,
            (State::Value { .. }, '{') => self.enter(Container::Object),
            (State::Value { .. }, '[') => self.enter(Container::Array),
            (State::Value { or_end: true }, ']') => self.leave(Container::Array),
            (State::Value { .. }, '"') => self.quote(false),
            (State::Value { .. }, 't') => self.to(State::Word("rue")),
            (State::Value { .. }, 'f') => self.to(State::Word("alse")),
            (State::Value { .. }, 'n') => self.to(State::Word("ull")),
            (State::Value { .. }, '-') => self.to(State::Number(Number::Minus)),
            (State::Value { .. }, '0') => self.to(State::Number(Number::Zero)),
            (State::Value { .. }, '1'..='9') => self.to(State::Number(Number::Digits)),
            (State::Key { .. }, '"') => self.quote(true),
            (State::Key { or_end: true }, '}') => self.leave(Container::Object),
            (State::Colon, ':') => self.to(State::Value { or_end: false }),
            (State::AfterValue, ',') => match self.open.last() {
                Some(Container::Object) => self.to(State::Key { or_end: false }),
                _ => self.to(State::Value { or_end: false }),
            },
            (State::AfterValue, '}') => self.leave(Container::Object),
            (State::AfterValue, ']') => self.leave(Container::Array),
            (State::Word(left), c) => match left.strip_prefix(c) {
                Some("") => self.to(State::AfterValue),
                Some(rest) => self.to(State::Word(rest)),
                None => Scanned::Broken,
            },
            (State::Number(number), c) => match number.next(c) {
                Some(next) => self.to(State::Number(next)),
                None if number.may_end() => {
                    self.state = State::AfterValue;
                    self.step(c)
                }
                None => Scanned::Broken,
            },
            (State::Quoted { key, from, escape }, c) => match (*escape, c) {
                (Escape::None, '"') => {
                    let (key, place) = (*key, *from..self.at);
                    self.state = if key { State::Colon } else { State::AfterValue };
                    match (self.open.len(), key) {
                        (1, true) => Scanned::Key(place),
                        (1, false) => Scanned::Text(place),
                        _ => Scanned::More,
                    }
                }
                (Escape::None, '\\') => escape.becomes(Escape::Begun),
                (Escape::None, '\0'..='\x1f') => Scanned::Broken,
                (Escape::None, _) => Scanned::More,
                (Escape::Begun, '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't') => escape.becomes(Escape::None),
                (Escape::Begun, 'u') => escape.becomes(Escape::Hex(4)),
                (Escape::Hex(1), c) if c.is_ascii_hexdigit() => escape.becomes(Escape::None),
                (Escape::Hex(n), c) if c.is_ascii_hexdigit() => escape.becomes(Escape::Hex(n - 1)),
                _ => Scanned::Broken,
            },
            _ => Scanned::Broken,
        }
    }

    fn to(&mut self, state: State) -> Scanned {
        self.state = state;
        Scanned::More
    }

    fn quote(&mut self, key: bool) -> Scanned {
        self.to(State::Quoted { key, from: self.at + 1, escape: Escape::None })
    }

    fn enter(&mut self, container: Container) -> Scanned {
        if self.open.len() == DEPTH {
            return Scanned::Broken;
        }
        self.open.push(container);
        self.to(match container {
            Container::Object => State::Key { or_end: true },
            Container::Array => State::Value { or_end: true },
        })
    }

    fn leave(&mut self, container: Container) -> Scanned {
        if self.open.pop() != Some(container) {
            return Scanned::Broken;
        }
        if self.open.is_empty() { Scanned::Whole } else { self.to(State::AfterValue) }
    }
}

impl Escape {
    fn becomes(&mut self, next: Escape) -> Scanned {
        *self = next;
        Scanned::More
    }
}

impl Number {
    fn next(self, c: char) -> Option<Number> {
        Some(match (self, c) {
            (Number::Minus, '0') => Number::Zero,
            (Number::Minus, '1'..='9') | (Number::Digits, '0'..='9') => Number::Digits,
            (Number::Zero | Number::Digits, '.') => Number::Point,
            (Number::Point | Number::Decimals, '0'..='9') => Number::Decimals,
            (Number::Zero | Number::Digits | Number::Decimals, 'e' | 'E') => Number::E,
            (Number::E, '+' | '-') => Number::Sign,
            (Number::E | Number::Sign | Number::Exponent, '0'..='9') => Number::Exponent,
            _ => return None,
        })
    }

    fn may_end(self) -> bool {
        matches!(self, Number::Zero | Number::Digits | Number::Decimals | Number::Exponent)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes up to the end of the first object, or to the character that breaks it.
    fn scan(text: &str) -> (Scanned, usize) {
        let mut scan = JsonScan::default();
        for (at, c) in text.char_indices() {
            match scan.push(c) {
                Scanned::Whole => return (Scanned::Whole, at + 1),
                Scanned::Broken => return (Scanned::Broken, at),
                _ => {}
            }
        }
        (Scanned::More, text.len())
    }

    #[test]
    fn objects_end_where_they_end_and_break_where_they_break() {
        let whole = r#"{"a": [1, -0.5e+3, true, null, {}, []], "b\"\u00e9": "}{", "c": {"d": 0}}"#;
        assert_eq!(scan(&format!("{whole} rest")), (Scanned::Whole, whole.len()));
        for (text, at) in [
            ("[1]", 0),
            ("{a", 1),
            (r#"{"a" 1"#, 5),
            (r#"{"a": 01}"#, 7),
            (r#"{"a": 1.}"#, 8),
            (r#"{"a": tru}"#, 9),
            (r#"{"a": 1,}"#, 8),
            (r#"{"a": [1}"#, 8),
            ("{\"a\": \"\n", 7),
            (r#"{"\x"#, 3),
        ] {
            assert_eq!(scan(text), (Scanned::Broken, at), "{text}");
        }
        let deep = format!("{{\"a\": {}", "[".repeat(200));
        assert_eq!(scan(&deep).0, Scanned::Broken);
    }

    #[test]
    fn keys_and_texts_of_the_outermost_object_are_named() {
        let text = r#"{"name": "f", "x": {"y": "z"}, "n": ["t"]}"#;
        let mut scan = JsonScan::default();
        let mut found = Vec::new();
        for c in text.chars() {
            match scan.push(c) {
                Scanned::Key(place) => found.push(format!("key {}", &text[place])),
                Scanned::Text(place) => found.push(format!("text {}", &text[place])),
                _ => {}
            }
        }
        assert_eq!(found, ["key name", "text f", "key x", "key n"]);
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        use serde_json::Value;
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 20, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((".{0,3}", inner), 0..4).prop_map(|v| v.into_iter().collect()),
            ]
        })
    }

    proptest! {
        /// It agrees with serde_json on what is an object, also when a character of one is changed.
        #[test]
        fn it_agrees_with_the_parser(value in json(), at in any::<prop::sample::Index>(), c in any::<char>(), pretty in any::<bool>()) {
            let value = serde_json::json!({ "k": value });
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.expect("JSON");
            prop_assert_eq!(scan(&text), (Scanned::Whole, text.len()));
            let mut chars: Vec<char> = text.chars().collect();
            let at = at.index(chars.len());
            chars[at] = c;
            let changed: String = chars.into_iter().collect();
            let (scanned, end) = scan(&changed);
            let parsed = serde_json::from_str::<serde_json::Value>(&changed[..end]);
            // The parser refuses numbers beyond its range and lone surrogates; the scan looks at
            // the grammar alone.
            if parsed.is_ok() {
                prop_assert_eq!(scanned, Scanned::Whole);
            }
        }
    }
}
