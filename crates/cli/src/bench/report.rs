//! What `bench` prints: tables, JSON, CSV.

use selfspec_engine::{DraftLen, Engine, KvType, Part, PartSeconds, Readout};
use selfspec_lab::measure::Measurements;
use serde_json::{Map, Value, json};

use super::{DraftStep, SpeculationResult};

/// All figures of a run.
#[derive(Debug)]
pub(crate) struct Report {
    plain_tok_s: f64,
    prefill_tok_s: Option<f64>,
    read_gb_s: Option<f64>,
    bound_share: Option<f64>,
    /// (m, milliseconds of a pass over m rows, relative to one row)
    passes: Vec<(usize, f64, f64)>,
    /// (exit layer or `exit-head`, cost of a draft step relative to a plain step)
    drafts: Vec<(String, f64)>,
    speculation: Vec<SpeculationResult>,
    threads: usize,
    isa: String,
    kv_type: KvType,
    context: usize,
    /// Milliseconds by part, for the row counts of a profile.
    profile: Vec<Profile>,
    /// The contexts after the first.
    contexts: Vec<Context>,
}

/// The row counts that the table of a profile shows.
const PROFILE_ROWS: [usize; 3] = [1, 4, 8];

/// One part of the forward pass.
#[derive(Debug)]
struct Profile {
    part: &'static str,
    ms: Vec<(usize, f64)>, // (m, milliseconds)
    gb_s: Option<f64>,     // bytes that it streams over its time, at one row
    head_ms: Option<f64>,  // milliseconds in a draft step of the exit head
}

/// Passes at another context than the first.
#[derive(Debug)]
struct Context {
    positions: usize,
    passes: Vec<(usize, f64, f64)>, // as `Report::passes`
    drafts: Vec<(String, f64)>,     // as `Report::drafts`
    bound_share: Option<f64>,
    /// Attention's share of a pass over one row, if it was profiled.
    attention_share: Option<f64>,
    profile: Vec<Profile>, // as `Report::profile`
}

impl Report {
    pub(crate) fn new(
        engine: &Engine,
        measured: &[Measurements],
        plain_tok_s: f64,
        draft_steps: &[DraftStep],
        speculation: Vec<SpeculationResult>,
    ) -> Self {
        let (first, others) = measured.split_first().expect("there is a first context");
        Report {
            plain_tok_s,
            prefill_tok_s: first.prefill_rows_s,
            read_gb_s: first.read_bytes_s.map(|b| b / 1e9),
            bound_share: first.bound_share(),
            passes: passes(first),
            drafts: drafts(first, draft_steps),
            speculation,
            threads: engine.threads(),
            isa: engine.isa().map_or_else(|| "none".to_owned(), |isa| isa.to_string()),
            kv_type: engine.kv_type(),
            context: first.context,
            profile: profile(engine, first),
            contexts: others.iter().map(|m| context(engine, m, draft_steps)).collect(),
        }
    }

    /// The object of `bench -o json`. Its keys are an interface that others rely on.
    pub(crate) fn json(&self) -> Value {
        let by_rows = |f: &dyn Fn(&(usize, f64, f64)) -> f64| -> Map<String, Value> {
            self.passes.iter().map(|p| (p.0.to_string(), json!(f(p)))).collect()
        };
        let c: Map<String, Value> = self.drafts.iter().map(|(draft, c)| (draft.clone(), json!(c))).collect();
        let mut object = json!({
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
            "kv_type": self.kv_type.to_string(),
            "context": self.context,
        });
        if !self.profile.is_empty() {
            object["profile"] = profile_json(&self.profile);
        }
        if !self.contexts.is_empty() {
            object["contexts"] = self.contexts.iter().map(context_json).collect();
        }
        object
    }

