//! Stop strings in a text that arrives in pieces.

/// Finds stop strings in text that arrives in pieces, and holds back only what may still become
/// one.
///
/// The stop that is complete first wins; of several that end at one place, the longest (then the
/// first in the list). So the result does not depend on how the text was cut into pieces, and
/// nothing has to be awaited once a stop is complete.
#[derive(Debug, Clone)]
pub struct StopMatcher {
    stops: Vec<Stop>,
    /// The longest end of the text so far that begins a stop.
    held: String,
    found: Option<usize>,
}

/// One stop string with the state of its Knuth-Morris-Pratt search.
#[derive(Debug, Clone)]
struct Stop {
    text: String,
    /// `fallback[i]`: how much of the stop is still matched when byte `i` differs after `i` matched
    /// ones.
    fallback: Vec<usize>,
    matched: usize,
}

impl Stop {
    fn new(text: String) -> Stop {
        let bytes = text.as_bytes();
        let mut fallback = vec![0; bytes.len() + 1];
        let mut k = 0;
        for i in 1..bytes.len() {
            while k > 0 && bytes[k] != bytes[i] {
                k = fallback[k];
            }
            if bytes[k] == bytes[i] {
                k += 1;
            }
            fallback[i + 1] = k;
        }
        Stop { text, fallback, matched: 0 }
    }

    /// Takes one byte; true when it completes the stop.
    fn step(&mut self, byte: u8) -> bool {
        let bytes = self.text.as_bytes();
        if bytes.is_empty() {
            return false;
        }
        while self.matched > 0 && bytes[self.matched] != byte {
            self.matched = self.fallback[self.matched];
        }
        if bytes[self.matched] == byte {
            self.matched += 1;
        }
        if self.matched == bytes.len() {
            self.matched = self.fallback[self.matched];
            true
        } else {
            false
        }
    }
}

impl StopMatcher {
    /// Empty stop strings never match.
    pub fn new(stops: Vec<String>) -> StopMatcher {
        StopMatcher { stops: stops.into_iter().map(Stop::new).collect(), held: String::new(), found: None }
    }

    /// Takes the next piece of text and appends to `out` what is certainly before any stop.
    /// `Some(i)` when stop `i` is found: `out` then ends just before it, and whatever comes later
    /// is dropped.
    pub fn push(&mut self, delta: &str, out: &mut String) -> Option<usize> {
        if self.found.is_some() {
            return self.found;
        }
        let before = self.held.len();
        self.held.push_str(delta);
        for (i, &byte) in delta.as_bytes().iter().enumerate() {
            let mut best: Option<(usize, usize)> = None; // (length, index)
            for (index, stop) in self.stops.iter_mut().enumerate() {
                if stop.step(byte) && best.is_none_or(|(length, _)| stop.text.len() > length) {
                    best = Some((stop.text.len(), index));
                }
            }
            if let Some((length, index)) = best {
                let start = before + i + 1 - length;
                out.push_str(&self.held[..start]);
                self.held.clear();
                self.found = Some(index);
                return self.found;
            }
        }
        // What matches so far begins at the start of a stop, which is the start of a character.
        let keep = self.stops.iter().map(|s| s.matched).max().unwrap_or(0);
        let free = self.held.len() - keep;
        out.push_str(&self.held[..free]);
        self.held.drain(..free);
        None
    }

    /// Ends the text: appends what was held back, unless a stop was found.
    pub fn finish(&mut self, out: &mut String) {
        out.push_str(&self.held);
        self.held.clear();
    }

    /// The stop that was found.
    pub fn found(&self) -> Option<usize> {
        self.found
    }
}
