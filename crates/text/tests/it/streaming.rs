use proptest::prelude::*;
use selfspec_text::{Detokenizer, StopMatcher, Tokenizer};

use crate::support::{byte_level, sentence_piece};

fn ids_of(t: &Tokenizer, bytes: &[u8]) -> Vec<u32> {
    bytes
        .iter()
        .map(|&b| (0..t.vocab_size() as u32).find(|&id| t.bytes(id) == Some(&[b]) && !t.is_control(id)).unwrap())
        .collect()
}

#[test]
fn an_emoji_in_several_tokens_appears_once_when_complete() {
    for v in [byte_level("gpt-2"), sentence_piece()] {
        let t = Tokenizer::from_gguf(v).unwrap();
        let mut stream = Detokenizer::new();
        let mut out = String::new();
        let mut steps = Vec::new();
        for id in ids_of(&t, "x👍🏽本".as_bytes()) {
            stream.push(&t, id, &mut out);
            steps.push(out.clone());
        }
        stream.finish(&mut out);
        assert_eq!(out, "x👍🏽本");
        assert!(steps.iter().all(|s| out.starts_with(s) && !s.contains('\u{fffd}')), "{steps:?}");
        assert_eq!(
            steps.iter().filter(|s| s.as_str() == "x👍").count(),
            4,
            "held until the next character is complete"
        );
    }
}

#[test]
fn bytes_that_cannot_become_a_character_are_replaced() {
    let t = Tokenizer::from_gguf(byte_level("gpt-2")).unwrap();
    let text = |bytes: &[u8]| t.decode(&ids_of(&t, bytes));
    assert_eq!(text(b"a\xFFb"), "a\u{fffd}b");
    assert_eq!(text(b"\xF0\x9F\x91"), "\u{fffd}", "an unfinished character is one replacement");
    assert_eq!(text(b"\xF0\x9Fa"), "\u{fffd}a");
    let mut out = String::new();
    let mut stream = Detokenizer::new();
    stream.push(&t, 0xF0, &mut out);
    assert_eq!(out, "");
    stream.finish(&mut out);
    stream.finish(&mut out);
    assert_eq!(out, "\u{fffd}");
}

#[test]
fn control_tokens_give_no_text() {
    let t = Tokenizer::from_gguf(byte_level("gpt-2")).unwrap();
    let end = t.token_id("<|im_end|>").unwrap();
    let think = t.token_id("<think>").unwrap();
    assert_eq!(t.decode(&[b'a' as u32, end, think, b'b' as u32, 1_000_000]), "a<think>b");
}

#[test]
fn control_tokens_are_spelled_out_for_who_looks_for_them() {
    let t = Tokenizer::from_gguf(byte_level("gpt-2")).unwrap();
    let (start, end) = (t.token_id("<|im_start|>").unwrap(), t.token_id("<|im_end|>").unwrap());
    let mut detokenizer = Detokenizer::new().spelling(vec![start]);
    let mut out = String::new();
    for id in [t.encode("a", false).unwrap(), vec![start, end, start]].concat() {
        detokenizer.push(&t, id, &mut out);
    }
    assert_eq!(out, "a<|im_start|><|im_start|>");
}

#[test]
fn the_encoders_own_space_is_left_out_at_the_start_only() {
    let t = Tokenizer::from_gguf(sentence_piece()).unwrap();
    let ids = t.encode("a a", true).unwrap();
    assert_eq!(t.decode(&ids), "a a");
    let mut out = String::new();
    let mut stream = Detokenizer::continuing();
    ids.iter().for_each(|&id| stream.push(&t, id, &mut out));
    assert_eq!(out, " a a");
}

proptest! {
    #[test]
    fn streaming_equals_decoding_all_bytes_at_once(ids in prop::collection::vec(0u32..600, 0..40), spm in any::<bool>()) {
        let t = Tokenizer::from_gguf(if spm { sentence_piece() } else { byte_level("gpt-2") }).unwrap();
        let mut bytes = Vec::new();
        ids.iter().filter(|&&id| !t.is_control(id)).for_each(|&id| bytes.extend_from_slice(t.bytes(id).unwrap_or_default()));
        if spm && bytes.first() == Some(&b' ') {
            bytes.remove(0);
        }
        let expected = String::from_utf8_lossy(&bytes);
        let (mut out, mut stream) = (String::new(), Detokenizer::new());
        for &id in &ids {
            stream.push(&t, id, &mut out);
            prop_assert!(expected.starts_with(&out));
        }
        stream.finish(&mut out);
        prop_assert_eq!(&out, &expected);
        prop_assert_eq!(t.decode(&ids), expected);
    }
}

/// The definition: the first place where a stop is complete; of several there the longest, of those
/// the first.
fn naive(stops: &[String], text: &str) -> (String, Option<usize>) {
    for end in 0..=text.len() {
        let matching =
            stops.iter().enumerate().filter(|(_, s)| !s.is_empty() && text.as_bytes()[..end].ends_with(s.as_bytes()));
        if let Some((i, s)) = matching.rev().max_by_key(|(_, s)| s.len()) {
            return (text[..end - s.len()].to_owned(), Some(i));
        }
    }
    (text.to_owned(), None)
}

fn stream(stops: &[String], parts: &[&str]) -> (String, Option<usize>) {
    let mut matcher = StopMatcher::new(stops.to_vec());
    let mut out = String::new();
    for part in parts {
        let before = out.len();
        let found = matcher.push(part, &mut out);
        assert_eq!(found, matcher.found());
        assert!(out.len() >= before);
        let all: String = parts.concat();
        assert!(all.starts_with(&out));
    }
    matcher.finish(&mut out);
    (out, matcher.found())
}

#[test]
fn a_stop_is_found_however_it_is_split() {
    let stops = ["</answer>".to_owned(), "ende—".to_owned(), "answer".to_owned()];
    let text = "x </ans </answer> y";
    for at in (0..=text.len()).filter(|&i| text.is_char_boundary(i)) {
        for to in (at..=text.len()).filter(|&i| text.is_char_boundary(i)) {
            let got = stream(&stops, &[&text[..at], &text[at..to], &text[to..]]);
            assert_eq!(got, ("x </ans </".to_owned(), Some(2)));
        }
    }
}

#[test]
fn only_what_may_become_a_stop_is_held_back() {
    let mut matcher = StopMatcher::new(vec!["aab".into(), "b—c".into()]);
    let mut out = String::new();
    matcher.push("xaaa", &mut out);
    assert_eq!(out, "xa", "aa may still become aab");
    matcher.push("c", &mut out);
    assert_eq!(out, "xaaac");
    matcher.push("b—", &mut out);
    assert_eq!(out, "xaaac");
    assert_eq!(matcher.push("c!", &mut out), Some(1));
    assert_eq!(matcher.push("more", &mut out), Some(1));
    matcher.finish(&mut out);
    assert_eq!(out, "xaaac");
}

#[test]
fn without_stops_nothing_is_held() {
    for stops in [vec![], vec![String::new()]] {
        let mut matcher = StopMatcher::new(stops);
        let mut out = String::new();
        assert_eq!(matcher.push("abc", &mut out), None);
        assert_eq!(out, "abc");
    }
}

proptest! {
    #[test]
    fn stops_equal_a_naive_search_for_any_split(
        stops in prop::collection::vec("[abé]{0,4}", 0..4),
        parts in prop::collection::vec("[abcé]{0,5}", 0..10),
    ) {
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        prop_assert_eq!(stream(&stops, &parts), naive(&stops, &parts.concat()));
    }
}
