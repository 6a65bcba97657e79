//! RMS norms of rows, and their gradients.

use crate::math::wide::{dot, dot3, wide};

wide! {
    /// `out = x / sqrt(mean of squares + eps) * weight` for each part of each row; `inverse` keeps
    /// the factor of each part.
    ///
    /// `x`, `out`: (row, part, width); `inverse`: (row, part); `weight`: (part, width).
    pub(crate) fn norm<'a>(x: &'a [f32], width: usize, weight: &'a [f32], eps: f32, inverse: &'a mut [f32], out: &'a mut [f32]) {
        let weights = weight.chunks_exact(width).cycle();
        for (((x, inverse), out), weight) in x.chunks_exact(width).zip(inverse).zip(out.chunks_exact_mut(width)).zip(weights) {
            *inverse = 1.0 / (dot(x, x) / width as f32 + eps).sqrt();
            scale(x, weight, *inverse, out);
        }
    }

    /// As [`norm`], for rows whose factors are known.
    pub(crate) fn norm_again<'a>(x: &'a [f32], width: usize, weight: &'a [f32], inverse: &'a [f32], out: &'a mut [f32]) {
        let weights = weight.chunks_exact(width).cycle();
        for (((x, inverse), out), weight) in x.chunks_exact(width).zip(inverse).zip(out.chunks_exact_mut(width)).zip(weights) {
            scale(x, weight, *inverse, out);
        }
    }

    /// Adds the gradients with respect to `x` to `dx` and with respect to `weight` to `dweight`,
    /// from `dy`, the gradient with respect to the output. Shapes as in [`norm`].
    pub(crate) fn norm_backward<'a>(
        x: &'a [f32],
        width: usize,
        weight: &'a [f32],
        inverse: &'a [f32],
        dy: &'a [f32],
        dx: &'a mut [f32],
        dweight: &'a mut [f32],
    ) {
        let parts = weight.len() / width;
        let rows = x.chunks_exact(width).zip(dy.chunks_exact(width)).zip(dx.chunks_exact_mut(width)).zip(inverse);
        for (i, (((x, dy), dx), inverse)) in rows.enumerate() {
            let at = i % parts * width;
            let (weight, dweight) = (&weight[at..at + width], &mut dweight[at..at + width]);
            let across = dot3(x, dy, weight);
            let back = across * inverse * inverse * inverse / width as f32;
            for ((((dx, dweight), x), dy), weight) in dx.iter_mut().zip(dweight).zip(x).zip(dy).zip(weight) {
                *dx += inverse * weight * dy - back * x;
                *dweight += dy * x * inverse;
            }
        }
    }
}

#[inline(always)]
fn scale(x: &[f32], weight: &[f32], factor: f32, out: &mut [f32]) {
    for ((out, x), w) in out.iter_mut().zip(x).zip(weight) {
        *out = x * factor * w;
    }
}
