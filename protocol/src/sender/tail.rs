//! Marks after a message: a PROBE on each path whose last packet belongs to it.
//!
//! A packet that is lost in midstream is revealed by the next one of its path ([`crate::order`]).
//! After the last packet of a message there may be none, so on lossy paths the sender sends one: a
//! PROBE in the class of the data, on each path on which no packet has left since. Paths that are
//! not proven clean count as lossy as soon as those to any other peer have lost a packet, since the
//! first packet that they lose may be the last one of a message.
//!
//! On other paths that keep order, until they are proven clean, the end of a long message is marked
//! once: the first packet that they lose may be its last one. All marks but the last are bare, and
//! tell only how far their path has come. A message is long if at most a quarter of it, from a
//! certain length on, is in flight at its end, so that marks are few beside its packets.
//!
//! If no report answers, all paths are marked again on which the message has packets in flight. A
//! report names the ends that its receiver still awaits: their marks were lost, and go again.

use super::history::{HoleJudge, PathRecord};
use crate::units::MessageId;
use crate::wire::{Flags, PathMark};

/// On unproven paths the end of a message is marked if it has this many segments, and this many for
/// each that is in flight then.
const MARKED_SEGMENTS: u32 = 128;
const MARKED_PART: u32 = 4;

impl PathRecord {
    /// Whether marks follow the end of a message of this many segments, with this many in flight.
    pub(super) fn needs_marks(self, segments: u32, in_flight: u32) -> bool {
        match self {
            // A mark says nothing of paths that do not keep order.
            Self::Clean | Self::Unproven(HoleJudge::Sender) => false,
            Self::Unproven(HoleJudge::Paths) => {
                segments >= MARKED_SEGMENTS && segments >= in_flight * MARKED_PART
            }
            Self::Lossy => true,
        }
    }
}

/// A PROBE that is to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct TailMark {
    pub(super) message: MessageId,
    /// Its path; its number follows when it leaves.
    pub(super) path: PathMark,
    /// [`Flags::MARKER`], except for the last one.
    pub(super) flags: Flags,
}
