//! The matrix products of one decoder pass, in the shapes of a small and a larger model, for 1, 4
//! and 8 rows.
//!
//! First a table: passes of all row counts take turns, so that a busy machine slows them alike and
//! the ratios b(m) = T(m) / T(1) stand. "best" is the sum over the pass's matrix products of the
//! best time of each, which a busy machine hardly touches; "median" is that of whole passes. Then
//! the same passes as criterion benchmarks, for comparing two versions of the code.

use std::hint::black_box;
use std::time::Instant;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group};
use selfspec_kernels::{
    Activations, Compute, InputForms, Isa, MatrixProduct, PanelMatrix, WeightFormat, read_bandwidth,
};

/// Matrices that share one input: shape (n, k) each.
type Group = Vec<(usize, usize)>;

/// The layers of a model, and its head.
struct Stack {
    name: &'static str,
    groups: Vec<(Group, bool)>, // whether it is the head
}

fn stacks() -> [Stack; 2] {
    let layer = |d: usize, kv: usize, ff: usize| {
        [vec![(d, d), (kv, d), (kv, d)], vec![(d, d)], vec![(ff, d), (ff, d)], vec![(d, ff)]]
    };
    let build = |name, layers: usize, d, kv, ff, vocab| {
        let mut groups: Vec<_> = (0..layers).flat_map(|_| layer(d, kv, ff).map(|group| (group, false))).collect();
        groups.push((vec![(vocab, d)], true));
        Stack { name, groups }
    };
    [build("576x1536", 30, 576, 192, 1536, 49_152), build("2048x8192", 6, 2048, 512, 8192, 32_768)]
}

/// Packed weights and buffers of a stack.
struct Pass {
    groups: Vec<(Vec<PanelMatrix>, usize)>, // and their k
    bytes: usize,
    inputs: Vec<(usize, usize, Activations)>, // (rows, k, values)
    out: Vec<f32>,
}

const ROWS: [usize; 3] = [1, 4, 8];

impl Pass {
    fn new(compute: &Compute, stack: &Stack, format: WeightFormat, head: WeightFormat) -> Pass {
        let mut seed = 1u32;
        let mut byte = move || {
            seed ^= seed << 13;
            seed ^= seed >> 17;
            seed ^= seed << 5;
            // Small exponents wherever a scale may stand.
            (seed >> 8) as u8 & 0x17
        };
        let pool: Vec<u8> = (0..1 << 20).map(|_| byte()).collect();
        let mut groups = Vec::new();
        for (group, is_head) in &stack.groups {
            let format = if *is_head { head } else { format };
            let matrices = group.iter().map(|(n, k)| {
                let len = n * k / format.block_len() * format.block_bytes();
                let bytes: Vec<u8> = pool.iter().copied().cycle().take(len).collect();
                PanelMatrix::pack(compute.team(), format, *n, *k, &bytes).expect("a sound matrix")
            });
            groups.push((matrices.collect::<Vec<_>>(), group[0].1));
        }
        let bytes = groups.iter().flat_map(|(g, _)| g).map(PanelMatrix::size_bytes).sum();
        let mut inputs: Vec<(usize, usize, Activations)> = Vec::new();
        for rows in ROWS {
            for (group, k) in &groups {
                if inputs.iter().any(|(r, have, _)| (*r, *have) == (rows, *k)) {
                    continue;
                }
                let values: Vec<f32> = (0..rows * k).map(|i| ((i * 37) % 255) as f32 / 127.0 - 1.0).collect();
                let mut x = Activations::new();
                compute.load(&values, *k, InputForms::of(&[&group[0]]), &mut x);
                inputs.push((rows, *k, x));
            }
        }
        let widest = groups.iter().map(|(g, _)| g.iter().map(PanelMatrix::n).sum::<usize>()).max().unwrap_or(0);
        Pass { groups, bytes, inputs, out: vec![0.0; widest * 8] }
    }

