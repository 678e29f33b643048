//! Tests of a sender without a network: its packets are answered by hand.

use std::iter;

use super::history::{HoleJudge, PathHistory, PathRecord};
use super::{ReportPacket, Sender};
use crate::bitmap::Bitmap;
use crate::job::{Job, SendWindow, ToleranceUse};
use crate::machine::SegmentRun;
use crate::message::SendRequest;
use crate::parity::ParityRule;
use crate::priority::{MessageShape, UrgencyUnit};
use crate::rtt::Rtt;
use crate::settings::{EndpointSettings, Identity};
use crate::units::{
    ByteCount, Entropy, Instant, JobId, Layer, MessageKey, Rank, Share, Signature, Span, Step,
};
use crate::wire::{EndedEarlier, Flags, Header, PacketKind, PathMark, ProbeBody, SegmentReport};

const SEGMENTS: u32 = 4;

pub(crate) fn settings() -> EndpointSettings {
    let mut job = Job::default();
    job.transport.window = SendWindow::Bytes(ByteCount::mib(64));
    job.transport.initial_window = ByteCount::kib(64);
    let identity = Identity {
        rank: Rank(0),
        world_size: 2,
        job: JobId(1),
        epoch: 0,
    };
    EndpointSettings::new(identity, &job)
}

/// A lossless message of full segments.
pub(crate) fn request(settings: &EndpointSettings, segments: u32) -> SendRequest {
    let shape = MessageShape {
        segments,
        layer_count: 0,
    };
    SendRequest {
        key: MessageKey::new(0, 1, 0),
        signature: Signature::NONE,
        step: Step(1),
        bytes: segments * settings.segment_bytes,
        tolerance: Share::NONE,
        contributors: 1,
        tags: settings.policy.lossless(shape, &[(0, Layer(0))]),
    }
}

fn begin(sender: &mut Sender, sequence: u32, settings: &EndpointSettings) {
    begin_of(sender, sequence, settings, ([0, 0], 0));
}

/// Begins a message with segments of one layer, of an operation with another one at its front, and
/// of a model with this many.
fn begin_of(
    sender: &mut Sender,
    sequence: u32,
    settings: &EndpointSettings,
    (layers, layer_count): ([u16; 2], u16),
) {
    let [own, front] = layers.map(Layer);
    let shape = MessageShape {
        segments: SEGMENTS,
        layer_count,
    };
    let tags = settings.policy.lossless(shape, &[(0, own)]);
    let urgency = (settings.policy).urgency([front], layer_count, UrgencyUnit::Layer);
    let request = SendRequest {
        key: MessageKey::new(0, sequence, 0),
        tags: tags.with_urgency(urgency),
        ..request(settings, SEGMENTS)
    };
    sender.send(Instant::START, request, settings);
}

/// The STOP of a message that has arrived, or the ACK of its first segments.
fn report_of(packet: &Header, cumulative: u32) -> (Header, SegmentReport) {
    let kind = match cumulative {
        SEGMENTS => PacketKind::Stop,
        _ => PacketKind::Ack,
    };
    let report = SegmentReport {
        echo: packet.sent_at,
        echo_class: packet.class,
        cumulative,
        granted: SEGMENTS,
        first: cumulative,
        ..SegmentReport::default()
    };
    (Header { kind, ..*packet }, report)
}

/// Sends this many messages and acknowledges each packet; tells how many turns were asked for,
/// and how many packets there were.
fn asked(count: u32) -> (u64, u64) {
    let settings = settings();
    let mut sender = Sender::new(Rank(1), &settings, 1);
    (1..=count).for_each(|sequence| begin(&mut sender, sequence, &settings));
    let (mut rtt, mut run) = (Rtt::new(settings.gap), SegmentRun::default());
    let (mut now, mut packets) = (Instant::START, 0);
    while sender.is_busy() {
        now = now + Span::from_micros(10);
        let burst = sender.poll_data(now, &rtt, &settings, &mut run);
        let header = burst.expect("all that was sent has arrived").template;
        packets += run.len() as u64;
        let (header, report) = report_of(&header, run.last().map_or(0, |last| last + 1));
        let packet = ReportPacket {
            header: &header,
            report,
            bitmap: &[],
        };
        now = now + Span::from_micros(10);
        sender.handle_report(now, &packet, &mut rtt, &settings);
    }
    (sender.messages.asked, packets)
}

