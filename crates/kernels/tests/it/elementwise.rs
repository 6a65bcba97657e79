//! Norms, residual sums and heads against references in f64, and row invariance.

use proptest::prelude::*;
use selfspec_kernels::{Activations, Compute, InputForms, Isa, RopeRows, RopeStyle, rms_norm};

/// Numbers in -1..1 from a counter.
fn noises(seed: u64, n: usize) -> Vec<f32> {
    (0..n as u64)
        .map(|i| {
            let mut x = (seed << 32 ^ i).wrapping_add(0x9e37_79b9_7f4a_7c15);
            x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((x ^ x >> 31) >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

fn close(got: f32, expected: f64, what: &str) {
    let error = (f64::from(got) - expected).abs();
    assert!(error <= 2e-6 * expected.abs() + 2e-7, "{what}: {got} for {expected}");
}

fn computes(threads: usize) -> Vec<Compute> {
    Isa::available().into_iter().map(|isa| Compute::new(isa, threads)).collect()
}

fn norm_f64(x: &[f32], weight: &[f32], eps: f32) -> Vec<f64> {
    let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / x.len() as f64;
    let inverse = 1.0 / (mean + f64::from(eps)).sqrt();
    x.iter().zip(weight).map(|(x, w)| f64::from(*x) * inverse * f64::from(*w)).collect()
}

const SIZES: [usize; 12] = [1, 3, 4, 8, 12, 17, 64, 70, 100, 576, 2048, 4099];

#[test]
fn norm_agrees_with_f64_at_every_size() {
    for dim in SIZES {
        let (hidden, weight) = (noises(1, 5 * dim), noises(2, dim));
        for compute in computes(2) {
            let mut x = Activations::new();
            compute.norm(&hidden, dim, &[3, 0, 3], &weight, 1e-5, InputForms::F32, &mut x);
            assert_eq!((x.rows(), x.k()), (3, dim));
            for (row, i) in x.f32_rows().chunks(dim).zip([3, 0, 3]) {
                let expected = norm_f64(&hidden[i * dim..][..dim], &weight, 1e-5);
                for (got, expected) in row.iter().zip(expected) {
                    close(*got, expected, &format!("{} norm of {dim}", compute.isa()));
                }
            }
        }
        let mut x = hidden[..dim].to_vec();
        rms_norm(&mut x, &weight, 1e-5);
        for (got, expected) in x.iter().zip(norm_f64(&hidden[..dim], &weight, 1e-5)) {
            close(*got, expected, &format!("rms_norm of {dim}"));
        }
    }
}

#[test]
fn add_reaches_the_chosen_rows_only() {
    for dim in SIZES {
        let (y, weight) = (noises(4, 2 * dim), noises(5, dim));
        let before = noises(6, 4 * dim);
        for compute in computes(2) {
            for post_norm in [None, Some((&weight[..], 1e-6))] {
                let mut hidden = before.clone();
                compute.add(&y, dim, &[1, 3], post_norm, &mut hidden);
                assert_eq!(hidden[..dim], before[..dim]);
                assert_eq!(hidden[2 * dim..3 * dim], before[2 * dim..3 * dim]);
                for (y, i) in y.chunks(dim).zip([1, 3]) {
                    let y = match post_norm {
                        Some((weight, eps)) => norm_f64(y, weight, eps),
                        None => y.iter().map(|y| f64::from(*y)).collect(),
                    };
                    for ((got, y), before) in hidden[i * dim..].iter().zip(y).zip(&before[i * dim..]) {
                        close(*got, f64::from(*before) + y, &format!("{} add of {dim}", compute.isa()));
                    }
                }
            }
        }
    }
}

#[test]
fn a_row_that_comes_twice_gets_both_sums() {
    let y: Vec<f32> = vec![1.0; 40 * 2048];
    let index: Vec<usize> = (0..40).map(|i| i % 2).collect();
    let mut hidden = vec![0.0; 2 * 2048];
    computes(3)[0].add(&y, 2048, &index, None, &mut hidden);
    assert!(hidden.iter().all(|x| *x == 20.0));
}

fn angles(rows: usize, rot: usize) -> (Vec<f32>, Vec<f32>) {
    (0..rows * rot / 2).map(|i| ((i as f32 * 0.37).cos(), (i as f32 * 0.37).sin())).unzip()
}

#[test]
fn heads_get_bias_then_norm_then_rotation() {
    for (heads, head_dim, rot) in
        [(3, 64, 64), (1, 4, 4), (2, 12, 6), (2, 80, 32), (1, 256, 256), (4, 6, 0), (2, 20, 14)]
    {
        let rows = 3;
        let x = noises(7, rows * heads * head_dim);
        let (bias, weight) = (noises(8, heads * head_dim), noises(9, head_dim));
        let (cos, sin) = angles(rows, rot);
        for compute in computes(2) {
            for style in [RopeStyle::Interleaved, RopeStyle::Halves] {
                for (bias, norm) in [(None, None), (Some(&bias[..]), Some((&weight[..], 1e-6)))] {
                    let mut got = x.clone();
                    let rope = RopeRows { cos: &cos, sin: &sin, style, rot };
                    compute.heads(&mut got, heads, head_dim, bias, norm, &rope);
                    for (h, (got, x)) in got.chunks(head_dim).zip(x.chunks(head_dim)).enumerate() {
                        let (row, head) = (h / heads, h % heads);
                        let biased: Vec<f32> =
                            (0..head_dim).map(|i| x[i] + bias.map_or(0.0, |b| b[head * head_dim + i])).collect();
                        let mut expected = match norm {
                            Some((weight, eps)) => norm_f64(&biased, weight, eps),
                            None => biased.iter().map(|x| f64::from(*x)).collect(),
                        };
                        for i in 0..rot / 2 {
                            let (a, b) = match style {
                                RopeStyle::Interleaved => (2 * i, 2 * i + 1),
                                RopeStyle::Halves => (i, i + rot / 2),
                            };
                            let (c, s) = (f64::from(cos[row * rot / 2 + i]), f64::from(sin[row * rot / 2 + i]));
                            (expected[a], expected[b]) =
                                (expected[a] * c - expected[b] * s, expected[a] * s + expected[b] * c);
                        }
                        for (got, expected) in got.iter().zip(expected) {
                            close(*got, expected, &format!("{} {style:?} head of {head_dim}", compute.isa()));
                        }
                    }
                }
            }
        }
    }
}

/// All operations on rows `rows` of one big input: the norm's and the heads' output, and the hidden
/// rows after adding.
fn everything(compute: &Compute, dim: usize, rows: &[usize]) -> [Vec<Vec<u32>>; 3] {
    const ALL: usize = 70;
    let pick = |seed: u64| -> Vec<f32> {
        let all = noises(seed, ALL * dim);
        rows.iter().flat_map(|i| all[i * dim..][..dim].to_vec()).collect()
    };
    let per_row = |x: &[f32]| x.chunks(dim).map(bits).collect::<Vec<_>>();
    let weight = noises(20, dim);
    let hidden = noises(21, ALL * dim);
    let mut x = Activations::new();
    compute.norm(&hidden, dim, rows, &weight, 1e-5, InputForms::BOTH, &mut x);
    let normed = per_row(x.f32_rows());
    let mut sums = hidden.clone();
    compute.add(&pick(24), dim, rows, Some((&weight, 1e-5)), &mut sums);
    let sums = per_row(&rows.iter().flat_map(|i| sums[i * dim..][..dim].to_vec()).collect::<Vec<_>>());
    let (cos, sin) = angles(ALL, 16);
    let (cos, sin): (Vec<f32>, Vec<f32>) =
        rows.iter().flat_map(|i| (i * 8..i * 8 + 8).map(|j| (cos[j], sin[j]))).unzip();
    let rope = RopeRows { cos: &cos, sin: &sin, style: RopeStyle::Halves, rot: 16 };
    let mut heads = pick(25);
    compute.heads(&mut heads, dim / 16, 16, Some(&weight), Some((&weight[..16], 1e-6)), &rope);
    [normed, sums, per_row(&heads)]
}

#[test]
fn bits_do_not_depend_on_row_count_order_or_threads() {
    for dim in [16, 48, 576, 2048] {
        for isa in Isa::available() {
            let one = Compute::new(isa, 1);
            let alone: Vec<[Vec<Vec<u32>>; 3]> = (0..70).map(|row| everything(&one, dim, &[row])).collect();
            for threads in 1..=3 {
                let compute = Compute::new(isa, threads);
                let all: Vec<usize> = (0..70).collect();
                let backwards: Vec<usize> = (0..70).rev().collect();
                for rows in [&all[..], &backwards[..], &all[3..5], &all[60..]] {
                    let together = everything(&compute, dim, rows);
                    for (i, row) in rows.iter().enumerate() {
                        for (op, name) in ["norm", "add", "heads"].iter().enumerate() {
                            assert_eq!(
                                together[op][i],
                                alone[*row][op][0],
                                "{isa} {threads} threads, {name} of row {row} among {}",
                                rows.len()
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_nan_reaches_its_own_row_and_no_other() {
    let dim = 48;
    for compute in computes(2) {
        let mut hidden = noises(40, 3 * dim);
        hidden[dim + 47] = f32::NAN;
        let weight = vec![1.0; dim];
        let mut x = Activations::new();
        compute.norm(&hidden, dim, &[0, 1, 2], &weight, 1e-5, InputForms::BOTH, &mut x);
        for (row, values) in x.f32_rows().chunks(dim).enumerate() {
            assert!(values.iter().all(|v| v.is_nan() == (row == 1)), "{} row {row}", compute.isa());
        }
        let mut sums = noises(41, 3 * dim);
        compute.add(&hidden, dim, &[0, 1, 2], Some((&weight, 1e-5)), &mut sums);
        assert!(sums.iter().enumerate().all(|(i, v)| v.is_nan() == (i / dim == 1)));
        let mut weight = weight;
        weight[5] = f32::NAN;
        compute.norm(&hidden, dim, &[0], &weight, 1e-5, InputForms::F32, &mut x);
        assert!(x.f32_rows()[5].is_nan());
    }
}

/// The message of the panic that `f` ends with.
fn panic_of(f: impl FnOnce(&Compute, &mut Activations)) -> String {
    let run = std::panic::AssertUnwindSafe(|| f(&Compute::new(Isa::Scalar, 1), &mut Activations::new()));
    let payload = std::panic::catch_unwind(run).expect_err("a broken contract");
    payload.downcast_ref::<String>().expect("a message with facts").clone()
}

#[test]
fn broken_contracts_panic_with_the_facts() {
    let x = [0.0f32; 12];
    let norm = |len: usize, dim: usize, index: &[usize], weight: usize| {
        panic_of(|c, a| c.norm(&x[..len], dim, index, &x[..weight], 1e-5, InputForms::F32, a))
    };
    assert_eq!(norm(11, 4, &[], 4), "11 hidden values are no whole number of rows of 4");
    assert_eq!(norm(12, 0, &[], 0), "12 hidden values are no whole number of rows of 0");
    assert_eq!(norm(12, 4, &[3], 4), "row 3 of 3 hidden rows");
    assert_eq!(norm(12, 4, &[2], 3), "3 norm weights for rows of 4");
    assert_eq!(panic_of(|c, _| c.add(&x[..8], 4, &[0], None, &mut [0.0; 12])), "8 values for 1 rows of 4");
    assert_eq!(panic_of(|c, _| c.add(&x[..4], 4, &[3], None, &mut [0.0; 12])), "row 3 of 3 hidden rows");
    let heads = |rot: usize, angles: usize| {
        panic_of(|c, _| {
            let rope = RopeRows { cos: &x[..angles], sin: &x[..angles], style: RopeStyle::Halves, rot };
            c.heads(&mut [0.0; 12], 1, 6, None, None, &rope);
        })
    };
    assert_eq!(heads(8, 8), "8 rotated dimensions of a head of 6");
    assert_eq!(heads(3, 3), "3 rotated dimensions of a head of 6");
    assert_eq!(heads(4, 5), "5 cosines for 2 rows, expected 4");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn any_width_is_right_on_every_instruction_set(dim in 1usize..300, rows in 1usize..6, threads in 1usize..4, scale in 1e-3f32..1e3) {
        let hidden: Vec<f32> = noises(50, rows * dim).iter().map(|x| x * scale).collect();
        let weight = noises(51, dim);
        let index: Vec<usize> = (0..rows).rev().collect();
        for compute in computes(threads) {
            let mut x = Activations::new();
            compute.norm(&hidden, dim, &index, &weight, 1e-6, InputForms::BOTH, &mut x);
            for (row, i) in x.f32_rows().chunks(dim).zip(&index) {
                for (got, expected) in row.iter().zip(norm_f64(&hidden[i * dim..][..dim], &weight, 1e-6)) {
                    close(*got, expected, "norm");
                }
            }
        }
    }
}