    /// Tables for people.
    pub(crate) fn markdown(&self, model: &str, draft_len: DraftLen) -> String {
        let kv_type = match self.kv_type {
            KvType::F16 => "",
            KvType::Q8 => ", KV cache q8",
        };
        let mut text = format!("# {model}, {} threads, {}{kv_type}\n\n", self.threads, self.isa);
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
        text += "\nPlain decoding: generated tokens; prefill: prompt tokens; read bandwidth: of the same threads in the same run; share of \
                 the bandwidth bound: 100% streams the weights and the KV cache as fast as memory gives them.\n";
        text += &format!("\nPasses over m rows with logits of all rows, after {} positions:\n\n", self.context);
        let passes = self.passes.iter().map(|(m, ms, b)| vec![m.to_string(), format!("{ms:.2}"), format!("{b:.2}")]);
        text += &table(&["m", "ms", "b(m)"], &passes.collect::<Vec<_>>());
        text += "\nm: rows, one token each; ms: median time of a pass; b(m): that over the time of one row.\n";
        text += "\nDraft steps, relative to a plain step:\n\n";
        let drafts = self.drafts.iter().map(|(exit, c)| vec![exit.clone(), format!("{c:.2}")]);
        text += &table(&["draft", "c"], &drafts.collect::<Vec<_>>());
        text += "\ndraft: the exit layer L, whose draft runs layers 0..L and the head, or the trained exit head; c: median time of that over a \
                 pass of one row.\n";
        if !self.profile.is_empty() {
            let others = self.contexts.iter().map(|c| (c.positions, &c.profile));
            for (positions, profile) in std::iter::once((self.context, &self.profile)).chain(others) {
                text += &format!(
                    "\nMilliseconds of a pass by part, after {positions} positions:\n\n{}",
                    profile_table(profile)
                );
            }
            text += "\npart: of every layer together, or of the whole pass, timed in passes of its own; m: rows; GB/s: the bytes that the part \
                     streams over its time.\n";
        }
        if !self.contexts.is_empty() {
            let shown = super::FEW_ROWS.map(|m| if m == 1 { "ms, m = 1".to_owned() } else { format!("b({m})") });
            let mut head = vec!["context"];
            head.extend(shown.iter().map(String::as_str));
            head.extend(["bound", "attention"]);
            let percent = |share: Option<f64>| share.map_or_else(|| "-".to_owned(), |s| format!("{:.0}%", s * 100.0));
            let exits: Vec<String> = self.drafts.iter().map(|(exit, _)| format!("c({exit})")).collect();
            head.extend(exits.iter().map(String::as_str));
            let lines = self.contexts.iter().map(|c| {
                let mut line = vec![c.positions.to_string()];
                line.extend(c.passes.iter().map(|(m, ms, b)| format!("{:.2}", if *m == 1 { *ms } else { *b })));
                line.extend([percent(c.bound_share), percent(c.attention_share)]);
                line.extend(c.drafts.iter().map(|(_, c)| format!("{c:.2}")));
                line
            });
            text += "\nAt other contexts:\n\n";
            text += &table(&head, &lines.collect::<Vec<_>>());
            text += "\ncontext: positions before; ms, b(m), c: as above; bound: share of the bandwidth bound; attention: its share of a pass \
                     over one row, with --profile.\n";
        }
        if self.speculation.is_empty() {
            return text;
        }
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
        text += &table(&head, &lines.collect::<Vec<_>>());
        text + "\ndrafter: auto is the default; exit layer: of layer skip; category: kind of prompt; tok/s: median after the first token; \
                speed-up: median over plain decoding of the same prompt; drafted, accepted: tokens, summed over the prompts; rounds: passes of \
                the full model, likewise.\n"
    }

