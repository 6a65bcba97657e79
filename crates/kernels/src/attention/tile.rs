//! The kernel of attention: a few queries against one block of positions.
//!
//! A block is [`BLOCK`] positions counted from position 0 of the sequence, two pages. For each
//! query the result is a *partial*: the largest score m, the sum l of exp(score - m), and the sum
//! of exp(score - m) * V. Partials of consecutive blocks are always merged in ascending order, even
//! if one thread computes them all. So the bits of a row depend neither on the division of the work
//! nor on the threads that did it.
//!
//! Within a block every sum has one order too. A score runs over the head's dimensions in ascending
//! order, one multiply-add chain for each (query, position). The sum over V runs over positions in
//! ascending order, one chain for each (query, dimension). l is summed in lanes. The number of
//! queries or positions that share a register tile changes no chain. Positions that a query does
//! not see take no part in its sums, so their contents (another owner's K and V, or NaN) cannot
//! matter.

use crate::attention::kv_type::Element;
use crate::attention::pages::{HeadPage, K_BLOCK, PAGE_POSITIONS, v_stride};
use crate::simd::Isa;
use crate::simd::{Lanes, exp_of_negative, per_isa, prefetch};

/// Positions in a block: the unit of the softmax and of the division among threads.
pub(crate) const BLOCK: usize = 2 * PAGE_POSITIONS;

/// Most queries in a tile.
pub(crate) const TILE: usize = 12;

/// Queries in a tile: as many as the set's registers can serve at full speed.
pub(crate) fn tile_queries(isa: Isa) -> usize {
    match isa {
        Isa::Avx512Vnni => TILE,
        Isa::Avx2 | Isa::Neon | Isa::Scalar => TILE / 2,
    }
}

