//! Messages to one peer: the order of sending, loss, repair and probes.
//!
//! A segment is *waiting* (never sent), *in flight*, *acknowledged*, *queued* for repair, or a
//! *hole* (lost, and not to be repaired). Its message ends when the receiver says STOP.
//!
//! 1. waiting or queued -> in flight: [`Sender::poll_data`] takes a run from the message whose
//!    [turn](SendTurn) comes first, as large as the window has room: queued segments before waiting
//!    ones, waiting ones up to the receiver's grant. The last repairs of a message may leave twice
//!    (`sender/copies.rs`).
//! 2. in flight, queued or hole -> acknowledged: an ACK, BITMAP or STOP shows the segment. A BITMAP
//!    also shows the holes that its receiver has accepted, so that the sender does not repair them.
//!    Since the receiver may have accepted protected ones by mistake, a BITMAP proves nothing about
//!    these.
//! 3. in flight -> lost, by time: a packet that was sent clearly later has arrived, in the same
//!    class or a lower one; or by order: its path has passed it (`sender/loss.rs`); or by TRIMMED:
//!    only its header has arrived (`sender/trimmed.rs`).
//! 4. in flight -> lost, by BITMAP: the BITMAP lacks the segment and echoes a packet that was sent
//!    later, not in a higher class.
//! 5. lost -> queued: the message is lossless, the segment is protected, or a BITMAP has arrived:
//!    with it the receiver has accepted all the holes that it may, and needs the rest.
//! 6. lost -> hole: in all other cases. As soon as there are more holes than the message tolerates,
//!    the most needed of them is queued; some are kept for its end (`sender/repair.rs`). A hole
//!    frees its place in the window, and in the receiver's grant: another segment may leave at
//!    once.
//! 7. Rules 3 and 4 trust only packets of the same class and of lower ones. Strict priority lets
//!    higher classes overtake: a segment that waits in a low class is late, not lost.
//! 8. A PROBE is due when no report has arrived for [`Rtt::probe_wait`], and at once when a message
//!    that tolerates loss has lost more, or is sent completely on paths that are not proven clean.
//!    It is sent in the lowest class that the message has used, so that it waits in queues as long
//!    as the data does. Its body names the holes. Messages that only wait for their receiver ask in
//!    turn (`sender/asking.rs`). On lossy paths PROBEs mark the end of each message, if
//!    that saves time in the mean; on unproven ones that of long messages (`sender/tail.rs`).
//! 9. in flight -> queued: this host did not send the packet (`Sender::take_back`). It never left,
//!    so its absence is not a loss, whatever the message tolerates.
//! 10. STOP ends the message; it names the segments that stay missing. A later message or CLOSE
//!     tells the receiver that it was heard (`sender/closing.rs`). If STOP says LATE, the sender
//!     does not count segments in flight as lost by the path: no report tells which of them have
//!     come since.
//! 11. REFUSE ends the message, too: the receiver will never accept it. A message that its caller
//!     cancels ends at once, and RESET tells the receiver (`sender/cancel.rs`).

mod acked;
mod asking;
mod cancel;
mod closing;
mod copies;
mod counters;
mod flight;
mod forgetting;
mod hearing;
mod history;
mod immediate_ack;
mod lateness;
mod least;
mod loss;
mod message;
mod missing;
mod open;
mod pace;
mod parity;
mod parity_turn;
mod probe;
mod repair;
mod speculating;
mod speculation;
mod stop;
mod tail;
#[cfg(test)]
pub(crate) mod tests;
mod trimmed;
mod unscheduled;
mod worth;

