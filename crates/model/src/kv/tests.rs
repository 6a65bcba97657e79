//! Every check of a row, and the bookkeeping of pages and slots.

use std::sync::Arc;

use crate::backend::BackendError;
use crate::kv::index::KvIndex;
use crate::kv::place::{AuxiliaryWork, FeatureSource, PageCopy};
use crate::kv::shape::DeviceShape;
use crate::plan::LayerPlan;
use crate::row::{Enter, ExitHeadInfo, Readout, Row, SeqId, TokenId};

const LAYERS: usize = 6;
const PAGE: usize = 4;

/// A device with an exit head after two layers, a vocabulary of 50, a context of 40 and 12 pages of
/// 4.
fn index() -> KvIndex {
    let exit_head = ExitHeadInfo { plan: exit(2), vocab: Arc::new([1, 2]), acceptance: None };
    KvIndex::new(DeviceShape {
        n_layers: LAYERS,
        vocab: 50,
        context: 40,
        page_positions: PAGE,
        pages: 12,
        draft_vocab: None,
        exit_head: Some(exit_head),
    })
}

fn exit(layers: usize) -> LayerPlan {
    LayerPlan::exit(LAYERS, layers).expect("fits")
}

fn full(seq: SeqId, pos: usize, token: TokenId) -> Row {
    let plan = LayerPlan::full(LAYERS);
    Row { seq, pos, token, enter: Enter::Token, plan, keep: false, readout: Readout::Head }
}

fn drafted(seq: SeqId, pos: usize, token: TokenId, plan: LayerPlan) -> Row {
    Row { keep: true, plan, ..full(seq, pos, token) }
}

fn head_row(seq: SeqId, pos: usize, token: TokenId) -> Row {
    Row { readout: Readout::ExitHead, ..drafted(seq, pos, token, exit(2)) }
}

fn kept(seq: SeqId, pos: usize, token: TokenId) -> Row {
    Row { enter: Enter::Kept, ..full(seq, pos, token) }
}

/// A sequence with so many committed positions of token 1.
fn committed(index: &mut KvIndex, len: usize) -> SeqId {
    let seq = index.create();
    let rows: Vec<Row> = (0..len).map(|pos| full(seq, pos, 1)).collect();
    index.admit(&rows).expect("sound");
    index.set_len(seq, len).expect("computed");
    seq
}

/// Why the rows are refused. What was not committed is forgotten then, and nothing else changes.
fn refused(index: &mut KvIndex, rows: &[Row]) -> &'static str {
    let seq = rows[0].seq;
    let before = (index.sequence(seq).expect("live").len, index.free_pages());
    let error = index.admit(rows).expect_err("refused");
    let after = index.sequence(seq).expect("live");
    assert_eq!((after.len, after.computed()), (before.0, before.0), "uncommitted positions are forgotten");
    assert_eq!(index.free_pages(), before.1, "no page is taken");
    let BackendError::BadRow { why, .. } = error else { panic!("{error}") };
    why
}

#[test]
fn rows_are_checked_against_the_device() {
    let mut index = index();
    let seq = committed(&mut index, 3);
    let admit = |index: &mut KvIndex, row: Row| index.admit(&[row]).map(|_| ()).expect_err("refused");
    let stranger = SeqId(9);
    assert_eq!(admit(&mut index, full(stranger, 0, 1)), BackendError::UnknownSequence(stranger));
    assert_eq!(admit(&mut index, full(seq, 40, 1)), BackendError::BeyondContext { pos: 40, context: 40 });
    assert_eq!(admit(&mut index, full(seq, 3, 50)), BackendError::UnknownToken { token: 50, vocab: 50 });
    let why = |index: &mut KvIndex, row: Row| match admit(index, row) {
        BackendError::BadRow { why, .. } => why,
        error => panic!("{error}"),
    };
    let other = Row { plan: LayerPlan::full(LAYERS + 1), ..full(seq, 3, 1) };
    assert_eq!(why(&mut index, other), "its plan is for another number of layers");
    let none = Row { plan: LayerPlan::none(LAYERS), ..full(seq, 3, 1) };
    assert_eq!(why(&mut index, none), "its plan runs no layer");
    let readout = |readout, plan| Row { readout, ..drafted(seq, 3, 1, plan) };
    assert_eq!(why(&mut index, readout(Readout::ExitHead, exit(3))), "its plan is not that of the exit head");
    assert_eq!(why(&mut index, readout(Readout::DraftVocab, exit(3))), "there is no draft vocabulary");
    index.free(seq);
    assert_eq!(admit(&mut index, full(seq, 0, 1)), BackendError::UnknownSequence(seq), "it was freed");
}