    /// One figure a line: name, key, value; speculation, if it was measured, has a table of its own below.
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
        self.drafts.iter().for_each(|(exit, c)| line("c", exit, Some(*c)));
        for p in &self.profile {
            p.ms.iter().for_each(|(m, ms)| line("part_ms", &format!("{} {m}", p.part), Some(*ms)));
            line("part_gb_s", p.part, p.gb_s);
        }
        for context in &self.contexts {
            let at = |key: &str| format!("{key} at {}", context.positions).trim_start().to_owned();
            context.passes.iter().for_each(|(m, _, b)| line("b", &at(&m.to_string()), Some(*b)));
            context.passes.iter().for_each(|(m, ms, _)| line("pass_ms", &at(&m.to_string()), Some(*ms)));
            context.drafts.iter().for_each(|(exit, c)| line("c", &at(exit), Some(*c)));
            line("bound_share", &at(""), context.bound_share);
            line("attention_share", &at(""), context.attention_share);
            for p in &context.profile {
                p.ms.iter().for_each(|(m, ms)| line("part_ms", &at(&format!("{} {m}", p.part)), Some(*ms)));
                line("part_gb_s", &at(p.part), p.gb_s);
            }
        }
        line("threads", "", Some(self.threads as f64));
        text += &format!("isa,,{}\nkv_type,,{}\ncontext,,{}\n", self.isa, self.kv_type, self.context);
        if self.speculation.is_empty() {
            return text;
        }
        text += "\ndrafter,exit_layer,draft_len,category,tok_s,speedup,drafted,accepted,rounds\n";
        for r in &self.speculation {
            let exit = r.contender.exit_layer.map_or_else(String::new, |l| l.to_string());
            let length = match r.contender.params.draft_len {
                DraftLen::Fixed(k) => k.to_string(),
                DraftLen::Adaptive => "auto".to_owned(),
                DraftLen::Window => "window".to_owned(),
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

fn passes(measured: &Measurements) -> Vec<(usize, f64, f64)> {
    measured.passes.iter().filter_map(|(m, seconds)| Some((*m, seconds * 1e3, measured.b(*m)?))).collect()
}

fn drafts(measured: &Measurements, steps: &[DraftStep]) -> Vec<(String, f64)> {
    steps.iter().filter_map(|step| Some((step.name.clone(), measured.c(&step.path)?))).collect()
}

fn profile(engine: &Engine, measured: &Measurements) -> Vec<Profile> {
    let parts = Part::ALL.iter().filter(|_| !measured.profile.is_empty()).map(|part| {
        let seconds = |times: &PartSeconds| times[*part as usize];
        let one = measured.profile.iter().find(|(m, _)| *m == 1).map(|(_, times)| seconds(times));
        let head = measured.draft_profile.iter().find(|(path, _)| path.readout == Readout::ExitHead);
        let bytes = engine.loaded().map(|loaded| loaded.part_bytes(*part, engine.kv_type(), measured.context) as f64);
        Profile {
            part: part.name(),
            ms: measured.profile.iter().map(|(m, times)| (*m, seconds(times) * 1e3)).collect(),
            gb_s: bytes.filter(|bytes| *bytes > 0.0).zip(one).map(|(bytes, seconds)| bytes / seconds / 1e9),
            head_ms: head.map(|(_, times)| seconds(times) * 1e3),
        }
    });
    parts.collect()
}

fn profile_json(profile: &[Profile]) -> Value {
    let parts = profile.iter().map(|p| {
        let ms: Map<String, Value> = p.ms.iter().map(|(m, ms)| (m.to_string(), json!(ms))).collect();
        let mut object = json!({"part": p.part, "ms": ms, "gb_s": p.gb_s});
        if let Some(ms) = p.head_ms {
            object["exit_head_ms"] = json!(ms);
        }
        object
    });
    parts.collect()
}

fn profile_table(profile: &[Profile]) -> String {
    let shown = PROFILE_ROWS.map(|m| format!("m = {m}"));
    let mut head = vec!["part", &shown[0], &shown[1], &shown[2], "GB/s at m = 1"];
    let with_head = profile.iter().any(|p| p.head_ms.is_some());
    if with_head {
        head.push("exit head's draft");
    }
    let lines = profile.iter().map(|p| {
        let ms = |m: usize| p.ms.iter().find(|(rows, _)| *rows == m).map(|(_, ms)| *ms);
        let mut line = vec![p.part.to_owned()];
        line.extend(PROFILE_ROWS.map(|m| optional(ms(m), 3)));
        line.push(optional(p.gb_s, 1));
        if with_head {
            line.push(optional(p.head_ms, 3));
        }
        line
    });
    table(&head, &lines.collect::<Vec<_>>())
}

/// A figure, or a dash where there is none.
fn optional(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |v| format!("{v:.digits$}"))
}

fn context(engine: &Engine, measured: &Measurements, steps: &[DraftStep]) -> Context {
    let one = measured.profile.iter().find(|(m, _)| *m == 1);
    let share = |times: &PartSeconds| times[Part::Attention as usize] / times.iter().sum::<f64>();
    Context {
        positions: measured.context,
        passes: passes(measured),
        drafts: drafts(measured, steps),
        bound_share: measured.bound_share(),
        attention_share: one.map(|(_, times)| share(times)),
        profile: profile(engine, measured),
    }
}

fn context_json(context: &Context) -> Value {
    let by_rows = |f: fn(&(usize, f64, f64)) -> f64| -> Map<String, Value> {
        context.passes.iter().map(|p| (p.0.to_string(), json!(f(p)))).collect()
    };
    let c: Map<String, Value> = context.drafts.iter().map(|(draft, c)| (draft.clone(), json!(c))).collect();
    let mut object = json!({
        "context": context.positions,
        "b": by_rows(|p| p.2),
        "pass_ms": by_rows(|p| p.1),
        "c": c,
        "bound_share": context.bound_share,
        "attention_share": context.attention_share,
    });
    if !context.profile.is_empty() {
        object["profile"] = profile_json(&context.profile);
    }
    object
}

fn line_json(r: &SpeculationResult) -> Value {
    let draft_len = match r.contender.params.draft_len {
        DraftLen::Fixed(k) => json!(k),
        DraftLen::Adaptive => json!("auto"),
        DraftLen::Window => json!("window"),
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
        DraftLen::Adaptive => "as many as are predicted to pay".to_owned(),
        DraftLen::Window => "by its acceptance of late".to_owned(),
    }
}

/// A text as a cell of a CSV file (RFC 4180).
fn csv_cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

/// A Markdown table whose columns line up in plain text as well.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
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
