//! [`Corpus`]: the texts that a head is trained on, prompts with the answers of the model.
//!
//! On disk they are lines of JSON, one a text: `{"domain": "code", "prompt_len": 12, "tokens": [1,
//! 2, ...]}`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use selfspec_model::TokenId;
use serde::{Deserialize, Serialize};

use crate::error::TrainError;
use crate::math::random::Random;

/// A prompt and the answer to it, as tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainingText {
    /// The kind of text, for example `code`. Results are reported by domain.
    #[serde(alias = "kind")]
    pub domain: String,
    /// Number of tokens of the prompt. The rest is the answer, and only the answer counts in the
    /// loss.
    pub prompt_len: usize,
    /// The prompt's tokens, then the answer's.
    pub tokens: Vec<TokenId>,
}

impl TrainingText {
    /// The answer.
    pub fn answer(&self) -> &[TokenId] {
        self.tokens.get(self.prompt_len..).unwrap_or_default()
    }

    /// Number of rounds whose draft number `draft`, counted from 0, lies in the answer.
    pub(crate) fn counted(&self, draft: usize) -> usize {
        self.tokens.len().saturating_sub(self.prompt_len.max(1)).saturating_sub(draft)
    }

    /// Whether a position predicts a token of the answer.
    fn is_trainable(&self) -> bool {
        self.tokens.len() >= 2 && !self.answer().is_empty()
    }
}

/// The texts of a training.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Corpus {
    /// The texts.
    pub texts: Vec<TrainingText>,
}

impl Corpus {
    /// Reads a file of lines of JSON. Empty lines are skipped.
    ///
    /// # Errors
    /// The file cannot be read, or a line is malformed.
    pub fn read(path: &Path) -> Result<Corpus, TrainError> {
        let file = File::open(path).map_err(TrainError::io("read", path))?;
        let mut texts = Vec::new();
        for (i, line) in BufReader::new(file).lines().enumerate() {
            let line = line.map_err(TrainError::io("read", path))?;
            if line.trim().is_empty() {
                continue;
            }
            let bad =
                |e: serde_json::Error| TrainError::Line { path: path.to_owned(), line: i + 1, why: e.to_string() };
            texts.push(serde_json::from_str(&line).map_err(bad)?);
        }
        Ok(Corpus { texts })
    }

