//! [`Compute::gated`]: the gate and up products of a feed-forward layer, the activation, and the
//! 8-bit blocks for the product that follows, in one fork-join.
//!
//! A part of the work is a few columns of both matrices. The thread that computes them applies the
//! activation while they are in its cache, and quantises the blocks. So no data moves between the
//! cores, and no thread waits in between.

use crate::activations::{Activations, BLOCK};
use crate::compute::Compute;
use crate::format::InputForms;
use crate::matmul::{PANEL, PanelMatrix, panel_tile, parts_for};
use crate::simd::{Lanes, exp_of_negative, per_isa, reciprocal};

/// The activation function of a gated feed-forward layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GateActivation {
    /// x * sigmoid(x).
    Silu,
    /// GELU in its tanh form: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
    GeluTanh,
}

/// Most rows that go through the activation together.
const ROWS: usize = 8;

/// Lower bound of the argument of the sigmoid, whose value there is 1.6e-38.
const LEAST_SIGMOID: f32 = -87.0;

#[inline(always)]
fn gate_lanes<L: Lanes>(l: L, act: GateActivation, x: L::V, up: L::V) -> L::V {
    let to_sigmoid = match act {
        GateActivation::Silu => x,
        // (1 + tanh u) / 2 is the sigmoid of 2u.
        GateActivation::GeluTanh => {
            let cube = l.mul(l.mul(x, x), x);
            l.mul(l.splat(1.595_769), l.fma(cube, l.splat(0.044_715), x))
        }
    };
    // The bound keeps the exponential finite, and is the first operand, so that a NaN comes
    // through.
    let e = exp_of_negative(l, l.sub(l.zero(), l.max(l.splat(LEAST_SIGMOID), to_sigmoid)));
    l.mul(l.mul(x, reciprocal(l, l.add(l.splat(1.0), e))), up)
}

#[inline(always)]
fn gate_piece<L: Lanes>(l: L, act: GateActivation, gate: &[f32], up: &mut [f32]) {
    assert!(gate.len() == up.len() && gate.len().is_multiple_of(16), "whole vectors of gate and up values");
    // No helper that takes a closure: a closure this large is not inlined, and would be compiled
    // without the instruction set.
    for (gate, up) in gate.chunks_exact(L::WIDTH).zip(up.chunks_exact_mut(L::WIDTH)) {
        l.store(gate_lanes(l, act, l.load(gate), l.load(up)), up);
    }
}

per_isa! {
    /// Each value of `up` becomes `act(gate) * up`.
    fn gate_pieces(act: GateActivation, gate: &[f32], up: &mut [f32]) = |l| gate_piece(l, act, gate, up)
}

impl Compute {
    /// Row i of `out` becomes `act(gate * x[i]) * (up * x[i])`, as the input of the next matrix
    /// product, in the representations `inputs`. The bits of a row depend on that row of `x` and
    /// the weights only.
    ///
    /// # Panics
    /// If the matrices differ in shape or have another `k` than `x`, or `x` lacks the
    /// representation that one of them needs.
    pub fn gated(
        &self,
        act: GateActivation,
        x: &Activations,
        gate: &PanelMatrix,
        up: &PanelMatrix,
        inputs: InputForms,
        out: &mut Activations,
    ) {
        assert!(gate.n() == up.n() && gate.k() == up.k(), "{gate:?} and {up:?} differ in shape");
        for w in [gate, up] {
            w.check_input(self.isa(), x);
        }
        let (isa, rows, n) = (self.isa(), x.rows(), gate.n());
        let writer = out.prepare(isa, rows, n, inputs);
        if rows == 0 {
            return;
        }
        const PANELS: usize = BLOCK / PANEL;
        let blocks = n.div_ceil(BLOCK);
        let parts = parts_for(self.team().threads(), gate.size_bytes() + up.size_bytes(), rows, blocks);
        self.team().run(parts, &|part| {
            let mut gates = [[0f32; BLOCK]; ROWS];
            let mut ups = [[0f32; BLOCK]; ROWS];
            for block in blocks * part / parts..blocks * (part + 1) / parts {
                let panels = block * PANELS..((block + 1) * PANELS).min(gate.panels());
                for first in (0..rows).step_by(ROWS) {
                    let count = ROWS.min(rows - first);
                    for (w, out) in [(gate, &mut gates), (up, &mut ups)] {
                        for (i, p) in panels.clone().enumerate() {
                            // SAFETY: shapes were checked above, and rows first..first + count are
                            // in `x`; `out` has room for that many rows of 32, of which this panel
                            // writes 16 columns.
                            unsafe {
                                let out = out.as_mut_ptr().cast::<f32>().add(i * PANEL);
                                panel_tile(isa, w, p, x, first..first + count, out, BLOCK);
                            }
                        }
                    }
                    let (from, len) = (block * BLOCK, BLOCK.min(n - block * BLOCK));
                    let (gates, ups) = (&gates[..count], &mut ups[..count]);
                    gate_pieces(isa, act, gates.as_flattened(), ups.as_flattened_mut());
                    if len < BLOCK {
                        // Zeros pad the block beyond the last column.
                        ups.iter_mut().for_each(|row| row[len..].fill(0.0));
                    }
                    // SAFETY: `out` is borrowed until `run` returns, and this block's columns
                    // belong to this part alone.
                    unsafe { writer.put_column(first, from, len, ups) };
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Isa;

    #[test]
    fn activations_agree_with_f64_far_out_and_let_nan_through() {
        let mut gate: Vec<f32> = (-4000..4000).map(|i| i as f32 / 100.0).collect();
        gate.extend([
            -0.0, 1e-30, -1e-30, 86.9, -86.9, 87.1, -87.1, 200.0, -200.0, 1e4, -1e4, 3e38, -1e30, 0.0, 1.0, -1.0,
        ]);
        let (numbers, nan) = (gate.len(), f32::NAN);
        gate.extend([nan; 16]);
        for isa in Isa::available() {
            for act in [GateActivation::Silu, GateActivation::GeluTanh] {
                let mut got = vec![0.5; gate.len()];
                gate_pieces(isa, act, &gate, &mut got);
                assert!(got[numbers..].iter().all(|y| y.is_nan()), "{isa} {act:?}");
                for (got, g) in got[..numbers].iter().zip(&gate) {
                    let g = f64::from(*g);
                    let to_sigmoid = match act {
                        GateActivation::Silu => g,
                        GateActivation::GeluTanh => (8.0 / std::f64::consts::PI).sqrt() * (g + 0.044715 * g * g * g),
                    };
                    let y = 0.5 * g / (1.0 + (-to_sigmoid).exp());
                    let error = (f64::from(*got) - y).abs();
                    assert!(error <= 3e-6 * y.abs() + 1e-7, "{isa} {act:?} of {g}: {got} for {y}");
                }
            }
        }
    }
}
