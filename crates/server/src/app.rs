//! What all requests share, and which path leads where.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::Router;
use axum::http::HeaderValue;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use selfspec_engine::{Engine, Request};
use selfspec_model::TokenId;
use selfspec_text::ToolStyle;

use crate::api::answer::{Head, Kind, whole};
use crate::api::events::{Events, Load};
use crate::api::request::Asked;
use crate::api::{chat, completions, models, openapi, probes, stream, tokens};
use crate::error::ApiError;
use crate::http::keys::Keys;
use crate::http::{cors, keys, panics};
use crate::observe::arm;
use crate::observe::metrics::Metrics;
use crate::observe::record::{LineCounts, RecordOptions, Recorder};
use crate::observe::ticket::{self, Ticket};
use crate::observe::watch::{About, Watch};
use crate::page;
use crate::serve::{ServeError, ServeOptions};
use crate::short_hash::short_hash;

/// The header that says how a request was decoded.
const ARM: &str = "x-selfspec-arm";

/// What all requests share.
pub(crate) struct App {
    engine: Arc<Engine>,
    options: ServeOptions,
    keys: Keys,
    load: Arc<Load>,
    bodies: AtomicUsize, // bytes of those that are on their way
    started: u64,        // seconds since 1970
    fingerprint: String,
    draining: AtomicBool,
    answers: AtomicU64,  // begun so far
    arrivals: AtomicU64, // ids given so far
    metrics: Arc<Metrics>,
    recorder: Option<Arc<Recorder>>,
    tool_style: ToolStyle,
    tool_tags: Vec<TokenId>,
}

