//! Models on disk: what is read beside the weights.

use std::path::Path;

use crate::common::*;
use selfspec_engine::{
    DraftSetup, Engine, EngineError, EngineOptions, ExitHeadSource, LoadedModel, ModelInfo, Prompt, Request,
    TunedDrafter, Tuning,
};
use selfspec_kernels::KvType;
use selfspec_model::{Enter, LayerPlan, Readout, Row, StepOutput};
use selfspec_speculate::{DrafterChoice, SpeculationParams};
use selfspec_testkit::{Family, TinyExitHead, TinyModel};
use selfspec_text::Message;

fn options() -> EngineOptions {
    EngineOptions { threads: Some(2), ..EngineOptions::default() }
}

fn chat() -> Prompt {
    Prompt::Chat(vec![Message::new("user", "hello <|im_end|> there")])
}

#[test]
fn a_gguf_file_gives_tokenizer_template_and_end_tokens() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("tiny.gguf");
    let model = TinyModel::new(Family::Llama);
    model.gguf().write(&path);
    let engine = Engine::open(&path, &options()).expect("opens");
    let tokenizer = engine.tokenizer().expect("there is one");
    assert_eq!(tokenizer.vocab_size(), model.vocab.len());
    assert!(engine.eos().contains(&model.vocab.eos));
    assert!(engine.chat_template().is_some());
    let tokens = engine.encode(&chat()).expect("rendered");
    let end = model.vocab.id("<|im_end|>");
    assert_eq!(tokens.iter().filter(|t| **t == end).count(), 1, "what the user spells stays text");
    assert_eq!(tokens[0], model.vocab.id("<|im_start|>"));
    let got = answer(&engine, Request { max_tokens: Some(9), ignore_eos: true, ..Request::new(chat()) });
    assert_eq!((got.summary.prompt_tokens, got.said().0.len()), (tokens.len(), 9));
    let (text, ids) = (got.said().1, got.said().0);
    assert_eq!(text, tokenizer.decode(&ids));
}

#[test]
fn a_folder_and_a_file_of_one_model_say_the_same() {
    let dir = tempfile::tempdir().expect("a folder");
    let model = TinyModel::new(Family::Qwen3);
    let file = dir.path().join("tiny.gguf");
    model.gguf().write(&file);
    model.folder().write(&dir.path().join("tiny"));
    let ask = |path: &Path| {
        let engine = Engine::open(path, &options()).expect("opens");
        let request = Request { max_tokens: Some(12), ignore_eos: true, ..Request::new(chat()) };
        (engine.encode(&chat()).expect("rendered"), answer(&engine, request).said(), engine.eos().to_vec())
    };
    assert_eq!(ask(&file), ask(&dir.path().join("tiny")));
}

