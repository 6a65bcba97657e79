//! The record of one kind of offer of a drafter: its acceptance, whether it drafts, and when it is
//! probed next.

use crate::policy::acceptance::AcceptanceRecord;
use crate::policy::drafter_off::DrafterOff;

/// Generated tokens between the first two probes of an offer that is off; each failed probe doubles
/// it.
const FIRST_PAUSE: usize = 32;
/// Longest pause between two probes, in generated tokens.
const LONGEST_PAUSE: usize = 512;
/// Weight, in verified drafts, that the record keeps when a pause begins.
const WEIGHT_AT_PAUSE: f64 = 6.0;
/// Weight, in verified drafts, that the record keeps when probes begin again after a pause.
const WEIGHT_AT_PROBE: f64 = 2.0;

/// How the drafts of one kind of offer fare in a sequence.
#[derive(Debug, Clone)]
pub(crate) struct OfferRecord {
    pub(crate) acceptance: AcceptanceRecord,
    pub(crate) off: Option<DrafterOff>,
    working: bool,
    offered: bool,
    next_probe: usize, // generated tokens before the next probe
    pause: usize,      // generated tokens
}

impl Default for OfferRecord {
    fn default() -> Self {
        let acceptance = AcceptanceRecord::default();
        OfferRecord { acceptance, off: None, working: false, offered: false, next_probe: 0, pause: FIRST_PAUSE }
    }
}

impl OfferRecord {
    /// Whether the drafter has made such an offer.
    pub(crate) fn was_offered(&self) -> bool {
        self.offered
    }

    /// Records an offer. True for the first one.
    pub(crate) fn record_offer(&mut self) -> bool {
        !std::mem::replace(&mut self.offered, true)
    }

    /// Such offers draft from now on.
    pub(crate) fn turn_on(&mut self) {
        if !std::mem::replace(&mut self.working, true) {
            self.pause = (self.pause / 2).max(FIRST_PAUSE);
            self.off = None;
        }
    }

    /// Such offers draft no more. True if they did until now.
    pub(crate) fn turn_off(&mut self) -> bool {
        std::mem::take(&mut self.working)
    }

    /// Waits one pause before the next probe, without a longer pause after it.
    pub(crate) fn delay_probe(&mut self, generated: usize) {
        self.next_probe = generated + self.pause;
    }

    /// Pauses such offers, twice as long each time.
    pub(crate) fn pause(&mut self, generated: usize) {
        self.delay_probe(generated);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.off = None; // to be set anew, with the present figures
        self.acceptance.limit_weight(WEIGHT_AT_PAUSE);
    }

    /// Whether the pause before the next probe goes on.
    pub(crate) fn is_paused(&self, generated: usize) -> bool {
        generated < self.next_probe
    }

    /// Begins a probe. After a pause the old record counts little; probes go on until one fails.
    pub(crate) fn begin_probe(&mut self) {
        if std::mem::take(&mut self.next_probe) > 0 {
            self.acceptance.limit_weight(WEIGHT_AT_PROBE);
        }
    }
}
