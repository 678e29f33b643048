//! The seam between the protocol and its drivers.
//!
//! A [`Machine`] has no socket, clock, thread or randomness of its own.
//! A driver with sockets and a simulator with links call the same verbs. Implementors:
//! [`crate::endpoint::Endpoint`], whose payloads are lengths, and the communicator of
//! `gradwire-collectives`, whose payloads are ranges of tensors.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::message;
use crate::priority::SegmentTags;
use crate::units::{ByteCount, Class, Dscp, Entropy, Instant, Rank};
use crate::wire::{Flags, HEADER_BYTES, Header, SegmentCount, SegmentFields};

/// A participant of the protocol, driven from outside.
pub trait Machine {
    /// Takes packets that have arrived together. Their seals have been opened, or their checksums
    /// verified.
    fn handle_run(&mut self, now: Instant, run: &ArrivedRun<'_>);

    /// Takes a packet that has arrived alone: a run of one.
    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        self.handle_run(now, &ArrivedRun::from(datagram));
    }

    /// Takes the header of a DATA packet that a switch has cut instead of dropping it, so that its
    /// sender learns of the loss at once. No seal or checksum can prove such a header, so a driver
    /// hands it over only where the job asks for neither.
    fn handle_trimmed(&mut self, _now: Instant, _header: &Header) {}

    /// Acts on all timeouts up to `now`. Call it when [`Machine::poll_timeout`] has passed, and
    /// only after every packet that had arrived by `now` was handed over: otherwise a packet that
    /// waits in a socket would look lost. A call long after that time informs the machine that its
    /// host stood still.
    fn handle_timeout(&mut self, now: Instant);

    /// Informs the machine that this host's own kernel has dropped arrived packets before `now`.
    /// The network did not lose them, so the machine accepts no hole that they may have made. A
    /// driver asks its sockets before each [`Machine::handle_timeout`] of a machine that
    /// [tolerates](Machine::tolerates_loss) loss, since only such a machine accepts holes. A
    /// simulator never calls this, since its hosts drop no packets.
    fn handle_host_drops(&mut self, now: Instant);

    /// Whether the machine may accept holes. Otherwise it has every lost segment repaired.
    fn tolerates_loss(&self) -> bool;

    /// Takes back packets of a run that this host did not send, because a queue of its own was
    /// full. They were neither sent nor lost: the machine sends them later, also where it tolerates
    /// loss. A simulator whose hosts take every run never calls this.
    fn handle_unsent(&mut self, now: Instant, unsent: &UnsentRun);

    /// The next run of packets to send; `None` when there is none now. Call it until `None` after
    /// each of the other verbs, or until this host's own queues are full.
    fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_>>;

    /// When to call [`Machine::handle_timeout`] next; `None`: not before another packet arrives.
    fn poll_timeout(&self) -> Option<Instant>;

    /// The last call: no packet can be sent or received any more, for a reason in words. A machine
    /// on which no caller waits can ignore it.
    fn handle_end(&mut self, _now: Instant, _reason: &str) {}
}

/// The bytes after the header: the bytes themselves on a socket, only their number in the
/// simulator.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Payload<'a> {
    /// The bytes themselves.
    Bytes(&'a [u8]),
    /// Only how many there are.
    Length(usize),
}

impl<'a> Payload<'a> {
    /// How many bytes there are.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Length(length) => *length,
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The `length` bytes from `offset` on.
    ///
    /// # Panics
    /// When the payload is shorter.
    #[inline]
    pub fn part(&self, offset: usize, length: usize) -> Self {
        match self {
            Self::Bytes(bytes) => Payload::Bytes(&bytes[offset..offset + length]),
            Self::Length(whole) => {
                assert!(offset + length <= *whole, "a part lies inside its whole");
                Payload::Length(length)
            }
        }
    }

    /// The bytes, if the payload has any.
    #[inline]
    pub fn bytes(&self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Length(_) => None,
        }
    }
}

/// The two ECN bits of an IP header.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[repr(u8)]
pub enum Ecn {
    /// Droppable: a RED/ECN queue above its threshold drops it.
    NotEct = 0,
    /// Protected: a RED/ECN queue above its threshold marks it instead.
    Ect = 2,
    /// Marked by a queue on the way.
    Ce = 3,
}

impl Ecn {
    /// The meaning of the two bits as received; ECT(1) counts as ECT.
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NotEct,
            3 => Self::Ce,
            _ => Self::Ect,
        }
    }
}