#[test]
fn a_run_asks_few_of_many_messages() {
    let (asked, packets) = asked(2_000);
    assert_eq!(packets, 2_000 * u64::from(SEGMENTS));
    assert!(asked <= 3 * packets, "{asked} turns for {packets} packets");
}

#[test]
fn packets_that_fill_a_small_window_ask_for_an_ack_at_once() {
    for (largest, asks) in [(ByteCount::mib(64), true), (ByteCount::kib(64), false)] {
        let mut job = Job::default();
        job.transport.window = SendWindow::Bytes(largest);
        job.transport.initial_window = ByteCount::kib(64);
        let settings = EndpointSettings::new(settings().identity, &job);
        let (mut rtt, mut run) = (Rtt::new(settings.gap), SegmentRun::default());
        let mut sender = Sender::new(Rank(1), &settings, 1);
        sender.send(Instant::START, request(&settings, 150), &settings);
        let first = sender.poll_data(Instant::START, &rtt, &settings, &mut run);
        let first = first.expect("the window has room").template;
        assert_eq!(first.flags, Flags::NONE, "no signal has come yet");
        let arrived = run.len() as u32;
        let (header, mut report) = report_of(&first, arrived);
        (report.ce, report.granted) = (arrived, 150);
        let packet = ReportPacket {
            header: &header,
            report,
            bitmap: &[],
        };
        let now = Instant::START + Span::from_micros(100);
        sender.handle_report(now, &packet, &mut rtt, &settings);
        let bursts = iter::from_fn(|| sender.poll_data(now, &rtt, &settings, &mut run));
        let flags: Vec<Flags> = bursts.map(|burst| burst.template.flags).collect();
        let (last, others) = flags.split_last().expect("the window has room");
        assert_eq!(last.has(Flags::IMMEDIATE_ACK), asks, "of {largest}");
        assert!(
            others.iter().all(|flags| *flags == Flags::NONE),
            "{flags:?}"
        );
    }
}

#[test]
fn a_first_answer_is_asked_for_after_the_time_of_others() {
    let (settings, rtt) = (settings(), Rtt::new(settings().gap));
    let at = |micros| Instant::START + Span::from_micros(micros);
    let mut sender = Sender::new(Rank(1), &settings, 1);
    begin(&mut sender, 1, &settings);
    assert_eq!(sender.next_probe(), None, "it waits for nothing yet");
    let mut run = SegmentRun::default();
    let sent = sender.poll_data(at(70), &rtt, &settings, &mut run);
    assert_eq!(sent.expect("it has room").probe_at, at(370));
    sender.ask_within(Span::from_micros(50));
    assert_eq!(sender.next_probe(), Some(at(120)), "since it left");
    sender.ask_within(Span::from_micros(80));
    assert_eq!(sender.next_probe(), Some(at(120)), "no later");
}

/// Where segments are granted, only one message to a peer has an unscheduled start.
#[test]
fn a_message_that_begins_with_probe_says_which_ones_have_ended() {
    let mut settings = settings();
    settings.grant_segments = Some(64);
    settings.unscheduled = ByteCount::new(u64::from(settings.segment_bytes));
    let (rtt, now) = (Rtt::new(settings.gap), Instant::START);
    let mut sender = Sender::new(Rank(1), &settings, 1);
    (1..3).for_each(|sequence| begin(&mut sender, sequence, &settings));
    let probe = sender.poll_control(now, &rtt, &settings, &mut Vec::new());
    let probe = probe.expect("it has to be announced");
    assert_eq!((probe.kind, probe.message.0), (PacketKind::Probe, 2));
    assert_ne!(probe.ended, EndedEarlier::NOT_SAID);
}

