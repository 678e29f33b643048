//! Segments that leave before their receiver grants any, as packets that long queues drop first
//! (Aeolus, Hu et al., SIGCOMM 2020).
//!
//! 1. A message announces itself, and `transport.speculative` of its bytes leave as Not-ECT
//!    packets. Where the path is free they arrive a round trip earlier than granted ones. Where
//!    many ranks send to one, switches drop most of them, and granted packets find short queues. A
//!    rank that sends to others already does not speculate: its packets would wait for its own
//!    link.
//! 2. Behind the last of them a PROBE marks their paths, so that their losses are known as soon as
//!    its queue is empty (`sender/tail.rs`). A path takes a few of them in a row: many marks would
//!    fill the receiver's link.
//! 3. One that is lost was sent without a grant, so its repair waits for one. That is no loss of
//!    the path, and takes nothing of the message's tolerance.
//! 4. Receivers need not know: a grant counts segments, and those that have arrived unasked have
//!    used up as many of them. As long as nothing is known of a segment, its sender takes it for
//!    dropped, and spends the grant on the next one: the receiver's link would idle if all who are
//!    granted waited for news. So the last quarter of a message never leaves without a grant.
//! 5. A granted segment that may stay missing leaves as an ECT packet meanwhile: queues would drop
//!    it among the speculative packets of others.

use super::Sender;
use super::flight::SegmentFlight;
use super::message::{SendMessage, UnscheduledStart};
use crate::message::SendRequest;
use crate::settings::EndpointSettings;
use crate::units::Instant;

/// At most this many quarters of a message may leave without a grant.
const MOST_QUARTERS: u64 = 3;
/// Packets that a path takes in a row, at least.
const RUN_PACKETS: u64 = 3;

impl SendMessage {
    /// Whether a segment was sent without a grant.
    pub(super) fn has_speculated_with(&self, segment: u32) -> bool {
        self.progress.speculation.has(segment)
    }

    /// Whether its next new segments leave without a grant.
    pub(super) fn speculates(&self) -> bool {
        (self.sendable()..self.progress.speculation.until).contains(&self.sent())
    }

    /// Whether all that may be sent without a grant was sent, and no grant is left.
    fn is_ahead(&self) -> bool {
        let until = self.progress.speculation.until;
        self.sent() == until && until == self.allowed()
    }

    /// Whether all was sent that may be sent for now, and its end needs marks.
    pub(super) fn is_at_end(&self) -> bool {
        self.all_sent() || self.is_in_doubt()
    }

    /// Whether no more may be sent for now, and segments that were sent without a grant may be
    /// lost.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.progress.speculation.in_doubt() > 0 && (self.all_sent() || self.is_ahead())
    }
}

impl Sender {
    /// Takes a message of a rank that sends no other: it may begin without a grant.
    pub(crate) fn send_alone(
        &mut self,
        now: Instant,
        request: SendRequest,
        settings: &EndpointSettings,
    ) {
        let segments = u64::from(request.bytes.div_ceil(settings.segment_bytes));
        let most = (segments * MOST_QUARTERS / 4) as u32;
        let speculative = settings.speculative_segments().min(most);
        let is_small = speculative <= settings.unscheduled_segments();
        let mut lanes = request.tags.lanes().windows(2);
        if is_small || lanes.any(|pair| pair[0].class != pair[1].class) {
            return self.send(now, request, settings);
        }
        let start = UnscheduledStart {
            speculative,
            ..UnscheduledStart::default()
        };
        self.open(now, request, settings, start);
    }

    /// The maximum number of packets of the next run of the message at `at`.
    pub(super) fn longest_run(&self, at: usize, settings: &EndpointSettings) -> u64 {
        let usual = self.run_packets(settings);
        match self.messages[at].speculates() {
            true => usual.max(RUN_PACKETS),
            false => usual,
        }
    }

