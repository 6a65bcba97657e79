//! Rotary position embedding of many rows, and its gradient, which is the rotation back.

use selfspec_kernels::RopeStyle;
use selfspec_model::Rotations;

use crate::layer::span::Span;
use crate::math::wide::wide;

/// The direction of the rotation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// As in the model.
    Forward,
    /// Backwards, for the gradient.
    Back,
}

/// Rotates the heads of the rows of `spans` by the angles of their positions. `x`: (computed row,
/// heads, head_dim).
pub(crate) fn rotate(x: &mut [f32], head_dim: usize, heads: usize, spans: &[Span], by: &Rotations, turn: Turn) {
    let sign = if turn == Turn::Forward { 1.0 } else { -1.0 };
    let width = heads * head_dim;
    for span in spans {
        let places = span.places();
        rotate_rows(&mut x[places.start * width..places.end * width], span.position, head_dim, heads, by, sign);
    }
}

wide! {
    /// Rotates rows of one sequence, which start at `position`.
    fn rotate_rows<'a>(x: &'a mut [f32], position: usize, head_dim: usize, heads: usize, by: &'a Rotations, sign: f32) {
        let half = by.rot / 2;
        if half == 0 {
            return;
        }
        let angles = by.cos.chunks_exact(half).zip(by.sin.chunks_exact(half)).skip(position);
        for (row, (cos, sin)) in x.chunks_exact_mut(heads * head_dim).zip(angles) {
            for head in row.chunks_exact_mut(head_dim) {
                let head = &mut head[..2 * half];
                match by.style {
                    RopeStyle::Interleaved => {
                        for ((pair, c), s) in head.chunks_exact_mut(2).zip(cos).zip(sin) {
                            let (a, b) = (pair[0], pair[1]);
                            pair[0] = a * c - sign * b * s;
                            pair[1] = sign * a * s + b * c;
                        }
                    }
                    RopeStyle::Halves => {
                        let (first, second) = head.split_at_mut(half);
                        for (((x, y), c), s) in first.iter_mut().zip(second).zip(cos).zip(sin) {
                            let (a, b) = (*x, *y);
                            *x = a * c - sign * b * s;
                            *y = sign * a * s + b * c;
                        }
                    }
                }
            }
        }
    }
}
