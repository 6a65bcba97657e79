//! Exit heads and draft vocabularies: what they draft depends on nothing but the text, and the
//! model's own output not on them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::support::{backend, bits, open_gguf, plain, run, tokens};
use selfspec_kernels::{Isa, KvType, Team};
use selfspec_model::{
    Backend, BackendError, CpuBackend, CpuModel, CpuOptions, DraftHeads, DraftVocab, Enter, ExitHead, LayerPlan,
    Readout, Row, SeqId, StepOutput, TokenId,
};
use selfspec_testkit::{Family, TensorType, TinyExitHead, TinyModel};

/// A tensor of a file: its type, shape and data.
type Stored = (safetensors::Dtype, Vec<usize>, Vec<u8>);

fn vocab(model: &CpuModel) -> Vec<TokenId> {
    (0..model.vocab() as TokenId).filter(|x| x % 3 != 1).collect()
}

fn with_head(model: &Arc<CpuModel>, head: &TinyExitHead, threads: usize) -> CpuBackend {
    let bytes = head.bytes(model.config());
    let exit = ExitHead::read(&bytes, model, "tiny", "f", &Team::new(1)).expect("a sound head");
    let draft_vocab = DraftVocab::new(model, vocab(model), &Team::new(1)).expect("sound");
    let heads = DraftHeads { vocab: Some(Arc::new(draft_vocab)), exit: Some(Arc::new(exit)) };
    let isa = Isa::detect().expect("an instruction set");
    let context = model.config().context;
    let options = CpuOptions { isa, threads, context, kv_positions: 4 * context, kv_type: KvType::F16 };
    CpuBackend::with_heads(model.clone(), heads, &options).expect("a small cache")
}

/// A sequence of the first `len` tokens of `text`, read `chunk` rows at a time.
fn read(backend: &mut CpuBackend, text: &[TokenId], len: usize, chunk: usize) -> SeqId {
    let full = LayerPlan::full(backend.n_layers());
    let (seq, mut out) = (backend.create(), StepOutput::default());
    let mut from = 0;
    while from < len {
        let to = len.min(from + chunk);
        let rows: Vec<Row> = (from..to).map(|pos| plain(seq, pos, text[pos], &full)).collect();
        backend.step(&rows, &mut out).expect("sound");
        backend.set_len(seq, to).expect("computed");
        from = to;
    }
    seq
}

/// Logits of `drafts` exit head rows, one a step, that feed the tokens of `text` from `from` on.
fn draft(backend: &mut CpuBackend, seq: SeqId, text: &[TokenId], from: usize, drafts: usize) -> Vec<Vec<u32>> {
    let plan = backend.exit_head().expect("there").plan.clone();
    let mut out = StepOutput::default();
    (from..from + drafts)
        .flat_map(|pos| {
            let keep = plan.exact_prefix() > 0;
            let row = Row { keep, readout: Readout::ExitHead, ..plain(seq, pos, text[pos], &plan) };
            backend.step(&[row], &mut out).expect("sound");
            bits(&out)
        })
        .collect()
}

/// Verification of rows `from..to`, the first `kept` of which were drafted.
fn verify(
    backend: &mut CpuBackend,
    seq: SeqId,
    text: &[TokenId],
    from: usize,
    to: usize,
    kept: usize,
) -> Vec<Vec<u32>> {
    let full = LayerPlan::full(backend.n_layers());
    let from_kept = backend.exit_head().expect("there").plan.exact_prefix() > 0;
    let rows: Vec<Row> = (from..to)
        .map(|pos| {
            let enter = if from_kept && pos < from + kept { Enter::Kept } else { Enter::Token };
            Row { enter, ..plain(seq, pos, text[pos], &full) }
        })
        .collect();
    let mut out = StepOutput::default();
    backend.step(&rows, &mut out).expect("sound");
    bits(&out)
}

