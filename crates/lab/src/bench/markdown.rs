//! A benchmark as Markdown tables.

use selfspec_kernels::KvType;
use selfspec_speculate::DraftLen;

use super::report::{BenchReport, FEW_ROWS, PartCost};
use crate::markdown::markdown_table;

/// The row counts that the table of a profile shows.
const PROFILE_ROWS: [usize; 3] = [1, 4, 8];

impl BenchReport {
    /// Tables for people. `model` names the model in the heading; `draft_len` is that of layer
    /// skip.
    pub fn markdown(&self, model: &str, draft_len: DraftLen) -> String {
        self.speeds(model)
            + &self.first_context()
            + &self.profiles()
            + &self.other_contexts()
            + &self.drafters(draft_len)
    }

    fn speeds(&self, model: &str) -> String {
        let kv_type = match self.kv_type {
            KvType::F16 => "",
            KvType::Q8 => ", KV cache q8",
        };
        let row = |name: &str, value: String, unit: &str| vec![name.to_owned(), value, unit.to_owned()];
        let rows = [
            row("plain decoding", format!("{:.1}", self.plain_tok_s), "tok/s"),
            row("prefill", optional(self.prefill_tok_s, 1), "tok/s"),
            row("read bandwidth", optional(self.read_gb_s, 1), "GB/s"),
            row("share of the bandwidth bound", optional(self.first.bound_share.map(|s| s * 100.0), 0), "%"),
        ];
        format!(
            "# {model}, {} threads, {}{kv_type}\n\n{}\n\
             Plain decoding: generated tokens; prefill: prompt tokens; read bandwidth: of the same threads in the same run; \
             share of the bandwidth bound: 100% streams the weights and the KV cache as fast as memory gives them.\n",
            self.threads,
            self.isa,
            markdown_table(&["", "", "unit"], &rows),
        )
    }

    fn first_context(&self) -> String {
        let pass = self.first.passes.iter();
        let passes = pass.map(|p| vec![p.rows.to_string(), format!("{:.2}", p.ms), format!("{:.2}", p.b)]);
        let drafts = self.first.drafts.iter().map(|draft| vec![draft.name.clone(), format!("{:.2}", draft.c)]);
        format!(
            "\nPasses over m rows with logits of all rows, after {} positions:\n\n{}\n\
             m: rows, one token each; ms: median time of a pass; b(m): that over the time of one row.\n\n\
             Draft steps, relative to a plain step:\n\n{}\n\
             draft: the exit layer L, whose draft runs layers 0..L and the head, or the trained exit head; \
             c: median time of that over a pass of one row.\n",
            self.first.positions,
            markdown_table(&["m", "ms", "b(m)"], &passes.collect::<Vec<_>>()),
            markdown_table(&["draft", "c"], &drafts.collect::<Vec<_>>()),
        )
    }

    fn profiles(&self) -> String {
        if self.first.profile.is_empty() {
            return String::new();
        }
        let mut text = String::new();
        for costs in std::iter::once(&self.first).chain(&self.others) {
            let table = profile_table(&costs.profile);
            text += &format!("\nMilliseconds of a pass by part, after {} positions:\n\n{table}", costs.positions);
        }
        text + "\npart: of every layer together, or of the whole pass, timed in passes of its own; m: rows; GB/s: the \
                bytes that the part streams over its time.\n"
    }

    fn other_contexts(&self) -> String {
        if self.others.is_empty() {
            return String::new();
        }
        let mut head = vec!["context".to_owned()];
        head.extend(FEW_ROWS.map(|m| if m == 1 { "ms, m = 1".to_owned() } else { format!("b({m})") }));
        head.extend(["bound", "attention"].map(str::to_owned));
        head.extend(self.first.drafts.iter().map(|draft| format!("c({})", draft.name)));
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        let percent = |share: Option<f64>| share.map_or_else(|| "-".to_owned(), |s| format!("{:.0}%", s * 100.0));
        let rows = self.others.iter().map(|c| {
            let mut row = vec![c.positions.to_string()];
            row.extend(c.passes.iter().map(|p| format!("{:.2}", if p.rows == 1 { p.ms } else { p.b })));
            row.extend([percent(c.bound_share), percent(c.attention_share)]);
            row.extend(c.drafts.iter().map(|draft| format!("{:.2}", draft.c)));
            row
        });
        format!(
            "\nAt other contexts:\n\n{}\n\
             context: positions before; ms, b(m), c: as above; bound: share of the bandwidth bound; attention: its share of \
             a pass over one row, with --profile.\n",
            markdown_table(&head, &rows.collect::<Vec<_>>()),
        )
    }

    fn drafters(&self, draft_len: DraftLen) -> String {
        if self.speculation.is_empty() {
            return String::new();
        }
        let head = ["drafter", "exit layer", "category", "tok/s", "speed-up", "drafted", "accepted", "rounds"];
        let rows = self.speculation.iter().map(|r| {
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
        format!(
            "\nSpeculation at temperature 0 (layer skip drafts {}), speed-up over plain decoding of the same prompts:\n\n{}\n\
             drafter: auto is the default; exit layer: of layer skip; category: kind of prompt; tok/s: median after the first \
             token; speed-up: median over plain decoding of the same prompt; drafted, accepted: tokens, summed over the \
             prompts; rounds: passes of the full model, likewise.\n",
            length_words(draft_len),
            markdown_table(&head, &rows.collect::<Vec<_>>()),
        )
    }
}

fn profile_table(profile: &[PartCost]) -> String {
    let shown = PROFILE_ROWS.map(|m| format!("m = {m}"));
    let mut head = vec!["part", &shown[0], &shown[1], &shown[2], "GB/s at m = 1"];
    let with_head = profile.iter().any(|p| p.exit_head_ms.is_some());
    if with_head {
        head.push("exit head's draft");
    }
    let rows = profile.iter().map(|p| {
        let ms = |m: usize| p.ms.iter().find(|(rows, _)| *rows == m).map(|(_, ms)| *ms);
        let mut row = vec![p.part.to_owned()];
        row.extend(PROFILE_ROWS.map(|m| optional(ms(m), 3)));
        row.push(optional(p.gb_s, 1));
        if with_head {
            row.push(optional(p.exit_head_ms, 3));
        }
        row
    });
    markdown_table(&head, &rows.collect::<Vec<_>>())
}

/// A figure, or a dash if there is none.
fn optional(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |v| format!("{v:.digits$}"))
}

fn length_words(draft_len: DraftLen) -> String {
    match draft_len {
        DraftLen::Fixed(1) => "1 token a round".to_owned(),
        DraftLen::Fixed(k) => format!("{k} tokens a round"),
        DraftLen::Adaptive => "as many as are predicted to pay".to_owned(),
        DraftLen::Window => "by its acceptance of late".to_owned(),
    }
}
