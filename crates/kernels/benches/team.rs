//! The cost of a fork-join, and what another busy process does to a run of small jobs.
//!
//! The table alternates rounds with and without spinning threads beside the team. Law: speed falls
//! by about the share of the processor that is lost, never by orders of magnitude.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use criterion::{Criterion, criterion_group};
use selfspec_kernels::Team;

/// A few microseconds of work that no other thread touches.
fn work(turns: usize) {
    let mut x = 1u64;
    for i in 0..turns {
        x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(i as u64));
    }
}

/// Seconds for `jobs` fork-joins of 8 parts.
fn round(team: &Team, jobs: usize, turns: usize) -> f64 {
    let start = Instant::now();
    for _ in 0..jobs {
        team.run(8, &|_| work(turns));
    }
    start.elapsed().as_secs_f64()
}

fn table() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for threads in [1, cores, cores + 1, 2 * cores, 4 * cores] {
        let team = Team::new(threads);
        for spinners in [0, 1, cores] {
            let stop = AtomicBool::new(false);
            let ready = AtomicUsize::new(0);
            let mut times = Vec::new();
            std::thread::scope(|s| {
                for _ in 0..spinners {
                    s.spawn(|| {
                        ready.fetch_add(1, Ordering::Relaxed);
                        while !stop.load(Ordering::Relaxed) {
                            work(1000);
                        }
                    });
                }
                while ready.load(Ordering::Relaxed) < spinners {
                    std::thread::yield_now();
                }
                for _ in 0..15 {
                    times.push(round(&team, 2000, 2000));
                }
                stop.store(true, Ordering::Relaxed);
            });
            times.sort_by(f64::total_cmp);
            eprintln!(
                "{threads} threads on {cores} cores, {spinners} spinning beside them: {:7.1} us a job (median), {:7.1} best, {:7.1} worst",
                times[7] / 2e-3,
                times[0] / 2e-3,
                times[14] / 2e-3,
            );
        }
    }
}

fn fork_join(c: &mut Criterion) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let team = Team::new(cores);
    for parts in [2, 8, 32] {
        c.bench_function(&format!("fork-join of {parts} empty parts"), |b| {
            b.iter(|| {
                team.run(parts, &|part| {
                    black_box(part);
                })
            })
        });
    }
}

criterion_group!(benches, fork_join);

fn main() {
    if std::env::args().any(|arg| arg == "--bench") {
        table();
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
}
