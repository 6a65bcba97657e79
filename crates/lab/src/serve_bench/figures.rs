//! The figures of a run, named as those of vLLM's `bench serve`.

use serde_json::{Map, Value};

use super::answer::StreamedAnswer;
use super::load::{LoadRun, TimedRequest};
use crate::statistics::median;

/// What kind of number a figure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FigureKind {
    /// A count or a setting.
    Count,
    /// More is better.
    Rate,
    /// In milliseconds; less is better.
    Time,
    /// A share or a mean.
    Share,
}

/// One figure of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadFigure {
    /// Its name in JSON.
    pub key: String,
    /// Its name in the table.
    pub label: String,
    /// What kind of number it is.
    pub kind: FigureKind,
    /// None if nothing was measured.
    pub value: Option<f64>,
}

/// The figures of a run, in the order of the table.
pub(super) fn figures(run: &LoadRun) -> Vec<LoadFigure> {
    let answers: Vec<&StreamedAnswer> =
        run.requests.iter().filter_map(|request| request.result.as_ref().ok()).collect();
    let any = !answers.is_empty();
    let sum = |of: fn(&StreamedAnswer) -> u64| answers.iter().map(|answer| of(answer)).sum::<u64>() as f64;
    // A server that sends a count for one request sends it for all.
    let counted = |of: fn(&StreamedAnswer) -> Option<u64>| {
        let counts: Vec<u64> = answers.iter().filter_map(|answer| of(answer)).collect();
        (!counts.is_empty()).then(|| counts.iter().sum::<u64>() as f64)
    };
    let (input, output) = (counted(|a| a.prompt_tokens), sum(|a| a.completion_tokens));
    let (drafted, accepted) = (counted(|a| a.drafted), counted(|a| a.accepted));
    let chunks = sum(|a| a.chunks.len() as u64);
    let rate = |n: f64| (any && run.duration_s > 0.0).then(|| n / run.duration_s);
    let mut figures = Vec::new();
    let mut add = |key: &str, label: &str, kind, value| {
        figures.push(LoadFigure { key: key.to_owned(), label: label.to_owned(), kind, value });
    };
    add("completed", "successful requests", FigureKind::Count, Some(answers.len() as f64));
    add("failed", "failed requests", FigureKind::Count, Some((run.requests.len() - answers.len()) as f64));
    add("duration", "duration (s)", FigureKind::Share, Some(run.duration_s));
    add("total_input_tokens", "input tokens", FigureKind::Count, input);
    add("cached_tokens", "of them from the prefix cache", FigureKind::Count, counted(|a| a.cached_tokens));
    add("total_output_tokens", "generated tokens", FigureKind::Count, Some(output));
    add("max_concurrent_requests", "most requests at a time", FigureKind::Count, Some(at_a_time(&run.requests) as f64));
    add("request_throughput", "requests/s", FigureKind::Rate, rate(answers.len() as f64));
    add("output_throughput", "output tok/s", FigureKind::Rate, rate(output));
    add("total_token_throughput", "total tok/s", FigureKind::Rate, input.and_then(|input| rate(input + output)));
    let each =
        |of: fn(&StreamedAnswer) -> Option<f64>| answers.iter().filter_map(|answer| of(answer)).collect::<Vec<f64>>();
    let itl: Vec<f64> = answers.iter().flat_map(|answer| answer.itl_s()).collect();
    let times = [
        ("ttft", "TTFT", each(|a| Some(a.ttft_s()))),
        ("tpot", "TPOT", each(StreamedAnswer::tpot_s)),
        ("itl", "ITL", itl),
        ("e2el", "E2E", each(|a| Some(a.end_s))),
    ];
    for (key, label, mut seconds) in times {
        seconds.sort_by(f64::total_cmp);
        let mean = (!seconds.is_empty()).then(|| seconds.iter().sum::<f64>() / seconds.len() as f64);
        let values = [
            ("mean", mean),
            ("median", percentile(&seconds, 50.0)),
            ("p90", percentile(&seconds, 90.0)),
            ("p99", percentile(&seconds, 99.0)),
        ];
        for (which, value) in values {
            let name = if which.starts_with('p') { which.to_uppercase() } else { which.to_owned() };
            add(
                &format!("{which}_{key}_ms"),
                &format!("{label} {name} (ms)"),
                FigureKind::Time,
                value.map(|s| s * 1e3),
            );
        }
    }
    add("tokens_per_chunk", "tokens a chunk", FigureKind::Share, (chunks > 0.0).then(|| output / chunks));
    add("drafted", "drafted tokens", FigureKind::Count, drafted);
    add("accepted", "accepted drafts", FigureKind::Count, accepted);
    let share =
        drafted.zip(accepted).filter(|(drafted, _)| *drafted > 0.0).map(|(drafted, accepted)| accepted / drafted);
    add("acceptance", "accepted share", FigureKind::Share, share);
    figures
}

