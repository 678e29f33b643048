//! Parity behind messages: how much, and which packet is next.
//!
//! 1. Parity covers the last segments of a message, as many as leave in the least round trip, by
//!    the window and by the pace of the messages before, and at least the last run: a loss before
//!    them is repaired while they leave. More may be in flight, in the queues of hosts. How much
//!    follows is decided when the first of them leaves, by the loss measured until
//!    then ([`Sender::cover`]).
//!    On a long path it may take a sixteenth of a round trip, where it saves a whole one. On a
//!    short one there is none where hosts would take longer for it than it saves.
//! 2. Its parity is due once all of it was sent, and leaves when no message has a segment to send.
//!    A group whose segments have all arrived needs none.
//! 3. Parity is in flight as segments are, until a report echoes a packet that was sent later. It
//!    is never repaired.
//! 4. Parity delays no repair: a segment that is found lost is sent again at once. A loss that the
//!    receiver restores before the sender finds it counts as a loss all the same
//!    ([`MessageParity::hidden_losses`]), so parity hides no congestion.

use super::history::PathRecord;
use super::message::SendMessage;
use super::pace::LONE_COST;
use super::tail;
use super::{Burst, Sender, full_packet};
use crate::machine::{Ecn, RUN_SEGMENTS_MAX, SegmentRun};
use crate::parity::{GROUP_MAX, ParityGroup, ParityRule, ParityTerms};
use crate::priority::SendTurn;
use crate::rtt::Rtt;
use crate::settings::EndpointSettings;
use crate::units::{Class, Instant, Layer, Magnitude};
use crate::wire::{HEADER_BYTES, Header, PacketKind};

/// A long round trip over the time that parity may take.
const ROUND_PER_PARITY: u64 = 16;

const _: () = assert!(
    GROUP_MAX as usize <= RUN_SEGMENTS_MAX,
    "a run takes a group"
);

impl SendMessage {
    /// Segments that have not arrived, as far as is known, and that its receiver takes.
    fn outstanding(&self) -> u32 {
        let granted = self.progress.granted.min(self.segments());
        granted.saturating_sub(self.progress.acked.ones())
    }

    /// Whether its parity becomes due with a run: the last one of new segments.
    pub(super) fn takes_parity(&self, run: &SegmentRun) -> bool {
        let has_new = run.repairs() < run.len();
        let is_last = has_new && self.sent() == self.segments();
        is_last && self.tags.parity().is_some()
    }

    /// How many parity packets it has at most.
    fn parity_groups(&self) -> u32 {
        let layout = self.tags.parity();
        layout.map_or(0, |layout| layout.group_count(self.segments()))
    }

    /// Takes the segments of the next group that may lack one into `run`; returns the group. `None`
    /// if there is no other one.
    fn take_group(&mut self, run: &mut SegmentRun) -> Option<ParityGroup> {
        let (layout, segments) = (self.tags.parity()?, self.segments());
        while self.parity.next < layout.group_count(segments) {
            let group = ParityGroup(self.parity.next);
            self.parity.next += 1;
            run.clear();
            let mut may_miss = false;
            for segment in layout.candidates(segments, group) {
                if self.tags.parity_of(segment).is_some() {
                    run.push(segment);
                    may_miss |= !self.progress.acked.has(segment);
                }
            }
            if may_miss {
                return Some(group);
            }
        }
        None
    }
}

impl Sender {
    /// Decides about the parity of a message before the first segment leaves that it may cover; a
    /// run of up to `run` of them leaves now.
    #[inline]
    pub(super) fn cover(&mut self, at: usize, run: u32, rtt: &Rtt, settings: &EndpointSettings) {
        if settings.parity != ParityRule::None && !self.messages[at].parity.is_decided {
            self.cover_end(at, run, rtt, settings);
        }
    }

