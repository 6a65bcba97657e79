//! Where output ends, and how requests fail: at the same token as without speculation.

use std::sync::atomic::Ordering;

use crate::common::{Output, Runner, always, exit, greedy, plain, prompt, run_one, seeded};
use selfspec_model::{Backend, BackendError, LogitsError, SeqId, StepOutput};
use selfspec_speculate::{
    CostModel, DraftLen, DrafterChoice, MAX_DRAFT, SamplingParams, Sequence, SequenceEnd, SequenceError,
    SequenceParams, SpeculationParams, TargetModel,
};
use selfspec_testkit::fake_target::FakeOptions;

const N: usize = 8;

/// All drafts are accepted, so that ends fall inside long runs.
/// The fake target as the requests here see it.
fn fake() -> TargetModel {
    TargetModel { n_layers: N, vocab: 40, context: 512, draft_vocab: None, exit_head: None }
}

fn agreeing() -> FakeOptions {
    FakeOptions { n_layers: N, agreement: 1.0, seed: 3, ..FakeOptions::default() }
}

fn request(k: usize, max_tokens: usize) -> SequenceParams {
    SequenceParams {
        speculation: always(exit(N, 7), DraftLen::Fixed(k)),
        logprobs: Some(1),
        ..SequenceParams::new(prompt(1, 12, 40), max_tokens)
    }
}

/// A token that plain decoding emits first at index `at` of the output or soon after, and its
/// index.
fn emitted(output: &Output, at: usize) -> (u32, usize) {
    let first = |i: &usize| !output.tokens[..*i].contains(&output.tokens[*i]);
    let i = (at..output.tokens.len()).find(first).expect("some token is new");
    (output.tokens[i], i)
}

#[test]
fn an_end_token_inside_an_accepted_run_is_the_last_token() {
    let free = run_one(&agreeing(), plain(&request(8, 60)));
    for at in 0..30 {
        let (eos, index) = emitted(&free, at);
        for k in [4, 8, 16] {
            for sampling in [greedy(), seeded(2)] {
                let request = SequenceParams { eos: vec![eos], sampling: sampling.clone(), ..request(k, 60) };
                let expected = run_one(&agreeing(), plain(&request));
                let got = run_one(&agreeing(), request);
                assert_eq!(got.result(), expected.result(), "end at {index}, k {k}");
                if sampling == greedy() {
                    assert_eq!((got.tokens.len(), got.finish), (index + 1, Some(SequenceEnd::Stop)));
                    assert_eq!(got.tokens.last(), Some(&eos));
                    assert_eq!(got.logprobs.len(), index + 1);
                }
                assert!(got.stats.rounds <= expected.stats.rounds);
            }
        }
    }
}

#[test]
fn an_end_token_copied_by_prompt_lookup_ends_there() {
    let options = FakeOptions { order: 1, by_position: false, spread: 3.0, seed: 5, ..agreeing() };
    let free = run_one(&options, plain(&request(8, 60)));
    let speculation = always(DrafterChoice::PromptLookup, DraftLen::Fixed(8));
    // In a loop every token has been there before; whichever ends the output, it ends at its first
    // generated occurrence.
    for eos in &free.tokens[..20] {
        let request = SequenceParams { eos: vec![*eos], speculation: speculation.clone(), ..request(8, 60) };
        assert_eq!(run_one(&options, request.clone()).result(), run_one(&options, plain(&request)).result());
    }
}

/// CASES: a stop inside an accepted run that also crosses max_tokens is a stop; a stop beyond the
/// cap is not reached.
#[test]
fn the_end_token_wins_over_the_length_when_it_comes_first() {
    let free = run_one(&agreeing(), plain(&request(8, 60)));
    let (eos, index) = emitted(&free, 2);
    let with = |max_tokens| SequenceParams { eos: vec![eos], ..request(8, max_tokens) };
    let got = run_one(&agreeing(), with(index + 3));
    assert_eq!((got.finish, got.tokens.len()), (Some(SequenceEnd::Stop), index + 1));
    let got = run_one(&agreeing(), with(index + 1));
    assert_eq!((got.finish, got.tokens.len()), (Some(SequenceEnd::Stop), index + 1));
    let got = run_one(&agreeing(), with(index));
    assert_eq!((got.finish, got.tokens.len()), (Some(SequenceEnd::Length), index));
    assert!(!got.tokens.contains(&eos));
}

/// CASES: max_tokens 1, 2, k, k + 1.
#[test]
fn exactly_as_many_tokens_as_asked_for() {
    for k in [1, 2, 4, 8, 16] {
        for max_tokens in [1, 2, k - 1, k, k + 1, k + 2, 2 * k + 3] {
            for bonus in [true, false] {
                let mut request = request(k, max_tokens);
                request.speculation.bonus = bonus;
                let got = run_one(&agreeing(), request.clone());
                assert_eq!(
                    got.result(),
                    run_one(&agreeing(), plain(&request)).result(),
                    "k {k}, max_tokens {max_tokens}"
                );
                assert_eq!((got.tokens.len(), got.logprobs.len()), (max_tokens, max_tokens));
                assert_eq!(got.finish, Some(SequenceEnd::Length));
            }
        }
    }
}

