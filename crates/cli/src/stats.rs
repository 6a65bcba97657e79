//! The figures of a generation, in words and in JSON: speed, and drafts.

use selfspec::Completion;
use selfspec_speculate::{DraftPath, DrafterChoice, DrafterKind, RoundTrace, SpecStats, SpeculationParams};
use serde::Serialize;

/// The drafter of the latest draft; without drafts, the one that was requested.
pub(crate) fn drafter_name(speculation: &SpeculationParams, stats: &SpecStats) -> &'static str {
    match (stats.drafter, &speculation.drafter) {
        (Some(kind), _) => kind.flag(),
        (None, choice) => choice.flag(),
    }
}

/// The exit layer of a path that runs just the first layers.
pub(crate) fn exit_layer(path: &DraftPath) -> Option<usize> {
    let plan = &path.plan;
    (plan.exact_prefix() == plan.cost_layers() && !plan.is_full()).then(|| plan.exact_prefix())
}

/// The layers of a path in words.
pub(crate) fn layers_in_words(path: &DraftPath) -> String {
    match exit_layer(path) {
        Some(exit) => format!("exit layer {exit}"),
        None => format!("layers {}", path.plan),
    }
}

fn rate(completion: &Completion) -> String {
    format!("{} tokens at {:.1} tok/s", completion.summary().completion_tokens, completion.tokens_per_second())
}

/// The line about speed.
pub(crate) fn speed_line(completion: &Completion) -> String {
    let summary = completion.summary();
    let (prompt, cached) = (summary.prompt_tokens, summary.cached_tokens);
    let prompt_rate = prompt.saturating_sub(cached) as f64 / summary.prompt_s.max(1e-9);
    let cached = if cached > 0 { format!(", {cached} of them cached") } else { String::new() };
    format!(
        "{}; prompt of {prompt} tokens at {prompt_rate:.0} tok/s{cached}; finished by {}",
        rate(completion),
        summary.finish_reason,
    )
}

/// Speed and acceptance in one short line.
pub(crate) fn brief_line(completion: &Completion) -> String {
    let stats = completion.stats();
    match stats.drafted {
        0 => rate(completion),
        n => format!("{}; {:.0}% of {n} drafts accepted", rate(completion), 100.0 * stats.accepted as f64 / n as f64),
    }
}

/// The line about speculation.
pub(crate) fn speculation_line(speculation: &SpeculationParams, stats: &SpecStats) -> String {
    if speculation.drafter == DrafterChoice::Off {
        return "speculation: off".to_owned();
    }
    let mut line = match (&speculation.drafter, stats.drafter) {
        (DrafterChoice::Auto, Some(kind)) => format!("speculation: auto, last drafter {}", kind.flag()),
        _ => format!("speculation: {}", drafter_name(speculation, stats)),
    };
    let used = stats.drafter == Some(DrafterKind::LayerSkip);
    let path = stats.path.as_ref().filter(|path| !path.uses_exit_head());
    if let Some(path) = path.filter(|_| used || !matches!(speculation.drafter, DrafterChoice::Auto)) {
        line += &format!(", {}", layers_in_words(path));
    }
    line += &format!("; {} drafted, {} accepted", stats.drafted, stats.accepted);
    if stats.drafted > 0 {
        line += &format!(", {} rejected", stats.rejected);
    }
    // They followed a rejected draft, or the answer ended before them.
    let unjudged = stats.drafted.saturating_sub(stats.accepted + stats.rejected);
    if unjudged > 0 {
        line += &format!(", {unjudged} not looked at");
    }
    line += &format!(" in {} rounds", stats.rounds);
    if let Some(why) = stats.off_reason() {
        line += &format!("; {}", brief(&why, LINE.saturating_sub(line.len() + 2)));
    }
    line
}

/// Most characters of the line about speculation.
const LINE: usize = 160;