/// A packet that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Its header.
    pub header: Header,
    /// The bytes after the header.
    pub payload: Payload<'a>,
    /// The ECN bits it arrived with.
    pub ecn: Ecn,
}

/// How many packets an [`ArrivedRun`] has, and how long their payloads are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RunLength {
    /// How many packets there are.
    pub packets: u32,
    /// Payload bytes of the last packet; the others have as many as the first.
    pub last: u16,
}

impl RunLength {
    /// The length of a run of one packet.
    pub fn of_one(header: &Header) -> Self {
        Self {
            packets: 1,
            last: header.length,
        }
    }

    /// Whether the packets behind the first, whose header is consistent, describe their message as
    /// this job cuts it, as that header does.
    pub(crate) fn is_consistent(self, first: &Header, segment_bytes: u32) -> bool {
        let ahead = self.packets - 1;
        let last = Header {
            segment: first.segment.saturating_add(ahead),
            length: self.last,
            ..*first
        };
        ahead > 0 && message::is_consistent(&last, segment_bytes)
    }

    /// The first `packets` of these packets; the run begins with one of `full` bytes.
    pub(crate) fn first(self, packets: u32, full: u16) -> Self {
        Self {
            packets,
            last: if packets == self.packets {
                self.last
            } else {
                full
            },
        }
    }
}

/// Packets that have arrived together: a packet, or the DATA of several segments that follow each
/// other, whose headers [continue](Header::continues) the first one's. All have the ECN bits of the
/// first. A socket hands over the packets that its kernel has joined, a simulated link single ones.
#[derive(Clone, Copy, Debug)]
pub struct ArrivedRun<'a> {
    /// The first packet.
    pub first: Datagram<'a>,
    /// How many packets there are.
    pub length: RunLength,
    /// The payloads.
    pub payloads: RunPayloads<'a>,
}

impl<'a> From<Datagram<'a>> for ArrivedRun<'a> {
    fn from(first: Datagram<'a>) -> Self {
        Self {
            length: RunLength::of_one(&first.header),
            payloads: RunPayloads::from(first.payload),
            first,
        }
    }
}

impl<'a> ArrivedRun<'a> {
    /// The packets from number `taken` on; `None` if there are none.
    pub fn after(&self, taken: u32) -> Option<Self> {
        let packets = self
            .length
            .packets
            .checked_sub(taken)
            .filter(|left| *left > 0)?;
        let (mut rest, header) = (*self, &self.first.header);
        rest.length.packets = packets;
        rest.payloads = self.payloads.after(taken);
        rest.first.header = Header {
            segment: header.segment + taken,
            number: header.number.plus(taken),
            length: match packets {
                1 => self.length.last,
                _ => header.length,
            },
            ..*header
        };
        rest.first.payload = rest.payloads.whole.part(0, rest.first.header.length.into());
        Some(rest)
    }
}

/// The payloads of an [`ArrivedRun`], at equal distances in the memory that a driver received into.
#[derive(Clone, Copy, Debug)]
pub struct RunPayloads<'a> {
    /// From the start of the first payload to the end of the last.
    whole: Payload<'a>,
    /// Payload bytes of each packet but the last.
    each: usize,
    /// Bytes from the start of a payload to the start of the next.
    apart: usize,
}

impl<'a> From<Payload<'a>> for RunPayloads<'a> {
    fn from(whole: Payload<'a>) -> Self {
        let bytes = whole.len().max(1);
        Self {
            whole,
            each: bytes,
            apart: bytes,
        }
    }
}

impl<'a> RunPayloads<'a> {
    /// Payloads of `each` bytes that start `apart` bytes after each other. The last one ends with
    /// `bytes`, and may be shorter.
    pub fn new(bytes: &'a [u8], each: u16, apart: usize) -> Self {
        let each = usize::from(each);
        Self {
            whole: Payload::Bytes(bytes),
            each,
            apart,
        }
    }

    fn after(&self, taken: u32) -> Self {
        let start = taken as usize * self.apart;
        Self {
            whole: self.whole.part(start, self.whole.len() - start),
            ..*self
        }
    }

    /// The payloads of the first `packets` packets, as bytes that are contiguous in the message;
    /// one number of bytes where payloads are only lengths.
    pub fn parts(&self, packets: u32) -> impl Iterator<Item = Payload<'a>> + Clone + use<'a> {
        let (whole, each, apart) = (self.whole, self.each, self.apart);
        let starts = (0..packets as usize).map(move |packet| packet * apart);
        starts.map(move |start| {
            let length = whole.len().saturating_sub(start).min(each);
            whole.part(start, length)
        })
    }
}

