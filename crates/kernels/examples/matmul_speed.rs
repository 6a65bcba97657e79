//! Measures the matrix kernels on one thread with the weights in the second-level cache: what the
//! arithmetic of a row costs when nothing waits for memory.
//!
//! `cargo run --release -p selfspec-kernels --example matmul_speed -- [n] [k]`

#![allow(clippy::print_stdout)]

use std::time::Instant;

use selfspec_kernels::{Activations, Compute, InputForms, Isa, MatrixProduct, PanelMatrix, Team, WeightFormat};

const ROWS: [usize; 6] = [1, 2, 3, 4, 8, 16];
const REPETITIONS: usize = 300;

fn main() {
    let arg = |i: usize, default: usize| std::env::args().nth(i).and_then(|a| a.parse().ok()).unwrap_or(default);
    let (n, k) = (arg(1, 512), arg(2, 1024));
    println!("{n} by {k}: nanoseconds for a row and 16 by 32 weights (512 multiply-adds), best of {REPETITIONS}");
    print!("{:8}{:6}", "", "");
    ROWS.iter().for_each(|m| print!("{:>8}", format!("{m} rows")));
    println!();
    for isa in Isa::available() {
        let compute = Compute::new(isa, 1);
        for format in WeightFormat::ALL {
            if n * k % (16 * 32) == 0 && k.is_multiple_of(format.block_len()) {
                println!("{:8}{:6}{}", isa.to_string(), format.to_string(), line(&compute, format, n, k));
            }
        }
    }
}

fn line(compute: &Compute, format: WeightFormat, n: usize, k: usize) -> String {
    let mut state = 1u32;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 9) as u8 & 0x3f // small exponents wherever a scale may stand, and no subnormal numbers
    };
    let len = n * k / format.block_len() * format.block_bytes();
    let bytes: Vec<u8> = (0..len).map(|_| byte() | 0x20).collect();
    let w = PanelMatrix::pack(&Team::new(1), format, n, k, &bytes).expect("a sound matrix");
    let mut text = String::new();
    for m in ROWS {
        let values: Vec<f32> = (0..m * k).map(|i| ((i * 37) % 255) as f32 - 127.0).collect();
        let mut x = Activations::new();
        compute.load(&values, k, InputForms::of(&[&w]), &mut x);
        let mut out = vec![0f32; m * n];
        let mut best = f64::MAX;
        for _ in 0..REPETITIONS {
            let started = Instant::now();
            compute.matmul(&x, &mut [MatrixProduct { weights: &w, out: &mut out }]);
            best = best.min(started.elapsed().as_secs_f64());
        }
        let blocks = (m * n / 16 * k / 32) as f64;
        text += &format!("{:8.2}", best / blocks * 1e9);
    }
    text
}