#[test]
fn rows_that_would_read_what_is_not_there_are_refused() {
    let mut index = index();
    let seq = committed(&mut index, 3);
    let other = committed(&mut index, 3);
    let i = &mut index;
    assert_eq!(refused(i, &[full(seq, 2, 1)]), "the position is committed already");
    assert_eq!(refused(i, &[full(seq, 4, 1)]), "positions before it hold nothing");
    let ascend = "rows of a sequence must ascend in a step";
    assert_eq!(refused(i, &[full(seq, 3, 1), full(seq, 3, 1)]), ascend);
    assert_eq!(refused(i, &[full(seq, 3, 1), full(seq, 4, 1), full(seq, 3, 1)]), ascend);
    assert_eq!(refused(i, &[full(seq, 3, 1), full(other, 3, 1), full(seq, 3, 1)]), ascend, "others between");

    i.admit(&[drafted(seq, 3, 7, exit(2))]).expect("sound");
    assert_eq!(refused(i, &[drafted(seq, 4, 8, exit(3))]), "a position before it lacks layers that the row runs");
    let middle = LayerPlan::skip_middle(LAYERS, 1, 5).expect("fits");
    i.admit(&[drafted(seq, 3, 7, exit(2))]).expect("sound");
    assert_eq!(refused(i, &[drafted(seq, 4, 8, middle)]), "a position before it lacks layers that the row runs");
    i.admit(&[drafted(seq, 3, 7, exit(3))]).expect("sound");
    i.admit(&[drafted(seq, 4, 8, exit(2))]).expect("the layers of exit 3 cover those of exit 2");
    let follows = "a row of the full plan must not follow positions that were only drafted";
    assert_eq!(refused(i, &[full(seq, 4, 8)]), follows);
    i.admit(&[drafted(seq, 3, 7, exit(3))]).expect("sound");
    let lacks = "a position before it lacks layers that the row runs";
    assert_eq!(refused(i, &[head_row(seq, 4, 8)]), lacks, "the auxiliary layer among them");
    i.admit(&[full(seq, 3, 7)]).expect("sound");
    assert_eq!(refused(i, &[drafted(seq, 3, 7, exit(2))]), "the position is computed in full already");
}

