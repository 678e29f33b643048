//! Packets in flight: segments of one message that left together, as runs.
//!
//! A segment's flight is *current* until it lands or is sent again. A run stays in the list of its
//! class until it is the first one there and none of its flights is current. So a report costs as
//! much as the runs that it acknowledges, not as much as their packets.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::machine::SegmentRun;
use crate::units::{Entropy, MessageId, PathNumber, Stamp};
use crate::wire::PathMark;

/// A segment that was sent. It is current until it lands or is sent again.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct SegmentFlight {
    pub(super) message: MessageId,
    pub(super) segment: u32,
    pub(super) sent_at: Stamp,
    pub(super) entropy: Entropy,
    pub(super) number: PathNumber,
}

impl SegmentFlight {
    /// Whether it was sent on the entropy of a packet, before it.
    pub(super) fn precedes(&self, packet: PathMark) -> bool {
        self.entropy == packet.entropy && self.number.ahead_of(packet.number) < 0
    }
}

/// Segments that follow each other and left one behind the other on a path.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct FlightRun {
    pub(super) message: MessageId,
    first: u32,
    end: u32,
    pub(super) sent_at: Stamp,
    pub(super) entropy: Entropy,
    /// The number of the first one's packet.
    number: PathNumber,
}

impl FlightRun {
    /// Its segments.
    pub(super) fn segments(&self) -> Range<u32> {
        self.first..self.end
    }

    /// The flight of one of its segments.
    pub(super) fn flight(&self, segment: u32) -> SegmentFlight {
        SegmentFlight {
            message: self.message,
            segment,
            sent_at: self.sent_at,
            entropy: self.entropy,
            number: self.number.plus(segment - self.first),
        }
    }

    /// Drops its segments before this one.
    pub(super) fn begin_with(&mut self, segment: u32) {
        self.number = self.flight(segment).number;
        self.first = segment;
    }
}

/// When a run leaves, and its first packet on its path.
#[derive(Clone, Copy)]
pub(super) struct RunDeparture {
    pub(super) at: Stamp,
    pub(super) first: PathMark,
}

impl RunDeparture {
    /// The flights of the segments of `message` that leave in this run.
    pub(super) fn flights(
        self,
        message: MessageId,
        run: &SegmentRun,
    ) -> impl Iterator<Item = FlightRun> {
        let mut number = self.first.number;
        run.ranges().map(move |segments| {
            let flights = FlightRun {
                message,
                first: segments.start,
                end: segments.end,
                sent_at: self.at,
                entropy: self.first.entropy,
                number,
            };
            number = number.plus(segments.end - segments.start);
            flights
        })
    }
}

