//! The fields that chat completions and completions share.

use selfspec_model::TokenId;
use selfspec_speculate::SamplingParams;
use serde_json::Value;

use crate::api::fields::RequestFields;
use crate::api::openai::{format, messages};
use crate::api::request::{DraftOptions, EndConditions, GenerationRequest, OutputOptions, PromptInput, ToolOffer};
use crate::api::speculation;
use crate::error::ApiError;
use crate::http::limits::{LONGEST_STOP, MOST_BIASES, MOST_CHOICES, MOST_STOPS};
use crate::served_model::ServedModel;

/// What the endpoints read themselves, because it differs between them.
pub(crate) struct OwnFields {
    pub(crate) prompt: PromptInput,
    pub(crate) prompt_field: &'static str,
    pub(crate) tools: ToolOffer,
    pub(crate) logprobs: Option<usize>,
    pub(crate) default_max_tokens: Option<usize>,
}

/// Reads the shared fields, and makes the request.
pub(crate) fn read(
    mut fields: RequestFields,
    model: &ServedModel,
    own: OwnFields,
) -> Result<GenerationRequest, ApiError> {
    check_model(&mut fields, model)?;
    refuse_other_names(&mut fields)?;
    let (format, format_field) = format::read(&mut fields)?;
    fields.string("user")?; // accepted and not used
    let request = GenerationRequest {
        prompt: own.prompt,
        prompt_field: own.prompt_field,
        choices: fields.whole("n", 1, MOST_CHOICES)?.unwrap_or(1) as usize,
        sampling: sampling(&mut fields, model.vocab)?,
        end: EndConditions {
            max_tokens: max_tokens(&mut fields)?.or(own.default_max_tokens),
            stop: stops(&mut fields)?,
            ignore_eos: fields.bool("ignore_eos")?.unwrap_or(false),
        },
        drafting: drafting(&mut fields, model)?,
        tools: own.tools,
        format,
        format_field,
        output: output(&mut fields, own.logprobs)?,
    };
    fields.finish();
    Ok(request)
}

fn check_model(fields: &mut RequestFields, model: &ServedModel) -> Result<(), ApiError> {
    match fields.string("model")? {
        Some(name) if name != model.id => Err(ApiError::unknown_model(&name, &model.id)),
        _ => Ok(()),
    }
}

/// Refuses other servers' names of fields that this server has under OpenAI's names. Ignoring them
/// would change the answer.
fn refuse_other_names(fields: &mut RequestFields) -> Result<(), ApiError> {
    let names = [
        ("guided_json", "response_format"),
        ("guided_regex", "response_format"),
        ("guided_choice", "response_format"),
        ("guided_grammar", "response_format"),
        ("structured_outputs", "response_format"),
        ("grammar", "response_format"),
        ("json_schema", "response_format"),
        ("n_predict", "max_tokens"),
        ("max_new_tokens", "max_tokens"),
        ("repeat_penalty", "repetition_penalty"),
    ];
    for (theirs, ours) in names {
        if fields.take(theirs).is_some() {
            return Err(ApiError::field(theirs, format!("this server's name for it is {ours}")));
        }
    }
    Ok(())
}

fn sampling(fields: &mut RequestFields, vocab: usize) -> Result<SamplingParams, ApiError> {
    Ok(SamplingParams {
        temperature: fields.number("temperature", 0.0, 2.0)?.unwrap_or(1.0),
        top_p: match fields.number("top_p", 0.0, 1.0)? {
            Some(0.0) => return Err(ApiError::field("top_p", "expected a number above 0 and at most 1, got 0")),
            top_p => top_p.unwrap_or(1.0),
        },
        top_k: fields.whole("top_k", 0, u64::from(u32::MAX))?.unwrap_or(0) as usize,
        min_p: fields.number("min_p", 0.0, 1.0)?.unwrap_or(0.0),
        repetition_penalty: fields.number("repetition_penalty", 0.01, 100.0)?.unwrap_or(1.0),
        presence_penalty: fields.number("presence_penalty", -2.0, 2.0)?.unwrap_or(0.0),
        frequency_penalty: fields.number("frequency_penalty", -2.0, 2.0)?.unwrap_or(0.0),
        logit_bias: biases(fields, vocab)?,
        seed: seed(fields)?,
    })
}

fn max_tokens(fields: &mut RequestFields) -> Result<Option<usize>, ApiError> {
    let old = fields.whole("max_tokens", 1, u64::from(u32::MAX))?;
    let new = fields.whole("max_completion_tokens", 1, u64::from(u32::MAX))?;
    Ok(new.or(old).map(|n| n as usize))
}

