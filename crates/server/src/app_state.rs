//! The state that all requests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use selfspec_engine::{Engine, ReasoningMarks};
use selfspec_model::TokenId;
use selfspec_text::ToolStyle;

use crate::error::ApiError;
use crate::http::admission::RequestAdmission;
use crate::http::body::BodyReader;
use crate::http::drain::DrainState;
use crate::observe::metrics::ServerMetrics;
use crate::observe::record::{RecordCounters, RequestRecorder};
use crate::options::ServeOptions;
use crate::serve_error::ServeError;
use crate::served_model::ServedModel;
use crate::short_hash::short_hash;

/// The state that all requests share.
pub(crate) struct AppState {
    engine: Arc<Engine>,
    model: ServedModel,
    fingerprint: String,
    tool_style: ToolStyle,
    tool_tags: Vec<TokenId>,
    reasoning: Option<ReasoningMarks>,
    started: u64, // seconds since 1970
    answers: AtomicU64,
    bodies: BodyReader,
    admission: Arc<RequestAdmission>,
    draining: DrainState,
    request_timeout: Option<Duration>,
    keep_alive: Duration,
    speculate_share: Option<f64>,
    metrics: Arc<ServerMetrics>,
    recorder: Option<Arc<RequestRecorder>>,
}

/// What an answer reports of itself.
#[derive(Debug, Clone)]
pub(crate) struct AnswerIdentity {
    /// Unique among all answers of this server, also after a restart.
    pub(crate) serial: String,
    pub(crate) created: u64, // seconds since 1970
    pub(crate) model: String,
    /// Names all that the output depends on besides the request.
    pub(crate) fingerprint: String,
}

impl AppState {
    pub(crate) fn new(engine: Arc<Engine>, options: &ServeOptions) -> Result<Arc<Self>, ServeError> {
        let tool_style = options
            .tool_style
            .unwrap_or_else(|| engine.chat_template().map_or(ToolStyle::Json, |template| template.tool_style()));
        let control = |tag: &str| engine.tokenizer()?.control_id(tag);
        let tags = [tool_style.opening(), tool_style.closing()];
        let counters = Arc::new(RecordCounters::default());
        let recorder = match &options.record {
            Some(record) => {
                let cannot_record = |source| ServeError::Record { path: record.path.clone(), source };
                Some(Arc::new(RequestRecorder::open(record, counters.clone()).map_err(cannot_record)?))
            }
            None => None,
        };
        Ok(Arc::new(AppState {
            model: ServedModel::new(&engine, &options.model_id).map_err(ServeError::Tuning)?,
            fingerprint: fingerprint(&engine),
            tool_style,
            reasoning: reasoning_marks(&engine),
            tool_tags: tags.into_iter().flatten().filter_map(control).collect(),
            started: now(),
            answers: AtomicU64::new(0),
            bodies: BodyReader::new(options.body_limit, options.read_timeout),
            admission: RequestAdmission::new(options.most_requests, options.most_tokens),
            draining: DrainState::default(),
            request_timeout: options.request_timeout,
            keep_alive: options.keep_alive,
            speculate_share: options.speculate_share,
            metrics: ServerMetrics::new(counters),
            recorder,
            engine,
        }))
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(crate) fn model(&self) -> &ServedModel {
        &self.model
    }

    /// How the model writes tool calls.
    pub(crate) fn tool_style(&self) -> ToolStyle {
        self.tool_style
    }

    /// The control tokens around tool calls. Shape: (token).
    pub(crate) fn tool_tags(&self) -> &[TokenId] {
        &self.tool_tags
    }

    /// The tokens around the model's reasoning; `None`: it does not reason.
    pub(crate) fn reasoning(&self) -> Option<ReasoningMarks> {
        self.reasoning
    }

    /// When the server started, in seconds since 1970.
    pub(crate) fn started(&self) -> u64 {
        self.started
    }

    pub(crate) fn bodies(&self) -> &BodyReader {
        &self.bodies
    }

    pub(crate) fn admission(&self) -> &Arc<RequestAdmission> {
        &self.admission
    }

    pub(crate) fn draining(&self) -> &DrainState {
        &self.draining
    }

    /// Refuses a request while the server stops.
    pub(crate) fn refuse_while_draining(&self) -> Result<(), ApiError> {
        if self.draining.is_draining() { Err(ApiError::unavailable("the server is stopping")) } else { Ok(()) }
    }

    /// Time limit of a request, in the queue and running.
    pub(crate) fn request_timeout(&self) -> Option<Duration> {
        self.request_timeout
    }

    /// Time after which a silent stream gets a sign of life.
    pub(crate) fn keep_alive(&self) -> Duration {
        self.keep_alive
    }

    /// Share of the requests that draft, among those that do not choose.
    pub(crate) fn speculate_share(&self) -> Option<f64> {
        self.speculate_share
    }

    pub(crate) fn metrics(&self) -> &Arc<ServerMetrics> {
        &self.metrics
    }

    pub(crate) fn recorder(&self) -> Option<&Arc<RequestRecorder>> {
        self.recorder.as_ref()
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

    /// The identity of a new answer.
    pub(crate) fn next_answer(&self) -> AnswerIdentity {
        let number = self.answers.fetch_add(1, Ordering::Relaxed);
        AnswerIdentity {
            serial: format!("{:x}-{number:x}", self.started),
            created: now(),
            model: self.model.id.clone(),
            fingerprint: self.fingerprint.clone(),
        }
    }
}

/// The tokens around the model's reasoning, if the template and the vocabulary have them.
fn reasoning_marks(engine: &Engine) -> Option<ReasoningMarks> {
    let [open, close] = engine.chat_template()?.reasoning_marks()?;
    let tokenizer = engine.tokenizer()?;
    Some(ReasoningMarks { open: tokenizer.token_id(open)?, close: tokenizer.token_id(close)? })
}

/// A short name of what the output depends on: weights, build, instruction set and KV type.
fn fingerprint(engine: &Engine) -> String {
    let weights = engine.loaded().map_or("none", |loaded| loaded.fingerprint());
    let isa = engine.isa().map(|isa| isa.to_string());
    let all = format!("{weights} {} {isa:?} {:?}", env!("CARGO_PKG_VERSION"), engine.kv_type());
    format!("fp_{}", short_hash(&all, 6))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
