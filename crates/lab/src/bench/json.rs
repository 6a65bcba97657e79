//! A benchmark as JSON. The keys are an interface that others rely on.

use selfspec_speculate::DraftLen;
use serde_json::{Map, Value, json};

use super::report::{BenchReport, ContextCosts, PartCost, PassCost};
use super::speculation::ContenderResult;

impl BenchReport {
    /// All figures as one object.
    pub fn json(&self) -> Value {
        let first = &self.first;
        let mut object = json!({
            "plain_tok_s": self.plain_tok_s,
            "prefill_tok_s": self.prefill_tok_s,
            "read_gb_s": self.read_gb_s,
            "bound_share": first.bound_share,
            "b": by_rows(first, |pass| pass.b),
            "pass_ms": by_rows(first, |pass| pass.ms),
            "c": c(first),
            "speculation": self.speculation.iter().map(contender).collect::<Vec<_>>(),
            "threads": self.threads,
            "isa": self.isa,
            "kv_type": self.kv_type.to_string(),
            "context": first.positions,
        });
        if !first.profile.is_empty() {
            object["profile"] = profile(&first.profile);
        }
        if !self.others.is_empty() {
            object["contexts"] = self.others.iter().map(context).collect();
        }
        object
    }
}

fn by_rows(costs: &ContextCosts, of: impl Fn(&PassCost) -> f64) -> Map<String, Value> {
    costs.passes.iter().map(|pass| (pass.rows.to_string(), json!(of(pass)))).collect()
}

fn c(costs: &ContextCosts) -> Map<String, Value> {
    costs.drafts.iter().map(|draft| (draft.name.clone(), json!(draft.c))).collect()
}

fn context(costs: &ContextCosts) -> Value {
    let mut object = json!({
        "context": costs.positions,
        "b": by_rows(costs, |pass| pass.b),
        "pass_ms": by_rows(costs, |pass| pass.ms),
        "c": c(costs),
        "bound_share": costs.bound_share,
        "attention_share": costs.attention_share,
    });
    if !costs.profile.is_empty() {
        object["profile"] = profile(&costs.profile);
    }
    object
}

fn profile(parts: &[PartCost]) -> Value {
    let parts = parts.iter().map(|p| {
        let ms: Map<String, Value> = p.ms.iter().map(|(m, ms)| (m.to_string(), json!(ms))).collect();
        let mut object = json!({"part": p.part, "ms": ms, "gb_s": p.gb_s});
        if let Some(ms) = p.exit_head_ms {
            object["exit_head_ms"] = json!(ms);
        }
        object
    });
    parts.collect()
}

fn contender(result: &ContenderResult) -> Value {
    let draft_len = match result.contender.params.draft_len {
        DraftLen::Fixed(k) => json!(k),
        DraftLen::Adaptive => json!("auto"),
        DraftLen::Window => json!("window"),
    };
    json!({
        "drafter": result.contender.name,
        "exit_layer": result.contender.exit_layer,
        "draft_len": draft_len,
        "category": result.category,
        "tok_s": result.tok_s,
        "speedup": result.speedup,
        "drafted": result.drafted,
        "accepted": result.accepted,
        "rounds": result.rounds,
    })
}
