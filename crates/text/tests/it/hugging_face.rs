use selfspec_text::{RenderedPrompt, TextError, TokenKind, Tokenizer};
use serde_json::{Value, json};

use crate::support::{MERGES, byte_level, sentence_piece, texts};

/// A tokenizer.json with the vocabulary and merges of [`byte_level`].
pub(crate) fn byte_level_json() -> Value {
    let v = byte_level("gpt-2");
    let vocab: serde_json::Map<_, _> =
        v.tokens[..v.tokens.len() - 4].iter().zip(0..).map(|(t, id)| (t.clone(), json!(id))).collect();
    let first = vocab.len();
    let added = |id: usize, content: &str, special: bool| json!({"id": id, "content": content, "special": special, "normalized": !special});
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [
            added(first, "<|endoftext|>", true), added(first + 1, "<|im_start|>", true), added(first + 2, "<|im_end|>", true),
            added(first + 3, "<think>", false),
        ],
        "normalizer": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": true},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        ]},
        "post_processor": null,
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
                  "fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": MERGES},
    })
}

/// A tokenizer.json in the style of Llama 2, with merges by hand.
fn spaced_json() -> Value {
    let v = sentence_piece();
    let vocab: serde_json::Map<_, _> = v.tokens.iter().zip(0..).map(|(t, id)| (t.clone(), json!(id))).collect();
    json!({
        "added_tokens": [
            {"id": 0, "content": "<unk>", "special": true}, {"id": 1, "content": "<s>", "special": true},
            {"id": 2, "content": "</s>", "special": true},
        ],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": null,
        "post_processor": {"type": "TemplateProcessing", "single": [
            {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {}},
        "decoder": null,
        "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true, "vocab": vocab,
                  "merges": [["▁", "a"], ["a", "b"], ["▁a", "b"], ["▁ab", "c"]]},
    })
}

fn load(json: &Value, config: Option<Value>) -> Result<Tokenizer, TextError> {
    let config = config.map(|c| serde_json::to_vec(&c).unwrap());
    Tokenizer::from_hf(&serde_json::to_vec(json).unwrap(), config.as_deref())
}

#[test]
fn a_byte_level_file_gives_the_tokens_of_the_same_gguf() {
    let hf = load(&byte_level_json(), None).unwrap();
    let gguf = Tokenizer::from_gguf(byte_level("smollm")).unwrap();
    for text in ["hello world", "  123 he's\n\n", "<|im_end|><think>é", ""] {
        assert_eq!(hf.encode(text, true).unwrap(), gguf.encode(text, true).unwrap());
        let trusted = RenderedPrompt::trusted(text);
        assert_eq!(hf.encode_prompt(&trusted).unwrap(), gguf.encode_prompt(&trusted).unwrap());
    }
    assert_eq!(hf.kind(hf.token_id("<think>").unwrap()), Some(TokenKind::UserDefined));
    assert_eq!(hf.vocab_size(), gguf.vocab_size());
}

#[test]
fn a_sentence_piece_file_has_prefix_bytes_and_bos() {
    let t = load(&spaced_json(), None).unwrap();
    let ids = t.encode("abc é\n", true).unwrap();
    assert_eq!(texts(&t, &ids), ["<s>", "▁abc", "▁", "é", "<0x0A>"]);
    assert_eq!(t.decode(&ids), "abc é\n");
    let t = load(&spaced_json(), Some(json!({"add_bos_token": false, "bos_token": "<s>"}))).unwrap();
    assert_eq!(texts(&t, &t.encode("a", true).unwrap()), ["▁a"]);
}

#[test]
fn the_config_names_bos_and_eos_as_text_or_object() {
    let config = json!({"bos_token": {"content": "<|im_start|>", "lstrip": false}, "eos_token": "<|im_end|>", "add_bos_token": true});
    let t = load(&byte_level_json(), Some(config)).unwrap();
    assert_eq!(t.bos(), t.token_id("<|im_start|>"));
    assert!(t.adds_bos());
    assert!(t.eos_ids().contains(&t.token_id("<|im_end|>").unwrap()));
    let t = load(&byte_level_json(), Some(json!({"bos_token": null}))).unwrap();
    assert_eq!(t.bos(), None);
}

#[test]
fn the_chat_template_is_one_text_or_a_list_by_name() {
    let source =
        |config: Value| load(&byte_level_json(), Some(config)).unwrap().chat_template_source().map(str::to_owned);
    assert_eq!(source(json!({"chat_template": "a"})).as_deref(), Some("a"));
    let list = json!([{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]);
    assert_eq!(source(json!({"chat_template": list})).as_deref(), Some("d"));
    assert_eq!(source(json!({"chat_template": [{"name": "rag", "template": "r"}]})).as_deref(), Some("r"));
    assert_eq!(source(json!({"chat_template": null})), None);
    assert_eq!(source(json!({})), None);
}

#[test]
fn metaspace_adds_its_space_where_its_scheme_says() {
    let with = |scheme: &str| {
        let mut json = spaced_json();
        json["normalizer"] = Value::Null;
        json["pre_tokenizer"] =
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false});
        let t = load(&json, Some(json!({"add_bos_token": false}))).unwrap();
        let ids = t.encode_prompt(&RenderedPrompt::trusted("a</s>a</s> a")).unwrap();
        texts(&t, &ids).join("")
    };
    assert_eq!(with("first"), "▁a</s>a</s>▁a");
    assert_eq!(with("always"), "▁a</s>▁a</s>▁a");
    assert_eq!(with("never"), "a</s>a</s>▁a");
}

