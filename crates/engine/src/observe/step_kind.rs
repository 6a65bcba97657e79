//! Kinds of steps, by which their time is counted.

use selfspec_model::{Enter, Readout, Row};

/// The kind of a step: the first that applies, in the order of [`StepKind::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StepKind {
    /// A sequence reads its prompt.
    Prefill,
    /// A sequence drafts with the model.
    Draft,
    /// A sequence verifies its drafts.
    Verify,
    /// Each sequence decodes one token.
    Plain,
}

impl StepKind {
    /// All kinds.
    pub const ALL: [StepKind; 4] = [StepKind::Prefill, StepKind::Draft, StepKind::Verify, StepKind::Plain];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            StepKind::Prefill => "prefill",
            StepKind::Draft => "draft",
            StepKind::Verify => "verify",
            StepKind::Plain => "plain",
        }
    }

    /// The kind of a step of these rows, each sequence's rows together.
    pub(crate) fn of(rows: &[Row]) -> StepKind {
        if rows.iter().any(|row| row.readout == Readout::Nothing) {
            StepKind::Prefill
        } else if rows.iter().any(|row| !row.plan.is_full()) {
            StepKind::Draft
        } else if rows.iter().any(|row| row.enter == Enter::Kept) || rows.windows(2).any(|two| two[0].seq == two[1].seq)
        {
            StepKind::Verify
        } else {
            StepKind::Plain
        }
    }
}

#[cfg(test)]
mod tests {
    use selfspec_model::{LayerPlan, SeqId};

    use super::*;

    #[test]
    fn steps_are_told_apart_by_their_rows() {
        let row = |seq: u32, enter: Enter, layers: usize, readout: Readout| Row {
            seq: SeqId(seq),
            pos: 3,
            token: 1,
            enter,
            plan: LayerPlan::exit(8, layers).expect("valid"),
            keep: false,
            readout,
        };
        let plain = |seq| row(seq, Enter::Token, 8, Readout::Head);
        let draft = |seq| row(seq, Enter::Token, 2, Readout::Head);
        let prompt = |seq| row(seq, Enter::Token, 8, Readout::Nothing);
        let kept = |seq| row(seq, Enter::Kept, 8, Readout::Head);
        assert_eq!(StepKind::of(&[plain(0), plain(1)]), StepKind::Plain);
        assert_eq!(StepKind::of(&[plain(0), plain(1), plain(1)]), StepKind::Verify, "copied drafts");
        assert_eq!(StepKind::of(&[plain(0), kept(1)]), StepKind::Verify);
        assert_eq!(StepKind::of(&[kept(0), draft(1)]), StepKind::Draft);
        assert_eq!(StepKind::of(&[draft(0), prompt(1), plain(1)]), StepKind::Prefill);
    }
}
