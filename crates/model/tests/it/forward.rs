//! The laws of the forward pass: row invariance, one cache, reuse of what was drafted, roll-back at
//! every offset.

use crate::support::{backend, backend_of, bits, open_gguf, plain, run, tokens};
use proptest::prelude::*;
use selfspec_kernels::{Isa, KvType, PAGE_POSITIONS};
use selfspec_model::{Backend, BackendError, Enter, LayerPlan, Row, StepOutput};
use selfspec_testkit::{Family, TinyModel};
use selfspec_weights::TensorType;

#[test]
fn bits_do_not_depend_on_chunks_threads_or_neighbours() {
    for family in Family::ALL {
        for ty in [TensorType::F32, TensorType::Q4_1, TensorType::Q6K] {
            let model = open_gguf(&TinyModel::new(family).ty(ty).gguf()).expect("a sound model");
            let text = tokens(PAGE_POSITIONS + 21, model.vocab());
            for (isa, kv_type) in Isa::available().into_iter().flat_map(|isa| KvType::ALL.map(|kv_type| (isa, kv_type)))
            {
                let backend = |threads| backend_of(kv_type, &model, isa, threads);
                let expected = run(&mut backend(1), &text, 1).expect("sound steps");
                assert!(expected.windows(2).all(|w| w[0] != w[1]), "logits differ between positions");
                for (chunk, threads) in [(2, 1), (7, 2), (64, 3), (text.len(), 2)] {
                    let got = run(&mut backend(threads), &text, chunk).expect("sound steps");
                    assert!(got == expected, "{family:?} {ty} {isa} {kv_type}: {chunk} rows a step, {threads} threads");
                }
            }
        }
    }
}

#[test]
fn bits_of_every_type_do_not_depend_on_the_rows_of_a_step() {
    for ty in TensorType::ALL {
        let model = open_gguf(&TinyModel::new(Family::Llama).ty(ty).untied().gguf()).expect("a sound model");
        let text = tokens(19, model.vocab());
        for isa in Isa::available() {
            let expected = run(&mut backend(&model, isa, 1), &text, 1).expect("sound steps");
            assert!(run(&mut backend(&model, isa, 2), &text, 19).expect("sound steps") == expected, "{ty} {isa}");
        }
    }
}

#[test]
fn a_cache_of_q8_gives_nearly_the_logits_of_one_of_f16_but_not_their_bits() {
    for family in Family::ALL {
        let model = open_gguf(&TinyModel::new(family).gguf()).expect("a sound model");
        let text = tokens(PAGE_POSITIONS + 21, model.vocab());
        let isa = Isa::detect().expect("an instruction set");
        let [f16, q8] = KvType::ALL.map(|kv_type| {
            let bits = run(&mut backend_of(kv_type, &model, isa, 1), &text, 64).expect("sound steps");
            bits.concat().into_iter().map(f32::from_bits).collect::<Vec<f32>>()
        });
        let worst = f16.iter().zip(&q8).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
        println!("{family:?}: {worst}");
        assert!(worst > 0.0 && worst < 0.5, "{family:?}: {worst}");
    }
}

/// Drafts `drafts` with `plan` after `text`, verifies from the kept states, and compares with plain
/// decoding.
fn draft_and_verify(family: Family, plan: impl Fn(usize) -> LayerPlan, prompt_len: usize, drafts: usize) {
    for kv_type in KvType::ALL {
        draft_and_verify_in(kv_type, family, &plan, prompt_len, drafts);
    }
}