#[test]
fn the_context_is_filled_and_not_exceeded() {
    for context in [13, 14, 17, 21, 29] {
        for k in [1, 4, 16] {
            let options = FakeOptions { context, ..agreeing() };
            let got = run_one(&options, request(k, 1000));
            assert_eq!(got.result(), run_one(&options, plain(&request(k, 1000))).result());
            assert_eq!((got.finish, got.tokens.len()), (Some(SequenceEnd::Context), context - 12));
            // Asked for exactly what fits, it is the length that ends it.
            assert_eq!(run_one(&options, request(k, context - 12)).finish, Some(SequenceEnd::Length));
        }
    }
}

/// CASES: a NaN ends the sequence whose it is, after the tokens that plain decoding gives too;
/// others go on.
#[test]
fn broken_logits_end_one_sequence_only() {
    for (value, fault) in [(f32::NAN, LogitsError::NotANumber), (f32::INFINITY, LogitsError::Infinite)] {
        for at in 0..12 {
            let outputs = |speculation: SpeculationParams| {
                let mut runner = Runner::new(agreeing());
                let requests: Vec<_> =
                    (0..3).map(|_| SequenceParams { speculation: speculation.clone(), ..request(5, 30) }).collect();
                // The first sequence is the first that the target makes.
                runner.faults.break_logits(SeqId(1), 11 + at, value);
                runner.run(requests, 64)
            };
            let expected = outputs(SpeculationParams::off());
            let got = outputs(request(5, 30).speculation);
            for (got, expected) in got.iter().zip(&expected) {
                assert_eq!(got.result(), expected.result(), "fault at {at}");
            }
            assert_eq!(got[1].error, Some(SequenceError::Logits { pos: 12 + at, fault }));
            assert_eq!((got[1].tokens.len(), got[0].tokens.len()), (at, 30));
        }
    }
}

#[test]
fn a_failed_sequence_wants_nothing_more() {
    let mut runner = Runner::new(agreeing());
    let mut live = vec![runner.start(request(3, 30))];
    runner.faults.break_logits(live[0].sequence.seq(), 15, f32::NAN);
    while runner.step(&mut live, 64) {}
    assert!(live[0].output.error.is_some());
    let again = live[0].sequence.absorb(&mut runner.target, &StepOutput::default(), 0, &mut Vec::new());
    assert_eq!(again, Err(SequenceError::Failed(live[0].sequence.seq())));
}

#[test]
fn too_few_rows_of_logits_are_an_error() {
    let mut target = selfspec_testkit::fake_target::fake_target(agreeing());
    let seq = target.create();
    let mut sequence = Sequence::new(seq, request(3, 30), &fake()).expect("valid");
    let (mut rows, mut out) = (Vec::new(), StepOutput::default());
    sequence.rows(64, &CostModel::new(), &mut rows);
    target.step(&rows, &mut out).expect("valid rows");
    let got = sequence.absorb(&mut target, &out, 1, &mut Vec::new());
    assert_eq!(got, Err(SequenceError::MissingLogits { first: 1, wanted: 1, got: 0 }));
}

/// A page too few in the middle of a round: the drafts are dropped, or all is computed again
/// elsewhere; the output is the same.
#[test]
fn a_full_cache_costs_drafts_and_no_tokens() {
    let expected = run_one(&agreeing(), plain(&request(5, 40)));
    for fail_at in 2..20 {
        for preempt in [false, true] {
            let mut runner = Runner::new(agreeing());
            let mut live = vec![runner.start(request(5, 40))];
            for _ in 0..fail_at {
                assert!(runner.step(&mut live, 64));
            }
            let (mut rows, mut out) = (Vec::new(), StepOutput::default());
            live[0].sequence.rows(64, &CostModel::new(), &mut rows);
            runner.faults.full_in.store(1, Ordering::SeqCst);
            assert!(matches!(runner.target.step(&rows, &mut out), Err(BackendError::KvFull { .. })));
            if preempt {
                runner.target.free(live[0].sequence.seq());
                let seq = runner.target.create();
                live[0].sequence.restart_as(seq, 0);
                assert!(live[0].sequence.prefill_left() > 1);
            } else {
                live[0].sequence.roll_back(&mut runner.target).expect("shorter always goes");
                let kv = runner.target.kv_len(live[0].sequence.seq()).expect("live");
                assert_eq!(kv, live[0].sequence.tokens().len() - 1);
            }
            while runner.step(&mut live, 7) {}
            assert_eq!(live[0].output.result(), expected.result(), "failed at step {fail_at}, preempted: {preempt}");
        }
    }
}

