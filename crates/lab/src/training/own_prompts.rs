//! Prompts that the model writes itself: it continues the beginning of a user's turn (compare
//! Magpie, Xu et al. 2024). They are the prompts that an instruction model expects, in all their
//! variety.

use std::path::Path;

use selfspec_engine::{Engine, Prompt};
use selfspec_model::TokenId;
use selfspec_speculate::SamplingParams;
use selfspec_text::Message;

use super::answers::{AnswerTask, generate};
use super::control::TrainingControl;
use super::error::TrainingError;

/// Longest prompt that the model may write, in tokens.
const LONGEST: usize = 160;
/// Shortest text that counts as a prompt, in bytes.
const SHORTEST: usize = 12;
/// System messages that lead to other kinds of tasks; the first is none.
const ROLES: [&str; 12] = [
    "",
    "You help people to write and to improve texts.",
    "You are a math tutor.",
    "You are a Python programmer.",
    "You explain science to students.",
    "You know history and the arts.",
    "You plan journeys.",
    "You play characters from books and films.",
    "You find facts in texts that you are given.",
    "You answer questions in one sentence.",
    "You translate between languages.",
    "You summarise articles.",
];

/// `n` prompts; fewer where the model wrote nothing useful.
pub(super) fn write(
    engine: &Engine,
    n: usize,
    seed: u64,
    path: &Path,
    control: &dyn TrainingControl,
) -> Result<Vec<String>, TrainingError> {
    let starts = ROLES.map(|role| beginning(engine, role)).into_iter().collect::<Result<Vec<_>, _>>()?;
    let tasks: Vec<AnswerTask> = (0..n)
        .map(|i| AnswerTask {
            domain: "own".to_owned(),
            // Every other prompt has no role.
            prompt: starts[if i % 2 == 0 { 0 } else { 1 + i / 2 % (starts.len() - 1) }].clone(),
            sampling: SamplingParams {
                temperature: 1.0,
                top_p: 0.95,
                seed: Some(seed.wrapping_add(i as u64)),
                ..SamplingParams::default()
            },
            max_tokens: LONGEST,
        })
        .collect();
    let written = generate(engine, "writing prompts", &tasks, path, control)?;
    let whole = written.iter().filter(|answer| answer.tokens.len() < LONGEST);
    let texts = whole.map(|answer| text(engine, &answer.tokens)).filter(|text| text.len() >= SHORTEST);
    Ok(texts.collect())
}

/// The text of tokens, without control tokens.
fn text(engine: &Engine, tokens: &[TokenId]) -> String {
    let Some(tokenizer) = engine.tokenizer() else { return String::new() };
    let words = tokens.iter().filter(|id| !tokenizer.is_control(**id));
    let bytes: Vec<u8> = words.filter_map(|id| tokenizer.bytes(*id)).flatten().copied().collect();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

/// The tokens of a conversation up to where the user's words would stand.
fn beginning(engine: &Engine, role: &str) -> Result<Prompt, TrainingError> {
    let tokens = |word: &str| {
        let system = (!role.is_empty()).then(|| Message::new("system", role));
        engine.encode(&Prompt::Chat(system.into_iter().chain([Message::new("user", word)]).collect()))
    };
    let (one, other) = (tokens("A")?, tokens("B")?);
    let same = one.iter().zip(&other).take_while(|(a, b)| a == b).count();
    Ok(Prompt::Tokens(one[..same].to_vec()))
}
