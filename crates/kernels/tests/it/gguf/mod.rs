//! Random GGUF tensors, and what their numbers stand for, written straight from the format's
//! description and without the crate's own code.

use half::{bf16, f16};
use selfspec_kernels::WeightFormat;

/// A small generator of test data (xorshift).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..4 {
            random.next();
        }
        random
    }
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    /// In -1..1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
    pub(crate) fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.unit()).collect()
    }
}

/// Where the f16 scales stand in a block.
pub(crate) fn scale_offsets(format: WeightFormat) -> &'static [usize] {
    match format {
        WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 => &[],
        WeightFormat::Q4_0 | WeightFormat::Q5_0 | WeightFormat::Q8_0 => &[0],
        WeightFormat::Q4_1 | WeightFormat::Q5_1 | WeightFormat::Q4K | WeightFormat::Q5K => &[0, 2],
        WeightFormat::Q2K => &[80, 82],
        WeightFormat::Q3K => &[108],
        WeightFormat::Q6K => &[208],
    }
}

/// A tensor of shape (n, k): every bit of the quantised values random, the scales of ordinary size.
pub(crate) fn random_tensor(format: WeightFormat, n: usize, k: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let values = n * k;
    match format {
        WeightFormat::F32 => (0..values).flat_map(|_| random.unit().to_le_bytes()).collect(),
        WeightFormat::F16 => (0..values).flat_map(|_| f16::from_f32(random.unit()).to_le_bytes()).collect(),
        WeightFormat::Bf16 => (0..values).flat_map(|_| bf16::from_f32(random.unit()).to_le_bytes()).collect(),
        _ => {
            let bytes = values / format.block_len() * format.block_bytes();
            let mut tensor: Vec<u8> = (0..bytes).map(|_| (random.next() >> 24) as u8).collect();
            for block in tensor.chunks_exact_mut(format.block_bytes()) {
                for at in scale_offsets(format) {
                    block[*at..at + 2].copy_from_slice(&f16::from_f32(0.02 * random.unit()).to_le_bytes());
                }
            }
            tensor
        }
    }
}

fn f16_at(b: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([b[at], b[at + 1]]).to_f32()
}

/// The values of a row.
pub(crate) fn dequantise(format: WeightFormat, row: &[u8]) -> Vec<f32> {
    row.chunks_exact(format.block_bytes()).flat_map(|b| block(format, b)).collect()
}

