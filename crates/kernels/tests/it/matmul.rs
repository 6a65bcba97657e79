//! Matrix products: exact weights, right results on every instruction set, faults that show, and
//! row invariance.

use crate::gguf::{Random, dequantise_all, product, random_tensor, round_to_int8, scale_offsets};
use half::{bf16, f16};
use proptest::prelude::*;
use selfspec_kernels::{
    Activations, Compute, GateActivation, InputForm, InputForms, Isa, KernelError, MatrixProduct, PanelMatrix, Team,
    WeightFormat,
};

fn pack(format: WeightFormat, n: usize, k: usize, bytes: &[u8]) -> PanelMatrix {
    PanelMatrix::pack(&Team::new(2), format, n, k, bytes).expect("a sound matrix")
}

fn multiply(compute: &Compute, w: &PanelMatrix, rows: &[f32]) -> Vec<f32> {
    let mut x = Activations::new();
    compute.load(rows, w.k(), InputForms::of(&[w]), &mut x);
    let mut out = vec![f32::NAN; x.rows() * w.n()];
    compute.matmul(&x, &mut [MatrixProduct { weights: w, out: &mut out }]);
    out
}

/// A row length that the format allows; odd where it may be.
fn some_k(format: WeightFormat, blocks: usize) -> usize {
    match format.block_len() {
        1 => 21 * blocks,
        len => len * blocks,
    }
}

#[test]
fn rows_are_the_exact_values_of_the_file() {
    for (seed, format) in WeightFormat::ALL.into_iter().enumerate() {
        for n in [1, 15, 16, 37] {
            let k = some_k(format, 3);
            let bytes = random_tensor(format, n, k, seed as u64);
            let (w, expected) = (pack(format, n, k, &bytes), dequantise_all(format, &bytes, k));
            assert_eq!((w.n(), w.k(), w.format()), (n, k, format));
            let mut row = vec![0f32; k];
            for i in 0..n {
                w.row(i, &mut row);
                assert_eq!(row, expected[i * k..][..k], "{format}, row {i} of {n}");
            }
        }
    }
}

#[test]
fn packed_weights_take_about_the_size_of_the_file() {
    for format in WeightFormat::ALL {
        let (n, k) = (64, 1024);
        let bytes = random_tensor(format, n, k, 1);
        let (packed, file) = (pack(format, n, k, &bytes).size_bytes(), bytes.len());
        assert!(packed * 100 <= file * 104, "{format}: {packed} bytes packed, {file} in the file");
    }
}