/// How many values equal the first one, from it on. Most do, so that a processor compares blocks.
pub(super) fn count_alike<T: Copy + PartialEq>(values: &[T]) -> usize {
    const BLOCK: usize = 16;
    let Some(&first) = values.first() else {
        return 0;
    };
    let is_alike = |block: &&[T]| {
        block
            .iter()
            .fold(true, |all, &value| all & (value == first))
    };
    let blocks = values.chunks_exact(BLOCK).take_while(is_alike).count();
    let rest = &values[blocks * BLOCK..];
    blocks * BLOCK + rest.iter().take_while(|&&value| value == first).count()
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::super::acked::NewlyAcked;
    use super::super::message::{SendMessage, UnscheduledStart};
    use super::super::tests::settings;
    use super::*;
    use crate::entropy::LandedRun;
    use crate::message::SendRequest;
    use crate::priority::MessageShape;
    use crate::units::{
        Class, Instant, Layer, MessageKey, MessageSerial, Share, Signature, Span, Step,
    };

    const SEGMENTS: u32 = 200;

    fn message() -> SendMessage {
        let settings = settings();
        let shape = MessageShape {
            segments: SEGMENTS,
            layer_count: 0,
        };
        let request = SendRequest {
            key: MessageKey::new(0, 1, 0),
            signature: Signature::NONE,
            step: Step(1),
            bytes: SEGMENTS * settings.segment_bytes - 5,
            tolerance: Share::NONE,
            contributors: 1,
            tags: settings.policy.lossless(shape, &[(0, Layer(0))]),
        };
        let start = UnscheduledStart {
            segments: SEGMENTS,
            ..UnscheduledStart::default()
        };
        let serial = MessageSerial::first(MessageId(1));
        SendMessage::new(serial, request, &settings, start, Instant::START)
    }

    /// An event in the life of a message.
    #[derive(Clone, Debug)]
    enum FlightStep {
        /// So many segments leave on a path, so many microseconds later.
        Leave(usize, u8, u64),
        /// These segments are lost, and are sent again.
        Lose(Range<u32>),
        /// These segments have arrived.
        Arrive(Range<u32>),
    }

    fn any_step() -> impl Strategy<Value = FlightStep> {
        let range = || (0..SEGMENTS, 0..70_u32).prop_map(|(first, count)| first..first + count);
        prop_oneof![
            3 => (1..64_usize, 0..3_u8, 0..2_u64)
                .prop_map(|(most, path, micros)| FlightStep::Leave(most, path, micros)),
            1 => range().prop_map(FlightStep::Lose),
            3 => range().prop_map(FlightStep::Arrive),
        ]
    }

    /// A message, and all runs of its flights.
    struct Flying {
        message: SendMessage,
        flights: VecDeque<FlightRun>,
        now: Instant,
        numbers: u32,
    }

    impl Flying {
        fn new() -> Self {
            Self {
                message: message(),
                flights: VecDeque::new(),
                now: Instant::START,
                numbers: u32::MAX - 100,
            }
        }

        fn leave(&mut self, most: usize, path: u8, micros: u64) -> u64 {
            self.now = self.now + Span::from_micros(micros);
            if self.message.next_turn().is_none() {
                return 0;
            }
            let mut run = SegmentRun::default();
            let taken = self.message.take_run(most, &settings(), &mut run);
            let departure = RunDeparture {
                at: self.now.stamp(),
                first: PathMark {
                    class: Class(taken.class.0),
                    entropy: Entropy(path),
                    number: PathNumber(self.numbers),
                },
            };
            self.numbers = self.numbers.wrapping_add(run.len() as u32);
            self.message.on_sent(&run, departure, &mut self.flights)
        }

        fn lose(&mut self, segments: Range<u32>) -> u64 {
            let segments = segments.start..segments.end.min(self.message.sent());
            let lose = |segment| {
                let bytes = self.message.land(segment);
                if bytes > 0 {
                    self.message.queue_repair(segment);
                }
                bytes
            };
            segments.map(lose).sum()
        }
    }

    /// The same, with neighbours of one run as one.
    fn by_run(landed: impl Iterator<Item = LandedRun>) -> Vec<LandedRun> {
        let mut runs: Vec<LandedRun> = Vec::new();
        for next in landed {
            match runs.last_mut() {
                Some(run) if (run.path, run.sent_at) == (next.path, next.sent_at) => {
                    run.packets += next.packets;
                }
                _ => runs.push(next),
            }
        }
        runs
    }

    proptest! {
        #[test]
        fn blocks_find_as_many_alike_as_one_by_one(
            values in prop::collection::vec(0..12_u8, 0..70),
        ) {
            // Long stretches of zeros.
            let values: Vec<u8> = values.iter().map(|value| value / 11).collect();
            for start in 0..values.len() {
                let values = &values[start..];
                let alike = values.iter().take_while(|&&value| value == values[0]).count();
                prop_assert_eq!(count_alike(values), alike);
            }
            prop_assert_eq!(count_alike::<u8>(&[]), 0);
        }

        #[test]
        fn ranges_arrive_as_their_segments_do_one_by_one(
            steps in prop::collection::vec(any_step(), 1..60),
        ) {
            let [mut ranged, mut single] = [Flying::new(), Flying::new()];
            for step in steps {
                match step {
                    FlightStep::Leave(most, path, micros) => {
                        let [one, other] = [&mut ranged, &mut single]
                            .map(|flying| flying.leave(most, path, micros));
                        prop_assert_eq!(one, other);
                    }
                    FlightStep::Lose(segments) => {
                        let [one, other] = [&mut ranged, &mut single]
                            .map(|flying| flying.lose(segments.clone()));
                        prop_assert_eq!(one, other);
                    }
                    FlightStep::Arrive(segments) => {
                        let sent = ranged.message.sent();
                        let segments = segments.start..segments.end.min(sent);
                        let acked = ranged.message.on_acked(segments.clone());
                        let mut sum = NewlyAcked::default();
                        for segment in segments {
                            sum.add(single.message.on_acked(segment..segment + 1));
                        }
                        prop_assert_eq!((acked.bytes, acked.segments), (sum.bytes, sum.segments));
                        let [one, other] = [&mut ranged, &mut single]
                            .map(|flying| by_run(flying.message.take_landed()));
                        prop_assert_eq!(one, other);
                    }
                }
                prop_assert_eq!(ranged.message.in_flight(), single.message.in_flight());
            }
        }

        #[test]
        fn a_run_has_the_current_ones_of_its_flights(
            steps in prop::collection::vec(any_step(), 1..60),
        ) {
            let mut flying = Flying::new();
            for step in steps {
                match step {
                    FlightStep::Leave(most, path, micros) => _ = flying.leave(most, path, micros),
                    FlightStep::Lose(segments) => _ = flying.lose(segments),
                    FlightStep::Arrive(segments) => _ = flying.message.on_acked(segments),
                }
                for run in &flying.flights {
                    let flights = run.segments().map(|segment| run.flight(segment));
                    let current = flights.filter(|flight| flying.message.is_current(flight));
                    let current: Vec<SegmentFlight> = current.collect();
                    let found: Vec<SegmentFlight> = flying.message.current_of(run).collect();
                    prop_assert_eq!(&found, &current);
                    let mut rest = *run;
                    if let Some(flight) = current.last() {
                        rest.begin_with(flight.segment);
                        prop_assert_eq!(rest.flight(flight.segment), *flight);
                    }
                }
                // Packets are numbered in the order of sending.
                let flights = flying.flights.iter();
                let flights = flights.flat_map(|run| run.segments().map(|at| run.flight(at)));
                let numbers = flights.map(|flight| flight.number.0);
                prop_assert!(numbers.eq((0..).map(|at| (u32::MAX - 100).wrapping_add(at)).take(
                    flying.flights.iter().map(|run| run.segments().len()).sum()
                )));
            }
        }
    }
}
