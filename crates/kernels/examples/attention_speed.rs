//! Measures attention at long contexts: how fast one row streams keys and values, and what more rows cost.
//!
//! `cargo run --release -p selfspec-kernels --example attention_speed -- [context] [threads]`

#![allow(clippy::print_stdout)]

use std::time::Instant;

use selfspec_kernels::{AttentionRow, Compute, Isa, KvPages, PAGE_POSITIONS};

fn main() {
    let arg = |i: usize, default: usize| std::env::args().nth(i).and_then(|a| a.parse().ok()).unwrap_or(default);
    let (context, threads) = (arg(1, 4096), arg(2, 2));
    println!("context {context}, {threads} threads; cost is relative to one row");
    for isa in Isa::available() {
        let compute = Compute::new(isa, threads);
        // Layers, KV heads, query heads a KV head, head dimension: SmolLM2-135M, Llama-3.2-1B, Gemma-3-270M.
        for (layers, kv_heads, group, dim) in [(30, 3, 3, 64), (16, 8, 4, 64), (18, 1, 4, 256)] {
            measure(&compute, context, layers, (kv_heads, group, dim));
        }
    }
}

fn measure(compute: &Compute, context: usize, layers: usize, (kv_heads, group, dim): (usize, usize, usize)) {
    let pages = context.div_ceil(PAGE_POSITIONS);
    let mut kv = KvPages::new(layers, kv_heads, dim, pages).expect("memory for the cache");
    let table: Vec<u32> = (0..pages as u32).collect();
    let row: Vec<f32> = (0..kv_heads * dim).map(|i| (i as f32 * 0.7).sin()).collect();
    for layer in 0..layers {
        for pos in 0..context {
            compute.write_kv(&mut kv, layer, table[pos / PAGE_POSITIONS], pos % PAGE_POSITIONS, &row, &row);
        }
    }
    let heads = kv_heads * group;
    let bytes = (layers * context * kv_heads * dim * 4) as f64;
    let mut one = 0.0;
    print!("{:7} {kv_heads} x {group} heads of {dim:3}, {:5.1} MB:", compute.isa().to_string(), bytes / 1e6);
    for n in [1, 2, 4, 8, 64] {
        let rows: Vec<AttentionRow<'_>> =
            (0..n).map(|i| AttentionRow { pages: &table, pos: context - n + i, first: 0 }).collect();
        let q: Vec<f32> = (0..n * heads * dim).map(|i| (i as f32 * 0.3).cos()).collect();
        let mut out = vec![0.0; q.len()];
        let mut times: Vec<f64> = (0..if n > 8 { 3 } else { 9 })
            .map(|_| {
                let start = Instant::now();
                for layer in 0..layers {
                    compute.attention(&kv, layer, &rows, heads, &q, 0.125, None, &mut out);
                }
                start.elapsed().as_secs_f64()
            })
            .collect();
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        if n == 1 {
            one = median;
            print!(
                " 1 row {:.2} ms {:.1} GB/s (best {:.1});",
                median * 1e3,
                bytes / median / 1e9,
                bytes / times[0] / 1e9
            );
        } else {
            print!(" {n}: {:.2} (best {:.2})", median / one, times[0] / one);
        }
    }
    println!();
}
