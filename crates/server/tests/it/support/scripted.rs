//! Models that say given tokens: each is likelier than all others until it was said.

use selfspec_testkit::Vocab;
use serde_json::{Map, Value, json};

use crate::support::{Running, opened_with};

const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
/// Ends a text, and is in no prompt, so that no penalty concerns it.
const END: &str = "<|end|>";

/// A template of Qwen3's shape: the model opens its reasoning, unless the template closes it.
pub(crate) const QWEN3: &str = "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' }}\
    {% if message.reasoning_content %}{{ '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}{% endif %}\
    {{ message.content + '<|im_end|>\\n' }}{% endfor %}\
    {% if reasoning_effort is defined %}{{ 'effort ' + reasoning_effort + '\\n' }}{% endif %}\
    {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}\
    {% if enable_thinking is defined and enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}\
    {% endif %}";
/// A template of DeepSeek-R1's shape, which opens the reasoning.
pub(crate) const R1: &str = "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' }}\
    {{ message.content.split('</think>')[-1] + '<|im_end|>\\n' }}{% endfor %}\
    {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}";

/// A server of a model that says given tokens.
pub(crate) struct ScriptedModel {
    pub(crate) server: Running,
    vocab: Vocab,
}

impl ScriptedModel {
    /// With these tokens besides the usual ones, and the marks of reasoning. Without a template it
    /// has that of ChatML.
    pub(crate) fn new(tokens: &[&str], template: Option<&str>) -> Self {
        let mut vocab = Vocab::byte_level();
        let marks = ["<think>", "</think>"].map(|mark| (mark, USER_DEFINED));
        for (token, kind) in tokens.iter().map(|token| (*token, NORMAL)).chain(marks) {
            vocab.tokens.push(token.to_owned());
            vocab.types.push(kind);
        }
        vocab.tokens.push(END.to_owned());
        vocab.types.push(CONTROL);
        vocab.eos = vocab.id(END);
        if let Some(template) = template {
            template.clone_into(&mut vocab.chat_template);
        }
        ScriptedModel { server: Running::of(opened_with(&vocab), |_| {}), vocab }
    }

    /// Fields with which the model says these tokens once each, in this order, and then ends.
    pub(crate) fn script(&self, tokens: &[&str]) -> Map<String, Value> {
        let said = tokens.iter().chain(&[END]).enumerate();
        let biases: Map<String, Value> =
            said.map(|(i, token)| (self.vocab.id(token).to_string(), json!(100.0 - 8.0 * i as f64))).collect();
        let fields = json!({ "temperature": 0, "repetition_penalty": 100, "logit_bias": biases });
        fields.as_object().expect("an object").clone()
    }
}

/// An object with the fields of both.
pub(crate) fn with(mut fields: Map<String, Value>, more: &Value) -> Value {
    fields.extend(more.as_object().expect("an object").clone());
    fields.into()
}
