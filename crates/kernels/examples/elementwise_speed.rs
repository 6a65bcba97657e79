//! Measures what happens to a row between the matrix products, on one thread with everything in
//! cache.
//!
//! `cargo run --release -p selfspec-kernels --example elementwise_speed -- [width]`

#![allow(clippy::print_stdout)]

use std::time::Instant;

use selfspec_kernels::{Activations, Compute, InputForms, Isa, KvPages, KvType};

const ROWS: usize = 8;
const REPETITIONS: usize = 2000;

/// Median nanoseconds a row.
fn time(name: &str, isa: Isa, mut f: impl FnMut()) {
    let mut times: Vec<f64> = (0..REPETITIONS)
        .map(|_| {
            let started = Instant::now();
            f();
            started.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{:8}{name:30}{:6.0} ns a row", isa.to_string(), times[REPETITIONS / 2] / ROWS as f64 * 1e9);
}

fn main() {
    let width = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(576);
    println!("rows of {width} values, {ROWS} at a time");
    let values: Vec<f32> = (0..ROWS * width).map(|i| ((i * 37) % 255) as f32 - 127.0).collect();
    let (weight, index) = (vec![1f32; width], (0..ROWS).collect::<Vec<usize>>());
    for isa in Isa::available() {
        let compute = Compute::new(isa, 1);
        let mut x = Activations::new();
        time("8-bit blocks", isa, || compute.load(&values, width, InputForms::INT8, &mut x));
        time("norm", isa, || compute.norm(&values, width, &index, &weight, 1e-5, InputForms::F32, &mut x));
        time("norm and 8-bit blocks", isa, || {
            compute.norm(&values, width, &index, &weight, 1e-5, InputForms::INT8, &mut x)
        });
        let mut hidden = values.clone();
        time("sum", isa, || compute.add(&values, width, &index, None, &mut hidden));
        let row = vec![1f32; 3 * 64];
        for kv_type in KvType::ALL {
            let mut kv = KvPages::new(kv_type, 1, 3, 64, 1).expect("small");
            time(&format!("K and V of 3 heads of 64, {kv_type}"), isa, || {
                (0..ROWS).for_each(|slot| compute.write_kv(&mut kv, 0, 0, slot, &row, &row));
            });
        }
    }
}