    /// A current flight of the message at `at` is lost; if it was sent without a grant, its segment
    /// waits for one.
    pub(super) fn lose_speculative(&mut self, at: usize, flight: &SegmentFlight) -> bool {
        let sending = &mut self.messages[at];
        if !sending.progress.speculation.on_lost(flight.segment) {
            return false;
        }
        self.in_flight -= sending.land(flight.segment);
        sending.wait_for_grant_of(flight.segment);
        self.spray.on_dropped(flight.entropy);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::flight::RunDeparture;
    use super::super::tests::{request, settings};
    use super::*;
    use crate::machine::{Ecn, SegmentRun};
    use crate::priority::MessageShape;
    use crate::units::{
        ByteCount, Entropy, Instant, Layer, Magnitude, MessageId, MessageSerial, PathNumber, Rank,
        Share,
    };
    use crate::wire::PathMark;

    const SEGMENTS: u32 = 20;

    /// A message that may begin with this many segments.
    fn message(speculative: u32) -> SendMessage {
        begun(request(&settings(), SEGMENTS), speculative)
    }

    fn begun(request: SendRequest, speculative: u32) -> SendMessage {
        let start = UnscheduledStart {
            speculative,
            ..UnscheduledStart::default()
        };
        let serial = MessageSerial::first(MessageId(1));
        SendMessage::new(serial, request, &settings(), start, Instant::START)
    }

    /// Sends all that may leave by now: the segments of each run, and whether queues may drop it.
    fn sent(message: &mut SendMessage) -> Vec<(Vec<u32>, Ecn)> {
        let (mut runs, mut run) = (Vec::new(), SegmentRun::default());
        while message.next_turn().is_some() {
            let taken = message.take_run(64, &settings(), &mut run);
            let first = PathMark {
                class: taken.class,
                entropy: Entropy(0),
                number: PathNumber(0),
            };
            let departure = RunDeparture {
                at: Instant::START.stamp(),
                first,
            };
            message.on_sent(&run, departure, &mut Default::default());
            runs.push((run.segments().collect(), taken.ecn));
        }
        runs
    }

    #[test]
    fn a_message_that_may_miss_segments_begins_without_a_grant_as_well() {
        let mut settings = settings();
        settings.policy.protected_share = Share::new(0.2).expect("a share");
        settings.grant_segments = Some(64);
        settings.unscheduled = ByteCount::kib(8);
        settings.speculative = ByteCount::mib(1);
        let shape = MessageShape {
            segments: SEGMENTS,
            layer_count: 0,
        };
        let magnitude = |segment| Magnitude(u8::from((8..12).contains(&segment)) * 100);
        let magnitudes = (0..SEGMENTS).map(magnitude).collect();
        let request = SendRequest {
            tolerance: Share::ALL,
            tags: (settings.policy).lossy(shape, &[(0, Layer(0))], magnitudes),
            ..request(&settings, SEGMENTS)
        };
        let mut sender = Sender::new(Rank(1), &settings, 1);
        sender.send_alone(Instant::START, request.clone(), &settings);
        assert_eq!(sender.messages[0].progress.speculation.until, 15);

        let mut message = begun(request, 6);
        let expected = [
            ((8..12).collect(), Ecn::NotEct),
            ((0..2).collect(), Ecn::NotEct),
        ];
        assert_eq!(sent(&mut message), expected, "the protected ones first");
        let in_doubt = (0..SEGMENTS).filter(|&segment| message.has_speculated_with(segment));
        assert!(in_doubt.eq([0, 1, 8, 9, 10, 11]));
        message.progress.granted = 2;
        assert_eq!(sent(&mut message), [((2..4).collect(), Ecn::Ect)]);
        message.on_acked(0..12);
        message.progress.granted = 12;
        assert_eq!(sent(&mut message), [((4..8).collect(), Ecn::NotEct)]);
    }

    fn lose(message: &mut SendMessage, segment: u32) {
        assert!(message.progress.speculation.on_lost(segment));
        message.land(segment);
        message.wait_for_grant_of(segment);
    }

    #[test]
    fn grants_are_spent_as_if_all_in_doubt_were_dropped() {
        let mut message = message(8);
        assert_eq!(sent(&mut message), [((0..8).collect(), Ecn::NotEct)]);
        assert!(message.is_in_doubt());
        message.progress.granted = 3;
        assert_eq!(sent(&mut message), [((8..11).collect(), Ecn::Ect)]);
        assert!(
            !message.is_in_doubt(),
            "others follow, which show the losses"
        );
        // They have used up grants after all.
        message.on_acked(0..5);
        message.progress.granted = 8;
        assert_eq!(sent(&mut message), []);
        message.progress.granted = 9;
        assert_eq!(sent(&mut message), [(vec![11], Ecn::Ect)]);
    }

    #[test]
    fn a_lost_speculative_segment_waits_for_a_grant() {
        let mut message = message(8);
        sent(&mut message);
        for segment in [2, 5, 6] {
            lose(&mut message, segment);
        }
        for arrived in [0..2, 3..5, 7..8] {
            message.on_acked(arrived);
        }
        // Five have arrived: they have used up as many grants.
        for (granted, repaired) in [(5, None), (6, Some(2)), (7, Some(5)), (8, Some(6))] {
            message.progress.granted = granted;
            message.spend_grants();
            let expected = repaired.map(|segment| (vec![segment], Ecn::Ect));
            assert_eq!(sent(&mut message), expected.as_slice(), "{granted} granted");
        }
        assert!(
            !message.progress.speculation.on_lost(2),
            "a repair is like any other"
        );
        assert_eq!(message.granted(), 8);
    }

    #[test]
    fn all_is_sent_once_all_is_granted() {
        let mut message = message(SEGMENTS);
        sent(&mut message);
        assert!(!message.all_sent());
        message.progress.granted = SEGMENTS;
        assert!(message.all_sent());
        assert!(message.is_in_doubt());
        message.on_acked(0..SEGMENTS);
        assert!(!message.is_in_doubt());
    }
}
