//! Whoever shares the steps: every request gets what it gets alone.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::common::*;
use selfspec_engine::{Engine, EngineOptions, FinishReason, LoadedModel, Prompt, Request};
use selfspec_kernels::{Isa, KvType};
use selfspec_model::{LayerPlan, TokenId};
use selfspec_speculate::{DraftLen, DrafterChoice, SamplingParams, SpeculationParams};
use selfspec_testkit::faulty_backend::FaultyBackend;
use selfspec_testkit::{Family, TinyModel};

/// A tiny model of 4 layers, in memory.
fn tiny() -> Arc<LoadedModel> {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let path: PathBuf = dir.path().join("tiny.gguf");
    TinyModel::new(Family::Llama).gguf().write(&path);
    LoadedModel::open(&path, Some(1)).expect("a sound model")
}

fn options(threads: usize) -> EngineOptions {
    EngineOptions { threads: Some(threads), ..EngineOptions::default() }
}

/// Requests that differ in everything: prompt, length, sampling, drafter, draft length.
fn mixed() -> Vec<Request> {
    let middle = LayerPlan::skip_middle(4, 1, 3).expect("a plan");
    let drafters = [
        SpeculationParams::off(),
        layer_skip(4, 1, 3),
        layer_skip(4, 2, 5),
        layer_skip(4, 3, 8),
        SpeculationParams { drafter: DrafterChoice::LayerSkip(middle), ..layer_skip(4, 1, 4) },
        prompt_lookup(4),
        SpeculationParams { draft_len: DraftLen::Adaptive, ..layer_skip(4, 3, 1) },
        SpeculationParams { bonus: false, ..layer_skip(4, 3, 2) },
        SpeculationParams::default(),
    ];
    let mut requests = Vec::new();
    for (i, speculation) in drafters.into_iter().cycle().take(18).enumerate() {
        let prompt: Vec<TokenId> = (0..5 + 9 * i as u32 % 70).map(|t| (t * 31 + i as u32 * 7) % 250).collect();
        let sampling = match i % 3 {
            0 => SamplingParams::default(),
            1 => SamplingParams { temperature: 0.8, top_p: 0.95, seed: Some(i as u64), ..SamplingParams::default() },
            _ => SamplingParams { repetition_penalty: 1.2, frequency_penalty: 0.4, ..SamplingParams::default() },
        };
        let logprobs = (i % 4 == 0).then_some(2);
        requests.push(Request {
            max_tokens: Some(8 + 7 * i % 40),
            sampling,
            speculation,
            ignore_eos: i % 2 == 0,
            logprobs,
            ..Request::new(Prompt::Tokens(prompt))
        });
    }
    requests
}

/// Bytes of a page of the KV cache.
fn page_bytes(engine: &Engine, loaded: &LoadedModel) -> usize {
    let positions = engine.exclusive(|backend| backend.page_positions()).expect("idle");
    positions * loaded.kv_bytes_per_position(KvType::default())
}

fn assert_same_logprobs(got: &Answer, expected: &Answer) {
    for (got, expected) in got.tokens.iter().zip(&expected.tokens) {
        assert_eq!(got.logprob, expected.logprob, "bit for bit, drafted or not");
    }
}

fn plain(mut request: Request) -> Request {
    request.speculation = SpeculationParams::off();
    request
}

#[test]
fn a_batch_of_strangers_gives_each_what_it_gets_alone_and_without_speculation() {
    let loaded = tiny();
    let alone = Engine::open_with(&loaded, &options(1)).expect("opens");
    let expected: Vec<Answer> = mixed().into_iter().map(|r| answer(&alone, plain(r))).collect();
    let (mut drafted, mut accepted, mut rejected) = (0, 0, 0);
    for (threads, prefill_chunk, max_batch) in [(1, 256, 8), (2, 1, 8), (2, 7, 18), (3, 3, 2), (2, 64, 1)] {
        let options = EngineOptions { prefill_chunk, max_batch, ..options(threads) };
        let engine = Engine::open_with(&loaded, &options).expect("opens");
        let generations: Vec<_> = mixed().into_iter().map(|r| engine.submit(r).expect("accepted")).collect();
        for (i, generation) in generations.into_iter().enumerate() {
            let got = collect(generation).expect("answered");
            assert_eq!(got.said(), expected[i].said(), "request {i} of {options:?}");
            assert_same_logprobs(&got, &expected[i]);
            drafted += got.summary.stats.drafted;
            accepted += got.summary.stats.accepted;
            rejected += got.summary.stats.rejected;
        }
    }
    assert!(
        drafted > accepted && accepted > 0 && rejected > 0,
        "{drafted} drafted, {accepted} accepted, {rejected} rejected"
    );
}

#[test]
fn instruction_sets_share_the_weights_of_one_model() {
    let loaded = tiny();
    for isa in Isa::available() {
        let engine = Engine::open_with(&loaded, &EngineOptions { isa: Some(isa), ..options(2) }).expect("opens");
        assert_eq!(engine.isa(), Some(isa));
        for request in mixed().into_iter().skip(1).step_by(5) {
            let expected = answer(&engine, plain(request.clone())).said();
            assert_eq!(answer(&engine, request).said(), expected, "{isa}");
        }
    }
}

