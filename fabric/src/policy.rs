//! Queues, thresholds and load balancing of every switch port, from a job and a round trip.
//!
//! - Each class of the job has a DSCP and a strict-priority queue of its own; control packets have
//!   the highest.
//! - Where the job leaves others a share of each link, the last queue is theirs: it gets that share
//!   whatever the queues of gradients hold, and these have the rest, in their order. It marks and
//!   does not drop before it is full.
//! - A queue deeper than `marks_above` marks protected packets (ECT) and drops droppable ones
//!   (not-ECT).
//!
//! The threshold keeps a link busy while senders react: K = share x rate x RTT. DCTCP needs a share
//! of at least 1/7 (Alizadeh et al., SIGCOMM 2010, section 3.3); a share of 1 tolerates the uneven
//! queues of sprayed packets: with a smaller share, senders would slow down because of them.

use gradwire_protocol::job::Job;
use gradwire_protocol::priority::{EarlyDrop, UntaggedTraffic};
use gradwire_protocol::units::{ByteCount, Class, Dscp, Rate, Share, Span};

/// Number of DSCPs: six bits.
pub const DSCPS: usize = 64;
/// DSCPs that jobs avoid: 46 of voice (RFC 3246), 48 and 56 of routing (RFC 4594, 3.1).
pub const RESERVED: [Dscp; 3] = [Dscp(46), Dscp(48), Dscp(56)];

/// How a switch chooses among equally short paths.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Balance {
    /// By a hash of addresses and ports: one entropy, one path. Packets are sprayed where senders
    /// change the entropy from packet to packet.
    Ecmp,
    /// Each packet takes a random path.
    Random,
    /// Each packet takes the port with the shortest queue.
    Adaptive,
}

impl Balance {
    /// Its name in files and options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ecmp => "ecmp",
            Self::Random => "random",
            Self::Adaptive => "adaptive",
        }
    }
}

/// The packet memory of a switch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SwitchBuffer {
    /// Every port has this much memory of its own.
    PerPort(ByteCount),
    /// Every port has this much memory of its own; a data queue may take at most `alpha` times the
    /// free part of it, so that a full low class leaves room for the higher ones.
    Divided {
        /// Bytes of a port.
        bytes: ByteCount,
        /// Dynamic threshold factor.
        alpha: f64,
    },
    /// All ports of a switch share `bytes`; a queue may take at most `alpha` times the part
    /// that is still free (Choudhury and Hahne, IEEE/ACM ToN 1998).
    Shared {
        /// Bytes of a switch.
        bytes: ByteCount,
        /// Dynamic threshold factor.
        alpha: f64,
    },
}

impl SwitchBuffer {
    /// Bytes that one port can hold: its own memory or, if queues have a dynamic threshold, the
    /// share of a queue that is the only busy one.
    pub fn port_bytes(self) -> ByteCount {
        match self {
            Self::PerPort(bytes) => bytes,
            Self::Divided { bytes, alpha } | Self::Shared { bytes, alpha } => {
                ByteCount::new((bytes.get() as f64 * alpha / (1.0 + alpha)) as u64)
            }
        }
    }

    /// The dynamic threshold factor of its data queues, if they have one.
    pub fn alpha(self) -> Option<f64> {
        match self {
            Self::PerPort(_) => None,
            Self::Divided { alpha, .. } | Self::Shared { alpha, .. } => Some(alpha),
        }
    }
}

/// Depths at which a queue pauses the port that sends to it, and resumes it (PFC, IEEE 802.1Qbb).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pause {
    /// Bytes of one ingress port and class above which it pauses.
    pub above: ByteCount,
    /// Bytes at which it resumes.
    pub below: ByteCount,
}

/// Marking with a probability that grows with the depth of a queue (RED, as DCQCN asks for: Zhu et
/// al., SIGCOMM 2015, section 3.1). Depths are the times that the port needs to send them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MarkRamp {
    /// Depth above which packets may be marked (Kmin).
    pub from: Span,
    /// Depth above which all are (Kmax).
    pub to: Span,
    /// The share that is marked just below `to` (Pmax).
    pub share: Share,
}

impl MarkRamp {
    /// Both depths in bytes at a port of this rate, rounded down.
    pub fn depths(&self, rate: Rate) -> [u64; 2] {
        [self.from, self.to].map(|depth| bytes_during(depth, rate))
    }
}

