//! A request that fails takes no other with it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::*;
use selfspec_engine::{Engine, EngineError, EngineOptions, Event, FinishReason, Prompt, Request};
use selfspec_model::BackendError;
use selfspec_speculate::{SamplingParams, SpeculationParams};
use selfspec_testkit::fake_target::{FakeOptions, fake_target};
use selfspec_testkit::faulty_backend::{Faults, FaultyBackend};

fn faulty(faults: &Arc<Faults>) -> Engine {
    let script = (20..60).collect();
    engine(FaultyBackend::new(scripted(script, 100), faults), None)
}

/// Submits all of them before the first step.
fn together(engine: &Engine, faults: &Faults, requests: Vec<Request>) -> Vec<Result<Answer, EngineError>> {
    faults.hold.store(true, Ordering::SeqCst);
    let generations: Vec<_> = requests.into_iter().map(|r| engine.submit(r).expect("accepted")).collect();
    faults.hold.store(false, Ordering::SeqCst);
    generations.into_iter().map(collect).collect()
}

#[test]
fn logits_that_are_no_numbers_end_their_own_request_only() {
    let faults = faults();
    let engine = faulty(&faults);
    let mut drafted = request(&[1, 2, 3], 20);
    drafted.speculation = layer_skip(LAYERS, 1, 4);
    let mut answers = together(&engine, &faults, vec![request(&[1], 20), request(&[1, NAN], 20), drafted]).into_iter();
    assert_eq!(answers.next().expect("three").expect("sound").tokens.len(), 20);
    let error = answers.next().expect("three").expect_err("NaN");
    assert!(matches!(error, EngineError::Spec(_)), "{error:?}");
    assert!(error.to_string().contains("not a number"), "{error}");
    assert_eq!(answers.next().expect("three").expect("sound").tokens.len(), 20);
    assert_eq!(answer(&engine, request(&[1], 3)).tokens.len(), 3);
}

#[test]
fn a_row_that_the_backend_refuses_ends_its_own_request_only() {
    let faults = faults();
    let engine = faulty(&faults);
    let requests = vec![request(&[1], 20), request(&[1, BAD], 20), request(&[BAD], 20), request(&[1, 2], 20)];
    let answers = together(&engine, &faults, requests);
    let outcomes: Vec<_> =
        answers.iter().map(|a| a.as_ref().map(|a| a.tokens.len()).map_err(|e| e.to_string())).collect();
    assert_eq!((&outcomes[0], &outcomes[3]), (&Ok(20), &Ok(20)));
    for outcome in &outcomes[1..3] {
        let error = outcome.as_ref().expect_err("refused");
        assert!(error.contains("refused on purpose"), "{error}");
    }
}

/// Requests over a fake target whose drafts are often right: plain, layer skip of two depths,
/// prompt lookup.
fn drafting(ask: impl Fn(u32) -> Request) -> Vec<Request> {
    let speculations = [SpeculationParams::off(), layer_skip(8, 3, 4), layer_skip(8, 6, 8), prompt_lookup(5)];
    let requests = speculations.into_iter().cycle().take(8).zip(10..);
    requests.map(|(speculation, i)| Request { speculation, ..ask(i) }).collect()
}

#[test]
fn sequences_in_the_midst_of_a_round_survive_a_step_that_is_refused_for_another() {
    let fake = || fake_target(FakeOptions { agreement: 0.8, ..FakeOptions::default() });
    let ask = |i: u32| request(&[i, i + 1, i + 2], 60);
    let plain = engine(FaultyBackend::new(fake(), &faults()), None);
    let expected: Vec<_> = (10..18).map(|i| answer(&plain, ask(i)).said()).collect();
    let faults = faults();
    let options = EngineOptions { prefill_chunk: 1, max_batch: 16, ..EngineOptions::default() };
    let engine = engine_with(FaultyBackend::new(fake(), &faults), None, &options);
    let (mut accepted, mut rejected) = (0, 0);
    for refused_at in 1..25 {
        // The bad token is read late, when the others are drafting and verifying.
        let mut prompt = vec![1; refused_at];
        prompt.push(BAD);
        let mut requests = drafting(ask);
        requests.insert(4, request(&prompt, 20));
        let mut answers = together(&engine, &faults, requests);
        let error = answers.remove(4).expect_err("refused").to_string();
        assert!(error.contains("refused on purpose"), "{error}");
        for (answer, expected) in answers.into_iter().zip(&expected) {
            let answer = answer.expect("no concern of this one");
            assert_eq!(&answer.said(), expected, "refused after {refused_at} tokens");
            accepted += answer.summary.stats.accepted;
            rejected += answer.summary.stats.rejected;
        }
    }
    assert!(accepted > 0 && rejected > 0, "{accepted} accepted, {rejected} rejected");
}