#[test]
fn end_tokens_come_from_the_generation_config_too_and_the_template_from_its_own_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let model = TinyModel::new(Family::Llama);
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("written");
    model.folder().write(dir.path());
    write("generation_config.json", r#"{"eos_token_id": [3, 5]}"#);
    write("chat_template.jinja", "{% for m in messages %}[{{ m.content }}]{% endfor %}");
    let engine = Engine::open(dir.path(), &options()).expect("opens");
    assert!([3, 5, model.vocab.eos].iter().all(|id| engine.eos().contains(id)), "{:?}", engine.eos());
    let tokens = engine.encode(&Prompt::Chat(vec![Message::new("user", "hi")])).expect("rendered");
    assert_eq!(engine.tokenizer().expect("there").decode(&tokens), "[hi]");

    write("generation_config.json", r#"{"eos_token_id": -1}"#);
    let error = Engine::open(dir.path(), &options()).err().expect("refused").to_string();
    assert!(error.ends_with("generation_config.json: eos_token_id: -1 is not a token id"), "{error}");
    write("generation_config.json", "{");
    let error = Engine::open(dir.path(), &options()).err().expect("refused").to_string();
    assert!(error.contains("generation_config.json: not JSON: "), "{error}");
}

#[test]
fn a_template_that_is_missing_or_broken_is_an_error_only_for_chats() {
    let dir = tempfile::tempdir().expect("a folder");
    let model = TinyModel::new(Family::Llama);
    let path = dir.path().join("tiny.gguf");
    let mut without = model.gguf();
    without.metadata.retain(|(key, _)| key != "tokenizer.chat_template");
    without.write(&path);
    let engine = Engine::open(&path, &options()).expect("opens");
    assert!(matches!(engine.encode(&chat()), Err(EngineError::NoChatTemplate)));
    assert!(!engine.info().chat_template);
    without.metadata("tokenizer.chat_template", "{% for %}").write(&path);
    let engine = Engine::open(&path, &options()).expect("opens");
    let error = engine.encode(&chat()).expect_err("broken");
    assert!(matches!(error, EngineError::BadChatTemplate { .. }), "{error}");
    assert!(!engine.encode(&Prompt::Text("plain text works".to_owned())).expect("it does").is_empty());
}

#[test]
fn a_weight_that_is_no_number_ends_the_requests_that_meet_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("tiny.gguf");
    let bad = 9usize;
    let model = TinyModel::new(Family::Llama).untied();
    let dim = model.dims().dim;
    let nan = |t: &mut selfspec_testkit::GgufTensor| {
        t.data[4 * (bad * dim + 3)..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
    };
    model.gguf().change("token_embd.weight", nan).write(&path);
    let engine = Engine::open(&path, &options()).expect("numbers are not looked at when a model is opened");
    let ask = |prompt: &[u32], speculation| {
        let mut request = request(prompt, 12);
        request.speculation = speculation;
        request.sampling.logit_bias = vec![(bad as u32, -1e9)];
        request.ignore_eos = true;
        engine.submit(request).expect("accepted")
    };
    let asked = [
        ask(&[1, 2, 3], layer_skip(4, 2, 4)),
        ask(&[1, bad as u32, 3], layer_skip(4, 2, 4)),
        ask(&[bad as u32], layer_skip(4, 2, 4)),
        ask(&[4, 5], prompt_lookup(3)),
    ];
    let answers: Vec<_> = asked.into_iter().map(collect).collect();
    for sound in [&answers[0], &answers[3]] {
        assert_eq!(sound.as_ref().expect("it never meets the weight").tokens.len(), 12);
    }
    for failed in &answers[1..3] {
        let error = failed.as_ref().expect_err("its logits are not numbers");
        assert!(matches!(error, EngineError::Spec(_)), "{error}");
    }
}

#[test]
fn a_backend_is_made_anew_after_a_panic_and_loses_no_page() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("tiny.gguf");
    TinyModel::new(Family::Llama).gguf().write(&path);
    let engine = Engine::open(&path, &options()).expect("opens");
    let ask = || answer(&engine, request(&[1, 2, 3], 12)).said();
    let before = ask();
    let spoil = |backend: &mut dyn selfspec_model::Backend| {
        let seq = backend.create();
        let plan = LayerPlan::full(backend.n_layers());
        let row = Row { seq, pos: 0, token: 1, enter: Enter::Token, plan, keep: false, readout: Readout::Nothing };
        backend.step(&[row], &mut StepOutput::default()).expect("a sound row");
        assert!(backend.free_pages() < backend.total_pages());
        panic!("with a page in hand");
    };
    let error = engine.exclusive(spoil).expect_err("it panicked");
    assert_eq!(error.to_string(), "a step panicked: with a page in hand");
    let (free, total) = engine.exclusive(|b| (b.free_pages(), b.total_pages())).expect("goes on");
    assert_eq!(free, total);
    assert_eq!(ask(), before);
}

