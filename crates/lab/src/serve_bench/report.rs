//! The results of a load, as a Markdown table and as JSON.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::failure::LoadFailure;
use super::figures::{FigureKind, LoadFigure, figures, medians, object, ratios};
use super::load::{LoadRun, LoadTraffic, TimedRequest};
use super::options::{LoadOptions, RequestedSpeculation, ServerTarget};
use crate::markdown::markdown_table;

/// The results of a load.
#[derive(Debug, Clone)]
pub struct LoadReport {
    /// The server.
    pub target: ServerTarget,
    /// The load.
    pub options: LoadOptions,
    /// The model that was asked for.
    pub model: String,
    /// Prompts that the requests took.
    pub prompts: usize,
    /// The settings in their order: with speculation next to without.
    pub settings: Vec<LoadSetting>,
}

/// The runs of a setting.
#[derive(Debug, Clone)]
pub struct LoadSetting {
    /// What a run sends.
    pub traffic: LoadTraffic,
    /// The field `speculation` of its requests.
    pub speculation: Option<RequestedSpeculation>,
    /// Its runs, one for each repetition.
    pub runs: Vec<LoadRun>,
}

impl LoadSetting {
    /// The setting in the head of a table.
    fn name(&self) -> String {
        let concurrency = self.traffic.concurrency.map_or("as they arrive".to_owned(), |n| format!("{n} at a time"));
        match self.speculation {
            Some(speculation) => format!("{concurrency}, {}", speculation.name()),
            None => concurrency,
        }
    }

    /// The figures of each run.
    pub fn figures(&self) -> Vec<Vec<LoadFigure>> {
        self.runs.iter().map(figures).collect()
    }
}

/// A column of the table: a setting, or the ratio of two.
struct Column {
    head: String,
    cells: Vec<String>,
}

impl LoadReport {
    /// All requests of all runs.
    pub fn requests(&self) -> impl Iterator<Item = &TimedRequest> {
        self.settings.iter().flat_map(|setting| &setting.runs).flat_map(|run| &run.requests)
    }

    /// The failures, by their message, and how many requests had each.
    pub fn failures(&self) -> BTreeMap<String, (usize, &LoadFailure)> {
        let mut counts: BTreeMap<String, (usize, &LoadFailure)> = BTreeMap::new();
        for failure in self.requests().filter_map(|request| request.result.as_ref().err()) {
            counts.entry(failure.to_string()).or_insert((0, failure)).0 += 1;
        }
        counts
    }

    /// A table of all settings, with a legend. `model` names the model in the heading.
    pub fn markdown(&self, model: &str) -> String {
        let mut columns: Vec<Column> = Vec::new();
        let mut shown: Vec<LoadFigure> = Vec::new();
        for (i, setting) in self.settings.iter().enumerate() {
            let middle = medians(&setting.figures());
            columns
                .push(Column { head: setting.name(), cells: middle.iter().map(|f| cell(f.kind, f.value)).collect() });
            if let Some((auto, off)) = self.compared(i) {
                let ratios = ratios(&auto.figures(), &off.figures());
                let cells = ratios.iter().map(|ratio| ratio.map_or_else(String::new, |r| format!("{r:.2}"))).collect();
                columns.push(Column { head: "auto / off".to_owned(), cells });
            }
            if shown.is_empty() {
                shown = middle;
            }
        }
        let head: Vec<&str> = std::iter::once("").chain(columns.iter().map(|column| column.head.as_str())).collect();
        let rows: Vec<Vec<String>> = shown
            .iter()
            .enumerate()
            .map(|(i, figure)| {
                let cells = columns.iter().map(|column| column.cells.get(i).cloned().unwrap_or_default());
                std::iter::once(figure.label.clone()).chain(cells).collect::<Vec<String>>()
            })
            // A figure that no setting has is not in the table.
            .filter(|row| row[1..].iter().any(|cell| !cell.is_empty() && cell != "-"))
            .collect();
        let mut text = format!("{}\n\n{}\n", self.heading(model), markdown_table(&head, &rows));
        text += "TTFT: to the first text; TPOT: of a token after the first, on average over an answer; ITL: of a token after \
                 the first chunk, a gap shared out among the tokens of its chunk where the server tells how many they are; \
                 E2E: of a whole answer.\n";
        if self.options.compare_speculation {
            text += "auto / off: median over the runs of the ratio within each; above 1 is better for rates, below 1 for \
                     times.\n";
        }
        text
    }

