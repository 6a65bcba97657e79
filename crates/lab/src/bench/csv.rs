//! A benchmark as CSV (RFC 4180).

use selfspec_speculate::DraftLen;

use super::report::BenchReport;

impl BenchReport {
    /// One figure a line: name, key, value; speculation, if it was measured, has a table below.
    pub fn csv(&self) -> String {
        let mut text = "figure,key,value\n".to_owned();
        let mut line = |figure: &str, key: &str, value: Option<f64>| {
            text += &format!("{figure},{key},{}\n", value.map_or_else(String::new, |v| v.to_string()));
        };
        line("plain_tok_s", "", Some(self.plain_tok_s));
        line("prefill_tok_s", "", self.prefill_tok_s);
        line("read_gb_s", "", self.read_gb_s);
        line("bound_share", "", self.first.bound_share);
        self.first.passes.iter().for_each(|pass| line("b", &pass.rows.to_string(), Some(pass.b)));
        self.first.passes.iter().for_each(|pass| line("pass_ms", &pass.rows.to_string(), Some(pass.ms)));
        self.first.drafts.iter().for_each(|draft| line("c", &draft.name, Some(draft.c)));
        for p in &self.first.profile {
            p.ms.iter().for_each(|(m, ms)| line("part_ms", &format!("{} {m}", p.part), Some(*ms)));
            line("part_gb_s", p.part, p.gb_s);
        }
        for context in &self.others {
            let at = |key: &str| format!("{key} at {}", context.positions).trim_start().to_owned();
            context.passes.iter().for_each(|pass| line("b", &at(&pass.rows.to_string()), Some(pass.b)));
            context.passes.iter().for_each(|pass| line("pass_ms", &at(&pass.rows.to_string()), Some(pass.ms)));
            context.drafts.iter().for_each(|draft| line("c", &at(&draft.name), Some(draft.c)));
            line("bound_share", &at(""), context.bound_share);
            line("attention_share", &at(""), context.attention_share);
            for p in &context.profile {
                p.ms.iter().for_each(|(m, ms)| line("part_ms", &at(&format!("{} {m}", p.part)), Some(*ms)));
                line("part_gb_s", &at(p.part), p.gb_s);
            }
        }
        line("threads", "", Some(self.threads as f64));
        let context = self.first.positions;
        text += &format!("isa,,{}\nkv_type,,{}\ncontext,,{context}\n", self.isa, self.kv_type);
        text + &self.speculation_csv()
    }

    fn speculation_csv(&self) -> String {
        if self.speculation.is_empty() {
            return String::new();
        }
        let mut text = "\ndrafter,exit_layer,draft_len,category,tok_s,speedup,drafted,accepted,rounds\n".to_owned();
        for r in &self.speculation {
            let exit = r.contender.exit_layer.map_or_else(String::new, |l| l.to_string());
            let length = match r.contender.params.draft_len {
                DraftLen::Fixed(k) => k.to_string(),
                DraftLen::Adaptive => "auto".to_owned(),
                DraftLen::Window => "window".to_owned(),
            };
            let (name, category) = (r.contender.name, csv_cell(&r.category));
            text += &format!("{name},{exit},{length},{category},{},{},", r.tok_s, r.speedup);
            text += &format!("{},{},{}\n", r.drafted, r.accepted, r.rounds);
        }
        text
    }
}

/// A text as a cell of a CSV file.
fn csv_cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_cells_are_quoted() {
        assert_eq!(csv_cell("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(csv_cell("plain"), "plain");
    }
}