#[test]
fn a_shared_prefix_is_not_computed_again() {
    let mut runner = Runner::new(agreeing());
    let mut live = vec![runner.start(request(5, 10))];
    while runner.step(&mut live, 64) {}
    let seq = runner.target.fork(live[0].sequence.seq(), 9).expect("committed");
    let mut second = Sequence::new(seq, request(5, 10), &fake()).expect("valid");
    second.reuse_prefix(9);
    assert_eq!(second.prefill_left(), 3);
    let mut rows = Vec::new();
    second.rows(64, &CostModel::new(), &mut rows);
    assert_eq!(rows.iter().map(|r| r.pos).collect::<Vec<_>>(), [9, 10, 11]);
}

#[test]
fn bad_parameters_are_named() {
    let new = |change: &dyn Fn(&mut SequenceParams)| {
        let mut params = SequenceParams::new(vec![1, 2, 3], 10);
        change(&mut params);
        Sequence::new(SeqId(0), params, &fake()).expect_err("refused").to_string()
    };
    let sampling = |change: fn(&mut SamplingParams)| new(&|p| change(&mut p.sampling));
    assert_eq!(sampling(|s| s.temperature = f32::NAN), "temperature: NaN is not a finite number, 0 or above");
    assert_eq!(sampling(|s| s.temperature = -0.5), "temperature: -0.5 is not a finite number, 0 or above");
    assert_eq!(sampling(|s| s.top_p = 0.0), "top_p: 0 is not above 0, at most 1");
    assert_eq!(sampling(|s| s.top_p = 1.5), "top_p: 1.5 is not above 0, at most 1");
    assert_eq!(sampling(|s| s.top_p = f32::NAN), "top_p: NaN is not above 0, at most 1");
    assert_eq!(sampling(|s| s.min_p = -0.25), "min_p: -0.25 is not from 0 to 1");
    assert_eq!(sampling(|s| s.repetition_penalty = 0.0), "repetition_penalty: 0 is not a finite number above 0");
    assert_eq!(sampling(|s| s.presence_penalty = f32::INFINITY), "presence_penalty: inf is not a finite number");
    assert_eq!(sampling(|s| s.frequency_penalty = f32::NAN), "frequency_penalty: NaN is not a finite number");
    assert_eq!(
        sampling(|s| s.logit_bias = vec![(1, 0.5), (40, 1.0)]),
        "logit_bias: token 40 at index 1 is not in a vocabulary of 40"
    );
    assert_eq!(
        sampling(|s| s.logit_bias = vec![(1, f32::NAN)]),
        "logit_bias: the bias NaN of token 1 is not a finite number"
    );
    assert_eq!(new(&|p| p.prompt.clear()), "prompt: it is empty, at least one token is needed");
    assert_eq!(
        new(&|p| p.prompt = vec![0; 512]),
        "prompt: its 512 tokens do not fit a context of 512 with room for one more"
    );
    assert_eq!(new(&|p| p.prompt[2] = 99), "prompt: token 99 at index 2 is not in a vocabulary of 40");
    assert_eq!(new(&|p| p.eos = vec![7, 41]), "eos: token 41 at index 1 is not in a vocabulary of 40");
    assert_eq!(new(&|p| p.logprobs = Some(1000)), "logprobs: 1000 is not from 0 to 64");
    assert_eq!(new(&|p| p.speculation.draft_len = DraftLen::Fixed(0)), "draft_len: 0 is not from 1 to 16");
    assert_eq!(new(&|p| p.speculation.draft_len = DraftLen::Fixed(MAX_DRAFT + 1)), "draft_len: 17 is not from 1 to 16");
    assert_eq!(new(&|p| p.speculation.min_confidence = 1.5), "min_confidence: 1.5 is not from 0 to 1");
    assert_eq!(new(&|p| p.speculation.ngram_max = 9), "ngram_max: 9 is not from 1 to 8");
    assert_eq!(new(&|p| p.speculation.ngram_min = 5), "ngram_min: 5 is not from 1 to ngram_max");
    assert_eq!(new(&|p| p.speculation.drafter = exit(6, 3)), "drafter: the plan is for 6 layers, the model has 8");
    assert_eq!(new(&|p| p.speculation.drafter = exit(8, 8)), "drafter: the plan runs all 8 layers, which is no draft");
}

#[test]
fn nothing_asked_for_is_nothing_done() {
    let got = run_one(&agreeing(), request(4, 0));
    assert_eq!((got.tokens.len(), got.finish), (0, Some(SequenceEnd::Length)));
    assert_eq!(got.stats.rounds, 0, "no step was run");
    let sequence = Sequence::new(SeqId(0), request(4, 0), &fake()).expect("valid");
    assert_eq!(sequence.finish(), Some(SequenceEnd::Length));
}
