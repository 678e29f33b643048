//! How large a segment's gradients usually are: the running mean of |g| per segment position.
//!
//! Per tensor key and message, `mean = w * now + (1 - w) * before` (an exponential average, after
//! DGT). To read all values costs a large message 5 % of its time, so a quarter of the segments
//! are measured in each step, in turn. With w = 0.76 a mean forgets in four steps as much as with
//! 0.3 in each. Quantised to a byte on a logarithmic scale, it tells `gradwire_protocol::priority`
//! which segments to protect.

use std::collections::BTreeMap;
use std::slice::Chunks;

use gradwire_protocol::units::{Magnitude, Step};

use crate::numbers::dtype::DType;
use crate::numbers::kernels::mean_abs;

/// One segment in so many is measured in a step.
const MEASURED_PART: usize = 4;
/// Weight of the newest value in the running mean: 1 - 0.7^4.
const NEWEST: f32 = 0.76;
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
    messages: BTreeMap<(u64, usize), MessageMeans>,
}

/// The message of a step whose values are measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeasuredMessage {
    /// Of its tensor; 0 if it has none.
    pub(crate) tensor_key: u64,
    /// Where it begins in the tensor, in bytes.
    pub(crate) offset: usize,
    pub(crate) step: Step,
}

/// The running means of one message, by segment.
#[derive(Clone, Debug, Default)]
struct MessageMeans {
    means: Vec<f32>,
    magnitudes: Vec<Magnitude>,
    /// How often a part was measured since all segments were.
    turns: usize,
    /// The step in which it was measured last.
    last: Step,
}

impl RunningMeans {
    /// Measures a part of a message's values: all of them at first, when its length has changed,
    /// and when it was not measured for some steps. Returns the magnitude of each of its segments.
    pub(crate) fn update(
        &mut self,
        message: MeasuredMessage,
        dtype: DType,
        values: &[u8],
        segment_bytes: usize,
    ) -> Vec<Magnitude> {
        let segments = values.chunks(segment_bytes);
        if message.tensor_key == 0 {
            // Tensors without a key may be different ones.
            return segments
                .map(|segment| quantised(mean_abs(dtype, segment)))
                .collect();
        }
        let name = (message.tensor_key, message.offset);
        let of = self.messages.entry(name).or_default();
        let age = message.step.0.wrapping_sub(of.last.0);
        of.last = message.step;
        if of.means.len() == segments.len() && age <= MEASURED_PART as u32 {
            of.measure_part(dtype, segments);
        } else {
            of.means = segments.map(|segment| mean_abs(dtype, segment)).collect();
            of.magnitudes = of.means.iter().map(|&mean| quantised(mean)).collect();
            of.turns = 0;
        }
        of.magnitudes.clone()
    }
}

impl MessageMeans {
    /// Measures the segments whose turn it is.
    fn measure_part(&mut self, dtype: DType, segments: Chunks<'_, u8>) {
        let first = self.turns % MEASURED_PART;
        self.turns += 1;
        let measured = segments.enumerate().skip(first).step_by(MEASURED_PART);
        for (at, segment) in measured {
            let (mean, now) = (&mut self.means[at], mean_abs(dtype, segment));
            *mean = NEWEST * now + (1.0 - NEWEST) * *mean;
            *mean = if mean.is_finite() { *mean } else { now };
            self.magnitudes[at] = quantised(*mean);
        }
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

    /// A message in this step.
    fn message(step: u32) -> MeasuredMessage {
        MeasuredMessage {
            tensor_key: 1,
            offset: 0,
            step: Step(step),
        }
    }

    fn bytes(values: &[f32]) -> Vec<u8> {
        values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect()
    }

    /// The magnitudes of a message of two segments, of small values and of these, by step.
    fn magnitudes(steps: &[(u32, f32)]) -> Vec<Vec<Magnitude>> {
        let mut means = RunningMeans::default();
        let measure = |&(step, large): &(u32, f32)| {
            let values = bytes(&[[0.01; 4], [large; 4]].concat());
            means.update(message(step), DType::F32, &values, 16)
        };
        steps.iter().map(measure).collect()
    }

    #[test]
    fn quiet_steps_take_a_segments_magnitude_in_its_turn() {
        // Numbers of steps wrap.
        let start = u32::MAX - 3;
        let quiet = (1..9).map(|step| (start.wrapping_add(step), 0.01));
        let steps: Vec<(u32, f32)> = [(start, 8.0)].into_iter().chain(quiet).collect();
        let steps = magnitudes(&steps);
        let (small, loud) = (quantised(0.01), quantised(8.0));
        assert!(steps.iter().all(|step| step[0] == small), "{steps:?}");
        let second: Vec<Magnitude> = steps.iter().map(|step| step[1]).collect();
        let (once, twice) = (quantised(8.0 * 0.24), quantised(8.0 * 0.24 * 0.24));
        assert_eq!(second[..2], [loud; 2]);
        assert_eq!(second[2..6], [once; 4]);
        assert_eq!(second[6..], [twice; 3]);
    }

    #[test]
    fn a_message_that_was_not_measured_for_some_steps_is_measured_anew() {
        let steps = magnitudes(&[(1, 8.0), (5, 1.0), (10, 1.0)]);
        let second: Vec<Magnitude> = steps.iter().map(|step| step[1]).collect();
        assert_eq!(second, [8.0, 8.0, 1.0].map(quantised));
    }

    #[test]
    fn one_overflow_does_not_spoil_the_mean() {
        let steps = [f32::INFINITY, 1.0, 1.0, 1.0, 1.0].into_iter().enumerate();
        let steps: Vec<(u32, f32)> = steps.map(|(step, large)| (step as u32, large)).collect();
        let steps = magnitudes(&steps);
        assert_eq!(steps[0][1], Magnitude(255));
        assert_eq!(steps[4][1], quantised(1.0));
    }

    #[test]
    fn a_message_of_another_length_or_without_a_key_is_measured_anew() {
        let mut means = RunningMeans::default();
        let mut measure = |tensor_key, values: &[f32]| {
            let message = MeasuredMessage {
                tensor_key,
                ..message(3)
            };
            means.update(message, DType::F32, &bytes(values), 4)
        };
        measure(1, &[1.0, 2.0]);
        assert_eq!(
            measure(1, &[4.0, 8.0, 16.0]),
            [4.0, 8.0, 16.0].map(quantised)
        );
        measure(0, &[1.0, 2.0]);
        assert_eq!(measure(0, &[4.0, 8.0]), [4.0, 8.0].map(quantised));
    }
}
