//! The aggregator: a [`Machine`] that sums the packets of the members of many jobs.
//!
//! - Each packet is taken by its slot ([`super::slots`]): added, or answered, or dropped.
//! - The slots of a stream are its whole memory. The sum of a slot stays until a later packet takes
//!   the slot over, which happens only after every member has got it.
//! - A member is a pair of its own, so that no member speaks for another: the first packet binds it
//!   to a training job, and to a seat in each group.
//! - The aggregator drops and counts a packet that contradicts an earlier one. Members that get no
//!   answer end their sum without it.
//!
//! It has no timers: members repeat packets that have no answer.

use std::collections::{BTreeMap, VecDeque};

use gradwire_protocol::machine::{ArrivedRun, Machine, SegmentRun, Transmit, UnsentRun};
use gradwire_protocol::units::{Instant, JobId};
use gradwire_protocol::wire::{Flags, PacketKind};

use super::packets::{LeavingSums, SLOTS, SumHeader, SumPath, SumStream};
use super::slots::{SlotChange, SlotTable};
use super::{Contributors, PartialSum, TreePlace, TreeTier};
use crate::numbers::fixed_point::add_integers;

/// Streams of all jobs together.
const STREAMS_MAX: usize = 256;
/// Bytes of their slots.
const MEMORY_MAX: usize = 512 << 20;
/// Answers that may wait for one member: more than it can ask for at a time.
const ANSWERS_MAX: usize = 4 * SLOTS as usize;

/// An aggregator, and its members.
#[derive(Debug)]
pub struct AggregatorMachine {
    path: SumPath,
    members: BTreeMap<JobId, AggregatorMember>,
    streams: BTreeMap<SumStream, StreamSlots>,
    /// Members with answers, in turn.
    ready: VecDeque<JobId>,
    run: SegmentRun,
    counts: AggregatorCounts,
}

/// The counts of an aggregator.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct AggregatorCounts {
    /// Contributions that were added.
    pub added: u64,
    /// Sums that were complete.
    pub sums: u64,
    /// Contributions that had come before.
    pub repeated: u64,
    /// Packets that contradict earlier ones.
    pub refused: u64,
}

#[derive(Debug, Default)]
struct AggregatorMember {
    /// The training job and the epoch of its first packet.
    job: Option<(JobId, u16)>,
    answers: VecDeque<(SumStream, u32)>,
}

/// The slots of a stream, and their integers.
#[derive(Debug)]
struct StreamSlots {
    table: SlotTable,
    place: TreePlace,
    seats: Vec<Option<JobId>>,
    packet_bytes: u16,
    memory: Vec<u8>,
}

impl StreamSlots {
    fn new(header: &SumHeader) -> Self {
        let all = Contributors::all(usize::from(header.members));
        Self {
            table: SlotTable::new(SLOTS),
            place: TreePlace {
                below: all,
                direct: all,
                tier: TreeTier::Root,
            },
            seats: vec![None; usize::from(header.members)],
            packet_bytes: header.packet_bytes,
            memory: vec![0; SLOTS as usize * usize::from(header.packet_bytes)],
        }
    }

    /// Whether it has the sum of a packet.
    fn knows(&self, number: u32) -> bool {
        self.table.sum(number).who == self.place.below
    }

    /// Whether a packet may be of the member with this pair.
    fn fits(&self, header: &SumHeader, pair: JobId) -> bool {
        self.seats.len() == usize::from(header.members)
            && self.packet_bytes == header.packet_bytes
            && match self.seats[usize::from(header.seat)] {
                Some(one) => one == pair,
                None => !self.seats.contains(&Some(pair)),
            }
    }

    /// Adds a contribution to its slot.
    fn add(&mut self, header: &SumHeader, integers: &[u8]) -> SlotChange {
        let own = PartialSum::of(usize::from(header.seat));
        let change = (self.table).contribute(&self.place, header.number, own);
        let bytes = usize::from(self.packet_bytes);
        let at = self.table.place(header.number) * bytes;
        let sum = &mut self.memory[at..][..bytes];
        match change {
            SlotChange::Begun => sum.copy_from_slice(integers),
            SlotChange::Added => add_integers(sum, integers),
            _ => {}
        }
        change
    }
}

impl AggregatorMachine {
    /// An aggregator without members, whose packets leave by this path.
    pub fn new(path: SumPath) -> Self {
        Self {
            path,
            members: BTreeMap::new(),
            streams: BTreeMap::new(),
            ready: VecDeque::new(),
            run: SegmentRun::default(),
            counts: AggregatorCounts::default(),
        }
    }

    /// Takes a member, known by the job that it and the aggregator are.
    pub fn admit(&mut self, pair: JobId) {
        self.members.insert(pair, AggregatorMember::default());
    }