    fn heading(&self, model: &str) -> String {
        let (target, options) = (&self.target, &self.options);
        let rate = match options.request_rate {
            rate if rate.is_infinite() => String::new(),
            rate => format!(", {rate} requests a second (seed {})", options.seed),
        };
        let runs = match options.repetitions {
            1 => String::new(),
            n => format!(", medians of {n} runs"),
        };
        format!(
            "{model} at {}, {}: {} prompts, up to {} tokens, temperature {}{rate}{runs}",
            target.url,
            target.endpoint.name(),
            self.prompts,
            options.max_tokens,
            options.temperature
        )
    }

    /// A setting with speculation and the one without, at the place of the second.
    fn compared(&self, i: usize) -> Option<(&LoadSetting, &LoadSetting)> {
        let [auto, off] = self.settings.get(i.checked_sub(1)?..=i)? else { return None };
        let both = (Some(RequestedSpeculation::Auto), Some(RequestedSpeculation::Off));
        ((auto.speculation, off.speculation) == both).then_some((auto, off))
    }

    /// All figures, and every request. The keys are an interface that others rely on.
    pub fn json(&self) -> Value {
        let (target, options) = (&self.target, &self.options);
        let settings: Vec<Value> = (0..self.settings.len()).map(|i| self.setting_json(i)).collect();
        let rate = options.request_rate;
        json!({
            "url": target.url,
            "endpoint": target.endpoint.name(),
            "model": self.model,
            "max_tokens": options.max_tokens,
            "temperature": options.temperature,
            "sampling_seed": options.sampling_seed,
            "ignore_eos": options.ignore_eos,
            "request_rate": if rate.is_finite() { Value::from(rate) } else { "inf".into() },
            "seed": options.seed,
            "settings": settings,
        })
    }

    fn setting_json(&self, i: usize) -> Value {
        let setting = &self.settings[i];
        let all = setting.figures();
        let runs: Vec<Value> = setting.runs.iter().zip(&all).map(|(run, figures)| run_json(run, figures)).collect();
        let mut object = json!({
            "concurrency": setting.traffic.concurrency,
            "requests": setting.traffic.requests,
            "speculation": setting.speculation.map(RequestedSpeculation::name),
            "median": object(&medians(&all)),
            "runs": runs,
        });
        if let Some((auto, off)) = self.compared(i) {
            let (over, under) = (auto.figures(), off.figures());
            let named = over.first().into_iter().flatten().zip(ratios(&over, &under));
            let named = named.filter_map(|(figure, ratio)| Some((figure.key.clone(), Value::from(ratio?))));
            object["auto_over_off"] = named.collect::<Map<String, Value>>().into();
        }
        object
    }
}

fn cell(kind: FigureKind, value: Option<f64>) -> String {
    match (kind, value) {
        (_, None) => "-".to_owned(),
        (FigureKind::Count, Some(n)) => format!("{n:.0}"),
        (FigureKind::Time, Some(ms)) if ms < 100.0 => format!("{ms:.2}"),
        (FigureKind::Time, Some(ms)) => format!("{ms:.0}"),
        (_, Some(n)) => format!("{n:.2}"),
    }
}

fn run_json(run: &LoadRun, figures: &[LoadFigure]) -> Value {
    let requests = run.requests.iter().map(|request| {
        let mut object = match &request.result {
            Ok(answer) => {
                let mut object = serde_json::to_value(answer).unwrap_or_default();
                object["ttft_s"] = answer.ttft_s().into();
                object
            }
            Err(failure) => json!({ "error": failure.to_string() }),
        };
        object["prompt"] = request.prompt.into();
        object["due_s"] = request.due_s.into();
        object["sent_s"] = request.sent_s.into();
        object
    });
    let requests: Vec<Value> = requests.collect();
    let mut run = object(figures);
    run.insert("requests".to_owned(), requests.into());
    run.into()
}
