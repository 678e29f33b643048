//! Which packets are lost: those that have not arrived although later ones have.
//!
//! 1. Acknowledgements echo time stamps. Per class, the newest echo shows which packet arrived last
//!    among those known ([`ClassFlights::on_echo`]). It counts once all earlier reports have come,
//!    which may name packets sent before it (`sender/hearing.rs`).
//! 2. A packet is compared with the newest echo of its own class and of all lower ones, since no
//!    queue lets a lower class overtake.
//! 3. It is lost when it was sent earlier than that by [`LossHorizons`]: for a segment that is
//!    repaired a round trip with its deviation (RACK, RFC 8985, by time alone: sprayed packets
//!    overtake each other, so their count says little), where a mistake costs a duplicate. For a
//!    segment that may stay missing it is at least the job's gap, since a mistake would lose a
//!    segment that was only late. For one that was sent without a grant it is the least round trip:
//!    queues drop most of those. Where paths may keep order, time alone makes no hole: only if a
//!    packet that was sent later on the same path has arrived, too. Otherwise the segment may wait
//!    on a path that has become slow, and is repaired as any other.
//!    Paths may differ by more than that: segments that were found lost and then arrived without
//!    being sent again show by how much ([`LateSegments`]).
//! 4. A path that keeps order proves more: a report says that it has passed a number, so all
//!    packets before it are lost or reported ([`crate::order`]). No time has to go by for these,
//!    but here, too, the reports before must have come.
//! 5. A report that is lost may have named any segment. Rules 3 and 4 find no segment of a message
//!    lost before that message has a newer report, which repeats what the lost one told: where a
//!    path loses reports, segments that have arrived would be sent again, and shrink the window.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::Sender;
use super::flight::{FlightRun, SegmentFlight};
use super::hearing::ReportWord;
use super::history::{HoleJudge, PathRecord, ToleranceNeed};
use super::lateness::Lateness;
use super::message::SendMessage;
use super::worth::TolerancePrice;
use crate::job::ToleranceUse;
use crate::priority::EarlyDrop;
use crate::rtt::Rtt;
use crate::units::{Class, Instant, Span, Stamp};
use crate::wire::{HoleProof, PathMark};

/// The most segments taken for lost that are remembered.
const DOUBTED_MAX: usize = 64;

/// The packets of one class in flight to one peer.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct ClassFlights {
    /// In the order of sending. Those that have landed stay until they are first.
    pub(super) flights: VecDeque<FlightRun>,
    /// Time stamp of the newest packet, probes included, that is known to have arrived.
    newest: Option<Stamp>,
    /// The same, of packets whose report has come, as have all reports before it.
    proven: Option<Stamp>,
}

impl ClassFlights {
    /// The packets that it remembers.
    pub(super) fn packets(&self) -> usize {
        let runs = self.flights.iter();
        runs.map(|run| run.segments().len()).sum()
    }

    /// A report echoes a packet of this class; returns whether it is the newest.
    fn on_echo(&mut self, echo: Stamp) -> bool {
        let newer = self.newest.is_none_or(|newest| echo > newest);
        if newer {
            self.newest = Some(echo);
        }
        newer
    }
}

/// When the newest packet of these classes that proves others lost was sent. Before the first it is
/// the start, before which no packet was sent.
fn newest_of(classes: &[ClassFlights]) -> Stamp {
    let newest = classes.iter().filter_map(|class| class.proven).max();
    newest.unwrap_or_default()
}

/// A packet is lost if it was sent this much earlier than a packet of its class that has arrived.
#[derive(Clone, Copy)]
struct LossHorizons {
    repaired: Span,
    tolerated: Span,
    /// Of segments that were sent without a grant: most of those that are late were dropped, and
    /// until that is known they fill the window.
    speculative: Span,
}

/// By how much packets overtake segments that were taken for lost, learned as RACK learns its
/// reordering window from duplicates (RFC 8985, section 6.2.1).
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct LateSegments {
    /// Segments found lost since the last report of their message, the oldest first.
    doubted: VecDeque<(usize, SegmentFlight)>,
    lateness: Lateness,
}

