//! What `bench serve` prints and writes.

use serde_json::{Map, Value, json};

use super::figures::{Figure, Kind, figures, medians, object, ratios};
use super::load::{Run, Traffic};
use crate::args::{BenchServeArgs, Endpoint, ServedSpeculation};
use selfspec_lab::markdown_table as table;

/// The runs of a setting.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) traffic: Traffic,
    pub(super) speculation: Option<ServedSpeculation>,
    pub(super) runs: Vec<Run>,
}

impl Setting {
    /// The setting in the head of a table.
    fn name(&self) -> String {
        let concurrency = self.traffic.concurrency.map_or("as they arrive".to_owned(), |n| format!("{n} at a time"));
        match self.speculation {
            Some(speculation) => format!("{concurrency}, {}", word(speculation)),
            None => concurrency,
        }
    }

    fn figures(&self) -> Vec<Vec<Figure>> {
        self.runs.iter().map(figures).collect()
    }
}

/// The word that is sent.
pub(super) fn word(speculation: ServedSpeculation) -> &'static str {
    match speculation {
        ServedSpeculation::Auto => "auto",
        ServedSpeculation::Off => "off",
    }
}

/// A column of the table: a setting, or two settings' ratio.
struct Column {
    head: String,
    cells: Vec<String>,
}

/// A table of all settings, and in what the figures are.
pub(super) fn markdown(args: &BenchServeArgs, model: &str, prompts: usize, settings: &[Setting]) -> String {
    let mut columns: Vec<Column> = Vec::new();
    let mut shown: Vec<Figure> = Vec::new();
    for (i, setting) in settings.iter().enumerate() {
        let middle = medians(&setting.figures());
        columns.push(Column { head: setting.name(), cells: middle.iter().map(|f| cell(f.kind, f.value)).collect() });
        if let Some(off) = compared(settings, i) {
            let ratios = ratios(&off.0.figures(), &off.1.figures());
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
        // What no setting has is not in the table.
        .filter(|row| row[1..].iter().any(|cell| !cell.is_empty() && cell != "-"))
        .collect();
    let rate = match args.traffic.request_rate {
        rate if rate.is_infinite() => String::new(),
        rate => format!(", {rate} requests a second (seed {})", args.traffic.seed),
    };
    let runs = match args.traffic.repetitions {
        1 => String::new(),
        n => format!(", medians of {n} runs"),
    };
    let mut text = format!(
        "{} at {}, {}: {prompts} prompts, up to {} tokens, temperature {}{rate}{runs}\n\n{}\n",
        model,
        args.target.url,
        path(args.target.endpoint),
        args.answers.max_tokens,
        args.answers.temperature,
        table(&head, &rows)
    );
    text += "TTFT: to the first text; TPOT: of a token after the first, on average over an answer; ITL: of a token after the first chunk, a gap shared out among the tokens of its chunk where the server tells how many they are; E2E: of a whole answer.\n";
    if args.traffic.compare_speculation {
        text += "auto / off: median over the runs of the ratio within each; above 1 is better for rates, below 1 for times.\n";
    }
    text
}

fn path(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::Chat => "chat",
        Endpoint::Completions => "completions",
    }
}

/// A setting with speculation and the one without, at the place of the second.
fn compared(settings: &[Setting], i: usize) -> Option<(&Setting, &Setting)> {
    let pair = settings.get(i.checked_sub(1)?..=i)?;
    let both =
        (pair[0].speculation, pair[1].speculation) == (Some(ServedSpeculation::Auto), Some(ServedSpeculation::Off));
    both.then(|| (&pair[0], &pair[1]))
}

fn cell(kind: Kind, value: Option<f64>) -> String {
    match (kind, value) {
        (_, None) => "-".to_owned(),
        (Kind::Count, Some(n)) => format!("{n:.0}"),
        (Kind::Time, Some(ms)) if ms < 100.0 => format!("{ms:.2}"),
        (Kind::Time, Some(ms)) => format!("{ms:.0}"),
        (_, Some(n)) => format!("{n:.2}"),
    }
}

/// All figures, and every request. The keys are an interface that others rely on.
pub(super) fn json(args: &BenchServeArgs, model: &str, settings: &[Setting]) -> Value {
    let rate = args.traffic.request_rate;
    let settings: Vec<Value> = settings
        .iter()
        .enumerate()
        .map(|(i, setting)| {
            let all = setting.figures();
            let runs: Vec<Value> = setting.runs.iter().zip(&all).map(|(run, figures)| run_json(run, figures)).collect();
            let mut object = json!({
                "concurrency": setting.traffic.concurrency,
                "requests": setting.traffic.requests,
                "speculation": setting.speculation.map(word),
                "median": object(&medians(&all)),
                "runs": runs,
            });
            if let Some((auto, off)) = compared(settings, i) {
                let (over, under) = (auto.figures(), off.figures());
                let ratios = ratios(&over, &under);
                let named = over.first().into_iter().flatten().zip(ratios);
                let named = named.filter_map(|(figure, ratio)| Some((figure.key.clone(), Value::from(ratio?))));
                object["auto_over_off"] = named.collect::<Map<String, Value>>().into();
            }
            object
        })
        .collect();
    json!({
        "url": args.target.url,
        "endpoint": path(args.target.endpoint),
        "model": model,
        "max_tokens": args.answers.max_tokens,
        "temperature": args.answers.temperature,
        "sampling_seed": args.answers.sampling_seed,
        "ignore_eos": args.answers.ignore_eos,
        "request_rate": if rate.is_finite() { Value::from(rate) } else { "inf".into() },
        "seed": args.traffic.seed,
        "settings": settings,
    })
}

fn run_json(run: &Run, figures: &[Figure]) -> Value {
    let requests = run.outcomes.iter().map(|outcome| {
        let mut object = match &outcome.result {
            Ok(answer) => {
                let mut object = serde_json::to_value(answer).unwrap_or_default();
                object["ttft_s"] = answer.ttft_s().into();
                object
            }
            Err(failure) => json!({ "error": failure.to_string() }),
        };
        object["prompt"] = outcome.prompt.into();
        object["due_s"] = outcome.due_s.into();
        object["sent_s"] = outcome.sent_s.into();
        object
    });
    let requests: Vec<Value> = requests.collect();
    let mut run = object(figures);
    run.insert("requests".to_owned(), requests.into());
    run.into()
}