#[test]
fn info_is_read_without_loading_and_agrees_with_the_model_in_memory() {
    let dir = tempfile::tempdir().expect("a folder");
    for family in Family::ALL {
        let path = dir.path().join(format!("{}.gguf", family.name()));
        let model = TinyModel::new(family);
        model.gguf().write(&path);
        let info = ModelInfo::read(&path).expect("sound");
        let loaded = LoadedModel::open(&path, Some(1)).expect("sound");
        let d = model.dims();
        assert_eq!(info.architecture, family.name());
        assert_eq!((info.n_layers, info.dim, info.heads, info.head_dim), (d.layers, d.dim, d.heads, d.head_dim));
        assert_eq!((info.kv_heads, info.ffn_dim, info.context), (d.kv_heads, d.ffn, d.context));
        assert_eq!(info.vocab, model.vocab.len());
        assert_eq!(info.kv_bytes_per_position(KvType::F16), d.layers * d.kv_heads * d.head_dim * 4);
        assert_eq!(info.kv_bytes_per_position(KvType::Q8), d.layers * d.kv_heads * (d.head_dim + 4) * 2);
        assert_eq!(info.file_bytes, std::fs::metadata(&path).expect("there").len());
        assert_eq!(info.tensor_types.len(), 1, "{:?}", info.tensor_types);
        assert_eq!(info.tensor_types[0].name, "F32");
        assert_eq!(info.parameters * 4, info.weight_bytes);
        for kv_type in KvType::ALL {
            let kv = 100 * info.kv_bytes_per_position(kv_type) as u64;
            assert_eq!(info.memory_bytes(kv_type, 100), info.weight_bytes + kv);
        }
        assert!(LoadedModel::check(&path).is_ok());
        assert_eq!(ModelInfo { weight_bytes: info.weight_bytes, ..loaded.info().clone() }, info);
    }
}

#[test]
fn a_check_without_the_weights_refuses_what_opening_refuses_in_the_same_words() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("tiny.gguf");
    let model = TinyModel::new(Family::Qwen3);
    let transposed = |t: &mut selfspec_testkit::GgufTensor| t.dims.reverse();
    for gguf in [
        model.gguf().remove("blk.3.ffn_down.weight"),
        model.gguf().remove("output_norm.weight"),
        model.gguf().change("blk.1.ffn_up.weight", transposed),
        model.gguf().metadata("qwen3.block_count", 3u32),
        model.gguf().metadata("tokenizer.ggml.model", "unigram"),
        model.gguf().metadata("tokenizer.ggml.eos_token_id", 1_000_000u32),
    ] {
        gguf.write(&path);
        let opened = LoadedModel::open(&path, Some(1)).err().expect("refused").to_string();
        assert_eq!(LoadedModel::check(&path).expect_err("refused").to_string(), opened);
    }
}

#[test]
fn the_mix_of_types_is_the_one_that_the_file_names() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("tiny.gguf");
    let file_type = |gguf: selfspec_testkit::GgufBuilder| {
        gguf.write(&path);
        ModelInfo::read(&path).expect("sound").file_type
    };
    let gguf = || TinyModel::new(Family::Llama).gguf();
    assert_eq!(file_type(gguf().metadata("general.file_type", 15u32)), Some("Q4_K_M"));
    assert_eq!(file_type(gguf().metadata("general.file_type", 9999u32)), None);
    assert_eq!(file_type(gguf().metadata("general.file_type", "Q4_K_M")), None);
    assert_eq!(file_type(gguf()), None);
}

#[test]
fn what_cannot_be_opened_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let missing = dir.path().join("nothing.gguf");
    let error = Engine::open(&missing, &options()).err().expect("refused").to_string();
    assert!(error.contains("nothing.gguf"), "{error}");
    let path = dir.path().join("tiny.gguf");
    TinyModel::new(Family::Llama).gguf().write(&path);
    let loaded = LoadedModel::open(&path, Some(1)).expect("sound");
    let refused = |options: EngineOptions| Engine::open_with(&loaded, &options).err().expect("refused").to_string();
    assert_eq!(refused(EngineOptions { context: Some(0), ..options() }), "context: 0 positions hold nothing");
    let error = refused(EngineOptions { kv_bytes: Some(10), ..options() });
    assert!(error.starts_with("kv_bytes: 10 bytes hold no position of "), "{error}");
}