impl LateSegments {
    /// A segment of this class is lost, as far as time shows.
    fn on_found(&mut self, class: usize, flight: SegmentFlight) {
        if self.doubted.len() == DOUBTED_MAX {
            self.doubted.pop_front();
        }
        self.doubted.push_back((class, flight));
    }

    /// A report of a message has arrived; no segment is later than `most`. If others were lost, a
    /// segment may have come in time, and nothing is learned.
    fn on_report(&mut self, sending: &SendMessage, classes: &[ClassFlights], most: Option<Span>) {
        self.lateness.fade();
        let lateness = &mut self.lateness;
        self.doubted.retain(|&(class, flight)| {
            let is_reported = flight.message == sending.id();
            let is_same = is_reported && sending.sent_at(flight.segment) == flight.sent_at;
            let has_arrived = is_same && sending.progress.acked.has(flight.segment);
            // A segment that parity has restored did not come late.
            let learned = most.filter(|_| has_arrived && !sending.parity.was_sent());
            if let Some(most) = learned {
                let newest = newest_of(&classes[class..]);
                lateness.learn(newest.since(flight.sent_at), most);
            }
            !is_reported || (is_same && !has_arrived)
        });
    }

    /// Segments sent this much before one that has arrived may be late.
    fn horizon(&self) -> Span {
        self.lateness.expected()
    }
}

impl LossHorizons {
    fn new(repaired: Span, rtt: &Rtt, gap: Span, holes: HoleJudge) -> Self {
        let tolerated = match holes {
            HoleJudge::Sender => repaired.max(gap),
            HoleJudge::Paths => repaired,
        };
        Self {
            repaired,
            tolerated,
            speculative: rtt.least(),
        }
    }
}

/// How many segments were found lost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FoundLost {
    pub(super) all: u32,
    /// Those that no queue drops early.
    pub(super) needed: u32,
    /// When the last of these was sent.
    pub(super) sent_at: Stamp,
    /// Those that parity has restored, and a time before which they were sent.
    pub(super) restored: u32,
    pub(super) restored_before: Stamp,
}

impl FoundLost {
    /// One that a queue drops where it would mark others.
    fn in_place_of_mark() -> Self {
        Self {
            all: 1,
            ..Self::default()
        }
    }

    /// Any other one.
    fn needed(flight: &SegmentFlight) -> Self {
        Self {
            all: 1,
            needed: 1,
            sent_at: flight.sent_at,
            ..Self::default()
        }
    }

    /// Segments that parity has restored at the receiver, sent before a packet of this stamp.
    pub(super) fn hidden(segments: u32, sent_at: Stamp) -> Self {
        if segments == 0 {
            return Self::default();
        }
        Self {
            all: segments,
            needed: segments,
            restored: segments,
            restored_before: sent_at,
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.all += other.all;
        self.needed += other.needed;
        self.restored += other.restored;
        self.restored_before = self.restored_before.max(other.restored_before);
        self.sent_at = self.sent_at.max(other.sent_at);
    }
}

impl Sender {
    /// Whether a packet to the peer was found lost.
    pub(crate) fn has_lost(&self) -> bool {
        self.counters.found_lost > 0
    }

    /// Packets to another peer are lost, so these may be, too.
    pub(crate) fn expect_loss(&mut self) {
        self.history.expect_loss();
    }

    /// Whether a message of so many segments may gain by a tolerance: the paths have marked
    /// packets, or they have lost some or carried few, and it pays.
    pub(crate) fn favours_tolerance(&self, segments: u32, uses: ToleranceUse, rtt: &Rtt) -> bool {
        let price = || TolerancePrice {
            segments,
            round: self.pace.segments_in(rtt.least()).max(1),
            round_trip: rtt.least(),
            lost: self.losses.of_all(),
            lone: self.pace.lone(),
        };
        match (self.history.need_of_tolerance(), uses) {
            (ToleranceNeed::None, _) => false,
            (ToleranceNeed::Drops, ToleranceUse::WhereItPays) => price().pays(),
            (ToleranceNeed::Drops, ToleranceUse::Always) | (ToleranceNeed::Marks, _) => true,
        }
    }

    /// Takes the stamp of a packet that has arrived; returns whether it is the newest of its class.
    pub(super) fn on_echo(&mut self, class: Class, echo: Stamp) -> bool {
        let class = self.classes.get_mut(usize::from(class.0));
        class.is_some_and(|class| class.on_echo(echo))
    }

