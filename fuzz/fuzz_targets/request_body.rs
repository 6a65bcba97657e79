//! Any bytes as the body of a chat or a completion: a request, or an error on one line.
//!
//! The first byte chooses the endpoint. Messages of the history, calls of functions in them,
//! schemas and grammars are parts of a body.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use selfspec_server::{ServedModel, parse_chat, parse_completion};

static MODEL: LazyLock<ServedModel> =
    LazyLock::new(|| ServedModel { id: "tiny".to_owned(), vocab: 300, n_layers: 6, tuning: None });

fuzz_target!(|data: &[u8]| {
    let Some((first, body)) = data.split_first() else { return };
    let parsed = if first % 2 == 0 { parse_chat(body, &MODEL) } else { parse_completion(body, &MODEL) };
    if let Err(error) = parsed {
        let message = error.to_string();
        assert!(!message.is_empty() && !message.contains('\n') && message.len() < 4000, "{message}");
    }
});