/// A sender, and the time.
struct Clocked {
    sender: Sender,
    rtt: Rtt,
    now: Instant,
    /// How many reports it has heard.
    reports: u32,
}

impl Clocked {
    /// Sends a message.
    fn send(&mut self, sequence: u32) -> Header {
        let (settings, mut run) = (settings(), SegmentRun::default());
        begin(&mut self.sender, sequence, &settings);
        let sent = (self.sender).poll_data(self.now, &self.rtt, &settings, &mut run);
        sent.expect("the window has room").template
    }

    /// Takes the report that such a message has arrived, after this many microseconds.
    fn hear(&mut self, sent: &Header, micros: u64) {
        self.hear_part(sent, SEGMENTS, micros);
    }

    /// The same of the first segments of a message.
    fn hear_part(&mut self, sent: &Header, segments: u32, micros: u64) {
        self.now = self.now + Span::from_micros(micros);
        let (mut header, report) = report_of(sent, segments);
        header.number = settings().first_number.plus(self.reports);
        self.reports += 1;
        let packet = ReportPacket {
            header: &header,
            report,
            bitmap: &[],
        };
        (self.sender).handle_report(self.now, &packet, &mut self.rtt, &settings());
    }
}

/// Sends a message that its receiver ends without any segment, by a STOP with these flags that says
/// that the path has passed all packets; tells how many count as lost, and how many stay missing.
fn lost_by_stop(flags: Flags) -> (u64, u32) {
    let (settings, now) = (settings(), Instant::START + Span::from_millis(1));
    let mut clocked = Clocked {
        sender: Sender::new(Rank(1), &settings, 1),
        rtt: Rtt::new(settings.gap),
        now,
        reports: 0,
    };
    let sent = clocked.send(0);
    let passed = PathMark {
        class: sent.class,
        entropy: sent.entropy,
        number: sent.number.plus(SEGMENTS),
    };
    let mut bitmap = Vec::new();
    let bits = Bitmap::new(SEGMENTS).encode(0, 64, &mut bitmap);
    bitmap.extend(passed.encoded());
    let header = Header {
        kind: PacketKind::Stop,
        flags,
        number: settings.first_number,
        ..sent
    };
    let packet = ReportPacket {
        header: &header,
        report: SegmentReport {
            bits,
            passed: 1,
            ..report_of(&sent, 0).1
        },
        bitmap: &bitmap,
    };
    let later = now + Span::from_micros(20);
    (clocked.sender).handle_report(later, &packet, &mut clocked.rtt, &settings);
    let ended = clocked.sender.take_sent().expect("STOP names all segments");
    let missing = ended.missing.map_or(0, |missing| missing.ones());
    (clocked.sender.counters.found_lost, missing)
}

#[test]
fn segments_that_were_given_up_are_not_lost() {
    assert_eq!(lost_by_stop(Flags::NONE), (SEGMENTS.into(), SEGMENTS));
    assert_eq!(lost_by_stop(Flags::LATE), (0, SEGMENTS));
}

/// As on the paths of a fabric whose queues differ: every other message is overtaken by one
/// that is sent 300 us later, on a path with a round trip of 20 us.
#[test]
fn segments_that_were_late_make_others_wait() {
    let settings = settings();
    let mut clocked = Clocked {
        sender: Sender::new(Rank(1), &settings, 1),
        rtt: Rtt::new(settings.gap),
        now: Instant::START + Span::from_millis(1),
        reports: 0,
    };
    for sequence in 0..20 {
        let sent = clocked.send(sequence);
        clocked.hear(&sent, 20);
    }
    for pair in 10..13 {
        let late = clocked.send(2 * pair);
        clocked.now = clocked.now + Span::from_micros(300);
        let next = clocked.send(2 * pair + 1);
        clocked.hear(&next, 20);
        // Its segments have not been sent again when they arrive.
        clocked.hear(&late, 20);
    }
    assert_eq!(clocked.sender.counters.found_lost, u64::from(SEGMENTS));
}

