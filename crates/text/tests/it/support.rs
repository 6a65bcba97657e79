//! Reads the tokenizer out of a GGUF file, for tests: it trusts the file.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::sync::{LazyLock, Mutex};

use selfspec_testkit::real_model::real_model;
use selfspec_text::{GgufVocab, Tokenizer};

pub(crate) enum Value {
    Number(f64),
    Text(String),
    Numbers(Vec<f64>),
    Texts(Vec<String>),
}

fn number(ty: u32, r: &mut impl Read) -> f64 {
    let mut take = |n: usize| {
        let mut b = [0; 8];
        r.read_exact(&mut b[..n]).unwrap();
        b
    };
    match ty {
        0 | 7 => take(1)[0] as f64,
        1 => take(1)[0] as i8 as f64,
        2 => u16::from_le_bytes(take(2)[..2].try_into().unwrap()) as f64,
        3 => i16::from_le_bytes(take(2)[..2].try_into().unwrap()) as f64,
        4 => u32::from_le_bytes(take(4)[..4].try_into().unwrap()) as f64,
        5 => i32::from_le_bytes(take(4)[..4].try_into().unwrap()) as f64,
        6 => f32::from_le_bytes(take(4)[..4].try_into().unwrap()) as f64,
        10 => u64::from_le_bytes(take(8)) as f64,
        11 => i64::from_le_bytes(take(8)) as f64,
        12 => f64::from_le_bytes(take(8)),
        _ => panic!("type {ty}"),
    }
}

fn text(r: &mut impl Read) -> String {
    let mut b = vec![0; number(10, r) as usize];
    r.read_exact(&mut b).unwrap();
    String::from_utf8(b).unwrap()
}

pub(crate) fn metadata(path: &str) -> HashMap<String, Value> {
    let mut r = BufReader::new(File::open(path).unwrap_or_else(|e| panic!("{path}: {e}")));
    let mut head = [0; 8];
    r.read_exact(&mut head).unwrap();
    assert_eq!(&head[..4], b"GGUF");
    number(10, &mut r);
    let count = number(10, &mut r) as usize;
    let mut out = HashMap::new();
    for _ in 0..count {
        let key = text(&mut r);
        let value = match number(4, &mut r) as u32 {
            8 => Value::Text(text(&mut r)),
            9 => {
                let ty = number(4, &mut r) as u32;
                let n = number(10, &mut r) as usize;
                if ty == 8 {
                    Value::Texts((0..n).map(|_| text(&mut r)).collect())
                } else {
                    Value::Numbers((0..n).map(|_| number(ty, &mut r)).collect())
                }
            }
            ty => Value::Number(number(ty, &mut r)),
        };
        out.insert(key, value);
    }
    out
}

pub(crate) fn vocab(path: &str) -> (GgufVocab, Option<String>) {
    let mut m = metadata(path);
    let mut get = |key: &str| m.remove(&format!("tokenizer.{key}"));
    let mut number = |key: &str| match get(key) {
        Some(Value::Number(n)) => Some(n),
        _ => None,
    };
    let id = |n: Option<f64>| n.map(|n| n as u32);
    let flag = |n: Option<f64>| n.map(|n| n != 0.0);
    let mut v = GgufVocab {
        bos: id(number("ggml.bos_token_id")),
        eos: id(number("ggml.eos_token_id")),
        eot: id(number("ggml.eot_token_id")),
        unk: id(number("ggml.unknown_token_id")),
        pad: id(number("ggml.padding_token_id")),
        add_bos: flag(number("ggml.add_bos_token")),
        add_eos: flag(number("ggml.add_eos_token")),
        add_space_prefix: flag(number("ggml.add_space_prefix")),
        ..GgufVocab::default()
    };
    let mut texts = |key: &str| match get(key) {
        Some(Value::Texts(t)) => t,
        Some(Value::Text(t)) => vec![t],
        _ => Vec::new(),
    };
    v.model = texts("ggml.model").remove(0);
    v.pre = texts("ggml.pre").pop();
    v.tokens = texts("ggml.tokens");
    v.merges = texts("ggml.merges");
    let template = texts("chat_template").pop();
    let mut numbers = |key: &str| match get(key) {
        Some(Value::Numbers(n)) => n,
        _ => Vec::new(),
    };
    v.scores = numbers("ggml.scores").into_iter().map(|n| n as f32).collect();
    v.token_types = numbers("ggml.token_type").into_iter().map(|n| n as i32).collect();
    (v, template)
}

