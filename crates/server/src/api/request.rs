//! What chat and completion requests have in common: which model, how tokens are chosen, how many answers, when to stop, how to answer.

use selfspec_engine::{Prompt, Request};
use selfspec_model::TokenId;
use selfspec_speculate::{SamplingParams, SpeculationParams};
use selfspec_text::Grammar;
use serde_json::{Map, Value, json};

use crate::api::calls::Calling;
use crate::api::fields::Fields;
use crate::api::speculation;
use crate::app::App;
use crate::error::ApiError;
use crate::http::limits::{LONGEST_STOP, MOST_BIASES, MOST_CHOICES, MOST_STOPS};

/// How to answer.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) choices: usize,
    pub(crate) stream: bool,
    /// Whether a stream ends with a chunk of usage.
    pub(crate) usage: bool,
    pub(crate) max_tokens: Option<usize>,
    pub(crate) sampling: SamplingParams,
    /// Whether the request itself says how to draft.
    pub(crate) chose: bool,
    pub(crate) speculation: SpeculationParams,
    pub(crate) stop: Vec<String>,
    pub(crate) ignore_eos: bool,
    /// Alternatives wanted with the log-probability of each token.
    pub(crate) logprobs: Option<usize>,
    /// Whether each choice lists its tokens and where they come from.
    pub(crate) tokens: bool,
    /// Whether every chunk of a stream carries timings.
    pub(crate) timings: bool,
    /// What the text must be.
    pub(crate) grammar: Option<Grammar>,
    /// Tokens that the answer is likely to repeat.
    pub(crate) prediction: Vec<TokenId>,
    /// How calls stand in the answer, if it may hold some.
    pub(crate) calling: Option<Calling>,
    /// Control tokens that are spelled out in the text.
    pub(crate) spelled: Vec<TokenId>,
}

impl Asked {
    /// Takes the common fields. What chats and completions have each for themselves is theirs to set.
    pub(crate) fn read(fields: &mut Fields, app: &App) -> Result<Self, ApiError> {
        let engine = app.engine();
        if let Some(model) = fields.string("model")?
            && model != app.model_id()
        {
            let message = format!("there is no model {model:?} here: this server has {:?}", app.model_id());
            return Err(ApiError::not_found("model_not_found", message));
        }
        elsewhere(fields)?;
        let sampling = SamplingParams {
            temperature: fields.number("temperature", 0.0, 2.0)?.unwrap_or(1.0),
            top_p: match fields.number("top_p", 0.0, 1.0)? {
                Some(0.0) => return Err(ApiError::field("top_p", "expected a number above 0, at most 1, got 0")),
                top_p => top_p.unwrap_or(1.0),
            },
            top_k: fields.whole("top_k", 0, u64::from(u32::MAX))?.unwrap_or(0) as usize,
            min_p: fields.number("min_p", 0.0, 1.0)?.unwrap_or(0.0),
            repetition_penalty: fields.number("repetition_penalty", 0.01, 100.0)?.unwrap_or(1.0),
            presence_penalty: fields.number("presence_penalty", -2.0, 2.0)?.unwrap_or(0.0),
            frequency_penalty: fields.number("frequency_penalty", -2.0, 2.0)?.unwrap_or(0.0),
            logit_bias: biases(fields, engine.info().vocab)?,
            seed: seed(fields)?,
        };
        let most = fields.whole("max_tokens", 1, u64::from(u32::MAX))?;
        let most = fields.whole("max_completion_tokens", 1, u64::from(u32::MAX))?.or(most);
        let stream = fields.bool("stream")?.unwrap_or(false);
        let usage = match fields.object("stream_options")? {
            None => false,
            Some(_) if !stream => return Err(ApiError::field("stream_options", "it needs \"stream\": true")),
            Some(options) => {
                let mut options = Fields::within("stream_options", options);
                let usage = options.bool("include_usage")?.unwrap_or(false);
                options.none_left()?;
                usage
            }
        };
        fields.string("user")?;
        Ok(Asked {
            choices: fields.whole("n", 1, MOST_CHOICES)?.unwrap_or(1) as usize,
            stream,
            usage,
            max_tokens: most.map(|n| n as usize),
            sampling,
            chose: fields.has("speculation"),
            speculation: speculation::read(fields, engine)?,
            stop: stops(fields)?,
            ignore_eos: fields.bool("ignore_eos")?.unwrap_or(false),
            logprobs: None,
            tokens: fields.bool("return_tokens")?.unwrap_or(false),
            timings: fields.bool("timings_per_token")?.unwrap_or(false),
            grammar: None,
            prediction: Vec::new(),
            calling: None,
            spelled: Vec::new(),
        })
    }

