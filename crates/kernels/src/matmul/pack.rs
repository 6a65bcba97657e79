//! Packs rows of GGUF tensors into panels, one lane of a panel at a time.
//!
//! The blocks of each format are read as the GGUF specification lays them out. Their values
//! (unsigned), scales and minima go to the places where `layout` reads them.

use crate::format::WeightFormat;
use crate::matmul::layout::PANEL;

const F16S: usize = 2 * PANEL;

/// Writes a row, `bytes` in the layout of the file, to `lane` of a zeroed panel.
///
/// # Panics
/// If the row or the panel is shorter than its format's blocks. [`crate::PanelMatrix::pack`] has
/// checked both.
pub(crate) fn pack_row(format: WeightFormat, bytes: &[u8], lane: usize, panel: &mut [u8]) {
    let file = bytes.chunks_exact(format.block_bytes());
    let step = panel.len() / file.len();
    let blocks = file.zip(panel.chunks_exact_mut(step));
    match format {
        WeightFormat::F32 => blocks.for_each(|(b, at)| at[4 * lane..][..4].copy_from_slice(b)),
        WeightFormat::F16 | WeightFormat::Bf16 => blocks.for_each(|(b, at)| at[2 * lane..][..2].copy_from_slice(b)),
        WeightFormat::Q4_0 => blocks.for_each(|(b, at)| {
            put_nibbles(at, lane, &split_nibbles(&b[2..]));
            put_f16(&mut at[256..], lane, &b[..2]);
        }),
        WeightFormat::Q4_1 => blocks.for_each(|(b, at)| {
            put_nibbles(at, lane, &split_nibbles(&b[4..]));
            put_f16(&mut at[256..], lane, &b[..2]);
            put_f16(&mut at[256 + F16S..], lane, &b[2..4]);
        }),
        WeightFormat::Q5_0 => blocks.for_each(|(b, at)| {
            put_nibbles(at, lane, &split_nibbles(&b[6..]));
            put_bits(&mut at[256..], lane, &split_bits(&b[2..6]));
            put_f16(&mut at[320..], lane, &b[..2]);
        }),
        WeightFormat::Q5_1 => blocks.for_each(|(b, at)| {
            put_nibbles(at, lane, &split_nibbles(&b[8..]));
            put_bits(&mut at[256..], lane, &split_bits(&b[4..8]));
            put_f16(&mut at[320..], lane, &b[..2]);
            put_f16(&mut at[320 + F16S..], lane, &b[2..4]);
        }),
        WeightFormat::Q8_0 => blocks.for_each(|(b, at)| {
            for (i, q) in b[2..].iter().enumerate() {
                at[64 * (i / 4) + 4 * lane + i % 4] = q ^ 0x80;
            }
            put_f16(&mut at[512..], lane, &b[..2]);
        }),
        WeightFormat::Q2K => blocks.for_each(|(b, at)| pack_q2k(b, at, lane)),
        WeightFormat::Q3K => blocks.for_each(|(b, at)| pack_q3k(b, at, lane)),
        WeightFormat::Q4K => blocks.for_each(|(b, at)| pack_q45k(b, &b[16..144], None, at, lane)),
        WeightFormat::Q5K => blocks.for_each(|(b, at)| pack_q45k(b, &b[48..176], Some(&b[16..48]), at, lane)),
        WeightFormat::Q6K => blocks.for_each(|(b, at)| pack_q6k(b, at, lane)),
    }
}

/// 16 scales of 4 bits with 16 minima of 4 bits, 256 pairs of bits, d, dmin.
fn pack_q2k(b: &[u8], at: &mut [u8], lane: usize) {
    put_f16(at, lane, &b[80..82]);
    put_f16(&mut at[F16S..], lane, &b[82..84]);
    for (i, block) in at[2 * F16S..].chunks_exact_mut(160).enumerate() {
        put_pairs(block, lane, &two_bits(&b[16..80], i));
        block[128 + lane] = b[2 * i];
        block[128 + PANEL + lane] = b[2 * i + 1];
    }
}

/// 256 high bits, 256 pairs of low bits, 16 scales of 6 bits in 12 bytes, d.
fn pack_q3k(b: &[u8], at: &mut [u8], lane: usize) {
    put_f16(at, lane, &b[108..110]);
    let scales = &b[96..108];
    for (i, block) in at[F16S..].chunks_exact_mut(224).enumerate() {
        put_pairs(block, lane, &two_bits(&b[32..96], i));
        let mut high = [0u8; 32];
        for (high, bits) in high.iter_mut().zip(&b[..32]) {
            *high = bits >> i & 1;
        }
        put_bits(&mut block[128..], lane, &high);
        for half in 0..2 {
            let s = 2 * i + half;
            let low = if s < 8 { scales[s] & 15 } else { scales[s - 8] >> 4 };
            let high = scales[8 + s % 4] >> (2 * (s / 4)) & 3;
            block[192 + half * PANEL + lane] = ((low | high << 4) as i8 - 32) as u8;
        }
    }
}