/// The tokenizer and chat template of the GGUF that the variable names; prints how to get one when
/// it is unset.
pub(crate) fn real(variable: &str) -> (Tokenizer, Option<String>) {
    let path = real_model(variable);
    let (v, template) = vocab(path.to_str().unwrap());
    (Tokenizer::from_gguf(v).unwrap(), template)
}

/// The byte alphabet of GPT-2, written out anew.
pub(crate) fn letter(byte: u8) -> char {
    let printable = |b: u8| (b'!'..=b'~').contains(&b) || (0xA1..=0xAC).contains(&b) || b >= 0xAE;
    if printable(byte) {
        return byte as char;
    }
    let before = (0..byte).filter(|&b| !printable(b)).count();
    char::from_u32(256 + before as u32).unwrap()
}

/// Merges of [`byte_level`], best first.
pub(crate) const MERGES: [&str; 22] = [
    "h e",
    "l l",
    "he ll",
    "hell o",
    "Ġ w",
    "o r",
    "Ġw or",
    "l d",
    "Ġwor ld",
    "Ġ Ġ",
    "ĠĠ ĠĠ",
    "Ċ Ċ",
    "1 2",
    "12 3",
    "Ġ 7",
    "' s",
    "a a",
    "aa a",
    "aa aa",
    "Ã ©",
    "i n",
    "t h",
];

/// All 256 bytes as tokens 0 to 255, then the merges' wholes, then three control tokens and one
/// user-defined.
pub(crate) fn byte_level(pre: &str) -> GgufVocab {
    let mut tokens: Vec<String> = (0..=255u8).map(|b| letter(b).to_string()).collect();
    tokens.extend(MERGES.iter().map(|m| m.replace(' ', "")));
    let mut token_types = vec![1; tokens.len()];
    tokens.extend(["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>"].map(str::to_owned));
    token_types.extend([3, 3, 3, 4]);
    let first = tokens.len() as u32 - 4;
    GgufVocab {
        model: "gpt2".into(),
        pre: Some(pre.into()),
        tokens,
        token_types,
        merges: MERGES.map(str::to_owned).to_vec(),
        bos: Some(first),
        eos: Some(first + 2),
        add_bos: Some(false),
        ..GgufVocab::default()
    }
}

/// Pieces of [`sentence_piece`] after `<unk>`, `<s>`, `</s>` and the 256 bytes, best first; the
/// letters follow.
pub(crate) const PIECES: [&str; 16] =
    ["▁a", "ab", "▁ab", "aa", "aaa", "bc", "abc", "▁abc", "==", "===", "▁▁", "▁▁▁▁", "é", "日本", "本", "日"];

/// A small SentencePiece vocabulary with byte fallback; `▁` is a piece and so are a, b, c, = and
/// the pieces above.
pub(crate) fn sentence_piece() -> GgufVocab {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    let mut token_types = vec![2, 3, 3];
    let mut scores = vec![0.0; 3];
    for byte in 0..=255u8 {
        tokens.push(format!("<0x{byte:02X}>"));
        token_types.push(6);
        scores.push(0.0);
    }
    for (i, piece) in PIECES.iter().chain(&["▁", "a", "b", "c", "="]).enumerate() {
        tokens.push((*piece).to_owned());
        token_types.push(1);
        scores.push(-(i as f32));
    }
    GgufVocab {
        model: "llama".into(),
        tokens,
        token_types,
        scores,
        bos: Some(1),
        eos: Some(2),
        unk: Some(0),
        ..GgufVocab::default()
    }
}

pub(crate) fn texts(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<String> {
    ids.iter().map(|&id| tokenizer.token_text(id).unwrap().to_owned()).collect()
}

/// The tokenizer of [`byte_level`], made once for each rule: compiling the patterns costs more than
/// most tests.
pub(crate) fn shared(pre: &str) -> &'static Tokenizer {
    static MADE: LazyLock<Mutex<HashMap<String, &'static Tokenizer>>> = LazyLock::new(Mutex::default);
    MADE.lock()
        .unwrap()
        .entry(pre.to_owned())
        .or_insert_with(|| Box::leak(Box::new(Tokenizer::from_gguf(byte_level(pre)).unwrap())))
}
