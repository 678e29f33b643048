//! Which of a message's lost segments are repaired first.

use serde::{Deserialize, Serialize};

use crate::units::{Magnitude, MessageId, Rank};

/// How much a message needs a missing segment; the least needed stays missing first.
///
/// Larger magnitudes are needed more. Equally needed segments are ordered by a number drawn for
/// each segment of each message; so are all segments at a receiver, which does not know the
/// magnitudes of missing ones. With a fixed order, the same parameters would stay missing in every
/// step and from every rank: if holes count as zeros, their gradients would shrink more than
/// others, and if rescaled, they would be sums of fewer ranks. With drawn numbers, every parameter
/// has the same chance, drawn again in every step and contribution.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct RepairNeed {
    magnitude: Magnitude,
    drawn: u32,
}

impl RepairNeed {
    /// The need for a segment of unknown magnitude.
    pub fn unknown(lot: TieBreaker, segment: u32) -> Self {
        let magnitude = Magnitude::default();
        let drawn = lot.draw(segment);
        Self { magnitude, drawn }
    }

    /// The need for the same segment if its magnitude is known.
    pub(super) fn with(self, magnitude: Magnitude) -> Self {
        Self { magnitude, ..self }
    }
}

/// The seed from which a message's segments draw their numbers. Both ends have the same, so that a
/// receiver first requests the segments that its sender would repair first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TieBreaker(u64);

impl TieBreaker {
    /// The seed of a message of rank `source`.
    pub fn of(source: Rank, message: MessageId) -> Self {
        Self(u64::from(source.0) << 32 | u64::from(message.0))
    }

    /// The finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), once for the message and once
    /// for the segment: every bit depends on every bit of both.
    fn draw(self, segment: u32) -> u32 {
        let mix = |mut z: u64| {
            z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        };
        let message = mix(self.0.wrapping_add(0x9e37_79b9_7f4a_7c15));
        (mix(message ^ u64::from(segment)) >> 32) as u32
    }
}