    #[inline(never)]
    fn cover_end(&mut self, at: usize, run: u32, rtt: &Rtt, settings: &EndpointSettings) {
        // At most a window is sent in a smoothed round trip.
        let part = rtt.least().as_secs_f64() / rtt.smoothed().max(rtt.least()).as_secs_f64();
        let window = (self.window.bytes().get() as f64 * part.min(1.0)) as u64;
        let window = window / full_packet(settings);
        let paced = self.pace.segments_in(rtt.least()).max(run.into());
        let window = window.min(paced);
        let loss = match self.history.record() {
            PathRecord::Clean | PathRecord::Unproven(_) => 0.0,
            PathRecord::Lossy => self.losses.share(),
        };
        let sending = &mut self.messages[at];
        let (segments, last) = (sending.segments(), sending.segments() - sending.sent());
        if u64::from(last) <= window.min(sending.outstanding().into()) {
            sending.parity.is_decided = true;
            let terms = ParityTerms {
                rule: settings.parity,
                loss,
                room: match rtt.is_long(settings.delay_target) {
                    true => (paced / ROUND_PER_PARITY).min(segments.into()) as u32,
                    false => 0,
                },
                among: match sending.tolerance.is_none() {
                    true => 0,
                    false => segments,
                },
            };
            sending.tags.cover(terms, segments, last);
            if self.parity_costs_more(at, last, rtt, settings) {
                let rule = ParityRule::None;
                let none = ParityTerms { rule, ..terms };
                self.messages[at].tags.cover(none, segments, last);
            }
        }
    }

    /// Whether the parity behind the `last` segments of the message at `at` takes hosts longer in
    /// the mean than the round trip that it saves when one of them is lost. Where links are what
    /// limits senders, it costs what it adds to the load, which is little.
    fn parity_costs_more(
        &self,
        at: usize,
        last: u32,
        rtt: &Rtt,
        settings: &EndpointSettings,
    ) -> bool {
        let sending = &self.messages[at];
        let groups = sending.parity_groups();
        if settings.parity != ParityRule::Auto || rtt.is_long(settings.delay_target) {
            return false;
        }
        let any_lost = (self.losses.share() * f64::from(last)).min(1.0);
        let felt = tail::felt_share(any_lost, self.ranks);
        let cost = self.pace.lone_extra() * (u64::from(groups) * LONE_COST);
        tail::costs_more(felt, cost, rtt.smoothed())
    }

    /// The turn of the next parity packet: after all segments.
    pub(super) fn parity_turn(&self) -> Option<SendTurn> {
        (!self.parity_due.is_empty()).then_some(SendTurn::Parity)
    }

    /// The next parity packet; the segments of its group are taken into `run`.
    pub(super) fn poll_parity(
        &mut self,
        now: Instant,
        settings: &EndpointSettings,
        run: &mut SegmentRun,
    ) -> Option<Burst> {
        while let Some(&message) = self.parity_due.front() {
            let at = self.position(message);
            let group = at.and_then(|at| Some((at, self.messages[at].take_group(run)?)));
            let Some((at, group)) = group else {
                self.parity_due.pop_front();
                continue;
            };
            let sending = &self.messages[at];
            match sending.parity.next < sending.parity_groups() {
                true => self.pace.on_lone(now),
                false => self.pace.on_next(now),
            }
            let class = sending.lowest_class(&settings.policy);
            let mut burst = self.parity_burst(now, at, class);
            let indices = run.segments().fold(0, |sum, segment| sum ^ segment);
            burst.template.segment = group.0;
            burst.template.layer = Layer(indices as u16);
            burst.template.magnitude = Magnitude(run.len() as u8);
            return Some(burst);
        }
        None
    }

    /// A parity packet of the message at `at` leaves.
    fn parity_burst(&mut self, now: Instant, at: usize, class: Class) -> Burst {
        let entropy = self.spray.take(now.stamp(), 1);
        let first = self.numbers.take(class, entropy, 1);
        let sending = &mut self.messages[at];
        let length = sending.segment_length(0);
        let bytes = HEADER_BYTES as u64 + u64::from(length);
        sending.parity.sent_at = Some(now.stamp());
        sending.parity.in_flight += bytes;
        self.in_flight += bytes;
        self.path.on_sent(now);
        self.counters.parity_packets += 1;
        let template = Header {
            kind: PacketKind::Parity,
            class,
            entropy,
            number: first.number,
            parity: sending.tags.parity(),
            length: length as u16,
            ..sending.template(now)
        };
        Burst {
            template,
            // A queue that is long enough to drop early is no place for parity.
            ecn: Ecn::NotEct,
            probe_at: sending.probe.at,
        }
    }
}
