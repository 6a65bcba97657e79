//! [`Compute`]: the instruction set and the worker team that kernels run on.

use crate::simd::Isa;
use crate::team::Team;

/// An instruction set and a worker team: the entry to the kernels.
#[derive(Debug)]
pub struct Compute {
    isa: Isa,
    team: Team,
}

impl Compute {
    /// Kernels of `isa` on `threads` threads, including the calling thread.
    ///
    /// # Panics
    /// If the processor lacks `isa`. It has every set that [`Isa::detect`], [`Isa::available`] or a
    /// parsed name gives.
    pub fn new(isa: Isa, threads: usize) -> Compute {
        assert!(isa.is_available(), "this processor cannot run the instruction set {isa}");
        Compute { isa, team: Team::new(threads) }
    }

    /// The instruction set.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The worker team.
    pub fn team(&self) -> &Team {
        &self.team
    }
}
