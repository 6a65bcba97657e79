//! Rotary frequencies, and the cosines and sines of a step's rows.
//!
//! Position `p` rotates pair `i` of a head by the angle `p * frequency[i]`, with `frequency[i] =
//! base^(-2i/dims)` (RoFormer, equation 15). [`RopeScaling`] stretches the frequencies for long
//! contexts; a file's own factors divide them.

use selfspec_kernels::RopeRows;
use selfspec_kernels::RopeStyle;

use crate::arch::config::RopeScaling;

/// The frequencies of one kind of layer, and the rotations of the rows of a step. Reused from step
/// to step.
#[derive(Debug, Clone)]
pub(crate) struct Rope {
    frequencies: Vec<f32>, // (dims / 2)
    style: RopeStyle,
    cos: Vec<f32>, // (row, dims / 2)
    sin: Vec<f32>, // (row, dims / 2)
}

impl Rope {
    /// Frequencies for `dims` rotated values. `factors`, when given, divide them one by one. Shape:
    /// (dims / 2).
    pub(crate) fn new(base: f32, dims: usize, scaling: RopeScaling, factors: Option<&[f32]>, style: RopeStyle) -> Self {
        let frequencies = (0..dims / 2)
            .map(|i| {
                let plain = f64::from(base).powf(-2.0 * i as f64 / dims as f64);
                let stretched = stretch(plain, scaling);
                (stretched / factors.map_or(1.0, |f| f64::from(f[i]))) as f32
            })
            .collect();
        Rope { frequencies, style, cos: Vec::new(), sin: Vec::new() }
    }

    /// Computes the rotations for rows at `positions`.
    pub(crate) fn set_positions(&mut self, positions: impl Iterator<Item = usize>) {
        self.cos.clear();
        self.sin.clear();
        for position in positions {
            for frequency in &self.frequencies {
                // In f64, since an f32 angle of some thousand radians has lost its fourth decimal.
                let (sin, cos) = (position as f64 * f64::from(*frequency)).sin_cos();
                self.cos.push(cos as f32);
                self.sin.push(sin as f32);
            }
        }
    }

    /// The rotations last computed.
    pub(crate) fn rows(&self) -> RopeRows<'_> {
        RopeRows { cos: &self.cos, sin: &self.sin, style: self.style, rot: self.frequencies.len() * 2 }
    }
}

fn stretch(frequency: f64, scaling: RopeScaling) -> f64 {
    match scaling {
        RopeScaling::None => frequency,
        RopeScaling::Linear { factor } => frequency / f64::from(factor),
        RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
            let [factor, low, high, context] =
                [factor, low_freq_factor, high_freq_factor, original_context].map(f64::from);
            let wavelength = std::f64::consts::TAU / frequency;
            if wavelength < context / high {
                frequency
            } else if wavelength > context / low {
                frequency / factor
            } else {
                let smooth = (context / wavelength - low) / (high - low);
                (1.0 - smooth) * frequency / factor + smooth * frequency
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llama3_scaling_keeps_short_wavelengths_and_divides_long_ones() {
        let scaling =
            RopeScaling::Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_context: 8192.0 };
        let plain = Rope::new(500_000.0, 128, RopeScaling::None, None, RopeStyle::Halves);
        let scaled = Rope::new(500_000.0, 128, scaling, None, RopeStyle::Halves);
        assert_eq!(plain.frequencies[0], scaled.frequencies[0]);
        assert_eq!(plain.frequencies[63] / 8.0, scaled.frequencies[63]);
        let blended = scaled.frequencies.iter().zip(&plain.frequencies).filter(|(s, p)| **s < **p && **s > **p / 8.0);
        assert!(blended.count() > 0);
    }

    #[test]
    fn factors_divide_frequencies_one_by_one() {
        let plain = Rope::new(10_000.0, 8, RopeScaling::None, None, RopeStyle::Halves);
        let divided = Rope::new(10_000.0, 8, RopeScaling::None, Some(&[1.0, 2.0, 4.0, 8.0]), RopeStyle::Halves);
        for (i, by) in [1.0, 2.0, 4.0, 8.0].into_iter().enumerate() {
            assert_eq!(divided.frequencies[i], plain.frequencies[i] / by);
        }
    }
}