/// The maximum number of segments of one [`Transmit`], as many as one GSO send can carry.
pub const RUN_SEGMENTS_MAX: usize = 64;

/// Segments of a run that follow each other.
#[derive(Clone, Copy, Debug)]
struct RunPiece {
    first: u32,
    end: u32,
}

/// Which segments of a message a [`Transmit`] carries: up to [`RUN_SEGMENTS_MAX`] indices.
#[derive(Clone, Copy, Debug)]
pub struct SegmentRun {
    pieces: [RunPiece; RUN_SEGMENTS_MAX],
    /// How many pieces there are.
    count: usize,
    len: usize,
    repairs: usize,
}

impl Default for SegmentRun {
    fn default() -> Self {
        Self {
            pieces: [RunPiece { first: 0, end: 0 }; RUN_SEGMENTS_MAX],
            count: 0,
            len: 0,
            repairs: 0,
        }
    }
}

impl SegmentRun {
    /// The run of segment 0 alone. A control packet is sent as this run.
    pub const FIRST: Self = Self {
        pieces: [RunPiece { first: 0, end: 1 }; RUN_SEGMENTS_MAX],
        count: 1,
        len: 1,
        repairs: 0,
    };

    /// Makes it a run of no segments, to be filled again.
    pub fn clear(&mut self) {
        (self.count, self.len, self.repairs) = (0, 0, 0);
    }

    /// Appends a segment.
    ///
    /// # Panics
    /// When the run has [`RUN_SEGMENTS_MAX`] segments already.
    pub fn push(&mut self, segment: u32) {
        self.push_range(segment..segment + 1);
    }

    /// Appends segments that follow each other.
    ///
    /// # Panics
    /// When the run has more than [`RUN_SEGMENTS_MAX`] segments then.
    pub fn push_range(&mut self, segments: Range<u32>) {
        self.len += segments.len();
        assert!(self.len <= RUN_SEGMENTS_MAX, "a run has room for them");
        if let Some(last) = self.pieces[..self.count].last_mut()
            && last.end == segments.start
        {
            last.end = segments.end;
        } else if !segments.is_empty() {
            self.pieces[self.count] = RunPiece {
                first: segments.start,
                end: segments.end,
            };
            self.count += 1;
        }
    }

    /// Appends a segment that was sent before.
    ///
    /// # Panics
    /// When the run has [`RUN_SEGMENTS_MAX`] segments already, or one that was not sent before.
    pub fn push_repair(&mut self, segment: u32) {
        assert_eq!(self.repairs, self.len, "repairs stand first");
        self.push(segment);
        self.repairs += 1;
    }

    /// How many of its segments are sent again: its first ones.
    pub fn repairs(&self) -> usize {
        self.repairs
    }

    /// How many segments there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its segments as ranges, each as long as segments follow each other.
    pub fn ranges(&self) -> impl DoubleEndedIterator<Item = Range<u32>> {
        let pieces = self.pieces[..self.count].iter();
        pieces.map(|piece| piece.first..piece.end)
    }

    /// The segments, in the order of sending.
    pub fn segments(&self) -> impl Iterator<Item = u32> {
        self.ranges().flatten()
    }

    /// The segment of packet `index`.
    ///
    /// # Panics
    /// When there are no more segments than that.
    fn segment(&self, index: usize) -> u32 {
        let mut left = index;
        for range in self.ranges() {
            match left.checked_sub(range.len()) {
                Some(behind) => left = behind,
                None => return range.start + left as u32,
            }
        }
        panic!("packet {index} of a run of {}", self.len)
    }

    /// The last segment.
    pub fn last(&self) -> Option<u32> {
        let last = self.ranges().next_back();
        last.map(|range| range.end - 1)
    }

    /// The segments from packet `index` on, if they follow each other.
    fn range_from(&self, index: usize) -> Option<Range<u32>> {
        let last = self.ranges().next_back()?;
        let first = last.end.checked_sub((self.len - index) as u32)?;
        (first >= last.start).then_some(first..last.end)
    }
}

