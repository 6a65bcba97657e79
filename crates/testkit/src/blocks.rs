//! Tensor types in both directions, written for clearness: simple quantisers, and exact readings of
//! every block layout.
//!
//! The layouts are those of GGUF (`ggml-common.h`). The readings serve as the oracle for faster
//! code.

use half::{bf16, f16};
use selfspec_weights::TensorType;

/// Writes `values` (whole blocks) as `ty`. Rounding is simple and not the best possible.
///
/// # Panics
/// If the values are not whole blocks.
pub fn quantize(ty: TensorType, values: &[f32]) -> Vec<u8> {
    assert!(values.len().is_multiple_of(ty.block_len()), "{} values are not whole blocks of {ty}", values.len());
    let mut out = Vec::with_capacity(values.len() / ty.block_len() * ty.block_bytes());
    for x in values.chunks_exact(ty.block_len()) {
        match ty {
            TensorType::F32 => out.extend(x[0].to_le_bytes()),
            TensorType::F16 => out.extend(f16::from_f32(x[0]).to_le_bytes()),
            TensorType::Bf16 => out.extend(bf16::from_f32(x[0]).to_le_bytes()),
            TensorType::Q4_0 => symmetric(x, 4, &mut out),
            TensorType::Q5_0 => symmetric(x, 5, &mut out),
            TensorType::Q4_1 => affine(x, 4, &mut out),
            TensorType::Q5_1 => affine(x, 5, &mut out),
            TensorType::Q8_0 => {
                let d = put_f16(max_abs(x) / 127.0, &mut out);
                out.extend(x.iter().map(|v| level(*v, d, -127, 127) as i8 as u8));
            }
            TensorType::Q2K => q2_k(x, &mut out),
            TensorType::Q3K => q3_k(x, &mut out),
            TensorType::Q4K => q45_k(x, 4, &mut out),
            TensorType::Q5K => q45_k(x, 5, &mut out),
            TensorType::Q6K => q6_k(x, &mut out),
        }
    }
    out
}

/// Reads whole blocks of `ty`.
///
/// # Panics
/// If the bytes are not whole blocks.
pub fn dequantize(ty: TensorType, bytes: &[u8]) -> Vec<f32> {
    assert!(bytes.len().is_multiple_of(ty.block_bytes()), "{} bytes are not whole blocks of {ty}", bytes.len());
    let mut out = Vec::with_capacity(bytes.len() / ty.block_bytes() * ty.block_len());
    for b in bytes.chunks_exact(ty.block_bytes()) {
        match ty {
            TensorType::F32 => out.push(f32::from_le_bytes([b[0], b[1], b[2], b[3]])),
            TensorType::F16 => out.push(get_f16(b)),
            TensorType::Bf16 => out.push(bf16::from_le_bytes([b[0], b[1]]).to_f32()),
            TensorType::Q4_0 => out.extend((0..32).map(|i| get_f16(b) * (nibble(&b[2..], i) as f32 - 8.0))),
            TensorType::Q4_1 => {
                out.extend((0..32).map(|i| get_f16(b) * nibble(&b[4..], i) as f32 + get_f16(&b[2..])));
            }
            TensorType::Q5_0 => out.extend((0..32).map(|i| {
                let q = nibble(&b[6..], i) | (bit(&b[2..6], i) << 4);
                get_f16(b) * (q as f32 - 16.0)
            })),
            TensorType::Q5_1 => out.extend((0..32).map(|i| {
                let q = nibble(&b[8..], i) | (bit(&b[4..8], i) << 4);
                get_f16(b) * q as f32 + get_f16(&b[2..])
            })),
            TensorType::Q8_0 => out.extend((0..32).map(|i| get_f16(b) * f32::from(b[2 + i] as i8))),
            TensorType::Q2K => out.extend((0..256).map(|i| {
                let scale = b[i / 16];
                let (n, j, l) = (i / 128, i / 32 % 4, i % 32);
                let q = (b[16 + 32 * n + l] >> (2 * j)) & 3;
                get_f16(&b[80..]) * f32::from(scale & 15) * f32::from(q) - get_f16(&b[82..]) * f32::from(scale >> 4)
            })),
            TensorType::Q3K => out.extend((0..256).map(|i| {
                let scale = q3_scale(&b[96..108], i / 16) as f32 - 32.0;
                let (n, j, l) = (i / 128, i / 32 % 4, i % 32);
                let low = (b[32 + 32 * n + l] >> (2 * j)) & 3;
                let high = (b[l] >> (4 * n + j)) & 1;
                get_f16(&b[108..]) * scale * (f32::from(low) + 4.0 * f32::from(high) - 4.0)
            })),
            TensorType::Q4K => out.extend((0..256).map(|i| {
                let (scale, min) = scale_min(&b[4..16], i / 32);
                let q = b[16 + 32 * (i / 64) + i % 32] >> (4 * (i / 32 % 2)) & 15;
                get_f16(b) * scale as f32 * f32::from(q) - get_f16(&b[2..]) * min as f32
            })),
            TensorType::Q5K => out.extend((0..256).map(|i| {
                let (scale, min) = scale_min(&b[4..16], i / 32);
                let low = b[48 + 32 * (i / 64) + i % 32] >> (4 * (i / 32 % 2)) & 15;
                let high = (b[16 + i % 32] >> (i / 32)) & 1;
                get_f16(b) * scale as f32 * (f32::from(low) + 16.0 * f32::from(high)) - get_f16(&b[2..]) * min as f32
            })),
            TensorType::Q6K => out.extend((0..256).map(|i| {
                let (n, j, l) = (i / 128, i / 32 % 4, i % 32);
                let low = b[64 * n + 32 * (j % 2) + l] >> (4 * (j / 2)) & 15;
                let high = (b[128 + 32 * n + l] >> (2 * j)) & 3;
                let scale = f32::from(b[192 + i / 16] as i8);
                get_f16(&b[208..]) * scale * (f32::from(low) + 16.0 * f32::from(high) - 32.0)
            })),
        }
    }
    out
}

