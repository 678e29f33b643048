//! Which packets are lost: those that have not arrived although clearly later ones have.
//!
//! 1. Acknowledgements echo time stamps. Per class, the newest echo shows which packet arrived last
//!    among those known ([`ClassFlights::on_echo`]).
//! 2. A packet is compared with the newest echo of its own class and of all lower ones, since no
//!    queue lets a lower class overtake.
//! 3. It is lost when it was sent earlier than that by [`LossHorizons`]: for a segment that is
//!    repaired a round trip with its deviation (RACK, RFC 8985, by time alone: sprayed packets
//!    overtake each other, so their count says little), where a mistake costs a duplicate. For one
//!    that may stay missing the job's gap at least, since a mistake would lose a segment that was
//!    only late.

use std::collections::VecDeque;

use super::Sender;
use super::message::SegmentFlight;
use super::probe::PROBE_WAIT_MAX;
use crate::rtt::Rtt;
use crate::units::{Instant, Span};
use crate::wire::{SegmentReport, is_later};

/// The packets of one class on their way to one peer.
#[derive(Clone, Debug, Default)]
pub(super) struct ClassFlights {
    /// In the order of sending. Those that have landed stay until they are first.
    pub(super) flights: VecDeque<SegmentFlight>,
    /// Time stamp of the newest packet, probes included, that is known to have arrived.
    newest: Option<u32>,
}

impl ClassFlights {
    /// A report echoes a packet of this class; tells whether it is the newest.
    fn on_echo(&mut self, echo: u32) -> bool {
        let newer = self.newest.is_none_or(|newest| is_later(echo, newest));
        if newer {
            self.newest = Some(echo);
        }
        newer
    }
}

/// How much earlier than a packet that has arrived another one of its class was sent, in
/// microseconds, if it is lost.
#[derive(Clone, Copy)]
struct LossHorizons {
    repaired: u32,
    tolerated: u32,
}

impl LossHorizons {
    fn new(rtt: &Rtt, gap: Span) -> Self {
        let micros = |span: Span| span.as_micros() as u32;
        let repaired = micros(rtt.reordering(gap));
        Self {
            repaired,
            tolerated: repaired.max(micros(gap)),
        }
    }
}

/// How many segments were found lost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FoundLost {
    pub(super) all: u32,
    /// Those that have to arrive.
    pub(super) needed: u32,
}

impl Sender {
    /// Takes the echo of a report; tells whether it is the newest of its class.
    pub(super) fn on_echo(&mut self, report: &SegmentReport) -> bool {
        let class = self.classes.get_mut(usize::from(report.echo_class.0));
        class.is_some_and(|class| class.on_echo(report.echo))
    }

    /// Finds segments that are lost by now, and tells how many.
    pub(super) fn find_lost(&mut self, now: Instant, rtt: &Rtt, gap: Span) -> FoundLost {
        let horizons = LossHorizons::new(rtt, gap);
        let later = |a: u32, b: u32| if is_later(a, b) { a } else { b };
        let (mut lost, mut newest) = (FoundLost::default(), None);
        // From the lowest class up, so that `newest` covers a class and all lower ones.
        for class in (0..self.classes.len()).rev() {
            let of_class = self.classes[class].newest;
            newest = of_class.into_iter().chain(newest).reduce(later);
            if let Some(newest) = newest {
                let of_class = self.find_lost_before(now, class, newest, horizons);
                lost.all += of_class.all;
                lost.needed += of_class.needed;
            }
        }
        self.counters.found_lost += u64::from(lost.all);
        lost
    }

    /// Finds the lost segments of a class, of which the packet with the stamp `newest` has arrived.
    fn find_lost_before(
        &mut self,
        now: Instant,
        class: usize,
        newest: u32,
        horizons: LossHorizons,
    ) -> FoundLost {
        let mut lost = FoundLost::default();
        while let Some(&flight) = self.classes[class].flights.front() {
            let sending = self
                .position(flight.message)
                .map(|at| &mut self.messages[at]);
            let alive = sending.filter(|sending| sending.is_current(&flight));
            if let Some(sending) = alive {
                let may_miss = sending.may_miss(flight.segment);
                let wait = match may_miss {
                    true => horizons.tolerated,
                    false => horizons.repaired,
                };
                // All flights behind the first one were sent later still.
                if !is_later(newest.wrapping_sub(wait), flight.sent_at) {
                    break;
                }
                self.in_flight -= sending.land(flight.segment);
                sending.on_lost(flight.segment);
                // More holes are news for the receiver, which may make the next probe due now.
                let probe_at = sending.next_probe(now, PROBE_WAIT_MAX);
                sending.probe.at = sending.probe.at.min(probe_at);
                let probe_at = sending.probe.at;
                self.note_probe(probe_at);
                self.spray.on_loss(flight.entropy);
                lost.all += 1;
                lost.needed += u32::from(!may_miss);
            }
            self.classes[class].flights.pop_front();
        }
        lost
    }
}
