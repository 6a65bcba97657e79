//! A conversation: messages, and replies that are streamed.

use std::time::Instant;

use selfspec_engine::{Canceller, EngineError, Prompt, Request};
use selfspec_speculate::SpecStats;
use selfspec_text::Message;

use crate::error::Error;
use crate::model::Model;
use crate::options::GenerateOptions;
use crate::stream::{Completion, GeneratedToken, TokenStream};

impl Model {
    /// An empty conversation. The model must bring a chat template.
    pub fn chat(&self) -> Chat {
        Chat {
            model: self.clone(),
            options: GenerateOptions::default(),
            request: None,
            system: None,
            messages: Vec::new(),
            stats: SpecStats::default(),
        }
    }
}

/// A conversation with a model, which remembers what was said.
///
/// ```no_run
/// # fn main() -> Result<(), selfspec::Error> {
/// let model = selfspec::Model::open("smollm2-135m")?;
/// let mut chat = model.chat().system("Answer in one sentence.");
/// println!("{}", chat.ask("Why is the sky blue?")?.text());
/// println!("{}", chat.ask("And at sunset?")?.text());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Chat {
    model: Model,
    options: GenerateOptions,
    request: Option<Request>, // the options' own, made once, without its prompt
    system: Option<String>,
    messages: Vec<Message>,
    stats: SpecStats,
}

impl Chat {
    /// The conversation with a system message, which stands before all others.
    pub fn system(mut self, text: impl Into<String>) -> Self {
        self.system = Some(text.into());
        self
    }

    /// The conversation with other options for its replies.
    pub fn options(mut self, options: GenerateOptions) -> Self {
        self.options = options;
        self.request = None;
        self
    }

    /// Adds a message without asking for a reply: a turn of a history, or a tool's result.
    pub fn push(&mut self, message: Message) {
        self.messages.push(message);
    }

    /// The messages, without the system message.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Forgets the messages; the system message stays.
    pub fn clear(&mut self) {
        self.messages.clear();
    }

    /// Says something and streams the reply. The reply becomes part of the conversation as far as
    /// it was read. If it fails, what was said is taken back.
    ///
    /// # Errors
    /// The model has no chat template, the conversation does not fit the context, or an option
    /// cannot be served.
    pub fn send(&mut self, text: impl Into<String>) -> Result<Reply<'_>, Error> {
        let before = self.messages.len();
        self.push(Message::new("user", text));
        self.reply_after(before)
    }

    /// Streams a reply to the messages as they are.
    ///
    /// # Errors
    /// As [`Chat::send`].
    pub fn reply(&mut self) -> Result<Reply<'_>, Error> {
        self.reply_after(self.messages.len())
    }

    /// Says something and waits for the whole reply.
    ///
    /// # Errors
    /// As [`Chat::send`], and what ended the reply.
    pub fn ask(&mut self, text: impl Into<String>) -> Result<Completion, Error> {
        self.send(text)?.finish()
    }

    /// What speculation did in the replies that were read to their end.
    pub fn stats(&self) -> &SpecStats {
        &self.stats
    }

    /// Accepted share of the drafts that the model judged in the replies that were read to their
    /// end, from 0 to 1; `None` if none was judged.
    pub fn acceptance(&self) -> Option<f64> {
        self.stats.acceptance()
    }

    fn submit(&mut self, prompt: Prompt) -> Result<TokenStream, Error> {
        let request = match &self.request {
            Some(request) => request.clone(),
            None => self.request.insert(self.model.request(prompt.clone(), &self.options)?).clone(),
        };
        let deadline = self.options.timeout.map(|timeout| Instant::now() + timeout);
        self.model.submit(Request { prompt, deadline, ..request })
    }

    /// A reply; where it fails, only the first `before` messages stay.
    fn reply_after(&mut self, before: usize) -> Result<Reply<'_>, Error> {
        let system = self.system.iter().map(|text| Message::new("system", text));
        let messages = system.chain(self.messages.iter().cloned()).collect();
        match self.submit(Prompt::Chat(messages)) {
            Ok(tokens) => Ok(Reply { chat: self, tokens, text: String::new(), before, open: true }),
            Err(error) => {
                self.messages.truncate(before);
                Err(error)
            }
        }
    }
}

/// A reply as it is generated. It ends when all tokens are read, or when it is dropped: then the
/// request is cancelled, and the conversation keeps what was read. Where that is no text, the
/// conversation is as it was before.
pub struct Reply<'c> {
    chat: &'c mut Chat,
    tokens: TokenStream,
    text: String,  // of the tokens that were read
    before: usize, // messages that stay if the reply fails
    open: bool,
}

impl Reply<'_> {
    /// Ends the reply at the next step; what was generated stays in the conversation.
    pub fn cancel(&self) {
        self.tokens.cancel();
    }

    /// A handle that cancels the reply while another thread waits for its tokens.
    pub fn canceller(&self) -> Canceller {
        self.tokens.canceller()
    }

    /// The completion, once all tokens were read.
    pub fn completion(&self) -> Option<&Completion> {
        self.tokens.completion()
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// What ended the reply.
    pub fn finish(mut self) -> Result<Completion, Error> {
        for token in self.by_ref() {
            token?;
        }
        self.tokens.completion().cloned().ok_or_else(|| EngineError::Stopped.into())
    }

    /// Adds the reply to the conversation, once.
    fn close(&mut self) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        match self.tokens.completion() {
            Some(completion) => self.chat.stats.merge(completion.stats()),
            None if self.text.is_empty() => return self.chat.messages.truncate(self.before),
            None => {}
        }
        self.chat.messages.push(Message::new("assistant", std::mem::take(&mut self.text)));
    }
}

impl Iterator for Reply<'_> {
    type Item = Result<GeneratedToken, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let token = self.tokens.next();
        match &token {
            Some(Ok(token)) => self.text.push_str(&token.text),
            Some(Err(_)) => {
                self.open = false;
                self.chat.messages.truncate(self.before);
            }
            None => self.close(),
        }
        token
    }
}

impl Drop for Reply<'_> {
    fn drop(&mut self) {
        self.close();
    }
}