/// Q4_0 and Q5_0: one scale, chosen so that the largest value by magnitude takes the lowest level.
fn symmetric(x: &[f32], bits: u32, out: &mut Vec<u8>) {
    let half = 1 << (bits - 1);
    let extreme = x.iter().copied().fold(0.0_f32, |m, v| if v.abs() > m.abs() { v } else { m });
    let d = put_f16(-extreme / half as f32, out);
    let q: Vec<u32> = x.iter().map(|v| (level(*v, d, -half, half - 1) + half) as u32).collect();
    put_levels(&q, bits, out);
}

/// Q4_1 and Q5_1: a scale and a minimum.
fn affine(x: &[f32], bits: u32, out: &mut Vec<u8>) {
    let top = (1 << bits) - 1;
    let low = x.iter().copied().fold(f32::INFINITY, f32::min);
    let high = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let d = put_f16((high - low) / top as f32, out);
    let m = put_f16(low, out);
    let q: Vec<u32> = x.iter().map(|v| level(*v - m, d, 0, top) as u32).collect();
    put_levels(&q, bits, out);
}

/// The fifth bits of 32 levels, if there are any, then the nibbles: value i below value i + 16.
fn put_levels(q: &[u32], bits: u32, out: &mut Vec<u8>) {
    if bits == 5 {
        let high = q.iter().enumerate().fold(0u32, |h, (i, q)| h | (q >> 4) << i);
        out.extend(high.to_le_bytes());
    }
    out.extend((0..16).map(|i| (q[i] & 15) as u8 | ((q[i + 16] & 15) as u8) << 4));
}

/// Scale and offset (both at least 0) of each run of `run` values, so that value = scale * level -
/// offset.
fn scales_and_mins(x: &[f32], run: usize, top: i32) -> Vec<(f32, f32)> {
    x.chunks_exact(run)
        .map(|c| {
            let low = c.iter().copied().fold(0.0, f32::min);
            let high = c.iter().copied().fold(0.0, f32::max);
            ((high - low) / top as f32, -low)
        })
        .collect()
}

