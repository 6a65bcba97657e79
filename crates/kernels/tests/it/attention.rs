//! Attention against a reference in f64, and the law of row invariance: bits never depend on
//! company.

use half::f16;
use proptest::prelude::*;
use selfspec_kernels::{AttentionRow, Compute, Isa, KvPages, KvType, PAGE_POSITIONS};

/// Numbers in -1..1 from a counter, so that any of them can be made again.
fn noise(seed: u64, i: usize) -> f32 {
    let mut x = (seed << 32 ^ i as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ x >> 31) >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}

fn noises(seed: u64, from: usize, n: usize) -> Vec<f32> {
    (from..from + n).map(|i| noise(seed, i)).collect()
}

/// One sequence's keys and values in the middle layer of three, in scattered pages, with garbage
/// wherever it has written nothing.
struct Case {
    kv: KvPages,
    pages: Vec<u32>,
    heads: usize,
    scale: f32,
    k: Vec<f64>, // (position, kv_heads, head_dim), as the cache holds them
    v: Vec<f64>,
}

const LAYER: usize = 1;

/// What the cache makes of one head's K or V at one position.
fn held(kv_type: KvType, x: &[f32]) -> Vec<f64> {
    let scale = x.iter().fold(0.0f32, |m, x| m.max(x.abs())) / 127.0;
    let narrow = |x: &f32| match kv_type {
        KvType::F16 => f16::from_f32(*x).to_f64(),
        KvType::Q8 => f64::from(scale) * f64::from((x / scale).round_ties_even()),
    };
    x.iter().map(narrow).collect()
}

impl Case {
    fn new(kv_type: KvType, kv_heads: usize, group: usize, dim: usize, len: usize) -> Case {
        let n = len.div_ceil(PAGE_POSITIONS);
        let mut kv = KvPages::new(kv_type, 3, kv_heads, dim, n + 3).expect("a small cache");
        fill(&mut kv, f32::NAN);
        // Every page number but 0 and 1, from the last to the first.
        let pages: Vec<u32> = (0..n as u32).map(|i| n as u32 + 1 - i).collect();
        let width = kv_heads * dim;
        // Positions differ in size, as they do in a model, so that a scale of another position
        // shows.
        let sized = |seed: u64| -> Vec<f32> {
            let size = |i: usize| 0.6 + 0.4 * noise(seed + 10, i / dim);
            noises(seed, 0, len * width).iter().enumerate().map(|(i, x)| x * size(i)).collect()
        };
        let (k, v) = (sized(1), sized(2));
        for pos in 0..len {
            let at = pos * width..(pos + 1) * width;
            write(&mut kv, LAYER, pages[pos / PAGE_POSITIONS], pos % PAGE_POSITIONS, &k[at.clone()], &v[at]);
        }
        let [k, v] = [k, v].map(|x| x.chunks(dim).flat_map(|x| held(kv_type, x)).collect());
        Case { kv, pages, heads: kv_heads * group, scale: 2.0 / (dim as f32).sqrt(), k, v }
    }

    fn width(&self) -> usize {
        self.heads * self.kv.head_dim()
    }

    /// The query of the row at `pos`: it depends on nothing else.
    fn query(&self, pos: usize) -> Vec<f32> {
        noises(3, pos * self.width(), self.width()).iter().map(|x| 3.0 * x).collect()
    }

    fn run(&self, compute: &Compute, rows: &[(usize, usize)]) -> Vec<Vec<f32>> {
        let q: Vec<f32> = rows.iter().flat_map(|(_, pos)| self.query(*pos)).collect();
        let rows: Vec<AttentionRow<'_>> =
            rows.iter().map(|(first, pos)| AttentionRow { pages: &self.pages, pos: *pos, first: *first }).collect();
        let mut out = vec![7.0; q.len()];
        compute.attention(&self.kv, LAYER, &rows, self.heads, &q, self.scale, &mut out);
        out.chunks(self.width()).map(<[f32]>::to_vec).collect()
    }