fn block(format: WeightFormat, b: &[u8]) -> Vec<f32> {
    let mut y = vec![0f32; format.block_len()];
    match format {
        WeightFormat::F32 => y[0] = f32::from_le_bytes([b[0], b[1], b[2], b[3]]),
        WeightFormat::F16 => y[0] = f16_at(b, 0),
        WeightFormat::Bf16 => y[0] = bf16::from_le_bytes([b[0], b[1]]).to_f32(),
        WeightFormat::Q4_0 => {
            let d = f16_at(b, 0);
            for j in 0..16 {
                y[j] = (i32::from(b[2 + j] & 15) - 8) as f32 * d;
                y[j + 16] = (i32::from(b[2 + j] >> 4) - 8) as f32 * d;
            }
        }
        WeightFormat::Q4_1 => {
            let (d, m) = (f16_at(b, 0), f16_at(b, 2));
            for j in 0..16 {
                y[j] = f32::from(b[4 + j] & 15) * d + m;
                y[j + 16] = f32::from(b[4 + j] >> 4) * d + m;
            }
        }
        WeightFormat::Q5_0 | WeightFormat::Q5_1 => {
            let at = if format == WeightFormat::Q5_0 { 2 } else { 4 };
            let high = u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
            for j in 0..16 {
                let qs = b[at + 4 + j];
                let u0 = u32::from(qs & 15) + (high >> j & 1) * 16;
                let u1 = u32::from(qs >> 4) + (high >> (j + 16) & 1) * 16;
                for (i, u) in [(j, u0), (j + 16, u1)] {
                    y[i] = if format == WeightFormat::Q5_0 {
                        (u as i32 - 16) as f32 * f16_at(b, 0)
                    } else {
                        u as f32 * f16_at(b, 0) + f16_at(b, 2)
                    };
                }
            }
        }
        WeightFormat::Q8_0 => {
            for j in 0..32 {
                y[j] = f32::from(b[2 + j] as i8) * f16_at(b, 0);
            }
        }
        WeightFormat::Q2K => {
            let (scales, qs, d, dmin) = (&b[..16], &b[16..80], f16_at(b, 80), f16_at(b, 82));
            for (i, y) in y.iter_mut().enumerate() {
                let q = qs[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32)) & 3;
                let s = scales[i / 16];
                *y = d * f32::from(s & 15) * f32::from(q) - dmin * f32::from(s >> 4);
            }
        }
        WeightFormat::Q3K => {
            let (hmask, qs, packed, d) = (&b[..32], &b[32..96], &b[96..108], f16_at(b, 108));
            // 16 scales: the low 4 bits in the nibbles of 8 bytes, the high 2 bits in 4 bytes.
            let scale = |s: usize| {
                let low = if s < 8 { packed[s] & 15 } else { packed[s - 8] >> 4 };
                i32::from(low) + 16 * i32::from(packed[8 + s % 4] >> (2 * (s / 4)) & 3) - 32
            };
            for (i, y) in y.iter_mut().enumerate() {
                let low = i32::from(qs[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32)) & 3);
                let high = if hmask[i % 32] >> (i / 32) & 1 == 1 { 0 } else { 4 };
                *y = d * scale(i / 16) as f32 * (low - high) as f32;
            }
        }
        WeightFormat::Q4K | WeightFormat::Q5K => {
            let (d, dmin, packed) = (f16_at(b, 0), f16_at(b, 2), &b[4..16]);
            let scale = |j: usize| {
                if j < 4 { packed[j] & 63 } else { (packed[j + 4] & 15) | ((packed[j - 4] >> 6) << 4) }
            };
            let minimum = |j: usize| {
                if j < 4 { packed[j + 4] & 63 } else { (packed[j + 4] >> 4) | ((packed[j] >> 6) << 4) }
            };
            let qs = if format == WeightFormat::Q4K { &b[16..144] } else { &b[48..176] };
            for (i, y) in y.iter_mut().enumerate() {
                let j = i / 32;
                let mut q = qs[j / 2 * 32 + i % 32] >> (4 * (j % 2)) & 15;
                if format == WeightFormat::Q5K {
                    q += 16 * (b[16 + i % 32] >> j & 1);
                }
                *y = d * f32::from(scale(j)) * f32::from(q) - dmin * f32::from(minimum(j));
            }
        }
        WeightFormat::Q6K => {
            let (ql, qh, scales, d) = (&b[..128], &b[128..192], &b[192..208], f16_at(b, 208));
            for part in 0..2 {
                for l in 0..32 {
                    let (ql, h) = (&ql[64 * part..], qh[32 * part + l]);
                    let q = [
                        ql[l] & 15 | (h & 3) << 4,
                        ql[l + 32] & 15 | (h >> 2 & 3) << 4,
                        ql[l] >> 4 | (h >> 4 & 3) << 4,
                        ql[l + 32] >> 4 | (h >> 6 & 3) << 4,
                    ];
                    for (g, q) in q.iter().enumerate() {
                        let s = f32::from(scales[8 * part + l / 16 + 2 * g] as i8);
                        y[128 * part + 32 * g + l] = d * s * f32::from(*q as i8 - 32);
                    }
                }
            }
        }
    }
    y
}

/// Rows of the tensor as floats, shape (n, k).
pub(crate) fn dequantise_all(format: WeightFormat, bytes: &[u8], k: usize) -> Vec<f32> {
    let row_bytes = k / format.block_len() * format.block_bytes();
    bytes.chunks_exact(row_bytes).flat_map(|row| dequantise(format, row)).collect()
}

/// What a row means after the 8-bit rounding of its blocks of 32.
pub(crate) fn round_to_int8(row: &[f32]) -> Vec<f32> {
    row.chunks(32)
        .flat_map(|block| {
            let most = block.iter().fold(0f32, |m, x| m.max(x.abs()));
            // In f32, as it is defined: next to a tie, exact arithmetic would take the other
            // integer.
            let (inverse, scale) = (127.0 / most, most / 127.0);
            block.iter().map(move |x| if most == 0.0 { 0.0 } else { (x * inverse).round_ties_even() * scale })
        })
        .collect()
}

/// `w x` for every row of `w`, with the sum of the magnitudes that bounds the rounding.
pub(crate) fn product(w: &[f32], x: &[f32]) -> Vec<(f64, f64)> {
    w.chunks_exact(x.len())
        .map(|w| {
            w.iter().zip(x).fold((0.0, 0.0), |(sum, size), (w, x)| {
                let p = f64::from(*w) * f64::from(*x);
                (sum + p, size + p.abs())
            })
        })
        .collect()
}