/// Reports that are read from several sockets overtake each other. Here the one that is overtaken
/// tells that the rest of a message has arrived, the other one about packets sent 20 ms later.
#[test]
fn a_report_that_overtakes_another_shows_no_loss() {
    let mut clocked = Clocked {
        sender: Sender::new(Rank(1), &settings(), 1),
        rtt: Rtt::new(settings().gap),
        now: Instant::START + Span::from_millis(1),
        reports: 0,
    };
    for pair in 0..20 {
        let first = clocked.send(2 * pair);
        clocked.hear_part(&first, 1, 20);
        clocked.now = clocked.now + Span::from_millis(20);
        let second = clocked.send(2 * pair + 1);
        let overtaken = clocked.reports;
        clocked.reports = overtaken + 1;
        clocked.hear(&second, 20);
        clocked.reports = overtaken;
        clocked.hear(&first, 20);
        clocked.reports = overtaken + 2;
        assert_eq!(clocked.sender.counters.found_lost, 0, "pair {pair}");
    }
}

#[test]
fn an_urgent_operation_goes_first_and_its_messages_in_their_order() {
    let settings = settings();
    let mut sender = Sender::new(Rank(1), &settings, 1);
    // An operation of layers 4 to 9 sends its contributions before its sums; one of layers 1 to 3
    // comes later, and is needed first.
    for (sequence, layers) in (0..).zip([[9, 4], [4, 4], [3, 1], [1, 1]]) {
        begin_of(&mut sender, sequence, &settings, (layers, 10));
    }
    let (rtt, mut run) = (Rtt::new(settings.gap), SegmentRun::default());
    let mut next = || sender.poll_data(Instant::START, &rtt, &settings, &mut run);
    let sent: Vec<MessageKey> = iter::from_fn(|| Some(next()?.template.key)).collect();
    let expected = [2, 3, 0, 1].map(|sequence| MessageKey::new(0, sequence, 0));
    assert_eq!(sent, expected);
}

/// A window that no message of a test fills.
fn with_room() -> EndpointSettings {
    let mut job = Job::default();
    job.transport.window = SendWindow::Bytes(ByteCount::mib(64));
    job.transport.initial_window = ByteCount::mib(64);
    EndpointSettings::new(settings().identity, &job)
}

/// A message of full segments that may all be missing.
pub(super) fn tolerant_request(settings: &EndpointSettings, segments: u32) -> SendRequest {
    let shape = MessageShape {
        segments,
        layer_count: 0,
    };
    SendRequest {
        tolerance: Share::ALL,
        tags: (settings.policy).lossy(shape, &[(0, Layer(0))], Vec::new()),
        ..request(settings, segments)
    }
}

/// The PROBEs that follow the last packet of such a message at once, with the lengths of their
/// bodies, on paths that have lost none before; each run but the last `left` ones was acknowledged
/// at once. Then those that follow without an answer, when they are due.
fn probes_behind(
    request: SendRequest,
    left: usize,
    (clean_packets, judge): (u64, HoleJudge),
) -> [Vec<(Header, usize)>; 2] {
    let settings = with_room();
    let segments = request.bytes / settings.segment_bytes;
    let mut sender = Sender::new(Rank(1), &settings, 1);
    sender.history = PathHistory::new(clean_packets);
    let (mut rtt, mut run) = (Rtt::new(settings.gap), SegmentRun::default());
    let mut now = Instant::START;
    sender.send(now, request, &settings);
    let mut sent = 0;
    while sent < segments {
        now = now + Span::from_micros(10);
        let burst = sender.poll_data(now, &rtt, &settings, &mut run);
        let header = burst.expect("the window has room").template;
        sent = run.last().map_or(0, |last| last + 1);
        if (segments - sent) as usize <= (left - 1) * run.len() {
            continue;
        }
        let (header, mut report) = report_of(&header, sent);
        report.keeps_order = judge == HoleJudge::Paths;
        report.granted = segments;
        let packet = ReportPacket {
            header: &Header {
                kind: PacketKind::Ack,
                ..header
            },
            report,
            bitmap: &[],
        };
        now = now + Span::from_micros(10);
        sender.handle_report(now, &packet, &mut rtt, &settings);
    }
    let mut body = Vec::new();
    [now, now + Span::from_millis(10)].map(|now| {
        let next = || {
            let header = sender.poll_control(now, &rtt, &settings, &mut body)?;
            Some((header, body.len()))
        };
        iter::from_fn(next).collect()
    })
}