    fn reference(&self, first: usize, pos: usize) -> Vec<f64> {
        let (dim, kv_heads) = (self.kv.head_dim(), self.kv.kv_heads());
        let q = self.query(pos);
        let mut out = Vec::new();
        for head in 0..self.heads {
            let kv_head = head / (self.heads / kv_heads);
            let row = |x: &[f64], p: usize| -> Vec<f64> { x[(p * kv_heads + kv_head) * dim..][..dim].to_vec() };
            let scores: Vec<f64> = (first..=pos)
                .map(|p| {
                    let dot: f64 =
                        q[head * dim..][..dim].iter().zip(row(&self.k, p)).map(|(q, k)| f64::from(*q) * k).sum();
                    dot * f64::from(self.scale)
                })
                .collect();
            let m = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - m).exp()).collect();
            let sum: f64 = weights.iter().sum();
            let mut mean = vec![0.0; dim];
            for (p, w) in (first..=pos).zip(weights) {
                for (mean, v) in mean.iter_mut().zip(row(&self.v, p)) {
                    *mean += w / sum * v;
                }
            }
            out.extend(mean);
        }
        out
    }

    fn check(&self, compute: &Compute, rows: &[(usize, usize)]) {
        for ((first, pos), got) in rows.iter().zip(self.run(compute, rows)) {
            for (i, (got, expected)) in got.iter().zip(self.reference(*first, *pos)).enumerate() {
                let error = (f64::from(*got) - expected).abs();
                assert!(
                    error < 3e-6,
                    "{} {} head_dim {} row {first}..={pos} value {i}: {got} for {expected}",
                    compute.isa(),
                    self.kv.kv_type(),
                    self.kv.head_dim()
                );
            }
        }
    }
}

/// All sets narrow alike, so that any may write.
fn write(kv: &mut KvPages, layer: usize, page: u32, slot: usize, k: &[f32], v: &[f32]) {
    Compute::new(Isa::Scalar, 1).write_kv(kv, layer, page, slot, k, v);
}

fn fill(kv: &mut KvPages, x: f32) {
    let row = vec![x; kv.kv_heads() * kv.head_dim()];
    for layer in 0..kv.layers() {
        for page in 0..kv.pages() as u32 {
            for slot in 0..PAGE_POSITIONS {
                write(kv, layer, page, slot, &row, &row);
            }
        }
    }
}

fn bits(row: &[f32]) -> Vec<u32> {
    row.iter().map(|x| x.to_bits()).collect()
}

fn computes(threads: usize) -> Vec<Compute> {
    Isa::available().into_iter().map(|isa| Compute::new(isa, threads)).collect()
}

#[test]
fn every_instruction_set_agrees_with_f64() {
    for kv_type in KvType::ALL {
        for dim in [4, 8, 12, 16, 20, 24, 64, 72, 80, 96, 112, 128, 192, 256, 512] {
            for (kv_heads, group) in [(1, 1), (2, 3), (1, 8)] {
                let case = Case::new(kv_type, kv_heads, group, dim, 330);
                for compute in computes(2) {
                    case.check(
                        &compute,
                        &[(0, 0), (0, 5), (0, 127), (0, 128), (0, 300), (100, 300), (299, 299), (190, 329)],
                    );
                }
            }
        }
    }
}

#[test]
fn a_row_at_every_offset_has_the_same_bits_alone_and_in_company() {
    for kv_type in KvType::ALL {
        // Verification's shape: some rows in succession, at every place with respect to pages and
        // blocks.
        let case = Case::new(kv_type, 3, 3, 64, 2 * 128 + 12);
        for compute in computes(2) {
            let alone: Vec<Vec<u32>> = (0..2 * 128 + 12).map(|pos| bits(&case.run(&compute, &[(0, pos)])[0])).collect();
            for start in 0..2 * 128 {
                for n in [2, 5, 9] {
                    let rows: Vec<(usize, usize)> = (start..start + n).map(|pos| (0, pos)).collect();
                    for ((_, pos), row) in rows.iter().zip(case.run(&compute, &rows)) {
                        assert_eq!(bits(&row), alone[*pos], "{} position {pos} of {n} rows", compute.isa());
                    }
                }
            }
        }
    }
}