#[test]
fn a_head_drafts_the_same_however_its_past_was_computed_and_changes_nothing() {
    for family in Family::ALL {
        let model = open_gguf(&TinyModel::new(family).ty(TensorType::Q8_0).gguf()).expect("a sound model");
        let text = tokens(60, model.vocab());
        let isa = Isa::detect().expect("an instruction set");
        let expected = run(&mut backend(&model, isa, 1), &text, 60).expect("sound");
        let n = model.config().n_layers;
        let designs: [(usize, &[usize], usize); 5] =
            [(0, &[n], 48), (2, &[n], 0), (1, &[], 32), (3, &[2, n], 64), (0, &[1, 2, n], 0)];
        for (exit, features, ffn_dim) in designs {
            let mut head = TinyExitHead::new("f", exit, features, vocab(&model));
            head.card.ffn_dim = ffn_dim;
            let mut one = with_head(&model, &head, 1);
            let seq = read(&mut one, &text, 40, 40);
            let drafted = draft(&mut one, seq, &text, 40, 5);
            assert!(drafted.iter().all(|row| row.len() == vocab(&model).len()));
            assert!(drafted.iter().flatten().all(|l| f32::from_bits(*l).is_finite()));

            // The same after a prompt in other chunks, on other threads, and after a round of which
            // part was refused.
            let mut other = with_head(&model, &head, 3);
            let seq = read(&mut other, &text, 33, 7);
            let mut wrong = text.clone();
            wrong[35] = (text[35] + 1) % model.vocab() as TokenId;
            draft(&mut other, seq, &wrong, 33, 4);
            let rows = verify(&mut other, seq, &wrong, 33, 37, 4);
            assert!(rows[..2] == expected[33..35], "{family:?}, exit {exit}: verification is the model's own");
            other.set_len(seq, 35).expect("computed in full");
            draft(&mut other, seq, &text, 35, 5);
            let rows = verify(&mut other, seq, &text, 35, 40, 5);
            assert!(rows == expected[35..40], "{family:?}, exit {exit}: so is the next one");
            other.set_len(seq, 40).expect("computed in full");
            assert!(draft(&mut other, seq, &text, 40, 5) == drafted, "{family:?}, exit {exit}, {features:?}");

            // Verified, the drafted positions have exact K and V and features again.
            let rows = verify(&mut one, SeqId(0), &text, 40, 45, 5);
            assert!(rows == expected[40..45]);
            one.set_len(SeqId(0), 44).expect("computed in full");
            let mut fresh = with_head(&model, &head, 1);
            let seq = read(&mut fresh, &text, 44, 11);
            assert!(draft(&mut fresh, seq, &text, 44, 3) == draft(&mut one, SeqId(0), &text, 44, 3));
        }
    }
}

#[test]
fn layer_skip_that_goes_deeper_leaves_the_head_its_states() {
    let model = open_gguf(&TinyModel::new(Family::Llama).ty(TensorType::Q8_0).gguf()).expect("a sound model");
    let text = tokens(40, model.vocab());
    let head = TinyExitHead::new("f", 1, &[2, 4], vocab(&model));
    let mut fresh = with_head(&model, &head, 1);
    let seq = read(&mut fresh, &text, 24, 24);
    let expected = draft(&mut fresh, seq, &text, 24, 3);
    for exit in [1, 2, 3] {
        let mut backend = with_head(&model, &head, 1);
        let seq = read(&mut backend, &text, 20, 20);
        let plan = LayerPlan::exit(backend.n_layers(), exit).expect("fits");
        let mut out = StepOutput::default();
        for readout in [Readout::Head, Readout::DraftVocab] {
            for (pos, token) in text.iter().enumerate().take(24).skip(20) {
                let row = Row { keep: true, readout, ..plain(seq, pos, *token, &plan) };
                backend.step(&[row], &mut out).expect("sound");
            }
        }
        verify(&mut backend, seq, &text, 20, 24, 4);
        backend.set_len(seq, 24).expect("computed in full");
        assert!(draft(&mut backend, seq, &text, 24, 3) == expected, "exit {exit}");
    }
}