#[test]
fn a_full_cache_ends_the_youngest_request_only() {
    let fake = || fake_target(FakeOptions::default());
    let ask = |i: u32| request(&[i, i + 1], 40);
    let plain = engine(FaultyBackend::new(fake(), &faults()), None);
    let faults = faults();
    let engine = engine(FaultyBackend::new(fake(), &faults), None);
    for step in 3..20 {
        faults.full_in.store(step, Ordering::SeqCst);
        let mut answers = together(&engine, &faults, drafting(ask));
        let error = answers.pop().expect("eight").expect_err("the youngest");
        assert!(matches!(error, EngineError::Backend(BackendError::KvFull { .. })), "{error:?}");
        for (answer, i) in answers.into_iter().zip(10..) {
            let expected = self::answer(&plain, ask(i)).said();
            assert_eq!(answer.expect("it has its pages").said(), expected, "full at step {step}");
        }
    }
}

#[test]
fn a_panic_ends_the_requests_of_its_step_and_the_engine_goes_on() {
    let faults = faults();
    let options = EngineOptions { max_batch: 2, ..EngineOptions::default() };
    let engine = engine_with(FaultyBackend::new(scripted(vec![5], 100), &faults), None, &options);
    faults.panic_in.store(5, Ordering::SeqCst);
    let answers = together(&engine, &faults, vec![request(&[1], 20), request(&[1], 30), request(&[1], 8)]);
    for failed in &answers[..2] {
        let error = failed.as_ref().expect_err("its step panicked");
        assert_eq!(error.to_string(), "a step panicked: a worker fell over");
    }
    assert_eq!(answers[2].as_ref().expect("it waited, and came after").tokens.len(), 8);
    assert_eq!(engine.counters().panics, 1);
    let (free, total) = engine.exclusive(|b| (b.free_pages(), b.total_pages())).expect("it goes on");
    assert_eq!(free, total, "nothing was lost");
}

#[test]
fn a_backend_that_lost_pages_in_a_panic_is_not_used_again() {
    let faults = faults();
    let engine = faulty(&faults);
    faults.lose_a_page.store(true, Ordering::SeqCst);
    faults.panic_in.store(3, Ordering::SeqCst);
    collect(engine.submit(request(&[1], 20)).expect("accepted")).expect_err("it panicked");
    for _ in 0..2 {
        let error = collect(engine.submit(request(&[1], 20)).expect("accepted")).expect_err("broken");
        assert!(matches!(error, EngineError::Panic { .. }), "{error:?}");
    }
    assert!(matches!(engine.exclusive(|_| ()), Err(EngineError::Panic { .. })));
}

#[test]
fn exclusive_work_that_panics_is_an_error_and_the_engine_goes_on() {
    let engine = faulty(&faults());
    let error = engine.exclusive(|_| -> usize { panic!("of its own") }).expect_err("it panicked");
    assert_eq!(error.to_string(), "a step panicked: of its own");
    assert_eq!(engine.exclusive(|b| b.vocab()).expect("goes on"), 100);
    assert_eq!(answer(&engine, request(&[1], 3)).tokens.len(), 3);
}

#[test]
fn a_cancelled_request_ends_with_what_it_has_and_its_pages_come_free() {
    let faults = faults();
    let engine = faulty(&faults);
    faults.hold_at.store(3, Ordering::SeqCst);
    let mut long = engine.submit(request(&[1], 400)).expect("accepted");
    let other = engine.submit(request(&[2], 100)).expect("accepted");
    assert!(matches!(long.next(), Some(Event::Prompt { tokens: 1 })));
    assert!(matches!(long.next(), Some(Event::Token(_))));
    while !faults.hold.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    long.canceller().cancel();
    faults.hold.store(false, Ordering::SeqCst);
    let mut tokens = 1;
    let summary = loop {
        match long.next().expect("it ends with Done") {
            Event::Token(_) => tokens += 1,
            Event::Done(summary) => break summary,
            other => panic!("{other:?}"),
        }
    };
    assert!(long.next().is_none() && long.next_timeout(Duration::ZERO).is_ok_and(|e| e.is_none()));
    assert_eq!((summary.finish_reason, summary.completion_tokens), (FinishReason::Cancelled, tokens));
    assert_eq!(tokens, 3, "the step at hand is the last one");
    assert_eq!(collect(other).expect("it goes on").tokens.len(), 100);
    let (free, total) = engine.exclusive(|b| (b.free_pages(), b.total_pages())).expect("it goes on");
    assert_eq!(free, total);
}

#[test]
fn dropping_a_generation_frees_its_sequence_and_a_waiting_one_never_starts() {
    let faults = faults();
    let options = EngineOptions { max_batch: 1, ..EngineOptions::default() };
    let engine = engine_with(FaultyBackend::new(scripted(vec![5], 100), &faults), None, &options);
    faults.hold.store(true, Ordering::SeqCst);
    let running = engine.submit(request(&[1], 400)).expect("accepted");
    let waiting = engine.submit(request(&[1], 400)).expect("accepted");
    let waiting_too = engine.submit(request(&[1], 400)).expect("accepted");
    drop(running);
    waiting_too.cancel();
    drop(waiting);
    faults.hold.store(false, Ordering::SeqCst);
    let answer = collect(waiting_too).expect("cancelled, not failed");
    assert_eq!((answer.summary.finish_reason, answer.tokens.len()), (FinishReason::Cancelled, 0));
    let (free, total) = engine.exclusive(|b| (b.free_pages(), b.total_pages())).expect("idle now");
    assert_eq!(free, total);
    assert!(faults.steps.load(Ordering::SeqCst) < 100, "nobody computed what nobody wanted");
}

