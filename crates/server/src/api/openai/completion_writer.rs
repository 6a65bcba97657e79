//! Writes completions.

use std::sync::Arc;

use selfspec_engine::{Progress, RequestSummary};
use selfspec_text::Tokenizer;
use serde_json::{Value, json};

use crate::api::generate::writer::{AnswerEnd, AnswerWriter, ChoiceDelta, FinishedChoice, StreamBuffer};
use crate::api::openai::answer::{self, AnswerHead, finish_reason, text_of, token_list};
use crate::api::openai::logprobs::LogprobWriter;
use crate::api::request::OutputOptions;
use crate::app_state::AnswerIdentity;
use crate::error::ApiError;

/// Writes the answer to a completion.
pub(super) struct CompletionWriter {
    head: AnswerHead,
    logprobs: LogprobWriter,
    offsets: Vec<usize>, // (choice): characters of the tokens whose log-probabilities were written
}

impl CompletionWriter {
    pub(super) fn new(
        identity: AnswerIdentity,
        tokenizer: Option<Arc<Tokenizer>>,
        output: OutputOptions,
        choices: usize,
    ) -> Self {
        let head = AnswerHead::new(identity, "cmpl", "text_completion", "text_completion", output);
        CompletionWriter { head, logprobs: LogprobWriter(tokenizer), offsets: vec![0; choices] }
    }
}

impl AnswerWriter for CompletionWriter {
    fn whole(&mut self, choices: &[FinishedChoice]) -> Value {
        let output = self.head.output();
        let choice = |(index, choice): (usize, &FinishedChoice)| {
            let logprobs = output.logprobs.map(|_| self.logprobs.completion(&choice.tokens, &mut 0));
            let (text, finish) = (text_of(&choice.pieces), finish_reason(choice.end));
            let mut object = json!({ "index": index, "text": text, "logprobs": logprobs, "finish_reason": finish });
            if output.tokens {
                object["tokens"] = token_list(&choice.tokens);
            }
            object
        };
        let objects = choices.iter().enumerate().map(choice).collect();
        self.head.answer(objects, &choices.iter().map(|choice| &choice.summary).collect::<Vec<_>>())
    }

    fn begin(&mut self, _stream: &mut StreamBuffer) {}

    fn delta(&mut self, delta: ChoiceDelta, progress: &[Option<Progress>], stream: &mut StreamBuffer) {
        let ChoiceDelta { index, pieces, tokens } = delta;
        let output = self.head.output();
        let offset = &mut self.offsets[index];
        let logprobs = output.logprobs.map(|_| self.logprobs.completion(&tokens, offset));
        let text = text_of(&pieces);
        let mut choice = json!({ "index": index, "text": text, "logprobs": logprobs, "finish_reason": null });
        if output.tokens {
            choice["tokens"] = token_list(&tokens);
        }
        self.head.chunk(choice, progress, stream);
    }

    fn choice_end(&mut self, index: usize, end: AnswerEnd, progress: &[Option<Progress>], stream: &mut StreamBuffer) {
        let finish = finish_reason(end);
        let choice = json!({ "index": index, "text": "", "logprobs": null, "finish_reason": finish });
        self.head.chunk(choice, progress, stream);
    }

    fn end(&mut self, summaries: &[RequestSummary], progress: &[Option<Progress>], stream: &mut StreamBuffer) {
        self.head.end(summaries, progress, stream);
    }

    fn fail(&mut self, error: &ApiError, stream: &mut StreamBuffer) {
        answer::fail(error, stream);
    }
}