    /// The message at `at` has a new report: learns from segments that were late.
    pub(super) fn learn_lateness(&mut self, at: usize, most: Span) {
        let most = self.reports.are_complete().then_some(most);
        (self.late).on_report(&self.messages[at], &self.classes, most);
    }

    /// Finds segments that are lost by now, and returns how many.
    pub(super) fn find_lost(&mut self, now: Instant, rtt: &Rtt, gap: Span) -> FoundLost {
        let reordering = match self.history.judge {
            HoleJudge::Sender => rtt.reordering(gap),
            HoleJudge::Paths => rtt.reordering_in_order(gap),
        };
        let reordering = reordering.max(self.late.horizon());
        let horizons = LossHorizons::new(reordering, rtt, gap, self.history.judge);
        let mut lost = FoundLost::default();
        for class in (0..self.classes.len()).rev() {
            if !self.classes[class].flights.is_empty() {
                let newest = newest_of(&self.classes[class..]);
                lost.add(self.find_lost_before(now, class, newest, horizons));
            }
        }
        lost
    }

    /// Takes the words of reports that are proven by now. Finds the lost segments of paths: those
    /// in flight before packets that these have passed.
    pub(super) fn take_words(&mut self, now: Instant) -> FoundLost {
        let mut lost = FoundLost::default();
        while let Some(ReportWord { echo, passed, .. }) = self.reports.take_proven() {
            let (class, echo) = (usize::from(echo.0.0), echo.1);
            if let Some(class) = self.classes.get_mut(class) {
                class.proven = class.proven.max(Some(echo));
            }
            for passed in passed {
                lost.add(self.find_lost_on(now, passed));
            }
        }
        lost
    }

    fn find_lost_on(&mut self, now: Instant, passed: PathMark) -> FoundLost {
        let mut lost = FoundLost::default();
        let class = usize::from(passed.class.0);
        let runs = self.classes.get(class).map_or(0, |of| of.flights.len());
        for index in 0..runs {
            let run = self.classes[class].flights[index];
            let begins_before = run.flight(run.segments().start).precedes(passed);
            let message = begins_before.then(|| self.position(run.message)).flatten();
            let Some(at) = message.filter(|&at| self.knows_reports_of(at)) else {
                continue;
            };
            let mut next = self.messages[at].current_from(&run, 0);
            while let Some(flight) = next.filter(|flight| flight.precedes(passed)) {
                lost.add(self.lose(now, at, &flight));
                next = self.messages[at].current_from(&run, flight.segment + 1);
            }
        }
        lost
    }

    /// Whether no report after the newest one of the message at `at` counts as lost.
    fn knows_reports_of(&self, at: usize) -> bool {
        let newest = self.messages[at].progress.reported;
        self.reports.knows_since(newest)
    }

    /// A current flight of the message at `at` is lost: repairs its segment or leaves a hole.
    fn lose(&mut self, now: Instant, at: usize, flight: &SegmentFlight) -> FoundLost {
        if self.lose_speculative(at, flight) {
            return FoundLost::default();
        }
        let may_miss = self.messages[at].may_miss(flight.segment);
        if may_miss && self.history.judge == HoleJudge::Paths {
            self.messages[at].proof = HoleProof::Passed;
        }
        // A queue that drops early is long, but the path of the packet is sound.
        let is_dropped = may_miss && self.early_drop == EarlyDrop::On;
        match is_dropped {
            true => self.spray.on_dropped(flight.entropy),
            false => self.spray.on_loss(flight.entropy),
        }
        self.note_loss();
        let share = self.losses.share();
        self.land_lost(now, at, flight, |sending, segment| {
            sending.on_lost(segment, share);
        });
        match is_dropped {
            true => FoundLost::in_place_of_mark(),
            false => FoundLost::needed(flight),
        }
    }

