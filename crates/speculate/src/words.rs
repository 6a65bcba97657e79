//! The sentences for people about what the speculation policy decided. The policy itself returns
//! data.

use std::fmt;

use crate::policy::drafter_off::{DrafterOff, DrafterOffCause};
use crate::policy::round_reason::RoundReason;
use crate::stats::SpecStats;

impl fmt::Display for RoundReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RoundReason::Off => f.write_str("speculation is off"),
            RoundReason::Always => f.write_str("always drafts"),
            RoundReason::Pays { speedup } => write!(f, "pays: predicted speed-up {speedup:.2}"),
            RoundReason::Probe { speedup } => write!(f, "probe: predicted speed-up {speedup:.2} so far"),
            RoundReason::NoOffer => f.write_str("nothing to propose"),
            RoundReason::LastToken => f.write_str("one token left"),
            RoundReason::TimesPlainStep => f.write_str("times a plain step"),
            RoundReason::LowConfidence => f.write_str("the draft is too unsure"),
            RoundReason::Unprofitable { speedup } => write!(f, "does not pay: predicted speed-up {speedup:.2}"),
            RoundReason::BestLengthOne { speedup } => {
                write!(f, "best draft length 1, predicted speed-up {speedup:.2}")
            }
            RoundReason::LossBudgetSpent { lost } => write!(f, "has cost {lost:.1} plain steps so far"),
            RoundReason::Prompt => f.write_str("end of the prompt"),
        }
    }
}

/// `layer skip off: predicted speed-up 0.87, expected acceptance 0.31 after 12 judged drafts (a
/// draft of layers 0..15 costs 0.60 plain steps, the verification of 2 1.10)`.
impl fmt::Display for DrafterOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} off: ", self.drafter)?;
        match self.cause {
            DrafterOffCause::Unprofitable { speedup } => write!(f, "predicted speed-up {speedup:.2}")?,
            DrafterOffCause::BestLengthOne { speedup } => {
                write!(f, "predicted speed-up {speedup:.2} and best draft length 1")?;
            }
            DrafterOffCause::LossBudgetSpent { lost } => write!(f, "it has cost {lost:.1} plain steps so far")?,
        }
        let judged = self.judged.round();
        let drafts = if judged == 1.0 { "draft" } else { "drafts" };
        write!(f, ", expected acceptance {:.2} after {judged:.0} judged {drafts} (", self.acceptance)?;
        if let Some((path, cost)) = &self.draft_step {
            write!(f, "a draft of {path} costs {cost:.2} plain steps, ")?;
        }
        write!(f, "the verification of {} {:.2})", self.draft_len, self.verification)
    }
}

impl SpecStats {
    /// Why drafters are off at present, with the figures behind it; `None` while none is off.
    pub fn off_reason(&self) -> Option<String> {
        let sentences: Vec<String> = self.drafters_off.iter().map(DrafterOff::to_string).collect();
        (!sentences.is_empty()).then(|| sentences.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use selfspec_model::{LayerPlan, Readout};

    use super::*;
    use crate::draft::kind::DrafterKind;
    use crate::draft::path::DraftPath;

    #[test]
    fn a_drafter_that_is_off_says_why_with_its_figures() {
        let path = DraftPath { plan: LayerPlan::exit(10, 5).expect("valid"), readout: Readout::Head };
        let mut off = DrafterOff {
            drafter: DrafterKind::LayerSkip,
            cause: DrafterOffCause::BestLengthOne { speedup: 1.084 },
            acceptance: 0.651,
            judged: 6.4,
            draft_step: Some((path, 0.5)),
            draft_len: 2,
            verification: 1.1,
        };
        let figures = "6 judged drafts (a draft of layers 0..5 costs 0.50 plain steps, the verification of 2 1.10)";
        let expected = "layer skip off: predicted speed-up 1.08 and best draft length 1, expected acceptance 0.65";
        assert_eq!(off.to_string(), format!("{expected} after {figures}"));
        off =
            DrafterOff { cause: DrafterOffCause::LossBudgetSpent { lost: 1.25 }, judged: 0.9, draft_step: None, ..off };
        let stats = SpecStats { drafters_off: vec![off.clone(), off], ..SpecStats::default() };
        let one = "layer skip off: it has cost 1.2 plain steps so far, expected acceptance 0.65 after 1 judged draft \
                   (the verification of 2 1.10)";
        assert_eq!(stats.off_reason(), Some(format!("{one}; {one}")));
        assert_eq!(SpecStats::default().off_reason(), None);
    }
}
