//! Metrics as Prometheus' text format and as a table for people, both from one list.

use std::fmt::Write;

use selfspec_engine::HistogramReading;

/// What the names of all metrics begin with.
const PREFIX: &str = "selfspec_";

/// What kind of number a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// A metric with its values.
#[derive(Debug)]
pub(crate) struct Family {
    name: &'static str, // without the prefix
    kind: Kind,
    help: &'static str,
    labels: &'static [&'static str],
    samples: Vec<(Vec<String>, Value)>, // (values of the labels, value)
}

#[derive(Debug)]
enum Value {
    Number(f64),
    Histogram(HistogramReading),
}

impl Family {
    pub(crate) fn counter(name: &'static str, help: &'static str) -> Self {
        Family { name, kind: Kind::Counter, help, labels: &[], samples: Vec::new() }
    }

    pub(crate) fn gauge(name: &'static str, help: &'static str) -> Self {
        Family { kind: Kind::Gauge, ..Family::counter(name, help) }
    }

    pub(crate) fn histogram(name: &'static str, help: &'static str) -> Self {
        Family { kind: Kind::Histogram, ..Family::counter(name, help) }
    }

    /// Names its labels.
    pub(crate) fn by(self, labels: &'static [&'static str]) -> Self {
        Family { labels, ..self }
    }

    /// Adds the value of a metric without labels.
    pub(crate) fn is(self, value: f64) -> Self {
        self.at(Vec::new(), value)
    }

    /// Adds the value with these labels.
    pub(crate) fn at(mut self, labels: Vec<String>, value: f64) -> Self {
        self.samples.push((labels, Value::Number(value)));
        self
    }

    /// Adds the values with each of some values of its one label.
    pub(crate) fn each(self, values: impl IntoIterator<Item = (impl ToString, f64)>) -> Self {
        values.into_iter().fold(self, |family, (label, value)| family.at(vec![label.to_string()], value))
    }

    /// Adds the histograms with each of some values of its one label.
    pub(crate) fn times(mut self, values: impl IntoIterator<Item = (impl ToString, HistogramReading)>) -> Self {
        let samples = values.into_iter().map(|(label, times)| (vec![label.to_string()], Value::Histogram(times)));
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
                Value::Number(number) => writeln!(out, "{name}{} {number}", self.labels(labels, None))?,
                Value::Histogram(times) => {
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

/// The value of a label as it stands between quotation marks.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Prometheus' text format, version 0.0.4.
pub(crate) fn text(families: &[Family]) -> String {
    let mut out = String::new();
    for family in families {
        let _ = family.write(&mut out); // a string takes whatever is written
    }
    out
}

/// A Markdown table of the metrics.
#[cfg(test)]
pub(crate) fn table(families: &[Family]) -> String {
    let row = |family: &Family| {
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind, help) = (family.name, family.kind.name(), family.help);
        format!("| `{PREFIX}{name}` | {kind} | {} | {help} |\n", labels.join(", "))
    };
    let rows: String = families.iter().map(row).collect();
    format!("| metric | kind | labels | what it is |\n|---|---|---|---|\n{rows}")
}

/// The names that a query may use.
#[cfg(test)]
pub(crate) fn names(families: &[Family]) -> Vec<String> {
    let names = families.iter().flat_map(|family| {
        let endings: &[&str] = if family.kind == Kind::Histogram { &["_bucket", "_sum", "_count"] } else { &[""] };
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
            Family::gauge("load", "What is under way.").is(2.0),
            Family::counter("ends_total", "Ends.").by(&["why"]).each([("a \"b\"\n\\", 1.0), ("c", 0.0)]),
            Family::histogram("wait_seconds", "Waits.").by(&["arm"]).times([("plain", times)]),
        ];
        let expected = "# HELP selfspec_load What is under way.\n# TYPE selfspec_load gauge\nselfspec_load 2\n\
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
