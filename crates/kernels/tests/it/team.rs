//! The worker team: every part once, whatever the threads; panics come back; small jobs in great
//! number.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use selfspec_kernels::Team;

#[test]
fn every_part_runs_once() {
    for threads in [0, 1, 2, 3, 8, 33] {
        let team = Team::new(threads);
        assert_eq!(team.threads(), threads.max(1));
        for parts in [0, 1, 2, 3, 7, 64, 1000] {
            let counts: Vec<AtomicUsize> = (0..parts).map(|_| AtomicUsize::new(0)).collect();
            team.run(parts, &|part| {
                counts[part].fetch_add(1, Ordering::Relaxed);
            });
            assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1), "{threads} threads, {parts} parts");
        }
    }
}

#[test]
fn many_small_jobs_lose_no_part() {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    for threads in [2, cores + 1, 4 * cores] {
        let team = Team::new(threads);
        let mut data = vec![0u32; 50];
        for round in 0..5_000 {
            team.chunks_mut(&mut data, 3, |_, chunk| chunk.iter_mut().for_each(|x| *x += 1));
            if round % 1000 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(2)); // the workers go to sleep
            }
        }
        assert!(data.iter().all(|x| *x == 5_000), "{threads} threads: {data:?}");
    }
}

#[test]
fn chunks_cover_the_data_in_order() {
    let team = Team::new(3);
    for len in [0, 1, 5, 16, 17, 100] {
        for chunk in [1, 4, 16, 200] {
            let mut data = vec![usize::MAX; len];
            team.chunks_mut(&mut data, chunk, |index, part| {
                assert!(part.len() == chunk || (index + 1) * chunk > len);
                for (i, x) in part.iter_mut().enumerate() {
                    *x = index * chunk + i;
                }
            });
            assert_eq!(data, (0..len).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_panic_comes_back_and_the_team_goes_on() {
    for threads in [1, 2, 4] {
        let team = Team::new(threads);
        for bad in [0, 5, 9] {
            let ended = AtomicUsize::new(0);
            let result = catch_unwind(AssertUnwindSafe(|| {
                team.run(10, &|part| {
                    assert!(part != bad, "part {part} fails");
                    ended.fetch_add(1, Ordering::Relaxed);
                });
            }));
            let payload = result.expect_err("the panic was swallowed");
            assert_eq!(payload.downcast_ref::<String>(), Some(&format!("part {bad} fails")));
            if threads > 1 {
                assert_eq!(ended.load(Ordering::Relaxed), 9, "the other parts run");
            }
            let sum = AtomicUsize::new(0);
            team.run(100, &|part| {
                sum.fetch_add(part, Ordering::Relaxed);
            });
            assert_eq!(sum.load(Ordering::Relaxed), 4950);
        }
    }
}

#[test]
fn a_job_within_a_part_runs_on_the_spot() {
    let team = Team::new(3);
    let other = Team::new(2);
    let sum = AtomicUsize::new(0);
    team.run(6, &|_| {
        team.run(5, &|part| {
            sum.fetch_add(part, Ordering::Relaxed);
        });
        other.run(5, &|part| {
            sum.fetch_add(part, Ordering::Relaxed);
        });
    });
    assert_eq!(sum.load(Ordering::Relaxed), 6 * 2 * 10);
}

#[test]
fn callers_of_one_team_take_turns() {
    let team = Team::new(2);
    let sum = AtomicUsize::new(0);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..500 {
                    team.run(7, &|part| {
                        sum.fetch_add(part, Ordering::Relaxed);
                    });
                }
            });
        }
    });
    assert_eq!(sum.load(Ordering::Relaxed), 4 * 500 * 21);
}

/// Counts the threads that have ended.
struct Ended(Arc<AtomicUsize>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

thread_local! {
    static ENDED: RefCell<Option<Ended>> = const { RefCell::new(None) };
}

#[test]
fn dropping_a_team_ends_its_threads() {
    for asleep in [false, true] {
        let ended = Arc::new(AtomicUsize::new(0));
        let caller = std::thread::current().id();
        let team = Team::new(5);
        let all = Barrier::new(5);
        team.run(5, &|_| {
            all.wait(); // each of the five threads has one part
            if std::thread::current().id() != caller {
                ENDED.set(Some(Ended(Arc::clone(&ended))));
            }
        });
        if asleep {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        drop(team);
        assert_eq!(ended.load(Ordering::SeqCst), 4);
    }
}