#[test]
fn the_end_of_a_long_message_is_marked_until_its_paths_are_proven_clean() {
    let probes = |segments, left, paths| {
        let request = request(&settings(), segments);
        probes_behind(request, left, paths)
    };
    let unproven = (10_000, HoleJudge::Paths);
    let [marks, again] = probes(700, 2, unproven);
    let (last, bare) = marks.split_last().expect("marks");
    assert_eq!(bare.len(), 1, "one for each path on which it ends");
    let is_bare = |(header, bytes): &(Header, usize)| {
        let is_said = header.flags.has(Flags::ALL_SENT);
        header.flags.has(Flags::MARKER) && !is_said && *bytes == 0
    };
    assert!(bare.iter().all(is_bare));
    assert!(last.0.flags.has(Flags::ALL_SENT) && !last.0.flags.has(Flags::MARKER));
    let mut paths: Vec<u8> = marks.iter().map(|(header, _)| header.entropy.0).collect();
    paths.sort_unstable();
    paths.dedup();
    assert_eq!(paths.len(), 2);
    assert_eq!(again.len(), 1, "not again");
    assert_eq!(probes(700, 2, (100, HoleJudge::Paths))[0], [], "proven");
    assert_eq!(
        probes(700, 2, (10_000, HoleJudge::Sender))[0],
        [],
        "no order"
    );
    assert_eq!(probes(100, 1, unproven)[0], [], "few packets");
    assert_eq!(probes(150, 3, unproven)[0], [], "many in flight");
}

#[test]
fn the_end_of_a_message_that_may_miss_segments_is_told_until_its_paths_are_proven_clean() {
    let told = |clean_packets| {
        let request = tolerant_request(&settings(), 100);
        let [told, _] = probes_behind(request, 1, (clean_packets, HoleJudge::Sender));
        told.len()
    };
    assert_eq!(told(1_000), 1);
    assert_eq!(told(50), 0, "proven by then");
}

#[test]
fn the_end_is_told_with_the_paths_on_which_packets_are_in_flight() {
    let (settings, mut now) = (with_room(), Instant::START + Span::from_millis(1));
    let ((mut sender, mut rtt), mut run) = (on_lossy_paths(&settings, 8), SegmentRun::default());
    sender.send(now, tolerant_request(&settings, 150), &settings);
    let next = || {
        let burst = sender.poll_data(now, &rtt, &settings, &mut run)?;
        Some((burst.template, run.len() as u32))
    };
    let sent: Vec<(Header, u32)> = iter::from_fn(next).collect();
    let ((last, _), before) = sent.split_last().expect("several runs");
    assert!(before.len() > 1);
    assert!(before.iter().all(|(run, _)| run.entropy != last.entropy));
    // All but the last run have arrived.
    let arrived = before.iter().map(|(_, segments)| segments).sum();
    let (header, report) = report_of(&before[before.len() - 1].0, arrived);
    let packet = ReportPacket {
        header: &Header {
            number: settings.first_number,
            ..header
        },
        report,
        bitmap: &[],
    };
    now = now + Span::from_micros(20);
    sender.handle_report(now, &packet, &mut rtt, &settings);
    let mut body = Vec::new();
    let probe = sender.poll_control(now, &rtt, &settings, &mut body);
    assert!(probe.is_some_and(|probe| probe.flags.has(Flags::ALL_SENT)));
    let ends: Vec<Entropy> = ProbeBody::decode(&body)
        .ends()
        .map(|end| end.entropy)
        .collect();
    assert_eq!(ends, [last.entropy]);
}

