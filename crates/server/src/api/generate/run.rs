//! Runs a request of any dialect.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::http::HeaderValue;
use axum::response::{IntoResponse, Response};
use selfspec_engine::{Prompt, Request};

use crate::api::generate::events::GenerationEvents;
use crate::api::generate::pieces::{ExpectedCalls, OutputSplitter};
use crate::api::generate::stream::StreamLife;
use crate::api::generate::writer::AnswerWriter;
use crate::api::generate::{grammar, prompt, stream, whole};
use crate::api::request::{GenerationRequest, PromptInput};
use crate::app_state::AppState;
use crate::error::ApiError;
use crate::observe::arm::ArmAssignment;
use crate::observe::context::RequestContext;
use crate::observe::observer::{RequestFacts, RequestObserver};

/// The header that reports the arm of a request.
const ARM: &str = "x-selfspec-arm";

/// Generates what a request asks for. `writer` writes the answer, at once or as a stream; `serial`
/// is unique to the answer and makes the ids of its tool calls unique.
///
/// # Errors
/// The request cannot be served, or fails before its answer has begun. A stream that has begun ends
/// with an error event instead.
pub(crate) async fn generate(
    app: &AppState,
    request: GenerationRequest,
    context: Arc<RequestContext>,
    mut writer: impl AnswerWriter,
    serial: &str,
) -> Result<Response, ApiError> {
    let prompt = prompt::encode(app, &request.prompt, &request.tools, request.prompt_field)?;
    let prediction = match &request.drafting.prediction {
        Some(prediction) => prompt::encode_prediction(app, prediction)?,
        None => Vec::new(),
    };
    let constraint = grammar::constraint(app, &request)?;
    let drafting = &request.drafting;
    let share = app.speculate_share();
    let assigned = ArmAssignment::new(drafting.speculation.clone(), drafting.chosen, share, &context.id);
    let expected = ExpectedCalls::new(&request.tools, app.tool_style());
    let prompt_tokens = prompt.len();
    let mut template = Request {
        max_tokens: request.end.max_tokens,
        sampling: request.sampling.clone(),
        speculation: assigned.speculation.clone(),
        stop: request.end.stop.clone(),
        ignore_eos: request.end.ignore_eos,
        prediction,
        spelled: expected.as_ref().map_or_else(Vec::new, |_| app.tool_tags().to_vec()),
        // A raw completion is raw text.
        reasoning: app.reasoning().filter(|_| matches!(request.prompt, PromptInput::Chat(_))),
        logprobs: request.output.logprobs,
        deadline: app.request_timeout().map(|timeout| Instant::now() + timeout),
        ..Request::new(Prompt::Tokens(prompt))
    };
    // Faults are reported before anything waits, and whatever the load is.
    let checked = app.engine().check(&template, constraint.as_ref().map(|constraint| &constraint.source));
    checked.map_err(|error| match &constraint {
        Some(constraint) => constraint.refused(error, request.prompt_field),
        None => ApiError::of_prompt(error, request.prompt_field),
    })?;
    app.refuse_while_draining()?;
    let permit = app.admission().admit(request.choices, request.choices * prompt_tokens);
    let permit = permit.map_err(ApiError::overloaded)?;
    if let Some(constraint) = constraint {
        template.grammar = Some(constraint.compile(app.engine(), template.deadline).await?);
    }
    let facts = RequestFacts {
        arm: assigned.arm,
        arm_source: assigned.source,
        stream: request.output.stream,
        choices: request.choices,
        prompt_tokens,
        parameters: request.parameters(),
    };
    let observer = RequestObserver::new(app.metrics().clone(), app.recorder().cloned(), context, facts);
    let requests = (0..request.choices).map(|index| of_choice(&template, index)).collect();
    let events = GenerationEvents::submit(app.engine(), requests, permit, &observer);
    let mut events = events.map_err(|error| ApiError::of_prompt(error, request.prompt_field))?;
    writer.prompt(prompt_tokens);
    let splitter = |index| OutputSplitter::new(expected.as_ref(), serial, index);
    let splitters: Vec<OutputSplitter> = (0..request.choices).map(splitter).collect();
    let mut response = if request.output.stream {
        // A request that soon fails in the queue gets an error status. Later the stream has begun,
        // and the error is an event.
        let mut life = StreamLife { keep_alive: app.keep_alive(), drain: app.draining().watch() };
        tokio::select! {
            biased;
            () = life.drain.reached() => return Err(ApiError::cut_off()),
            begun = events.begun() => begun?,
            () = tokio::time::sleep(life.keep_alive) => observer.open(),
        }
        drop(observer);
        stream::respond(writer, events, splitters, request.output, life)
    } else {
        drop(observer);
        let mut drain = app.draining().watch();
        tokio::select! {
            biased;
            () = drain.reached() => return Err(ApiError::cut_off()),
            whole = whole::collect(writer, events, splitters, request.output) => Json(whole?).into_response(),
        }
    };
    response.headers_mut().insert(ARM, HeaderValue::from_static(assigned.arm.name()));
    Ok(response)
}

/// The engine's request for a choice. With a seed, each choice has its own.
fn of_choice(template: &Request, index: usize) -> Request {
    let mut request = template.clone();
    request.sampling.seed = request.sampling.seed.map(|seed| seed.wrapping_add(index as u64));
    request
}
