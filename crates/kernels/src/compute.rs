//! What the kernels run on: an instruction set and a worker team.

use crate::activations::{Activations, Fill};
use crate::format::Inputs;
use crate::simd::Isa;
use crate::team::Team;

/// An instruction set and a worker team: the entry to the kernels.
#[derive(Debug)]
pub struct Compute {
    isa: Isa,
    team: Team,
}

impl Compute {
    /// Kernels of `isa` on `threads` threads, the caller's included.
    ///
    /// # Panics
    /// If the processor lacks `isa`; a set from [`Isa::detect`], [`Isa::available`] or a parsed name is one that it has.
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

    /// Copies `rows`, shape (row, k), to `x`, in the representations that are wanted.
    ///
    /// # Panics
    /// If `k` is 0 or `rows` is not a whole number of rows.
    pub fn load(&self, rows: &[f32], k: usize, inputs: Inputs, x: &mut Activations) {
        assert!(k > 0 && rows.len().is_multiple_of(k), "{} values are no whole number of rows of {k}", rows.len());
        let shape = Fill { rows: rows.len() / k, k, inputs, grain: 1 << 14 };
        x.fill(&self.team, self.isa, shape, |row, out| out.copy_from_slice(&rows[row * k..][..k]));
    }
}
