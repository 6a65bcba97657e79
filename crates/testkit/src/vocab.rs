//! Small vocabularies of the two kinds that models have, written as GGUF metadata and as
//! `tokenizer.json`.

use serde_json::{Map, Value as Json, json};

use crate::gguf::Value;

/// Kinds of token (`tokenizer.ggml.token_type`).
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const BYTE: i32 = 6;

/// The ChatML turns of the byte-level vocabulary.
const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] \
    + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
/// The turns of the SentencePiece vocabulary, opened by BOS, and without a system role.
const TURNS: &str = "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}\
    {{ raise_exception('System role not supported') }}{% endif %}{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}\
    {{ '<start_of_turn>' + role + '\\n' + message['content'].strip() + '<end_of_turn>' + '\\n' }}{% endfor %}\
    {% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}";

/// A vocabulary. Every field may be changed before it is written.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct Vocab {
    /// `gpt2` (byte-level BPE) or `llama` (SentencePiece-like, with scores and byte tokens).
    pub model: &'static str,
    /// Name of the pre-tokenizer (byte-level only).
    pub pre: &'static str,
    pub tokens: Vec<String>,
    /// Scores (`llama` only): a merged piece with a higher score is merged earlier.
    pub scores: Vec<f32>,
    pub types: Vec<i32>,
    /// Pairs to merge, first ones first, as `left right`.
    pub merges: Vec<String>,
    pub bos: u32,
    pub eos: u32,
    /// Whether encoding puts BOS first.
    pub add_bos: bool,
    /// Whether encoding puts a space first (`llama` only).
    pub add_space_prefix: bool,
    pub chat_template: String,
}

impl Vocab {
    /// Byte-level BPE: 256 bytes, 14 merges, and the control tokens of ChatML. 273 tokens.
    pub fn byte_level() -> Vocab {
        let mut v = Vocab {
            model: "gpt2",
            pre: "gpt-2",
            tokens: Vec::new(),
            scores: Vec::new(),
            types: Vec::new(),
            merges: Vec::new(),
            bos: 0,
            eos: 0,
            add_bos: false,
            add_space_prefix: false,
            chat_template: CHATML.to_owned(),
        };
        byte_chars().iter().for_each(|c| v.push(&c.to_string(), NORMAL));
        for pair in
            ["Ġ t", "h e", "i n", "Ġ a", "e r", "Ġt he", "o n", "r e", "Ġ s", "a t", "n d", "Ġa nd", "in g", "Ġ o"]
        {
            v.push(&pair.replace(' ', ""), NORMAL);
            v.merges.push(pair.to_owned());
        }
        v.push("<|endoftext|>", CONTROL);
        v.push("<|im_start|>", CONTROL);
        v.push("<|im_end|>", CONTROL);
        (v.bos, v.eos) = (v.id("<|endoftext|>"), v.id("<|im_end|>"));
        v
    }

    /// SentencePiece-like: `<unk>`, `<s>`, `</s>`, 256 bytes, letters, 14 merges with scores, and
    /// two control tokens for turns.
    pub fn sentence_piece() -> Vocab {
        let mut v = Vocab {
            model: "llama",
            pre: "default",
            tokens: Vec::new(),
            scores: Vec::new(),
            types: Vec::new(),
            merges: Vec::new(),
            bos: 1,
            eos: 2,
            add_bos: true,
            add_space_prefix: true,
            chat_template: TURNS.to_owned(),
        };
        v.push("<unk>", UNKNOWN);
        v.push("<s>", CONTROL);
        v.push("</s>", CONTROL);
        (0..=255u8).for_each(|b| v.push(&format!("<0x{b:02X}>"), BYTE));
        for c in ('a'..='z').chain('A'..='Z').chain('0'..='9').chain(['▁', '.', ',', '?', '!', '\'', '-', 'é', '中'])
        {
            v.push(&c.to_string(), NORMAL);
        }
        for pair in
            ["▁ t", "h e", "i n", "▁ a", "e r", "▁t he", "o n", "r e", "▁ s", "a t", "n d", "▁a nd", "in g", "▁ o"]
        {
            v.push(&pair.replace(' ', ""), NORMAL);
            v.merges.push(pair.to_owned());
        }
        v.push("<start_of_turn>", CONTROL);
        v.push("<end_of_turn>", CONTROL);
        // Every score is 0 for tokens that no merge makes, and falls from merge to merge.
        v.scores = vec![0.0; v.tokens.len()];
        for (rank, pair) in v.merges.clone().iter().enumerate() {
            let id = v.id(&pair.replace(' ', ""));
            v.scores[id as usize] = -(rank as f32) - 1.0;
        }
        v
    }

    /// Adds normal tokens that no text gives, until there are `len` of them in all.
    pub fn filled_to(mut self, len: usize) -> Vocab {
        for i in self.tokens.len()..len {
            self.push(&format!("<unused{i}>"), NORMAL);
            if !self.scores.is_empty() {
                self.scores.push(-1000.0);
            }
        }
        self
    }