fn draft_and_verify_in(
    kv_type: KvType,
    family: Family,
    plan: impl Fn(usize) -> LayerPlan,
    prompt_len: usize,
    drafts: usize,
) {
    let model = open_gguf(&TinyModel::new(family).ty(TensorType::Q4_1).gguf()).expect("a sound model");
    let n = model.config().n_layers;
    let plan = plan(n);
    let text = tokens(prompt_len + drafts + 1, model.vocab());
    let isa = Isa::detect().expect("an instruction set");
    let expected = run(&mut backend_of(kv_type, &model, isa, 1), &text, 1).expect("sound");
    let mut backend = backend_of(kv_type, &model, isa, 2);
    let full = LayerPlan::full(n);
    let seq = backend.create();
    let mut out = StepOutput::default();
    if prompt_len > 0 {
        let rows: Vec<Row> = (0..prompt_len).map(|pos| plain(seq, pos, text[pos], &full)).collect();
        backend.step(&rows, &mut out).expect("sound");
        backend.set_len(seq, prompt_len).expect("computed");
    }
    let mut layer_rows = 0;
    for (pos, token) in text.iter().enumerate().skip(prompt_len).take(drafts) {
        let row = Row { keep: true, plan: plan.clone(), ..plain(seq, pos, *token, &full) };
        backend.step(&[row], &mut out).expect("sound");
        layer_rows += out.layer_rows;
    }
    assert_eq!(layer_rows, (drafts * plan.cost_layers()) as u64);
    let rows: Vec<Row> = (prompt_len..=prompt_len + drafts)
        .map(|pos| {
            let enter = if pos < prompt_len + drafts { Enter::Kept } else { Enter::Token };
            Row { enter, ..plain(seq, pos, text[pos], &full) }
        })
        .collect();
    backend.step(&rows, &mut out).expect("sound");
    let exact = plan.exact_prefix();
    assert_eq!(out.layer_rows, (exact + (drafts + 1) * (n - exact)) as u64, "drafted layers are not computed twice");
    assert!(
        bits(&out) == expected[prompt_len..],
        "{family:?}, {kv_type}, plan {plan}, {drafts} drafts after {prompt_len}"
    );
    // Every length that a round may commit, then the same positions again by plain decoding.
    for committed in (prompt_len..=prompt_len + drafts + 1).rev() {
        backend.set_len(seq, committed).expect("computed in full");
        assert_eq!(backend.kv_len(seq).expect("live"), committed);
        if committed < text.len() {
            backend.step(&[plain(seq, committed, text[committed], &full)], &mut out).expect("sound");
            assert!(bits(&out)[0] == expected[committed], "after rolling back to {committed}");
            backend.set_len(seq, committed).expect("committed");
        }
    }
}

#[test]
fn verification_from_kept_states_gives_the_bits_of_plain_decoding() {
    for family in Family::ALL {
        for drafts in [1, 3, 8] {
            for exit in 1..4 {
                draft_and_verify(family, |n| LayerPlan::exit(n, exit).expect("fits"), 11, drafts);
            }
            draft_and_verify(family, |n| LayerPlan::skip_middle(n, 1, 2).expect("fits"), 11, drafts);
            draft_and_verify(family, |n| LayerPlan::skip_middle(n, 0, 1).expect("fits"), 11, drafts);
        }
    }
}

#[test]
fn rolling_back_across_a_page_boundary_works_at_every_offset() {
    for offset in 0..=PAGE_POSITIONS {
        draft_and_verify(Family::Llama, |n| LayerPlan::exit(n, 2).expect("fits"), PAGE_POSITIONS - 4 + offset, 6);
    }
}

#[test]
fn rolling_back_frees_pages_and_forks_share_them() {
    for kv_type in KvType::ALL {
        forks_share_pages_in(kv_type);
    }
}

fn forks_share_pages_in(kv_type: KvType) {
    let model = open_gguf(&TinyModel::new(Family::Llama).gguf()).expect("a sound model");
    let mut backend = backend_of(kv_type, &model, Isa::Scalar, 1);
    let full = LayerPlan::full(backend.n_layers());
    let text = tokens(3 * PAGE_POSITIONS, model.vocab());
    let total = backend.free_pages();
    assert_eq!(total, backend.total_pages());
    let expected = run(&mut backend, &text, 50).expect("sound");
    assert_eq!(backend.free_pages(), total, "a freed sequence gives its pages back");

    let mut out = StepOutput::default();
    let first = backend.create();
    let shared = 2 * PAGE_POSITIONS + 5;
    let rows: Vec<Row> = (0..shared).map(|pos| plain(first, pos, text[pos], &full)).collect();
    backend.step(&rows, &mut out).expect("sound");
    backend.set_len(first, shared).expect("computed");
    assert_eq!(backend.free_pages(), total - 3);
    let fork = backend.fork(first, shared).expect("a free page is left");
    assert_eq!(backend.free_pages(), total - 4, "whole pages are shared, the last one is copied");

    // The first goes back into a shared page and writes something else there; the fork must not see
    // it.
    backend.set_len(first, PAGE_POSITIONS - 3).expect("shorter");
    let rows: Vec<Row> = (PAGE_POSITIONS - 3..PAGE_POSITIONS).map(|pos| plain(first, pos, 1, &full)).collect();
    backend.step(&rows, &mut out).expect("sound");
    let rows: Vec<Row> = (shared..text.len()).map(|pos| plain(fork, pos, text[pos], &full)).collect();
    backend.step(&rows, &mut out).expect("sound");
    assert!(bits(&out) == expected[shared..]);
    backend.free(first);
    backend.free(fork);
    assert_eq!(backend.free_pages(), total);
}