#[test]
fn windows_are_row_invariant_at_every_offset() {
    for kv_type in KvType::ALL {
        let case = Case::new(kv_type, 1, 2, 20, 300);
        for compute in computes(1) {
            let row = |pos: usize, window: usize| ((pos + 1usize).saturating_sub(window), pos);
            for window in [1, 2, 63, 64, 65, 130] {
                let all: Vec<(usize, usize)> = (0..300).map(|pos| row(pos, window)).collect();
                let together = case.run(&compute, &all);
                for (pos, together) in together.iter().enumerate() {
                    let alone = &case.run(&compute, &[row(pos, window)])[0];
                    assert_eq!(bits(alone), bits(together), "{} position {pos} window {window}", compute.isa());
                }
                case.check(&compute, &all[290..]);
            }
        }
    }
}

#[test]
fn bits_do_not_depend_on_threads_order_or_chunks() {
    for kv_type in KvType::ALL {
        // Long enough that every way of cutting the work comes up: by the caller, by units, by
        // blocks.
        let case = Case::new(kv_type, 3, 3, 64, 1500);
        let all: Vec<(usize, usize)> = (1400..1500).map(|pos| (0, pos)).collect();
        for isa in Isa::available() {
            let expected: Vec<Vec<u32>> =
                all.iter().map(|row| bits(&case.run(&Compute::new(isa, 1), &[*row])[0])).collect();
            for threads in 1..=3 {
                let compute = Compute::new(isa, threads);
                for chunk in [1, 2, 3, 7, 16, 17, 40, 100] {
                    for (rows, expected) in all.chunks(chunk).zip(expected.chunks(chunk)) {
                        let got: Vec<Vec<u32>> = case.run(&compute, rows).iter().map(|row| bits(row)).collect();
                        assert_eq!(got, expected, "{isa} {threads} threads, {chunk} rows at a time");
                    }
                }
                let backwards: Vec<(usize, usize)> = all.iter().rev().copied().collect();
                let got: Vec<Vec<u32>> = case.run(&compute, &backwards).iter().rev().map(|row| bits(row)).collect();
                assert_eq!(got, expected, "{isa} {threads} threads, last row first");
            }
        }
    }
}

#[test]
fn contexts_too_long_for_one_round_of_partials_have_the_same_bits() {
    for kv_type in KvType::ALL {
        let case = Case::new(kv_type, 1, 16, 256, 12_000);
        let rows = [(0, 11_997), (3000, 11_998), (0, 11_999)];
        for isa in Isa::available() {
            let alone: Vec<Vec<u32>> =
                rows.iter().map(|row| bits(&case.run(&Compute::new(isa, 1), &[*row])[0])).collect();
            let got: Vec<Vec<u32>> = case.run(&Compute::new(isa, 3), &rows).iter().map(|row| bits(row)).collect();
            assert_eq!(got, alone, "{isa}");
        }
        case.check(&computes(3)[0], &rows[1..2]);
    }
}