    fn push(&mut self, token: &str, kind: i32) {
        self.tokens.push(token.to_owned());
        self.types.push(kind);
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Id of a token.
    ///
    /// # Panics
    /// If there is no such token.
    pub fn id(&self, token: &str) -> u32 {
        self.tokens.iter().position(|t| t == token).expect("the token is in the vocabulary") as u32
    }

    /// The `tokenizer.*` metadata of a GGUF file.
    pub fn metadata(&self) -> Vec<(&'static str, Value)> {
        let mut out: Vec<(&'static str, Value)> = vec![
            ("tokenizer.ggml.model", self.model.into()),
            ("tokenizer.ggml.pre", self.pre.into()),
            ("tokenizer.ggml.tokens", self.tokens.clone().into()),
            ("tokenizer.ggml.token_type", self.types.clone().into()),
        ];
        if self.model == "llama" {
            out.push(("tokenizer.ggml.scores", self.scores.clone().into()));
            out.push(("tokenizer.ggml.unknown_token_id", 0u32.into()));
            out.push(("tokenizer.ggml.add_space_prefix", self.add_space_prefix.into()));
        } else {
            out.push(("tokenizer.ggml.merges", self.merges.clone().into()));
        }
        out.push(("tokenizer.ggml.bos_token_id", self.bos.into()));
        out.push(("tokenizer.ggml.eos_token_id", self.eos.into()));
        out.push(("tokenizer.ggml.add_bos_token", self.add_bos.into()));
        out.push(("tokenizer.ggml.add_eos_token", false.into()));
        out.push(("tokenizer.chat_template", self.chat_template.as_str().into()));
        out
    }

    /// `tokenizer.json`.
    pub fn tokenizer_json(&self) -> String {
        let vocab: Map<String, Json> = self.tokens.iter().zip(0u32..).map(|(t, i)| (t.clone(), i.into())).collect();
        let added: Vec<Json> = (0..self.len())
            .filter(|i| matches!(self.types[*i], CONTROL | UNKNOWN))
            .map(|i| {
                json!({"id": i, "content": self.tokens[i], "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": true})
            })
            .collect();
        let pieces = self.model == "llama";
        let replace = |from: &str, to: &str| json!({"type": "Replace", "pattern": {"String": from}, "content": to});
        let byte_level =
            json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
        let (normalizer, decoder) = if pieces {
            let mut steps = vec![replace(" ", "▁")];
            let mut back = vec![replace("▁", " "), json!({"type": "ByteFallback"}), json!({"type": "Fuse"})];
            if self.add_space_prefix {
                steps.insert(0, json!({"type": "Prepend", "prepend": "▁"}));
                back.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
            }
            (json!({"type": "Sequence", "normalizers": steps}), json!({"type": "Sequence", "decoders": back}))
        } else {
            (Json::Null, byte_level.clone())
        };
        let bos = &self.tokens[self.bos as usize];
        let post_processor = if self.add_bos {
            let special = json!({"SpecialToken": {"id": bos, "type_id": 0}});
            let text = |id: &str, type_id: u32| json!({"Sequence": {"id": id, "type_id": type_id}});
            json!({"type": "TemplateProcessing", "single": [special, text("A", 0)],
                "pair": [special, text("A", 0), text("B", 1)],
                "special_tokens": {bos: {"id": bos, "ids": [self.bos], "tokens": [bos]}}})
        } else {
            Json::Null
        };
        json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
            "normalizer": normalizer,
            "pre_tokenizer": if pieces { Json::Null } else { byte_level },
            "post_processor": post_processor,
            "decoder": decoder,
            "model": {"type": "BPE", "dropout": null, "unk_token": if pieces { json!("<unk>") } else { Json::Null },
                "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": pieces,
                "byte_fallback": pieces, "ignore_merges": false, "vocab": vocab, "merges": self.merges},
        })
        .to_string()
    }

    /// `tokenizer_config.json`.
    pub fn tokenizer_config_json(&self) -> String {
        json!({
            "bos_token": self.tokens[self.bos as usize], "eos_token": self.tokens[self.eos as usize],
            "add_bos_token": self.add_bos, "add_eos_token": false, "chat_template": self.chat_template,
            "tokenizer_class": if self.model == "llama" { "LlamaTokenizer" } else { "GPT2Tokenizer" },
        })
        .to_string()
    }
}

/// The character that stands for each byte in byte-level BPE, in the order of GPT-2's vocabulary:
/// the printable bytes stand for themselves and come first, the others follow from U+0100 on.
fn byte_chars() -> Vec<char> {
    let printable = |b: &u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let shifted = (0..=255u8).filter(|b| !printable(b)).count() as u32;
    let first = (0..=255u8).filter(printable).map(char::from);
    first.chain((0..shifted).filter_map(|i| char::from_u32(0x100 + i))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vocabularies_are_whole() {
        for v in [Vocab::byte_level(), Vocab::sentence_piece(), Vocab::sentence_piece().filled_to(400)] {
            assert_eq!(v.tokens.len(), v.types.len());
            assert!(v.model == "gpt2" || v.scores.len() == v.len());
            let mut sorted = v.tokens.clone();
            sorted.sort();
            sorted.dedup();
            assert_eq!(sorted.len(), v.len(), "no token twice");
            for pair in &v.merges {
                pair.split(' ').for_each(|half| assert!(v.tokens.iter().any(|t| t == half), "{half}"));
            }
        }
        assert_eq!(Vocab::byte_level().len(), 273);
        assert_ne!(Vocab::sentence_piece().len() % 16, 0);
        assert_eq!(byte_chars().len(), 256);
        assert_eq!(byte_chars()[Vocab::byte_level().id("Ġ") as usize], 'Ġ');
    }
}
