//! What `bench` prints: tables, JSON, CSV.

use selfspec_engine::{DraftLen, Engine, Measurements};
use serde_json::{Map, Value, json};

use super::{Exit, SpeculationResult};

/// All figures of a run.
#[derive(Debug)]
pub(crate) struct Report {
    plain_tok_s: f64,
    prefill_tok_s: Option<f64>,
    read_gb_s: Option<f64>,
    bound_share: Option<f64>,
    /// (m, milliseconds of a pass over m rows, relative to one row)
    passes: Vec<(usize, f64, f64)>,
    /// (exit layer, cost of a draft step relative to a plain step)
    drafts: Vec<(usize, f64)>,
    speculation: Vec<SpeculationResult>,
    threads: usize,
    isa: String,
    context: usize,
}

impl Report {
    pub(crate) fn new(
        engine: &Engine,
        measured: &Measurements,
        plain_tok_s: f64,
        exits: &[Exit],
        speculation: Vec<SpeculationResult>,
    ) -> Self {
        let pass = |(m, seconds): &(usize, f64)| Some((*m, seconds * 1e3, measured.b(*m)?));
        Report {
            plain_tok_s,
            prefill_tok_s: measured.prefill_rows_s,
            read_gb_s: measured.read_bytes_s.map(|b| b / 1e9),
            bound_share: measured.bound_share(),
            passes: measured.passes.iter().filter_map(pass).collect(),
            drafts: exits.iter().filter_map(|(exit, plan)| Some((*exit, measured.c(plan)?))).collect(),
            speculation,
            threads: engine.threads(),
            isa: engine.isa().map_or_else(|| "none".to_owned(), |isa| isa.to_string()),
            context: measured.context,
        }
    }

    /// The object of `bench -o json`. Its keys are an interface that others rely on.
    pub(crate) fn json(&self) -> Value {
        let by_rows = |f: &dyn Fn(&(usize, f64, f64)) -> f64| -> Map<String, Value> {
            self.passes.iter().map(|p| (p.0.to_string(), json!(f(p)))).collect()
        };
        let c: Map<String, Value> = self.drafts.iter().map(|(exit, c)| (exit.to_string(), json!(c))).collect();
        json!({
            "plain_tok_s": self.plain_tok_s,
            "prefill_tok_s": self.prefill_tok_s,
            "read_gb_s": self.read_gb_s,
            "bound_share": self.bound_share,
            "b": by_rows(&|p| p.2),
            "pass_ms": by_rows(&|p| p.1),
            "c": c,
            "speculation": self.speculation.iter().map(line_json).collect::<Vec<_>>(),
            "threads": self.threads,
            "isa": self.isa,
        })
    }

    /// Tables for people.
    pub(crate) fn markdown(&self, model: &str, draft_len: DraftLen) -> String {
        let optional = |v: Option<f64>, digits: usize| v.map_or_else(|| "-".to_owned(), |v| format!("{v:.digits$}"));
        let mut text = format!("# {model}, {} threads, {}\n\n", self.threads, self.isa);
        text += &table(
            &["", "", "unit"],
            &[
                vec!["plain decoding".to_owned(), format!("{:.1}", self.plain_tok_s), "tok/s".to_owned()],
                vec!["prefill".to_owned(), optional(self.prefill_tok_s, 1), "tok/s".to_owned()],
                vec!["read bandwidth".to_owned(), optional(self.read_gb_s, 1), "GB/s".to_owned()],
                vec![
                    "share of the bandwidth bound".to_owned(),
                    optional(self.bound_share.map(|s| s * 100.0), 0),
                    "%".to_owned(),
                ],
            ],
        );
        text += &format!("\nPasses over m rows with logits of all rows, after {} positions:\n\n", self.context);
        let passes = self.passes.iter().map(|(m, ms, b)| vec![m.to_string(), format!("{ms:.2}"), format!("{b:.2}")]);
        text += &table(&["m", "ms", "b(m)"], &passes.collect::<Vec<_>>());
        text += "\nDraft steps, relative to a plain step:\n\n";
        let drafts = self.drafts.iter().map(|(exit, c)| vec![exit.to_string(), format!("{c:.2}")]);
        text += &table(&["exit layer L", "c(L)"], &drafts.collect::<Vec<_>>());
        let words = length_words(draft_len);
        text += &format!(
            "\nSpeculation at temperature 0 (layer skip drafts {words}), speed-up over plain decoding of the same prompts:\n\n"
        );
        let head = ["drafter", "exit layer", "category", "tok/s", "speed-up", "drafted", "accepted", "rounds"];
        let lines = self.speculation.iter().map(|r| {
            vec![
                r.contender.name.to_owned(),
                r.contender.exit_layer.map_or_else(|| "-".to_owned(), |l| l.to_string()),
                r.category.clone(),
                format!("{:.1}", r.tok_s),
                format!("{:.2}", r.speedup),
                r.drafted.to_string(),
                r.accepted.to_string(),
                r.rounds.to_string(),
            ]
        });
        text + &table(&head, &lines.collect::<Vec<_>>())
    }

