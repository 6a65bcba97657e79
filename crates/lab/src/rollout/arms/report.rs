//! The comparison as a Markdown table, in a sentence, and as JSON.

use serde_json::{Map, Value, json};

use super::compare::{ArmComparison, ArmFigures, SEED};
use super::figures::{ArmRequests, FIGURE_NAMES, SPEED};
use crate::markdown::markdown_table;
use crate::rollout::record::RecordedArm;
use crate::statistics::ConfidenceInterval;

/// Requests in an arm below which more are advised.
const FEW: usize = 30;

impl ArmComparison {
    /// A table of both arms, and the verdict.
    pub fn markdown(&self) -> String {
        let count = |name: &str, of: fn(&ArmRequests) -> usize| {
            let [plain, speculation] = self.arms.each_ref().map(|arm| of(arm).to_string());
            vec![name.to_owned(), plain, speculation, String::new()]
        };
        let mut rows = vec![
            count("requests", |arm| arm.requests),
            count("answers", |arm| arm.choices),
            count("failed", |arm| arm.failed),
            count("cancelled", |arm| arm.cancelled),
            count("prompt tokens", |arm| arm.prompt_tokens),
            count("generated tokens", |arm| arm.completion_tokens),
        ];
        for (i, name) in FIGURE_NAMES.iter().enumerate() {
            let ratio = shown(self.ratios[i], |value| format!("{value:.3}"));
            let [plain, speculation] =
                self.figures.each_ref().map(|figures| shown(figures[i], |value| in_unit(i, value)));
            rows.push(vec![title(name), plain, speculation, ratio]);
        }
        let mut text = markdown_table(&["", "plain", "speculation", "speculation over plain"], &rows);
        text += &format!(
            "\nIn brackets: 95% intervals, by a bootstrap over requests ({} draws, seed {SEED}, percentile method).\n",
            self.draws
        );
        if self.left_out > 0 {
            text += &format!("Left out: {} requests whose arm was not drawn by a share.\n", self.left_out);
        }
        format!("{text}\n{}\n", self.verdict())
    }

    /// Whether speculation pays, in a sentence.
    pub fn verdict(&self) -> String {
        let fewest = self.arms.iter().map(|arm| arm.requests).min().unwrap_or(0);
        let more = if fewest < FEW {
            format!(" An arm has only {fewest} requests: {FEW} and more in each would make this surer.")
        } else {
            String::new()
        };
        let Some(speed) = self.ratios[SPEED] else {
            return format!("Verdict: nothing can be told, because an arm has no answer of several rounds.{more}");
        };
        let interval = format!("95% interval {:.2} to {:.2}", speed.low, speed.high);
        let verdict = if speed.low > 1.0 {
            format!("speculation pays: decoding is {:.2} times as fast with it ({interval}).", speed.value)
        } else if speed.high < 1.0 {
            format!("speculation costs: decoding is {:.2} times as fast with it ({interval}).", speed.value)
        } else {
            format!(
                "no difference can be told: decoding is {:.2} times as fast with speculation, which chance explains ({interval}).",
                speed.value
            )
        };
        format!("Verdict: {verdict}{more}")
    }

    /// All figures as one object. The keys are an interface that others rely on.
    pub fn json(&self) -> Value {
        let named = |figures: &ArmFigures| -> Map<String, Value> {
            FIGURE_NAMES.iter().zip(figures).map(|(name, figure)| ((*name).to_owned(), json!(figure))).collect()
        };
        let arm = |i: usize| {
            let arm = &self.arms[i];
            json!({
                "requests": arm.requests,
                "choices": arm.choices,
                "failed": arm.failed,
                "cancelled": arm.cancelled,
                "prompt_tokens": arm.prompt_tokens,
                "completion_tokens": arm.completion_tokens,
                "figures": named(&self.figures[i]),
            })
        };
        let [plain, speculation] = RecordedArm::ALL.map(|arm| arm.to_string());
        json!({
            "method": {
                "name": "bootstrap over requests, percentile method",
                "confidence": 0.95,
                "draws": self.draws,
                "seed": SEED,
            },
            "left_out": self.left_out,
            plain: arm(0),
            speculation: arm(1),
            "speculation_over_plain": named(&self.ratios),
            "verdict": self.verdict(),
        })
    }
}

fn shown(figure: Option<ConfidenceInterval>, show: impl Fn(f64) -> String) -> String {
    figure.map_or("-".to_owned(), |f| format!("{} [{}, {}]", show(f.value), show(f.low), show(f.high)))
}

/// A figure in the unit of the table: latencies in milliseconds.
fn in_unit(i: usize, value: f64) -> String {
    match i {
        SPEED => format!("{value:.1}"),
        i if i > SPEED => format!("{value:.3}"),
        _ => format!("{:.1}", value * 1e3),
    }
}

fn title(name: &str) -> String {
    let words =
        name.replace("e2e", "whole request").replace("inter_token", "between tokens").replace("ttft", "first token");
    match words.strip_suffix("_s") {
        Some(latency) => format!("{}, ms", latency.replace('_', " ")),
        None => words.replace("decode_tokens_per_second", "tokens a second, decoding"),
    }
}
