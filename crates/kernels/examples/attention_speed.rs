//! Measures attention at long contexts: how fast one row streams keys and values, and what more
//! rows cost.
//!
//! `cargo run --release -p selfspec-kernels --example attention_speed -- [context] [threads]
//! [instruction set]`

#![allow(clippy::print_stdout)]

use std::time::Instant;

use selfspec_kernels::{AttentionRow, Compute, Isa, KvPages, KvType, PAGE_POSITIONS};

fn main() {
    let arg = |i: usize, default: usize| std::env::args().nth(i).and_then(|a| a.parse().ok()).unwrap_or(default);
    let (context, threads) = (arg(1, 4096), arg(2, 2));
    println!("context {context}, {threads} threads; cost is relative to one row");
    let chosen = std::env::args().nth(3).map(|name| name.parse().expect("an instruction set of this processor"));
    for isa in chosen.map_or_else(Isa::available, |isa| vec![isa]) {
        let compute = Compute::new(isa, threads);
        // Layers, KV heads, query heads a KV head, head dimension: SmolLM2-135M, Llama-3.2-1B,
        // Gemma-3-270M.
        for (layers, kv_heads, group, dim) in [(30, 3, 3, 64), (16, 8, 4, 64), (18, 1, 4, 256)] {
            measure(&compute, context, layers, (kv_heads, group, dim));
        }
    }
}

fn measure(compute: &Compute, context: usize, layers: usize, (kv_heads, group, dim): (usize, usize, usize)) {
    let pages = context.div_ceil(PAGE_POSITIONS);
    let table: Vec<u32> = (0..pages as u32).collect();
    let row: Vec<f32> = (0..kv_heads * dim).map(|i| (i as f32 * 0.7).sin()).collect();
    let caches = KvType::ALL.map(|kv_type| {
        let mut kv = KvPages::new(kv_type, layers, kv_heads, dim, pages).expect("memory for the cache");
        for layer in 0..layers {
            for pos in 0..context {
                compute.write_kv(&mut kv, layer, table[pos / PAGE_POSITIONS], pos % PAGE_POSITIONS, &row, &row);
            }
        }
        kv
    });
    let heads = kv_heads * group;
    const ROWS: [usize; 5] = [1, 2, 4, 8, 64];
    let seconds = ROWS.map(|n| {
        let rows: Vec<AttentionRow<'_>> =
            (0..n).map(|i| AttentionRow { pages: &table, pos: context - n + i, first: 0 }).collect();
        let q: Vec<f32> = (0..n * heads * dim).map(|i| (i as f32 * 0.3).cos()).collect();
        let mut out = vec![0.0; q.len()];
        let mut times = [const { Vec::new() }; KvType::ALL.len()];
        // The types take turns, so that a machine that slows down for a while slows both.
        for _ in 0..if n > 8 { 3 } else { 15 } {
            for (kv, times) in caches.iter().zip(&mut times) {
                let start = Instant::now();
                for layer in 0..layers {
                    compute.attention(kv, layer, &rows, heads, &q, 0.125, &mut out);
                }
                times.push(start.elapsed().as_secs_f64());
            }
        }
        times.each_mut().iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
        times.map(|times| (times[times.len() / 2], times[0]))
    });
    for (t, kv_type) in KvType::ALL.into_iter().enumerate() {
        let bytes = (layers * context * kv_heads * kv_type.head_bytes(dim)) as f64;
        print!("{:7} {kv_type} {kv_heads} x {group} heads of {dim:3}, {:5.1} MB:", compute.isa(), bytes / 1e6);
        let (one, best) = seconds[0][t];
        print!(" 1 row {:.3} ms {:.1} GB/s (best {:.1});", one * 1e3, bytes / one / 1e9, bytes / best / 1e9);
        for (n, times) in ROWS.iter().zip(&seconds).skip(1) {
            print!(" {n}: {:.2} (best {:.2})", times[t].0 / one, times[t].1 / best);
        }
        println!();
    }
}
