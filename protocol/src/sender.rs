//! One rank's messages to one peer: window, sending order, repair, probes.
//!
//! A segment is in flight from its sending until it is acknowledged or found lost. It is lost when
//! a packet sent clearly later has arrived (by time, not by count: sprayed packets overtake each
//! other), or when a BITMAP that answers a later PROBE shows it missing. Either says something of
//! packets of the same class and of higher ones only: what waits in a lower class, for as long as
//! the higher ones have something to send, is late and not lost. What is lost is repaired
//! at once if the message tolerates no loss, if the segment is protected, or if more is lost than
//! the message tolerates. Otherwise it stays a hole unless the receiver asks for it by BITMAP. A
//! BITMAP shows what its receiver does without as if it were there; what is found lost from then on
//! is repaired at once. What really was missing says STOP.
//!
//! A message ends with STOP; its sender then says CLOSE. A sender that hears nothing probes: in the
//! class of the message's data, so that the PROBE waits in queues as long as they do.

mod message;

use std::collections::VecDeque;
use std::ops::Range;

use self::message::{SegmentFlight, SendMessage, UnscheduledStart};
use crate::bitmap::{self, Bitmap};
use crate::congestion::{CongestionWindow, Feedback, WindowLimits};
use crate::entropy::Spray;
use crate::machine::{Ecn, SegmentRun};
use crate::message::SendRequest;
use crate::priority::{CONTROL, Policy, SegmentTags, SendTurn};
use crate::rtt::Rtt;
use crate::settings::EndpointSettings;
use crate::units::{ByteCount, Class, Entropy, Instant, MessageId, MessageKey, Rank, Span};
use crate::wire::{Flags, HEADER_BYTES, Header, PacketKind, SegmentReport, is_later};

/// A probe's wait doubles with every unanswered one, up to this, and to so many of the job's gaps.
const PROBE_WAIT_MAX: Span = Span::from_millis(20);
const GAPS_UNANSWERED: u64 = 32;
/// Unanswered probes of one message after which the window starts over.
const SILENT_PROBES: u32 = 3;

/// What ended at a sender.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SentMessage {
    /// Its key.
    pub key: MessageKey,
    /// Its number.
    pub message: MessageId,
    /// The segments that the receiver did without, if any.
    pub missing: Option<Bitmap>,
    /// Layers, magnitudes and protection of its segments.
    pub tags: SegmentTags,
    /// From [`Sender::send`] until the receiver's STOP.
    pub took: Span,
}

impl SentMessage {
    /// The highest class of its segments.
    pub fn class(&self) -> Class {
        let first = self.tags.lanes().first();
        first.map_or(CONTROL, |lane| lane.class)
    }
}

/// A run of packets that the sender wants on the wire.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    /// The header that the packets have in common.
    pub template: Header,
    /// ECN bits.
    pub ecn: Ecn,
    /// When their message is to be probed.
    pub probe_at: Instant,
}

/// Counts of what a sender did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SenderCounters {
    /// Segments sent for the first time.
    pub sent_segments: u64,
    /// Segments sent again.
    pub repaired_segments: u64,
    /// PROBE packets.
    pub probes: u64,
    /// CE marks that receivers reported.
    pub marks: u64,
    /// Segments found lost.
    pub found_lost: u64,
}

impl SenderCounters {
    /// Adds another sender's counts.
    pub fn add(&mut self, other: &Self) {
        self.sent_segments += other.sent_segments;
        self.repaired_segments += other.repaired_segments;
        self.probes += other.probes;
        self.marks += other.marks;
        self.found_lost += other.found_lost;
    }
}

/// The packets of one class on their way to one peer, probes included.
#[derive(Clone, Debug, Default)]
struct ClassFlights {
    /// In the order of sending; those that have landed stay until they are first.
    flights: VecDeque<SegmentFlight>,
    /// The stamp of the newest one that is known to have arrived.
    newest: Option<u32>,
}

/// All messages to one peer.
#[derive(Debug)]
pub struct Sender {
    messages: Vec<SendMessage>,
    /// By class: packets of one class stay behind each other in queues, others overtake them.
    lanes: Vec<ClassFlights>,
    /// When the peer reported last, of whatever message.
    heard: Instant,
    in_flight: u64,
    /// Bytes of unscheduled starts that the peer is not known to have heard of.
    unscheduled: u64,
    window: CongestionWindow,
    spray: Spray,
    next_id: u32,
    /// No later than the next probe of any message that has started.
    probe_due: Option<Instant>,
    closes: Vec<Header>,
    sent: VecDeque<SentMessage>,
    /// Messages that stand still and were not told yet.
    still: Vec<MessageKey>,
    counters: SenderCounters,
}

