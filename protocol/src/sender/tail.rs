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
//! A mark saves time if the packet before it is lost: without it, the next PROBE finds that. But it
//! costs hosts that send runs as much as a short run. Where it costs more than it saves in the
//! mean, and it is likely that none of the packets is lost, only one of the paths is marked, whose
//! mark asks, and none behind repairs that follow the end of a lossless message
//! ([`leaves_out_marks`]).
//!
//! Where other messages to the same peer are about to follow a lossless one, and marks cost more
//! than they save, its end is marked half a round trip later: by then packets of the others have
//! passed most of its paths, or its receiver has all of it. Where none follow, and operations lose
//! the end of a path so rarely that a mark costs more than it saves, the end is marked when an
//! answer should have come.
//!
//! If no report answers, all paths are marked again on which the message has packets in flight. A
//! report names the ends that its receiver still awaits: their marks were lost, and go again. If
//! PROBE left without marks, it may only have overtaken the packets on other paths: these get their
//! first marks a quarter of a round trip later, unless they are acknowledged by then.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::history::{HoleJudge, PathRecord};
use super::pace::HOSTS;
use crate::units::{MessageId, Span};
use crate::wire::{Flags, PathMark};

/// On unproven paths the end of a message is marked if it has this many segments, and this many for
/// each that is in flight then.
const MARKED_SEGMENTS: u32 = 128;
const MARKED_PART: u32 = 4;
/// Of packets of which fewer than this are lost in the mean, it is likely that none is.
const FEW_LOST: f64 = 0.05;

/// Whether marks behind this many packets are left out, on paths that lose `share` of them. A mark
/// takes `lone` to leave, and without it a lost packet is found `later`.
pub(super) fn leaves_out_marks(packets: u32, share: f64, lone: Span, later: Span) -> bool {
    f64::from(packets) * share < FEW_LOST && costs_more(share, lone, later)
}

/// The share of a rank's last packets whose loss costs time, if `share` of all are lost. An
/// operation ends with its slowest message, so a loss counts for all `ranks` ranks. But of the
/// messages that a rank sends, as many, only one can be the slowest.
pub(super) fn felt_share(share: f64, ranks: u16) -> f64 {
    let ranks = f64::from(ranks.max(1));
    (share * ranks).min(1.0 / ranks).max(share)
}

/// Whether a mark that takes `lone` to leave costs more time than it saves in the mean, on paths
/// that lose `share` of the packets, if a lost one is found `later` without it. Where the share is
/// not known, no mark does.
pub(super) fn costs_more(share: f64, lone: Span, later: Span) -> bool {
    share > 0.0 && (lone * HOSTS).as_secs_f64() > later.as_secs_f64() * share
}

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

/// The last packet of a message on each of some paths.
pub(super) type PathEnds = SmallVec<[PathMark; 8]>;

/// A PROBE that is to be sent.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct TailMark {
    pub(super) message: MessageId,
    /// Its path; its number follows when it leaves.
    pub(super) path: PathMark,
    /// [`Flags::MARKER`], except for those that ask for a report.
    pub(super) flags: Flags,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_counts_for_all_ranks_that_wait_for_it() {
        assert_eq!(felt_share(0.01, 1), 0.01);
        assert_eq!(felt_share(0.01, 4), 0.04);
        assert_eq!(felt_share(0.001, 64), 1.0 / 64.0, "some message lacks one");
        assert_eq!(felt_share(0.1, 64), 0.1);
        assert_eq!(felt_share(0.0, 64), 0.0);
    }

    #[test]
    fn marks_are_left_out_where_they_cost_more_than_they_save() {
        let leaves_out = |packets, share, lone, later| {
            let [lone, later] = [lone, later].map(Span::from_nanos);
            leaves_out_marks(packets, share, lone, later)
        };
        // A host that sends runs, on a short path.
        assert!(leaves_out(4, 0.01, 2_000, 200_000));
        assert!(!leaves_out(6, 0.01, 2_000, 200_000), "one may be lost");
        assert!(!leaves_out(1, 0.03, 2_000, 200_000), "more are lost");
        assert!(!leaves_out(1, 0.01, 2_000, 20_000_000), "the path is long");
        assert!(!leaves_out(1, 0.01, 8, 20_000), "packets cost little");
        assert!(!leaves_out(1, 0.001, 0, 20_000), "their cost is unknown");
        assert!(!leaves_out(1, 0.0, 2_000, 20_000), "their loss is unknown");
    }
}