use std::collections::VecDeque;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use self::acked::NewlyAcked;
use self::asking::PeerWatch;
use self::cancel::CancelledMessages;
use self::closing::DueCloses;
pub use self::counters::SenderCounters;
use self::flight::RunDeparture;
use self::hearing::{ReportWord, ReportsHeard};
use self::history::{HoleJudge, PathHistory};
use self::lateness::Lateness;
use self::least::LeastSearch;
use self::loss::{ClassFlights, FoundLost, LateSegments};
use self::message::{RepairCopy, SendMessage, UnscheduledStart};
use self::open::OpenMessages;
use self::pace::SendPace;
use self::parity::LossShare;
use self::tail::TailMark;
use crate::bitmap::{self, Bitmap};
use crate::congestion::{CongestionWindow, Feedback, WindowLimits};
use crate::entropy::Spray;
use crate::footprint::EndpointFootprint;
use crate::machine::{Ecn, SegmentRun, UnsentRun};
use crate::message::SendRequest;
use crate::order::PathNumbers;
use crate::outlook::{ControlOutlook, earlier};
use crate::path::{PathFault, PathWatch};
use crate::priority::{CONTROL, EarlyDrop, SegmentTags, SendTurn};
use crate::rtt::Rtt;
use crate::settings::EndpointSettings;
use crate::units::{
    ByteCount, Class, Entropy, Instant, MessageId, MessageKey, MessageSerial, Rank, Span, Stamp,
};
use crate::wire::{HEADER_BYTES, Header, PacketKind, PathMark, SegmentReport};

/// No sample of a round trip contains a longer wait: over a wait of this length, two clocks that
/// drift apart by 100 parts per million differ by about a microsecond.
const HELD_SAMPLED: Span = Span::from_millis(10);

/// A message that has ended at its sender.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SentMessage {
    /// Its key.
    pub key: MessageKey,
    /// Its number.
    pub message: MessageId,
    /// The segments that the receiver accepted as holes, if any.
    pub missing: Option<Bitmap>,
    /// Layers, magnitudes and protection of its segments.
    pub tags: SegmentTags,
    /// From [`Sender::send`] until the receiver's STOP.
    pub took: Span,
    /// Its length in bytes.
    pub bytes: u32,
    /// When its first packet left; of a message that sent none, when it was given to the sender.
    pub first: Instant,
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
    /// The header fields that the packets have in common.
    pub template: Header,
    /// ECN bits.
    pub ecn: Ecn,
    /// When their message is to be probed.
    pub probe_at: Instant,
}