#[test]
fn the_draft_vocabulary_has_the_rows_of_the_head() {
    for family in [Family::Llama, Family::Gemma3] {
        let model = open_gguf(&TinyModel::new(family).ty(TensorType::Q8_0).gguf()).expect("a sound model");
        let text = tokens(12, model.vocab());
        let head = TinyExitHead::new("f", 1, &[], vec![0, 5]);
        let mut backend = with_head(&model, &head, 2);
        let seq = read(&mut backend, &text, 10, 10);
        let plan = LayerPlan::exit(backend.n_layers(), 2).expect("fits");
        let mut out = StepOutput::default();
        let mut logits = |readout| {
            let row = Row { readout, ..plain(seq, 10, text[10], &plan) };
            backend.step(&[row], &mut out).expect("sound");
            bits(&out).remove(0)
        };
        let (whole, some) = (logits(Readout::Head), logits(Readout::DraftVocab));
        let expected: Vec<u32> = vocab(&model).iter().map(|x| whole[*x as usize]).collect();
        assert!(some == expected, "a head in Q8_0 is copied as it is");
    }
}

#[test]
fn rows_of_all_readouts_can_share_a_step() {
    let model = open_gguf(&TinyModel::new(Family::Qwen3).ty(TensorType::Q8_0).gguf()).expect("a sound model");
    let text = tokens(30, model.vocab());
    let head = TinyExitHead::new("f", 2, &[4], vocab(&model));
    let mut backend = with_head(&model, &head, 2);
    let (n, mut out) = (backend.n_layers(), StepOutput::default());
    let seqs: Vec<SeqId> = (0..4).map(|i| read(&mut backend, &text, 10 + i, 16)).collect();
    let row = |i: usize| match i {
        0 => Row { readout: Readout::ExitHead, ..plain(seqs[0], 10, text[10], &LayerPlan::exit(n, 2).expect("fits")) },
        1 => plain(seqs[1], 11, text[11], &LayerPlan::full(n)),
        2 => {
            Row { readout: Readout::DraftVocab, ..plain(seqs[2], 12, text[12], &LayerPlan::exit(n, 3).expect("fits")) }
        }
        _ => Row { readout: Readout::Nothing, ..plain(seqs[3], 13, text[13], &LayerPlan::full(n)) },
    };
    backend.step(&[0, 1, 2, 3].map(row), &mut out).expect("sound");
    let together = bits(&out);
    assert_eq!(
        together.iter().map(Vec::len).collect::<Vec<_>>(),
        [vocab(&model).len(), model.vocab(), vocab(&model).len()]
    );
    for (i, expected) in together.iter().enumerate() {
        backend.step(&[row(i)], &mut out).expect("sound");
        assert!(bits(&out)[0] == *expected, "row {i} alone");
    }
}