impl Sender {
    /// A sender to `peer` without messages.
    pub fn new(peer: Rank, settings: &EndpointSettings, seed: u64) -> Self {
        let limits = WindowLimits {
            initial: settings.initial_window,
            most: settings.window,
            packet: ByteCount::new(u64::from(settings.segment_bytes) + HEADER_BYTES as u64),
            delay_target: settings.delay_target,
        };
        Self {
            messages: Vec::new(),
            lanes: vec![ClassFlights::default(); settings.policy.dscps.len()],
            heard: Instant::START,
            in_flight: 0,
            unscheduled: 0,
            window: CongestionWindow::new(limits),
            spray: Spray::new(settings.entropies, seed ^ u64::from(peer.0)),
            next_id: 1,
            probe_due: None,
            closes: Vec::new(),
            sent: VecDeque::new(),
            still: Vec::new(),
            counters: SenderCounters::default(),
        }
    }

    /// Takes a message to send.
    pub fn send(&mut self, now: Instant, outgoing: SendRequest, settings: &EndpointSettings) {
        let id = MessageId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1).max(1);
        let unscheduled = self.unscheduled_for(&outgoing, settings);
        let mut sending = SendMessage::new(id, outgoing, (settings, unscheduled), now);
        sending.probe_at = now + PROBE_WAIT_MAX;
        if sending.is_told() {
            sending.probe_at = now;
            self.note_probe(now);
        }
        self.messages.push(sending);
    }

    /// How many segments of a new message may be sent before its receiver grants any. Where it
    /// grants, it knows nothing of what comes unscheduled until that is there, so all messages to
    /// one peer share the unscheduled start of one: however small they are, many peers that begin
    /// many messages at once must not overrun its link. The first one always has it.
    fn unscheduled_for(
        &mut self,
        outgoing: &SendRequest,
        settings: &EndpointSettings,
    ) -> UnscheduledStart {
        let segments = settings.unscheduled_segments();
        let most = u64::from(segments) * u64::from(settings.segment_bytes);
        let bytes = most.min(u64::from(outgoing.bytes) + HEADER_BYTES as u64);
        let is_granted = settings.grant_segments.is_some();
        if is_granted && self.unscheduled > 0 && self.unscheduled + bytes > most {
            return UnscheduledStart::default();
        }
        self.unscheduled += bytes;
        UnscheduledStart { segments, bytes }
    }

    /// Bytes in flight, headers included.
    pub fn in_flight(&self) -> ByteCount {
        ByteCount::new(self.in_flight)
    }

    /// Bytes that may be in flight.
    pub fn window(&self) -> ByteCount {
        self.window.bytes()
    }

    /// Whether a message has not ended yet.
    pub fn is_busy(&self) -> bool {
        !self.messages.is_empty()
    }

    /// What was counted so far.
    pub fn counters(&self) -> &SenderCounters {
        &self.counters
    }

    /// Goes on from counts made before.
    pub(crate) fn add_counters(&mut self, before: &SenderCounters) {
        self.counters.add(before);
    }

    /// Whether a message has ended since the last [`Sender::take_sent`], or stands still since the
    /// last [`Sender::take_still`].
    pub fn has_news(&self) -> bool {
        !self.sent.is_empty() || !self.still.is_empty()
    }

    /// A message of which all that its receiver takes was sent and has arrived a while ago, and
    /// that its receiver has not completed; told once.
    pub fn take_still(&mut self) -> Option<MessageKey> {
        self.still.pop()
    }

    /// A message that has ended since the last call.
    pub fn take_sent(&mut self) -> Option<SentMessage> {
        self.sent.pop_front()
    }

    /// The path for the next control packet.
    pub fn take_entropy(&mut self) -> Entropy {
        self.spray.take()
    }

    /// The tags of a message that has not ended.
    pub fn tags(&self, message: MessageId) -> Option<&SegmentTags> {
        self.position(message).map(|at| &self.messages[at].tags)
    }

    fn position(&self, message: MessageId) -> Option<usize> {
        self.messages
            .binary_search_by_key(&message, |sending| sending.id)
            .ok()
    }

    /// The next control packet, whose body is written into `body`: CLOSE for what has ended, PROBE
    /// for what is in doubt.
    pub fn poll_control(
        &mut self,
        now: Instant,
        rtt: &Rtt,
        settings: &EndpointSettings,
        body: &mut Vec<u8>,
    ) -> Option<Header> {
        body.clear();
        if let Some(close) = self.closes.pop() {
            return Some(close);
        }
        if self.probe_due.is_none_or(|due| due > now) {
            return None;
        }
        let due = |sending: &SendMessage| sending.is_told() && sending.probe_at <= now;
        let Some(at) = self.messages.iter().position(due) else {
            let told = self.messages.iter().filter(|sending| sending.is_told());
            self.probe_due = told.map(|sending| sending.probe_at).min();
            return None;
        };
        let sending = &mut self.messages[at];
        let wait = rtt.probe_wait(settings.gap);
        let doubled = wait * (1 << sending.unanswered.min(6));
        let most = PROBE_WAIT_MAX.min(settings.gap * GAPS_UNANSWERED);
        let next = now + doubled.min(most.max(wait));
        let is_news = sending.is_news() || sending.has_unsaid_holes();
        sending.on_probe((now, next), settings.segment_bytes as usize, body);
        self.counters.probes += 1;
        if sending.stands_still() && !sending.told_still && !is_news {
            sending.told_still = true;
            self.still.push(sending.key());
        }
        let silent = sending.unanswered == SILENT_PROBES && self.heard < sending.asked;
        if silent && self.in_flight > 0 {
            self.window.on_silence();
        }
        let flags = if sending.all_sent() {
            Flags::ALL_SENT
        } else {
            Flags::NONE
        };
        Some(Header {
            kind: PacketKind::Probe,
            class: sending.lowest_class(&settings.policy),
            flags,
            segment: sending.sent().min(sending.segments() - 1),
            length: body.len() as u16,
            ..sending.template(now)
        })
    }

    fn note_probe(&mut self, at: Instant) {
        self.probe_due = Some(self.probe_due.map_or(at, |due| due.min(at)));
    }

    /// Whether a control packet may be to be sent now, and the earliest that the next one can be.
    pub fn outlook(&self, now: Instant) -> (bool, Option<Instant>) {
        let probes = self.probe_due.is_some_and(|at| at <= now);
        (
            probes || !self.closes.is_empty(),
            self.probe_due.filter(|&at| at > now),
        )
    }

    /// Whether the window would let something go, if there is something.
    pub fn has_room(&self, settings: &EndpointSettings) -> bool {
        let packet = u64::from(settings.segment_bytes) + HEADER_BYTES as u64;
        let room = self.window.bytes().get().saturating_sub(self.in_flight) / packet;
        !self.messages.is_empty() && room >= self.least_run(packet, settings)
    }

    /// The turn of what would be sent next, if the window allowed it.
    pub(crate) fn next_turn(&mut self, settings: &EndpointSettings) -> Option<SendTurn> {
        let messages = self.messages.iter_mut();
        messages
            .filter_map(|sending| sending.next_turn(settings))
            .min()
    }

    /// The next run of segments that the window allows: of the message whose turn comes first, and
    /// of the oldest of those. Writes it into `run`.
    pub fn poll_data(
        &mut self,
        now: Instant,
        rtt: &Rtt,
        settings: &EndpointSettings,
        run: &mut SegmentRun,
    ) -> Option<Burst> {
        let packet = u64::from(settings.segment_bytes) + HEADER_BYTES as u64;
        let room = self.window.bytes().get().saturating_sub(self.in_flight) / packet;
        if room < self.least_run(packet, settings) {
            return None;
        }
        let (_, at) = self
            .messages
            .iter_mut()
            .enumerate()
            .filter_map(|(at, sending)| Some((sending.next_turn(settings)?, at)))
            .min()?;
        let sending = &mut self.messages[at];
        let most = (room as usize).min(settings.run_segments);
        let taken = sending.take_run(most, settings, run);
        let (class, flags, entropy) = (taken.class, taken.flags, self.spray.take());
        let template = Header {
            class,
            flags,
            entropy,
            ..sending.template(now)
        };
        let segments = run.as_slice().len() as u64;
        if flags.has(Flags::REPAIR) {
            self.counters.repaired_segments += segments;
        } else {
            self.counters.sent_segments += segments;
        }
        let flights = &mut self.lanes[usize::from(class.0)].flights;
        self.in_flight += sending.on_sent(run, &template, flights);
        sending.probe_at = sending.next_probe(now, rtt.probe_wait(settings.gap));
        let probe_at = sending.probe_at;
        self.note_probe(probe_at);
        debug_assert!(
            self.in_flight <= self.window.bytes().get().max(packet),
            "window kept"
        );
        Some(Burst {
            template,
            ecn: taken.ecn,
            probe_at,
        })
    }

    /// A window that opens packet by packet would make runs of one packet; wait until half a run
    /// fits, unless so little is in flight that nothing would open it.
    fn least_run(&self, packet: u64, settings: &EndpointSettings) -> u64 {
        let run = settings.run_segments as u64;
        let window = self.window.bytes().get() / packet;
        if self.in_flight == 0 {
            1
        } else {
            (run / 2).min(window / 2).max(1)
        }
    }

    /// Takes an ACK, BITMAP or STOP.
    pub fn handle_report(
        &mut self,
        now: Instant,
        packet: &ReportPacket<'_>,
        rtt: &mut Rtt,
        settings: &EndpointSettings,
    ) {
        let header = packet.header;
        self.heard = now;
        let Some(at) = self.position(header.message) else {
            if header.kind == PacketKind::Stop {
                self.closes.push(close_of(header, now));
            }
            return;
        };
        let report = &packet.report;
        let news = report.echo != 0 && self.note_echo(report);
        if news {
            let micros = now
                .wire_micros()
                .wrapping_sub(report.echo)
                .saturating_sub(report.held);
            rtt.sample(Span::from_micros(u64::from(micros.max(1))));
        }
        let sending = &mut self.messages[at];
        sending.granted = sending.granted.max(report.granted);
        self.unscheduled -= sending.release();
        let (acked_bytes, segments) = acknowledge(sending, packet);
        self.in_flight -= acked_bytes;
        let marks = report.ce.saturating_sub(sending.marks);
        sending.marks += marks;
        self.counters.marks += u64::from(marks);
        self.spray.on_marks(report.ce_entropies);
        if header.kind == PacketKind::Bitmap {
            self.repair_missing(at, packet, &settings.policy);
        }
        let acked = ByteCount::new(acked_bytes);
        let lost = self.find_lost(now, rtt, settings.gap);
        self.window.on_feedback(
            now,
            Feedback {
                acked,
                segments,
                marks,
                lost,
            },
            rtt,
        );
        let sending = &mut self.messages[at];
        if news || segments > 0 {
            sending.unanswered = 0;
            sending.probe_at = sending.next_probe(now, rtt.probe_wait(settings.gap));
            let probe_at = sending.probe_at;
            self.note_probe(probe_at);
        }
        let sending = &mut self.messages[at];
        if header.kind == PacketKind::Stop && sending.on_stop(report, packet.bitmap) {
            self.closes.push(close_of(header, now));
            self.end(at, now);
        }
    }

    /// Remembers the stamp of the newest packet of a class that is known to have arrived; tells
    /// whether this one is newer.
    fn note_echo(&mut self, report: &SegmentReport) -> bool {
        let Some(lane) = self.lanes.get_mut(usize::from(report.echo_class.0)) else {
            return false;
        };
        let newer = lane
            .newest
            .is_none_or(|newest| is_later(report.echo, newest));
        if newer {
            lane.newest = Some(report.echo);
        }
        newer
    }

    /// The receiver asks for what it lacks; of that, everything sent before the packet that it
    /// echoes is lost, unless it may wait behind that one's class.
    fn repair_missing(&mut self, at: usize, packet: &ReportPacket<'_>, policy: &Policy) {
        let sending = &mut self.messages[at];
        sending.on_chosen();
        let (report, segments) = (&packet.report, sending.segments());
        let missing = report.missing(packet.bitmap, segments);
        for segment in missing.iter_ones() {
            let waits = sending.tags.class_and_ecn(policy, segment).0 > report.echo_class;
            if waits || is_later(sending.sent_at(segment), report.echo) {
                continue;
            }
            self.in_flight -= sending.land(segment);
            sending.queue_repair(segment);
        }
    }

    /// Finds segments that are lost because clearly later packets have arrived, of their own class
    /// or a lower one, which no queue lets overtake them.
    ///
    /// What is repaired anyway is found after a round trip with its deviation; a mistake costs a
    /// duplicate. What the receiver would do without is found after the job's gap at least, since a
    /// mistake would lose what only was late.
    fn find_lost(&mut self, now: Instant, rtt: &Rtt, gap: Span) -> u32 {
        let micros = |span: Span| span.as_micros() as u32;
        let sooner = micros(rtt.reordering(gap));
        let waits = [sooner, sooner.max(micros(gap))];
        let later = |a: u32, b: u32| if is_later(a, b) { a } else { b };
        let (mut lost, mut newest) = (0, None);
        for lane in (0..self.lanes.len()).rev() {
            let of_lane = self.lanes[lane].newest;
            newest = of_lane.into_iter().chain(newest).reduce(later);
            if let Some(newest) = newest.filter(|_| !self.lanes[lane].flights.is_empty()) {
                let horizons = waits.map(|wait| newest.wrapping_sub(wait));
                lost += self.find_lost_before(now, lane, horizons);
            }
        }
        self.counters.found_lost += u64::from(lost);
        lost
    }

    /// Finds what of a lane was sent before the first horizon, or the second where it may be
    /// missing.
    fn find_lost_before(&mut self, now: Instant, lane: usize, horizons: [u32; 2]) -> u32 {
        let mut lost = 0;
        while let Some(&flight) = self.lanes[lane].flights.front() {
            let sending = self
                .position(flight.message)
                .map(|at| &mut self.messages[at]);
            let alive = sending.filter(|sending| sending.is_current(&flight));
            if let Some(sending) = alive {
                let horizon = horizons[usize::from(sending.may_miss(flight.segment))];
                if !is_later(horizon, flight.sent_at) {
                    break;
                }
                self.in_flight -= sending.land(flight.segment);
                sending.on_lost(flight.segment);
                sending.probe_at = sending
                    .probe_at
                    .min(sending.next_probe(now, PROBE_WAIT_MAX));
                let probe_at = sending.probe_at;
                self.note_probe(probe_at);
                self.spray.on_loss(flight.entropy);
                lost += 1;
            }
            self.lanes[lane].flights.pop_front();
        }
        lost
    }

    /// Once per message; inlined it would make the loops of every report slower.
    #[inline(never)]
    fn end(&mut self, at: usize, now: Instant) {
        let mut sending = self.messages.remove(at);
        self.in_flight -= sending.land_all();
        self.unscheduled -= sending.release();
        let (key, message) = (sending.key(), sending.id);
        let missing = sending.missing.take().filter(|missing| missing.ones() > 0);
        self.sent.push_back(SentMessage {
            key,
            message,
            missing,
            took: now - sending.begun,
            tags: sending.tags,
        });
    }
}