/// The value below which `p` percent of the sorted values lie, interpolated between neighbours as
/// NumPy does.
pub(super) fn percentile(sorted: &[f64], p: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = last as f64 * p / 100.0;
    let below = (at.floor() as usize).min(last);
    let above = (below + 1).min(last);
    Some(sorted[below] + (sorted[above] - sorted[below]) * (at - below as f64))
}

/// Most requests that were under way at the same time.
fn at_a_time(requests: &[TimedRequest]) -> usize {
    let mut edges: Vec<(f64, i32)> = requests.iter().flat_map(|o| [(o.sent_s, 1), (o.end_s, -1)]).collect();
    // A request that ends makes room for one that begins at the same moment.
    edges.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let (mut now, mut most) = (0, 0);
    for (_, step) in edges {
        now += step;
        most = most.max(now);
    }
    usize::try_from(most).unwrap_or(0)
}

/// The median of each figure over runs of the same setting.
pub(super) fn medians(runs: &[Vec<LoadFigure>]) -> Vec<LoadFigure> {
    let Some(first) = runs.first() else { return Vec::new() };
    let middle = |i: usize| {
        let mut values: Vec<f64> = runs.iter().filter_map(|run| run[i].value).collect();
        (!values.is_empty()).then(|| median(&mut values))
    };
    first.iter().enumerate().map(|(i, figure)| LoadFigure { value: middle(i), ..figure.clone() }).collect()
}

/// The ratio of each measured figure: the median over the repetitions of the ratio within each.
pub(super) fn ratios(over: &[Vec<LoadFigure>], under: &[Vec<LoadFigure>]) -> Vec<Option<f64>> {
    let Some(first) = over.first() else { return Vec::new() };
    let ratio = |(i, figure): (usize, &LoadFigure)| {
        if !matches!(figure.kind, FigureKind::Rate | FigureKind::Time) {
            return None;
        }
        let pairs = over.iter().zip(under).filter_map(|(a, b)| a[i].value.zip(b[i].value));
        let mut values: Vec<f64> = pairs.filter(|(_, b)| *b > 0.0).map(|(a, b)| a / b).collect();
        (!values.is_empty()).then(|| median(&mut values))
    };
    first.iter().enumerate().map(ratio).collect()
}

