//! How large a segment's gradients usually are: the running mean of |g| per segment position.
//!
//! Per tensor key and message, `mean = 0.3 * now + 0.7 * before` (an exponential average, after
//! DGT). Quantised to a byte on a logarithmic scale, it tells `gradwire_protocol::priority` which
//! segments to protect.

use std::collections::BTreeMap;

use gradwire_protocol::units::Magnitude;

use crate::numbers::dtype::DType;
use crate::numbers::kernels::mean_abs;

/// Weight of the newest step in the running mean.
const NEWEST: f32 = 0.3;
/// Steps of the byte per power of two.
const STEPS_PER_OCTAVE: f32 = 4.0;
/// log2 of the mean that is magnitude 1; smaller ones are too. 255 is then 2^15.5 and above.
const LOG2_LOWEST: f32 = -48.0;

/// The byte for a mean of |g|: 1 for zero, four more per power of two, 255 for means that are too
/// large, infinite or NaN.
///
/// ```
/// use gradwire_collectives::magnitude::quantised;
/// assert_eq!(quantised(0.25).0, quantised(0.125).0 + 4);
/// ```
pub fn quantised(mean: f32) -> Magnitude {
    let steps = (mean.log2() - LOG2_LOWEST) * STEPS_PER_OCTAVE;
    let byte = if steps.is_nan() {
        255.0
    } else {
        (1.0 + steps.round()).clamp(1.0, 255.0)
    };
    Magnitude(byte as u8)
}

/// The running means of every lossy message, by tensor key and byte offset in the tensor.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunningMeans {
    messages: BTreeMap<(u64, usize), Vec<f32>>,
}

impl RunningMeans {
    /// Updates the means with a message's values. Returns the magnitude of each of its segments.
    pub(crate) fn update(
        &mut self,
        message: (u64, usize),
        dtype: DType,
        values: &[u8],
        segment_bytes: usize,
    ) -> Vec<Magnitude> {
        let means = self.messages.entry(message).or_default();
        let now = values
            .chunks(segment_bytes)
            .map(|segment| mean_abs(dtype, segment));
        if means.len() == values.len().div_ceil(segment_bytes) {
            for (mean, now) in means.iter_mut().zip(now) {
                *mean = NEWEST * now + (1.0 - NEWEST) * *mean;
                *mean = if mean.is_finite() { *mean } else { now };
            }
        } else {
            *means = now.collect();
        }
        means.iter().map(|&mean| quantised(mean)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magnitudes_rise_with_the_mean_from_1() {
        let means = [0.0, 1e-30, 1e-8, 1e-4, 0.1, 1.0, 100.0, 1e9, f32::INFINITY];
        let bytes = means.map(|mean| quantised(mean).0);
        assert!(bytes.is_sorted(), "{bytes:?}");
        assert_eq!((bytes[0], bytes[8]), (1, 255));
        assert_eq!(quantised(f32::NAN), Magnitude(255));
    }

    #[test]
    fn one_quiet_step_keeps_a_segments_magnitude() {
        let mut means = RunningMeans::default();
        let values = |large: f32| [[0.01_f32; 4], [large; 4]].concat();
        let bytes = |large| {
            values(large)
                .iter()
                .flat_map(|v| v.to_le_bytes())
                .collect::<Vec<_>>()
        };
        let loud = means.update((1, 0), DType::F32, &bytes(8.0), 16);
        let quiet = means.update((1, 0), DType::F32, &bytes(0.01), 16);
        assert_eq!((loud.len(), loud[0]), (2, quiet[0]));
        assert!(quiet[1] > quiet[0] && quiet[1] < loud[1]);
    }

    #[test]
    fn one_overflow_does_not_spoil_the_mean() {
        let mut means = RunningMeans::default();
        means.update((1, 0), DType::F32, &f32::INFINITY.to_le_bytes(), 16);
        let after = means.update((1, 0), DType::F32, &1.0_f32.to_le_bytes(), 16);
        assert_eq!(after, [quantised(1.0)]);
    }
}