#[test]
fn strangers_in_a_step_change_nothing() {
    let model = open_gguf(&TinyModel::new(Family::Gemma3).ty(TensorType::Q8_0).gguf()).expect("a sound model");
    let isa = Isa::detect().expect("an instruction set");
    let text = tokens(40, model.vocab());
    let expected = run(&mut backend(&model, isa, 1), &text, 1).expect("sound");
    let mut backend = backend(&model, isa, 2);
    let full = LayerPlan::full(backend.n_layers());
    let draft = LayerPlan::exit(backend.n_layers(), 2).expect("fits");
    let (a, b, c) = (backend.create(), backend.create(), backend.create());
    let mut out = StepOutput::default();
    // One sequence decodes, one drafts all the time, one is prefilled in odd chunks: all in the
    // same steps.
    for pos in 0..40 {
        let mut rows = vec![Row { plan: draft.clone(), keep: true, ..plain(b, pos, text[pos], &full) }];
        rows.push(plain(a, pos, text[pos], &full));
        let chunk = if pos % 4 == 0 { pos..pos + 4 } else { 0..0 };
        rows.extend(chunk.map(|pos| plain(c, pos, text[pos], &full)));
        backend.step(&rows, &mut out).expect("sound");
        let got = bits(&out);
        assert!(got[1] == expected[pos], "decoding among strangers, position {pos}");
        assert!(got[2..] == expected[pos..pos + got.len() - 2], "prefill among strangers, position {pos}");
        backend.set_len(a, pos + 1).expect("computed");
        if pos % 4 == 0 {
            backend.set_len(c, pos + 4).expect("computed");
        }
    }
}

#[test]
fn rows_that_break_the_contract_are_refused_and_nothing_changes() {
    let model = open_gguf(&TinyModel::new(Family::Llama).gguf()).expect("a sound model");
    let mut backend = backend(&model, Isa::Scalar, 1);
    let n = backend.n_layers();
    let full = LayerPlan::full(n);
    let exit = LayerPlan::exit(n, 1).expect("fits");
    let deeper = LayerPlan::exit(n, 2).expect("fits");
    let seq = backend.create();
    let mut out = StepOutput::default();
    let refused = |backend: &mut dyn Backend, rows: &[Row]| {
        let error = backend.step(rows, &mut StepOutput::default()).expect_err("refused");
        assert_eq!(backend.kv_len(seq), Ok(2));
        error
    };
    backend.step(&[plain(seq, 0, 3, &full), plain(seq, 1, 4, &full)], &mut out).expect("sound");
    backend.set_len(seq, 2).expect("computed");
    let bad = |error: BackendError| matches!(error, BackendError::BadRow { .. });
    assert!(bad(refused(&mut backend, &[plain(seq, 3, 1, &full)])), "a gap");
    assert!(bad(refused(&mut backend, &[plain(seq, 1, 1, &full)])), "a committed position");
    assert!(bad(refused(&mut backend, &[plain(seq, 3, 1, &full), plain(seq, 2, 1, &full)])), "descending");
    assert!(bad(refused(&mut backend, &[plain(seq, 2, 1, &full), plain(seq, 2, 1, &full)])), "twice");
    assert!(bad(refused(&mut backend, &[Row { enter: Enter::Kept, ..plain(seq, 2, 1, &full) }])), "nothing kept");
    let other_depth = LayerPlan::full(n + 1);
    assert!(bad(refused(&mut backend, &[plain(seq, 2, 1, &other_depth)])), "another model's plan");
    let draft = |pos, plan: &LayerPlan| Row { plan: plan.clone(), keep: true, ..plain(seq, pos, 1, &full) };
    backend.step(&[draft(2, &exit)], &mut out).expect("sound");
    assert!(bad(refused(&mut backend, &[draft(3, &deeper)])), "the position before lacks a layer");
    backend.step(&[draft(2, &exit)], &mut out).expect("sound");
    assert!(bad(refused(&mut backend, &[plain(seq, 3, 1, &full)])), "the position before is only drafted");
    backend.step(&[draft(2, &exit)], &mut out).expect("sound");
    assert!(bad(refused(&mut backend, &[Row { enter: Enter::Kept, ..plain(seq, 2, 7, &full) }])), "another token");
    backend.step(&[draft(2, &exit)], &mut out).expect("sound");
    assert!(matches!(backend.set_len(seq, 3), Err(BackendError::BadRow { .. })), "a draft cannot be committed");
    let context = backend.context();
    assert!(matches!(refused(&mut backend, &[plain(seq, context, 1, &full)]), BackendError::BeyondContext { .. }));
    let vocab = model.vocab() as u32;
    assert!(matches!(refused(&mut backend, &[plain(seq, 2, vocab, &full)]), BackendError::UnknownToken { .. }));
    backend.free(seq);
    assert_eq!(backend.step(&[plain(seq, 0, 1, &full)], &mut out), Err(BackendError::UnknownSequence(seq)));
}

