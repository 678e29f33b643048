//! The packets of sums on the wire: the meaning of header fields, and how packets leave.
//!
//! - A rank and an aggregator are a job of two: the rank is [`MEMBER`], the aggregator
//!   [`AGGREGATOR`]. So each pair has keys of its own.
//! - Packet number n of a [`SumStream`] is in slot n % [`SLOTS`], in round n / [`SLOTS`].
//! - Every packet is full: the integers behind a tensor's end are zero.

use gradwire_protocol::job::Job;
use gradwire_protocol::machine::{Ecn, Payload, SegmentRun, Transmit};
use gradwire_protocol::priority::MessageShape;
use gradwire_protocol::settings;
use gradwire_protocol::units::{
    Class, Dscp, Entropy, Instant, JobId, Layer, Magnitude, MessageId, MessageKey, PathNumber,
    Rank, Signature, Step,
};
use gradwire_protocol::wire::{EndedEarlier, Flags, Header, PacketKind};

use super::MEMBERS_MAX;

/// The rank of a member in the job that it has with the aggregator.
pub const MEMBER: Rank = Rank(0);
/// The rank of the aggregator there.
pub const AGGREGATOR: Rank = Rank(1);
/// Slots of a stream. A member has at most half as many packets in flight.
pub const SLOTS: u32 = 128;
/// The most packets of a member in flight. A smaller window must be a part of this one by a whole
/// number: then a packet waits for the one that had its slot before.
pub const WINDOW_MAX: u32 = SLOTS / 2;

/// The sums of one group of ranks.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct SumStream {
    /// The training job.
    pub job: JobId,
    /// Its membership epoch.
    pub epoch: u16,
    /// The group.
    pub group: u16,
    /// Counts up when packet numbers are used up.
    pub era: u32,
}

/// The meaning of a header of a sum.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SumHeader {
    /// Whose sums.
    pub stream: SumStream,
    /// Number of the packet.
    pub number: u32,
    /// The seat of the member that sends it or gets it.
    pub seat: u16,
    /// How many members are summed.
    pub members: u16,
    /// Bytes of every packet.
    pub packet_bytes: u16,
}

impl SumHeader {
    /// Reads packet `index` of a run that begins with this header; `None` if it is not what any
    /// member or aggregator sends.
    pub fn read(first: &Header, index: u32) -> Option<Self> {
        let slot = first.segment.checked_add(index)?;
        let number = u64::from(first.message.0) * u64::from(SLOTS) + u64::from(slot);
        let (key, members) = (first.key.0, first.contributors);
        let is_sound = first.segments == SLOTS
            && slot < SLOTS
            && first.length > 0
            && first.length.is_multiple_of(4)
            && first.message_bytes == SLOTS * u32::from(first.length)
            && (2..=MEMBERS_MAX as u16).contains(&members)
            && first.layer.0 < members;
        let stream = SumStream {
            job: JobId(first.step.0),
            epoch: key as u16,
            group: (key >> 48) as u16,
            era: (key >> 16) as u32,
        };
        is_sound.then_some(Self {
            stream,
            number: u32::try_from(number).ok()?,
            seat: first.layer.0,
            members,
            packet_bytes: first.length,
        })
    }
}

/// How packets of sums leave a process: the tags and the paths of its job.
#[derive(Clone, Debug)]
pub struct SumPath {
    job: Job,
    class: Class,
    dscp: Dscp,
    ecn: Ecn,
    sent: u32,
}

/// A run of packets: their first header, and their memory.
#[derive(Debug)]
pub(super) struct LeavingSums<'a> {
    pub(super) kind: PacketKind,
    pub(super) flags: Flags,
    /// The job of member and aggregator.
    pub(super) pair: JobId,
    pub(super) first: SumHeader,
    /// The slots.
    pub(super) run: &'a SegmentRun,
    /// All slots, one after the other.
    pub(super) memory: &'a [u8],
}

impl SumPath {
    /// The packets of a job.
    pub fn of(job: &Job) -> Self {
        let policy = job.policy();
        let shape = MessageShape {
            segments: 1,
            layer_count: 0,
        };
        let (class, ecn) = policy.lossless(shape, &[]).class_and_ecn(&policy, 0);
        Self {
            job: job.clone(),
            class,
            dscp: policy.dscp_of(class, ecn),
            ecn,
            sent: 0,
        }
    }

    /// Most packets of a run.
    pub(super) fn run_packets(&self, packet_bytes: u16) -> usize {
        settings::run_segments(&self.job, u32::from(packet_bytes))
    }