/// Why drafters are off, with as much detail as fits: without the costs in brackets, or with the
/// first figure of each drafter alone. `--json` has all of it.
fn brief(why: &str, room: usize) -> String {
    let each = |end: &str| why.split("; ").map(|w| w.split(end).next().unwrap_or(w)).collect::<Vec<_>>().join("; ");
    let text = each(" (");
    if text.len() <= room { text } else { each(", ") }
}

/// A line for each round.
pub(crate) fn trace_line(round: &RoundTrace) -> String {
    let drafter = round.drafter.map_or("none", DrafterKind::flag);
    format!(
        "round at {}: {drafter} drafted {}, accepted {}, committed {} ({})",
        round.committed, round.drafted, round.accepted, round.gained, round.reason
    )
}

/// The object of `run --json`. Its keys are an interface that others rely on.
#[derive(Debug, Serialize)]
pub(crate) struct RunJson<'a> {
    text: &'a str,
    token_ids: &'a [u32],
    finish_reason: String,
    usage: TokenCounts,
    timings: Timings,
    speculation: Speculation,
}

#[derive(Debug, Serialize)]
struct TokenCounts {
    prompt_tokens: usize,
    completion_tokens: usize,
}

#[derive(Debug, Serialize)]
struct Timings {
    prompt_ms: f64,
    predicted_ms: f64,
    predicted_per_second: f64,
    draft_n: u64,
    draft_n_accepted: u64,
    rounds: u64,
}

#[derive(Debug, Serialize)]
struct Speculation {
    drafter: &'static str,
    exit_layer: Option<usize>,
    draft_len: Option<usize>,
    off_reason: Option<String>,
}

impl<'a> RunJson<'a> {
    pub(crate) fn new(speculation: &SpeculationParams, completion: &'a Completion) -> Self {
        let summary = completion.summary();
        let stats = &summary.stats;
        let drafter = drafter_name(speculation, stats);
        RunJson {
            text: &summary.text,
            token_ids: &summary.token_ids,
            finish_reason: summary.finish_reason.to_string(),
            usage: TokenCounts { prompt_tokens: summary.prompt_tokens, completion_tokens: summary.completion_tokens },
            timings: Timings {
                prompt_ms: summary.prompt_s * 1e3,
                predicted_ms: summary.predicted_s * 1e3,
                predicted_per_second: completion.tokens_per_second(),
                draft_n: stats.drafted,
                draft_n_accepted: stats.accepted,
                rounds: stats.rounds,
            },
            speculation: Speculation {
                drafter,
                exit_layer: stats.path.as_ref().and_then(exit_layer).filter(|_| drafter == "layer-skip"),
                draft_len: stats.drafter.map(|_| stats.draft_len),
                off_reason: stats.off_reason(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use selfspec_speculate::{DraftPath, DrafterOff, DrafterOffCause};

    use super::*;

    #[test]
    fn the_line_about_speculation_stays_short() {
        let layers = "layer skip off: predicted speed-up 0.75, expected acceptance 0.50 after 1 judged draft (a draft of layers 0..15 \
                      costs 0.60 plain steps, the verification of 2 1.12)";
        let short = "layer skip off: predicted speed-up 0.75";
        assert_eq!(brief(layers, 100), format!("{short}, expected acceptance 0.50 after 1 judged draft"));
        assert_eq!(brief(layers, 60), short);
        assert_eq!(brief(&format!("{layers}; {layers}"), 100), format!("{short}; {short}"));
        let mut stats = SpecStats::default();
        let path = DraftPath::exit(30, 15).expect("a path");
        stats.drafters_off = vec![DrafterOff {
            drafter: DrafterKind::LayerSkip,
            cause: DrafterOffCause::Unprofitable { speedup: 0.75 },
            acceptance: 0.5,
            judged: 1.0,
            draft_step: Some((path, 0.6)),
            draft_len: 2,
            verification: 1.12,
        }];
        assert_eq!(stats.off_reason().as_deref(), Some(layers));
        let line = speculation_line(&SpeculationParams::default(), &stats);
        assert!(line.ends_with("judged draft") && line.len() <= LINE && line.matches("off").count() == 1, "{line}");
    }
}