#[test]
fn a_full_cache_is_an_error_and_the_sequence_goes_on_when_pages_come_free() {
    let model = open_gguf(&TinyModel::new(Family::Llama).gguf()).expect("a sound model");
    let options = selfspec_model::CpuOptions {
        isa: Isa::Scalar,
        threads: 1,
        context: 512,
        kv_positions: 2 * PAGE_POSITIONS,
        kv_type: KvType::F16,
    };
    let mut backend = selfspec_model::CpuBackend::new(model.clone(), &options).expect("a small cache");
    let full = LayerPlan::full(backend.n_layers());
    let (a, b) = (backend.create(), backend.create());
    let mut out = StepOutput::default();
    let prompt: Vec<Row> = (0..PAGE_POSITIONS).map(|pos| plain(a, pos, 1, &full)).collect();
    backend.step(&prompt, &mut out).expect("one page");
    backend.set_len(a, PAGE_POSITIONS).expect("computed");
    backend.step(&[plain(b, 0, 1, &full)], &mut out).expect("the other page");
    let next = [plain(a, PAGE_POSITIONS, 2, &full)];
    assert_eq!(backend.step(&next, &mut out), Err(BackendError::KvFull { wanted: 1, free: 0 }));
    backend.free(b);
    backend.step(&next, &mut out).expect("a page is free");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Any history of drafting, verifying, rolling back and plain decoding leaves no trace in later
    /// logits.
    #[test]
    fn no_history_leaves_a_trace(
        rounds in proptest::collection::vec((0usize..3, 1usize..5, 0usize..6), 1..25),
        kv_type in proptest::sample::select(&KvType::ALL[..]),
    ) {
        let model = open_gguf(&TinyModel::new(Family::Qwen3).ty(TensorType::Q4_0).gguf()).expect("a sound model");
        let isa = Isa::detect().expect("an instruction set");
        let n = model.config().n_layers;
        let full = LayerPlan::full(n);
        let text = tokens(200, model.vocab());
        let expected = run(&mut backend_of(kv_type, &model, isa, 1), &text, 40).expect("sound");
        let mut backend = backend_of(kv_type, &model, isa, 2);
        let seq = backend.create();
        let mut out = StepOutput::default();
        let mut len = 0;
        for (kind, k, accepted) in rounds {
            let plan = match kind {
                0 => LayerPlan::exit(n, 1 + k % (n - 1)).expect("fits"),
                1 => LayerPlan::skip_middle(n, 1, 2).expect("fits"),
                _ => full.clone(),
            };
            // The drafts after the first few are wrong, as they are when they are rejected.
            let token = |i: usize| if i <= accepted { text[len + i] } else { (text[len + i] + 1) % model.vocab() as u32 };
            if !plan.is_full() {
                for i in 0..k {
                    let row = Row { plan: plan.clone(), keep: true, ..plain(seq, len + i, token(i), &full) };
                    backend.step(&[row], &mut out).expect("sound");
                }
            }
            let enter = |i: usize| if !plan.is_full() && i < k { Enter::Kept } else { Enter::Token };
            let rows: Vec<Row> =
                (0..=k).map(|i| Row { enter: enter(i), ..plain(seq, len + i, token(i), &full) }).collect();
            backend.step(&rows, &mut out).expect("sound");
            let right = accepted.min(k);
            prop_assert!(bits(&out)[..=right] == expected[len..=len + right]);
            len += right + 1;
            backend.set_len(seq, len).expect("computed");
        }
    }
}
