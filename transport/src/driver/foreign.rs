//! Notices a flood of packets that are not of this job, which the kernel can drop without a system
//! call and without waking this thread.

use gradwire_protocol::units::{Instant, Span};

use crate::seal::PacketRejection;

/// This many such packets in [`FLOOD_TIME`] are a flood. A few are strays, and are counted.
const FLOOD_PACKETS: u32 = 1_000;
const FLOOD_TIME: Span = Span::from_millis(1_000);

/// The packets of other jobs of late.
#[derive(Debug, Default)]
pub(super) struct ForeignWatch {
    since: Option<Instant>,
    packets: u32,
    /// Whether the kernel drops them.
    pub(super) is_kept_out: bool,
}

impl ForeignWatch {
    /// A packet was rejected; returns whether that makes a flood of packets that a filter can drop.
    pub(super) fn is_flood(&mut self, now: Instant, rejection: PacketRejection) -> bool {
        use PacketRejection::{Foreign, Malformed, OldEpoch};
        if !matches!(rejection, Foreign | Malformed | OldEpoch) {
            return false;
        }
        let since = *self.since.get_or_insert(now);
        if now - since > FLOOD_TIME {
            (self.since, self.packets) = (Some(now), 0);
        }
        self.packets += 1;
        self.packets == FLOOD_PACKETS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floods(reason: PacketRejection, apart: Span) -> bool {
        let (mut watch, mut now) = (ForeignWatch::default(), Instant::START);
        (0..2 * FLOOD_PACKETS).any(|_| {
            now = now + apart;
            watch.is_flood(now, reason)
        })
    }

    #[test]
    fn only_many_foreign_packets_are_a_flood() {
        let (fast, slow) = (Span::from_micros(900), Span::from_micros(1_100));
        assert!(floods(PacketRejection::Foreign, fast));
        assert!(floods(PacketRejection::Malformed, fast));
        assert!(!floods(PacketRejection::Foreign, slow));
        assert!(!floods(PacketRejection::Forged, fast), "no filter sees it");
    }
}