    /// One figure a line: name, key, value; speculation has a table of its own below.
    pub(crate) fn csv(&self) -> String {
        let mut text = "figure,key,value\n".to_owned();
        let mut line = |figure: &str, key: &str, value: Option<f64>| {
            text += &format!("{figure},{key},{}\n", value.map_or_else(String::new, |v| v.to_string()));
        };
        line("plain_tok_s", "", Some(self.plain_tok_s));
        line("prefill_tok_s", "", self.prefill_tok_s);
        line("read_gb_s", "", self.read_gb_s);
        line("bound_share", "", self.bound_share);
        self.passes.iter().for_each(|(m, _, b)| line("b", &m.to_string(), Some(*b)));
        self.passes.iter().for_each(|(m, ms, _)| line("pass_ms", &m.to_string(), Some(*ms)));
        self.drafts.iter().for_each(|(exit, c)| line("c", &exit.to_string(), Some(*c)));
        line("threads", "", Some(self.threads as f64));
        text += &format!("isa,,{}\n", self.isa);
        text += "\ndrafter,exit_layer,draft_len,category,tok_s,speedup,drafted,accepted,rounds\n";
        for r in &self.speculation {
            let exit = r.contender.exit_layer.map_or_else(String::new, |l| l.to_string());
            let length = match r.contender.params.draft_len {
                DraftLen::Fixed(k) => k.to_string(),
                DraftLen::Adaptive => "auto".to_owned(),
            };
            text += &format!(
                "{},{exit},{length},{},{},{},{},{},{}\n",
                r.contender.name,
                csv_cell(&r.category),
                r.tok_s,
                r.speedup,
                r.drafted,
                r.accepted,
                r.rounds
            );
        }
        text
    }
}

fn line_json(r: &SpeculationResult) -> Value {
    let draft_len = match r.contender.params.draft_len {
        DraftLen::Fixed(k) => json!(k),
        DraftLen::Adaptive => json!("auto"),
    };
    json!({
        "drafter": r.contender.name,
        "exit_layer": r.contender.exit_layer,
        "draft_len": draft_len,
        "category": r.category,
        "tok_s": r.tok_s,
        "speedup": r.speedup,
        "drafted": r.drafted,
        "accepted": r.accepted,
        "rounds": r.rounds,
    })
}

fn length_words(draft_len: DraftLen) -> String {
    match draft_len {
        DraftLen::Fixed(1) => "1 token a round".to_owned(),
        DraftLen::Fixed(k) => format!("{k} tokens a round"),
        DraftLen::Adaptive => "by its acceptance".to_owned(),
    }
}

/// A text as a cell of a CSV file (RFC 4180).
fn csv_cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

/// A Markdown table whose columns line up in plain text as well.
fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let cell = |row: &[String], c: usize| row.get(c).map_or_else(String::new, |s| s.replace('|', "\\|"));
    let width = |c: usize| {
        rows.iter().map(|r| cell(r, c).chars().count()).chain([head[c].chars().count(), 3]).max().unwrap_or(3)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: Vec<String>| {
        let padded = cells.iter().zip(&widths).map(|(s, w)| format!("{s}{}", " ".repeat(w - s.chars().count())));
        format!("| {} |\n", padded.collect::<Vec<_>>().join(" | "))
    };
    let mut text = line(head.iter().map(|s| (*s).to_owned()).collect());
    text += &line(widths.iter().map(|w| "-".repeat(*w)).collect());
    for row in rows {
        text += &line((0..head.len()).map(|c| cell(row, c)).collect());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_tables_line_up_and_csv_cells_are_quoted() {
        let rows = [vec!["a|b".to_owned(), "1".to_owned()], vec!["c".to_owned(), "22".to_owned()]];
        let text = table(&["x", "figure"], &rows);
        assert_eq!(text, "| x    | figure |\n| ---- | ------ |\n| a\\|b | 1      |\n| c    | 22     |\n");
        assert_eq!(csv_cell("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(csv_cell("plain"), "plain");
    }
}