    /// One pass; `times` receives the seconds of each group where they are fewer.
    fn run(&mut self, compute: &Compute, rows: usize, times: &mut [f64]) {
        for (g, (group, k)) in self.groups.iter().enumerate() {
            let start = Instant::now();
            let x = self
                .inputs
                .iter()
                .find(|(r, have, _)| (*r, *have) == (rows, *k))
                .map(|(_, _, x)| x)
                .expect("made above");
            let mut rest = &mut self.out[..];
            let mut jobs: [Option<MatrixProduct<'_>>; 3] = [None, None, None];
            for (job, w) in jobs.iter_mut().zip(group) {
                let out;
                (out, rest) = rest.split_at_mut(rows * w.n());
                *job = Some(MatrixProduct { weights: w, out });
            }
            match jobs {
                [Some(a), Some(b), Some(c)] => compute.matmul(x, &mut [a, b, c]),
                [Some(a), Some(b), None] => compute.matmul(x, &mut [a, b]),
                [Some(a), None, None] => compute.matmul(x, &mut [a]),
                _ => unreachable!("a group has 1 to 3 matrices"),
            }
            if let Some(time) = times.get_mut(g) {
                *time = time.min(start.elapsed().as_secs_f64());
            }
        }
        black_box(&self.out);
    }
}

fn compute() -> Compute {
    let threads = std::env::var("SELFSPEC_BENCH_THREADS").ok().and_then(|t| t.parse().ok());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Compute::new(Isa::detect().expect("a set that this processor has"), threads.unwrap_or(cores))
}

const KINDS: [(WeightFormat, WeightFormat); 9] = [
    (WeightFormat::Q4_1, WeightFormat::Q8_0),
    (WeightFormat::Q8_0, WeightFormat::Q8_0),
    (WeightFormat::Q4_0, WeightFormat::Q8_0),
    (WeightFormat::Q4K, WeightFormat::Q6K),
    (WeightFormat::Q5_0, WeightFormat::Q8_0),
    (WeightFormat::Q6K, WeightFormat::Q6K),
    (WeightFormat::Q3K, WeightFormat::Q6K),
    (WeightFormat::Q2K, WeightFormat::Q6K),
    (WeightFormat::F16, WeightFormat::F16),
];

/// Whether the stack's rows are whole blocks of both formats.
fn fits(stack: &Stack, format: WeightFormat, head: WeightFormat) -> bool {
    let whole = |k: usize, is_head: bool| k.is_multiple_of(if is_head { head } else { format }.block_len());
    stack.groups.iter().all(|(group, is_head)| group.iter().all(|(_, k)| whole(*k, *is_head)))
}

fn wanted(format: WeightFormat) -> bool {
    std::env::var("SELFSPEC_BENCH_FORMAT").map_or(true, |name| name == format.to_string())
}

/// Interleaved passes: best and median of each row count, and the ratios.
fn table() {
    let passes = std::env::var("SELFSPEC_BENCH_PASSES").ok().and_then(|p| p.parse().ok()).unwrap_or(60);
    let compute = compute();
    eprintln!(
        "{}, {} threads, memory read at {:.1} GB/s",
        compute.isa(),
        compute.team().threads(),
        read_bandwidth(compute.team(), 256 << 20) / 1e9
    );
    for stack in stacks() {
        for (format, head) in KINDS.into_iter().filter(|(f, head)| wanted(*f) && fits(&stack, *f, *head)) {
            let mut pass = Pass::new(&compute, &stack, format, head);
            let mut times = [const { Vec::new() }; ROWS.len()];
            let mut best = [const { Vec::new() }; ROWS.len()];
            for _ in 0..passes {
                for (i, rows) in ROWS.into_iter().enumerate() {
                    best[i].resize(pass.groups.len(), f64::INFINITY);
                    let start = Instant::now();
                    pass.run(&compute, rows, &mut best[i]);
                    times[i].push(start.elapsed().as_secs_f64());
                }
            }
            times.iter_mut().for_each(|t| t.sort_by(f64::total_cmp));
            let best = best.map(|b| b.iter().sum::<f64>());
            let median = times.map(|t| t[t.len() / 2]);
            eprintln!(
                "{:9} {:4} {:5.1} MB  T(1) best {:6.2} ms, {:4.1} GB/s, median {:6.2}   b(4) best {:.2} median {:.2}   b(8) best {:.2} median {:.2}",
                stack.name,
                format.to_string(),
                pass.bytes as f64 / 1e6,
                best[0] * 1e3,
                pass.bytes as f64 / best[0] / 1e9,
                median[0] * 1e3,
                best[1] / best[0],
                median[1] / median[0],
                best[2] / best[0],
                median[2] / median[0],
            );
        }
    }
}

fn passes(c: &mut Criterion) {
    let compute = compute();
    for stack in stacks() {
        for (format, head) in KINDS.into_iter().filter(|(f, head)| wanted(*f) && fits(&stack, *f, *head)) {
            let mut pass = Pass::new(&compute, &stack, format, head);
            let mut group = c.benchmark_group(format!("{} {format}", stack.name));
            group.sample_size(20).throughput(Throughput::Bytes(pass.bytes as u64));
            for rows in ROWS {
                group.bench_function(BenchmarkId::from_parameter(rows), |b| {
                    b.iter(|| pass.run(&compute, rows, &mut []))
                });
            }
            group.finish();
        }
    }
}

criterion_group!(benches, passes);

fn main() {
    // Under `cargo test` everything runs once, so the table would only take time.
    if std::env::args().any(|arg| arg == "--bench") {
        table();
    }
    if std::env::var_os("SELFSPEC_BENCH_TABLE_ONLY").is_none() {
        benches();
        Criterion::default().configure_from_args().final_summary();
    }
}
