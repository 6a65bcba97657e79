//! From flags to a request. What does not fit together is refused before a model is loaded.

use selfspec_engine::{
    DraftLen, DrafterChoice, Engine, LayerPlan, Message, ModelInfo, PlanError, Prompt, Request, SamplingParams,
    SpeculationParams,
};
use selfspec_lab::prompts::PromptStyle;

use crate::args::{RunArgs, SamplingArgs, Spec, SpeculationArgs};
use crate::failure::usage;
use crate::held;
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

pub(crate) fn sampling(args: &SamplingArgs) -> SamplingParams {
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

/// The drafter asked for: layers that are named mean layer skip, unless a drafter is named as well.
fn spec_of(args: &SpeculationArgs) -> Spec {
    match args.spec {
        Some(spec) => spec,
        None if args.exit_layer.is_some() || args.skip_layers.is_some() => Spec::LayerSkip,
        None => Spec::Auto,
    }
}

/// Whether the flags leave the drafter to the program.
fn is_default(args: &SpeculationArgs) -> bool {
    args.spec.is_none() && args.exit_layer.is_none() && args.skip_layers.is_none()
}

/// Speculation for a model of `n_layers` layers.
///
/// # Errors
/// The layers named do not fit the model.
pub(crate) fn speculation(args: &SpeculationArgs, trace: bool, n_layers: usize) -> anyhow::Result<SpeculationParams> {
    let plan = match (args.exit_layer, &args.skip_layers) {
        (Some(exit), _) => Some(exit_plan("--exit-layer", n_layers, exit)?),
        (None, Some(skip)) => Some(
            LayerPlan::skip_middle(n_layers, skip.start, skip.end)
                .map_err(|e| anyhow::anyhow!("--skip-layers {}..{}: {}", skip.start, skip.end, fit(&e, n_layers)))?,
        ),
        (None, None) => None,
    };
    let half = || LayerPlan::exit(n_layers, (n_layers / 2).max(1));
    let (drafter, auto_plan) = match spec_of(args) {
        Spec::Auto => (DrafterChoice::Auto, plan),
        Spec::Off => (DrafterChoice::Off, None),
        Spec::PromptLookup => (DrafterChoice::PromptLookup, None),
        Spec::ExitHead => (DrafterChoice::ExitHead, None),
        Spec::LayerSkip => (DrafterChoice::LayerSkip(plan.map_or_else(half, Ok)?), None),
    };
    Ok(SpeculationParams {
        drafter,
        auto_plan,
        draft_len: args.draft_len.unwrap_or(DraftLen::Adaptive),
        bonus: !args.no_bonus,
        min_confidence: args.min_confidence.unwrap_or(0.0),
        always: args.spec_always,
        trace: if trace { TRACE } else { 0 },
        ..SpeculationParams::default()
    })
}

/// The plan of an early exit, which `flag` asks for; one at the end of the model skips nothing and is refused.
pub(crate) fn exit_plan(flag: &str, n_layers: usize, exit: usize) -> anyhow::Result<LayerPlan> {
    if exit == n_layers {
        anyhow::bail!("{flag} {exit}: the model has {n_layers} layers, an exit there skips none");
    }
    LayerPlan::exit(n_layers, exit).map_err(|e| anyhow::anyhow!("{flag} {exit}: {}", fit(&e, n_layers)))
}

fn fit(error: &PlanError, n_layers: usize) -> String {
    match error {
        PlanError::OutOfRange { .. } => format!("the model has {n_layers} layers"),
        PlanError::Empty => "no layer is left to run".to_owned(),
    }
}

/// A request with the flags of `run`, without its prompt.
pub(crate) fn template(args: &RunArgs, engine: &Engine) -> anyhow::Result<Request> {
    let info = engine.info();
    if let Some((id, bias)) = args.sampling.logit_bias.iter().find(|(id, _)| *id as usize >= info.vocab) {
        anyhow::bail!("--logit-bias {id}={bias}: the vocabulary ends at token {}", info.vocab.saturating_sub(1));
    }
    let mut request = Request::new(Prompt::Tokens(Vec::new()));
    request.max_tokens = Some(args.max_tokens);
    request.sampling = sampling(&args.sampling);
    request.speculation = speculation(&args.speculation, args.output.trace, info.n_layers)?;
    if let Some(tuning) = engine.loaded().and_then(|loaded| loaded.tuning()).filter(|_| is_default(&args.speculation)) {
        let tuned = tuning.speculation(info.n_layers)?;
        (request.speculation.drafter, request.speculation.auto_plan) = (tuned.drafter, tuned.auto_plan);
    }
    request.stop = args.stop.clone();
    held::apply(&args.held, engine, &mut request)?;
    Ok(request)
}

/// What `run` and `chat` do with a prompt's text.
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

pub(crate) fn message(role: &str, content: &str) -> Message {
    Message::new(role, content)
}