fn check_product(format: WeightFormat, n: usize, k: usize, m: usize, seed: u64) {
    let bytes = random_tensor(format, n, k, seed);
    let w = pack(format, n, k, &bytes);
    let weights = dequantise_all(format, &bytes, k);
    let rows = Random::new(seed + 1).floats(m * k);
    let meant: Vec<f32> = match w.wants() {
        InputForm::F32 => rows.clone(),
        InputForm::Int8 => rows.chunks_exact(k).flat_map(round_to_int8).collect(),
    };
    for isa in Isa::available() {
        let out = multiply(&Compute::new(isa, 2), &w, &rows);
        for (r, (x, out)) in meant.chunks_exact(k).zip(out.chunks_exact(n)).enumerate() {
            for (i, (expected, size)) in product(&weights, x).into_iter().enumerate() {
                // Offsets and minima are put in by way of sums, so terms of the size of w's range
                // may cancel.
                let tolerance = 2e-6 * (size + 0.1 * (k as f64).sqrt());
                let got = f64::from(out[i]);
                assert!(
                    (got - expected).abs() <= tolerance,
                    "{format} {isa} row {r} output {i}: {got}, expected {expected}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn every_set_multiplies_right(n in 1usize..70, blocks in 1usize..4, extra in 0usize..31, m in 1usize..11, seed in any::<u32>()) {
        for format in WeightFormat::ALL {
            let k = if format.block_len() == 1 { 21 * blocks + extra } else { format.block_len() * blocks };
            check_product(format, n, k, m, u64::from(seed));
        }
    }
}

/// Here a value times 127 over the largest of its block lies within f32's rounding of a tie.
#[test]
fn a_value_beside_a_tie_is_rounded_as_defined() {
    check_product(WeightFormat::Q2K, 1, 512, 8, 2_141_493_548);
}

/// What [`Compute::gated`] gives for these rows: its floats, and its product with an identity in
/// 8-bit form, which shows the blocks.
fn gated(
    compute: &Compute,
    act: GateActivation,
    gate: &PanelMatrix,
    up: &PanelMatrix,
    rows: &[f32],
) -> (Vec<f32>, Vec<f32>) {
    let (mut x, mut out) = (Activations::new(), Activations::new());
    compute.load(rows, gate.k(), InputForms::of(&[gate, up]), &mut x);
    compute.gated(act, &x, gate, up, InputForms::BOTH, &mut out);
    let floats = out.f32_rows().to_vec();
    if !gate.n().is_multiple_of(32) {
        return (floats, Vec::new());
    }
    let n = gate.n();
    // Q8_0: one in the diagonal, as 127 times 1/127 would round.
    let mut identity = Vec::new();
    for i in 0..n {
        for block in 0..n / 32 {
            identity.extend(f16::ONE.to_le_bytes());
            identity.extend((0..32).map(|j| u8::from(block * 32 + j == i)));
        }
    }
    let identity = pack(WeightFormat::Q8_0, n, n, &identity);
    let mut product = vec![0.0; floats.len()];
    compute.matmul(&out, &mut [MatrixProduct { weights: &identity, out: &mut product }]);
    let mut only = Activations::new();
    compute.gated(act, &x, gate, up, InputForms::INT8, &mut only);
    let mut again = vec![0.0; floats.len()];
    compute.matmul(&only, &mut [MatrixProduct { weights: &identity, out: &mut again }]);
    assert_eq!(product, again, "the blocks are the same without the floats");
    (floats, product)
}

#[test]
fn a_gated_product_is_that_of_its_parts_whatever_the_company() {
    for (i, format) in WeightFormat::ALL.into_iter().enumerate() {
        let other = WeightFormat::ALL[(i + 5) % WeightFormat::ALL.len()]; // the two matrices need not be of one format
        let k = format.block_len().max(other.block_len()).max(32);
        for n in [1, 17, 40, 96] {
            let gate = pack(format, n, k, &random_tensor(format, n, k, 7));
            let up = pack(other, n, k, &random_tensor(other, n, k, 8));
            let rows = Random::new(9).floats(11 * k);
            for isa in Isa::available() {
                let one = Compute::new(isa, 1);
                for act in [GateActivation::Silu, GateActivation::GeluTanh] {
                    let (whole, blocks) = gated(&Compute::new(isa, 3), act, &gate, &up, &rows);
                    let (g, u) = (multiply(&one, &gate, &rows), multiply(&one, &up, &rows));
                    for ((got, g), u) in whole.iter().zip(&g).zip(&u) {
                        let (g, u) = (f64::from(*g), f64::from(*u));
                        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
                        let y = match act {
                            GateActivation::Silu => g * sigmoid(g),
                            GateActivation::GeluTanh => {
                                g * sigmoid((8.0 / std::f64::consts::PI).sqrt() * (g + 0.044715 * g * g * g))
                            }
                        };
                        let error = (f64::from(*got) - y * u).abs();
                        assert!(
                            error <= 3e-6 * (y * u).abs() + 2e-7 * u.abs(),
                            "{format} {isa} {act:?} of {g} and {u}: {got}"
                        );
                    }
                    for (row, values) in blocks.chunks_exact(n.max(1)).enumerate() {
                        let meant: Vec<f32> = round_to_int8(&whole[row * n..][..n]);
                        for (got, meant) in values.iter().zip(meant) {
                            assert!((got - meant).abs() <= 1e-5 * meant.abs(), "{format} {isa}: {got} for {meant}");
                        }
                    }
                    for row in [0, 4, 10] {
                        let (alone, alone_blocks) = gated(&one, act, &gate, &up, &rows[row * k..][..k]);
                        let same = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits());
                        assert!(same(&alone, &whole[row * n..]), "{format} {isa} row {row}");
                        assert!(alone_blocks.is_empty() || same(&alone_blocks, &blocks[row * n..]), "{format} {isa}");
                    }
                }
            }
        }
    }
}

#[test]
fn extreme_integers_do_not_saturate() {
    // All weights at their largest magnitude, activations at +-127 with the signs that push every
    // partial sum one way.
    for format in WeightFormat::ALL.into_iter().filter(|f| f.input() == InputForm::Int8) {
        for fill in [0x00u8, 0xff, 0x80, 0x7f] {
            let (n, k) = (16, 256);
            let mut bytes = vec![fill; n * k / format.block_len() * format.block_bytes()];
            for block in bytes.chunks_exact_mut(format.block_bytes()) {
                for at in scale_offsets(format) {
                    block[*at..at + 2].copy_from_slice(&f16::from_f32(0.125).to_le_bytes());
                }
            }
            let w = pack(format, n, k, &bytes);
            let weights = dequantise_all(format, &bytes, k);
            for sign in [1.0, -1.0] {
                let rows = vec![127.0 * sign; k];
                for isa in Isa::available() {
                    let out = multiply(&Compute::new(isa, 1), &w, &rows);
                    for (out, (expected, size)) in out.iter().zip(product(&weights, &rows)) {
                        let error = (f64::from(*out) - expected).abs();
                        assert!(error <= 1e-5 * size + 1e-2, "{format} {isa} {fill:#x}: {out}, expected {expected}");
                    }
                }
            }
        }
    }
}

/// Every format and instruction set: the bits of a row for all counts, orders and numbers of
/// threads, against its bits alone. Returns the cases in which they differed.
fn variant_rows() -> Vec<String> {
    let mut variant = Vec::new();
    for (seed, format) in WeightFormat::ALL.into_iter().enumerate() {
        let (n, k) = (83, some_k(format, if format.block_len() == 256 { 3 } else { 7 }));
        let w = pack(format, n, k, &random_tensor(format, n, k, seed as u64));
        let w2 = pack(format, 33, k, &random_tensor(format, 33, k, seed as u64 + 50));
        let rows = Random::new(7).floats(19 * k);
        for isa in Isa::available() {
            let alone: Vec<(Vec<f32>, Vec<f32>)> = {
                let compute = Compute::new(isa, 1);
                rows.chunks_exact(k).map(|row| (multiply(&compute, &w, row), multiply(&compute, &w2, row))).collect()
            };
            for threads in [1, 2, 3] {
                let compute = Compute::new(isa, threads);
                let mut x = Activations::new();
                for m in 1..=19 {
                    // A different order for every m: 1, 2, 3, 5, 7, ... have no factor in common
                    // with 19.
                    let order: Vec<usize> = (0..m).map(|i| (i * (m % 18 + 1) + threads) % 19).collect();
                    let input: Vec<f32> = order.iter().flat_map(|r| &rows[r * k..][..k]).copied().collect();
                    compute.load(&input, k, InputForms::of(&[&w]), &mut x);
                    let (mut out, mut out2) = (vec![0f32; m * n], vec![0f32; m * 33]);
                    let mut jobs =
                        [MatrixProduct { weights: &w, out: &mut out }, MatrixProduct { weights: &w2, out: &mut out2 }];
                    compute.matmul(&x, &mut jobs);
                    for (i, r) in order.iter().enumerate() {
                        let same = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits());
                        if !same(&out[i * n..][..n], &alone[*r].0) || !same(&out2[i * 33..][..33], &alone[*r].1) {
                            variant.push(format!("{format} {isa}, row {r} as number {i} of {m} on {threads} threads"));
                        }
                    }
                }
            }
        }
    }
    variant
}

#[cfg(not(feature = "broken-invariance"))]
#[test]
fn rows_do_not_depend_on_their_company() {
    let variant = variant_rows();
    assert!(variant.is_empty(), "{} rows differ, the first: {}", variant.len(), variant[0]);
}

/// The check above must be able to fail: with sums that run backwards in company, every format
/// shows it.
#[cfg(feature = "broken-invariance")]
#[test]
fn broken_invariance_is_noticed() {
    let variant = variant_rows();
    for format in WeightFormat::ALL {
        for isa in Isa::available() {
            let case = format!("{format} {isa},");
            assert!(variant.iter().any(|v| v.starts_with(&case)), "{case} summed backwards and nobody noticed");
        }
    }
}

#[test]
fn a_fault_in_an_activation_spoils_its_row_and_no_other() {
    for format in WeightFormat::ALL {
        let (n, k) = (20, some_k(format, 2));
        let w = pack(format, n, k, &random_tensor(format, n, k, 3));
        for isa in Isa::available() {
            let compute = Compute::new(isa, 2);
            let rows = Random::new(5).floats(3 * k);
            let sound = multiply(&compute, &w, &rows);
            for (fault, at) in [(f32::NAN, 0), (-f32::NAN, k - 1), (f32::INFINITY, k / 2), (f32::NEG_INFINITY, 1)] {
                let mut faulty = rows.clone();
                faulty[k + at] = fault;
                let out = multiply(&compute, &w, &faulty);
                assert!(out[n..2 * n].iter().all(|y| !y.is_finite()), "{format} {isa}: {fault} was hidden");
                assert_eq!(
                    (&out[..n], &out[2 * n..]),
                    (&sound[..n], &sound[2 * n..]),
                    "{format} {isa}: {fault} spread"
                );
            }
        }
    }
}

#[test]
fn a_nan_in_the_weights_spoils_its_output_and_no_other() {
    for format in WeightFormat::ALL {
        let (n, k) = (20, some_k(format, 2));
        let sound = random_tensor(format, n, k, 3);
        let row_bytes = sound.len() / n;
        let offsets = if scale_offsets(format).is_empty() { &[0][..] } else { scale_offsets(format) };
        for at in offsets {
            let mut bytes = sound.clone();
            let place = 17 * row_bytes + row_bytes - format.block_bytes() + at; // the last block of row 17
            match format {
                WeightFormat::F32 => bytes[place..place + 4].copy_from_slice(&f32::NAN.to_le_bytes()),
                WeightFormat::Bf16 => bytes[place..place + 2].copy_from_slice(&bf16::NAN.to_le_bytes()),
                _ => bytes[place..place + 2].copy_from_slice(&f16::NAN.to_le_bytes()),
            }
            let w = pack(format, n, k, &bytes);
            for isa in Isa::available() {
                for m in [1, 5] {
                    let out = multiply(&Compute::new(isa, 2), &w, &Random::new(5).floats(m * k));
                    for row in out.chunks_exact(n) {
                        for (i, y) in row.iter().enumerate() {
                            assert_eq!(y.is_nan(), i == 17, "{format} {isa}, scale at byte {at}: output {i} is {y}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn rows_of_zeros_and_of_tiny_values_give_finite_outputs() {
    for format in WeightFormat::ALL {
        let (n, k) = (16, some_k(format, 2));
        let w = pack(format, n, k, &random_tensor(format, n, k, 3));
        for isa in Isa::available() {
            for value in [0.0, -0.0, 1e-45, 1e-38, 1e-30, 1e30] {
                let out = multiply(&Compute::new(isa, 1), &w, &vec![value; k]);
                assert!(out.iter().all(|y| y.is_finite()), "{format} {isa}: {value}");
                if value == 0.0 {
                    assert!(out.iter().all(|y| *y == 0.0), "{format} {isa}: {value}");
                }
            }
        }
    }
}

#[test]
fn an_input_is_reused_for_other_shapes() {
    let compute = Compute::new(Isa::detect().expect("a set"), 2);
    let mut x = Activations::new();
    let (mut big, mut small) = (vec![0f32; 6 * 20], vec![0f32; 20]);
    let w = pack(WeightFormat::Q4_0, 20, 64, &random_tensor(WeightFormat::Q4_0, 20, 64, 1));
    let v = pack(WeightFormat::F16, 20, 5, &random_tensor(WeightFormat::F16, 20, 5, 1));
    let rows = Random::new(2).floats(6 * 64);
    compute.load(&rows, 64, InputForms::BOTH, &mut x);
    compute.matmul(&x, &mut [MatrixProduct { weights: &w, out: &mut big }]);
    let before = big.clone();
    compute.load(&rows[..5], 5, InputForms::F32, &mut x);
    assert_eq!((x.rows(), x.k(), x.inputs(), x.f32_rows()), (1, 5, InputForms::F32, &rows[..5]));
    compute.matmul(&x, &mut [MatrixProduct { weights: &v, out: &mut small }]);
    compute.load(&rows, 64, InputForms::BOTH, &mut x);
    compute.matmul(&x, &mut [MatrixProduct { weights: &w, out: &mut big }]);
    assert_eq!(big, before);
    compute.load(&[], 64, InputForms::BOTH, &mut x);
    compute.matmul(&x, &mut [MatrixProduct { weights: &w, out: &mut [] }]);
    compute.matmul(&x, &mut []);
}

#[test]
fn bad_shapes_are_refused() {
    let team = Team::new(1);
    for format in WeightFormat::ALL {
        let k = format.block_len() * 2;
        let bytes = random_tensor(format, 3, k, 1);
        let got = bytes.len();
        for (n, k) in [(0, k), (3, 0), (0, 0)] {
            assert_eq!(PanelMatrix::pack(&team, format, n, k, &bytes).err(), Some(KernelError::Empty { format, n, k }));
        }
        for bytes in [&bytes[..got - 1], &bytes[..0], &[&bytes[..], &[0]].concat()] {
            let error = KernelError::WrongLength { format, n: 3, k, expected: got, got: bytes.len() };
            assert_eq!(PanelMatrix::pack(&team, format, 3, k, bytes).err(), Some(error));
        }
        if format.block_len() > 1 {
            let error = KernelError::PartialBlock { format, k: k + 1, block_len: format.block_len() };
            assert_eq!(PanelMatrix::pack(&team, format, 3, k + 1, &bytes).err(), Some(error));
        }
        let huge = usize::MAX / 2 / format.block_len() * format.block_len();
        for (n, k) in [(usize::MAX, k), (3, huge), (huge, huge)] {
            let error = PanelMatrix::pack(&team, format, n, k, &bytes).err();
            assert!(
                matches!(error, Some(KernelError::Overflow { .. } | KernelError::WrongLength { .. })),
                "{format} {n} {k}: {error:?}"
            );
        }
    }
}