#[test]
fn ends_that_a_lone_probe_may_have_overtaken_are_marked_a_quarter_round_trip_later() {
    let (settings, mut now) = (with_room(), Instant::START);
    let (mut rtt, mut run) = (Rtt::new(settings.gap), SegmentRun::default());
    let mut sender = Sender::new(Rank(1), &settings, 1);
    sender.send(now, tolerant_request(&settings, 100), &settings);
    let mut next = || Some(sender.poll_data(now, &rtt, &settings, &mut run)?.template);
    let first = next().expect("the window has room");
    let last = iter::from_fn(next).last().expect("several runs");
    let mut body = Vec::new();
    let mut probe = |sender: &mut Sender, now, rtt: &Rtt| {
        let header = sender.poll_control(now, rtt, &settings, &mut body);
        header.map(|header| header.entropy)
    };
    let mut hear = |sender: &mut Sender, now, packet, cumulative, awaited| {
        let (header, report) = report_of(packet, cumulative);
        let report = SegmentReport {
            awaited,
            keeps_order: true,
            granted: 100,
            ..report
        };
        let packet = ReportPacket {
            header: &Header {
                number: settings.first_number.plus(cumulative),
                ..header
            },
            report,
            bitmap: &[],
        };
        sender.handle_report(now, &packet, &mut rtt, &settings);
        rtt
    };
    now = now + Span::from_micros(40);
    let rtt = hear(&mut sender, now, &first, 1, 0);
    assert!(probe(&mut sender, now, &rtt).is_some(), "the end is told");
    assert_eq!(probe(&mut sender, now, &rtt), None, "without marks");
    let told = Header {
        sent_at: now.wire_micros(),
        ..last
    };
    now = now + Span::from_micros(40);
    let rtt = hear(&mut sender, now, &told, 2, u64::MAX);
    assert_eq!(probe(&mut sender, now, &rtt), None, "they may only be late");
    now = now + Span::from_micros(10);
    let marked = iter::from_fn(|| probe(&mut sender, now, &rtt));
    assert!(marked.count() > 1, "each path");
}

#[test]
fn the_end_is_told_on_clean_paths_if_a_switch_has_cut_a_packet() {
    let (settings, now) = (with_room(), Instant::START);
    let (rtt, mut run) = (Rtt::new(settings.gap), SegmentRun::default());
    let mut sender = Sender::new(Rank(1), &settings, 1);
    sender.history = PathHistory::new(0);
    sender.send(now, tolerant_request(&settings, 100), &settings);
    let mut body = Vec::new();
    let mut send = |sender: &mut Sender| sender.poll_data(now, &rtt, &settings, &mut run);
    let first = send(&mut sender).expect("the window has room");
    let cut = Header {
        kind: PacketKind::Trimmed,
        ..first.template
    };
    sender.handle_trimmed(now, &cut, &rtt, &settings);
    let mut told = |sender: &mut Sender| {
        let probe = sender.poll_control(now, &rtt, &settings, &mut body);
        probe.map(|probe| probe.flags.has(Flags::ALL_SENT))
    };
    assert_eq!(told(&mut sender), Some(false), "of the hole");
    while send(&mut sender).is_some() {}
    assert_eq!(told(&mut sender), Some(true), "of the end");
    assert_eq!(told(&mut sender), None);
}

#[test]
fn a_mark_that_a_report_tells_of_makes_a_tolerance_useful() {
    let (settings, now) = (with_room(), Instant::START);
    let (mut rtt, mut run) = (Rtt::new(settings.gap), SegmentRun::default());
    for (marks, is_useful) in [(0, false), (1, true)] {
        let mut sender = Sender::new(Rank(1), &settings, 1);
        sender.send(now, request(&settings, 100), &settings);
        let burst = sender.poll_data(now, &rtt, &settings, &mut run);
        let (header, mut report) = report_of(&burst.expect("there is room").template, 1);
        report.ce = marks;
        sender.history = PathHistory::new(1);
        sender.history.on_sent(1);
        let packet = ReportPacket {
            header: &header,
            report,
            bitmap: &[],
        };
        sender.handle_report(now, &packet, &mut rtt, &settings);
        let favours = sender.favours_tolerance(100, ToleranceUse::WhereItPays, &rtt);
        assert_eq!(favours, is_useful, "{marks} marks");
    }
}