    /// Forgets a member, and the streams that have no other.
    pub fn forget(&mut self, pair: JobId) {
        self.members.remove(&pair);
        self.streams.retain(|_, stream| {
            let seats = stream.seats.iter_mut();
            seats.for_each(|seat| *seat = seat.filter(|one| *one != pair));
            stream.seats.iter().any(Option::is_some)
        });
    }

    /// Its counts.
    pub const fn counts(&self) -> AggregatorCounts {
        self.counts
    }

    /// The stream of a packet, if it may be of this member.
    fn stream_of(&mut self, header: &SumHeader, pair: JobId) -> Option<&mut StreamSlots> {
        let SumStream {
            job, epoch, group, ..
        } = header.stream;
        let member = self.members.get_mut(&pair)?;
        if *member.job.get_or_insert((job, epoch)) != (job, epoch) {
            return None;
        }
        if !self.streams.contains_key(&header.stream) {
            // The eras before are over: each rank has ended their sums.
            self.streams.retain(|stream, _| {
                (stream.job, stream.epoch, stream.group) != (job, epoch, group)
                    || stream.era > header.stream.era
            });
            let taken: usize = self.streams.values().map(|one| one.memory.len()).sum();
            let wanted = SLOTS as usize * usize::from(header.packet_bytes);
            if self.streams.len() == STREAMS_MAX || taken + wanted > MEMORY_MAX {
                return None;
            }
        }
        let stream = self.streams.entry(header.stream);
        let stream = stream.or_insert_with(|| StreamSlots::new(header));
        if !stream.fits(header, pair) {
            return None;
        }
        stream.seats[usize::from(header.seat)] = Some(pair);
        Some(stream)
    }

    fn take(&mut self, header: &SumHeader, pair: JobId, integers: &[u8]) {
        let Some(stream) = self.stream_of(header, pair) else {
            self.counts.refused += 1;
            return;
        };
        let change = stream.add(header, integers);
        let answered = match change {
            SlotChange::Begun | SlotChange::Added if stream.knows(header.number) => {
                stream.seats.iter().flatten().copied().collect()
            }
            SlotChange::Knows => vec![pair],
            _ => Vec::new(),
        };
        match change {
            SlotChange::Begun | SlotChange::Added => {
                self.counts.added += 1;
                self.counts.sums += u64::from(!answered.is_empty());
            }
            _ => self.counts.repeated += 1,
        }
        for pair in answered {
            self.answer(pair, header);
        }
    }

    fn answer(&mut self, pair: JobId, header: &SumHeader) {
        if let Some(member) = self.members.get_mut(&pair)
            && member.answers.len() < ANSWERS_MAX
        {
            if member.answers.is_empty() {
                self.ready.push_back(pair);
            }
            member.answers.push_back((header.stream, header.number));
        }
    }

    /// The next answers of any member that follow each other in memory, as a run.
    fn next_run(&mut self) -> Option<(JobId, SumStream, u32)> {
        while let Some(pair) = self.ready.pop_front() {
            let Some(member) = self.members.get_mut(&pair) else {
                continue;
            };
            let mut begun = None;
            self.run.clear();
            while let Some(&(stream, number)) = member.answers.front() {
                let slots = self.streams.get(&stream);
                let slots = slots.filter(|slots| slots.knows(number));
                let packets = self.run.len();
                if let (Some(slots), Some((same, first))) = (slots, begun) {
                    let follows = same == stream && number == first + packets as u32;
                    let is_full = packets == self.path.run_packets(slots.packet_bytes);
                    if is_full || !follows || number.is_multiple_of(SLOTS) {
                        break;
                    }
                }
                member.answers.pop_front();
                if slots.is_some() {
                    begun = begun.or(Some((stream, number)));
                    self.run.push(number % SLOTS);
                }
            }
            if !member.answers.is_empty() {
                self.ready.push_back(pair);
            }
            if let Some((stream, first)) = begun {
                return Some((pair, stream, first));
            }
        }
        None
    }
}

