//! Compares the measured costs of drafts and verifications with those that the cost model has, and
//! the measured speed-up with the predicted one.

use selfspec_engine::{Engine, Request, RequestSummary};
use selfspec_speculate::{DraftPath, SpeculationParams};
use serde_json::json;

use super::check::{DoctorCheck, DoctorFinding};
use super::examined::ExaminedDrafter;
use super::outputs::DraftAcceptance;
use crate::error::LabError;
use crate::measure::{MeasureOptions, measure};
use crate::progress::{Stage, StageProgress};
use crate::prompts::{PromptCase, PromptStyle};
use crate::statistics::{LONGEST_CONSIDERED, best_draft_len, median, promised_speedup, tokens_per_second};

/// Positions beyond the context that a measurement takes.
pub(super) const ROWS: usize = LONGEST_CONSIDERED + 1;
/// Repetitions of a measurement: as many as the engine's cost model remembers of a kind of step.
/// Then both are medians of the same times.
const REPETITIONS: usize = 9;
/// Measurements at the first context, apart in time.
pub(super) const TIMES: usize = 3;
/// The ratio of the measured c to the believed c above which c is underestimated: half way between
/// right and half. The engine's cost model and the clock see the same steps, a tuning saw others.
const UNDER: f64 = std::f64::consts::SQRT_2;
/// Prompts on which speed is measured.
const PAIRED: usize = 8;
/// How often each of them runs.
const ROUNDS: usize = 2;
/// Speed-up below which speculation hardly pays.
const HARDLY: f64 = 1.1;
/// Speed-up below which it does not pay at all.
const PAYS: f64 = 1.02;
/// Acceptance below which a low speed-up is expected.
const LOW: f64 = 0.65;
/// Share of the predicted speed-up that is reached if overhead is small.
const REACHED: f64 = 0.9;

/// Costs after a number of positions, relative to a plain step.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CostsAtContext {
    /// Positions before the measured rows.
    pub(super) context: usize,
    /// c of each measurement; empty if no layer runs to draft.
    c: Vec<f64>,
    /// c of the engine's cost model from the same steps.
    believed: Vec<f64>,
    b: Vec<f64>, // (m - 1)
    plain_ms: f64,
}

impl CostsAtContext {
    /// Times passes and draft steps after `context` positions.
    pub(super) fn measure(
        engine: &Engine,
        path: Option<&DraftPath>,
        context: usize,
        times: usize,
    ) -> Result<CostsAtContext, LabError> {
        let options = MeasureOptions {
            context,
            rows: (1..=ROWS).collect(),
            paths: path.into_iter().cloned().collect(),
            repetitions: REPETITIONS,
            prefill: 0,
            ..MeasureOptions::default()
        };
        let (mut c, mut believed, mut b, mut plain) = (Vec::new(), Vec::new(), vec![Vec::new(); ROWS], Vec::new());
        for _ in 0..times {
            let measured = measure(engine, &options)?;
            c.extend(path.and_then(|path| measured.c(path)));
            believed.extend(path.and_then(|path| measured.believed_c(path)));
            plain.extend(measured.plain_s());
            b.iter_mut().zip(1..).for_each(|(b, m)| b.extend(measured.b(m)));
        }
        let b = b.iter_mut().map(|b| median(b).max(1.0)).collect();
        Ok(CostsAtContext { context, c, believed, b, plain_ms: median(&mut plain) * 1e3 })
    }

    /// The measured c; 0 if drafts are copied.
    fn c(&self) -> f64 {
        median(&mut self.c.clone())
    }

    /// The speed-up that rounds of `k` drafts promise at a cost of `c` each.
    fn speedup(&self, c: f64, k: usize, accepted: &dyn Fn(usize) -> f64) -> f64 {
        promised_speedup(c, &self.b, k, accepted)
    }

    /// The draft length that promises most, and the speed-up that it promises.
    fn best(&self, c: f64, accepted: &dyn Fn(usize) -> f64) -> (usize, f64) {
        best_draft_len(c, &self.b, accepted)
    }

    fn words(&self, accepted: &dyn Fn(usize) -> f64) -> String {
        let (c, (k, gain)) = (self.c(), self.best(self.c(), accepted));
        format!(
            "after {} positions c is {c:.2}, b(2) {:.2}, b(5) {:.2}: k = {k} promises {gain:.2}",
            self.context, self.b[1], self.b[4]
        )
    }
}

/// A c that a choice rests on.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BelievedCost {
    /// The source of the belief.
    pub(super) by: &'static str,
    /// Its c beside each measurement. Shape: (measurement).
    pub(super) c: Vec<f64>,
}

/// Whether every measurement says that c is underestimated: a single one in a busy moment proves
/// nothing.
fn underestimated(measured: &[f64], believed: &[f64]) -> bool {
    !measured.is_empty()
        && measured.len() == believed.len()
        && measured.iter().zip(believed).all(|(measured, believed)| *measured > believed * UNDER)
}

