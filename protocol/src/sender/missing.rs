//! Segments that a receiver asks for by BITMAP.

use super::{ReportPacket, Sender, echo_of};
use crate::priority::Policy;
use crate::units::Instant;

impl Sender {
    /// Repairs the segments that a BITMAP lacks, if they were sent before the packet that it
    /// echoes and cannot be waiting in a queue behind that packet's class.
    pub(super) fn repair_missing(
        &mut self,
        now: Instant,
        at: usize,
        packet: &ReportPacket<'_>,
        policy: &Policy,
    ) {
        let sending = &mut self.messages[at];
        sending.on_chosen();
        let (report, segments) = (&packet.report, sending.segments());
        let echo = echo_of(report, now);
        for segment in report.missing(packet.bitmap, segments).iter_ones() {
            let waits = sending.tags.class_and_ecn(policy, segment).0 > report.echo_class;
            if waits || sending.sent_at(segment) > echo {
                continue;
            }
            let bytes = sending.land(segment);
            if bytes > 0 {
                self.spray.on_gone(sending.path_of(segment), 1);
            }
            self.in_flight -= bytes;
            self.path.on_missing(now, bytes);
            sending.queue_repair(segment);
        }
    }
}
