//! Keeps the control tokens that a user spells apart from those that a template writes.

use crate::error::{TextError, short};
use crate::tokenizer::added_tokens::{AddedToken, AddedTokenMatcher};

/// Breaks spellings of control tokens with a sentinel character.
#[derive(Debug)]
pub(crate) struct Guard {
    matcher: AddedTokenMatcher,
    /// Spellings, sorted; and their reverses, sorted: to ask whether a text ends or begins like
    /// one.
    forward: Vec<String>,
    backward: Vec<String>,
    longest: usize,
}

/// The noncharacters, which no text in use contains (Unicode, section 23.7).
pub(crate) fn sentinels() -> impl Iterator<Item = char> {
    ('\u{FDD0}'..='\u{FDEF}').chain(['\u{FFFE}', '\u{FFFF}'])
}

impl Guard {
    pub(crate) fn new<'s>(spellings: impl Iterator<Item = &'s str>) -> Result<Guard, TextError> {
        let mut forward: Vec<String> = spellings.filter(|s| !s.is_empty()).map(str::to_owned).collect();
        forward.sort_unstable();
        forward.dedup();
        let mut backward: Vec<String> = forward.iter().map(|s| s.chars().rev().collect()).collect();
        backward.sort_unstable();
        let matcher = AddedTokenMatcher::new(forward.iter().zip(0..).map(|(s, i)| AddedToken::plain(i, s)))?;
        let longest = forward.iter().map(|s| s.chars().count()).max().unwrap_or(0);
        Ok(Guard { matcher, forward, backward, longest })
    }

    /// Whether `text` needs [`Guard::mark`].
    pub(crate) fn concerns(&self, text: &str, ends: bool) -> bool {
        let core = text.trim();
        self.matcher.find(text).is_some() || (ends && (self.ends_like_a_start(core) || self.starts_like_an_end(core)))
    }

    /// Puts the sentinel inside every spelling in `text`; with `ends`, also at an end of the text
    /// that the template's own words could complete to a control token (whether or not it trims the
    /// text).
    pub(crate) fn mark(&self, text: &str, ends: bool, sentinel: char) -> Result<String, TextError> {
        let mut places = Vec::new();
        let mut from = 0;
        while let Some((at, spelling)) = self.matcher.position(&text[from..]) {
            let first = spelling.chars().next().map_or(0, char::len_utf8);
            if first == spelling.len() {
                // One character cannot be broken.
                return Err(TextError::Unguarded { token: short(spelling) });
            }
            // Only past the first character: the next spelling may overlap this one.
            from += at + first;
            places.push(from);
        }
        let core = text.trim();
        let before = text.len() - text.trim_start().len();
        if ends && self.starts_like_an_end(core) {
            places.push(before);
        }
        if ends && self.ends_like_a_start(core) {
            places.push(before + core.len());
        }
        places.sort_unstable();
        places.dedup();
        let mut out = String::with_capacity(text.len() + places.len() * sentinel.len_utf8());
        let mut at = 0;
        for place in places {
            out.push_str(&text[at..place]);
            out.push(sentinel);
            at = place;
        }
        out.push_str(&text[at..]);
        Ok(out)
    }

    fn ends_like_a_start(&self, text: &str) -> bool {
        let mut ends = text.char_indices().rev().take(self.longest);
        ends.any(|(at, _)| starts_one_of(&self.forward, &text[at..]))
    }

    fn starts_like_an_end(&self, text: &str) -> bool {
        let mut reversed = String::new();
        for c in text.chars().take(self.longest) {
            reversed.insert(0, c);
            if starts_one_of(&self.backward, &reversed) {
                return true;
            }
        }
        false
    }
}

fn starts_one_of(sorted: &[String], start: &str) -> bool {
    let at = sorted.partition_point(|s| s.as_str() < start);
    sorted.get(at).is_some_and(|s| s.starts_with(start))
}