/// d, dmin, 8 scales and 8 minima of 6 bits in 12 bytes, then (Q5_K) 256 high bits, 256 nibbles.
fn pack_q45k(b: &[u8], nibbles: &[u8], high: Option<&[u8]>, at: &mut [u8], lane: usize) {
    put_f16(at, lane, &b[..2]);
    put_f16(&mut at[F16S..], lane, &b[2..4]);
    let scales = &b[4..16];
    let step = if high.is_some() { 352 } else { 288 };
    for (i, block) in at[2 * F16S..].chunks_exact_mut(step).enumerate() {
        let mut u = [0u8; 32];
        for (u, byte) in u.iter_mut().zip(&nibbles[32 * (i / 2)..]) {
            *u = byte >> (4 * (i % 2)) & 15;
        }
        put_nibbles(block, lane, &u);
        if let Some(high) = high {
            for (u, bits) in u.iter_mut().zip(high) {
                *u = bits >> i & 1;
            }
            put_bits(&mut block[256..], lane, &u);
        }
        let (scale, minimum) = if i < 4 {
            (scales[i] & 63, scales[i + 4] & 63)
        } else {
            (scales[i + 4] & 15 | scales[i - 4] >> 6 << 4, scales[i + 4] >> 4 | scales[i] >> 6 << 4)
        };
        block[step - 2 * PANEL + lane] = scale;
        block[step - PANEL + lane] = minimum;
    }
}

/// 256 nibbles, 256 pairs of high bits, 16 scales of 8 bits, d.
fn pack_q6k(b: &[u8], at: &mut [u8], lane: usize) {
    put_f16(at, lane, &b[208..210]);
    for (i, block) in at[F16S..].chunks_exact_mut(416).enumerate() {
        // Each 128 values: blocks 0 and 1 in the low nibbles of 32 bytes each, blocks 2 and 3 in
        // the high ones.
        let (part, i4) = (i / 4, i % 4);
        let mut u = [0u8; 32];
        for (u, byte) in u.iter_mut().zip(&b[64 * part + 32 * (i4 % 2)..]) {
            *u = byte >> (4 * (i4 / 2)) & 15;
        }
        put_nibbles(block, lane, &u);
        put_pairs(&mut block[256..], lane, &two_bits(&b[128..192], i));
        block[384 + lane] = b[192 + 2 * i];
        block[384 + PANEL + lane] = b[192 + 2 * i + 1];
    }
}

/// The 32 values of 16 bytes: the low nibbles, then the high ones.
fn split_nibbles(bytes: &[u8]) -> [u8; 32] {
    let mut u = [0; 32];
    for (i, byte) in bytes[..16].iter().enumerate() {
        u[i] = byte & 15;
        u[i + 16] = byte >> 4;
    }
    u
}

/// The 32 bits of 4 bytes.
fn split_bits(bytes: &[u8]) -> [u8; 32] {
    let mut u = [0; 32];
    for (i, u) in u.iter_mut().enumerate() {
        *u = bytes[i / 8] >> (i % 8) & 1;
    }
    u
}

/// Block `i` of 8 of a K-quant's 2-bit values: each 128 values take 32 bytes, 32 values in each
/// pair of bits.
fn two_bits(bytes: &[u8], i: usize) -> [u8; 32] {
    let mut u = [0; 32];
    for (u, byte) in u.iter_mut().zip(&bytes[32 * (i / 4)..]) {
        *u = byte >> (2 * (i % 4)) & 3;
    }
    u
}

fn put_f16(at: &mut [u8], lane: usize, f: &[u8]) {
    at[2 * lane..][..2].copy_from_slice(f);
}

fn put_nibbles(at: &mut [u8], lane: usize, u: &[u8; 32]) {
    for j in 0..4 {
        for t in 0..4 {
            at[64 * j + 4 * lane + t] = u[8 * j + t] | u[8 * j + 4 + t] << 4;
        }
    }
}

fn put_pairs(at: &mut [u8], lane: usize, u: &[u8; 32]) {
    for i in 0..2 {
        for t in 0..4 {
            at[64 * i + 4 * lane + t] = (0..4).fold(0, |byte, f| byte | u[16 * i + 4 * f + t] << (2 * f));
        }
    }
}

fn put_bits(at: &mut [u8], lane: usize, u: &[u8; 32]) {
    for t in 0..4 {
        at[4 * lane + t] = (0..8).fold(0, |byte, j| byte | u[4 * j + t] << j);
    }
}
