//! `selfspec bench serve`: load on a server of OpenAI's API, and what it makes of it.
//!
//! It knows the server by its API alone, so that others can be measured with the same requests. Settings that are compared take turns in the same
//! minutes: what else the machine does falls on all of them.

mod answer;
mod arrivals;
mod client;
mod failure;
mod figures;
mod load;
mod report;
mod sse;

use std::collections::BTreeMap;

use anyhow::Context;
use selfspec_engine::Prompt;
use serde_json::{Value, json};

use crate::args::{BenchServeArgs, Endpoint, ServedSpeculation};
use crate::failure::{Told, hinted, usage};
use crate::output::{self, Ui};
use crate::progress::Steps;
use crate::{out_path, output::shown};
use client::Client;
use failure::Failure;
use load::{Run, Traffic};
use report::Setting;
use selfspec_lab::prompts::PromptStyle;
use selfspec_lab::prompts::{self, PromptCase};

pub(crate) fn run(args: &BenchServeArgs, ui: &Ui) -> anyhow::Result<()> {
    let traffic = &args.traffic;
    if traffic.compare_speculation && traffic.speculation.is_some() {
        return Err(usage("--speculation cannot be used with --compare-speculation", None));
    }
    if let Some(file) = &args.output.json_file {
        out_path::check("--json", file, true)?;
    }
    let prompts = prompts::load(traffic.prompts.as_deref(), traffic.limit)?;
    let requests = traffic.requests.unwrap_or(prompts.len());
    let mut settings = settings(args, requests);
    let widest = settings.iter().map(|s| s.traffic.concurrency.unwrap_or(requests)).max().unwrap_or(1);
    let client = Client::new(&args.target, widest);
    let model = match &args.target.model {
        Some(model) => model.clone(),
        None => client.first_model().map_err(|failure| told(&failure))?,
    };
    let arrivals = arrivals::arrivals(traffic.request_rate, requests, traffic.seed);
    let compared = settings.len() * traffic.repetitions > 1;
    let warmup = traffic.warmup.unwrap_or(if compared { prompts.len() } else { 1 });
    let steps = Steps::new(ui, "requests", (warmup + requests * settings.len() * traffic.repetitions) as u64);
    warm_up(&client, args, &model, &prompts, warmup, &steps)?;
    for repetition in 0..traffic.repetitions {
        // Back and forth, so that no setting always comes first.
        let mut order: Vec<usize> = (0..settings.len()).collect();
        if repetition % 2 == 1 {
            order.reverse();
        }
        for i in order {
            let speculation = settings[i].speculation;
            let bodies = bodies(args, &model, &prompts, args.answers.max_tokens, speculation);
            let run = load::run(&client, &bodies, settings[i].traffic, arrivals.as_deref(), &steps)?;
            settings[i].runs.push(run);
        }
    }
    drop(steps);
    if let Some(file) = &args.output.json_file {
        let text = serde_json::to_string_pretty(&report::json(args, &model, &settings))?;
        std::fs::write(file, text + "\n").with_context(|| format!("cannot write {}", file.display()))?;
    }
    output::print(&report::markdown(args, &shown(&model), prompts.len(), &settings))?;
    tell_failures(&settings, ui)
}

/// The settings in their order: with speculation next to without.
fn settings(args: &BenchServeArgs, requests: usize) -> Vec<Setting> {
    let traffic = &args.traffic;
    let concurrency: Vec<Option<usize>> = match traffic.concurrency.is_empty() {
        true => vec![traffic.request_rate.is_infinite().then_some(1)],
        false => traffic.concurrency.iter().copied().map(Some).collect(),
    };
    let speculation = match traffic.compare_speculation {
        true => vec![Some(ServedSpeculation::Auto), Some(ServedSpeculation::Off)],
        false => vec![traffic.speculation],
    };
    let of = |concurrency: Option<usize>| {
        let traffic = Traffic { requests, concurrency };
        speculation.iter().map(move |speculation| Setting { traffic, speculation: *speculation, runs: Vec::new() })
    };
    concurrency.into_iter().flat_map(of).collect()
}

/// Requests of one token, so that neither the first connection nor the first sight of a prompt is measured where runs are compared.
fn warm_up(
    client: &Client,
    args: &BenchServeArgs,
    model: &str,
    prompts: &[PromptCase],
    requests: usize,
    steps: &Steps,
) -> anyhow::Result<()> {
    let speculation = args.traffic.speculation.or(args.traffic.compare_speculation.then_some(ServedSpeculation::Auto));
    let bodies = bodies(args, model, prompts, 1, speculation);
    for body in bodies.iter().cycle().take(requests) {
        client.ask(body).map_err(|failure| told(&failure))?;
        steps.step();
    }
    Ok(())
}

/// The bodies of the requests, one for each prompt.
fn bodies(
    args: &BenchServeArgs,
    model: &str,
    prompts: &[PromptCase],
    max_tokens: usize,
    speculation: Option<ServedSpeculation>,
) -> Vec<Vec<u8>> {
    let body = |case: &PromptCase| {
        let mut body = json!({ "model": model });
        match args.target.endpoint {
            Endpoint::Chat => {
                let message = |(role, content): (&str, &str)| json!({ "role": role, "content": content });
                body["messages"] = case.messages().into_iter().map(message).collect::<Vec<Value>>().into();
            }
            Endpoint::Completions => {
                let Prompt::Text(text) = case.prompt(PromptStyle::Plain) else {
                    unreachable!("a plain prompt is a text")
                };
                body["prompt"] = text.into();
            }
        }
        body["max_tokens"] = max_tokens.into();
        body["temperature"] = args.answers.temperature.into();
        body["stream"] = true.into();
        body["stream_options"] = json!({ "include_usage": true });
        // Only what was asked for: other servers refuse fields that they do not know.
        if let Some(seed) = args.answers.sampling_seed {
            body["seed"] = seed.into();
        }
        if args.answers.ignore_eos {
            body["ignore_eos"] = true.into();
        }
        if let Some(speculation) = speculation {
            body["speculation"] = report::word(speculation).into();
        }
        // A round commits several tokens in one chunk: only a count tells them apart.
        if args.target.timings_per_token || speculation.is_some() {
            body["timings_per_token"] = true.into();
        }
        body.to_string().into_bytes()
    };
    prompts.iter().map(body).collect()
}

/// The failure as that of the command.
fn told(failure: &Failure) -> anyhow::Error {
    match failure.hint() {
        Some(hint) => hinted(failure.to_string(), hint),
        None => anyhow::anyhow!("{failure}"),
    }
}

/// Says which failures there were.
///
/// # Errors
/// No request succeeded.
fn tell_failures(settings: &[Setting], ui: &Ui) -> anyhow::Result<()> {
    let outcomes = || settings.iter().flat_map(|setting| &setting.runs).flat_map(|run: &Run| &run.outcomes);
    let mut counts: BTreeMap<String, (usize, &Failure)> = BTreeMap::new();
    for failure in outcomes().filter_map(|outcome| outcome.result.as_ref().err()) {
        counts.entry(failure.to_string()).or_insert((0, failure)).0 += 1;
    }
    let failed: usize = counts.values().map(|(n, _)| n).sum();
    let all = failed == outcomes().count();
    for (message, (n, failure)) in &counts {
        let line = format!("{n} of {} requests failed: {message}", outcomes().count());
        if all {
            ui.error(&line)
        } else {
            ui.warn(&line)
        }
        if let Some(hint) = failure.hint() {
            ui.hint(hint);
        }
    }
    if all { Err(Told.into()) } else { Ok(()) }
}