/// All messages to one peer.
#[derive(Debug, Deserialize, Serialize)]
pub struct Sender {
    messages: OpenMessages,
    /// By class: queues keep the packets of one class in order, and let others overtake them.
    classes: Vec<ClassFlights>,
    /// When the peer last sent a report, about any message.
    heard: Instant,
    /// Bytes of all messages, headers included.
    in_flight: u64,
    /// Bytes of the unscheduled starts of messages that the peer may not have heard of. Where it
    /// grants none, those beyond the usual start of messages that it may not have posted.
    unscheduled: u64,
    window: CongestionWindow,
    search: LeastSearch,
    path: PathWatch,
    /// Faults of the path that the caller has not taken.
    faults: Vec<PathFault>,
    spray: Spray,
    numbers: PathNumbers,
    pace: SendPace,
    history: PathHistory,
    /// Marks after messages that are to be sent.
    marks_due: VecDeque<TailMark>,
    late: LateSegments,
    early_drop: EarlyDrop,
    /// Ranks of the job: all may wait for one message.
    ranks: u16,
    reports: ReportsHeard,
    losses: LossShare,
    /// Messages that were sent and whose parity waits until there is nothing else to send.
    parity_due: VecDeque<MessageId>,
    /// The last repairs of a message, which leave once more.
    copy_due: Option<Box<RepairCopy>>,
    next: MessageSerial,
    /// No later than the next probe of any message that has one due.
    probe_due: Option<Instant>,
    watch: PeerWatch,
    closes: DueCloses,
    cancelled: CancelledMessages,
    sent: VecDeque<SentMessage>,
    /// Messages that the receiver has refused, until the caller takes them.
    refused: Vec<MessageKey>,
    /// Messages that make no progress, until the caller takes them.
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
            queues: settings.queues,
        };
        Self {
            messages: OpenMessages::default(),
            classes: vec![ClassFlights::default(); settings.policy.dscps.len()],
            heard: Instant::START,
            in_flight: 0,
            unscheduled: 0,
            window: CongestionWindow::new(limits),
            search: LeastSearch::default(),
            path: PathWatch::new(limits.packet, settings.peer_timeout),
            faults: Vec::new(),
            spray: Spray::new(settings.entropies, seed ^ u64::from(peer.0)),
            numbers: PathNumbers::new(settings),
            pace: SendPace::default(),
            history: PathHistory::new(settings.limits.clean_packets),
            marks_due: VecDeque::new(),
            late: LateSegments::default(),
            early_drop: settings.policy.early_drop,
            ranks: settings.identity.world_size,
            reports: ReportsHeard::new(settings.first_number),
            losses: LossShare::default(),
            parity_due: VecDeque::new(),
            copy_due: None,
            next: MessageSerial::first(settings.first_message),
            probe_due: None,
            watch: PeerWatch::default(),
            closes: DueCloses::default(),
            cancelled: CancelledMessages::default(),
            sent: VecDeque::new(),
            refused: Vec::new(),
            still: Vec::new(),
            counters: SenderCounters::default(),
        }
    }

    /// Takes a message to send.
    pub fn send(&mut self, now: Instant, request: SendRequest, settings: &EndpointSettings) {
        let start = self.unscheduled_start(request.bytes, settings);
        self.open(now, request, settings, start);
    }

    fn open(
        &mut self,
        now: Instant,
        request: SendRequest,
        settings: &EndpointSettings,
        start: UnscheduledStart,
    ) {
        let serial = self.take_serial();
        let mut sending = SendMessage::new(serial, request, settings, start, now);
        sending.progress.reported = self.reports.next();
        if sending.is_told() {
            self.note_probe(now);
        }
        self.messages.push(sending);
    }

    /// The number of the next message. An id that a message still has after all others were used is
    /// left out.
    fn take_serial(&mut self) -> MessageSerial {
        let mut serial = self.next;
        let oldest = self.messages.oldest().unwrap_or(serial);
        let has_wrapped = serial.0 - oldest.0 >= 1 << 32;
        if has_wrapped || !self.cancelled.is_empty() {
            let is_used = |id| self.position(id).is_some() || self.cancelled.has(id);
            while is_used(serial.id()) {
                serial.0 += 1;
            }
        }
        self.next = MessageSerial(serial.0 + 1);
        serial
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

    /// Its counts so far.
    pub fn counters(&self) -> &SenderCounters {
        &self.counters
    }

    /// Adds what it keeps.
    pub(crate) fn add_footprint(&self, sum: &mut EndpointFootprint) {
        sum.outgoing += self.messages.len();
        sum.cancelled += self.cancelled.len();
        sum.flights += self
            .classes
            .iter()
            .map(ClassFlights::packets)
            .sum::<usize>();
    }

    /// Adds the counts of the sender that it replaces.
    pub(crate) fn add_counters(&mut self, before: &SenderCounters) {
        self.counters += *before;
    }

    /// Whether [`Sender::take_sent`], [`Sender::take_refused`] or [`Sender::take_still`] have
    /// something to return.
    pub fn has_news(&self) -> bool {
        let ended = !self.sent.is_empty() || !self.refused.is_empty();
        ended || !self.still.is_empty() || !self.faults.is_empty()
    }

    /// A fault of the path that has shown since the last call.
    pub fn take_fault(&mut self) -> Option<PathFault> {
        self.faults.pop()
    }

    /// A message that makes no progress: all that its receiver accepts so far was sent and arrived
    /// a while ago, and the message is not complete. Each message is given once.
    pub fn take_still(&mut self) -> Option<MessageKey> {
        self.still.pop()
    }

    /// A message that has ended since the last call.
    pub fn take_sent(&mut self) -> Option<SentMessage> {
        self.sent.pop_front()
    }

    /// The path for the next control packet that has no number.
    pub fn take_entropy(&mut self) -> Entropy {
        self.spray.take_any()
    }

    /// The tags of a message that has not ended.
    pub fn tags(&self, message: MessageId) -> Option<&SegmentTags> {
        self.position(message).map(|at| &self.messages[at].tags)
    }

    fn position(&self, message: MessageId) -> Option<usize> {
        self.messages.find(self.next, message)
    }

    /// The next control packet: CLOSE for ended messages, RESET for one that is cancelled, PROBE
    /// for one that is in doubt. Its body is written into `body`.
    pub fn poll_control(
        &mut self,
        now: Instant,
        rtt: &Rtt,
        settings: &EndpointSettings,
        body: &mut Vec<u8>,
    ) -> Option<Header> {
        body.clear();
        let open = self.messages.oldest().unwrap_or(self.next);
        if let Some(close) = self.closes.poll(now, open) {
            return Some(close);
        }
        if !self.cancelled.is_empty() {
            let reset = self.cancelled.poll(now, rtt.probe_wait(settings.gap));
            if reset.is_some() {
                return reset;
            }
        }
        if self.trickle_due().is_some_and(|at| at <= now) {
            self.path.end_wait();
        }
        let queued = self.poll_queued(now, settings, body);
        queued.or_else(|| self.poll_probe(now, rtt, settings, body))
    }

    /// When a sender that has fallen back may send although no answer ends its wait: its peer has
    /// heard of none of its messages, so no PROBE asks for an answer.
    fn trickle_due(&self) -> Option<Instant> {
        let until = self.path.waits_until()?;
        let asks = self.messages.iter().any(|(_, sending)| sending.is_told());
        (!asks && self.is_busy()).then_some(until)
    }

    /// When the sender has a control packet to send, as far as that is known.
    pub fn outlook(&self, now: Instant) -> ControlOutlook {
        let mut due = earlier(self.next_probe(), self.trickle_due());
        due = earlier(due, self.closes.due());
        if !self.cancelled.is_empty() {
            due = earlier(due, self.cancelled.due());
        }
        let is_due = due.is_some_and(|at| at <= now);
        ControlOutlook {
            talks: is_due || !self.marks_due.is_empty(),
            due: if is_due { None } else { due },
        }
    }

    /// Whether the window has room for a run, and there is a message to send.
    pub fn has_room(&self, settings: &EndpointSettings) -> bool {
        let packet = full_packet(settings);
        !self.messages.is_empty() && self.room(packet) >= self.least_run(packet, settings)
    }

    /// The turn of the segment that would be sent next, if the window allowed it.
    pub(crate) fn next_turn(&mut self) -> Option<SendTurn> {
        if let Some(turn) = self.copy_turn() {
            return Some(turn);
        }
        let turn = self.messages.first_turn().map(|(turn, _)| turn);
        turn.or_else(|| self.parity_turn())
    }

    /// Takes the next run of segments that the window allows into `run`. It is a run of the message
    /// whose turn comes first; of equal turns, of the oldest message.
    pub fn poll_data(
        &mut self,
        now: Instant,
        rtt: &Rtt,
        settings: &EndpointSettings,
        run: &mut SegmentRun,
    ) -> Option<Burst> {
        let packet = full_packet(settings);
        if self.in_flight == 0 {
            self.window.on_restart(now, rtt, settings.gap);
        }
        let room = self.room(packet);
        if room < self.least_run(packet, settings) {
            self.copy_due = None;
            return None;
        }
        if let Some(copy) = self.poll_copy(now, settings, run) {
            return Some(copy);
        }
        let Some((_, at)) = self.messages.first_turn() else {
            return self.poll_parity(now, settings, run);
        };
        let most = room.min(self.longest_run(at, settings)) as usize;
        self.cover(at, most as u32, rtt, settings);
        self.begin(now, at);
        let sending = &mut self.messages[at];
        let taken = sending.take_run(most, settings, run);
        let (class, segments) = (taken.class, run.len() as u64);
        let stamp = now.stamp();
        let entropy = self.spray.take(stamp, segments as u32);
        let first = self.numbers.take(class, entropy, segments as u32);
        let template = Header {
            class,
            entropy,
            number: first.number,
            ..sending.template(now)
        };
        let repairs = run.repairs() as u64;
        self.counters.repaired_segments += repairs;
        self.counters.sent_segments += segments - repairs;
        let flights = &mut self.classes[usize::from(class.0)].flights;
        let departure = RunDeparture { at: stamp, first };
        let stage = sending.probe.stage;
        self.in_flight += sending.on_sent(run, departure, flights);
        self.spray.on_sent(entropy, stamp, segments as u32);
        self.losses.on_sent(segments);
        self.history.on_sent(segments);
        (self.pace).on_run(now, rtt.smoothed(), self.messages[at].id(), run);
        self.keep_stage(at, stage, run, (rtt, settings.gap));
        self.defer_marks(now, at, (rtt, settings.gap));
        self.copy_last_repairs(at, run, taken, (rtt, settings.gap));
        let sending = &mut self.messages[at];
        if sending.takes_parity(run) {
            self.parity_due.push_back(sending.id());
        }
        let probe_at = self.schedule_probe(now, at, (rtt, settings.gap));
        self.path.on_sent(now);
        debug_assert!(
            self.in_flight <= self.window.bytes().get().max(packet),
            "window kept"
        );
        let flags = self.ack_flags(settings);
        Some(Burst {
            template: Header { flags, ..template },
            ecn: taken.ecn,
            probe_at,
        })
    }

    /// A packet of the message at this place leaves. From the first one on its packets say which
    /// earlier messages had ended then: the receiver heeds the packet that opens the message.
    fn begin(&mut self, now: Instant, at: usize) {
        if self.messages[at].first_sent.is_some() {
            return;
        }
        let oldest = self.messages.oldest();
        let sending = &mut self.messages[at];
        sending.on_begun(now);
        let open = oldest.unwrap_or(sending.serial);
        if sending.say_ended(open) {
            self.closes.drop_before(open);
        }
    }

    /// Sends CLOSE at once (rule 4 of `sender/closing.rs`).
    pub(crate) fn close_again(&mut self, now: Instant, packet: &Header) {
        let serial = self.next.nearest(packet.message);
        self.closes.again(now, serial, packet);
    }

    /// Takes back segments that this host did not send: they are not in flight, and are sent again
    /// although nothing says that they are lost.
    pub(crate) fn take_back(&mut self, unsent: &UnsentRun) {
        let Some(at) = self.position(unsent.template.message) else {
            return;
        };
        let template = &unsent.template;
        let first = PathMark {
            class: template.class,
            entropy: template.entropy,
            number: template.number.plus(unsent.first() as u32),
        };
        let packets = unsent.packets() as u32;
        self.numbers.give_back(first, packets);
        self.spray.on_gone(template.entropy, packets);
        let sending = &mut self.messages[at];
        for segment in unsent.segments() {
            self.in_flight -= sending.land(segment);
            sending.queue_unsent(segment);
        }
    }

    /// Bytes that may be in flight by now.
    fn limit(&self) -> u64 {
        match self.search {
            LeastSearch::Off => self.window.bytes().get(),
            LeastSearch::Draining | LeastSearch::Light(_) => self.window.least(),
        }
    }

    /// How many packets of this length the window has room for.
    fn room(&self, packet: u64) -> u64 {
        let limit = self.path.limit(ByteCount::new(self.limit()));
        limit.get().saturating_sub(self.in_flight) / packet
    }

    /// The maximum number of packets of a run.
    fn run_packets(&self, settings: &EndpointSettings) -> u64 {
        self.window.run_packets().min(settings.run_segments as u64)
    }

    /// The minimum room, in packets, for which a run is sent. A window that opens packet by packet
    /// would make runs of one packet, so the sender waits until half a run fits, unless so little
    /// is in flight that no acknowledgement would open the window.
    fn least_run(&self, packet: u64, settings: &EndpointSettings) -> u64 {
        let run = self.run_packets(settings);
        let waited_for = self.window.room_waited_for().min(self.limit() / packet / 2);
        match self.in_flight {
            0 => 1,
            _ => (run / 2).min(waited_for).max(1),
        }
    }

    /// Processes an ACK, BITMAP or STOP.
    pub fn handle_report(
        &mut self,
        now: Instant,
        packet: &ReportPacket<'_>,
        rtt: &mut Rtt,
        settings: &EndpointSettings,
    ) {
        if self.take_report(now, packet, rtt, settings) {
            self.ask_for_grants(now);
        }
        self.on_heard(now);
    }

    /// Hears a report; returns the stamp of the packet that it echoes, and whether it shows that an
    /// earlier report is lost. No report is later than `most`.
    fn hear(&mut self, now: Instant, packet: &ReportPacket<'_>, most: Span) -> (Stamp, bool) {
        let report = &packet.report;
        let echo = echo_of(report, now);
        let word = ReportWord {
            number: packet.header.number,
            echo: (report.echo_class, echo),
            passed: report.passed_paths(packet.bitmap).collect(),
            repeats: report.repeats,
        };
        let is_report_lost = self.reports.on_report(now, word, most);
        (echo, is_report_lost)
    }

    /// Processes a report; returns whether it shows that an earlier one is lost.
    fn take_report(
        &mut self,
        now: Instant,
        packet: &ReportPacket<'_>,
        rtt: &mut Rtt,
        settings: &EndpointSettings,
    ) -> bool {
        let header = packet.header;
        let (echo, is_report_lost) = self.hear(now, packet, Lateness::most(rtt, settings.gap));
        self.history.judge = HoleJudge::of(&packet.report);
        let Some(at) = self.position(header.message) else {
            self.take_late_report(now, packet, rtt);
            return is_report_lost;
        };
        let report = &packet.report;
        // Only the newest echo of its class is a sample.
        let is_newest = self.on_echo(report.echo_class, echo);
        if is_newest {
            self.take_round_trip(now, report, rtt);
        }
        self.release_start(at, report.granted, settings);
        let sending = &mut self.messages[at];
        let progress = &mut sending.progress;
        let is_granted = report.granted > progress.granted;
        progress.granted = progress.granted.max(report.granted);
        progress.reported = progress.reported.newest(header.number);
        // Marks are counted since the message began, so that a lost report loses none.
        let marks = report.ce.saturating_sub(progress.marks);
        progress.marks += marks;
        let hidden = sending.parity.hidden_losses(report.restored);
        let in_flight = ByteCount::new(self.in_flight);
        self.spray.on_marks(report.ce_entropies);
        let acked = acknowledge(sending, packet);
        sending.spend_grants();
        self.in_flight -= acked.bytes + sending.parity.land(echo);
        self.note_arrivals(now, at, rtt);
        self.land_late(at, header);
        self.learn_lateness(at, Lateness::most(rtt, settings.gap));
        self.counters.marks += u64::from(marks);
        if !self.window.ignores_marks() {
            self.history.on_marks(marks);
        }
        if header.kind == PacketKind::Bitmap {
            self.repair_missing(now, at, packet, &settings.policy);
        }
        let mut lost = self.take_words(now);
        lost.add(self.find_lost(now, rtt, settings.gap));
        lost.add(FoundLost::hidden(hidden, echo));
        let feedback = acked.feedback(marks, in_flight);
        self.take_feedback(now, feedback, lost, rtt);
        if self.messages[at].has_ungranted_repairs() {
            self.wait_for_grant(now, at, rtt, settings);
        }
        let is_progress = acked.segments > 0 || is_granted || header.kind == PacketKind::Stop;
        let wait = rtt.probe_wait(settings.gap);
        if is_progress {
            self.watch.hasten(now, wait);
        }
        self.mark_awaited(at, report.awaited, echo);
        if is_newest || acked.segments > 0 || self.messages[at].is_answered(echo) {
            self.on_answer(now, at, echo, (rtt, settings.gap));
        }
        let sending = &mut self.messages[at];
        if header.kind == PacketKind::Stop && sending.on_stop(report, packet.bitmap) {
            let serial = sending.serial;
            self.closes.on_ended(now, serial, header, settings.gap);
            self.end(at, now);
        }
        is_report_lost
    }

    /// Takes the sample of a report that echoes the newest packet, if it is one.
    fn take_round_trip(&mut self, now: Instant, report: &SegmentReport, rtt: &mut Rtt) {
        let echo = echo_of(report, now);
        let Some(sample) = round_trip(report, echo, now) else {
            return;
        };
        rtt.sample(sample);
        if rtt.doubts_least(now, self.window.delay_target(rtt)) {
            self.search.begin();
        }
        let excess = self.in_flight.saturating_sub(self.window.least());
        if self.search.ends_with(now, echo, ByteCount::new(excess)) {
            rtt.renew_least(now, sample);
            self.window.on_new_path();
        }
    }

    /// Processes the report of a message that has ended: the receiver may not know yet that it has.
    /// The report may show losses of other messages.
    fn take_late_report(&mut self, now: Instant, packet: &ReportPacket<'_>, rtt: &Rtt) {
        let header = packet.header;
        if header.kind == PacketKind::Stop {
            self.close_again(now, header);
            self.cancelled.on_answer(header.message);
        }
        let news = Feedback {
            in_flight: ByteCount::new(self.in_flight),
            ..Feedback::default()
        };
        let lost = self.take_words(now);
        if lost.all > 0 {
            self.take_feedback(now, news, lost, rtt);
        }
    }

    /// Passes the acknowledgements of a report, and the losses that it shows, to the window and to
    /// the watch over the path.
    fn take_feedback(&mut self, now: Instant, news: Feedback, lost: FoundLost, rtt: &Rtt) {
        let feedback = Feedback {
            lost: lost.all,
            lost_needed: lost.needed,
            lost_sent_at: lost.sent_at,
            restored: lost.restored,
            restored_before: lost.restored_before,
            ..news
        };
        let ignored = self.window.ignores_marks();
        let blames_queue = self.window.on_feedback(now, feedback, rtt);
        match blames_queue {
            true => self.losses.on_dropped(lost.all),
            false => self.losses.on_lost(lost.all),
        }
        if self.window.ignores_marks() && !ignored {
            self.counters.false_marks += 1;
            self.faults.push(PathFault::MarksEverything);
        }
        if let Some(fault) = self.path.on_feedback(now, &feedback) {
            self.counters.path_failures += 1;
            self.faults.push(fault);
        }
    }
}

