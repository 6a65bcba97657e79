//! The operations between the matrix products: norms, residual sums, and what happens to heads
//! before attention.
//!
//! Each works on rows independently and in one fixed order within a row. Few values are done by the
//! calling thread, many are spread over the team by rows (or by pieces of a row where no reduction
//! runs along it); the bits are the same.

use crate::activations::{Activations, FillShape};
use crate::compute::Compute;
use crate::elementwise::rope::{RopeRows, RopeStyle, rotate};
use crate::format::InputForms;
use crate::simd::{Lanes, Scalar, map_into, per_isa};
use crate::team::SendPtr;

/// Values that make a part worth its claim by a thread: about two microseconds of work.
const GRAIN: usize = 1 << 13;

/// 1 / sqrt(mean of squares + eps). Four vectors of partial sums, added in a fixed order.
#[inline(always)]
fn inverse_rms<L: Lanes>(l: L, x: &[f32], eps: f32) -> f32 {
    let mut sums = [l.zero(); 4];
    let mut whole = x.chunks_exact(4 * L::WIDTH);
    for part in whole.by_ref() {
        for (i, sum) in sums.iter_mut().enumerate() {
            let v = l.load(&part[i * L::WIDTH..][..L::WIDTH]);
            *sum = l.fma(v, v, *sum);
        }
    }
    for (part, sum) in whole.remainder().chunks(L::WIDTH).zip(&mut sums) {
        let v = l.load(part);
        *sum = l.fma(v, v, *sum);
    }
    let sum = l.sum(l.add(l.add(sums[0], sums[1]), l.add(sums[2], sums[3])));
    1.0 / (sum / x.len() as f32 + eps).sqrt()
}

#[inline(always)]
fn norm_row<L: Lanes>(l: L, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let inverse = l.splat(inverse_rms(l, x, eps));
    map_into(l, x, weight, out, |x, weight, _| l.mul(l.mul(x, inverse), weight));
}

#[inline(always)]
fn norm_in_place<L: Lanes>(l: L, x: &mut [f32], weight: &[f32], eps: f32) {
    let inverse = l.splat(inverse_rms(l, x, eps));
    map_into(l, weight, weight, x, |weight, _, x| l.mul(l.mul(x, inverse), weight));
}

#[inline(always)]
fn add_row<L: Lanes>(l: L, y: &[f32], post_norm: Option<(&[f32], f32)>, hidden: &mut [f32]) {
    let Some((weight, eps)) = post_norm else {
        map_into(l, y, y, hidden, |y, _, hidden| l.add(hidden, y));
        return;
    };
    let inverse = l.splat(inverse_rms(l, y, eps));
    map_into(l, y, weight, hidden, |y, weight, hidden| l.add(hidden, l.mul(l.mul(y, inverse), weight)));
}

/// The steps of [`Compute::heads`] for each row.
#[derive(Clone, Copy)]
struct HeadSteps<'a> {
    head_dim: usize,
    bias: Option<&'a [f32]>,
    norm: Option<(&'a [f32], f32)>,
    style: RopeStyle,
}

/// One row of heads. Shape of `x`: (heads, head_dim); of `cos` and `sin`: (rot / 2).
#[inline(always)]
fn heads_row<L: Lanes>(l: L, x: &mut [f32], job: &HeadSteps<'_>, cos: &[f32], sin: &[f32]) {
    if let Some(bias) = job.bias {
        add_row(l, bias, None, x);
    }
    for head in x.chunks_exact_mut(job.head_dim) {
        if let Some((weight, eps)) = job.norm {
            norm_in_place(l, head, weight, eps);
        }
        rotate(head, cos, sin, job.style);
    }
}