/// A run of packets to one peer: equal class, ECN and entropy, and equal sizes, of which the last
/// may be shorter. To a socket it is one GSO send, to a simulated link it is single packets. DATA,
/// SUM and TOTAL come in runs, other packets one by one.
#[derive(Clone, Debug)]
pub struct Transmit<'a> {
    /// The rank to send to.
    pub to: Rank,
    /// Traffic class of the packets.
    pub class: Class,
    /// DSCP of the packets.
    pub dscp: Dscp,
    /// ECN bits of the packets.
    pub ecn: Ecn,
    /// Path of the packets.
    pub entropy: Entropy,
    /// The fields that all headers have in common; for one packet see [`Transmit::header`].
    pub template: Header,
    /// The segments, one packet each; segment 0 for other packets than DATA.
    pub run: &'a SegmentRun,
    /// Payload bytes of every full segment of the message.
    pub segment_bytes: u32,
    /// Layers, magnitudes and protection of the message's segments; none for control packets.
    pub tags: Option<&'a SegmentTags>,
    /// The whole message for DATA, the whole body for other packets.
    pub message: Payload<'a>,
}

/// Packets of a run that were not handed over.
#[derive(Clone, Copy, Debug)]
pub struct UnsentRun {
    /// The rank that they go to.
    pub to: Rank,
    /// The fields that their headers have in common.
    pub template: Header,
    run: SegmentRun,
    first: usize,
}

impl UnsentRun {
    /// The first of them, counted from the start of their run.
    pub(crate) fn first(&self) -> usize {
        self.first
    }

    /// How many there are.
    pub fn packets(&self) -> usize {
        self.run.len() - self.first
    }

    /// Their segments; segment 0 for a control packet.
    pub fn segments(&self) -> impl Iterator<Item = u32> {
        self.run.segments().skip(self.first)
    }
}

impl<'a> Transmit<'a> {
    /// The packets from number `first` on, which were not handed over.
    ///
    /// # Panics
    /// When there are fewer packets than `first`.
    pub fn unsent_from(&self, first: usize) -> UnsentRun {
        assert!(first <= self.packets(), "a packet of the run, or its end");
        UnsentRun {
            to: self.to,
            template: self.template,
            run: *self.run,
            first,
        }
    }

    /// How many packets there are.
    pub fn packets(&self) -> usize {
        self.run.len()
    }

    /// The fields in which packet `index` differs from the template.
    fn fields(&self, index: usize) -> SegmentFields {
        match self.template.kind.comes_in_runs() {
            true => self.fields_of(index, self.run.segment(index)),
            false => SegmentFields::of(&self.template),
        }
    }

    /// The same of a run's packet, which carries this segment.
    fn fields_of(&self, index: usize, segment: u32) -> SegmentFields {
        let mut fields = SegmentFields::of(&self.template);
        if index < self.run.repairs() {
            fields.flags = fields.flags.with(Flags::REPAIR);
        }
        fields.count = self.count(index, segment);
        if let Some(tags) = self.tags {
            fields.layer = tags.layer(segment);
            fields.magnitude = tags.magnitude(segment);
            fields.parity = tags.parity_of(segment);
            if tags.is_protected(segment) {
                fields.flags = fields.flags.with(Flags::PROTECTED);
            }
        }
        fields
    }

    /// Of DATA, the fields of packet `index`, which carries this segment, that count up.
    #[inline]
    fn count(&self, index: usize, segment: u32) -> SegmentCount {
        let left = self.template.message_bytes - segment * self.segment_bytes;
        SegmentCount {
            segment,
            number: self.template.number.plus(index as u32),
            length: left.min(self.segment_bytes) as u16,
        }
    }

    /// The packet from which on the headers of the run only count up: its first one, or its first
    /// new one. Their number, if no headers do.
    fn counts_from(&self) -> usize {
        let (repairs, packets) = (self.run.repairs(), self.packets());
        let from = if repairs < packets { repairs } else { 0 };
        let range = self.run.range_from(from);
        let are_equal = |range: &Range<u32>| {
            let tags = self.tags.as_ref();
            tags.is_none_or(|tags| tags.are_equal(range.start, range.end - 1))
        };
        match range.filter(are_equal) {
            Some(_) if self.template.kind.comes_in_runs() => from,
            _ => packets,
        }
    }

    /// Header of packet `index`, checksum zero.
    pub fn header(&self, index: usize) -> Header {
        self.fields(index).filled_into(&self.template)
    }

    /// Bytes of packet `index`.
    pub fn packet_bytes(&self, index: usize) -> ByteCount {
        let length = match self.template.kind.comes_in_runs() {
            true => self.count(index, self.run.segment(index)).length,
            false => self.template.length,
        };
        ByteCount::new(HEADER_BYTES as u64 + u64::from(length))
    }

