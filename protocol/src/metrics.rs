//! Counts of a rank's traffic, per peer and traffic class, and how long messages and round trips
//! took.
//!
//! An endpoint keeps them only on request ([`crate::endpoint::Endpoint::keep_metrics`]): a
//! simulation of a thousand hosts has no memory for histograms. Memory is taken once per peer, and
//! once per class for [`TimeHistogram`]; a packet costs a few additions. Other files decide who may
//! ask for the counts, and how they are shown.

use hdrhistogram::Histogram;

use crate::budget::LossAccount;
use crate::machine::{Datagram, Ecn, RunLength, Transmit};
pub use crate::order::OrderTrust;
use crate::receiver::ReceiverCounters;
use crate::sender::{SenderCounters, SentMessage};
use crate::units::{ByteCount, Class, Rank, Span};
use crate::wire::{HEADER_BYTES, PacketKind};

/// A job has at most this many traffic classes.
pub const CLASSES_MAX: usize = 8;
/// Longer times count as this one, in microseconds: a hundred seconds.
const LONGEST_US: u64 = 100_000_000;
/// Times are kept to this many decimal digits.
const DIGITS: u8 = 2;

/// The traffic of one class with one peer. Bytes include the headers of packets, but not those of
/// IP and UDP.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(align(64))]
pub struct ClassCounters {
    /// Packets sent, including repairs and control packets.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Segments sent again.
    pub repaired_segments: u64,
    /// Segments sent that the peer accepted as holes.
    pub missed_segments: u64,
    /// Packets that arrived, including duplicates.
    pub received_packets: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// DATA packets that arrived with CE.
    pub marks: u64,
}

/// Bytes of packets with all peers, headers included, but not those of IP and UDP.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CarriedBytes {
    /// Sent.
    pub sent: u64,
    /// Received, with duplicates.
    pub received: u64,
}

/// A distribution of times: to two digits, up to a hundred seconds.
#[derive(Clone, Debug)]
pub struct TimeHistogram {
    histogram: Histogram<u32>,
    sum: Span,
}

impl Default for TimeHistogram {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_US, DIGITS);
        Self {
            histogram: histogram.expect("the bounds are constants that fit each other"),
            sum: Span::ZERO,
        }
    }
}

impl TimeHistogram {
    /// Adds one.
    pub fn record(&mut self, span: Span) {
        self.histogram.saturating_record(span.as_micros());
        self.sum = self.sum + span;
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// All of them together.
    pub fn sum(&self) -> Span {
        self.sum
    }

    /// The smallest time that a share `quantile` (0 to 1) of them does not exceed, at most one in
    /// 128 too long; zero when there are none.
    pub fn quantile(&self, quantile: f64) -> Span {
        Span::from_micros(self.histogram.value_at_quantile(quantile))
    }

    /// How many of them do not exceed `bound`; a time within two digits of it may count too.
    pub fn up_to(&self, bound: Span) -> u64 {
        self.histogram.count_between(0, bound.as_micros())
    }
}

/// The traffic with one peer.
#[derive(Clone, Debug, Default)]
pub struct PeerTraffic {
    classes: [ClassCounters; CLASSES_MAX],
    /// Round trips to the peer.
    pub round_trips: TimeHistogram,
}

impl PeerTraffic {
    /// The counts of each class that had any packet, highest class first.
    pub fn classes(&self) -> impl Iterator<Item = (Class, &ClassCounters)> {
        let numbered = self.classes.iter().enumerate();
        let numbered = numbered.map(|(at, counters)| (Class(at as u8), counters));
        numbered.filter(|(_, counters)| **counters != ClassCounters::default())
    }

    /// A class beyond those of any job belongs to a stranger's packet; it counts as one of them.
    fn of(&mut self, class: Class) -> &mut ClassCounters {
        &mut self.classes[usize::from(class.0) % CLASSES_MAX]
    }

    pub(crate) fn on_sent(&mut self, transmit: &Transmit<'_>) {
        let header = &transmit.template;
        let packets = transmit.packets() as u64;
        let payload = match (header.kind, transmit.run.last()) {
            (PacketKind::Data, Some(last)) => {
                let full = (packets - 1) * u64::from(transmit.segment_bytes);
                let left = header.message_bytes - last * transmit.segment_bytes;
                full + u64::from(left.min(transmit.segment_bytes))
            }
            _ => u64::from(header.length),
        };
        let counters = self.of(header.class);
        counters.sent_packets += packets;
        counters.sent_bytes += packets * HEADER_BYTES as u64 + payload;
        counters.repaired_segments += transmit.run.repairs() as u64;
    }

    /// A run of packets has arrived that begins with this one.
    pub(crate) fn on_received(&mut self, first: &Datagram<'_>, run: RunLength) {
        let (header, packets) = (&first.header, u64::from(run.packets));
        let counters = self.of(header.class);
        counters.received_packets += packets;
        let full = (packets - 1) * u64::from(header.length);
        let payload = full + u64::from(run.last);
        counters.received_bytes += packets * HEADER_BYTES as u64 + payload;
        if first.ecn == Ecn::Ce && header.kind == PacketKind::Data {
            counters.marks += packets;
        }
    }