#[test]
fn dropping_the_engine_joins_its_thread_and_every_stream_ends() {
    let faults = faults();
    let options = EngineOptions { max_batch: 1, ..EngineOptions::default() };
    let engine = engine_with(FaultyBackend::new(scripted(vec![5], 100), &faults), None, &options);
    let mut running = engine.submit(request(&[1], 500)).expect("accepted");
    let waiting = engine.submit(request(&[1], 500)).expect("accepted");
    running.next().expect("it runs");
    drop(engine);
    assert!(faults.dropped.load(Ordering::SeqCst), "the thread is gone, and the backend with it");
    for generation in [running, waiting] {
        match generation.last() {
            Some(Event::Failed(EngineError::Stopped)) => {}
            Some(Event::Done(summary)) => assert_eq!(summary.completion_tokens, 500, "it was faster than the drop"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn requests_that_cannot_be_served_are_refused_with_the_reason() {
    let engine = engine(scripted_with(vec![5], 100, 64, 2), None);
    let refused = |change: &dyn Fn(&mut Request)| {
        let mut request = request(&[1, 2], 4);
        change(&mut request);
        engine.submit(request).expect_err("refused").to_string()
    };
    assert_eq!(refused(&|r| r.max_tokens = Some(0)), "max_tokens: 0 tokens are nothing to generate");
    assert_eq!(refused(&|r| r.stop = vec![String::new()]), "stop: an empty string is everywhere");
    let no_tokenizer = "the model has no tokenizer: only token ids can be given, and no stop strings";
    assert_eq!(refused(&|r| r.stop = vec!["x".to_owned()]), no_tokenizer);
    assert_eq!(refused(&|r| r.prompt = Prompt::Text("x".to_owned())), no_tokenizer);
    assert_eq!(
        refused(&|r| r.prompt = Prompt::Chat(Vec::new())),
        "the model has no chat template: give the prompt as plain text"
    );
    assert_eq!(
        refused(&|r| r.prompt = Prompt::Tokens(Vec::new())),
        "the prompt is empty, and the model has no BOS token to begin with"
    );
    assert_eq!(refused(&|r| r.prompt = Prompt::Tokens(vec![1, 100])), "token 100 is not in a vocabulary of 100");
    assert_eq!(
        refused(&|r| r.prompt = Prompt::Tokens(vec![1; 64])),
        "the prompt has 64 tokens, the context 64 positions: no room to generate"
    );
    assert_eq!(
        refused(&|r| r.max_tokens = Some(40)),
        "2 prompt tokens, 40 to generate and 0 of room for drafts need 3 KV pages of 16 positions, the cache has 2"
    );
    assert!(
        refused(&|r| r.sampling = SamplingParams { top_p: 0.0, ..SamplingParams::default() }).starts_with("top_p: ")
    );
    assert!(refused(&|r| r.speculation = layer_skip(LAYERS + 1, 1, 4)).starts_with("drafter: "));
    assert!(refused(&|r| r.speculation = layer_skip(LAYERS, 1, 0)).starts_with("draft_len: "));
    assert!(refused(&|r| r.sampling.logit_bias = vec![(100, 1.0)]).contains("100"), "an unknown token is named");
    let mut long = request(&[1, 2], 4);
    long.max_tokens = None;
    long.speculation = SpeculationParams::off();
    assert_eq!(answer(&engine, long).summary.finish_reason, FinishReason::Context, "the whole cache is the end then");
}

#[test]
fn handles_go_between_threads() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    shared::<Engine>();
    shared::<selfspec_engine::LoadedModel>();
    sent::<selfspec_engine::Generation>();
    let engine = faulty(&faults());
    let tokens = std::thread::scope(|scope| {
        let asks: Vec<_> = (1..20)
            .map(|n| {
                scope.spawn({
                    let engine = &engine;
                    move || answer(engine, request(&[1], n)).tokens.len()
                })
            })
            .collect();
        asks.into_iter().map(|t| t.join().expect("no panic")).collect::<Vec<_>>()
    });
    assert!(tokens.into_iter().eq(1..20));
}

#[test]
fn an_empty_prompt_is_the_models_bos() {
    let tokenizer = tokenizer();
    let bos = tokenizer.bos().expect("it has one");
    let engine = engine(scripted(vec![5], tokenizer.vocab_size()), Some(tokenizer));
    assert_eq!(engine.encode(&Prompt::Text(String::new())).expect("there is a BOS"), [bos]);
    assert_eq!(engine.encode(&Prompt::Tokens(Vec::new())).expect("there is a BOS"), [bos]);
    assert_eq!(engine.encode(&Prompt::Tokens(vec![3])).expect("as it is"), [3]);
}