#[test]
fn rows_of_many_sequences_do_not_mix() {
    for kv_type in KvType::ALL {
        let case = Case::new(kv_type, 2, 2, 64, 700);
        let shorter = &case.pages[..3];
        for isa in Isa::available() {
            let expected: Vec<Vec<u32>> =
                [50, 51, 180, 699].map(|pos| bits(&case.run(&Compute::new(isa, 1), &[(0, pos)])[0])).to_vec();
            for threads in 1..=3 {
                let compute = Compute::new(isa, threads);
                // The other sequence has only some of the pages, in a slice of its own.
                let rows = [
                    AttentionRow { pages: shorter, pos: 50, first: 0 },
                    AttentionRow { pages: shorter, pos: 51, first: 0 },
                    AttentionRow { pages: shorter, pos: 180, first: 0 },
                    AttentionRow { pages: &case.pages, pos: 699, first: 0 },
                ];
                let q: Vec<f32> = rows.iter().flat_map(|row| case.query(row.pos)).collect();
                let mut out = vec![0.0; q.len()];
                compute.attention(&case.kv, LAYER, &rows, case.heads, &q, case.scale, &mut out);
                let got: Vec<Vec<u32>> = out.chunks(case.width()).map(bits).collect();
                assert_eq!(got, expected, "{isa} {threads} threads");
            }
        }
    }
}

#[test]
fn what_lies_beyond_a_row_or_before_its_window_never_matters() {
    for kv_type in KvType::ALL {
        let rows = [(0, 70), (10, 130), (64, 131), (129, 200)];
        for compute in computes(2) {
            let mut case = Case::new(kv_type, 2, 2, 40, 202);
            let clean = case.run(&compute, &rows[..1]);
            let window = case.run(&compute, &rows[3..]);
            let width = 2 * 40;
            for garbage in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 60_000.0, -0.0] {
                let row = vec![garbage; width];
                for pos in (71..129).chain(201..256) {
                    write(&mut case.kv, LAYER, case.pages[pos / PAGE_POSITIONS], pos % PAGE_POSITIONS, &row, &row);
                }
                assert_eq!(bits(&case.run(&compute, &rows[..1])[0]), bits(&clean[0]), "{} {garbage}", compute.isa());
                assert_eq!(bits(&case.run(&compute, &rows[3..])[0]), bits(&window[0]), "{} {garbage}", compute.isa());
                // In company with rows that do see the garbage.
                let together = case.run(&compute, &rows);
                assert_eq!(bits(&together[0]), bits(&clean[0]), "{} {garbage}", compute.isa());
                assert_eq!(bits(&together[3]), bits(&window[0]), "{} {garbage}", compute.isa());
                if garbage.is_nan() || kv_type == KvType::Q8 && garbage.is_infinite() {
                    assert!(together[1].iter().chain(&together[2]).all(|x| x.is_nan()));
                }
            }
        }
    }
}

#[test]
fn a_nan_that_a_row_sees_is_not_hidden() {
    for kv_type in KvType::ALL {
        for compute in computes(1) {
            for (in_k, in_v) in [(true, false), (false, true)] {
                for pos in [0, 15, 64, 127, 128, 199] {
                    let mut case = Case::new(kv_type, 1, 1, 24, 200);
                    let (mut k, mut v) = (vec![0.5; 24], vec![0.5; 24]);
                    if in_k {
                        k[23] = f32::NAN;
                    }
                    if in_v {
                        v[23] = f32::NAN;
                    }
                    write(&mut case.kv, LAYER, case.pages[pos / PAGE_POSITIONS], pos % PAGE_POSITIONS, &k, &v);
                    let out = &case.run(&compute, &[(0, 199)])[0];
                    assert!(out[23].is_nan(), "{} position {pos}", compute.isa());
                    // In q8 a position's values of a head share their scale.
                    assert_eq!(out[0].is_nan(), in_k || kv_type == KvType::Q8);
                }
            }
            // A NaN in a query stays in its row and head.
            let case = Case::new(kv_type, 2, 2, 24, 10);
            let mut q: Vec<f32> = [8, 9].iter().flat_map(|pos| case.query(*pos)).collect();
            q[24] = f32::NAN;
            let rows = [8, 9].map(|pos| AttentionRow { pages: &case.pages, pos, first: 0 });
            let mut out = vec![0.0; q.len()];
            compute.attention(&case.kv, LAYER, &rows, 4, &q, 1.0, &mut out);
            assert!(out[24..48].iter().all(|x| x.is_nan()));
            assert!(out[..24].iter().chain(&out[48..]).all(|x| x.is_finite()));
        }
    }
}