fn q2_k(x: &[f32], out: &mut Vec<u8>) {
    let wanted = scales_and_mins(x, 16, 3);
    let start = out.len();
    out.resize(start + 80, 0);
    let d = put_f16(wanted.iter().fold(0.0, |m: f32, w| m.max(w.0)) / 15.0, out);
    let dmin = put_f16(wanted.iter().fold(0.0, |m: f32, w| m.max(w.1)) / 15.0, out);
    let b = &mut out[start..];
    for (i, (scale, min)) in wanted.iter().enumerate() {
        b[i] = level(*scale, d, 0, 15) as u8 | (level(*min, dmin, 0, 15) as u8) << 4;
    }
    for (i, v) in x.iter().enumerate() {
        let (scale, min) = (f32::from(b[i / 16] & 15), f32::from(b[i / 16] >> 4));
        let q = level(v + dmin * min, d * scale, 0, 3) as u8;
        b[16 + 32 * (i / 128) + i % 32] |= q << (2 * (i / 32 % 4));
    }
}

fn q3_k(x: &[f32], out: &mut Vec<u8>) {
    let wanted: Vec<f32> = x.chunks_exact(16).map(|c| max_abs(c) / 4.0).collect();
    let start = out.len();
    out.resize(start + 108, 0);
    let d = put_f16(max_abs(&wanted) / 31.0, out);
    let b = &mut out[start..];
    for (i, scale) in wanted.iter().enumerate() {
        let s = (level(*scale, d, -32, 31) + 32) as u8;
        b[96 + i % 8] |= (s & 15) << (4 * (i / 8));
        b[104 + i % 4] |= (s >> 4) << (2 * (i / 4));
    }
    for (i, v) in x.iter().enumerate() {
        let scale = q3_scale(&b[96..108], i / 16) as f32 - 32.0;
        let q = (level(*v, d * scale, -4, 3) + 4) as u8;
        b[32 + 32 * (i / 128) + i % 32] |= (q & 3) << (2 * (i / 32 % 4));
        b[i % 32] |= (q >> 2) << (i / 32);
    }
}

fn q45_k(x: &[f32], bits: u32, out: &mut Vec<u8>) {
    let top = (1 << bits) - 1;
    let wanted = scales_and_mins(x, 32, top);
    let start = out.len();
    let d = put_f16(wanted.iter().fold(0.0, |m: f32, w| m.max(w.0)) / 63.0, out);
    let dmin = put_f16(wanted.iter().fold(0.0, |m: f32, w| m.max(w.1)) / 63.0, out);
    let high = if bits == 5 { 32 } else { 0 };
    out.resize(start + 16 + high + 128, 0);
    let b = &mut out[start..];
    for (i, (scale, min)) in wanted.iter().enumerate() {
        let (s, m) = (level(*scale, d, 0, 63) as u8, level(*min, dmin, 0, 63) as u8);
        if i < 4 {
            b[4 + i] |= s;
            b[8 + i] |= m;
        } else {
            b[8 + i] |= (s & 15) | (m & 15) << 4;
            b[i] |= (s >> 4) << 6;
            b[4 + i] |= (m >> 4) << 6;
        }
    }
    for (i, v) in x.iter().enumerate() {
        let (scale, min) = scale_min(&b[4..16], i / 32);
        let q = level(v + dmin * min as f32, d * scale as f32, 0, top) as u8;
        b[16 + high + 32 * (i / 64) + i % 32] |= (q & 15) << (4 * (i / 32 % 2));
        if bits == 5 {
            b[16 + i % 32] |= (q >> 4) << (i / 32);
        }
    }
}

fn q6_k(x: &[f32], out: &mut Vec<u8>) {
    let wanted: Vec<f32> = x.chunks_exact(16).map(|c| max_abs(c) / 32.0).collect();
    let start = out.len();
    out.resize(start + 208, 0);
    let d = put_f16(max_abs(&wanted) / 127.0, out);
    let b = &mut out[start..];
    for (i, scale) in wanted.iter().enumerate() {
        b[192 + i] = level(*scale, d, -128, 127) as i8 as u8;
    }
    for (i, v) in x.iter().enumerate() {
        let q = (level(*v, d * f32::from(b[192 + i / 16] as i8), -32, 31) + 32) as u8;
        let (n, j, l) = (i / 128, i / 32 % 4, i % 32);
        b[64 * n + 32 * (j % 2) + l] |= (q & 15) << (4 * (j / 2));
        b[128 + 32 * n + l] |= (q >> 4) << (2 * j);
    }
}