#[test]
fn a_kept_state_serves_its_own_position_and_token_alone() {
    let mut index = index();
    let seq = committed(&mut index, 3);
    let i = &mut index;
    assert_eq!(refused(i, &[kept(seq, 3, 7)]), "no hidden state was kept at this position");
    i.admit(&[drafted(seq, 3, 7, exit(2))]).expect("sound");
    assert_eq!(refused(i, &[kept(seq, 3, 8)]), "the hidden state kept at this position is another token's");
    i.admit(&[drafted(seq, 3, 7, exit(2))]).expect("sound");
    let shallow = Row { plan: exit(2), ..kept(seq, 3, 7) };
    assert_eq!(refused(i, &[shallow]), "only a row of the full plan may enter at a kept hidden state");

    // Two drafts, verified from their states. The plan that skips the middle keeps the state after
    // one layer.
    let slot = i.admit(&[drafted(seq, 3, 7, exit(2))]).expect("sound").keep_slot(0);
    let middle = LayerPlan::skip_middle(LAYERS, 1, 5).expect("fits");
    i.admit(&[Row { keep: false, ..drafted(seq, 3, 7, exit(2)) }]).expect("sound");
    assert_eq!(refused(i, &[kept(seq, 3, 7)]), "no hidden state was kept at this position", "drafted anew");
    let again = i.admit(&[drafted(seq, 3, 7, middle.clone())]).expect("sound").keep_slot(0);
    assert_eq!(again, slot, "the slot was free again");
    i.admit(&[drafted(seq, 4, 8, middle)]).expect("sound");
    let rows = [kept(seq, 3, 7), kept(seq, 4, 8), full(seq, 5, 9)];
    let step = i.admit(&rows).expect("sound");
    assert_eq!([0, 1, 2].map(|row| step.first_layer(row)), [1, 1, 0]);
    assert_eq!((step.enter_slot(0), step.enter_slot(2)), (slot, None));
    assert!(step.runs(0, 1) && !step.runs(0, 0) && step.runs(2, 0));

    // A verification with another token drops what was kept after it.
    i.set_len(seq, 3).expect("shorter");
    assert_eq!(i.slots().states.taken(), 0, "a new length forgets kept states");
    i.admit(&[drafted(seq, 3, 7, exit(2))]).expect("sound");
    i.admit(&[drafted(seq, 4, 8, exit(2))]).expect("sound");
    assert_eq!(refused(i, &[full(seq, 3, 9), kept(seq, 4, 8)]), "no hidden state was kept at this position");
    assert_eq!(i.slots().states.taken(), 0);
}

#[test]
fn only_positions_computed_in_every_layer_can_be_committed() {
    let mut index = index();
    let seq = committed(&mut index, 3);
    index.admit(&[full(seq, 3, 1), full(seq, 4, 1)]).expect("sound");
    index.admit(&[drafted(seq, 5, 7, exit(5))]).expect("sound");
    let why = "positions before it are not computed in every layer";
    assert_eq!(index.set_len(seq, 6), Err(BackendError::BadRow { seq, pos: 6, why }));
    index.set_len(seq, 5).expect("computed");
    assert!(index.set_len(seq, 6).is_err(), "the draft is forgotten");
    assert!(index.fork(seq, 6).is_err(), "a fork has committed positions only");
}

#[test]
fn pages_are_shared_copied_and_given_back() {
    let mut index = index();
    let seq = committed(&mut index, 10);
    assert_eq!(index.free_pages(), 12 - 3);
    let (fork, copy) = index.fork(seq, 10).expect("pages are free");
    let pages = |index: &KvIndex, seq| index.sequence(seq).expect("live").pages.clone();
    let (own, forked) = (pages(&index, seq), pages(&index, fork));
    assert_eq!((&own[..2], copy), (&forked[..2], Some(PageCopy { from: own[2], to: forked[2] })));
    assert_eq!(index.free_pages(), 12 - 4);

    // A write into a shared page copies it first; what the other sequence reads stays.
    index.set_len(seq, 6).expect("shorter");
    let rows = [full(seq, 6, 2)];
    let step = index.admit(&rows).expect("sound");
    let copies = step.copies().to_vec();
    assert_eq!(copies, [PageCopy { from: own[1], to: step.pages(0)[1] }]);
    assert_eq!(pages(&index, fork), forked);
    let again = [full(seq, 7, 2)];
    assert!(index.admit(&again).expect("sound").copies().is_empty(), "it is the sequence's own now");

    index.free(seq);
    index.free(fork);
    assert_eq!(index.free_pages(), 12);
    assert_eq!(index.slots().features.taken(), 0);
}

#[test]
fn a_step_that_finds_too_few_pages_takes_none() {
    let mut index = index();
    let (a, b) = (committed(&mut index, 24), committed(&mut index, 16));
    let rows: Vec<Row> = (16..25).map(|pos| full(b, pos, 1)).chain([full(a, 24, 1)]).collect();
    assert_eq!(index.admit(&rows).map(|_| ()), Err(BackendError::KvFull { wanted: 4, free: 2 }));
    assert_eq!(index.free_pages(), 2);
    index.admit(&rows[..8]).expect("two pages are free");
    assert_eq!(index.free_pages(), 0);
}