impl App {
    pub(crate) fn new(engine: Arc<Engine>, options: ServeOptions) -> Result<Arc<Self>, ServeError> {
        let fingerprint = engine.loaded().map_or("none", |loaded| loaded.fingerprint());
        // What the output depends on: weights, build, instruction set and the type of the cache.
        let of = format!(
            "{fingerprint} {} {:?} {:?}",
            env!("CARGO_PKG_VERSION"),
            engine.isa().map(|isa| isa.to_string()),
            engine.kv_type()
        );
        let hex = short_hash(&of, 6);
        let of_template = || engine.chat_template().map_or(ToolStyle::Json, |template| template.tool_style());
        let tool_style = options.tool_style.unwrap_or_else(of_template);
        let control = |tag: &str| engine.tokenizer()?.control_id(tag);
        let tags = [tool_style.opening(), tool_style.closing()];
        let lines = Arc::new(LineCounts::default());
        let open = |record: &RecordOptions| {
            let cannot = |source| ServeError::Record { path: record.path.clone(), source };
            Recorder::open(record, lines.clone()).map(Arc::new).map_err(cannot)
        };
        Ok(Arc::new(App {
            tool_style,
            tool_tags: tags.into_iter().flatten().filter_map(control).collect(),
            keys: Keys::new(&options.api_keys),
            load: Load::new(options.most_requests, options.most_tokens),
            bodies: AtomicUsize::new(0),
            started: now(),
            fingerprint: format!("fp_{hex}"),
            draining: AtomicBool::new(false),
            answers: AtomicU64::new(0),
            arrivals: AtomicU64::new(0),
            recorder: options.record.as_ref().map(open).transpose()?,
            metrics: Metrics::new(lines),
            engine,
            options,
        }))
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(crate) fn options(&self) -> &ServeOptions {
        &self.options
    }

    /// How the model writes calls of functions.
    pub(crate) fn tool_style(&self) -> ToolStyle {
        self.tool_style
    }

    /// The control tokens that stand around calls.
    pub(crate) fn tool_tags(&self) -> &[TokenId] {
        &self.tool_tags
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    pub(crate) fn model_id(&self) -> &str {
        &self.options.model_id
    }

    /// When the server began, in seconds since 1970.
    pub(crate) fn started(&self) -> u64 {
        self.started
    }

    pub(crate) fn load(&self) -> &Load {
        &self.load
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// An id for a request that brings none.
    pub(crate) fn new_id(&self) -> String {
        format!("req-{:x}-{:x}", self.started, self.arrivals.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether the bodies of requests are recorded.
    pub(crate) fn records_bodies(&self) -> bool {
        self.recorder.as_ref().is_some_and(|recorder| recorder.prompts())
    }

    /// Writes the last lines of the record.
    pub(crate) fn close_record(&self) {
        if let Some(recorder) = &self.recorder {
            recorder.close();
        }
    }

    /// Bytes of the bodies that are on their way.
    pub(crate) fn bodies(&self) -> &AtomicUsize {
        &self.bodies
    }

    /// Takes no more work from now on.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Generates what was asked for, and answers with it, at once or as a stream.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        kind: Kind,
        mut asked: Asked,
        prompt: &[TokenId],
        ticket: Arc<Ticket>,
    ) -> Result<Response, ApiError> {
        if self.is_draining() {
            return Err(ApiError::unavailable("the server is about to stop"));
        }
        let choices = asked.choices;
        let (arm, by) = arm::assign(&mut asked, self.options.speculate_share, &ticket.id);
        let share = self.load.take(choices, choices * prompt.len()).map_err(ApiError::overloaded)?;
        let (stream, prompt_tokens, parameters) = (asked.stream, prompt.len(), asked.parameters());
        let about = About { arm, by, stream, choices, prompt_tokens, parameters };
        let watch = Watch::new(self.metrics.clone(), self.recorder.clone(), ticket, about);
        let deadline = self.options.request_timeout.map(|timeout| Instant::now() + timeout);
        let requests = asked.requests(prompt).into_iter().map(|request| Request { deadline, ..request }).collect();
        let events = Events::submit(&self.engine, requests, share, &watch);
        let mut events = events.map_err(|error| ApiError::of_prompt(error, kind.prompt()))?;
        drop(watch);
        let number = self.answers.fetch_add(1, Ordering::Relaxed);
        let prefix = match kind {
            Kind::Chat => "chatcmpl",
            Kind::Completion => "cmpl",
        };
        let head = Head {
            kind,
            id: format!("{prefix}-{:x}-{number:x}", self.started),
            created: now(),
            model: self.options.model_id.clone(),
            fingerprint: self.fingerprint.clone(),
        };
        let mut response = if asked.stream {
            // What fails in the queue has a status of its own; later the answer has begun, and an error is an event in it.
            events.begun().await?;
            stream::answer(head, self.engine.clone(), events, asked)
        } else {
            Json(whole(&head, &self.engine, events, &asked).await?).into_response()
        };
        response.headers_mut().insert(ARM, HeaderValue::from_static(arm.name()));
        Ok(response)
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The paths.
///
/// # Errors
/// [`ServeError::Origin`].
pub(crate) fn router(app: Arc<App>) -> Result<Router, ServeError> {
    let cors = cors::layer(&app.options.cors_origins)?;
    let router = Router::new()
        .route("/livez", get(probes::livez))
        .route("/readyz", get(probes::readyz))
        .route("/v1/chat/completions", post(chat::completions))
        .route("/v1/completions", post(completions::completions))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*id}", get(models::one))
        .route("/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .route("/apply-template", post(tokens::apply_template))
        .route("/health", get(probes::readyz))
        .route("/metrics", get(probes::metrics))
        .route("/props", get(probes::props))
        .route("/openapi.json", get(openapi::document))
        .merge(page::routes())
        .fallback(async || ApiError::not_found("unknown_url", "this server has no such path"))
        .method_not_allowed_fallback(async || ApiError::method_not_allowed())
        .layer(from_fn_with_state(app.clone(), keys::guard))
        .layer(from_fn_with_state(app.clone(), cors::guard))
        .layer(from_fn(panics::catch))
        .layer(from_fn_with_state(app.clone(), ticket::issue))
        .with_state(app);
    Ok(match cors {
        Some(cors) => router.layer(cors),
        None => router,
    })
}
