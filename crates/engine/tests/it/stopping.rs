//! Where a generation ends: the same token with speculation as without, in text, ids and usage.

use crate::common::*;
use selfspec_engine::{FinishReason, Prompt, Request};
use selfspec_model::TokenId;
use selfspec_speculate::SpeculationParams;
use selfspec_testkit::Vocab;

const TEXT: &str = "one, two, three, four, five, six, seven, eight, nine, ten. STOP and more text after it, which nobody asked for at all.";

fn speculations() -> Vec<SpeculationParams> {
    let mut all = vec![SpeculationParams::off()];
    all.extend((1..=8).map(|k| layer_skip(LAYERS, 1, k)));
    all.push(SpeculationParams { bonus: false, ..layer_skip(LAYERS, 2, 4) });
    all.push(SpeculationParams { bonus: false, ..layer_skip(LAYERS, 2, 1) });
    all.push(prompt_lookup(6));
    all
}

/// Asks the same under every speculation, checks that all say the same, and gives what they say.
/// `drafts` says whether the run is long enough that drafts must have been both accepted and
/// rejected somewhere.
fn same_everywhere(
    script: &[TokenId],
    make: impl Fn() -> Request,
    drafts: bool,
) -> (Vec<TokenId>, String, FinishReason) {
    let tokenizer = tokenizer();
    let vocab = tokenizer.vocab_size();
    let engine = engine(scripted(script.to_vec(), vocab), Some(tokenizer));
    let mut plain = None;
    let (mut accepted, mut rejected, mut lengths) = (0, 0, [0; 17]);
    for speculation in speculations() {
        let mut request = make();
        request.speculation = speculation.clone();
        let answer = answer(&engine, request);
        let said = answer.said();
        accepted += answer.summary.stats.accepted;
        rejected += answer.summary.stats.rejected;
        for (sum, n) in lengths.iter_mut().zip(answer.summary.stats.accepted_lengths) {
            *sum += n;
        }
        match &plain {
            None => plain = Some(said),
            Some(plain) => assert_eq!(&said, plain, "{speculation:?}"),
        }
    }
    if drafts {
        assert!(accepted > 0 && rejected > 0, "drafts were judged: {accepted} accepted, {rejected} rejected");
        assert!(lengths[..5].iter().all(|n| *n > 0), "every accepted length up to 4 occurs: {lengths:?}");
    }
    let (ids, text, reason, _) = plain.expect("there is a plain run");
    (ids, text, reason)
}

fn prompt() -> Prompt {
    Prompt::Tokens(vec![0])
}

#[test]
fn a_stop_string_cuts_text_and_ids_at_the_same_token_wherever_rounds_end() {
    let script = bytes_of(&tokenizer(), TEXT);
    for stop in ["STOP", "four, f", ". ST", "t", " and more", "n", "nine, ten. STOP and"] {
        let (ids, text, reason) = same_everywhere(
            &script,
            || Request { stop: vec![stop.to_owned()], max_tokens: Some(100), ..Request::new(prompt()) },
            TEXT.find(stop).is_some_and(|at| at > 40),
        );
        let at = TEXT.find(stop).expect("it is there");
        assert_eq!(reason, FinishReason::Stop, "{stop:?}");
        assert_eq!(text, TEXT[..at], "{stop:?}");
        assert_eq!(ids, script[..at + stop.len()], "the token that completes {stop:?} is the last one");
    }
}

#[test]
fn of_several_stop_strings_the_one_complete_first_ends_the_text() {
    let script = bytes_of(&tokenizer(), TEXT);
    let stop: Vec<String> = ["seven, eight", "six, seven, nine", "even", "zzz"].map(str::to_owned).into();
    let make = || Request { stop: stop.clone(), max_tokens: Some(100), ..Request::new(prompt()) };
    let (_, text, _) = same_everywhere(&script, make, true);
    assert_eq!(text, TEXT[..TEXT.find("even").expect("there")]);
}

#[test]
fn what_might_have_become_a_stop_string_comes_out_at_the_end() {
    let script = bytes_of(&tokenizer(), TEXT);
    let make = || Request { stop: vec!["four, four".to_owned()], max_tokens: Some(22), ..Request::new(prompt()) };
    let (ids, text, reason) = same_everywhere(&script, make, false);
    assert_eq!((ids.len(), text.as_str(), reason), (22, &TEXT[..22], FinishReason::Length));
    assert!(text.ends_with("four,"), "the text ends inside a possible stop: {text:?}");
}

#[test]
fn an_end_token_inside_an_accepted_run_ends_ids_and_text_there() {
    let tokenizer = tokenizer();
    let mut script = bytes_of(&tokenizer, TEXT);
    let eos = *tokenizer.eos_ids().first().expect("the test kit's vocabulary has one");
    for at in 0..40 {
        script.insert(at, eos);
        let make = || Request { max_tokens: Some(60), ..Request::new(prompt()) };
        let (ids, text, reason) = same_everywhere(&script, make, false);
        assert_eq!(reason, FinishReason::Stop);
        assert_eq!(ids, script[..=at], "the end token is the last one, {at}");
        assert_eq!(text, TEXT[..at], "and has no text");
        let make = || Request { max_tokens: Some(60), ignore_eos: true, ..Request::new(prompt()) };
        let (ids, text, reason) = same_everywhere(&script, make, true);
        assert_eq!((ids.len(), text.len(), reason), (60, 59, FinishReason::Length));
        script.remove(at);
    }
}