fn drafting(fields: &mut RequestFields, model: &ServedModel) -> Result<DraftOptions, ApiError> {
    let (speculation, chosen) = speculation::read(fields, model)?;
    Ok(DraftOptions { speculation, chosen, prediction: prediction(fields)? })
}

/// `{"type": "content", "content": a string or text parts}`.
fn prediction(fields: &mut RequestFields) -> Result<Option<String>, ApiError> {
    const FIELD: &str = "prediction";
    let Some(map) = fields.object(FIELD)? else { return Ok(None) };
    let mut fields = RequestFields::within(FIELD, map);
    match fields.string("type")?.as_deref() {
        Some("content") => {}
        _ => return Err(ApiError::field("prediction.type", "expected \"content\"")),
    }
    let at = "prediction.content";
    let content = fields.take("content").ok_or_else(|| ApiError::field(at, "missing"))?;
    let content = messages::text(at, &content)?;
    fields.none_left()?;
    Ok(Some(content))
}

fn output(fields: &mut RequestFields, logprobs: Option<usize>) -> Result<OutputOptions, ApiError> {
    let stream = fields.bool("stream")?.unwrap_or(false);
    let usage = match fields.object("stream_options")? {
        None => false,
        Some(_) if !stream => return Err(ApiError::field("stream_options", "requires \"stream\": true")),
        Some(options) => {
            let mut options = RequestFields::within("stream_options", options);
            let usage = options.bool("include_usage")?.unwrap_or(false);
            options.none_left()?;
            usage
        }
    };
    let tokens = fields.bool("return_tokens")?.unwrap_or(false);
    let timings = fields.bool("timings_per_token")?.unwrap_or(false);
    Ok(OutputOptions { stream, usage, logprobs, tokens, timings })
}

fn seed(fields: &mut RequestFields) -> Result<Option<u64>, ApiError> {
    match fields.take("seed") {
        None => Ok(None),
        Some(value) => match (value.as_u64(), value.as_i64()) {
            (Some(seed), _) => Ok(Some(seed)),
            (None, Some(seed)) => Ok(Some(seed.cast_unsigned())),
            (None, None) => Err(ApiError::field("seed", "expected a whole number of 64 bits")),
        },
    }
}

fn stops(fields: &mut RequestFields) -> Result<Vec<String>, ApiError> {
    let wrong = |why: String| Err(ApiError::field("stop", why));
    let stops = match fields.take("stop") {
        None => return Ok(Vec::new()),
        Some(Value::String(stop)) => vec![stop],
        Some(Value::Array(items)) => {
            let strings: Option<Vec<String>> = items.iter().map(|i| i.as_str().map(str::to_owned)).collect();
            match strings {
                Some(strings) => strings,
                None => return wrong("expected a string or an array of strings".to_owned()),
            }
        }
        Some(_) => return wrong("expected a string or an array of strings".to_owned()),
    };
    if stops.len() > MOST_STOPS {
        return wrong(format!("{} strings; the limit is {MOST_STOPS}", stops.len()));
    }
    match stops.iter().find(|stop| stop.is_empty() || stop.len() > LONGEST_STOP) {
        Some(stop) if stop.is_empty() => wrong("contains an empty string".to_owned()),
        Some(stop) => wrong(format!("a string of {} bytes; the limit is {LONGEST_STOP}", stop.len())),
        None => Ok(stops),
    }
}

fn biases(fields: &mut RequestFields, vocab: usize) -> Result<Vec<(TokenId, f32)>, ApiError> {
    let Some(map) = fields.object("logit_bias")? else { return Ok(Vec::new()) };
    let wrong = |why: String| ApiError::field("logit_bias", why);
    if map.len() > MOST_BIASES {
        return Err(wrong(format!("{} tokens; the limit is {MOST_BIASES}", map.len())));
    }
    map.into_iter()
        .map(|(token, bias)| {
            let id = token.parse::<TokenId>().ok().filter(|id| (*id as usize) < vocab);
            let id = id.ok_or_else(|| wrong(format!("{token:?} is not a token id; the largest is {}", vocab - 1)))?;
            let bias = bias.as_f64().filter(|bias| (-100.0..=100.0).contains(bias));
            let bias = bias.ok_or_else(|| wrong(format!("the bias of {token} is not a number from -100 to 100")))?;
            Ok((id, bias as f32))
        })
        .collect()
}