/// The depth of a data queue above which packets are trimmed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TrimDepth {
    /// The memory of the port, but for headers of trimmed packets.
    Memory,
    /// This many bytes.
    Bytes(ByteCount),
    /// The bytes that the port sends in this time.
    Time(Span),
}

impl TrimDepth {
    /// The part of a port's memory that is left for headers of trimmed packets.
    const HEADER_PART: u64 = 16;

    /// In bytes, at a port of this rate with so much memory.
    pub fn bytes(self, rate: Rate, memory: ByteCount) -> u64 {
        let most = memory.get() - memory.get() / Self::HEADER_PART;
        match self {
            Self::Memory => most,
            Self::Bytes(bytes) => bytes.get().min(most),
            Self::Time(span) => bytes_during(span, rate).min(most),
        }
    }
}

/// The packet of a queue that is served first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ServiceOrder {
    /// The one that came first.
    Arrival,
    /// A packet of the flow with the least left to send, by the urgency in its packets; a full
    /// queue drops a packet of the flow with the most. No commodity switch does this; it exists for
    /// comparison.
    Urgency,
}

/// When a queue has its turn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum QueueTurn {
    /// Before all queues below it.
    Strict,
    /// As one of a group, which has a turn by its weight; in the group before the queues below it.
    Weighted {
        /// The group: the number of its first queue.
        group: u8,
        /// The group's weight, in percent of the link.
        percent: u8,
    },
}

/// One queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ClassQueue {
    /// The class that it carries.
    pub class: Class,
    /// The DSCP that leads to it.
    pub dscp: Dscp,
    /// The DSCP of its droppable packets, if they have one of their own.
    pub droppable: Option<Dscp>,
    /// Where it marks ECT and drops not-ECT packets: a share of rate x RTT. `None`: never.
    pub marks_above: Option<Share>,
    /// Whether it drops not-ECT packets there.
    pub early_drop: EarlyDrop,
}

/// The policy of every switch of a fabric.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct QosPolicy {
    /// The queues, highest first. Packets of other DSCPs go to the last one.
    pub queues: Vec<ClassQueue>,
    /// Percent of each link that the last queue gets while it has packets, up to 90; `None`: it is
    /// served after all others.
    pub others: Option<u8>,
    /// Foreign DSCPs that go to the highest queue: those of routing protocols and other urgent
    /// traffic.
    pub reserved: Vec<Dscp>,
    /// The round trip that thresholds are meant for.
    pub rtt: Span,
    /// How paths are chosen.
    pub balance: Balance,
    /// How queues are served.
    pub order: ServiceOrder,
    /// How queues that mark do it instead; `None`: all packets above the queue's `marks_above`.
    pub ramp: Option<MarkRamp>,
    /// PFC; `None`: off, so packets are dropped.
    pub pause: Option<Pause>,
    /// Packets above `trims_above`, and those that would be dropped, are cut to this many bytes and
    /// sent in the highest queue; `None`: none is cut.
    pub trims_to: Option<ByteCount>,
    /// Data queue depth above which packets are trimmed, if switches trim, at least a 16th of the
    /// port's memory below its end.
    pub trims_above: TrimDepth,
}

impl QosPolicy {
    /// The policy that matches a job's tags, on a fabric whose round trip without queues takes
    /// `rtt`. Control packets are never marked: they are few, and their sender does not slow down.
    pub fn of_job(job: &Job, rtt: Span) -> Self {
        let mark = Share::ALL;
        let others = match job.priority.untagged {
            UntaggedTraffic::Weighted(share) => share.whole_percent().map(|percent| percent as u8),
            UntaggedTraffic::Shares | UntaggedTraffic::Below => None,
        };
        let last = others.map(|_| job.priority.dscps.len() - 1);
        let queues = job.priority.dscps.iter().enumerate();
        let queues = queues.map(|(class, &dscp)| ClassQueue {
            class: Class(class as u8),
            dscp,
            droppable: class
                .checked_sub(1)
                .filter(|_| job.loss.early_drop == EarlyDrop::On && Some(class) != last)
                .and_then(|data| job.priority.droppable_dscps.get(data).copied()),
            marks_above: (class > 0).then_some(mark),
            early_drop: match Some(class) == last {
                true => EarlyDrop::Off,
                false => EarlyDrop::On,
            },
        });
        Self {
            queues: queues.collect(),
            others,
            reserved: RESERVED.to_vec(),
            rtt,
            balance: Balance::Ecmp,
            order: ServiceOrder::Arrival,
            ramp: None,
            pause: None,
            trims_to: None,
            trims_above: TrimDepth::Memory,
        }
    }

