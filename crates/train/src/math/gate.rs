//! The gated activation of a feed-forward layer, and its gradient.

use selfspec_kernels::GateActivation;

use crate::math::wide::{exp, wide};

/// The argument of the sigmoid, and its derivative: both activations are x times a sigmoid.
#[inline(always)]
fn to_sigmoid(act: GateActivation, x: f32) -> (f32, f32) {
    match act {
        GateActivation::Silu => (x, 1.0),
        // GELU in its tanh form: (1 + tanh u) / 2 is the sigmoid of 2u.
        GateActivation::GeluTanh => {
            let (scale, cubic) = (1.595_769, 0.044_715);
            (scale * (x + cubic * x * x * x), scale * (1.0 + 3.0 * cubic * x * x))
        }
    }
}

wide! {
    /// `out = act(gate) * up`, value by value.
    pub(crate) fn gated<'a>(act: GateActivation, gate: &'a [f32], up: &'a [f32], out: &'a mut [f32]) {
        for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
            let (u, _) = to_sigmoid(act, *gate);
            *out = gate / (1.0 + exp(-u)) * up;
        }
    }

    /// Replaces `gate` and `up` by the gradients with respect to them, from `d`, the gradient with
    /// respect to the product.
    pub(crate) fn gated_backward<'a>(act: GateActivation, gate: &'a mut [f32], up: &'a mut [f32], d: &'a [f32]) {
        for ((gate, up), d) in gate.iter_mut().zip(up).zip(d) {
            let (u, slope) = to_sigmoid(act, *gate);
            let sigmoid = 1.0 / (1.0 + exp(-u));
            let value = *gate * sigmoid;
            let derivative = sigmoid + value * (1.0 - sigmoid) * slope;
            *gate = d * *up * derivative;
            *up = d * value;
        }
    }
}
