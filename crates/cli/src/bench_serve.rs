//! `selfspec bench serve`: load on a server of OpenAI's API.

use anyhow::Context;
use selfspec_lab::prompts;
use selfspec_lab::serve_bench::{
    CompletionEndpoint, LoadFailure, LoadOptions, LoadReport, RequestedSpeculation, ServeBenchError, ServerTarget,
    serve_bench,
};

use crate::args::{BenchServeArgs, Endpoint, ServedSpeculation};
use crate::failure::{AlreadyReported, hinted, usage};
use crate::out_path;
use crate::output::{self, Ui, shown};
use crate::progress::LabBars;

pub(crate) fn run(args: &BenchServeArgs, ui: &Ui) -> anyhow::Result<()> {
    let traffic = &args.traffic;
    if traffic.compare_speculation && traffic.speculation.is_some() {
        return Err(usage("--speculation cannot be used with --compare-speculation", None));
    }
    if let Some(file) = &args.output.json_file {
        out_path::check("--json", file, true)?;
    }
    let prompts = prompts::load(traffic.prompts.as_deref(), traffic.limit)?;
    let report =
        serve_bench(&target(args), &prompts, &options(args), &LabBars::new(ui)).map_err(|error| match error {
            ServeBenchError::Request(failure) => match hint(&failure) {
                Some(hint) => hinted(failure.to_string(), hint),
                None => failure.into(),
            },
            error => error.into(),
        })?;
    if let Some(file) = &args.output.json_file {
        let text = serde_json::to_string_pretty(&report.json())?;
        std::fs::write(file, text + "\n").with_context(|| format!("cannot write {}", file.display()))?;
    }
    output::print(&report.markdown(&shown(&report.model)))?;
    print_failures(&report, ui)
}

fn target(args: &BenchServeArgs) -> ServerTarget {
    let target = &args.target;
    ServerTarget {
        url: target.url.clone(),
        endpoint: match target.endpoint {
            Endpoint::Chat => CompletionEndpoint::Chat,
            Endpoint::Completions => CompletionEndpoint::Completions,
        },
        model: target.model.clone(),
        api_key: target.api_key.clone(),
        count_chunks: target.count_chunks,
        timings_per_token: target.timings_per_token,
        timeout_s: target.timeout as u64,
    }
}

fn options(args: &BenchServeArgs) -> LoadOptions {
    let (traffic, answers) = (&args.traffic, &args.answers);
    LoadOptions {
        requests: traffic.requests,
        concurrency: traffic.concurrency.clone(),
        request_rate: traffic.request_rate,
        seed: traffic.seed,
        repetitions: traffic.repetitions,
        warmup: traffic.warmup,
        speculation: traffic.speculation.map(|speculation| match speculation {
            ServedSpeculation::Auto => RequestedSpeculation::Auto,
            ServedSpeculation::Off => RequestedSpeculation::Off,
        }),
        compare_speculation: traffic.compare_speculation,
        max_tokens: answers.max_tokens,
        temperature: answers.temperature,
        sampling_seed: answers.sampling_seed,
        ignore_eos: answers.ignore_eos,
    }
}

/// The flag that helps against a failure.
fn hint(failure: &LoadFailure) -> Option<&'static str> {
    match failure {
        LoadFailure::Connect { .. } => Some("is the server up? --url says where it is: http://HOST:PORT"),
        LoadFailure::Status { status: 401 | 403, .. } => Some("--api-key gives the key that the server asks for"),
        LoadFailure::Status { status: 404, .. } => {
            Some("--model NAME has to be one that the server lists at /v1/models, and --url the part before /v1")
        }
        LoadFailure::Status { status: 429, .. } => {
            Some("the server takes on no more at a time: a smaller --concurrency")
        }
        LoadFailure::NoModel { .. } => Some("--model NAME names it"),
        LoadFailure::NoUsage => Some("--count-chunks takes each chunk for one token"),
        LoadFailure::Late { .. } => Some("--timeout gives a request more time"),
        _ => None,
    }
}

/// Prints which failures there were.
///
/// # Errors
/// No request succeeded.
fn print_failures(report: &LoadReport, ui: &Ui) -> anyhow::Result<()> {
    let (all, failures) = (report.requests().count(), report.failures());
    let failed: usize = failures.values().map(|(n, _)| n).sum();
    for (message, (n, failure)) in &failures {
        let line = format!("{n} of {all} requests failed: {message}");
        if failed == all {
            ui.error(&line);
        } else {
            ui.warn(&line);
        }
        if let Some(hint) = hint(failure) {
            ui.hint(hint);
        }
    }
    if failed == all { Err(AlreadyReported.into()) } else { Ok(()) }
}