/// A sender on paths that lose one of a hundred packets and take 100 us, on a host that takes so
/// many nanoseconds for a packet of its own.
pub(super) fn on_lossy_paths(settings: &EndpointSettings, lone: u64) -> (Sender, Rtt) {
    let (mut sender, mut rtt) = (Sender::new(Rank(1), settings, 1), Rtt::new(settings.gap));
    rtt.sample(Span::from_micros(100));
    sender.losses.on_sent(10_000);
    sender.losses.on_lost(100);
    sender.pace.on_lone(Instant::START);
    (sender.pace).on_next(Instant::START + Span::from_nanos(lone));
    sender.history.on_loss();
    (sender, rtt)
}

#[test]
fn a_message_at_its_end_asks_when_an_answer_is_due_where_that_pays() {
    // The wait in microseconds, if it is shorter than usual: 28 and four deviations of 7.
    let wait = |record, ranks, lone, gap| {
        let mut settings = with_room();
        settings.gap = Span::from_micros(gap);
        settings.identity.world_size = ranks;
        let mut sender = Sender::new(Rank(1), &settings, 1);
        let mut rtt = Rtt::new(settings.gap);
        (0..3).for_each(|_| rtt.sample(Span::from_micros(28)));
        sender.pace.on_lone(Instant::START);
        (sender.pace).on_next(Instant::START + Span::from_nanos(lone));
        match record {
            PathRecord::Lossy => sender.history.on_loss(),
            PathRecord::Clean => sender.history.on_sent(u64::MAX),
            PathRecord::Unproven(_) => {}
        }
        sender.send(Instant::START, request(&settings, 4), &settings);
        let mut run = SegmentRun::default();
        while sender
            .poll_data(Instant::START, &rtt, &settings, &mut run)
            .is_some()
        {}
        let wait = sender.report_wait(0, (&rtt, settings.gap)).at_end;
        wait.map(Span::as_micros)
    };
    let unproven = PathRecord::Unproven(HoleJudge::Paths);
    assert_eq!(wait(PathRecord::Lossy, 64, 8, 50), Some(28));
    assert_eq!(wait(PathRecord::Clean, 64, 8, 50), None);
    assert_eq!(
        wait(unproven, 64, 8, 50),
        None,
        "the answer is late, not lost"
    );
    assert_eq!(
        wait(PathRecord::Lossy, 2, 8, 50),
        None,
        "two ranks lose few"
    );
    assert_eq!(
        wait(PathRecord::Lossy, 64, 2_000, 50),
        None,
        "PROBEs cost much"
    );
    // With this gap, too, the usual wait on lossy paths is short: two round trips with deviations.
    assert_eq!(wait(PathRecord::Lossy, 64, 40, 1_000), None);
}

/// PROBEs that leave at once behind a message on such paths, then copies of its repair, and PROBEs
/// behind these.
fn packets_on_lossy_paths(request: SendRequest, lone: u64) -> [usize; 3] {
    let (settings, mut now) = (with_room(), Instant::START + Span::from_millis(1));
    let ((mut sender, rtt), mut run) = (on_lossy_paths(&settings, lone), SegmentRun::default());
    sender.send(now, request, &settings);
    let mut first = None;
    while let Some(burst) = sender.poll_data(now, &rtt, &settings, &mut run) {
        if burst.template.kind == PacketKind::Data {
            first.get_or_insert(burst.template);
        }
        now = now + Span::from_micros(10);
    }
    let mut body = Vec::new();
    let mut probes = |sender: &mut Sender| {
        let next = || sender.poll_control(now, &rtt, &settings, &mut body);
        iter::from_fn(next).count()
    };
    let behind_end = probes(&mut sender);
    let first = first.expect("it was sent");
    let passed = PathMark {
        class: first.class,
        entropy: first.entropy,
        number: first.number.plus(1),
    };
    let (header, report) = report_of(&first, 0);
    let packet = ReportPacket {
        header: &Header {
            number: settings.first_number,
            ..header
        },
        report: SegmentReport {
            passed: 1,
            ..report
        },
        bitmap: &passed.encoded(),
    };
    sender.handle_report(now, &packet, &mut rtt.clone(), &settings);
    let mut repairs: Vec<Entropy> = Vec::new();
    while let Some(repair) = sender.poll_data(now, &rtt, &settings, &mut run) {
        assert_eq!((run.repairs(), run.len()), (1, 1));
        assert!(!repairs.contains(&repair.template.entropy), "another path");
        repairs.push(repair.template.entropy);
    }
    [behind_end, repairs.len(), probes(&mut sender)]
}