#[test]
fn a_stop_token_of_the_request_ends_it_and_has_no_text() {
    let script = bytes_of(&tokenizer(), TEXT);
    let stop = script[TEXT.find("v").expect("there")];
    let make = || Request { stop_tokens: vec![stop], max_tokens: Some(100), ..Request::new(prompt()) };
    let (ids, text, reason) = same_everywhere(&script, make, false);
    let at = TEXT.find("v").expect("there");
    assert_eq!((ids.len(), text.as_str(), reason), (at + 1, &TEXT[..at], FinishReason::Stop));
}

#[test]
fn a_stop_inside_a_run_that_crosses_max_tokens_is_a_stop_and_one_beyond_is_not_seen() {
    let tokenizer = tokenizer();
    let eos = *tokenizer.eos_ids().first().expect("there");
    let script = vec![10, 11, eos, 20, 21, 22, 23];
    let make = |max| move || Request { max_tokens: Some(max), ..Request::new(prompt()) };
    let (ids, _, reason) = same_everywhere(&script, make(5), false);
    assert_eq!((ids.as_slice(), reason), (&script[..3], FinishReason::Stop));
    let (ids, _, reason) = same_everywhere(&script, make(2), false);
    assert_eq!((ids.as_slice(), reason), (&script[..2], FinishReason::Length));
    let (ids, _, reason) = same_everywhere(&script, make(3), false);
    assert_eq!((ids.as_slice(), reason), (&script[..3], FinishReason::Stop), "both apply: the stop counts");
}

#[test]
fn exactly_max_tokens_come_for_every_small_number() {
    let script = bytes_of(&tokenizer(), TEXT);
    for max in 1..=12 {
        let make = || Request { max_tokens: Some(max), ..Request::new(prompt()) };
        let (ids, text, reason) = same_everywhere(&script, make, false);
        assert_eq!((ids.len(), text.len(), reason), (max, max, FinishReason::Length));
    }
}

#[test]
fn without_a_bound_a_request_runs_to_the_end_of_the_context() {
    let tokenizer = tokenizer();
    let script = bytes_of(&tokenizer, TEXT);
    let mut lens = Vec::new();
    for speculation in speculations() {
        let backend = scripted_with(script.clone(), tokenizer.vocab_size(), 40, 256);
        let engine = engine(backend, Some(tokenizer.clone()));
        let answer = answer(&engine, Request { speculation, ..Request::new(Prompt::Tokens(vec![0, 1, 2])) });
        assert_eq!(answer.summary.finish_reason, FinishReason::Context);
        lens.push(answer.said().0.len());
    }
    assert!(lens.iter().all(|l| *l == lens[0] && *l >= 37), "{lens:?}");
}

#[test]
fn a_character_in_several_tokens_streams_whole() {
    let text = "ein Grüß, 你好世界, 👩‍👩‍👧 family, ok";
    let tokenizer = tokenizer();
    let script = bytes_of(&tokenizer, text);
    let len = script.len();
    let make = || Request { max_tokens: Some(len), ..Request::new(prompt()) };
    let (_, said, _) = same_everywhere(&script, make, true);
    assert_eq!(said, text);
    let engine = engine(scripted(script.clone(), tokenizer.vocab_size()), Some(tokenizer.clone()));
    for k in 1..=8 {
        let speculation = layer_skip(LAYERS, 1, k);
        let answer = answer(&engine, Request { speculation, max_tokens: Some(len), ..Request::new(prompt()) });
        for token in &answer.tokens {
            assert!(!token.text.contains('\u{fffd}') && token.text.chars().count() <= 1, "{:?}", token.text);
        }
    }
    // Cut inside a character: what can no longer be completed is one replacement character.
    let cut = text.find('你').expect("there") + 1;
    let make = || Request { max_tokens: Some(cut), ..Request::new(prompt()) };
    let (_, said, _) = same_everywhere(&script, make, false);
    assert_eq!(said, format!("{}\u{fffd}", &text[..cut - 1]));
}

#[test]
fn a_stop_string_of_many_bytes_a_character_is_found_when_its_last_token_comes() {
    let text = "before 世界 after, and some more";
    let script = bytes_of(&tokenizer(), text);
    let make = || Request { stop: vec!["世界".to_owned()], max_tokens: Some(30), ..Request::new(prompt()) };
    let (ids, said, reason) = same_everywhere(&script, make, false);
    assert_eq!((said.as_str(), reason), ("before ", FinishReason::Stop));
    assert_eq!(ids, script[.."before 世界".len()]);
}

/// " and the" behind "so" is text, and its space too; behind a BOS or a turn's control token the
/// space is the encoder's own.
#[test]
fn a_first_space_is_text_where_the_prompt_ends_in_text() {
    let vocab = Vocab::sentence_piece();
    let token = |text: &str| vocab.id(text);
    let script = [token("▁and"), token("▁the"), token("▁"), token("a")];
    for (prompt, expected) in [
        (vec![token("<s>"), token("s"), token("o")], " and the a"),
        (vec![token("<s>")], "and the a"),
        (vec![token("<s>"), token("<start_of_turn>")], "and the a"),
    ] {
        let mut whole = vec![0; prompt.len() - 1]; // the script speaks by position
        whole.extend(script);
        let engine = engine(scripted(whole, vocab.len()), Some(tokenizer_of(vocab.clone())));
        assert_eq!(answer(&engine, request(&prompt, script.len())).said().1, expected);
    }
}