/// Scale `i` of 16 six-bit ones in 12 bytes (Q3_K).
fn q3_scale(s: &[u8], i: usize) -> u32 {
    let low = s[i % 8] >> (4 * (i / 8)) & 15;
    let high = s[8 + i % 4] >> (2 * (i / 4)) & 3;
    u32::from(low | high << 4)
}

/// Scale and minimum `i` of 8 six-bit pairs in 12 bytes (Q4_K, Q5_K).
fn scale_min(s: &[u8], i: usize) -> (u32, u32) {
    let (scale, min) = if i < 4 {
        (s[i] & 63, s[i + 4] & 63)
    } else {
        ((s[i + 4] & 15) | (s[i - 4] >> 6) << 4, s[i + 4] >> 4 | (s[i] >> 6) << 4)
    };
    (scale.into(), min.into())
}

/// The level nearest to `v / d`, or 0 for a scale of 0.
fn level(v: f32, d: f32, low: i32, high: i32) -> i32 {
    if d == 0.0 { 0.clamp(low, high) } else { ((v / d).round() as i32).clamp(low, high) }
}

fn max_abs(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |m, v| m.max(v.abs()))
}

/// Appends a value as f16 and returns what was stored.
fn put_f16(v: f32, out: &mut Vec<u8>) -> f32 {
    let v = f16::from_f32(v);
    out.extend(v.to_le_bytes());
    v.to_f32()
}

fn get_f16(b: &[u8]) -> f32 {
    f16::from_le_bytes([b[0], b[1]]).to_f32()
}

/// Level `i` of 32 nibbles in 16 bytes: the low ones first.
fn nibble(b: &[u8], i: usize) -> u32 {
    u32::from(b[i % 16] >> (4 * (i / 16)) & 15)
}

fn bit(b: &[u8], i: usize) -> u32 {
    u32::from(b[i / 8] >> (i % 8) & 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Largest error that a type may make, as a share of the largest value of a block.
    fn tolerance(ty: TensorType) -> f32 {
        match ty {
            TensorType::F32 => 0.0,
            TensorType::F16 => 0.0005,
            TensorType::Bf16 => 0.004,
            TensorType::Q8_0 => 0.005,
            TensorType::Q6K => 0.05,
            TensorType::Q5_0 | TensorType::Q5_1 | TensorType::Q5K => 0.07,
            TensorType::Q4_0 | TensorType::Q4_1 | TensorType::Q4K => 0.13,
            TensorType::Q3K => 0.26,
            TensorType::Q2K => 0.45,
        }
    }

    #[test]
    fn every_type_reads_back_what_was_written_within_its_precision() {
        for ty in TensorType::ALL {
            let mut random = Random::new(1, ty.name());
            // Runs of very different size, so that a wrong scale or a wrong place of a value shows.
            let values: Vec<f32> = (0..1024)
                .map(|i| random.normal() * [1.0, 0.1, 3.0, 0.5][i / 16 % 4] * if i / 512 == 0 { 1.0 } else { 0.01 })
                .collect();
            let bytes = quantize(ty, &values);
            assert_eq!(bytes.len(), 1024 / ty.block_len() * ty.block_bytes());
            let read = dequantize(ty, &bytes);
            let run = ty.block_len().max(16);
            for (i, (x, y)) in values.chunks(run).zip(read.chunks(run)).enumerate() {
                let most = max_abs(x);
                for (j, (a, b)) in x.iter().zip(y).enumerate() {
                    assert!((a - b).abs() <= tolerance(ty) * most, "{ty} run {i} value {j}: {a} read as {b}");
                }
            }
        }
    }

    #[test]
    fn blocks_of_zeros_stay_zeros() {
        for ty in TensorType::ALL {
            assert_eq!(dequantize(ty, &quantize(ty, &[0.0; 256])), [0.0; 256], "{ty}");
        }
    }
}