    /// The headers of the run as bytes.
    pub fn headers(&self) -> RunHeaders<'_, 'a> {
        let mut template = [0; HEADER_BYTES];
        let counts_from = self.counts_from();
        let first = self.fields(counts_from.min(self.packets() - 1));
        self.template.encode(&mut template);
        first.encode_into(&mut template);
        let apart = match self.template.kind.comes_in_runs() {
            true => self.run.segments().take(counts_from).collect(),
            false => SmallVec::new(),
        };
        RunHeaders {
            transmit: self,
            template,
            counts_from,
            apart,
            first: first.count,
        }
    }

    /// Payload of the packet with `header`, one of [`Transmit::header`]'s.
    pub fn payload(&self, header: &Header) -> Payload<'a> {
        self.payload_of(header.segment, header.length)
    }

    #[inline]
    fn payload_of(&self, segment: u32, length: u16) -> Payload<'a> {
        match self.template.kind.comes_in_runs() {
            true => {
                let offset = segment as usize * self.segment_bytes as usize;
                self.message.part(offset, usize::from(length))
            }
            false => self.message,
        }
    }
}

/// The headers of a [`Transmit`] as bytes.
#[derive(Debug)]
pub struct RunHeaders<'r, 'a> {
    transmit: &'r Transmit<'a>,
    /// A packet's header.
    template: [u8; HEADER_BYTES],
    /// From this packet on the others only count up from it.
    counts_from: usize,
    /// The segments of the packets before it: a search for each takes as long as a run has pieces.
    apart: SmallVec<[u32; RUN_SEGMENTS_MAX]>,
    /// The fields of that packet.
    first: SegmentCount,
}

impl<'a> RunHeaders<'_, 'a> {
    /// The rank to send to.
    #[inline]
    pub fn to(&self) -> Rank {
        self.transmit.to
    }

    /// Writes the header of packet `index` at the start of `out`, checksum zero; returns its
    /// payload.
    ///
    /// # Panics
    /// When `out` is shorter than a header.
    #[inline]
    pub fn write(&self, index: usize, out: &mut [u8]) -> Payload<'a> {
        let out = out
            .first_chunk_mut::<HEADER_BYTES>()
            .expect("the caller leaves room");
        *out = self.template;
        let Some(ahead) = index.checked_sub(self.counts_from) else {
            return self.write_fields(index, out);
        };
        // Only headers of a run count up.
        let Transmit {
            template,
            segment_bytes,
            message,
            ..
        } = self.transmit;
        let segment = self.first.segment + ahead as u32;
        let offset = segment * segment_bytes;
        let length = (template.message_bytes - offset).min(*segment_bytes);
        let count = SegmentCount {
            segment,
            number: self.first.number.plus(ahead as u32),
            length: length as u16,
        };
        count.encode_into(out);
        message.part(offset as usize, length as usize)
    }

    /// The general case of [`RunHeaders::write`], behind the template.
    fn write_fields(&self, index: usize, out: &mut [u8; HEADER_BYTES]) -> Payload<'a> {
        let fields = match self.apart.get(index) {
            Some(&segment) => self.transmit.fields_of(index, segment),
            None => self.transmit.fields(index),
        };
        fields.encode_into(out);
        let SegmentCount {
            segment, length, ..
        } = fields.count;
        self.transmit.payload_of(segment, length)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_run_has_what_was_pushed_one_by_one(
            repairs in prop::collection::vec(0..20_u32, 0..10),
            pushed in prop::collection::vec((0..20_u32, 0..10_u32), 0..6),
        ) {
            let (mut run, mut segments) = (SegmentRun::default(), Vec::new());
            for &segment in &repairs {
                run.push_repair(segment);
                segments.push(segment);
            }
            for (first, count) in pushed {
                run.push_range(first..first + count);
                segments.extend(first..first + count);
            }
            prop_assert_eq!(run.repairs(), repairs.len());
            prop_assert_eq!((run.len(), run.is_empty()), (segments.len(), segments.is_empty()));
            prop_assert_eq!(run.last(), segments.last().copied());
            let said: Vec<u32> = run.segments().collect();
            prop_assert_eq!(&said, &segments);
            let ranges = segments.chunk_by(|&one, &next| next == one + 1);
            let ranges = ranges.map(|range| range[0]..range[range.len() - 1] + 1);
            prop_assert!(run.ranges().eq(ranges));
            for (index, &segment) in segments.iter().enumerate() {
                prop_assert_eq!(run.segment(index), segment);
                let rest = &segments[index..];
                let follows = rest.windows(2).all(|pair| pair[1] == pair[0] + 1);
                let range = follows.then_some(segment..rest[rest.len() - 1] + 1);
                prop_assert_eq!(run.range_from(index), range);
            }
        }
    }
}
