//! The cost model's decisions on recorded steps.

use selfspec_model::{Enter, LayerPlan, Readout, Row};

use super::estimates::ROW_SHARE;
use super::model::CostModel;
use super::path_record::FIRST_LEVEL;
use super::recorded_steps::{COLD_STEPS, MAX_PATHS};
use super::rows::row;
use super::step_times::{ENOUGH_SAMPLES, STALE_AFTER};
use crate::draft::path::DraftPath;

fn passes(costs: &mut CostModel, rows: usize, seconds: f64) {
    let full = LayerPlan::full(10);
    let rows: Vec<Row> = (0..rows).map(|_| row(0, Enter::Token, &full)).collect();
    costs.record(&rows, seconds);
}

#[test]
fn one_slow_step_among_many_changes_nothing() {
    let mut costs = CostModel::new();
    for seconds in [1.0, 1.01, 50.0, 0.99, 1.0] {
        passes(&mut costs, 1, seconds);
    }
    assert_eq!(costs.plain(), Some(1.0));
}

#[test]
fn one_slow_step_that_is_the_only_one_of_its_kind_is_believed_in_part() {
    let mut costs = CostModel::new();
    (0..10).for_each(|_| passes(&mut costs, 1, 1.0));
    passes(&mut costs, 2, 9.0);
    assert!((costs.b(2) - 1.06 * 1.3).abs() < 1e-12 && costs.b(3) < 1.06 * 1.06 * 1.3, "{}", costs.b(3));
    assert_eq!(costs.pass(2), Some(9.0), "what was measured is told");
    passes(&mut costs, 2, 9.0);
    passes(&mut costs, 2, 9.0);
    assert_eq!(costs.b(2), 9.0, "three say that it is so");
    (0..STALE_AFTER).for_each(|_| passes(&mut costs, 1, 1.0));
    assert!((costs.b(2) - 1.06 * 1.3).abs() < 1e-12, "and that was so long ago");

    let path = DraftPath { plan: LayerPlan::exit(10, 1).expect("valid"), readout: Readout::Head };
    let (draft, verify) = (row(0, Enter::Token, &path.plan), row(0, Enter::Kept, &LayerPlan::full(10)));
    costs.record(&[draft], 5.0);
    costs.record(&[verify.clone(), verify], 7.0);
    assert!((costs.c(&path) - 0.28 * 1.3).abs() < 1e-12, "{}", costs.c(&path));
    assert!(costs.latest().verify(Some(&path), 2, 0) < 2.0);
}

#[test]
fn what_was_not_measured_is_inferred_from_what_was() {
    let mut costs = CostModel::new();
    assert!((costs.b(4) - (1.0 + 3.0 * ROW_SHARE)).abs() < 1e-12);
    passes(&mut costs, 1, 2.0);
    passes(&mut costs, 5, 3.0);
    assert_eq!((costs.b(5), costs.b(3)), (1.5, 1.25));
    assert!(costs.b(8) > 1.5);
    assert_eq!(costs.pass(3), None);
    passes(&mut costs, 2, 1.0); // a pass of two rows cannot be cheaper than one of one
    assert_eq!(costs.b(2), 1.0);
}

#[test]
fn draft_and_verify_steps_are_told_apart() {
    let (full, exit) = (LayerPlan::full(10), LayerPlan::exit(10, 5).expect("valid"));
    let path = DraftPath { plan: exit.clone(), readout: Readout::Head };
    let mut costs = CostModel::new();
    assert_eq!(costs.draft(&path), None);
    assert!((costs.c(&path) - 0.6).abs() < 1e-12);
    assert!((costs.latest().verify(Some(&path), 1, 0) - 0.6).abs() < 1e-12);
    passes(&mut costs, 1, 1.0);
    costs.record(&[row(0, Enter::Token, &exit)], 0.7);
    costs.record(&[row(0, Enter::Kept, &full), row(0, Enter::Kept, &full), row(0, Enter::Token, &full)], 1.2);
    assert_eq!(costs.draft(&path), Some(0.7));
    assert_eq!(costs.c(&path), 0.7);
    assert_eq!(costs.latest().verify(Some(&path), 2, 1), 1.2);
    assert_eq!(costs.pass(3), None, "a verification from kept states is no pass of three rows");
    let mut prompt = row(0, Enter::Token, &full);
    prompt.readout = Readout::Nothing;
    costs.record(&[prompt, row(0, Enter::Token, &full)], 99.0);
    assert_eq!(costs.pass(2), None);
}