    pub(crate) fn on_missed(&mut self, class: Class) {
        self.of(class).missed_segments += 1;
    }
}

/// How long messages took, by class: from the moment they were given to the endpoint until their
/// receiver said STOP.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClassTimes {
    classes: [Option<Box<TimeHistogram>>; CLASSES_MAX],
}

impl ClassTimes {
    pub(crate) fn record(&mut self, sent: &SentMessage) {
        let at = usize::from(sent.class().0) % CLASSES_MAX;
        self.classes[at].get_or_insert_default().record(sent.took);
    }

    pub(crate) fn classes(&self) -> impl Iterator<Item = (Class, &TimeHistogram)> {
        let numbered = self.classes.iter().enumerate();
        numbered.filter_map(|(at, times)| Some((Class(at as u8), &**times.as_ref()?)))
    }
}

/// The state of a peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PeerStanding {
    /// Well.
    Well,
    /// It was reported silent.
    Silent,
    /// It was lost: no packet goes to it, and its packets are ignored.
    Failed,
}

/// Counts over all peers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct EndpointCounters {
    /// Sums over the senders.
    pub sender: SenderCounters,
    /// Sums over the receivers.
    pub receiver: ReceiverCounters,
    /// Packets of other jobs, epochs or ranks, and packets that contradict themselves.
    pub foreign: u64,
}

/// The metrics of one peer.
#[derive(Clone, Debug)]
pub struct PeerMetrics {
    /// The peer.
    pub rank: Rank,
    /// Its state.
    pub standing: PeerStanding,
    /// Bytes in flight to it, headers included.
    pub in_flight: ByteCount,
    /// Bytes that may be in flight to it.
    pub window: ByteCount,
    /// The smoothed round trip; `None` before the first.
    pub round_trip: Option<Span>,
    /// Counts of the messages to it.
    pub sender: SenderCounters,
    /// Counts of the messages from it.
    pub receiver: ReceiverCounters,
    /// Whether its packets keep their order.
    pub order: OrderTrust,
    /// The traffic by class; `None` when the endpoint does not keep it.
    pub traffic: Option<Box<PeerTraffic>>,
}

/// Everything that an endpoint has counted, as it was at one moment.
#[derive(Clone, Debug)]
pub struct EndpointMetrics {
    /// Peers with which messages or packets were exchanged, by rank.
    pub peers: Vec<PeerMetrics>,
    /// How long messages took, by class, highest class first.
    pub messages: Vec<(Class, TimeHistogram)>,
    /// Sums over all peers.
    pub counters: EndpointCounters,
    /// The sum of the loss budget over all steps.
    pub ledger: LossAccount,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pseudo-random sequence from a seed.
    fn scattered(seed: u64) -> impl Iterator<Item = u64> {
        std::iter::successors(Some(seed), |&x| {
            Some(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1))
        })
        .map(|x| x >> 33)
    }

    #[test]
    fn quantiles_match_the_sorted_list_to_two_digits() {
        for seed in 1..20 {
            let mut list: Vec<u64> = scattered(seed)
                .take(1_000)
                .map(|n| 1 + n % 10_u64.pow(1 + (n % 7) as u32))
                .collect();
            let mut times = TimeHistogram::default();
            list.iter()
                .for_each(|&us| times.record(Span::from_micros(us)));
            list.sort_unstable();
            assert_eq!(times.count(), 1_000);
            assert_eq!(times.sum(), Span::from_micros(list.iter().sum()));
            for (quantile, at) in [(0.01, 9), (0.5, 499), (0.9, 899), (0.99, 989), (1.0, 999)] {
                let (is, should) = (times.quantile(quantile).as_micros(), list[at]);
                assert!(
                    is >= should && is <= should + should / 128,
                    "seed {seed}, quantile {quantile}: {is} instead of {should}"
                );
            }
            for bound in [10, 100, 1_000, 100_000] {
                let (is, least) = (
                    times.up_to(Span::from_micros(bound)),
                    list.partition_point(|&us| us <= bound) as u64,
                );
                let most = list.partition_point(|&us| us <= bound + bound / 128) as u64;
                assert!((least..=most).contains(&is), "seed {seed}, bound {bound}");
            }
        }
    }

    #[test]
    fn a_time_beyond_the_longest_counts_as_the_longest() {
        let mut times = TimeHistogram::default();
        times.record(Span::from_millis(3_600_000));
        times.record(Span::ZERO);
        assert_eq!((times.count(), times.quantile(0.5)), (2, Span::ZERO));
        let longest = times.quantile(1.0).as_micros();
        assert!((LONGEST_US..LONGEST_US + LONGEST_US / 64).contains(&longest));
        assert_eq!(times.sum(), Span::from_millis(3_600_000));
    }
}