/// A report as it arrived.
#[derive(Clone, Copy, Debug)]
pub struct ReportPacket<'a> {
    /// Header of its packet.
    pub header: &'a Header,
    /// The report.
    pub report: SegmentReport,
    /// The encoded bitmap after it, and the paths that it names.
    pub bitmap: &'a [u8],
}

/// Bytes of a packet with a full segment.
fn full_packet(settings: &EndpointSettings) -> u64 {
    u64::from(settings.segment_bytes) + HEADER_BYTES as u64
}

/// The stamp of the packet that a report echoes: the latest one that its receiver can have held for
/// as long as it says, by a clock that may run a thousandth faster.
fn echo_of(report: &SegmentReport, now: Instant) -> Stamp {
    let held = Span::from_micros(u64::from(report.held));
    let surely_held = held.beyond(held.divided(1000));
    Stamp::from_wire(report.echo, now.stamp().before(surely_held))
}

/// Time from the echoed packet's sending until now, less the time that its receiver held it; `None`
/// when that was long, since it was measured by another clock.
fn round_trip(report: &SegmentReport, echo: Stamp, now: Instant) -> Option<Span> {
    let held = Span::from_micros(u64::from(report.held));
    let round_trip = now.stamp().since(echo).beyond(held);
    (held < HELD_SAMPLED).then(|| round_trip.max(Span::from_micros(1)))
}

/// Processes the segments that a report shows as arrived.
fn acknowledge(sending: &mut SendMessage, packet: &ReportPacket<'_>) -> NewlyAcked {
    let (report, may_be_absent) = (&packet.report, packet.header.kind == PacketKind::Bitmap);
    let prefix = sending.progress.acked.first_zero(0);
    let mut acked = NewlyAcked::default();
    let mut take = |range: Range<u32>| {
        acked.add(match may_be_absent {
            true => sending.on_shown(range),
            false => sending.on_acked(range),
        });
    };
    take(prefix..report.cumulative);
    bitmap::decode_runs(packet.bitmap, report.bits, |at, run| {
        let first = report.first.saturating_add(at);
        take(first..first.saturating_add(run));
    });
    acked
}
