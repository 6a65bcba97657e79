//! The findings as Markdown tables.

use selfspec_engine::TunedDrafter;

use super::report::TuneReport;
use crate::markdown::markdown_table;

impl TuneReport {
    /// Tables and the conclusion. `model` names the model in the heading.
    pub fn markdown(&self, model: &str) -> String {
        let first = &self.costs[0];
        let mut text = format!(
            "{}, {} prompts, temperature {}; a plain step takes {:.2} ms after {} positions\n\n",
            model, self.prompts, self.temperature, first.plain_ms, first.context
        );
        let rows = self.candidates.iter().enumerate().map(|(i, candidate)| {
            let acceptance = &self.acceptance[i];
            let (k, gain) = first.best(i, acceptance);
            let accepted = |place| {
                if acceptance.stats.drafted == 0 { "-".to_owned() } else { format!("{:.2}", acceptance.at(place)) }
            };
            let measured = self.finalists.iter().find(|finalist| finalist.candidate == i);
            vec![
                candidate.name.clone(),
                format!("{:.2}", first.c[i]),
                accepted(0),
                accepted(1),
                k.to_string(),
                format!("{gain:.2}"),
                measured.map_or("-".to_owned(), |m| format!("{:.2}", m.speedup)),
                measured.map_or("-".to_owned(), |m| format!("{:.0}", m.tok_s)),
            ]
        });
        let head = ["drafter", "c", "1st accepted", "2nd", "best k", "promised", "measured", "tok/s"];
        text += &markdown_table(&head, &rows.collect::<Vec<_>>());
        let b: Vec<Vec<String>> = self
            .costs
            .iter()
            .map(|costs| {
                std::iter::once(costs.context.to_string())
                    .chain([2, 4, 6, 9].map(|m| format!("{:.2}", costs.b[m - 1])))
                    .chain([format!("{:.2}", costs.plain_ms)])
                    .collect()
            })
            .collect();
        text += "\nc: a draft step over a plain step. b(m): a pass over m rows over one of one row.\n\n";
        text += &markdown_table(&["context", "b(2)", "b(4)", "b(6)", "b(9)", "plain step, ms"], &b);
        if let Some((size, coverage)) = self.coverage {
            text += &format!(
                "\nLayer skip drafts {size} tokens only; they cover {:.1}% of answers they were not counted on.\n",
                coverage * 100.0
            );
        }
        text + "\n" + &self.conclusion() + "\n"
    }

    /// What to do, in a sentence.
    pub fn conclusion(&self) -> String {
        let way = match &self.tuning.drafter {
            TunedDrafter::Off => {
                return "Do not speculate: nothing that was tried is faster than plain decoding on these prompts."
                    .to_owned();
            }
            TunedDrafter::PromptLookup => "prompt lookup alone".to_owned(),
            TunedDrafter::LayerSkip { from, to } => {
                format!("prompt lookup, and layer skip without layers {from}..{to}")
            }
            TunedDrafter::ExitHead => "prompt lookup, and the exit head".to_owned(),
        };
        format!(
            "Speculate with {way}: {:.2} times the speed of plain decoding (median over prompts).",
            self.tuning.speedup
        )
    }
}