#[test]
fn steps_after_a_prompt_are_not_timed() {
    let mut costs = CostModel::new();
    assert!(costs.plain_is_due(0));
    let full = LayerPlan::full(10);
    costs.record(&[Row { readout: Readout::Nothing, ..row(0, Enter::Token, &full) }], 9.0);
    for _ in 0..COLD_STEPS {
        passes(&mut costs, 1, 2.0);
    }
    assert_eq!(costs.plain(), Some(2.0), "until there is something better");
    passes(&mut costs, 2, 1.1);
    assert_eq!(costs.plain(), None);
    for _ in 0..ENOUGH_SAMPLES {
        assert!(costs.plain_is_due(0) && costs.plain_is_due(3 * FIRST_LEVEL));
        passes(&mut costs, 1, 1.0);
    }
    assert!(!costs.plain_is_due(0) && costs.plain_is_due(3 * FIRST_LEVEL));
    assert_eq!(costs.plain(), Some(1.0));
    costs.record(&[Row { readout: Readout::Nothing, ..row(0, Enter::Token, &full) }], 9.0);
    for _ in 0..COLD_STEPS {
        assert!(!costs.plain_is_due(3 * FIRST_LEVEL), "it would tell nothing");
        passes(&mut costs, 1, 2.0);
    }
    assert_eq!(costs.plain(), Some(1.0));
    (0..=STALE_AFTER).for_each(|_| passes(&mut costs, 2, 1.1));
    assert!(costs.plain_is_due(0), "it was long ago");
    passes(&mut costs, 1, 1.5);
    assert_eq!(costs.plain(), Some(1.5), "and what it was then counts no more");
}

#[test]
fn in_a_batch_a_row_more_for_everyone_is_priced() {
    let full = LayerPlan::full(4);
    let mut costs = CostModel::new();
    for _ in 0..100 {
        let four: Vec<Row> = (0..4).map(|s| row(s, Enter::Token, &full)).collect();
        costs.record(&four, 2.0);
        let eight: Vec<Row> = (0..8).map(|s| row(s / 2, Enter::Token, &full)).collect();
        costs.record(&eight, 3.0);
    }
    assert_eq!(costs.b(2), 1.5);
}

#[test]
fn plans_are_forgotten_before_they_pile_up() {
    let path = |exit| DraftPath { plan: LayerPlan::exit(50, exit).expect("valid"), readout: Readout::Head };
    let mut costs = CostModel::new();
    for exit in 1..=40 {
        costs.record(&[row(0, Enter::Token, &LayerPlan::exit(50, exit).expect("valid"))], 1.0);
    }
    assert_eq!(costs.steps.paths.len(), MAX_PATHS);
    assert_eq!(costs.draft(&path(40)), Some(1.0));
    assert_eq!(costs.draft(&path(1)), None);
}

#[test]
fn contexts_have_costs_of_their_own_and_lend_them_to_their_neighbours() {
    let (full, exit) = (LayerPlan::full(10), LayerPlan::exit(10, 5).expect("valid"));
    let path = DraftPath { plan: exit.clone(), readout: Readout::Head };
    let mut costs = CostModel::new();
    let mut record = |plan: &LayerPlan, rows: usize, pos: usize, seconds: f64| {
        let row = Row { pos, ..row(0, Enter::Token, plan) };
        costs.record(&vec![row; rows], seconds);
    };
    record(&full, 1, 100, 1.0);
    record(&full, 4, 100, 1.2);
    record(&exit, 1, 100, 0.5);
    record(&full, 1, 5000, 2.0);
    record(&exit, 1, 5000, 1.4);
    assert_eq!((costs.at(10).c(&path), costs.at(6000).c(&path)), (0.5, 0.7));
    assert!((costs.at(6000).b(4) - 1.2).abs() < 1e-12, "taken over from where it was measured, scaled");
    assert_eq!(costs.at(700).c(&path), 0.5);
    assert_eq!(costs.plain(), Some(2.0));
}