#[test]
fn rows_that_ask_for_what_is_not_there_are_refused() {
    let model = open_gguf(&TinyModel::new(Family::Llama).gguf()).expect("a sound model");
    let mut bare = backend(&model, Isa::Scalar, 1);
    let n = bare.n_layers();
    let exit = |layers| LayerPlan::exit(n, layers).expect("fits");
    let refused = |backend: &mut CpuBackend, readout, plan: &LayerPlan| {
        let seq = backend.create();
        let row = Row { readout, ..plain(seq, 0, 1, plan) };
        match backend.step(&[row], &mut StepOutput::default()) {
            Err(BackendError::BadRow { why, .. }) => why,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(&mut bare, Readout::ExitHead, &exit(1)), "there is no exit head");
    assert_eq!(refused(&mut bare, Readout::DraftVocab, &exit(1)), "there is no draft vocabulary");
    let head = TinyExitHead::new("f", 2, &[4], vec![3]);
    let mut backend = with_head(&model, &head, 1);
    assert_eq!(refused(&mut backend, Readout::ExitHead, &exit(1)), "its plan is not that of the exit head");
    assert_eq!(refused(&mut backend, Readout::Head, &LayerPlan::none(n)), "its plan runs no layer");
}

#[test]
fn a_head_that_does_not_fit_is_refused_with_the_reason() {
    let model = open_gguf(&TinyModel::new(Family::Llama).gguf()).expect("a sound model");
    let c = model.config();
    let head = TinyExitHead::new("f", 2, &[3, 4], vec![3, 9]);
    let why = |bytes: &[u8], fingerprint: &str| {
        let read = ExitHead::read(bytes, &model, "mine", fingerprint, &Team::new(1));
        read.expect_err("refused").to_string()
    };
    let sound = head.bytes(c);
    assert_eq!(
        why(&sound, "0815"),
        "it was trained for tiny (fingerprint f), and the model at hand is mine (fingerprint 0815)"
    );
    assert!(why(&sound[..40], "f").starts_with("not a safetensors file: "));
    for len in [0, 7, 8, sound.len() - 1] {
        assert!(why(&sound[..len], "f").starts_with("not a safetensors file: "), "{len} bytes");
    }
    let with = |change: &dyn Fn(&mut TinyExitHead)| {
        let mut head = head.clone();
        change(&mut head);
        head.card.vocab = head.vocab.len();
        why(&head.bytes(c), "f")
    };
    assert_eq!(with(&|h| h.card.version = 2), "its format is version 2, this program reads version 1");
    assert_eq!(with(&|h| h.card.exit_layer = 4), "its exit layer is 4, the model has 4 layers");
    assert_eq!(with(&|h| h.card.features = vec![5]), "it reads the state after 5 layers, the model has 4");
    assert_eq!(with(&|h| h.vocab = vec![]), "the draft vocabulary has no token");
    assert_eq!(with(&|h| h.vocab = vec![4, 4]), "the draft vocabulary must ascend, and token 4 follows token 4");
    assert!(
        with(&|h| h.vocab = vec![4, 1 << 20]).starts_with("the draft vocabulary names token 1048576, the model has ")
    );
    let broken = |change: &dyn Fn(&mut HashMap<String, Stored>)| {
        let mut tensors = head.tensors(c);
        change(&mut tensors);
        why(&head.file(&tensors), "f")
    };
    for name in head.tensors(c).keys() {
        assert_eq!(broken(&|t| drop(t.remove(name))), format!("tensor `{name}` is missing"));
        let shape = broken(&|t| t.get_mut(name).expect("there").1.insert(0, 1));
        assert!(shape.starts_with(&format!("tensor `{name}`: expected ")), "{shape}");
    }
    let nan =
        broken(&|t| t.get_mut("output_norm.weight").expect("there").2[..4].copy_from_slice(&f32::NAN.to_le_bytes()));
    assert_eq!(nan, "tensor `output_norm.weight` holds a number that is not finite");
    let inf = broken(&|t| t.get_mut("fuse.weight").expect("there").2[..2].copy_from_slice(&[0x80, 0x7f]));
    assert_eq!(inf, "tensor `fuse.weight` holds a number that is not finite");
    let other = |change: &dyn Fn(&mut TinyExitHead)| {
        let mut other = head.clone();
        change(&mut other);
        why(&other.file(&head.tensors(c)), "f")
    };
    assert_eq!(other(&|h| h.card.features = vec![3, 3]), "its card: features name 3 twice");
    let extra = other(&|h| h.card.features.clear());
    assert_eq!(extra, "tensor `exit_norm.weight`: its card tells of none");
    assert_eq!(other(&|h| h.card.vocab += 1), "its card: it can propose 3 tokens, and `draft_vocab` names 2");
    assert_eq!(
        other(&|h| h.card.coverage = BTreeMap::from([("chat".to_owned(), 1.5)])),
        "its card: coverage of `chat` is 1.5, and a share is from 0 to 1"
    );
    assert_eq!(
        other(&|h| h.card.acceptance = BTreeMap::from([("chat".to_owned(), vec![0.5, -0.5])])),
        "its card: acceptance of `chat` is -0.5, and a share is from 0 to 1"
    );
    let below = broken(&|t| t.get_mut("draft_vocab").expect("there").2[..4].copy_from_slice(&(-5i32).to_le_bytes()));
    assert_eq!(below, "`draft_vocab` names token -5");
    let no_card =
        safetensors::serialize(Vec::<(String, safetensors::tensor::TensorView<'_>)>::new(), None).expect("empty");
    assert_eq!(why(&no_card, "f"), "no card: the metadata lacks `selfspec_head`");
}
