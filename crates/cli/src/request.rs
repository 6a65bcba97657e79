//! From flags to a request. Flags that do not fit together are refused before a model is loaded.

use std::path::Path;

use anyhow::Context;
use selfspec::{
    Error, GenerateOptions, GrammarSource, Model, Prompt, RequestedDrafter, SamplingParams, SpeculationRequest,
};
use selfspec_engine::{ModelInfo, Request};
use selfspec_lab::prompts::PromptStyle;

use crate::args::{HeldArgs, RunArgs, SamplingArgs, SpeculationArgs};
use crate::failure::usage;
use crate::output::Ui;

/// Rounds that a trace keeps: as many as the longest generation has.
const TRACE: usize = 1 << 20;

/// Flags of sampling that cannot change a greedy choice, if any are given.
pub(crate) fn without_effect(args: &SamplingArgs) -> Vec<&'static str> {
    if !sampling(args).is_greedy() {
        return Vec::new();
    }
    let given = [("--top-k", args.top_k != 0), ("--top-p", args.top_p < 1.0), ("--min-p", args.min_p > 0.0)];
    given.iter().filter(|(_, given)| *given).map(|(flag, _)| *flag).collect()
}

fn sampling(args: &SamplingArgs) -> SamplingParams {
    SamplingParams {
        temperature: args.temp,
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        repetition_penalty: args.repeat_penalty,
        presence_penalty: args.presence_penalty,
        frequency_penalty: args.frequency_penalty,
        logit_bias: args.logit_bias.clone(),
        seed: args.seed,
    }
}

fn speculation(args: &SpeculationArgs, trace: bool) -> SpeculationRequest {
    let drafter = args.spec.map(RequestedDrafter::from);
    let default = SpeculationRequest::default();
    SpeculationRequest {
        drafter,
        exit_layer: args.exit_layer,
        skip_layers: args.skip_layers.clone(),
        draft_len: args.draft_len.unwrap_or(default.draft_len),
        bonus: !args.no_bonus,
        min_confidence: args.min_confidence.unwrap_or(default.min_confidence),
        always: args.spec_always,
        trace: if trace { TRACE } else { 0 },
        ..default
    }
}

/// A request with the flags of `run`.
pub(crate) fn build(args: &RunArgs, model: &Model, prompt: Prompt) -> anyhow::Result<Request> {
    let vocab = model.info().vocab;
    if let Some((id, bias)) = args.sampling.logit_bias.iter().find(|(id, _)| *id as usize >= vocab) {
        anyhow::bail!("--logit-bias {id}={bias}: the vocabulary ends at token {}", vocab.saturating_sub(1));
    }
    let options = GenerateOptions {
        max_tokens: Some(args.max_tokens),
        sampling: sampling(&args.sampling),
        speculation: speculation(&args.speculation, args.output.trace),
        stop: args.stop.clone(),
        prediction: prediction(&args.held, model)?,
        ..GenerateOptions::default()
    };
    let mut request = model.request(prompt, &options).map_err(with_flag)?;
    if let Some((flag, source)) = grammar(&args.held)? {
        request.grammar = Some(model.engine().grammar(&source).with_context(|| flag)?);
    }
    Ok(request)
}

/// The error, with the flag in place of the field that is at fault.
fn with_flag(error: Error) -> anyhow::Error {
    match &error {
        Error::Speculation(why) => match why.field() {
            Some(field) => anyhow::anyhow!("{}", why.to_string().replacen(field, &flag_of(field), 1)),
            None => error.into(),
        },
        _ => error.into(),
    }
}

fn flag_of(field: &str) -> String {
    format!("--{}", field.replace('_', "-"))
}

/// The grammar that the flags ask for, and the flag that asks.
fn grammar(args: &HeldArgs) -> anyhow::Result<Option<(String, GrammarSource)>> {
    Ok(if let Some(schema) = &args.json_schema {
        let flag = format!("--json-schema {schema}");
        let source = match schema.as_str() {
            "object" => GrammarSource::JsonObject,
            path => {
                let text = read("--json-schema", Path::new(path))?;
                GrammarSource::JsonSchema(serde_json::from_str(&text).with_context(|| format!("{flag}: not JSON"))?)
            }
        };
        Some((flag, source))
    } else if let Some(regex) = &args.regex {
        Some((format!("--regex {regex}"), GrammarSource::Regex(regex.clone())))
    } else if let Some(path) = &args.lark {
        Some((format!("--lark {}", path.display()), GrammarSource::Lark(read("--lark", path)?)))
    } else {
        None
    })
}

/// The text that the output is expected to resemble.
fn prediction(args: &HeldArgs, model: &Model) -> anyhow::Result<Option<String>> {
    let Some(path) = &args.prediction else { return Ok(None) };
    model.engine().tokenizer().context("--prediction: the model has no tokenizer")?;
    Ok(Some(read("--prediction", path)?))
}

fn read(flag: &str, path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("{flag} {}", path.display()))
}

/// How `run` and `chat` give a prompt's text to the model.
pub(crate) fn style(args: &RunArgs, info: &ModelInfo, ui: &Ui) -> anyhow::Result<PromptStyle> {
    let style = PromptStyle::of(args.raw, info);
    if style == PromptStyle::Plain && !args.raw {
        if args.system.is_some() {
            return Err(usage("--system needs a chat template, and the model has none", None));
        }
        ui.note("the model has no chat template, the prompt is used as plain text");
    }
    Ok(style)
}