#[test]
fn added_tokens_may_take_white_space_along_or_need_room() {
    let mut json = byte_level_json();
    json["added_tokens"][2]["rstrip"] = json!(true);
    json["added_tokens"][1]["lstrip"] = json!(true);
    json["added_tokens"][3]["single_word"] = json!(true);
    json["added_tokens"][3]["content"] = json!("thinking");
    let t = load(&json, None).unwrap();
    let ids = t.encode_prompt(&RenderedPrompt::trusted("a \n<|im_start|> b<|im_end|>  c")).unwrap();
    assert_eq!(texts(&t, &ids), ["a", "<|im_start|>", "Ġ", "b", "<|im_end|>", "c"]);
    let count = |text: &str| {
        let id = t.token_id("thinking").unwrap();
        t.encode(text, false).unwrap().iter().filter(|&&i| i == id).count()
    };
    assert_eq!(count("thinking rethinking thinking, _thinking"), 2);
}

fn error(change: impl Fn(&mut Value)) -> String {
    let mut json = byte_level_json();
    change(&mut json);
    let message = load(&json, None).unwrap_err().to_string();
    assert!(!message.contains('\n') && !message.ends_with('.'), "{message}");
    message
}

#[test]
fn what_is_wrong_or_not_supported_is_named() {
    assert!(error(|j| j["model"]["type"] = json!("Unigram")).contains("Unigram"));
    assert!(error(|j| j["model"]["dropout"] = json!(0.1)).contains("dropout"));
    assert!(error(|j| j["model"]["merges"][2] = json!("q")).contains("model.merges[2]"));
    assert!(error(|j| j["model"]["merges"][2] = json!(["q", "z"])).contains("model.merges[2]"));
    assert!(error(|j| j["normalizer"] = json!({"type": "Precompiled"})).contains("Precompiled"));
    assert!(error(|j| j["pre_tokenizer"] = json!({"type": "BertPreTokenizer"})).contains("BertPreTokenizer"));
    assert!(error(|j| j["pre_tokenizer"] = json!(null)).contains("ByteLevel"));
    assert!(error(|j| j["added_tokens"][0]["id"] = json!(4_000_000_000u32)).contains("4000000000"));
    let bad = json!({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": false});
    assert!(error(|j| j["pre_tokenizer"] = bad.clone()).contains("\"(\""));
    assert!(Tokenizer::from_hf(b"", None).is_err());
    assert!(Tokenizer::from_hf(b"{\"model\":{\"vocab\":{},\"merges\":[]}}", None).is_err());
    let config_error = load(&byte_level_json(), Some(json!([1]))).unwrap_err().to_string();
    assert!(config_error.contains("tokenizer_config.json"), "{config_error}");
}

/// The parser knows the fields by Rust's types, which say nothing to whoever wrote the file.
#[test]
fn json_of_another_shape_is_told_in_the_words_of_json_with_its_line() {
    for (at, value, words) in [
        ("/added_tokens", json!("x"), "invalid type: string \"x\", expected a list at line 1 "),
        ("/added_tokens/0", json!(7), "expected an added token: an object with `id` and `content` at line 1 "),
        ("/added_tokens/0/id", json!("7"), "invalid type: string \"7\", expected a whole number at line 1 "),
        ("/added_tokens/0/lstrip", json!(1), "invalid type: integer `1`, expected a boolean at line 1 "),
        ("/model/merges/0", json!(1), "expected a merge: two tokens at line 1 "),
        ("/model", json!("x"), "expected a model: an object with `vocab` and `merges` at line 1 "),
        ("", json!([]), "expected an object with the field `model` at line 1 "),
    ] {
        let message = error(|j| {
            j["added_tokens"][0]["lstrip"] = json!(false);
            *j.pointer_mut(at).expect(at) = value.clone();
        });
        assert!(message.starts_with("tokenizer.json: ") && message.contains(words), "{message}");
    }
    for (config, words) in [
        (json!({"bos_token": 3}), "a token must be a string, an object with `content`, or null at line 1 "),
        (json!({"chat_template": 3}), "`chat_template` must be a string, null, or a list of objects"),
        (json!("x"), "expected an object at line 1 "),
    ] {
        let message = load(&byte_level_json(), Some(config)).unwrap_err().to_string();
        assert!(message.starts_with("tokenizer_config.json: ") && message.contains(words), "{message}");
    }
}

#[test]
fn a_pattern_that_gives_up_is_an_error() {
    let mut json = byte_level_json();
    let split = json!({"type": "Split", "pattern": {"Regex": "(?:(?=a)a|(?=a)aa?)+b"}, "behavior": "Isolated", "invert": false});
    json["pre_tokenizer"] =
        json!({"type": "Sequence", "pretokenizers": [split, {"type": "ByteLevel", "use_regex": false}]});
    let t = load(&json, None).unwrap();
    assert!(matches!(t.encode(&"a".repeat(5000), false), Err(TextError::PatternFailed { .. })));
}
