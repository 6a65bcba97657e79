//! The library on a tiny generated model.

use selfspec::{
    Error, FinishReason, GenerateOptions, GrammarSource, Message, Model, Prompt, RequestedDrafter, SpeculationRequest,
};
use selfspec_testkit::{Family, TinyModel};
use tempfile::TempDir;

/// A model in a folder of its own, which must live as long as the path is used.
fn tiny() -> (TempDir, Model) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("tiny.gguf");
    TinyModel::new(Family::Llama).layers(6).gguf().write(&path);
    let model = Model::builder(path.display().to_string()).threads(1).open().expect("a model that runs");
    (dir, model)
}

fn options(max_tokens: usize) -> GenerateOptions {
    GenerateOptions { max_tokens: Some(max_tokens), ignore_eos: true, ..GenerateOptions::default() }
}

#[test]
fn output_is_the_same_with_every_drafter_and_for_many_prompts_at_once() {
    let (_dir, model) = tiny();
    let prompts = ["one two one two one", "a b c a b c a b", "x"].map(|text| Prompt::Text(text.to_owned()));
    let with = |speculation| GenerateOptions { speculation, ..options(24) };
    let plain: Vec<Vec<u32>> = prompts
        .iter()
        .map(|prompt| model.generate(prompt.clone(), &with(SpeculationRequest::off())).expect("taken"))
        .map(|tokens| tokens.finish().expect("ends").token_ids().to_vec())
        .collect();
    let mut drafted = 0;
    for drafter in [None, Some(RequestedDrafter::LayerSkip), Some(RequestedDrafter::PromptLookup)] {
        let request = SpeculationRequest { drafter, always: true, ..SpeculationRequest::default() };
        let together = model.generate_all(prompts.clone(), &with(request));
        for (completion, plain) in together.into_iter().zip(&plain) {
            let completion = completion.expect("ends");
            drafted += completion.stats().drafted;
            assert_eq!(completion.token_ids(), plain, "{drafter:?}");
            assert_eq!(completion.finish_reason(), FinishReason::Length);
        }
    }
    assert!(drafted > 0, "nothing was drafted, so that nothing was tested");
}

#[test]
fn a_conversation_keeps_what_was_read_of_each_reply() {
    let (_dir, model) = tiny();
    let mut chat = model.chat().system("Be brief.").options(options(12));
    let completion = chat.ask("first").expect("ends");
    assert_eq!(chat.messages()[1], Message::new("assistant", completion.text()));

    let mut reply = chat.send("second").expect("taken");
    let mut read = String::new();
    while read.is_empty() {
        read = reply.next().expect("text comes").expect("no failure").text;
    }
    drop(reply);
    assert_eq!(chat.messages().len(), 4);
    assert_eq!(chat.messages()[3], Message::new("assistant", read));

    drop(chat.send("third").expect("taken"));
    assert_eq!(chat.messages().len(), 4, "nothing of the reply was read");
    let wrong = SpeculationRequest { exit_layer: Some(99), ..SpeculationRequest::default() };
    let mut chat = chat.options(GenerateOptions { speculation: wrong, ..options(12) });
    let Err(error) = chat.send("fourth") else { panic!("layer 99 of 6") };
    assert_eq!(error.to_string(), "exit_layer 99: the model has 6 layers");
    assert_eq!(chat.messages().len(), 4, "what was not taken is not part of the conversation");
    assert!(chat.stats().rounds > 0);
}

#[test]
fn a_cancelled_reply_ends_with_its_reason() {
    let (_dir, model) = tiny();
    let mut chat = model.chat().options(options(400));
    let mut reply = chat.send("go on").expect("taken");
    reply.next().expect("a token").expect("no failure");
    reply.canceller().cancel();
    let completion = reply.finish().expect("ends");
    assert_eq!(completion.finish_reason(), FinishReason::Cancelled);
    assert!(completion.token_ids().len() < 400);
    assert_eq!(chat.messages()[1].content, completion.text());
}

#[test]
fn output_obeys_a_grammar_and_reports_log_probabilities() {
    let (_dir, model) = tiny();
    let grammar = Some(GrammarSource::Regex("[ab]{3}".to_owned()));
    let options = GenerateOptions { grammar, logprobs: Some(2), ..GenerateOptions::default() };
    let mut tokens = model.generate(Prompt::Text("x".to_owned()), &options).expect("taken");
    let all: Vec<_> = tokens.by_ref().map(|token| token.expect("no failure")).collect();
    assert!(all.iter().all(|token| token.logprob.is_some_and(|l| l <= 0.0) && token.alternatives.len() == 2));
    let text = tokens.completion().expect("it has ended").text();
    assert!(text.len() == 3 && text.chars().all(|c| "ab".contains(c)), "{text:?}");
}

#[test]
fn token_ids_and_text_are_turned_into_each_other() {
    let (_dir, model) = tiny();
    let ids = model.encode(&Prompt::Text("hello".to_owned())).expect("text");
    assert_eq!(model.decode(&ids).expect("a tokenizer").trim(), "hello");
}

#[test]
fn a_model_that_cannot_be_opened_is_an_error_with_the_facts() {
    let (dir, _model) = tiny();
    let path = dir.path().join("tiny.gguf").display().to_string();
    let opened = Model::builder(&path).context(1 << 20).open();
    assert!(matches!(opened, Err(Error::ContextTooLong { context: 0x10_0000, .. })));
    assert!(matches!(Model::open("no such model"), Err(Error::Hub(_))));
    let broken = dir.path().join("broken.gguf");
    std::fs::write(&broken, b"GGUF").expect("a file");
    let Err(error) = Model::open(broken.display().to_string()) else { panic!("four bytes") };
    let message = error.to_string();
    assert!(message.starts_with(&format!("cannot load {}: ", broken.display())), "{message}");
    assert_eq!(message.matches("broken.gguf").count(), 1, "{message}");
}
