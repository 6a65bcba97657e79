//! Measures the speed at which the team reads memory: the bound of plain decoding.

use std::hint::black_box;
use std::time::Instant;

use crate::matmul::{AHEAD, FAR_AHEAD, FAR_STEP, WeightMemory};
use crate::simd::{prefetch, prefetch_far};
use crate::team::Team;

const PASSES: usize = 9;
const PART: usize = 256 << 10;

/// Bytes per second at which the team reads `bytes` of memory, after writing it once: the median of
/// several passes.
///
/// `bytes` should far exceed the caches; otherwise this measures the caches. It is raised to 1 MiB,
/// and halved until the system grants the memory. NaN if the system does not grant 1 MiB.
pub fn read_bandwidth(team: &Team, bytes: usize) -> f64 {
    let mut bytes = bytes.max(1 << 20);
    let mut store = loop {
        match WeightMemory::zeroed(bytes, "the bandwidth measurement") {
            Ok(store) => break store,
            Err(_) if bytes > 1 << 20 => bytes /= 2,
            Err(_) => return f64::NAN,
        }
    };
    team.chunks_mut(store.bytes_mut(), PART, |i, part| part.fill(i as u8 | 1));
    let data = store.bytes();
    let parts = data.len().div_ceil(PART);
    let mut times: Vec<f64> = (0..PASSES)
        .map(|_| {
            let start = Instant::now();
            team.run(parts, &|i| {
                black_box(read(&data[i * PART..data.len().min((i + 1) * PART)]));
            });
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    data.len() as f64 / times[PASSES / 2]
}

/// Touches every byte.
fn read(data: &[u8]) -> u64 {
    let mut sums = [0u64; 8];
    let lines = data.chunks_exact(64);
    let rest = lines.remainder().iter().map(|b| u64::from(*b)).sum::<u64>();
    for (i, line) in lines.enumerate() {
        prefetch(line.as_ptr().wrapping_add(AHEAD));
        if i.is_multiple_of(FAR_STEP / 64) {
            prefetch_far(line.as_ptr().wrapping_add(FAR_AHEAD));
        }
        for (sum, word) in sums.iter_mut().zip(bytemuck::cast_slice::<u8, [u8; 8]>(line)) {
            *sum = sum.wrapping_add(u64::from_ne_bytes(*word));
        }
    }
    sums.iter().fold(rest, |a, b| a.wrapping_add(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_read_and_the_speed_is_a_speed() {
        for len in [0, 1, 63, 64, 65, 1000] {
            let mut data = vec![0u8; len];
            assert_eq!(read(&data), 0);
            for i in 0..len {
                data[i] = 1;
                assert_ne!(read(&data), 0, "byte {i} of {len}");
                data[i] = 0;
            }
        }
        for threads in [1, 3] {
            let speed = read_bandwidth(&Team::new(threads), 0);
            assert!(speed.is_finite() && speed > 0.0, "{speed}");
        }
    }
}