#[test]
fn large_scores_neither_overflow_nor_vanish() {
    for kv_type in KvType::ALL {
        for compute in computes(1) {
            let mut case = Case::new(kv_type, 1, 1, 8, 300);
            case.scale = 500.0;
            case.check(&compute, &[(0, 299), (0, 150)]);
        }
    }
}

#[test]
fn no_rows_are_no_work() {
    for kv_type in KvType::ALL {
        let case = Case::new(kv_type, 1, 1, 8, 1);
        assert!(case.run(&computes(2)[0], &[]).is_empty());
    }
}

/// The message of the panic that `f` ends with.
fn panic_of(f: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let payload = std::panic::catch_unwind(f).expect_err("a broken contract");
    payload.downcast_ref::<String>().expect("a message with facts").clone()
}

#[test]
fn broken_contracts_panic_before_any_kernel() {
    let run = |pages: &'static [u32], first: usize, pos: usize, layer: usize, heads: usize, len: usize| {
        panic_of(move || {
            let kv = KvPages::new(KvType::F16, 1, 2, 8, 4).expect("small");
            let rows = [AttentionRow { pages, pos, first }];
            let (q, mut out) = (vec![0.0; len], vec![0.0; len]);
            Compute::new(Isa::Scalar, 1).attention(&kv, layer, &rows, heads, &q, 1.0, &mut out);
        })
    };
    assert_eq!(run(&[0], 0, 64, 0, 2, 16), "a row at position 64 of a sequence with 1 pages");
    assert_eq!(run(&[0, 4], 0, 64, 0, 2, 16), "page 4 of a KV cache of 4 pages");
    assert_eq!(run(&[0], 3, 2, 0, 2, 16), "a row at position 2 sees nothing before 3");
    assert_eq!(run(&[0], 0, 2, 1, 2, 16), "layer 1 of a KV cache of 1 layers");
    assert_eq!(run(&[0], 0, 2, 0, 3, 24), "3 query heads do not divide over 2 KV heads");
    assert_eq!(run(&[0], 0, 2, 0, 2, 17), "17 query values for 1 rows, expected 16");
    assert_eq!(run(&[], 0, 0, 0, 2, 16), "a row at position 0 of a sequence with 0 pages");
    assert_eq!(
        run(&[0], 0, usize::MAX, 0, 2, 16),
        format!("a row at position {} of a sequence with 1 pages", usize::MAX)
    );
    let refused = |page: u32, slot: usize, len: usize| {
        panic_of(move || {
            let row = vec![0.0; len];
            write(&mut KvPages::new(KvType::F16, 1, 2, 8, 4).expect("small"), 0, page, slot, &row, &row);
        })
    };
    assert_eq!(refused(4, 0, 16), "page 4 of a KV cache of 4 pages");
    assert_eq!(refused(3, 64, 16), "slot 64 of a page of 64 positions");
    assert_eq!(refused(3, 63, 15), "15 key values for one position of 16");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn any_shape_is_right_and_row_invariant(
        dim in 1usize..70,
        kv_heads in 1usize..4,
        group in 1usize..8,
        len in 1usize..300,
        threads in 1usize..4,
        kv_type in proptest::sample::select(&KvType::ALL[..]),
        picks in proptest::collection::vec((0usize..300, 0usize..300), 1..12),
    ) {
        let case = Case::new(kv_type, kv_heads, group, dim, len);
        let rows: Vec<(usize, usize)> =
            picks.iter().map(|(a, b)| (a % len, b % len)).map(|(a, b)| (a.min(b), a.max(b))).collect();
        for compute in computes(threads) {
            case.check(&compute, &rows);
            let together = case.run(&compute, &rows);
            for (row, together) in rows.iter().zip(together) {
                prop_assert_eq!(bits(&case.run(&compute, &[*row])[0]), bits(&together));
            }
        }
    }
}
