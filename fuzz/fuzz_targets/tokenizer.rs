//! Any vocabulary, from GGUF metadata or tokenizer.json, and any text: an error on one line, or
//! tokens that the vocabulary has, none of them a control token, and text again.
#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use selfspec_text::{Detokenizer, GgufVocab, RenderedPrompt, StopMatcher, TextError, Tokenizer};
use serde_json::{Value, json};

fuzz_target!(|data: &[u8]| {
    let _ = run(&mut Unstructured::new(data));
});

fn run(u: &mut Unstructured) -> Result<()> {
    let made = match u.int_in_range(0..=3)? {
        0 => {
            let config: Option<Vec<u8>> = u.arbitrary()?;
            Tokenizer::from_hf(u.bytes(u.len())?, config.as_deref())
        }
        1 => Tokenizer::from_hf(&serde_json::to_vec(&tokenizer_json(u)?).expect("a value is JSON"), None),
        _ => Tokenizer::from_gguf(gguf(u)?),
    };
    let Some(tokenizer) = one_line(made) else { return Ok(()) };
    let text: String = u.arbitrary()?;
    let plain = one_line(tokenizer.encode(&text, u.arbitrary()?)).unwrap_or_default();
    let prompt = one_line(tokenizer.encode_prompt(&RenderedPrompt::trusted(text))).unwrap_or_default();
    let mut whole = String::new();
    let mut stream = Detokenizer::new();
    let mut stops = StopMatcher::new(vec![u.arbitrary()?, u.arbitrary()?]);
    let mut shown = String::new();
    for &id in plain.iter().chain(&prompt) {
        assert!((id as usize) < tokenizer.vocab_size());
        let before = whole.len();
        stream.push(&tokenizer, id, &mut whole);
        stops.push(&whole[before..], &mut shown);
    }
    assert!(whole.starts_with(&shown));
    Ok(())
}

fn one_line<T>(made: std::result::Result<T, TextError>) -> Option<T> {
    made.inspect_err(|e| {
        let message = e.to_string();
        assert!(!message.contains('\n') && message.len() < 2000, "{message}");
    })
    .ok()
}

/// A few tokens, so that merges and texts meet them.
fn word(u: &mut Unstructured) -> Result<String> {
    let letters = ["a", "b", "ab", "Ġ", "▁", " ", "<s>", "<0x61>", "é", "\n", "Ċ", "1", ""];
    let mut out = String::new();
    for _ in 0..u.int_in_range(0..=3)? {
        out.push_str(u.choose(&letters)?);
    }
    if u.ratio(1, 20)? {
        out.push_str(u.arbitrary::<&str>()?);
    }
    Ok(out)
}

fn words(u: &mut Unstructured) -> Result<Vec<String>> {
    (0..u.int_in_range(0..=24)?).map(|_| word(u)).collect()
}

fn id(u: &mut Unstructured) -> Result<Option<u32>> {
    Ok(if u.arbitrary()? { Some(u.int_in_range(0..=30)?) } else { None })
}

fn gguf(u: &mut Unstructured) -> Result<GgufVocab> {
    let mut v = GgufVocab {
        model: u.choose(&["gpt2", "llama", "llama", "x"])?.to_string(),
        pre: Some(u.choose(&["gpt-2", "smollm", "llama-bpe", "qwen2", "tekken", "x"])?.to_string()),
        tokens: words(u)?,
        bos: id(u)?,
        eos: id(u)?,
        unk: id(u)?,
        add_bos: u.arbitrary()?,
        add_space_prefix: u.arbitrary()?,
        ..GgufVocab::default()
    };
    if u.arbitrary()? {
        // All bytes, so that most texts can be encoded.
        v.tokens.extend((0..=255u8).map(|b| format!("<0x{b:02X}>")));
    }
    let n = v.tokens.len();
    if u.ratio(9, 10)? {
        v.token_types = (0..n).map(|i| if i + 256 >= n && n >= 256 { Ok(6) } else { u.int_in_range(0..=6) }).collect::<Result<_>>()?;
    }
    if u.ratio(9, 10)? {
        v.scores = (0..n).map(|_| Ok(f32::from(u.arbitrary::<i8>()?))).collect::<Result<_>>()?;
    }
    v.merges = merges(u, &v.tokens)?;
    Ok(v)
}

/// Mostly merges whose parts and whole are tokens.
fn merges(u: &mut Unstructured, tokens: &[String]) -> Result<Vec<String>> {
    let mut merges = Vec::new();
    for _ in 0..u.int_in_range(0..=12)? {
        if u.ratio(1, 50)? || tokens.is_empty() {
            merges.push(word(u)?);
            continue;
        }
        let (left, right) = (u.choose(tokens)?, u.choose(tokens)?);
        if !left.is_empty() && !right.is_empty() && tokens.contains(&format!("{left}{right}")) {
            merges.push(format!("{left} {right}"));
        }
    }
    Ok(merges)
}

fn tokenizer_json(u: &mut Unstructured) -> Result<Value> {
    let tokens = words(u)?;
    let merges = merges(u, &tokens)?;
    let vocab: serde_json::Map<String, Value> = tokens.iter().zip(0..).map(|(t, i)| (t.clone(), json!(i))).collect();
    let mut added = Vec::new();
    for _ in 0..u.int_in_range(0..=4)? {
        added.push(json!({
            "id": u.int_in_range(0..=40)?, "content": word(u)?, "special": u.arbitrary::<bool>()?, "normalized": u.arbitrary::<bool>()?,
            "lstrip": u.arbitrary::<bool>()?, "rstrip": u.arbitrary::<bool>()?, "single_word": u.arbitrary::<bool>()?,
        }));
    }
    let normalizers = [
        Value::Null,
        json!({"type": "NFC"}),
        json!({"type": "Lowercase"}),
        json!({"type": "Strip", "strip_left": true, "strip_right": true}),
        json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"}),
        json!({"type": "Replace", "pattern": {"String": word(u)?}, "content": word(u)?}),
        json!({"type": "Prepend", "prepend": word(u)?}),
    ];
    let behaviors = ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"];
    let pattern = if u.arbitrary()? { word(u)? } else { u.arbitrary::<&str>()?.to_owned() };
    let kind = *u.choose(&["Regex", "String"])?;
    let splitters = [
        Value::Null,
        json!({"type": "ByteLevel", "add_prefix_space": u.arbitrary::<bool>()?, "use_regex": u.arbitrary::<bool>()?}),
        json!({"type": "Digits", "individual_digits": u.arbitrary::<bool>()?}),
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": u.choose(&["always", "first", "never"])?}),
        json!({"type": "Split", "pattern": {kind: pattern}, "behavior": u.choose(&behaviors)?, "invert": u.arbitrary::<bool>()?}),
    ];
    let sequence = |u: &mut Unstructured, from: &[Value], name: &str| -> Result<Value> {
        let parts = (0..u.int_in_range(0..=3)?).map(|_| u.choose(from).cloned()).collect::<Result<Vec<_>>>()?;
        Ok(json!({"type": "Sequence", name: parts}))
    };
    Ok(json!({
        "added_tokens": added,
        "normalizer": sequence(u, &normalizers, "normalizers")?,
        "pre_tokenizer": sequence(u, &splitters, "pretokenizers")?,
        "model": {
            "type": "BPE", "vocab": vocab, "merges": merges, "unk_token": word(u)?, "byte_fallback": u.arbitrary::<bool>()?,
            "ignore_merges": u.arbitrary::<bool>()?, "fuse_unk": u.arbitrary::<bool>()?,
        },
    }))
}