    /// What was asked for, but for texts and tokens.
    pub(crate) fn parameters(&self) -> Map<String, Value> {
        let sampling = &self.sampling;
        // As it was written: 0.7 is not 0.699999988079071.
        let short = |number: f32| number.to_string().parse::<f64>().unwrap_or(f64::from(number));
        let parameters = json!({
            "stream": self.stream,
            "n": self.choices,
            "max_tokens": self.max_tokens,
            "temperature": short(sampling.temperature),
            "top_p": short(sampling.top_p),
            "top_k": sampling.top_k,
            "min_p": short(sampling.min_p),
            "repetition_penalty": short(sampling.repetition_penalty),
            "presence_penalty": short(sampling.presence_penalty),
            "frequency_penalty": short(sampling.frequency_penalty),
            "logit_bias": sampling.logit_bias.len(),
            "seed": sampling.seed,
            "stop": self.stop.len(),
            "ignore_eos": self.ignore_eos,
            "logprobs": self.logprobs,
        });
        if let Value::Object(map) = parameters { map } else { Map::new() }
    }

    /// The engine's requests, one for each choice. With a seed, each choice has the next one.
    pub(crate) fn requests(&self, prompt: &[TokenId]) -> Vec<Request> {
        let request = |i: usize| {
            let mut sampling = self.sampling.clone();
            sampling.seed = sampling.seed.map(|seed| seed.wrapping_add(i as u64));
            Request {
                max_tokens: self.max_tokens,
                sampling,
                speculation: self.speculation.clone(),
                stop: self.stop.clone(),
                ignore_eos: self.ignore_eos,
                grammar: self.grammar.clone(),
                prediction: self.prediction.clone(),
                spelled: self.spelled.clone(),
                logprobs: self.logprobs,
                ..Request::new(Prompt::Tokens(prompt.to_vec()))
            }
        };
        (0..self.choices).map(request).collect()
    }
}

/// Refuses other servers' names for what this one has under OpenAI's: left aside, they would change the answer in silence.
fn elsewhere(fields: &mut Fields) -> Result<(), ApiError> {
    let instead = [
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
    for (name, ours) in instead {
        if fields.take(name).is_some() {
            return Err(ApiError::field(name, format!("this server calls it {ours}")));
        }
    }
    Ok(())
}

fn seed(fields: &mut Fields) -> Result<Option<u64>, ApiError> {
    match fields.take("seed") {
        None => Ok(None),
        Some(value) => match (value.as_u64(), value.as_i64()) {
            (Some(seed), _) => Ok(Some(seed)),
            (None, Some(seed)) => Ok(Some(seed.cast_unsigned())),
            (None, None) => Err(ApiError::field("seed", "expected a whole number of 64 bits")),
        },
    }
}

fn stops(fields: &mut Fields) -> Result<Vec<String>, ApiError> {
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
        return wrong(format!("{} strings, and at most {MOST_STOPS} are taken", stops.len()));
    }
    match stops.iter().find(|stop| stop.is_empty() || stop.len() > LONGEST_STOP) {
        Some(stop) if stop.is_empty() => wrong("an empty string is everywhere".to_owned()),
        Some(stop) => wrong(format!("a string of {} bytes, and at most {LONGEST_STOP} are taken", stop.len())),
        None => Ok(stops),
    }
}

fn biases(fields: &mut Fields, vocab: usize) -> Result<Vec<(TokenId, f32)>, ApiError> {
    let Some(map) = fields.object("logit_bias")? else { return Ok(Vec::new()) };
    let wrong = |why: String| ApiError::field("logit_bias", why);
    if map.len() > MOST_BIASES {
        return Err(wrong(format!("{} tokens, and at most {MOST_BIASES} are taken", map.len())));
    }
    map.into_iter()
        .map(|(token, bias)| {
            let id = token.parse::<TokenId>().ok().filter(|id| (*id as usize) < vocab);
            let id = id.ok_or_else(|| wrong(format!("{token:?} is no token id: they go up to {}", vocab - 1)))?;
            let bias = bias.as_f64().filter(|bias| (-100.0..=100.0).contains(bias));
            let bias = bias.ok_or_else(|| wrong(format!("the bias of {token} is no number from -100 to 100")))?;
            Ok((id, bias as f32))
        })
        .collect()
}
