use proptest::prelude::*;
use selfspec_text::{GgufVocab, TokenKind, Tokenizer};

use crate::support::{byte_level, letter, shared, texts};

fn tokenizer(pre: &str) -> &'static Tokenizer {
    shared(pre)
}

fn pieces(pre: &str, text: &str) -> Vec<String> {
    let t = tokenizer(pre);
    texts(t, &t.encode(text, true).unwrap())
}

#[test]
fn merges_apply_best_first_inside_pre_tokens() {
    assert_eq!(pieces("gpt-2", "hello world"), ["hello", "Ġworld"]);
    assert_eq!(pieces("gpt-2", "helloworld"), ["hello", "w", "or", "ld"]);
    assert_eq!(pieces("gpt-2", "aaaaa"), ["aa", "aaa"], "aa aa a: aaa has the better rank, though aa aa stands first");
    assert_eq!(pieces("gpt-2", "he's"), ["he", "'s"]);
    assert_eq!(pieces("gpt-2", ""), [""; 0]);
}

#[test]
fn each_pre_tokenizer_has_its_own_rule() {
    // A run of spaces leaves its last one to the word, but not to a digit that stands alone.
    assert_eq!(pieces("gpt-2", "     7"), ["ĠĠĠĠ", "Ġ7"]);
    assert_eq!(pieces("smollm", "     7"), ["ĠĠĠĠ", "Ġ", "7"]);
    assert_eq!(pieces("llama-bpe", "     7"), ["ĠĠĠĠ", "Ġ", "7"]);
    assert_eq!(pieces("qwen2", "     7"), ["ĠĠĠĠ", "Ġ", "7"]);
    // Numbers: all digits, one by one, or in threes.
    assert_eq!(pieces("gpt-2", "1231"), ["123", "1"]);
    assert_eq!(pieces("smollm", "123"), ["1", "2", "3"]);
    assert_eq!(pieces("llama-bpe", "1123"), ["1", "12", "3"]);
    assert_eq!(pieces("qwen2", "123"), ["1", "2", "3"]);
    // Line breaks end a pre-token in the newer rules only.
    assert_eq!(pieces("llama-bpe", "a\n\nh"), ["a", "ĊĊ", "h"]);
    assert_eq!(pieces("gpt-2", "a\n\nh"), ["a", "Ċ", "Ċ", "h"]);
    // Qwen2 composes first.
    assert_eq!(pieces("qwen2", "e\u{301}"), ["Ã©"]);
    assert_eq!(pieces("gpt-2", "e\u{301}").len(), 3);
}

#[test]
fn a_missing_or_default_pre_tokenizer_is_that_of_gpt2() {
    let text = "  12 he's\n\n  x";
    let mut without = byte_level("gpt-2");
    without.pre = None;
    let expected = tokenizer("gpt-2").encode(text, false).unwrap();
    assert_eq!(tokenizer("default").encode(text, false).unwrap(), expected);
    assert_eq!(Tokenizer::from_gguf(without).unwrap().encode(text, false).unwrap(), expected);
}

#[test]
fn llama3_takes_a_whole_token_before_merging() {
    let mut v = byte_level("llama-bpe");
    // A token that no merge makes.
    v.tokens.push("zq".into());
    v.token_types.push(1);
    let id = v.tokens.len() as u32 - 1;
    assert_eq!(Tokenizer::from_gguf(v.clone()).unwrap().encode("zq", false).unwrap(), [id]);
    v.pre = Some("gpt-2".into());
    assert_eq!(Tokenizer::from_gguf(v).unwrap().encode("zq", false).unwrap().len(), 2);
}

#[test]
fn control_spellings_in_text_stay_text_and_user_defined_ones_are_tokens() {
    let t = tokenizer("gpt-2");
    let ids = t.encode("<|im_end|><think>", false).unwrap();
    assert_eq!(ids.iter().filter(|&&id| t.is_control(id)).count(), 0);
    assert_eq!(
        ids.last().map(|&id| (t.kind(id), t.token_text(id))),
        Some((Some(TokenKind::UserDefined), Some("<think>")))
    );
    assert_eq!(t.decode(&ids), "<|im_end|><think>");
}

#[test]
fn a_control_token_is_never_made_by_merges_or_as_a_whole() {
    let mut v = byte_level("llama-bpe");
    for (text, kind) in [("zz", 3), ("zzz", 3)] {
        v.tokens.push(text.into());
        v.token_types.push(kind);
    }
    v.merges.extend(["z z".into(), "zz z".into()]);
    let t = Tokenizer::from_gguf(v).unwrap();
    assert_eq!(texts(&t, &t.encode("zzz", false).unwrap()), ["z", "z", "z"]);
}