    /// The next path, of all in turn.
    pub(super) fn transmit<'a>(&mut self, now: Instant, sums: LeavingSums<'a>) -> Transmit<'a> {
        let (first, packets) = (sums.first, sums.run.len() as u32);
        let number = PathNumber(self.sent);
        self.sent = self.sent.wrapping_add(packets);
        let SumStream {
            job,
            epoch,
            group,
            era,
        } = first.stream;
        let entropy = Entropy((number.0 % u32::from(self.job.transport.entropies)) as u8);
        let (to, source) = match sums.kind {
            PacketKind::Sum => (AGGREGATOR, MEMBER),
            _ => (MEMBER, AGGREGATOR),
        };
        let packet_bytes = u32::from(first.packet_bytes);
        let template = Header {
            kind: sums.kind,
            flags: sums.flags,
            class: self.class,
            ended: EndedEarlier::NOT_SAID,
            parity: None,
            job: sums.pair,
            epoch: 0,
            source,
            step: Step(job.0),
            key: MessageKey::new(group, era, epoch),
            message: MessageId(first.number / SLOTS),
            signature: Signature::NONE,
            segment: first.number % SLOTS,
            segments: SLOTS,
            number,
            message_bytes: SLOTS * packet_bytes,
            length: first.packet_bytes,
            layer: Layer(first.seat),
            magnitude: Magnitude::default(),
            entropy,
            contributors: first.members,
            sent_at: now.wire_micros(),
            protected: 0,
            checksum: 0,
        };
        Transmit {
            to,
            class: self.class,
            dscp: self.dscp,
            ecn: self.ecn,
            entropy,
            template,
            run: sums.run,
            segment_bytes: packet_bytes,
            tags: None,
            message: Payload::Bytes(sums.memory),
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn headers_say_what_was_written() {
        let mut path = SumPath::of(&Job::default());
        let mut random = ChaCha8Rng::seed_from_u64(1);
        for _ in 0..1_000 {
            let members = random.random_range(2..=MEMBERS_MAX as u16);
            let first = SumHeader {
                stream: SumStream {
                    job: JobId(random.random()),
                    epoch: random.random(),
                    group: random.random(),
                    era: random.random(),
                },
                number: random.random(),
                seat: random.random_range(0..members),
                members,
                packet_bytes: random.random_range(1..=300) * 4,
            };
            let mut run = SegmentRun::default();
            let slots = first.number % SLOTS..SLOTS.min(first.number % SLOTS + 5);
            slots.for_each(|slot| run.push(slot));
            let memory = vec![0; SLOTS as usize * usize::from(first.packet_bytes)];
            let sums = LeavingSums {
                kind: PacketKind::Sum,
                flags: Flags::NONE,
                pair: JobId(7),
                first,
                run: &run,
                memory: &memory,
            };
            let transmit = path.transmit(Instant::START, sums);
            let mut encoded = [0; 64];
            transmit.header(0).encode(&mut encoded);
            for index in 0..transmit.packets() {
                let wanted = SumHeader {
                    number: first.number + index as u32,
                    ..first
                };
                let mut packet = vec![0; 64 + usize::from(first.packet_bytes)];
                transmit.header(index).encode(&mut packet);
                let (header, _) = Header::decode(&packet).expect("it is a packet");
                assert_eq!(SumHeader::read(&header, 0), Some(wanted));
                let start = transmit.header(0);
                assert_eq!(SumHeader::read(&start, index as u32), Some(wanted));
                let later = packet.first_chunk().expect("it has a header");
                assert!(Header::continues(&encoded, index as u32, later));
            }
        }
    }

    #[test]
    fn no_header_of_foreign_bytes_is_believed() {
        let mut random = ChaCha8Rng::seed_from_u64(2);
        for _ in 0..20_000 {
            let mut packet: [u8; 68] = random.random();
            (packet[0], packet[1]) = (7, 10 + packet[1] % 2);
            packet[44..46].copy_from_slice(&[4, 0]);
            if random.random() {
                packet[32..35].copy_from_slice(&[SLOTS as u8, 0, 0]);
                packet[40..44].copy_from_slice(&(SLOTS * 4).to_le_bytes());
                (packet[29], packet[30], packet[51]) = (0, 0, 0);
            }
            let Ok((header, _)) = Header::decode(&packet) else {
                continue;
            };
            for index in [0, 1, 127, u32::MAX] {
                if let Some(read) = SumHeader::read(&header, index) {
                    assert!(read.seat < read.members, "{read:?}");
                    assert!(usize::from(read.members) <= MEMBERS_MAX, "{read:?}");
                    assert_eq!(read.packet_bytes % 4, 0, "{read:?}");
                }
            }
        }
    }
}