#[test]
fn where_lone_packets_cost_much_few_marks_follow_an_end_and_its_repair_leaves_once() {
    let lossless = || request(&settings(), 100);
    let [end, copies, repair] = packets_on_lossy_paths(lossless(), 8);
    assert!(end > 1 && repair == 1, "{end} and {repair}");
    assert_eq!(copies, 2);
    assert_eq!(packets_on_lossy_paths(lossless(), 2_500), [1, 1, 0]);
}

#[test]
fn where_lone_packets_cost_much_no_parity_follows() {
    // Parity packets behind a message, after another one that has left in runs.
    let parity_behind = |lone, rule| {
        let (mut settings, mut now) = (with_room(), Instant::START + Span::from_millis(1));
        settings.parity = rule;
        let ((mut sender, rtt), mut run) = (on_lossy_paths(&settings, lone), SegmentRun::default());
        let mut parity = 0;
        for sequence in 0..2 {
            let key = MessageKey::new(0, sequence, 0);
            let request = request(&settings, 100);
            sender.send(now, SendRequest { key, ..request }, &settings);
            parity = 0;
            while let Some(burst) = sender.poll_data(now, &rtt, &settings, &mut run) {
                parity += usize::from(burst.template.kind == PacketKind::Parity);
                now = now + Span::from_micros(10);
            }
        }
        parity
    };
    assert!(parity_behind(400, ParityRule::Auto) > 0);
    assert_eq!(parity_behind(9_000, ParityRule::Auto), 0);
    let share = ParityRule::Share(Share::new(0.1).expect("a share"));
    assert!(parity_behind(9_000, share) > 0, "the job asks for it");
}

#[test]
fn an_end_that_other_messages_follow_is_marked_where_they_have_not_passed_by_then() {
    // How long after its last run the end of the first of these messages is marked.
    let marked_after = |count: u32, lone, tolerance| {
        let (mut settings, mut now) = (with_room(), Instant::START + Span::from_millis(1));
        settings.parity = ParityRule::None;
        let ((mut sender, rtt), mut run) = (on_lossy_paths(&settings, lone), SegmentRun::default());
        for sequence in 0..count {
            let request = SendRequest {
                key: MessageKey::new(0, sequence, 0),
                tolerance,
                ..request(&settings, 100)
            };
            sender.send(now, request, &settings);
        }
        let mut left = 100;
        while left > 0 {
            now = now + Span::from_micros(10);
            let burst = sender.poll_data(now, &rtt, &settings, &mut run);
            assert!(burst.is_some(), "the window has room");
            left -= run.len();
        }
        sender.next_probe().map(|at| at - now)
    };
    let none = Share::NONE;
    assert_eq!(marked_after(2, 2_500, none), Some(Span::from_micros(50)));
    let lost_by = "the end of an operation is lost too often";
    assert_eq!(marked_after(1, 2_500, none), Some(Span::ZERO), "{lost_by}");
    // Its first run left 20 us before the last one.
    let answer = Some(Span::from_micros(280));
    assert_eq!(marked_after(1, 9_000, none), answer, "an answer is due");
    assert_eq!(
        marked_after(2, 8, none),
        Some(Span::ZERO),
        "marks are cheap"
    );
    let half = Share::new(0.5).expect("a share");
    let told = "its receiver may end without the rest";
    assert_eq!(marked_after(2, 2_500, half), Some(Span::ZERO), "{told}");
}