per_isa! {
    fn norm_rows(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) = |l| norm_row(l, x, weight, eps, out)
}
per_isa! {
    fn add_rows(y: &[f32], post_norm: Option<(&[f32], f32)>, hidden: &mut [f32]) = |l| add_row(l, y, post_norm, hidden)
}
per_isa! {
    fn heads_rows(x: &mut [f32], job: &HeadSteps<'_>, cos: &[f32], sin: &[f32]) = |l| heads_row(l, x, job, cos, sin)
}

/// Root-mean-square norm in place: x / sqrt(mean(x^2) + eps) * weight. Shape of `x` and `weight`:
/// (dim).
///
/// It runs portable code: the bits are the same on every machine, and those of [`Compute::norm`]
/// within rounding.
///
/// # Panics
/// If `weight` is not as long as `x`.
pub fn rms_norm(x: &mut [f32], weight: &[f32], eps: f32) {
    assert!(x.len() == weight.len(), "{} values and {} norm weights", x.len(), weight.len());
    norm_in_place(Scalar::<4>, x, weight, eps);
}

/// # Panics
/// Unless `values` is a whole number of rows of `dim`, and every index is in range.
fn check_index(what: &str, values: usize, dim: usize, index: &[usize]) {
    assert!(dim > 0 && values.is_multiple_of(dim), "{values} {what} values are no whole number of rows of {dim}");
    let rows = values / dim;
    for i in index {
        assert!(*i < rows, "row {i} of {rows} {what} rows");
    }
}

impl Compute {
    /// Root-mean-square norm of chosen rows, as the input of matrix products: row i of `x` becomes
    /// `hidden[index[i]] / sqrt(mean of squares + eps) * weight`, in the representations `inputs`.
    ///
    /// `hidden`: (any number of rows, dim); `weight`: (dim). A NaN in a row makes all of its output
    /// NaN.
    ///
    /// # Panics
    /// If `hidden` is not a whole number of rows, an index is out of range, or `weight` has another
    /// length.
    #[allow(clippy::too_many_arguments)]
    pub fn norm(
        &self,
        hidden: &[f32],
        dim: usize,
        index: &[usize],
        weight: &[f32],
        eps: f32,
        inputs: InputForms,
        x: &mut Activations,
    ) {
        check_index("hidden", hidden.len(), dim, index);
        assert!(weight.len() == dim, "{} norm weights for rows of {dim}", weight.len());
        let isa = self.isa();
        let shape = FillShape { rows: index.len(), k: dim, inputs, grain: GRAIN };
        x.fill(self.team(), isa, shape, |row, out| {
            norm_rows(isa, &hidden[index[row] * dim..][..dim], weight, eps, out);
        });
    }

    /// Adds rows to chosen hidden rows: `hidden[index[i]] += y[i]`, or `+= rms_norm(y[i])` with
    /// `post_norm`, its weight (dim) and eps.
    ///
    /// `y`: (index.len(), dim); `hidden`: (any number of rows, dim). If an index occurs twice, both
    /// rows are added, in order.
    ///
    /// # Panics
    /// If a length does not fit `dim` and `index`, or an index is no row of `hidden`.
    pub fn add(&self, y: &[f32], dim: usize, index: &[usize], post_norm: Option<(&[f32], f32)>, hidden: &mut [f32]) {
        check_index("hidden", hidden.len(), dim, index);
        assert!(y.len() == index.len() * dim, "{} values for {} rows of {dim}", y.len(), index.len());
        if let Some((weight, _)) = post_norm {
            assert!(weight.len() == dim, "{} norm weights for rows of {dim}", weight.len());
        }
        let isa = self.isa();
        let ascending = index.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascending || y.len() < 4 * GRAIN {
            for (y, i) in y.chunks_exact(dim).zip(index) {
                add_rows(isa, y, post_norm, &mut hidden[i * dim..][..dim]);
            }
            return;
        }
        let rows = GRAIN.div_ceil(dim);
        let hidden = SendPtr(hidden.as_mut_ptr());
        self.team().run(index.len().div_ceil(rows), &|part| {
            let from = part * rows;
            let to = index.len().min(from + rows);
            for (y, i) in y[from * dim..to * dim].chunks_exact(dim).zip(&index[from..to]) {
                // SAFETY: row i is in `hidden` (checked above); the index ascends, so no other part
                // has the same row, and `hidden` is borrowed until `run` returns.
                let hidden = unsafe { std::slice::from_raw_parts_mut(hidden.get().add(i * dim), dim) };
                add_rows(isa, y, post_norm, hidden);
            }
        });
    }

    /// Prepares queries or keys for attention, in place: adds `bias`, (heads * head_dim),
    /// normalises each head with `norm`, its weight (head_dim) and eps, then rotates the first
    /// `rope.rot` dimensions of each head.
    ///
    /// `x`: (row, heads, head_dim).
    ///
    /// # Panics
    /// If a length does not fit `heads` and `head_dim`, or the angles do not fit the number of
    /// rows.
    pub fn heads(
        &self,
        x: &mut [f32],
        heads: usize,
        head_dim: usize,
        bias: Option<&[f32]>,
        norm: Option<(&[f32], f32)>,
        rope: &RopeRows<'_>,
    ) {
        let width = heads * head_dim;
        check_index("head", x.len(), width, &[]);
        rope.check(x.len() / width, head_dim);
        if let Some(bias) = bias {
            assert!(bias.len() == width, "{} biases for rows of {width}", bias.len());
        }
        if let Some((weight, _)) = norm {
            assert!(weight.len() == head_dim, "{} norm weights for heads of {head_dim}", weight.len());
        }
        let isa = self.isa();
        let job = HeadSteps { head_dim, bias, norm, style: rope.style };
        let rows = GRAIN.div_ceil(width);
        let run = |part: usize, x: &mut [f32]| {
            for (i, x) in x.chunks_exact_mut(width).enumerate() {
                let (cos, sin) = rope.row(part * rows + i);
                heads_rows(isa, x, &job, cos, sin);
            }
        };
        if x.len() < 2 * GRAIN {
            x.chunks_mut(rows * width).enumerate().for_each(|(part, x)| run(part, x));
        } else {
            self.team().chunks_mut(x, rows * width, run);
        }
    }
}