/// Compares the measured c with that of the engine's cost model and that of the tuning.
pub(super) fn cost_of_a_draft(costs: &CostsAtContext, tuned_c: Option<f64>, drafts: &DraftAcceptance) -> DoctorCheck {
    const NAME: &str = "cost of a draft";
    if costs.c.is_empty() {
        return DoctorCheck::not_checked(NAME, "drafts are copied, which costs nothing");
    }
    let engine = BelievedCost { by: "the engine's cost model", c: costs.believed.clone() };
    let tuning = tuned_c.map(|c| BelievedCost { by: "the tuning", c: vec![c; costs.c.len()] });
    let all: Vec<BelievedCost> = std::iter::once(engine).chain(tuning).collect();
    judge_cost(NAME, costs, &all, &|place| drafts.at(place))
}

fn judge_cost(
    name: &'static str,
    costs: &CostsAtContext,
    believed: &[BelievedCost],
    accepted: &dyn Fn(usize) -> f64,
) -> DoctorCheck {
    let c = costs.c();
    let of = |b: &BelievedCost| median(&mut b.c.clone());
    let beliefs: Vec<String> = believed.iter().map(|b| format!("{} has {:.2}", b.by, of(b))).collect();
    let (k, gain) = costs.best(c, accepted);
    let check = match believed.iter().find(|b| underestimated(&costs.c, &b.c)) {
        None => {
            DoctorCheck::fine(name, format!("c is {c:.2} after {} positions; {}", costs.context, beliefs.join(", ")))
        }
        Some(wrong) => {
            let (believed_k, promised) = costs.best(of(wrong), accepted);
            DoctorCheck::fault(
                name,
                DoctorFinding {
                    cause: "cost",
                    symptom: "speed-up is below the prediction although acceptance is fine".to_owned(),
                    words: format!(
                        "c is underestimated: {} has {:.2}, and a draft step costs {c:.2} plain steps here ({:.2} ms); so k = {believed_k} seems to give \
                         {promised:.2}, and by what is measured it gives {:.2}, the best k = {k} {gain:.2}",
                        wrong.by,
                        of(wrong),
                        c * costs.plain_ms,
                        costs.speedup(c, believed_k, accepted)
                    ),
                    remedy: "measure c here and choose k anew: `selfspec tune`".to_owned(),
                },
            )
        }
    };
    check
        .with("c", json!(c))
        .with("c_measured", json!(costs.c))
        .with("c_believed", believed.iter().map(|b| json!({"by": b.by, "c": of(b)})).collect::<Vec<_>>())
        .with("plain_ms", json!(costs.plain_ms))
}

/// Speeds of the same prompts, which ran in turns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SpeedMeasurement {
    k: usize,
    /// The speed-up that costs and measured tokens a round predict.
    predicted: f64,
    /// Median of the ratios to plain decoding.
    measured: f64,
    /// The same of a run with default parameters.
    in_use: f64,
    tokens_a_round: f64,
}

/// Runs prompts plainly, with the draft length that promises most, and with default parameters.
pub(super) fn speed(
    engine: &Engine,
    examined: &ExaminedDrafter,
    costs: &CostsAtContext,
    drafts: &DraftAcceptance,
    prompts: &[PromptCase],
    (style, max_tokens): (PromptStyle, usize),
    progress: &dyn StageProgress,
) -> Result<SpeedMeasurement, LabError> {
    let k = costs.best(costs.c(), &|place| drafts.at(place)).0;
    let fixed = examined.always(k);
    let stride = prompts.len().div_ceil(PAIRED).max(1);
    let chosen: Vec<&PromptCase> = prompts.iter().step_by(stride).collect();
    let stage = Stage::begin(progress, "measuring speed", 3 * ROUNDS * chosen.len());
    let run = |case: &PromptCase, speculation: &SpeculationParams| -> Result<RequestSummary, LabError> {
        let mut request = Request::new(case.prompt(style));
        request.max_tokens = Some(max_tokens);
        request.speculation = speculation.clone();
        let summary = engine.submit(request)?.wait()?;
        stage.step();
        Ok(summary)
    };
    let (mut always, mut in_use, mut tokens, mut rounds) = (Vec::new(), Vec::new(), 0, 0);
    for _ in 0..ROUNDS {
        for case in &chosen {
            let plain = tokens_per_second(&run(case, &SpeculationParams::off())?);
            let drafted = run(case, &fixed)?;
            let used = tokens_per_second(&run(case, &examined.in_use)?);
            // The pass over the prompt gives a token and is no round.
            tokens += drafted.completion_tokens.saturating_sub(1);
            rounds += drafted.stats.rounds.saturating_sub(1);
            if plain > 0.0 {
                always.push(tokens_per_second(&drafted) / plain);
                in_use.push(used / plain);
            }
        }
    }
    let tokens_a_round = tokens as f64 / rounds.max(1) as f64;
    let predicted = tokens_a_round / (costs.c() * k as f64 + costs.b[k]);
    Ok(SpeedMeasurement { k, predicted, measured: median(&mut always), in_use: median(&mut in_use), tokens_a_round })
}

