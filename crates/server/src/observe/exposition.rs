//! Metrics in Prometheus' text format and as a Markdown table, both from one list.

use std::fmt::Write;

use selfspec_engine::HistogramReading;

/// The prefix of all names.
const PREFIX: &str = "selfspec_";

/// Prometheus' type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

impl MetricKind {
    fn name(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// A metric with its values.
#[derive(Debug)]
pub(crate) struct MetricFamily {
    name: &'static str, // without the prefix
    kind: MetricKind,
    help: &'static str,
    labels: &'static [&'static str],
    samples: Vec<(Vec<String>, MetricValue)>, // (values of the labels, value)
}

#[derive(Debug)]
enum MetricValue {
    Number(f64),
    Histogram(HistogramReading),
}

impl MetricFamily {
    pub(crate) fn counter(name: &'static str, help: &'static str) -> Self {
        MetricFamily { name, kind: MetricKind::Counter, help, labels: &[], samples: Vec::new() }
    }

    pub(crate) fn gauge(name: &'static str, help: &'static str) -> Self {
        MetricFamily { kind: MetricKind::Gauge, ..MetricFamily::counter(name, help) }
    }

    pub(crate) fn histogram(name: &'static str, help: &'static str) -> Self {
        MetricFamily { kind: MetricKind::Histogram, ..MetricFamily::counter(name, help) }
    }

    /// Sets the names of its labels.
    pub(crate) fn by(self, labels: &'static [&'static str]) -> Self {
        MetricFamily { labels, ..self }
    }

    /// Adds the value of a metric without labels.
    pub(crate) fn is(self, value: f64) -> Self {
        self.at(Vec::new(), value)
    }

    /// Adds the value with these labels.
    pub(crate) fn at(mut self, labels: Vec<String>, value: f64) -> Self {
        self.samples.push((labels, MetricValue::Number(value)));
        self
    }

    /// Adds a value for each of these values of its only label.
    pub(crate) fn each(self, values: impl IntoIterator<Item = (impl ToString, f64)>) -> Self {
        values.into_iter().fold(self, |family, (label, value)| family.at(vec![label.to_string()], value))
    }

    /// Adds a histogram for each of these values of its only label.
    pub(crate) fn times(mut self, values: impl IntoIterator<Item = (impl ToString, HistogramReading)>) -> Self {
        let samples = values.into_iter().map(|(label, times)| (vec![label.to_string()], MetricValue::Histogram(times)));
        self.samples.extend(samples);
        self
    }

    fn labels(&self, values: &[String], more: Option<(&str, &str)>) -> String {
        let own = self.labels.iter().copied().zip(values.iter().map(String::as_str));
        let pairs: Vec<String> =
            own.chain(more).map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) }
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let name = format!("{PREFIX}{}", self.name);
        writeln!(out, "# HELP {name} {}", self.help)?;
        writeln!(out, "# TYPE {name} {}", self.kind.name())?;
        for (labels, value) in &self.samples {
            match value {
                MetricValue::Number(number) => writeln!(out, "{name}{} {number}", self.labels(labels, None))?,
                MetricValue::Histogram(times) => {
                    let ends = times.bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
                    for (end, count) in ends.zip(&times.cumulative) {
                        writeln!(out, "{name}_bucket{} {count}", self.labels(labels, Some(("le", &end))))?;
                    }
                    writeln!(out, "{name}_sum{} {}", self.labels(labels, None), times.sum)?;
                    let all = times.cumulative.last().copied().unwrap_or(0);
                    writeln!(out, "{name}_count{} {all}", self.labels(labels, None))?;
                }
            }
        }
        Ok(())
    }
}

/// A label's value as it is written between quotation marks.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Prometheus' text format, version 0.0.4.
pub(crate) fn text(families: &[MetricFamily]) -> String {
    let mut out = String::new();
    for family in families {
        let _ = family.write(&mut out); // writing to a string cannot fail
    }
    out
}

/// A Markdown table of the metrics.
#[cfg(test)]
pub(crate) fn table(families: &[MetricFamily]) -> String {
    let row = |family: &MetricFamily| {
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind, help) = (family.name, family.kind.name(), family.help);
        format!("| `{PREFIX}{name}` | {kind} | {} | {help} |\n", labels.join(", "))
    };
    let rows: String = families.iter().map(row).collect();
    format!("| metric | kind | labels | meaning |\n|---|---|---|---|\n{rows}")
}

/// The names that queries may use.
#[cfg(test)]
pub(crate) fn names(families: &[MetricFamily]) -> Vec<String> {
    let names = families.iter().flat_map(|family| {
        let endings: &[&str] =
            if family.kind == MetricKind::Histogram { &["_bucket", "_sum", "_count"] } else { &[""] };
        endings.iter().map(|ending| format!("{PREFIX}{}{ending}", family.name))
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_written_as_prometheus_reads_them() {
        let times = HistogramReading { bounds: &[0.5, 1.0], cumulative: vec![1, 1, 3], sum: 7.25 };
        let families = [
            MetricFamily::gauge("load", "Running requests.").is(2.0),
            MetricFamily::counter("ends_total", "Ends.").by(&["why"]).each([("a \"b\"\n\\", 1.0), ("c", 0.0)]),
            MetricFamily::histogram("wait_seconds", "Waits.").by(&["arm"]).times([("plain", times)]),
        ];
        let expected = "# HELP selfspec_load Running requests.\n# TYPE selfspec_load gauge\nselfspec_load 2\n\
                        # HELP selfspec_ends_total Ends.\n# TYPE selfspec_ends_total counter\n\
                        selfspec_ends_total{why=\"a \\\"b\\\"\\n\\\\\"} 1\nselfspec_ends_total{why=\"c\"} 0\n\
                        # HELP selfspec_wait_seconds Waits.\n# TYPE selfspec_wait_seconds histogram\n\
                        selfspec_wait_seconds_bucket{arm=\"plain\",le=\"0.5\"} 1\n\
                        selfspec_wait_seconds_bucket{arm=\"plain\",le=\"1\"} 1\n\
                        selfspec_wait_seconds_bucket{arm=\"plain\",le=\"+Inf\"} 3\n\
                        selfspec_wait_seconds_sum{arm=\"plain\"} 7.25\nselfspec_wait_seconds_count{arm=\"plain\"} 3\n";
        assert_eq!(text(&families), expected);
        assert_eq!(
            names(&families)[2..],
            ["_bucket", "_sum", "_count"].map(|end| format!("selfspec_wait_seconds{end}"))
        );
        assert!(table(&families).ends_with("| `selfspec_wait_seconds` | histogram | `arm` | Waits. |\n"));
    }
}