/// A report as it arrived.
#[derive(Clone, Copy, Debug)]
pub struct ReportPacket<'a> {
    /// Header of its packet.
    pub header: &'a Header,
    /// The report.
    pub report: SegmentReport,
    /// The encoded bitmap after it.
    pub bitmap: &'a [u8],
}

fn close_of(stop: &Header, now: Instant) -> Header {
    let sent_at = now.wire_micros();
    Header {
        kind: PacketKind::Close,
        flags: Flags::NONE,
        class: Class(0),
        length: 0,
        sent_at,
        ..*stop
    }
}

/// Takes what a report shows as arrived; gives the bytes that were in flight, and how many segments
/// are new. A BITMAP may show protected segments as done without, since its receiver does not know
/// which they are: of these it says nothing.
fn acknowledge(sending: &mut SendMessage, packet: &ReportPacket<'_>) -> (u64, u32) {
    let (report, may_be_absent) = (&packet.report, packet.header.kind == PacketKind::Bitmap);
    let prefix = sending.acked.first_zero(0);
    let (mut bytes, mut segments) = (0, 0);
    let mut take = |range: Range<u32>| {
        let (landed, new) = match may_be_absent {
            true => sending.on_shown(range),
            false => sending.on_acked(range),
        };
        bytes += landed;
        segments += new;
    };
    take(prefix..report.cumulative);
    bitmap::decode_runs(packet.bitmap, report.bits, |at, run| {
        let first = report.first.saturating_add(at);
        take(first..first.saturating_add(run));
    });
    (bytes, segments)
}