#[test]
fn a_seed_gives_the_same_tokens_again_and_none_gives_others() {
    let engine = Engine::open_with(&tiny(), &options(1)).expect("opens");
    let ask = |seed: Option<u64>| {
        let mut request = request(&[3, 4, 5], 24);
        request.ignore_eos = true;
        request.sampling = SamplingParams { temperature: 1.5, seed, ..SamplingParams::default() };
        answer(&engine, request).said().0
    };
    assert_eq!(ask(Some(7)), ask(Some(7)));
    assert_ne!(ask(Some(7)), ask(Some(8)));
    assert_ne!(ask(None), ask(None));
}

/// The cache is so small that requests give way to older ones and are computed again: nobody can
/// tell from what they get.
#[test]
fn requests_that_give_way_are_computed_again_to_the_same_bits() {
    let loaded = tiny();
    let alone = Engine::open_with(&loaded, &options(1)).expect("opens");
    let expected: Vec<Answer> = mixed().into_iter().map(|r| answer(&alone, plain(r))).collect();
    let page = page_bytes(&alone, &loaded);
    for (pages, prefill_chunk) in [(4, 256), (5, 3), (9, 16)] {
        let options = EngineOptions { kv_bytes: Some(pages * page), max_batch: 18, prefill_chunk, ..options(2) };
        let engine = Engine::open_with(&loaded, &options).expect("opens");
        let generations: Vec<_> = mixed().into_iter().map(|r| engine.submit(r).expect("accepted")).collect();
        for (i, generation) in generations.into_iter().enumerate() {
            let got = collect(generation).expect("answered");
            assert_eq!(got.said(), expected[i].said(), "request {i} of {options:?}");
            assert_same_logprobs(&got, &expected[i]);
        }
        assert!(engine.counters().preemptions > 0, "{pages} pages: nobody gave way");
        let (free, total) = engine.exclusive(|b| (b.free_pages(), b.total_pages())).expect("idle");
        assert_eq!((free, total), (pages, pages));
    }
}

/// Requests that begin alike share the KV of what they have in common, and get what they get
/// without it.
#[test]
fn a_shared_beginning_is_read_once_and_changes_no_bit() {
    let loaded = tiny();
    let alone = Engine::open_with(&loaded, &options(1)).expect("opens");
    let turns: Vec<Request> = (0..6u32)
        .map(|i| {
            let mut tokens: Vec<TokenId> = (0..90).map(|t| (t * 31 + i / 3) % 250).collect();
            tokens.extend([i, 7, 9]);
            let speculation = if i % 2 == 0 { SpeculationParams::off() } else { layer_skip(4, 2, 3) };
            Request {
                max_tokens: Some(20),
                ignore_eos: true,
                logprobs: Some(1),
                speculation,
                ..Request::new(Prompt::Tokens(tokens))
            }
        })
        .collect();
    let expected: Vec<Answer> = turns.iter().cloned().map(|r| answer(&alone, plain(r))).collect();
    let page = page_bytes(&alone, &loaded);
    for pages in [100, 6, 3] {
        let options = EngineOptions { prefix_cache: true, kv_bytes: Some(pages * page), ..options(2) };
        let engine = Engine::open_with(&loaded, &options).expect("opens");
        let mut cached = Vec::new();
        for (turn, expected) in turns.iter().zip(&expected).chain(turns.iter().zip(&expected)) {
            let got = answer(&engine, turn.clone());
            assert_eq!(got.said(), expected.said(), "{pages} pages");
            assert_same_logprobs(&got, expected);
            cached.push(got.summary.cached_tokens);
        }
        if pages == 100 {
            assert_eq!(cached, [0, 90, 90, 0, 90, 90, 92, 92, 92, 92, 92, 92]);
        }
        let (free, total) = engine.exclusive(|b| (b.free_pages(), b.total_pages())).expect("idle");
        assert_eq!((free, total), (pages, pages));
    }
}

#[test]
fn a_request_that_gave_way_can_be_cancelled_while_it_waits() {
    let faults = faults();
    let engine = engine(FaultyBackend::new(scripted_with(vec![5], 100, 512, 4), &faults), None);
    faults.hold.store(true, Ordering::SeqCst);
    let generations: Vec<_> = (0..3).map(|_| engine.submit(request(&[1], 60)).expect("fits")).collect();
    faults.hold.store(false, Ordering::SeqCst);
    while engine.counters().preemptions < 2 {
        std::thread::yield_now();
    }
    let mut generations = generations.into_iter();
    let first = generations.next().expect("three");
    generations.for_each(drop);
    assert_eq!(collect(first).expect("answered").tokens.len(), 60);
    let (free, total) = engine.exclusive(|b| (b.free_pages(), b.total_pages())).expect("idle");
    assert_eq!(free, total);
}