    /// The queue of each DSCP.
    pub fn queue_of_dscp(&self) -> [u8; DSCPS] {
        let last = self.queues.len().saturating_sub(1) as u8;
        let mut map = [last; DSCPS];
        for (queue, row) in self.queues.iter().enumerate() {
            for dscp in [Some(row.dscp), row.droppable].into_iter().flatten() {
                map[usize::from(dscp.0) % DSCPS] = queue as u8;
            }
        }
        for dscp in &self.reserved {
            map[usize::from(dscp.0) % DSCPS] = 0;
        }
        map
    }

    /// When each queue has its turn: where others have a share, the queues of gradients have the
    /// rest, each before the ones below it.
    pub fn turns(&self) -> Vec<QueueTurn> {
        let last = self.queues.len().saturating_sub(1);
        let turns = (0..self.queues.len()).map(|queue| match (queue, self.others) {
            (0, _) | (_, None) => QueueTurn::Strict,
            (queue, Some(percent)) if queue == last => QueueTurn::Weighted {
                group: queue as u8,
                percent,
            },
            (_, Some(percent)) => QueueTurn::Weighted {
                group: 1,
                percent: 100 - percent,
            },
        });
        turns.collect()
    }

    /// Depth in bytes above which a queue of a port of this rate marks and drops; `u64::MAX` if it
    /// never does. K = share x rate x RTT, rounded down to a byte.
    pub fn marks_above(&self, queue: usize, rate: Rate) -> u64 {
        let share = self.queues.get(queue).and_then(|row| row.marks_above);
        share.map_or(u64::MAX, |share| share.of(self.bytes_per_rtt(rate)))
    }

    /// Rate x RTT in bytes, rounded down.
    pub fn bytes_per_rtt(&self, rate: Rate) -> u64 {
        bytes_during(self.rtt, rate)
    }
}

/// Bytes that a link of this rate carries in a time, rounded down.
pub(crate) fn bytes_during(span: Span, rate: Rate) -> u64 {
    let bits = u128::from(rate.as_bits_per_second()) * u128::from(span.as_picos());
    (bits / 8_000_000_000_000) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_its_queue_and_strangers_the_last() {
        let policy = QosPolicy::of_job(&Job::default(), Span::from_micros(14));
        let map = policy.queue_of_dscp();
        assert_eq!(
            [40, 34, 26, 18, 10, 8, 0].map(|dscp| map[dscp]),
            [0, 1, 2, 3, 4, 5, 6]
        );
        assert_eq!(map[63], 6);
    }

    #[test]
    fn others_have_their_share_and_gradients_the_rest() {
        let mut job = Job::default();
        let share = Share::new(0.3).expect("a share");
        job.priority.untagged = UntaggedTraffic::Weighted(share);
        let policy = QosPolicy::of_job(&job, Span::from_micros(14));
        let turn = |group, percent| QueueTurn::Weighted { group, percent };
        let gradients = [turn(1, 70); 5];
        let nested = [&[QueueTurn::Strict], &gradients[..], &[turn(6, 30)]].concat();
        assert_eq!(policy.turns(), nested);
        let drops = policy.queues.iter().map(|queue| queue.early_drop);
        let last = drops.enumerate().find(|(_, drop)| *drop == EarlyDrop::Off);
        assert_eq!(last, Some((6, EarlyDrop::Off)));
    }

    #[test]
    fn a_threshold_is_a_share_of_the_bandwidth_delay_product() {
        let policy = QosPolicy::of_job(&Job::default(), Span::from_micros(16));
        assert_eq!(policy.marks_above(1, Rate::from_gbps(100)), 200_000);
        assert_eq!(policy.marks_above(0, Rate::from_gbps(100)), u64::MAX);
    }
}