impl Machine for AggregatorMachine {
    fn handle_run(&mut self, _now: Instant, run: &ArrivedRun<'_>) {
        let header = &run.first.header;
        for (index, payload) in (0..).zip(run.payloads.parts(run.length.packets)) {
            let integers = payload.bytes().unwrap_or_default();
            let sum = SumHeader::read(header, index);
            let sum = sum.filter(|sum| integers.len() == usize::from(sum.packet_bytes));
            match sum.filter(|_| header.kind == PacketKind::Sum) {
                Some(sum) => self.take(&sum, header.job, integers),
                None => self.counts.refused += 1,
            }
        }
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn handle_host_drops(&mut self, _now: Instant) {}

    fn tolerates_loss(&self) -> bool {
        false
    }

    /// The members ask again.
    fn handle_unsent(&mut self, _now: Instant, _unsent: &UnsentRun) {}

    fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_>> {
        let (pair, stream, number) = self.next_run()?;
        let slots = self.streams.get(&stream).expect("it has just been asked");
        let seat = slots.seats.iter().position(|seat| *seat == Some(pair));
        let first = SumHeader {
            stream,
            number,
            seat: seat.unwrap_or_default() as u16,
            members: slots.seats.len() as u16,
            packet_bytes: slots.packet_bytes,
        };
        let sums = LeavingSums {
            kind: PacketKind::Total,
            flags: Flags::NONE,
            pair,
            first,
            run: &self.run,
            memory: &slots.memory,
        };
        Some(self.path.transmit(now, sums))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::job::Job;
    use gradwire_protocol::machine::{Datagram, Ecn, Payload};
    use gradwire_protocol::wire::Header;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    const BYTES: u16 = 16;

    fn header(seat: u16) -> SumHeader {
        SumHeader {
            stream: SumStream {
                job: JobId(1),
                epoch: 0,
                group: 0,
                era: 0,
            },
            number: 5,
            seat,
            members: 2,
            packet_bytes: BYTES,
        }
    }

    /// The header on the wire of a contribution.
    fn on_wire(sum: SumHeader, pair: JobId) -> Header {
        let mut run = SegmentRun::default();
        run.push(sum.number % SLOTS);
        let memory = vec![0; SLOTS as usize * usize::from(sum.packet_bytes)];
        let sums = LeavingSums {
            kind: PacketKind::Sum,
            flags: Flags::NONE,
            pair,
            first: sum,
            run: &run,
            memory: &memory,
        };
        let transmit = SumPath::of(&Job::default()).transmit(Instant::START, sums);
        transmit.header(0)
    }

    fn arrive(aggregator: &mut AggregatorMachine, header: Header, integers: &[u8]) {
        let datagram = Datagram {
            header,
            payload: Payload::Bytes(integers),
            ecn: Ecn::Ect,
        };
        aggregator.handle_datagram(Instant::START, datagram);
    }

    fn paired() -> AggregatorMachine {
        let mut aggregator = AggregatorMachine::new(SumPath::of(&Job::default()));
        (1..=3).for_each(|pair| aggregator.admit(JobId(pair)));
        aggregator
    }

    #[test]
    fn no_member_speaks_for_another() {
        let mut aggregator = paired();
        let integers = [0, 0, 0, 7].repeat(4);
        for (seat, pair, refused) in [(0, 1, 0), (0, 2, 1), (1, 1, 2), (1, 2, 2)] {
            let sum = on_wire(header(seat), JobId(pair));
            arrive(&mut aggregator, sum, &integers);
            assert_eq!(
                aggregator.counts().refused,
                refused,
                "seat {seat} of {pair}"
            );
        }
        assert_eq!(aggregator.counts().sums, 1);
        let other_job = SumHeader {
            stream: SumStream {
                job: JobId(9),
                ..header(0).stream
            },
            ..header(0)
        };
        let before = aggregator.counts().refused;
        arrive(&mut aggregator, on_wire(other_job, JobId(1)), &integers);
        arrive(&mut aggregator, on_wire(header(0), JobId(4)), &integers);
        assert_eq!(aggregator.counts().refused, before + 2);
    }

    #[test]
    fn foreign_bytes_take_bounded_memory() {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let mut aggregator = paired();
        for _ in 0..20_000 {
            let mut sum = header(random.random_range(0..2));
            if random.random_bool(0.5) {
                // The others fill the streams.
                sum.number = random.random_range(0..400);
                sum.stream.group = random.random_range(0..500);
                sum.stream.era = random.random_range(0..3);
            }
            let mut packet = [0; 64 + BYTES as usize];
            on_wire(sum, JobId(random.random_range(0..5))).encode(&mut packet);
            for _ in 0..random.random_range(0..3) {
                let at = random.random_range(2..packet.len());
                packet[at] = random.random();
            }
            if let Ok((header, integers)) = Header::decode(&packet) {
                arrive(&mut aggregator, header, integers);
            }
            if random.random_bool(0.1) {
                while aggregator.poll_transmit(Instant::START).is_some() {}
            }
            if random.random_bool(0.001) {
                let pair = JobId(random.random_range(1..4));
                aggregator.forget(pair);
                aggregator.admit(pair);
            }
            assert!(aggregator.streams.len() <= STREAMS_MAX);
            let waiting = aggregator.members.values().map(|one| one.answers.len());
            assert!(waiting.max() <= Some(ANSWERS_MAX));
        }
        assert!(aggregator.counts().sums > 0, "{:?}", aggregator.counts());
    }
}