/// Figures as an object; counts are whole.
pub(super) fn object(figures: &[LoadFigure]) -> Map<String, Value> {
    let value = |figure: &LoadFigure| match (figure.kind, figure.value) {
        (_, None) => Value::Null,
        (FigureKind::Count, Some(n)) if n.fract() == 0.0 => Value::from(n as u64),
        (_, Some(n)) => Value::from(n),
    };
    figures.iter().map(|figure| (figure.key.clone(), value(figure))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::answer::TextChunk;
    use super::super::failure::LoadFailure;
    use super::*;

    #[test]
    fn percentiles_are_numpys() {
        let sorted = [1.0, 2.0, 4.0, 8.0];
        // numpy.percentile([1, 2, 4, 8], [0, 25, 50, 90, 99, 100])
        let expected = [(0.0, 1.0), (25.0, 1.75), (50.0, 3.0), (90.0, 6.8), (99.0, 7.88), (100.0, 8.0)];
        for (p, value) in expected {
            let found = percentile(&sorted, p).expect("values");
            assert!((found - value).abs() < 1e-12, "{p}: {found}");
        }
        assert_eq!((percentile(&[], 50.0), percentile(&[3.0], 99.0)), (None, Some(3.0)));
    }

    fn request(sent_s: f64, end_s: f64, result: Result<StreamedAnswer, LoadFailure>) -> TimedRequest {
        TimedRequest { prompt: 0, due_s: None, sent_s, end_s, result }
    }

    fn answer(first_s: f64, finish_s: f64, tokens: u64) -> StreamedAnswer {
        let chunk = |at_s| TextChunk { at_s, tokens: None };
        StreamedAnswer {
            chunks: vec![chunk(first_s), chunk(finish_s)],
            finish_s,
            end_s: finish_s,
            prompt_tokens: Some(10),
            completion_tokens: tokens,
            drafted: Some(8),
            accepted: Some(6),
            ..StreamedAnswer::default()
        }
    }

    fn value(figures: &[LoadFigure], key: &str) -> Option<f64> {
        figures.iter().find(|figure| figure.key == key).unwrap_or_else(|| panic!("{key}")).value
    }

    #[test]
    fn figures_are_those_of_the_requests_that_succeeded() {
        let requests = vec![
            request(0.0, 1.0, Ok(answer(0.5, 1.0, 5))),
            request(1.0, 3.0, Ok(answer(1.5, 2.0, 2))),
            request(2.0, 2.5, Err(LoadFailure::NoUsage)),
        ];
        let all = figures(&LoadRun { requests, duration_s: 4.0 });
        let of = |key: &str| value(&all, key);
        assert_eq!((of("completed"), of("failed"), of("max_concurrent_requests")), (Some(2.0), Some(1.0), Some(2.0)));
        assert_eq!(
            (of("total_input_tokens"), of("total_output_tokens"), of("cached_tokens")),
            (Some(20.0), Some(7.0), None)
        );
        assert_eq!(
            (of("request_throughput"), of("output_throughput"), of("total_token_throughput")),
            (Some(0.5), Some(1.75), Some(6.75))
        );
        assert_eq!((of("mean_ttft_ms"), of("p90_ttft_ms")), (Some(1000.0), Some(1400.0)));
        assert_eq!(
            (of("median_tpot_ms"), of("mean_itl_ms"), of("mean_e2el_ms")),
            (Some(312.5), Some(500.0), Some(1500.0))
        );
        assert_eq!((of("tokens_per_chunk"), of("acceptance")), (Some(1.75), Some(0.75)));
    }

    #[test]
    fn nothing_is_invented_where_all_failed() {
        let all = figures(&LoadRun { requests: vec![request(0.0, 1.0, Err(LoadFailure::NoUsage))], duration_s: 1.0 });
        for key in
            ["request_throughput", "output_throughput", "mean_ttft_ms", "p99_itl_ms", "acceptance", "tokens_per_chunk"]
        {
            assert_eq!(value(&all, key), None, "{key}");
        }
    }

    #[test]
    fn medians_and_ratios_are_of_the_runs() {
        let run = |rate: f64, count: f64| {
            let figure = |key: &str, kind, value| LoadFigure {
                key: key.to_owned(),
                label: key.to_owned(),
                kind,
                value: Some(value),
            };
            vec![figure("output_throughput", FigureKind::Rate, rate), figure("completed", FigureKind::Count, count)]
        };
        let (auto, off) =
            ([run(4.0, 1.0), run(9.0, 1.0), run(10.0, 2.0)], [run(2.0, 1.0), run(3.0, 1.0), run(10.0, 1.0)]);
        assert_eq!(value(&medians(&auto), "output_throughput"), Some(9.0));
        assert_eq!(ratios(&auto, &off), [Some(2.0), None]);
        assert_eq!(Value::from(object(&auto[2])), serde_json::json!({"output_throughput": 10.0, "completed": 2}));
    }
}
