//! Packets of which only the header has arrived, since a switch cut them.
//!
//! 1. The header shows the loss at once, whatever has arrived since, so no time has to pass. If the
//!    receiver says that it will grant the segment again ([`Flags::REGRANTED`]), it is repaired
//!    then: many senders whose packets were cut in one queue would fill it again. Such a repair
//!    takes no more time than a hole, which the receiver would have to be told of.
//! 2. A long queue has cut the packet, and no bad link. It tells of its path, which rests: half of
//!    the paths may be slow, and the window need not heed that where queues are known to mark
//!    packets before they cut them ([`QueueSignal::Marks`]). Elsewhere it counts as a mark.
//! 3. Where grants have no limit, the segment is repaired at once, or becomes a hole, as after any
//!    loss (rules 5 and 6 of [`crate::sender`]), and the packet counts as a mark.

use super::Sender;
use super::flight::{FlightRun, SegmentFlight};
use super::message::SendMessage;
use crate::congestion::Feedback;
use crate::job::QueueSignal;
use crate::rtt::Rtt;
use crate::settings::EndpointSettings;
use crate::units::{ByteCount, Instant, Stamp};
use crate::wire::{Flags, Header};

impl Sender {
    /// Processes TRIMMED.
    pub fn handle_trimmed(
        &mut self,
        now: Instant,
        header: &Header,
        rtt: &Rtt,
        settings: &EndpointSettings,
    ) {
        self.on_heard(now);
        let Some((at, flight)) = self.find_flight(now, header) else {
            return;
        };
        self.counters.trimmed_segments += 1;
        self.spray.on_trimmed(flight.entropy);
        self.history.on_marks(1);
        let in_flight = ByteCount::new(self.in_flight);
        let share = self.losses.share();
        let is_regranted = header.flags.has(Flags::REGRANTED);
        match is_regranted {
            true => {
                self.land_lost(now, at, &flight, SendMessage::wait_for_grant_of);
                self.wait_for_grant(now, at, rtt, settings);
            }
            false => self.land_lost(now, at, &flight, |sending, segment| {
                sending.on_lost(segment, share);
            }),
        }
        if is_regranted && settings.queues == QueueSignal::Marks {
            return;
        }
        let feedback = Feedback {
            segments: 1,
            marks: 1,
            in_flight,
            ..Feedback::default()
        };
        self.window.on_feedback(now, feedback, rtt);
    }

    /// A message whose lost segments only wait for a grant asks later than one that waits for a
    /// report.
    pub(super) fn wait_for_grant(
        &mut self,
        now: Instant,
        at: usize,
        rtt: &Rtt,
        settings: &EndpointSettings,
    ) {
        let wait = self.report_wait(at, (rtt, settings.gap));
        let sending = &mut self.messages[at];
        if sending.waits_for_grant() {
            let probe_at = sending.next_probe(now, wait);
            sending.probe.at = sending.probe.at.max(probe_at);
        }
    }

    /// The packet whose header this is, if it is in flight, and the place of its message.
    fn find_flight(&self, now: Instant, header: &Header) -> Option<(usize, SegmentFlight)> {
        let at = self.position(header.message)?;
        let sent_at = Stamp::from_wire(header.sent_at, now.stamp());
        let has_it = |run: &&FlightRun| {
            run.message == header.message
                && run.segments().contains(&header.segment)
                && run.sent_at == sent_at
        };
        let runs = self.classes.iter().flat_map(|class| &class.flights);
        let mut flights = runs.filter(has_it).map(|run| run.flight(header.segment));
        let flight = flights.find(|flight| self.messages[at].is_current(flight))?;
        Some((at, flight))
    }
}
