//! Any chat template over any messages: an error on one line or a prompt, within bounds of time and
//! memory. And whatever users write, a template's control tokens stay the only ones.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use selfspec_text::{ChatTemplate, GgufVocab, Message, TextError, Tokenizer};
use serde_json::{Map, json};

/// Bytes and a few control tokens.
static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
    let controls = ["<s>", "<|im_start|>", "<|im_end|>", "[x]", "<<s>"];
    let mut tokens: Vec<String> = (0..=255u8).map(|b| format!("<0x{b:02X}>")).collect();
    tokens.extend(controls.map(str::to_owned));
    Tokenizer::from_gguf(GgufVocab {
        model: "llama".into(),
        scores: vec![0.0; tokens.len()],
        token_types: [vec![6; 256], vec![3; controls.len()]].concat(),
        tokens,
        bos: Some(256),
        add_space_prefix: Some(false),
        ..GgufVocab::default()
    })
    .expect("the vocabulary is whole")
});

static TURNS: LazyLock<ChatTemplate> = LazyLock::new(|| {
    let source = "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}";
    TOKENIZER.chat_template(source).expect("the template is whole")
});

fuzz_target!(|data: &[u8]| {
    // 0xFF is in no text, so it parts the template from two messages: a template alone is an input
    // too.
    let mut parts = data.split(|&b| b == 0xFF).map(String::from_utf8_lossy);
    let mut next = || parts.next().unwrap_or_default().into_owned();
    let (source, first, second) = (next(), next(), next());
    let (source, first, second) = (source.as_str(), first.as_str(), second.as_str());
    let generate = data.len() % 2 == 0;
    let messages = [Message::new("user", first), Message::new("assistant", second)];
    let extra = json!({"tools": [{"name": second, "x": [1, 2.5, null, true]}], "enable_thinking": generate});
    let extra = extra.as_object().expect("it is an object");
    let result = TOKENIZER.chat_template(source).and_then(|t| t.render(&messages, generate, extra));
    match result {
        Ok(prompt) => {
            TOKENIZER.encode_prompt(&prompt).expect("all bytes have tokens");
        }
        Err(e) => {
            let message = e.to_string();
            assert!(!message.contains('\n'), "{message}");
        }
    }
    let prompt = match TURNS.render(&messages, generate, &Map::new()) {
        Err(TextError::NoSentinel) => return,
        other => other.expect("the template takes any message"),
    };
    let ids = TOKENIZER.encode_prompt(&prompt).expect("all bytes have tokens");
    assert_eq!(ids.iter().filter(|&&id| TOKENIZER.is_control(id)).count(), 5);
    assert_eq!(TOKENIZER.decode(&ids), format!("user\n{}\nassistant\n{}\n", first.trim(), second.trim()).replace('▁', " "));
});