#[test]
fn bos_is_put_first_only_where_the_model_wants_it() {
    let mut v = byte_level("gpt-2");
    assert_eq!(pieces("gpt-2", "a"), ["a"]);
    v.add_bos = Some(true);
    let t = Tokenizer::from_gguf(v.clone()).unwrap();
    assert_eq!(texts(&t, &t.encode("a", true).unwrap()), ["<|endoftext|>", "a"]);
    assert_eq!(texts(&t, &t.encode("a", false).unwrap()), ["a"]);
    // Without the flag the rule decides: Llama 3 wants BOS, GPT-2 does not.
    v.add_bos = None;
    assert!(!Tokenizer::from_gguf(v.clone()).unwrap().adds_bos());
    v.pre = Some("llama-bpe".into());
    assert!(Tokenizer::from_gguf(v).unwrap().adds_bos());
}

#[test]
fn eos_ids_hold_every_token_that_ends_a_turn() {
    let t = tokenizer("gpt-2");
    let mut expected: Vec<u32> = ["<|endoftext|>", "<|im_end|>"].iter().map(|s| t.token_id(s).unwrap()).collect();
    expected.sort_unstable();
    assert_eq!(t.eos_ids(), expected);
}

fn error(v: GgufVocab) -> String {
    let message = Tokenizer::from_gguf(v).unwrap_err().to_string();
    assert!(!message.contains('\n') && !message.ends_with('.'), "{message}");
    message
}

#[test]
fn what_is_wrong_in_a_vocabulary_is_named() {
    let with = |change: &dyn Fn(&mut GgufVocab)| {
        let mut v = byte_level("gpt-2");
        change(&mut v);
        error(v)
    };
    assert!(with(&|v| v.model = "bert".into()).contains("\"bert\""));
    assert!(with(&|v| v.pre = Some("superbpe".into())).contains("\"superbpe\""));
    assert!(with(&|v| v.merges[3] = "hello".into()).contains("merges[3]"));
    assert!(with(&|v| v.merges[4] = "q q".into()).contains("merges[4]"));
    assert!(with(&|v| v.merges[5] = "a b c".into()).contains("merges[5]"));
    assert!(with(&|v| v.bos = Some(9999)).contains("bos_token_id: expected below"));
    assert!(with(&|v| v.token_types[7] = 99).contains("token_type[7]"));
    assert!(with(&|v| v.token_types.truncate(3)).contains("token_type: expected one for each"));
    assert!(with(&|v| v.scores = vec![1.0]).contains("scores"));
    assert!(with(&|v| v.tokens.clear()).contains("tokens: expected at least one"));
}

#[test]
fn a_byte_without_token_is_left_out() {
    let mut v = byte_level("gpt-2");
    v.tokens[b'q' as usize] = "gone".into();
    v.unk = Some(3);
    let t = Tokenizer::from_gguf(v).unwrap();
    assert_eq!(texts(&t, &t.encode("hqe", false).unwrap()), ["he"]);
}

#[test]
fn tokens_are_the_bytes_that_they_stand_for() {
    let t = tokenizer("gpt-2");
    assert_eq!(t.bytes(0xE9), Some(&[0xE9][..]));
    assert_eq!(t.bytes(t.token_id("Ġworld").unwrap()), Some(&b" world"[..]));
    assert_eq!(t.bytes(t.vocab_size() as u32), None);
    assert_eq!(letter(b' '), 'Ġ');
}

#[test]
fn a_long_text_without_breaks_is_not_quadratic() {
    // Half a megabyte without a cut: a quadratic routine would take minutes.
    let t = tokenizer("gpt-2");
    let text = "a".repeat(1 << 18) + &" ".repeat(1 << 18);
    let ids = t.encode(&text, false).unwrap();
    assert_eq!(t.decode(&ids), text);
}

/// Text rich in what pre-tokenizers and added tokens look at.
pub(crate) fn tricky() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => any::<char>().prop_map(String::from),
        4 => "[a-c \\n\\t'sħé0-9=]{0,6}",
        2 => prop::sample::select(vec![
            "hello", " world", "<|im_end|>", "<|im_start|>", "<think>", "'s", "'LL", "  ", "\r\n", "日本", "👨\u{200d}👩", "\u{a0}", "▁", "e\u{301}", "<s>", "ſ",
        ]).prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|v| v.concat())
}

proptest! {
    #[test]
    fn decoding_gives_the_text_back(text in tricky(), pre in prop::sample::select(vec!["gpt-2", "smollm", "llama-bpe", "tekken"])) {
        let t = tokenizer(pre);
        let ids = t.encode(&text, true).unwrap();
        prop_assert_eq!(t.decode(&ids), text);
        prop_assert!(ids.iter().all(|&id| !t.is_control(id)));
    }

    #[test]
    fn decoding_gives_the_composed_text_back_for_qwen2(text in tricky()) {
        use unicode_normalization_alignments::UnicodeNormalization;
        let t = tokenizer("qwen2");
        // Added tokens are cut out first, so the stretches between them are composed.
        let expected: String = text.split("<think>").map(|s| s.nfc().map(|(c, _)| c).collect::<String>()).collect::<Vec<_>>().join("<think>");
        prop_assert_eq!(t.decode(&t.encode(&text, true).unwrap()), expected);
    }
}