    /// Writes the file that [`Corpus::read`] reads.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), TrainError> {
        let file = File::create(path).map_err(TrainError::io("create", path))?;
        let mut out = BufWriter::new(file);
        for text in &self.texts {
            let line = serde_json::to_string(text).expect("a text is plain data");
            writeln!(out, "{line}").map_err(TrainError::io("write", path))?;
        }
        out.flush().map_err(TrainError::io("write", path))
    }

    /// Cuts every text to at most `len` tokens and removes texts without an answer.
    pub fn cut(&mut self, len: usize) {
        self.texts.iter_mut().for_each(|text| text.tokens.truncate(len));
        self.texts.retain(TrainingText::is_trainable);
    }

    /// Total number of tokens.
    pub fn tokens(&self) -> u64 {
        self.texts.iter().map(|text| text.tokens.len() as u64).sum()
    }

    /// Number of texts in each domain.
    pub fn domains(&self) -> BTreeMap<&str, usize> {
        let mut domains = BTreeMap::new();
        self.texts.iter().for_each(|text| *domains.entry(text.domain.as_str()).or_default() += 1);
        domains
    }

    /// # Errors
    /// A text has a token that a vocabulary of `vocab` lacks.
    pub(crate) fn check(&self, vocab: usize) -> Result<(), TrainError> {
        for (i, text) in self.texts.iter().enumerate() {
            if let Some(token) = text.tokens.iter().find(|token| **token as usize >= vocab) {
                return Err(TrainError::UnknownToken { text: i, token: *token, vocab });
            }
        }
        Ok(())
    }

    /// A hash of the contents.
    pub(crate) fn fingerprint(&self) -> String {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut eat = |x: u64| hash = (hash ^ x).wrapping_mul(0x100_0000_01b3).rotate_left(23);
        for text in &self.texts {
            eat(text.tokens.len() as u64);
            eat(text.prompt_len as u64);
            text.domain.bytes().for_each(|b| eat(u64::from(b)));
            text.tokens.iter().for_each(|token| eat(u64::from(*token)));
        }
        format!("{hash:016x}")
    }

    /// Numbers of the training texts and of the held-out texts: `held_out` of each domain, at most
    /// a tenth of it, drawn with `seed`.
    pub(crate) fn split(&self, held_out: usize, seed: u64) -> (Vec<usize>, Vec<usize>) {
        let mut of_domain: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (i, text) in self.texts.iter().enumerate().filter(|(_, text)| text.is_trainable()) {
            of_domain.entry(text.domain.as_str()).or_default().push(i);
        }
        let (mut train, mut judge) = (Vec::new(), Vec::new());
        for (domain, mut texts) in of_domain {
            Random::new(seed, &format!("held out of {domain}")).shuffle(&mut texts);
            let kept = held_out.min(texts.len() / 10);
            judge.extend_from_slice(&texts[..kept]);
            train.extend_from_slice(&texts[kept..]);
        }
        train.sort_unstable();
        judge.sort_unstable();
        (train, judge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(domain: &str, prompt_len: usize, len: usize) -> TrainingText {
        TrainingText { domain: domain.to_owned(), prompt_len, tokens: (0..len as u32).collect() }
    }

    #[test]
    fn a_file_of_texts_comes_back_and_a_bad_line_is_named() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("texts.jsonl");
        let corpus = Corpus { texts: vec![text("code", 3, 9), text("chat", 0, 1)] };
        corpus.write(&path).expect("written");
        assert_eq!(Corpus::read(&path).expect("sound"), corpus);
        std::fs::write(&path, "{\"kind\": \"a\", \"prompt_len\": 1, \"tokens\": [1, 2]}\n\n{\"domain\": \"a\"}\n")
            .expect("written");
        let e = Corpus::read(&path).expect_err("line 3 lacks tokens").to_string();
        assert!(e.contains("texts.jsonl, line 3: missing field `prompt_len`"), "{e}");
        std::fs::write(&path, "[1, -4]").expect("written");
        assert!(Corpus::read(&path).expect_err("no text").to_string().contains("line 1: "));
        let none = Corpus::read(&dir.path().join("none")).expect_err("not there").to_string();
        assert!(none.starts_with("cannot read "), "{none}");
    }

    #[test]
    fn held_out_texts_are_of_every_domain_and_not_trained_on() {
        let mut texts: Vec<TrainingText> = (0..60).map(|i| text(["a", "b"][i % 2], 1, 4 + i)).collect();
        texts.push(text("c", 1, 1)); // one token: nothing to learn
        texts.push(text("c", 5, 5)); // no answer
        texts.push(text("c", 9, 5)); // a prompt that is longer than the text
        let corpus = Corpus { texts };
        let (train, judge) = corpus.split(2, 7);
        assert_eq!((train.len(), judge.len()), (56, 4));
        assert!(judge.iter().all(|i| !train.contains(i)));
        assert_eq!(judge.iter().filter(|i| corpus.texts[**i].domain == "a").count(), 2);
        assert_eq!(corpus.split(2, 7), (train, judge), "the seed decides");
        assert_eq!(corpus.split(100, 7).1.len(), 6, "at most a tenth");
        let mut cut = corpus.clone();
        cut.cut(6);
        assert_eq!((cut.texts.len(), cut.tokens()), (60, 4 + 5 + 58 * 6));
    }

    #[test]
    fn fingerprints_differ_where_texts_do() {
        let corpus = Corpus { texts: vec![text("a", 1, 4)] };
        for other in [text("b", 1, 4), text("a", 2, 4), text("a", 1, 5)] {
            assert_ne!(Corpus { texts: vec![other] }.fingerprint(), corpus.fingerprint());
        }
        assert!(corpus.check(4).is_ok());
        assert_eq!(corpus.check(3).expect_err("no token 3").to_string(), "text 0: token 3 is not in a vocabulary of 3");
    }
}