#[test]
fn requests_wait_in_order_for_pages_of_a_small_cache() {
    let faults = faults();
    // Four pages: the first round takes one, so that four begin, and the younger ones give way as
    // the others grow.
    let engine = engine(FaultyBackend::new(scripted_with(vec![5], 100, 512, 4), &faults), None);
    let asked = [20, 40, 20, 20, 60, 10, 30];
    faults.hold.store(true, Ordering::SeqCst);
    let requests = asked.iter().zip(10..).map(|(n, prompt)| request(&[prompt], *n));
    let generations: Vec<_> = requests.map(|r| engine.submit(r).expect("fits")).collect();
    faults.hold.store(false, Ordering::SeqCst);
    for (generation, n) in generations.into_iter().zip(asked) {
        assert_eq!(collect(generation).expect("answered").tokens.len(), n);
    }
    let order = faults.first_tokens.lock().expect("no panic").clone();
    let mut begun: Vec<TokenId> = Vec::new();
    order.iter().for_each(|token| {
        if !begun.contains(token) {
            begun.push(*token)
        }
    });
    assert_eq!(begun, [10, 11, 12, 13, 14, 15, 16], "first come, first served");
    assert!(order.len() > begun.len() && order.iter().filter(|t| **t == 10).count() == 1, "the oldest never gives way");
    assert!((2..=4).contains(&faults.most_seqs.load(Ordering::SeqCst)));
    let (free, total) = engine.exclusive(|b| (b.free_pages(), b.total_pages())).expect("idle");
    assert_eq!(free, total);
}

#[test]
fn a_draft_at_the_edge_of_its_pages_has_room() {
    // 1 + 15 positions fill a page; drafts reach beyond it, and what is set aside covers them even
    // when the cache is full.
    let engine = engine(scripted_with((20..60).collect(), 100, 512, 4), None);
    let generations: Vec<_> = (0..6)
        .map(|_| {
            let mut request = request(&[1], 15);
            request.speculation = layer_skip(LAYERS, 1, 8);
            engine.submit(request).expect("fits")
        })
        .collect();
    for generation in generations {
        assert_eq!(collect(generation).expect("no step runs out of pages").tokens.len(), 15);
    }
}

#[test]
fn prompts_share_the_prefill_budget_and_nobody_starves() {
    let faults = faults();
    let options = EngineOptions { prefill_chunk: 12, max_batch: 4, ..EngineOptions::default() };
    let engine = engine_with(FaultyBackend::new(scripted(vec![5], 100), &faults), None, &options);
    faults.hold.store(true, Ordering::SeqCst);
    let prompts = [100, 40, 3];
    let generations: Vec<_> = prompts.iter().map(|n| engine.submit(request(&vec![1; *n], 5)).expect("fits")).collect();
    faults.hold.store(false, Ordering::SeqCst);
    for generation in generations {
        assert_eq!(collect(generation).expect("answered").tokens.len(), 5);
    }
    let most = faults.most_rows.load(Ordering::SeqCst);
    assert!((12..=14).contains(&most), "12 prompt rows and the rows of those that decode: {most}");
    // The first step may run before the others are there; the 143 prompt rows then take 12 a step.
    let steps = faults.steps.load(Ordering::SeqCst);
    assert!((12..=22).contains(&steps), "{steps} steps");
}

#[test]
fn the_rows_computed_are_those_that_reuse_of_kept_states_leaves() {
    let engine = Engine::open_with(&tiny(), &options(1)).expect("opens");
    for (exit, k) in [(1, 4), (2, 3), (3, 8)] {
        let mut request = request(&[9; 6], 33);
        request.ignore_eos = true;
        request.speculation = layer_skip(4, exit, k);
        let before = engine.counters();
        let answer = answer(&engine, request);
        let after = engine.counters();
        let stats = &answer.summary.stats;
        assert!(stats.drafted > 0);
        assert_eq!(
            after.layer_rows - before.layer_rows,
            stats.layer_rows,
            "what speculation claims is what was computed"
        );
        // Prompt: 6 rows in full. A round of d drafts: d*L to draft, L for the last draft's row,
        // (d+1)*(N-L) to verify.
        let (l, n) = (exit as u64, 4);
        let rounds = stats.rounds - 1;
        let per_round = stats.drafted * l + rounds * l + (stats.drafted + rounds) * (n - l);
        assert_eq!(stats.layer_rows, 6 * n + per_round, "exit {exit}, k {k}: {stats:?}");
    }
}

#[test]
fn exclusive_work_waits_for_requests_before_it_and_holds_back_those_after_it() {
    let faults = faults();
    let engine = Arc::new(engine(FaultyBackend::new(scripted(vec![5], 100), &faults), None));
    faults.hold.store(true, Ordering::SeqCst);
    let before = engine.submit(request(&[1], 50)).expect("accepted");
    let worker = {
        let engine = engine.clone();
        std::thread::spawn(move || engine.exclusive(|b| (b.free_pages(), b.total_pages())).expect("runs"))
    };
    faults.hold.store(false, Ordering::SeqCst);
    let (free, total) = worker.join().expect("no panic");
    assert_eq!(free, total, "no sequence is live while it runs");
    assert_eq!(collect(before).expect("answered").summary.finish_reason, FinishReason::Length);
}
