//! Runs the settings in turn.

use serde_json::{Value, json};

use super::arrivals::arrivals;
use super::client::LoadClient;
use super::failure::ServeBenchError;
use super::load::{self, LoadTraffic};
use super::options::{CompletionEndpoint, LoadOptions, RequestedSpeculation, ServerTarget};
use super::report::{LoadReport, LoadSetting};
use crate::progress::{Stage, StageProgress};
use crate::prompts::PromptCase;

/// Puts load on a server and measures its answers.
///
/// # Errors
/// There are no prompts, the server lists no model, a request of the warm-up fails, or the system
/// gives no more threads. A measured request that fails is a result.
pub fn serve_bench(
    target: &ServerTarget,
    prompts: &[PromptCase],
    options: &LoadOptions,
    progress: &dyn StageProgress,
) -> Result<LoadReport, ServeBenchError> {
    if prompts.is_empty() {
        return Err(ServeBenchError::NoPrompts);
    }
    let requests = options.requests.unwrap_or(prompts.len());
    let mut settings = settings(options, requests);
    let widest = settings.iter().map(|s| s.traffic.concurrency.unwrap_or(requests)).max().unwrap_or(1);
    let client = LoadClient::new(target, widest);
    let model = match &target.model {
        Some(model) => model.clone(),
        None => client.first_model()?,
    };
    let arrivals = arrivals(options.request_rate, requests, options.seed);
    let compared = settings.len() * options.repetitions > 1;
    let warmup = options.warmup.unwrap_or(if compared { prompts.len() } else { 1 });
    let stage = Stage::begin(progress, "requests", warmup + requests * settings.len() * options.repetitions);
    let bodies = RequestBodies { target, prompts, options, model: &model };
    // Requests of one token, so that neither the first connection nor the first sight of a prompt
    // is measured.
    let speculation = options.speculation.or(options.compare_speculation.then_some(RequestedSpeculation::Auto));
    for body in bodies.all(1, speculation).iter().cycle().take(warmup) {
        client.send(body)?;
        stage.step();
    }
    for repetition in 0..options.repetitions {
        // Back and forth, so that no setting always comes first.
        let mut order: Vec<usize> = (0..settings.len()).collect();
        if repetition % 2 == 1 {
            order.reverse();
        }
        for i in order {
            let bodies = bodies.all(options.max_tokens, settings[i].speculation);
            let run = load::run(&client, &bodies, settings[i].traffic, arrivals.as_deref(), &stage)?;
            settings[i].runs.push(run);
        }
    }
    drop(stage);
    let (target, options, prompts) = (target.clone(), options.clone(), prompts.len());
    Ok(LoadReport { target, options, model, prompts, settings })
}

/// The settings in their order: with speculation next to without.
fn settings(options: &LoadOptions, requests: usize) -> Vec<LoadSetting> {
    let concurrency: Vec<Option<usize>> = match options.concurrency.is_empty() {
        true => vec![options.request_rate.is_infinite().then_some(1)],
        false => options.concurrency.iter().copied().map(Some).collect(),
    };
    let speculation = match options.compare_speculation {
        true => vec![Some(RequestedSpeculation::Auto), Some(RequestedSpeculation::Off)],
        false => vec![options.speculation],
    };
    let of = |concurrency: Option<usize>| {
        let traffic = LoadTraffic { requests, concurrency };
        speculation.iter().map(move |speculation| LoadSetting { traffic, speculation: *speculation, runs: Vec::new() })
    };
    concurrency.into_iter().flat_map(of).collect()
}

/// Makes the bodies of requests.
struct RequestBodies<'a> {
    target: &'a ServerTarget,
    prompts: &'a [PromptCase],
    options: &'a LoadOptions,
    model: &'a str,
}

impl RequestBodies<'_> {
    /// A body for each prompt.
    fn all(&self, max_tokens: usize, speculation: Option<RequestedSpeculation>) -> Vec<Vec<u8>> {
        self.prompts.iter().map(|case| self.one(case, max_tokens, speculation).to_string().into_bytes()).collect()
    }

    fn one(&self, case: &PromptCase, max_tokens: usize, speculation: Option<RequestedSpeculation>) -> Value {
        let mut body = json!({ "model": self.model });
        match self.target.endpoint {
            CompletionEndpoint::Chat => {
                let message = |(role, content): (&str, &str)| json!({ "role": role, "content": content });
                body["messages"] = case.messages().into_iter().map(message).collect::<Vec<Value>>().into();
            }
            CompletionEndpoint::Completions => body["prompt"] = case.plain_text().into(),
        }
        body["max_tokens"] = max_tokens.into();
        body["temperature"] = self.options.temperature.into();
        body["stream"] = true.into();
        body["stream_options"] = json!({ "include_usage": true });
        // Only the fields that were asked for: other servers refuse fields that they do not know.
        if let Some(seed) = self.options.sampling_seed {
            body["seed"] = seed.into();
        }
        if self.options.ignore_eos {
            body["ignore_eos"] = true.into();
        }
        if let Some(speculation) = speculation {
            body["speculation"] = speculation.name().into();
        }
        // A round commits several tokens in one chunk: only a count tells them apart.
        if self.target.timings_per_token || speculation.is_some() {
            body["timings_per_token"] = true.into();
        }
        body
    }
}
