//! Errors that clients get: an HTTP status and OpenAI's error object.

use std::fmt;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use selfspec_engine::EngineError;
use selfspec_speculate::SequenceError;
use serde_json::json;

/// An error of a request, with its HTTP status.
#[derive(Debug, Clone)]
pub struct ApiError {
    status: StatusCode,
    kind: &'static str,
    code: Option<&'static str>,
    param: Option<String>,
    message: String,
    retry_after: Option<u64>, // seconds
}

/// The message that the client gets.
impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        ApiError { status, kind, code: None, param: None, message: message.into(), retry_after: None }
    }

    /// A field of the request is wrong or not supported.
    pub(crate) fn field(param: impl Into<String>, message: impl Into<String>) -> Self {
        let (param, message) = (param.into(), message.into());
        let text = format!("{param}: {message}");
        ApiError { param: Some(param), ..Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", text) }
    }

    /// The same error of a dialect that calls the fields otherwise.
    pub(crate) fn renamed(mut self, name: impl Fn(&str) -> String) -> Self {
        if let Some(param) = self.param.take() {
            let named = name(&param);
            if let Some(why) = self.message.strip_prefix(&param) {
                self.message = format!("{named}{why}");
            }
            self.param = Some(named);
        }
        self
    }

    /// The request is wrong, but no single field is.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    pub(crate) fn not_found(code: &'static str, message: impl Into<String>) -> Self {
        ApiError { code: Some(code), ..Self::new(StatusCode::NOT_FOUND, "invalid_request_error", message) }
    }

    /// The request names another model than the served one.
    pub(crate) fn unknown_model(name: &str, served: &str) -> Self {
        Self::not_found("model_not_found", format!("no model {name:?}; this server has {served:?}"))
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", "method not allowed on this path")
    }

    /// A page of an origin that is not allowed sent the request.
    pub(crate) fn forbidden(origin: &str) -> Self {
        let message = format!("pages of {origin:?} may not use this server; --cors-origin allows them");
        ApiError { code: Some("origin"), ..Self::new(StatusCode::FORBIDDEN, "invalid_request_error", message) }
    }

    pub(crate) fn unauthorized() -> Self {
        let message = "no valid API key: send `Authorization: Bearer KEY`, or `X-Api-Key: KEY`";
        ApiError {
            code: Some("invalid_api_key"),
            ..Self::new(StatusCode::UNAUTHORIZED, "invalid_request_error", message)
        }
    }

    pub(crate) fn too_slow() -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "invalid_request_error", "the body did not arrive in time")
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("the body is larger than this server's limit of {limit} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", message)
    }

    /// The server has reached a limit of its load.
    pub(crate) fn overloaded(message: impl Into<String>) -> Self {
        ApiError {
            code: Some("overloaded"),
            retry_after: Some(1),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, "overloaded_error", message)
        }
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        ApiError { retry_after: Some(1), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", message) }
    }

    /// The server stops before the answer is complete.
    pub(crate) fn cut_off() -> Self {
        Self::unavailable("the server stopped before the answer was complete")
    }

    /// The request reached its time limit in the queue.
    fn not_begun(message: impl Into<String>) -> Self {
        ApiError { code: Some("timeout"), ..Self::unavailable(message) }
    }

    /// The request reached its time limit while it ran. Its partial text is not sent: no finish
    /// reason would describe it.
    fn not_ended(message: impl Into<String>) -> Self {
        ApiError { code: Some("timeout"), ..Self::new(StatusCode::GATEWAY_TIMEOUT, "server_error", message) }
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// OpenAI's error object.
    pub fn json(&self) -> serde_json::Value {
        json!({
            "error": { "message": self.message, "type": self.kind, "param": self.param, "code": self.code }
        })
    }
}

impl ApiError {
    /// The engine refused a request. `prompt`: the body's field that holds the prompt.
    pub(crate) fn of_prompt(error: EngineError, prompt: &str) -> Self {
        match error {
            EngineError::PromptTooLong { .. } | EngineError::NeverFits { .. } => {
                ApiError { code: Some("context_length_exceeded"), ..ApiError::field(prompt, error.to_string()) }
            }
            other => other.into(),
        }
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        (&error).into()
    }
}

impl From<&EngineError> for ApiError {
    fn from(error: &EngineError) -> Self {
        let message = error.to_string();
        match error {
            // Only a grammar constrains tokens.
            EngineError::Spec(SequenceError::Constraint { .. }) => ApiError::field("response_format", message),
            EngineError::InvalidRequest { field, why } => ApiError::field(*field, why),
            EngineError::NoTokenizer
            | EngineError::NoChatTemplate
            | EngineError::BadChatTemplate { .. }
            | EngineError::EmptyPrompt
            | EngineError::Text(_)
            | EngineError::Spec(_)
            | EngineError::Backend(_) => ApiError::bad_request(message),
            EngineError::DeadlineInQueue => ApiError::not_begun(message),
            EngineError::Deadline { .. } => ApiError::not_ended(message),
            EngineError::Busy { .. } => ApiError::overloaded(message),
            EngineError::Stopped => ApiError::unavailable(message),
            _ => ApiError::internal(message),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.json())).into_response();
        response.extensions_mut().insert(self.clone()); // for dialects with errors of another shape
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