/// Whether speculation is as fast as it should be, and why not.
pub(super) fn judge_speed(
    speed: &SpeedMeasurement,
    examined: &ExaminedDrafter,
    drafts: &DraftAcceptance,
) -> DoctorCheck {
    const NAME: &str = "speed-up";
    let acceptance = drafts.all.acceptance().unwrap_or(0.0);
    let SpeedMeasurement { k, predicted, measured, in_use, tokens_a_round } = *speed;
    let words = format!(
        "k = {k} gives {measured:.2} (predicted {predicted:.2}, {tokens_a_round:.2} tokens a round, acceptance {acceptance:.2}); a run that is told \
         nothing else gives {in_use:.2}"
    );
    let copies = examined.path.is_none();
    let check = if measured == 0.0 {
        DoctorCheck::not_checked(NAME, "answers of one token have no speed: longer ones (-n) do")
    } else if measured < HARDLY && acceptance < LOW {
        let pays = match (predicted < PAYS && measured < PAYS, in_use < PAYS) {
            (true, true) => "; nothing pays here: do not speculate".to_owned(),
            (true, false) => {
                format!(
                    "; drafts of {} pay at no k: leave them, what a run drafts by itself is enough",
                    examined.name()
                )
            }
            (false, _) => String::new(),
        };
        DoctorCheck::note(
            NAME,
            DoctorFinding {
                cause: "acceptance",
                symptom: "speed-up of a fixed draft length is below 1.1".to_owned(),
                words: format!("acceptance is low for what a draft costs: {words}{pays}"),
                remedy: "choose the exit again on prompts like these (`selfspec tune --prompts FILE`), or train for them (`selfspec train head --prompts FILE`)"
                    .to_owned(),
            },
        )
    } else if measured < REACHED * predicted && !copies {
        DoctorCheck::note(
            NAME,
            DoctorFinding {
                cause: "overhead",
                symptom: "speed-up is below the prediction although acceptance is fine".to_owned(),
                words: format!("rounds cost more than their passes: {words}"),
                remedy: "see that the machine is idle and run it again; steps of well under a millisecond have a share of overhead that no k removes"
                    .to_owned(),
            },
        )
    } else {
        DoctorCheck::fine(NAME, words)
    };
    let figures =
        [("measured", measured), ("predicted", predicted), ("in_use", in_use), ("tokens_a_round", tokens_a_round)];
    let check = figures.into_iter().fold(check, |check, (key, value)| check.with(key, json!(value)));
    check.with("draft_len", k).with("draft_acceptance", json!(acceptance))
}