#[test]
fn a_cache_of_q8_holds_more_positions_in_the_same_bytes_and_is_as_lossless() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("tiny.gguf");
    TinyModel::new(Family::Llama).gguf().write(&path);
    let loaded = LoadedModel::open(&path, Some(2)).expect("sound");
    let bytes = 600 * loaded.info().kv_bytes_per_position(KvType::F16);
    let [f16, q8] = KvType::ALL.map(|kv_type| {
        let kv_bytes = Some(bytes);
        let engine = Engine::open_with(&loaded, &EngineOptions { kv_type, kv_bytes, ..options() }).expect("opens");
        assert_eq!(engine.kv_type(), kv_type);
        let pages = engine.exclusive(|backend| backend.total_pages()).expect("idle");
        let run = |speculation: SpeculationParams| {
            let mut request = Request::new(Prompt::Tokens(vec![70, 111, 9, 200, 3, 70, 42]));
            (request.max_tokens, request.ignore_eos, request.speculation) = (Some(120), true, speculation);
            engine.submit(request).expect("sound").wait().expect("finishes")
        };
        let plain = run(SpeculationParams::off());
        let exit = DrafterChoice::LayerSkip(LayerPlan::exit(4, 2).expect("a plan"));
        let drafted = run(SpeculationParams { drafter: exit, always: true, ..SpeculationParams::default() });
        assert!(drafted.stats.accepted > 0 && drafted.stats.rejected > 0, "{kv_type}: {:?}", drafted.stats);
        assert_eq!(plain.token_ids, drafted.token_ids, "{kv_type}");
        pages
    });
    // Heads of 10 values: 14 bytes with the scale, and 20 in f16.
    assert!(q8 * 10 >= f16 * 14, "{q8} pages of q8, {f16} of f16");
}

/// A tuning that found something else to pay does not stand in the way of a head that the user
/// names.
#[test]
fn a_named_exit_head_wins_over_a_tuning() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("tiny.gguf");
    TinyModel::new(Family::Llama).gguf().write(&path);
    let plain = LoadedModel::open(&path, Some(1)).expect("opens");
    let head = TinyExitHead::new(plain.fingerprint(), 1, &[2], (0..40).collect());
    let head_path = dir.path().join("head.safetensors");
    std::fs::write(&head_path, head.bytes(plain.model().config())).expect("written");
    let named = DraftSetup { exit_head: ExitHeadSource::File(head_path), ..DraftSetup::default() };
    let tuned = |drafter, setup: &DraftSetup| {
        let tuning = Tuning {
            version: Tuning::VERSION,
            model: "tiny".to_owned(),
            fingerprint: plain.fingerprint().to_owned(),
            isa: "scalar".to_owned(),
            threads: 1,
            prompts: "none".to_owned(),
            drafter,
            speedup: 1.2,
            draft_vocab: Vec::new(),
            exit_head: None,
            acceptance: Default::default(),
            c: None,
        };
        tuning.write(&path).expect("written");
        let loaded = LoadedModel::open_with(&path, Some(1), setup).expect("opens");
        (loaded.tuning().is_some(), Engine::open_with(&loaded, &options()).expect("opens").exit_head().is_some())
    };
    for drafter in [TunedDrafter::Off, TunedDrafter::PromptLookup, TunedDrafter::LayerSkip { from: 1, to: 2 }] {
        assert_eq!(tuned(drafter.clone(), &named), (false, true), "{drafter:?}");
        assert_eq!(tuned(drafter, &DraftSetup::default()), (true, false));
    }
    assert_eq!(tuned(TunedDrafter::ExitHead, &named), (true, true), "both want a head");
}