#[test]
fn auxiliary_layers_read_the_features_of_the_position_before() {
    let mut index = index();
    let seq = index.create();
    let source = |work| match work {
        Some(AuxiliaryWork::KeepUp { source, .. } | AuxiliaryWork::Draft { source, .. }) => Some(source),
        None => None,
    };
    let slot = |work| match work {
        Some(AuxiliaryWork::KeepUp { keep, .. } | AuxiliaryWork::Draft { keep, .. }) => keep,
        None => panic!("it has work"),
    };
    let rows = [full(seq, 0, 1), full(seq, 1, 1), full(seq, 2, 1)];
    let step = index.admit(&rows).expect("sound");
    let sources = [0, 1, 2].map(|i| source(step.auxiliary(i)));
    assert_eq!(sources, [FeatureSource::Missing, FeatureSource::Row(0), FeatureSource::Row(1)].map(Some));
    let last = slot(step.auxiliary(2));
    index.set_len(seq, 3).expect("computed");
    assert_eq!(index.slots().features.taken(), 1, "the last committed position's");

    let rows = [head_row(seq, 3, 7)];
    let step = index.admit(&rows).expect("sound");
    assert_eq!(source(step.auxiliary(0)), Some(FeatureSource::Exact(last)));
    let guess = slot(step.auxiliary(0));
    let rows = [head_row(seq, 4, 8)];
    let step = index.admit(&rows).expect("sound");
    assert_eq!(source(step.auxiliary(0)), Some(FeatureSource::Drafted(guess)));
    let rows = [kept(seq, 3, 7), kept(seq, 4, 8)];
    let step = index.admit(&rows).expect("sound");
    let sources = [0, 1].map(|i| source(step.auxiliary(i)));
    assert_eq!(sources, [FeatureSource::Exact(last), FeatureSource::Row(0)].map(Some));
    index.set_len(seq, 4).expect("computed");
    assert_eq!((index.slots().features.taken(), index.slots().drafted.taken()), (1, 0));
    let rows = [head_row(seq, 4, 7), head_row(seq, 5, 7)];
    assert_eq!(refused(&mut index, &rows), "it reads the state of a row before it that drafts in the same step");
}

#[test]
fn a_sequence_that_dropped_the_auxiliary_layers_never_has_them_again() {
    let mut index = index();
    let seq = committed(&mut index, 5);
    let (with, _) = index.fork(seq, 5).expect("pages are free");
    index.drop_auxiliary(seq).expect("live");
    let (without, _) = index.fork(seq, 5).expect("pages are free");
    let has = |index: &KvIndex, seq| index.sequence(seq).expect("live").auxiliary;
    assert_eq!([seq, with, without].map(|seq| has(&index, seq)), [false, true, false]);
    let why = "its sequence does without the auxiliary layers";
    assert_eq!(refused(&mut index, &[head_row(seq, 5, 1)]), why);
    assert_eq!(refused(&mut index, &[head_row(without, 5, 1)]), why);
    let rows = [full(seq, 5, 1), full(with, 5, 1)];
    let step = index.admit(&rows).expect("sound");
    assert_eq!((step.auxiliary(0), step.auxiliary(1).is_some()), (None, true));
    index.free(seq);
    let new = index.create();
    assert!(new == seq && has(&index, new), "a new sequence has them, whatever its id was before");
}

#[test]
fn a_planted_fault_leaves_one_position_too_many() {
    let mut index = index();
    index.plant_short_rollback();
    let seq = index.create();
    let rows: Vec<Row> = (0..5).map(|pos| full(seq, pos, 1)).collect();
    index.admit(&rows).expect("sound");
    index.set_len(seq, 5).expect("computed");
    assert_eq!(index.sequence(seq).expect("live").len, 5, "nothing was to be rolled back");
    index.set_len(seq, 2).expect("shorter");
    assert_eq!(index.sequence(seq).expect("live").len, 3);
}