/// A tile of queries and the block of positions that they attend to.
pub(crate) struct QueryTile<'a, E> {
    /// The block's pages. A page that no query sees may be `None`.
    pub(crate) pages: [Option<HeadPage<'a, E>>; 2],
    /// First page of the next block, for prefetching.
    pub(crate) next: Option<HeadPage<'a, E>>,
    /// The queries: (head_dim) each.
    pub(crate) q: [&'a [f32]; TILE],
    /// Positions that each query sees, counted from the block's first: `from..to`, empty if `from
    /// >= to`.
    pub(crate) from: [usize; TILE],
    pub(crate) to: [usize; TILE],
    /// Dimensions of a head.
    pub(crate) dim: usize,
    /// Factor of the scores.
    pub(crate) scale: f32,
}

/// Length of a partial: the weighted sum of V (padded), then m, then l. A query that sees nothing
/// has l = 0.
pub(crate) fn partial_len(dim: usize) -> usize {
    v_stride(dim) + 2
}

/// Values of the cache in a cache line.
const fn line_values<E>() -> usize {
    64 / size_of::<E>()
}

/// Vectors that a tile of `n` queries works on together: the most whose sums fit the registers, of
/// which there are 32 with 16 lanes and 16 with fewer. Each vector is widened to f32 once for the
/// tile, so many queries on few vectors cost least.
const fn width<L: Lanes>(n: usize) -> usize {
    match (L::WIDTH == 16, n) {
        (true, ..=6) | (false, ..=3) => 4,
        _ => 2,
    }
}

/// Dot products of N queries with the NB vectors of positions that start at position `at` of a
/// page.
///
/// # Safety
/// Each of `q` must be readable for `dim` values, `k` for a page's keys, `scales` for a page's
/// scales if the type has them; `at` must be a multiple of the vector's width and `at + NB * WIDTH
/// <= PAGE_POSITIONS`; each of `out` must be writable for `at + NB * WIDTH` values.
#[inline(always)]
unsafe fn scores<L: Lanes, E: Element, const N: usize, const NB: usize>(
    l: L,
    q: &[*const f32; N],
    dim: usize,
    (k, scales): (*const E, *const f32),
    ahead: *const E,
    at: usize,
    out: &[*mut f32; N],
) {
    let mut acc = [[l.zero(); NB]; N];
    let offset = |b: usize| {
        let position = at + b * L::WIDTH;
        position / K_BLOCK * K_BLOCK * dim + position % K_BLOCK
    };
    for i in 0..dim {
        let line = i * K_BLOCK;
        if line.is_multiple_of(line_values::<E>()) {
            for b in (0..NB).step_by(K_BLOCK / L::WIDTH) {
                prefetch(ahead.wrapping_add(offset(b) + line));
            }
        }
        let mut keys = [l.zero(); NB];
        for (b, keys) in keys.iter_mut().enumerate() {
            // SAFETY: position at + b * WIDTH .. + WIDTH is within the page, and does not cross a
            // block of 16.
            *keys = unsafe { E::load(l, k.add(offset(b) + line)) };
        }
        for (acc, q) in acc.iter_mut().zip(q) {
            // SAFETY: i < dim.
            let x = l.splat(unsafe { *q.add(i) });
            for (acc, keys) in acc.iter_mut().zip(keys) {
                *acc = l.fma(x, keys, *acc);
            }
        }
    }
    for (acc, out) in acc.iter().zip(out) {
        for (b, acc) in acc.iter().enumerate() {
            let at = at + b * L::WIDTH;
            // SAFETY: position `at` .. + WIDTH is within the page, and the caller gives room for as
            // many values.
            unsafe {
                let score = if E::SCALED { l.mul(*acc, l.load_at(scales.add(at))) } else { *acc };
                l.store_at(score, out.add(at));
            }
        }
    }
}

/// Adds `count` rows of V, weighted by `p`, to the sums of N queries: DV vectors of dimensions.
///
/// # Safety
/// Each of `p` must be readable for `count` values, each of `acc` readable and writable for DV
/// vectors, and `v` readable for DV vectors in each of `count` rows that lie `stride` values apart.
#[inline(always)]
unsafe fn weigh<L: Lanes, E: Element, const N: usize, const DV: usize>(
    l: L,
    p: &[*const f32; N],
    v: *const E,
    ahead: *const E,
    stride: usize,
    count: usize,
    acc: &[*mut f32; N],
) {
    let mut sums = [[l.zero(); DV]; N];
    for (sums, acc) in sums.iter_mut().zip(acc) {
        for (d, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the caller lets us read DV vectors.
            *sum = unsafe { l.load_at(acc.add(d * L::WIDTH)) };
        }
    }
    for j in 0..count {
        for d in (0..DV * L::WIDTH).step_by(line_values::<E>()) {
            prefetch(ahead.wrapping_add(j * stride + d));
        }
        let mut values = [l.zero(); DV];
        for (d, values) in values.iter_mut().enumerate() {
            // SAFETY: row j < count, and DV vectors of it are readable.
            *values = unsafe { E::load(l, v.add(j * stride + d * L::WIDTH)) };
        }
        for (sums, p) in sums.iter_mut().zip(p) {
            // SAFETY: j < count.
            let x = l.splat(unsafe { *p.add(j) });
            for (sum, values) in sums.iter_mut().zip(values) {
                *sum = l.fma(x, values, *sum);
            }
        }
    }
    for (sums, acc) in sums.iter().zip(acc) {
        for (d, sum) in sums.iter().enumerate() {
            // SAFETY: the caller lets us write DV vectors.
            unsafe { l.store_at(*sum, acc.add(d * L::WIDTH)) };
        }
    }
}

/// [`weigh`] over all dimensions, for positions `from..to` of a page. `p` is indexed by position in
/// the page.
///
/// # Safety
/// Each of `p` must be readable up to `to`, and each of `acc` be readable and writable for `stride`
/// values.
#[inline(always)]
unsafe fn weigh_page<L: Lanes, E: Element, const N: usize>(
    l: L,
    p: &[*const f32; N],
    (from, to): (usize, usize),
    (page, ahead): (HeadPage<'_, E>, *const E),
    stride: usize,
    acc: &[*mut f32; N],
) {
    assert!(to <= PAGE_POSITIONS && page.v.len() == PAGE_POSITIONS * stride && stride.is_multiple_of(16));
    if from >= to {
        return;
    }
    let mut first = *p;
    for first in &mut first {
        *first = first.wrapping_add(from);
    }
    let (at, count) = (from * stride, to - from);
    let mut d = 0;
    let wide = width::<L>(N);
    while d < stride {
        let mut acc = *acc;
        for acc in &mut acc {
            *acc = acc.wrapping_add(d);
        }
        let left = (stride - d) / L::WIDTH;
        let v = page.v[at + d..].as_ptr();
        let ahead = ahead.wrapping_add(at + d);
        // SAFETY: the caller's promise for `p` and `acc`, moved on by `from` and `d`; rows from..to
        // of V are in `page.v`, and d plus the vectors taken stays within the stride.
        unsafe {
            if left >= 4 && wide == 4 {
                weigh::<L, E, N, 4>(l, &first, v, ahead, stride, count, &acc);
                d += 4 * L::WIDTH;
            } else if left >= 2 {
                weigh::<L, E, N, 2>(l, &first, v, ahead, stride, count, &acc);
                d += 2 * L::WIDTH;
            } else {
                weigh::<L, E, N, 1>(l, &first, v, ahead, stride, count, &acc);
                d += L::WIDTH;
            }
        }
    }
}

/// Scores of N queries with positions `from..to` of a page, and up to 15 more on either side.
///
/// # Safety
/// Each of `out` must be writable for a page of values.
#[inline(always)]
unsafe fn score_page<L: Lanes, E: Element, const N: usize>(
    l: L,
    q: &[&[f32]; N],
    dim: usize,
    (from, to): (usize, usize),
    (page, ahead): (HeadPage<'_, E>, *const E),
    out: &[*mut f32; N],
) {
    assert!(to <= PAGE_POSITIONS && page.k.len() == PAGE_POSITIONS * dim);
    assert!(!E::SCALED || page.k_scales.len() == PAGE_POSITIONS);
    assert!(q.iter().all(|q| q.len() == dim));
    let mut queries = [std::ptr::null(); N];
    for (pointer, q) in queries.iter_mut().zip(q) {
        *pointer = q.as_ptr();
    }
    let (q, k) = (&queries, (page.k.as_ptr(), page.k_scales.as_ptr()));
    let end = to.next_multiple_of(K_BLOCK);
    let mut at = from / K_BLOCK * K_BLOCK;
    let wide = width::<L>(N);
    while at < end {
        let left = (end - at) / L::WIDTH;
        // SAFETY: lengths of `q`, `page.k` and the scales are checked above; `at` and `end` are
        // multiples of 16 within the page; the caller gives room in `out`.
        unsafe {
            if left >= 4 && wide == 4 {
                scores::<L, E, N, 4>(l, q, dim, k, ahead, at, out);
                at += 4 * L::WIDTH;
            } else if left >= 2 {
                scores::<L, E, N, 2>(l, q, dim, k, ahead, at, out);
                at += 2 * L::WIDTH;
            } else {
                scores::<L, E, N, 1>(l, q, dim, k, ahead, at, out);
                at += L::WIDTH;
            }
        }
    }
}

/// Turns the raw scores `from..to` of one query into exp(score - m) in place, and gives (m, l).
#[inline(always)]
fn soften<L: Lanes>(l: L, s: &mut [f32; BLOCK], from: usize, to: usize, scale: f32) -> (f32, f32) {
    let start = from / L::WIDTH * L::WIDTH;
    let lowest = l.splat(f32::NEG_INFINITY);
    let mut largest = lowest;
    for at in (start..to).step_by(L::WIDTH) {
        let s = &mut s[at..at + L::WIDTH];
        let mut x = l.mul(l.load(s), l.splat(scale));
        // Only at the edges, as it costs time.
        if at < from || at + L::WIDTH > to {
            x = l.select_range(from.saturating_sub(at), to - at, x, lowest);
        }
        l.store(x, s);
        largest = l.max(x, largest);
    }
    // This may ignore a NaN score, which comes back below as exp(NaN).
    let m = l.maximum(largest);
    let mut sum = l.zero();
    for at in (start..to).step_by(L::WIDTH) {
        let s = &mut s[at..at + L::WIDTH];
        // A lane that is not seen holds minus infinity and gives 0, unless m is infinite too; then
        // the sum is NaN anyway.
        let p = exp_of_negative(l, l.sub(l.load(s), l.splat(m)));
        l.store(p, s);
        sum = l.add(sum, p);
    }
    (m, l.sum(sum))
}

/// Multiplies the weights `from..to` by the scales of their positions' V: one product for each
/// weight instead of one for each value.
#[inline(always)]
fn scale_weights<L: Lanes, E: Element>(
    l: L,
    pages: &[Option<HeadPage<'_, E>>; 2],
    p: &mut [f32; BLOCK],
    from: usize,
    to: usize,
) {
    // Lanes that are not seen may take any value: they are not read again.
    for at in (from / L::WIDTH * L::WIDTH..to).step_by(L::WIDTH) {
        let scales = pages[at / PAGE_POSITIONS].expect("a page that a query sees is given").v_scales;
        let p = &mut p[at..at + L::WIDTH];
        l.store(l.mul(l.load(p), l.load(&scales[at % PAGE_POSITIONS..][..L::WIDTH])), p);
    }
}

/// Computes the partials of the tile's first N queries. `partials`: (query, [`partial_len`]).
#[inline(always)]
fn tile<L: Lanes, E: Element, const N: usize>(l: L, t: &QueryTile<'_, E>, partials: &mut [f32]) {
    let (dim, stride) = (t.dim, v_stride(t.dim));
    assert!(N <= TILE && partials.len() == N * partial_len(dim));
    assert!(t.to[..N].iter().all(|to| *to <= BLOCK));
    partials.fill(0.0);
    let (mut all, mut common) = ((BLOCK, 0), (0, BLOCK));
    for n in 0..N {
        if t.from[n] < t.to[n] {
            all = (all.0.min(t.from[n]), all.1.max(t.to[n]));
        }
        common = (common.0.max(t.from[n]), common.1.min(t.to[n]));
    }
    if all.0 >= all.1 {
        return;
    }

    let mut s = [[0.0f32; BLOCK]; N];
    let mut q: [&[f32]; N] = [&[]; N];
    q.copy_from_slice(&t.q[..N]);
    let within = |(from, to): (usize, usize), page: usize| {
        let start = page * PAGE_POSITIONS;
        (from.saturating_sub(start), to.saturating_sub(start).min(PAGE_POSITIONS))
    };
    // The data that is read after each part, in the order K0, K1, V0, V1, then the next block.
    let seen = |page: usize| t.pages[page].filter(|_| within(all, page).0 < within(all, page).1);
    let first_v = seen(0).or(seen(1)).map(|p| p.v);
    let after_k = [seen(1).map(|p| p.k).or(first_v), first_v];
    let after_v = [seen(1).map(|p| p.v).or(t.next.map(|p| p.k)), t.next.map(|p| p.k)];

    if E::SCALED {
        // The scales are small and needed last: all are prefetched at once.
        for page in (0..2).filter_map(seen) {
            for scales in [page.k_scales, page.v_scales] {
                (0..PAGE_POSITIONS).step_by(line_values::<f32>()).for_each(|at| prefetch(&scales[at]));
            }
        }
    }

    for (page, ahead) in after_k.into_iter().enumerate() {
        let (from, to) = within(all, page);
        if from >= to {
            continue;
        }
        let data = t.pages[page].expect("a page that a query sees is given");
        let mut out = [std::ptr::null_mut(); N];
        for (out, s) in out.iter_mut().zip(&mut s) {
            *out = s[page * PAGE_POSITIONS..].as_mut_ptr();
        }
        let ahead = ahead.unwrap_or(data.k).as_ptr();
        // SAFETY: each of `out` has a page's room in its row of `s`.
        unsafe { score_page(l, &q, dim, (from, to), (data, ahead), &out) };
    }

    let mut acc = [std::ptr::null_mut(); N];
    for (n, partial) in partials.chunks_exact_mut(partial_len(dim)).enumerate() {
        if t.from[n] < t.to[n] {
            let (m, sum) = soften(l, &mut s[n], t.from[n], t.to[n], t.scale);
            if E::SCALED {
                scale_weights(l, &t.pages, &mut s[n], t.from[n], t.to[n]);
            }
            partial[stride] = m;
            partial[stride + 1] = sum;
        }
        acc[n] = partial.as_mut_ptr();
    }

    // The queries go together over the positions that all of them see, and alone over those before
    // and after, in ascending order.
    if common.0 >= common.1 {
        common = (BLOCK, BLOCK);
    }
    for (page, ahead) in after_v.into_iter().enumerate() {
        let (from, to) = within(all, page);
        if from >= to {
            continue;
        }
        let data = t.pages[page].expect("a page that a query sees is given");
        let start = page * PAGE_POSITIONS;
        let mut p = [std::ptr::null(); N];
        for (p, s) in p.iter_mut().zip(&s) {
            *p = s[start..].as_ptr();
        }
        let ahead = ahead.unwrap_or(data.v).as_ptr();
        for (range, together) in [((0, common.0), false), (common, true), ((common.1, BLOCK), false)] {
            if range.0 >= range.1 {
                continue;
            }
            if together {
                // SAFETY: each of `p` has a page's values; each of `acc` points at one query's
                // partial, and they are disjoint.
                unsafe { weigh_page(l, &p, within(range, page), (data, ahead), stride, &acc) };
                continue;
            }
            for n in 0..N {
                let range = (range.0.max(t.from[n]), range.1.min(t.to[n]));
                // SAFETY: as above, for one query.
                unsafe { weigh_page(l, &[p[n]], within(range, page), (data, ahead), stride, &[acc[n]]) };
            }
        }
    }
}

/// Merges the partials of the next block into the states of the blocks before it, for all queries.
#[inline(always)]
fn merge_into<L: Lanes>(l: L, len: usize, states: &mut [f32], partials: &[f32]) {
    let queries = states.len() / len;
    assert!(states.len() == partials.len() && states.len() == queries * len && queries <= TILE && len % 16 == 2);
    let stride = len - 2;
    // The factors of state and partial, all exponentials at once.
    let mut factors = [0.0f32; (2 * TILE).next_multiple_of(16)];
    for (q, (state, partial)) in states.chunks_exact(len).zip(partials.chunks_exact(len)).enumerate() {
        let m = state[stride].max(partial[stride]);
        factors[2 * q] = state[stride] - m;
        factors[2 * q + 1] = partial[stride] - m;
    }
    for factors in factors[..2 * queries].chunks_mut(L::WIDTH) {
        l.store(exp_of_negative(l, l.load(factors)), factors);
    }
    for (q, (state, partial)) in states.chunks_exact_mut(len).zip(partials.chunks_exact(len)).enumerate() {
        if partial[stride + 1] == 0.0 {
            continue;
        }
        if state[stride + 1] == 0.0 {
            state.copy_from_slice(partial);
            continue;
        }
        let (a, b) = (l.splat(factors[2 * q]), l.splat(factors[2 * q + 1]));
        state[stride] = state[stride].max(partial[stride]);
        let sum = l.fma(l.splat(partial[stride + 1]), b, l.mul(l.splat(state[stride + 1]), a));
        l.store(sum, &mut state[stride + 1..]);
        let (sums, _) = state.split_at_mut(stride);
        for (sum, part) in sums.chunks_exact_mut(L::WIDTH).zip(partial[..stride].chunks_exact(L::WIDTH)) {
            l.store(l.fma(l.load(part), b, l.mul(l.load(sum), a)), sum);
        }
    }
}

/// The weighted mean: the state's sum over V divided by l. `out`: (head_dim).
#[inline(always)]
fn divide_into<L: Lanes>(l: L, state: &[f32], out: &mut [f32]) {
    let stride = state.len() - 2;
    assert!(stride == v_stride(out.len()));
    let sum = l.splat(state[stride + 1]);
    for (out, acc) in out.chunks_mut(L::WIDTH).zip(state.chunks_exact(L::WIDTH)) {
        l.store(l.div(l.load(acc), sum), out);
    }
}

per_isa! {
    fn tile_of<E: Element, const N: usize>(t: &QueryTile<'_, E>, partials: &mut [f32]) = |l| tile::<_, E, N>(l, t, partials)
}

per_isa! {
    /// Merges the partials of the next block into the states of the blocks before it, which start
    /// as zeros. Both: (query, `len`), `len` a [`partial_len`]; at most [`TILE`] queries.
    pub(crate) fn merge(len: usize, states: &mut [f32], partials: &[f32]) = |l| merge_into(l, len, states, partials)
}

per_isa! {
    /// Writes the attention of one query, (head_dim), from its merged state.
    pub(crate) fn finish(state: &[f32], out: &mut [f32]) = |l| divide_into(l, state, out)
}

/// Computes the partials of the tile's first `n` queries. `partials`: (n, [`partial_len`]).
///
/// # Panics
/// Unless `n` is 1 to [`TILE`], the lengths fit, and the pages that a query sees are there.
pub(crate) fn run_tile<E: Element>(isa: Isa, n: usize, t: &QueryTile<'_, E>, partials: &mut [f32]) {
    match n {
        1 => tile_of::<E, 1>(isa, t, partials),
        2 => tile_of::<E, 2>(isa, t, partials),
        3 => tile_of::<E, 3>(isa, t, partials),
        4 => tile_of::<E, 4>(isa, t, partials),
        5 => tile_of::<E, 5>(isa, t, partials),
        6 => tile_of::<E, 6>(isa, t, partials),
        7 => tile_of::<E, 7>(isa, t, partials),
        8 => tile_of::<E, 8>(isa, t, partials),
        9 => tile_of::<E, 9>(isa, t, partials),
        10 => tile_of::<E, 10>(isa, t, partials),
        11 => tile_of::<E, 11>(isa, t, partials),
        12 => tile_of::<E, 12>(isa, t, partials),
        _ => panic!("a tile of {n} queries"),
    }
}