    /// A current flight of the message at `at` was overtaken by much (rule 3).
    fn lose_overtaken(
        &mut self,
        now: Instant,
        at: usize,
        (class, run, flight): (Class, &FlightRun, &SegmentFlight),
    ) -> FoundLost {
        let sending = &self.messages[at];
        let may_miss = sending.may_miss(flight.segment);
        let has_passed = || {
            sending.has_passed(run, flight.segment)
                || (self.spray).has_passed(run.entropy, class, run.sent_at)
        };
        let is_speculative = sending.has_speculated_with(flight.segment);
        if !may_miss || is_speculative || self.history.judge == HoleJudge::Sender || has_passed() {
            return self.lose(now, at, flight);
        }
        self.spray.on_loss(flight.entropy);
        self.note_loss();
        self.land_lost(now, at, flight, SendMessage::queue_repair);
        FoundLost::needed(flight)
    }

    fn note_loss(&mut self) {
        self.history.on_loss();
        self.counters.found_lost += 1;
    }

    /// A current flight is lost, whether or not a link is to blame; `react` repairs its segment or
    /// leaves a hole.
    pub(super) fn land_lost(
        &mut self,
        now: Instant,
        at: usize,
        flight: &SegmentFlight,
        react: impl FnOnce(&mut SendMessage, u32),
    ) {
        let sending = &mut self.messages[at];
        let bytes = sending.land(flight.segment);
        self.in_flight -= bytes;
        self.path.on_lost(now, bytes);
        react(sending, flight.segment);
        sending.parity.on_lost();
        // The receiver does not know of the new holes.
        if sending.has_news(PathRecord::Lossy) {
            sending.probe.at = sending.probe.at.min(now);
        }
        let probe_at = sending.probe.at;
        self.note_probe(probe_at);
    }

    /// Finds the lost segments of a class, given that its packet with the stamp `newest` has
    /// arrived.
    fn find_lost_before(
        &mut self,
        now: Instant,
        class: usize,
        newest: Stamp,
        horizons: LossHorizons,
    ) -> FoundLost {
        let mut lost = FoundLost::default();
        let repaired_before = newest.before(horizons.repaired);
        let tolerated_before = newest.before(horizons.tolerated);
        let speculative_before = newest.before(horizons.speculative);
        // Flights before this place wait for reports of their messages.
        let (mut index, mut from) = (0, 0);
        while let Some(&run) = self.classes[class].flights.get(index) {
            let is_first = (index, from) == (0, 0);
            let message = self.position(run.message);
            let current = |at: usize| Some((at, self.messages[at].current_from(&run, from)?));
            let Some((at, flight)) = message.and_then(current) else {
                match is_first {
                    true => _ = self.classes[class].flights.pop_front(),
                    false => (index, from) = (index + 1, 0),
                }
                continue;
            };
            if is_first {
                self.classes[class].flights[0].begin_with(flight.segment);
            }
            let sending = &self.messages[at];
            let lost_before = match sending.may_miss(flight.segment) {
                _ if sending.has_speculated_with(flight.segment) => speculative_before,
                true => tolerated_before,
                false => repaired_before,
            };
            // All flights after it were sent later still.
            if flight.sent_at >= lost_before {
                break;
            }
            if !self.knows_reports_of(at) {
                from = flight.segment + 1;
                continue;
            }
            lost.add(self.lose_overtaken(now, at, (Class(class as u8), &run, &flight)));
            self.late.on_found(class, flight);
            // It has landed, so it is not found again.
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{on_lossy_paths, settings, tolerant_request};
    use super::*;
    use crate::machine::SegmentRun;

    #[test]
    fn a_hole_stands_for_a_mark_only_where_queues_drop_early() {
        let now = Instant::START + Span::from_millis(1);
        for (early_drop, needed) in [(EarlyDrop::On, 0), (EarlyDrop::Off, 1)] {
            let mut settings = settings();
            settings.policy.early_drop = early_drop;
            let (mut sender, rtt) = on_lossy_paths(&settings, 8);
            sender.send(now, tolerant_request(&settings, 100), &settings);
            let burst = sender.poll_data(now, &rtt, &settings, &mut SegmentRun::default());
            let class = burst.expect("the window has room").template.class;
            let flight = sender.classes[usize::from(class.0)].flights[0].flight(0);
            let lost = sender.lose(now, 0, &flight);
            assert_eq!((lost.all, lost.needed), (1, needed), "{early_drop:?}");
        }
    }
}