/// Whether the gain remains at long contexts.
pub(super) fn long_context(costs: &[CostsAtContext], drafts: &DraftAcceptance) -> DoctorCheck {
    const NAME: &str = "long context";
    let accepted = |place: usize| drafts.at(place);
    let words: Vec<String> = costs.iter().map(|c| c.words(&accepted)).collect();
    let best = |c: &CostsAtContext| c.best(c.c(), &accepted);
    // If one draft is best and promises as much as longer drafts did before, nothing is gone.
    let gone = |c: &CostsAtContext, before: f64| best(c).1 < 1.0 || (best(c).0 < 2 && best(c).1 < before);
    let worth = |first: &CostsAtContext| best(first).0 > 1 || best(first).1 >= PAYS;
    let start = costs.first().map_or(0.0, |first| best(first).1);
    let check = match (costs, costs.iter().skip(1).find(|c| gone(c, start))) {
        ([] | [_], _) => DoctorCheck::not_checked(NAME, "it takes two of --contexts that the model has room for"),
        ([first, ..], Some(at)) if worth(first) => {
            let (k, gain) = best(at);
            let (state, off) =
                if gain < 1.0 { ("nothing pays", "off there") } else { ("the best k is 1", "k = 1, or off, there") };
            DoctorCheck::note(
                NAME,
                DoctorFinding {
                    cause: "long-context",
                    symptom: "the gain is gone at long contexts".to_owned(),
                    words: format!(
                        "attention's share of c grows: {}; from {} positions on {state}",
                        words.join("; "),
                        at.context
                    ),
                    remedy: format!(
                        "{off}: a run that is told nothing else does so by itself (k = {k}, predicted {gain:.2})"
                    ),
                },
            )
        }
        _ => DoctorCheck::fine(NAME, words.join("; ")),
    };
    let figures = costs
        .iter()
        .map(|c| json!({"context": c.context, "c": c.c(), "b": c.b, "best_k": best(c).0, "predicted": best(c).1}));
    check.with("contexts", figures.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use selfspec_model::{LayerPlan, Readout};
    use selfspec_speculate::{DrafterChoice, SpecStats};

    use super::*;
    use crate::doctor::check::CheckResult;

    fn costs(context: usize, c: f64) -> CostsAtContext {
        CostsAtContext { context, c: vec![c; 3], believed: vec![c; 3], b: vec![1.0; ROWS], plain_ms: 10.0 }
    }

    fn drafts(accepted: u64) -> DraftAcceptance {
        let mut all = SpecStats::default();
        (all.accepted, all.rejected) = (accepted, 100 - accepted);
        (all.by_position[0].accepted, all.by_position[0].judged) = (accepted, 100);
        DraftAcceptance { all, ..DraftAcceptance::default() }
    }

    #[test]
    fn a_c_that_is_believed_to_be_half_is_found_and_a_true_one_is_not() {
        let of = |believed: &[f64]| {
            let believed = [BelievedCost { by: "the engine's cost model", c: believed.to_vec() }];
            let check = judge_cost("cost of a draft", &costs(256, 0.4), &believed, &|_| 0.8);
            (check.result, check.words)
        };
        assert_eq!(of(&[0.4, 0.4, 0.4]).0, CheckResult::Fine);
        assert_eq!(of(&[0.35, 0.5, 0.33]).0, CheckResult::Fine);
        assert_eq!(of(&[0.2, 0.2, 0.38]).0, CheckResult::Fine, "one measurement of three is no proof");
        let (result, words) = of(&[0.2, 0.2, 0.2]);
        assert_eq!(result, CheckResult::Fault);
        assert!(
            words.contains("the engine's cost model has 0.20, and a draft step costs 0.40 plain steps here (4.00 ms)"),
            "{words}"
        );
        assert!(
            words.contains("k = 4 seems to give 1.87, and by what is measured it gives 1.29, the best k = 2 1.36"),
            "{words}"
        );
    }

    #[test]
    fn a_tuning_of_another_day_is_compared_too() {
        let check = |tuned| cost_of_a_draft(&costs(256, 0.4), tuned, &drafts(80));
        assert_eq!((check(None).result, check(Some(0.38)).result), (CheckResult::Fine, CheckResult::Fine));
        let check = check(Some(0.2));
        assert!(check.result == CheckResult::Fault && check.words.contains("the tuning has 0.20"), "{check:?}");
        assert_eq!(
            cost_of_a_draft(&CostsAtContext { c: Vec::new(), ..costs(256, 0.0) }, None, &drafts(80)).result,
            CheckResult::NotChecked
        );
    }

    #[test]
    fn a_slow_run_has_a_reason() {
        let examined =
            |path| ExaminedDrafter { choice: DrafterChoice::Auto, path, in_use: SpeculationParams::default() };
        let path = DraftPath { plan: LayerPlan::full(2), readout: Readout::Head };
        let of = |measured, predicted, accepted| {
            let speed = SpeedMeasurement { k: 2, predicted, measured, in_use: measured, tokens_a_round: 1.5 };
            let check = judge_speed(&speed, &examined(Some(path.clone())), &drafts(accepted));
            (check.result, check.finding.map(|f| (f.cause, f.words.contains("do not speculate"))))
        };
        assert_eq!(of(1.4, 1.45, 80), (CheckResult::Fine, None));
        assert_eq!(of(1.05, 1.05, 40), (CheckResult::Note, Some(("acceptance", false))));
        assert_eq!(of(0.9, 0.95, 40), (CheckResult::Note, Some(("acceptance", true))));
        assert_eq!(of(1.2, 1.5, 80), (CheckResult::Note, Some(("overhead", false))));
        assert_eq!(of(0.0, 1.5, 80), (CheckResult::NotChecked, None));
    }

    #[test]
    fn a_gain_that_attention_eats_is_told_with_the_context_where_it_ends() {
        let of = |long| {
            let check = long_context(&[costs(256, 0.2), costs(4096, long)], &drafts(70));
            (check.result, check.words)
        };
        assert_eq!(of(0.25).0, CheckResult::Fine);
        let (result, words) = of(0.65);
        assert!(result == CheckResult::Note && words.ends_with("from 4096 positions on the best k is 1"), "{words}");
        assert!(of(0.8).1.ends_with("from 4096 positions on nothing pays"));
        let never = long_context(&[costs(256, 0.9), costs(4096, 0.9)], &drafts(30));
        assert_eq!(never.result, CheckResult::Fine, "that is not for the context");
        assert_eq!(long_context(&[costs(256, 0.2)], &drafts(70)).result, CheckResult::NotChecked);
    }
}
