//! Second copies of the last repairs.
//!
//! A repair behind the end of a message may be lost, too. Its sender finds that a round trip and a
//! wait later, and the whole operation may wait for it. So on paths that lose packets the last
//! repairs of a message leave twice, where that costs less time than it saves in the mean: the
//! second time at once, by the path on which they arrive first.
//!
//! A copy is not in flight, and is dropped if the window has no room for it. An acknowledgement may
//! be that of either packet, so those of such a message say nothing about paths.

use super::message::{RepairCopy, TakenRun};
use super::{Burst, Sender};
use crate::machine::SegmentRun;
use crate::priority::{SendAttempt, SendTurn};
use crate::rtt::Rtt;
use crate::settings::EndpointSettings;
use crate::units::{Instant, Span};
use crate::wire::Header;

impl Sender {
    /// A run of the message at `at` has left. If it has the last repairs, and that pays, they leave
    /// once more.
    pub(super) fn copy_last_repairs(
        &mut self,
        at: usize,
        run: &SegmentRun,
        sent_as: TakenRun,
        (rtt, gap): (&Rtt, Span),
    ) {
        let sending = &self.messages[at];
        let is_last = run.repairs() == run.len() && sending.all_sent();
        if !is_last {
            return;
        }
        let later = rtt.smoothed() + rtt.retry_wait(gap, 0);
        if self.haste_pays(run.len() as u64, later) {
            self.copy_due = Some(Box::new(RepairCopy {
                message: sending.id(),
                segments: run.segments().collect(),
                sent_as,
            }));
        }
    }

    /// The turn of the copy that is due.
    pub(super) fn copy_turn(&self) -> Option<SendTurn> {
        let at = self.position(self.copy_due.as_ref()?.message)?;
        Some(self.messages[at].tags.turn(SendAttempt::Again))
    }

    /// The copy that is due, as far as its segments have not arrived.
    pub(super) fn poll_copy(
        &mut self,
        now: Instant,
        settings: &EndpointSettings,
        run: &mut SegmentRun,
    ) -> Option<Burst> {
        let copy = self.copy_due.take()?;
        let at = self.position(copy.message)?;
        let sending = &mut self.messages[at];
        run.clear();
        for segment in copy.segments {
            if !sending.progress.acked.has(segment) {
                run.push_repair(segment);
            }
        }
        if run.is_empty() {
            return None;
        }
        sending.is_copied = true;
        let (class, packets) = (copy.sent_as.class, run.len() as u32);
        let entropy = self.spray.take(now.stamp(), packets);
        let first = self.numbers.take(class, entropy, packets);
        self.counters.repaired_segments += u64::from(packets);
        self.pace.on_next(now);
        self.path.on_sent(now);
        let flags = self.ack_flags(settings);
        let sending = &self.messages[at];
        Some(Burst {
            template: Header {
                class,
                entropy,
                number: first.number,
                flags,
                ..sending.template(now)
            },
            ecn: copy.sent_as.ecn,
            probe_at: sending.probe.at,
        })
    }

    /// Notes by which paths packets of the message at `at` have arrived.
    pub(super) fn note_arrivals(&mut self, now: Instant, at: usize, rtt: &Rtt) {
        let sending = &mut self.messages[at];
        let is_copied = sending.is_copied;
        for run in sending.take_landed() {
            match is_copied {
                true => self.spray.on_gone(run.path, run.packets),
                false => self.spray.on_arrival(run, now.stamp(), rtt.least()),
            }
        }
    }
}
