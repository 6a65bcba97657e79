use proptest::prelude::*;
use selfspec_text::{RenderedPrompt, Tokenizer};

use crate::byte_level::tricky;
use crate::support::{sentence_piece, texts};

fn tokenizer() -> Tokenizer {
    Tokenizer::from_gguf(sentence_piece()).unwrap()
}

fn pieces(text: &str) -> Vec<String> {
    let t = tokenizer();
    texts(&t, &t.encode(text, false).unwrap())
}

#[test]
fn the_best_score_is_merged_first() {
    assert_eq!(pieces("abc"), ["▁abc"]);
    assert_eq!(pieces("aaaa"), ["▁a", "aaa"]);
    assert_eq!(pieces("a abc"), ["▁a", "▁abc"]);
    assert_eq!(pieces("="), ["▁", "="]);
}

#[test]
fn of_equal_scores_the_longer_left_part_is_merged_first() {
    // "==" and "===" both ways: = = = could be (==)(=) or (=)(==).
    assert_eq!(pieces("====="), ["▁", "==", "==="]);
}

#[test]
fn characters_without_a_piece_become_bytes() {
    assert_eq!(pieces("é€"), ["▁", "é", "<0xE2>", "<0x82>", "<0xAC>"]);
    assert_eq!(pieces("日本"), ["▁", "日本"]);
    assert_eq!(pieces("\n"), ["▁", "<0x0A>"]);
}

#[test]
fn without_byte_tokens_unknown_characters_become_one_unknown_token() {
    let mut v = sentence_piece();
    v.token_types[3 + 0xE2] = 5;
    let t = Tokenizer::from_gguf(v.clone()).unwrap();
    assert_eq!(texts(&t, &t.encode("a€€b", false).unwrap()), ["▁a", "<unk>", "b"]);
    v.unk = None;
    v.token_types[0] = 1;
    assert!(Tokenizer::from_gguf(v).unwrap().encode("€", false).unwrap_err().to_string().contains("'€'"));
}

#[test]
fn the_space_prefix_is_the_files_choice() {
    let mut v = sentence_piece();
    v.add_space_prefix = Some(false);
    let t = Tokenizer::from_gguf(v).unwrap();
    assert_eq!(texts(&t, &t.encode("abc", false).unwrap()), ["abc"]);
    assert_eq!(t.decode(&t.encode(" abc", false).unwrap()), " abc");
    assert_eq!(pieces(" a"), ["▁", "▁a"], "a text's own space stays beside the prefix");
    assert_eq!(pieces(""), [""; 0]);
}

#[test]
fn bos_is_added_unless_the_file_says_otherwise() {
    let mut v = sentence_piece();
    assert_eq!(Tokenizer::from_gguf(v.clone()).unwrap().encode("", true).unwrap(), [1]);
    v.add_bos = Some(false);
    assert_eq!(Tokenizer::from_gguf(v).unwrap().encode("", true).unwrap(), [0; 0]);
}

#[test]
fn a_prompt_has_one_bos_whoever_wrote_it() {
    let t = tokenizer();
    let with = t.encode_prompt(&RenderedPrompt::trusted("<s>ab</s>a")).unwrap();
    let without = t.encode_prompt(&RenderedPrompt::trusted("ab</s>a")).unwrap();
    assert_eq!(with, without);
    assert_eq!(texts(&t, &with), ["<s>", "▁ab", "</s>", "▁a"]);
}

#[test]
fn runs_of_spaces_marked_user_defined_are_made_by_merges() {
    let mut v = sentence_piece();
    v.add_space_prefix = Some(false);
    for (i, n) in [2usize, 3, 4].iter().enumerate() {
        let at = v.tokens.iter().position(|t| t == ["▁▁", "▁▁▁▁", "é"][i]).unwrap();
        v.tokens[at] = " ".repeat(*n);
        v.token_types[at] = 4;
        v.scores[at] = -1000.0;
    }
    let t = Tokenizer::from_gguf(v).unwrap();
    // Pairs come first, then threes, then fours: as the reference's merges, not the longest run
    // from the left.
    assert_eq!(texts(&t, &t.encode("       ", false).unwrap()), ["    ", "   "]);
    assert_eq!(texts(&t, &t.encode("   abc", false).unwrap()), ["   ", "abc"]);
}

#[test]
fn unused_pieces_lead_to_longer_ones_but_never_appear() {
    let mut v = sentence_piece();
    v.add_space_prefix = Some(false);
    let at = v.tokens.iter().position(|t| t == "ab").unwrap();
    v.token_types[at] = 5;
    let t = Tokenizer::from_gguf(v).unwrap();
    assert_eq!(texts(&t, &t.encode("abab", false).unwrap()), ["a", "b", "a", "b"]);
    assert_eq!(
        texts(&t, &t.encode("abc", false).unwrap()),
        ["abc"],
        "bc does not come before ab, so abc is reached through ab"
    );
}

#[test]
fn what_is_wrong_in_a_vocabulary_is_named() {
    let mut v = sentence_piece();
    v.scores[7] = f32::NAN;
    assert!(Tokenizer::from_gguf(v).unwrap_err().to_string().contains("scores[7]"));
    let mut v = sentence_piece();
    v.scores.clear();
    assert!(Tokenizer::from_gguf(v).unwrap_err().to_string().contains("scores"));
}

#[test]
fn pieces_with_an_inner_space_are_found_across_words() {
    let mut v = sentence_piece();
    v.tokens.extend(["c▁".into(), "c▁a".into()]);
    v.token_types.extend([1, 1]);
    v.scores.extend([0.5, 0.4]);
    let t = Tokenizer::from_gguf(v).unwrap();
    assert_eq!(texts(&t, &t.encode("c a", false).unwrap()), ["▁", "c▁a"]);
}

proptest! {
    #[test]
    fn decoding_gives_the_text_back(text in tricky(), prefix in any::<bool>()) {
        let mut v = sentence_piece();
        v.add_space_prefix = Some(prefix);
        let t = Tokenizer::from_gguf(v).unwrap();
        // The vocabulary cannot tell a ▁ from a space.
        prop_assert_eq!(t.decode(&t.encode(&text, true).unwrap()), text.replace('▁', " "));
    }
}
