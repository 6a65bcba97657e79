//! A [`Backend`](selfspec_model::Backend) without a model, for tests of everything above the
//! forward pass.
//!
//! Logits are a function of the last few tokens. The KV index is the product's own, so every rule
//! of the contract is checked as on the CPU. Its executor records the provenance of K and V and
//! refuses to read what is stale: a test that passes on it has not read a stale cache.

mod executor;
mod options;

use selfspec_model::PagedBackend;

pub use executor::FakeExecutor;
pub use options::FakeOptions;

/// A backend without a model.
pub type FakeTarget = PagedBackend<FakeExecutor>;

/// A fake target with an empty cache.
pub fn fake_target(options: FakeOptions) -> FakeTarget {
    PagedBackend::of(FakeExecutor::new(options))
}

#[cfg(test)]
mod tests {
    use selfspec_model::{
        Backend, BackendError, DeviceShape, Enter, Executor, LayerPlan, PageCopy, Readout, Row, SeqId, StepOutput,
        StepReadouts, TokenId, ValidatedStep,
    };

    use super::*;

    fn row(seq: SeqId, pos: usize, token: TokenId, plan: &LayerPlan) -> Row {
        let keep = !plan.is_full();
        Row { seq, pos, token, enter: Enter::Token, plan: plan.clone(), keep, readout: Readout::Head }
    }

    /// An executor that does without page copies.
    struct WithoutCopies(FakeExecutor);

    impl Executor for WithoutCopies {
        fn shape(&self) -> DeviceShape {
            self.0.shape()
        }
        fn copy_pages(&mut self, _: &[PageCopy]) {}
        fn run(
            &mut self,
            step: &ValidatedStep<'_>,
            readouts: &StepReadouts<'_>,
            out: &mut StepOutput,
        ) -> Result<(), BackendError> {
            self.0.run(step, readouts, out)
        }
    }

    /// Two sequences that share a page and then go on differently.
    fn fork_and_go_on(target: &mut dyn Backend) -> Result<(), BackendError> {
        let (full, mut out) = (LayerPlan::full(target.n_layers()), StepOutput::default());
        let seq = target.create();
        let rows: Vec<Row> = (0..20).map(|pos| row(seq, pos, 1, &full)).collect();
        target.step(&rows, &mut out)?;
        target.set_len(seq, 20)?;
        let fork = target.fork(seq, 18)?;
        target.step(&[row(fork, 18, 2, &full), row(seq, 20, 3, &full)], &mut out)
    }

    #[test]
    fn a_lost_page_copy_is_found() {
        fork_and_go_on(&mut fake_target(FakeOptions::default())).expect("sound");
        let mut wrong = PagedBackend::of(WithoutCopies(FakeExecutor::new(FakeOptions::default())));
        let error = fork_and_go_on(&mut wrong).expect_err("found");
        assert!(error.to_string().contains("a position before it was never computed"), "{error}");
    }

    #[test]
    fn a_verified_draft_leaves_what_plain_decoding_leaves() {
        let mut target = fake_target(FakeOptions::default());
        let (full, exit) = (LayerPlan::full(8), LayerPlan::exit(8, 4).expect("valid"));
        let (seq, mut out) = (target.create(), StepOutput::default());
        target.step(&[row(seq, 0, 5, &full)], &mut out).expect("fits");
        target.set_len(seq, 1).expect("computed");
        target.step(&[row(seq, 1, 6, &exit)], &mut out).expect("a draft row");
        assert!(target.set_len(seq, 2).is_err(), "a drafted position is not computed");
        let kept = |pos, token| Row { enter: Enter::Kept, keep: false, ..row(seq, pos, token, &full) };
        target.step(&[kept(1, 6), row(seq, 2, 7, &full)], &mut out).expect("a verification");
        assert_eq!(out.layer_rows, 4 + 8);
        target.set_len(seq, 3).expect("computed in every layer");
        target.set_len(seq, 2).expect("shorter always goes");
        target.step(&[row(seq, 2, 8, &full)], &mut out).expect("another continuation");
        assert_eq!(out.logits(0), target.executor().options().logits_after(&[5, 6, 8]));
    }

    #[test]
    fn leftovers_of_a_middle_skip_are_not_taken_for_the_models_own() {
        let mut target = fake_target(FakeOptions::default());
        let (full, skip) = (LayerPlan::full(8), LayerPlan::skip_middle(8, 2, 5).expect("valid"));
        let (seq, mut out) = (target.create(), StepOutput::default());
        target.step(&[row(seq, 0, 5, &full)], &mut out).expect("fits");
        target.set_len(seq, 1).expect("computed");
        target.step(&[row(seq, 1, 6, &skip)], &mut out).expect("a draft row");
        target.step(&[row(seq, 2, 7, &skip)], &mut out).expect("a draft may see drafts");
        let refused = target.step(&[row(seq, 2, 7, &full)], &mut out).expect_err("refused");
        assert!(refused.to_string().contains("positions that were only drafted"), "{refused}");
        assert!(target.set_len(seq, 2).is_err());
    }
}
