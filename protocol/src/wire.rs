//! The wire: one fixed header for every packet.
//!
//! ```text
//!  byte  0         1         2         3
//!     0  version   kind      flags     class         see VERSION, PacketKind, Flags
//!                                                    kind: low 4 bits, then EndedEarlier
//!                                                    class: low 3 bits, then the ParityLayout that
//!                                                    covers it, or 0
//!     4  job                                         u32, drawn by rank 0 at start
//!     8  epoch               source                  u16 membership epoch, u16 rank
//!    12  step                                        u32
//!    16  key (low)                                   u64: group 16, sequence 32, part 16
//!    20  key (high)
//!    24  message                                     u32, per directed pair of ranks; wraps
//!    28  segment                       signature     u24, index in the message; bits 0 to 7
//!    32  segments                      signature     u24, of the message; bits 8 to 15
//!    36  number                                      u32, of the packet on its path, or the report
//!    40  message bytes                               u32
//!    44  length              layer                   u16 bytes after the header, u16
//!    48  magnitude entropy   contributors            u8, u8, u16 ranks summed in this segment
//!    52  sent at                                     u32, microseconds of the sender's clock
//!    56  protected                     signature     u24, protected segments; bits 16 to 23
//!    60  checksum                                    u32, see below
//!    64  payload                                     `length` bytes
//!        seal                                        16 bytes, sealed packets only
//! ```
//!
//! The checksum is the CRC-32 of header (this field 0) and payload, or 0 when the job turns it off.
//! In a sealed packet it is the low 32 bits of the packet number, which counts every packet of a
//! directed pair of ranks; the payload is encrypted, and the tag covers the header, which travels
//! in clear, and the payload.
//!
//! The signature names the kind of the message's operation: 24 bits that the caller gives. The
//! receiver compares them with those that it posted, so that ranks which disagree find out from the
//! first packet.
//!
//! Little-endian, a header of 64 bytes. Every packet is self-describing: any order and any subset
//! is meaningful. A packet of another version or kind is counted and dropped, never answered.
//!
//! A message's sender speaks DATA, PARITY, PROBE, CLOSE and RESET, its receiver ACK, BITMAP, STOP,
//! REFUSE and TRIMMED. CLOSE, RESET, REFUSE and TRIMMED have no body. ACK, BITMAP and STOP carry a
//! [`SegmentReport`] after the header, and a bitmap ([`crate::bitmap`]); PROBE carries a
//! [`ProbeBody`]. PARITY carries the XOR of a group of segments ([`crate::parity`]), filled up with
//! zeros to the length of the message's first one; its `segment` is the group, `magnitude` the
//! number of segments in it, and `layer` the XOR of the low 16 bits of their indices.
//! [`crate::sender`] and [`crate::receiver`] decide when to send them.
//!
//! SUM and TOTAL belong to no message: a rank and an aggregator in the network exchange them. Their
//! payload is 32-bit integers, big-endian as switches compute; `segment` is the slot of the
//! aggregator, of `segments`, and `message` the round, so that packet round * segments + segment of
//! a group is in it. `step` is the training job, and the key its group, era and epoch. Of SUM,
//! `layer` is the seat of its sender in the group, and `contributors` the size of the group.

mod ended;
mod probe;
mod report;

use serde::{Deserialize, Serialize};

use crate::parity::ParityLayout;
use crate::units::{
    ByteCount, Class, Entropy, JobId, Layer, Magnitude, MessageId, MessageKey, PathNumber, Rank,
    Signature, Step,
};

pub use ended::EndedEarlier;
pub use probe::{HoleProof, PathMark, ProbeBody};
pub use report::{PASSED_MAX, REPORT_BYTES, SegmentReport};
pub(crate) use report::{bitmap_room, paths_named};

/// Bytes of the header of every packet.
pub const HEADER_BYTES: usize = 64;
/// The version that this code speaks.
pub const VERSION: u8 = 11;
/// Offset of the job, 32 bits.
pub const JOB_AT: usize = 4;
/// Offset of the membership epoch, 16 bits.
pub const EPOCH_AT: usize = 8;
/// Offset of the number of bytes after the header, 16 bits.
pub const LENGTH_AT: usize = 44;
/// Offset of the checksum in the header.
pub const CHECKSUM_AT: usize = 60;
/// The maximum number of segments of a message: counts and indices of segments have 24 bits.
pub const SEGMENTS_MAX: u32 = (1 << 24) - 1;
/// The bits of a kind in its byte.
const KIND_BITS: u8 = 4;
const KIND_MASK: u8 = (1 << KIND_BITS) - 1;
/// The bits of a class in its byte.
const CLASS_BITS: u8 = 3;
const CLASS_MASK: u8 = (1 << CLASS_BITS) - 1;
/// Bytes of the tag after the payload of a sealed packet.
pub const TAG_BYTES: usize = 16;

/// The purpose of a packet.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[repr(u8)]
pub enum PacketKind {
    /// A segment of a message.
    Data = 1,
    /// Sender to receiver: what is the state of this message? With [`Flags::ALL_SENT`]: every
    /// segment has been sent at least once.
    Probe = 2,
    /// Receiver to sender: these segments arrived, repair the others.
    Bitmap = 3,
    /// Receiver to sender: the message is complete; the body names the holes that were accepted.
    Stop = 4,
    /// Receiver to sender: these segments arrived so far.
    Ack = 5,
    /// Sender to receiver: STOP was heard. The receiver may forget the message, and the earlier
    /// ones that [`Header::ended`] names.
    Close = 6,
    /// Sender to receiver: the message is cancelled, forget it. REFUSE answers.
    Reset = 7,
    /// Receiver to sender: the message is forgotten here and will not be accepted.
    Refuse = 8,
    /// Sender to receiver: the XOR of a group of segments.
    Parity = 9,
    /// Rank to aggregator: a contribution to a sum in the network.
    Sum = 10,
    /// Aggregator to rank: the sum of all contributions.
    Total = 11,
    /// Receiver to sender: of the DATA packet with this segment and time stamp only the header has
    /// arrived, since a switch has cut it.
    Trimmed = 12,
}

impl PacketKind {
    /// Whether its payload is made of segments: of one, or of a group.
    pub fn has_segments(self) -> bool {
        matches!(self, Self::Data | Self::Parity)
    }

    /// Whether packets that follow each other may come as a run, whose headers count up.
    pub fn comes_in_runs(self) -> bool {
        matches!(self, Self::Data | Self::Sum | Self::Total)
    }

    /// Whether it may say which earlier messages have ended. The receiver heeds that in CLOSE, and
    /// in the packet that opens a message.
    fn says_ended(self) -> bool {
        use PacketKind::{Close, Data, Parity, Probe, Reset};
        matches!(self, Data | Parity | Probe | Close | Reset)
    }

    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Data,
            2 => Self::Probe,
            3 => Self::Bitmap,
            4 => Self::Stop,
            5 => Self::Ack,
            6 => Self::Close,
            7 => Self::Reset,
            8 => Self::Refuse,
            9 => Self::Parity,
            10 => Self::Sum,
            11 => Self::Total,
            12 => Self::Trimmed,
            _ => return None,
        })
    }
}

/// The flag bits of a packet.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct Flags(u8);

impl Flags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// This segment must arrive: it is repaired whatever the tolerance, and sent as ECT.
    pub const PROTECTED: Self = Self(1);
    /// This segment has been sent before.
    pub const REPAIR: Self = Self(2);
    /// On a PROBE: every segment of the message has been sent at least once.
    pub const ALL_SENT: Self = Self(4);
    /// On a PROBE: the paths of the holes that it names have passed them, which counts where paths
    /// keep order.
    pub const PASSED: Self = Self(32);
    /// On a PROBE: it only marks the end of its path, and needs no answer.
    pub const MARKER: Self = Self(8);
    /// On DATA: the window of its sender is full until an ACK comes (as IMMEDIATE_ACK of QUIC's ACK
    /// frequency).
    pub const IMMEDIATE_ACK: Self = Self(16);
    /// On a STOP: the receiver has not waited for the segments that it names as missing. Those that
    /// come later are not reported, so later packets that arrive prove no loss.
    pub const LATE: Self = Self(64);
    /// On a TRIMMED: the receiver will grant the segment again, so its repair waits for a grant.
    pub const REGRANTED: Self = Self(128);

    /// These flags and `other`'s.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other`'s flags are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The header of a packet, parsed. Drawn byte by byte at the top of this file.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Header {
    /// Its purpose.
    pub kind: PacketKind,
    /// Its flag bits.
    pub flags: Flags,
    /// Traffic class.
    pub class: Class,
    /// Of DATA, PARITY, PROBE, CLOSE and RESET, which earlier messages have ended.
    pub ended: EndedEarlier,
    /// Of DATA, the parity that covers its segment; of PARITY, its own.
    pub parity: Option<ParityLayout>,
    /// The job that the packet belongs to.
    pub job: JobId,
    /// Membership epoch of the job.
    pub epoch: u16,
    /// The rank that sent the packet.
    pub source: Rank,
    /// Training step of the message.
    pub step: Step,
    /// The receive that the message answers.
    pub key: MessageKey,
    /// Number of the message between its sender and its receiver.
    pub message: MessageId,
    /// The kind of the message's operation.
    pub signature: Signature,
    /// Index of the segment in the message, less than [`SEGMENTS_MAX`]. On a PROBE: how many were
    /// sent, or the last one's index when all were. Of PARITY, its group.
    pub segment: u32,
    /// Segments of the message, at most [`SEGMENTS_MAX`].
    pub segments: u32,
    /// Of DATA, PARITY and PROBE, the packet's number on its path. Of ACK, BITMAP and STOP, its
    /// number among the reports to this peer.
    pub number: PathNumber,
    /// Bytes of the whole message.
    pub message_bytes: u32,
    /// Bytes after the header.
    pub length: u16,
    /// Layer of the segment in forward order. Of PARITY, the XOR of its segments' indices.
    pub layer: Layer,
    /// Magnitude of the segment. Of PARITY, the number of its segments.
    pub magnitude: Magnitude,
    /// The path that the sender chose.
    pub entropy: Entropy,
    /// How many ranks' values are summed in this segment.
    pub contributors: u16,
    /// The sender's clock in microseconds, wrapped; echoed in acknowledgements.
    pub sent_at: u32,
    /// Protected segments of the message, at most [`SEGMENTS_MAX`].
    pub protected: u32,
    /// CRC-32 of the header with this field zero, then the payload; 0 when the job turns it off.
    /// Of a sealed packet, the low bits of its number.
    pub checksum: u32,
}

/// The fields in which the packets of a run differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentFields {
    pub(crate) flags: Flags,
    pub(crate) parity: Option<ParityLayout>,
    pub(crate) count: SegmentCount,
    pub(crate) layer: Layer,
    pub(crate) magnitude: Magnitude,
}

/// The fields that count up in a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentCount {
    pub(crate) segment: u32,
    pub(crate) number: PathNumber,
    pub(crate) length: u16,
}

impl SegmentFields {
    /// Those of a header.
    pub(crate) fn of(header: &Header) -> Self {
        Self {
            flags: header.flags,
            parity: header.parity,
            count: SegmentCount {
                segment: header.segment,
                number: header.number,
                length: header.length,
            },
            layer: header.layer,
            magnitude: header.magnitude,
        }
    }

    /// The header with these fields, and all others as in `template`.
    pub(crate) fn filled_into(self, template: &Header) -> Header {
        Header {
            flags: self.flags,
            parity: self.parity,
            segment: self.count.segment,
            number: self.count.number,
            length: self.count.length,
            layer: self.layer,
            magnitude: self.magnitude,
            ..*template
        }
    }

    /// Writes them into an encoded header.
    pub(crate) fn encode_into(self, out: &mut [u8; HEADER_BYTES]) {
        out[2] = self.flags.0;
        out[3] = out[3] & CLASS_MASK | ParityLayout::to_bits(self.parity) << CLASS_BITS;
        put16(out, 46, self.layer.0);
        out[48] = self.magnitude.0;
        self.count.encode_into(out);
    }
}

impl SegmentCount {
    /// Writes them into an encoded header.
    #[inline]
    pub(crate) fn encode_into(self, out: &mut [u8; HEADER_BYTES]) {
        let signature = out[31];
        put24(out, 28, self.segment, signature);
        put32(out, 36, self.number.0);
        put16(out, LENGTH_AT, self.length);
    }
}

/// Why bytes are not a packet of ours.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DecodeError {
    /// Fewer bytes than a header has.
    #[error("{0} bytes are shorter than the header of {HEADER_BYTES} bytes")]
    Short(usize),
    /// Another version of the protocol, or not a packet of gradwire at all.
    #[error("version {0}, this build speaks version {VERSION}")]
    Version(u8),
    /// A kind that this version does not have.
    #[error("packet kind {0}, known are 1 to 12")]
    Kind(u8),
    /// The length field disagrees with the datagram.
    #[error("the header announces {said} bytes after it, but {present} follow")]
    Length {
        /// As the header says.
        said: usize,
        /// As the datagram has.
        present: usize,
    },
    /// A segment, or a slot, is outside of those that the packet counts.
    #[error("segment {segment} is outside its message of {segments} segments")]
    Segment {
        /// Index of the segment.
        segment: u32,
        /// Segments of the message.
        segments: u32,
    },
}

impl Header {
    /// Writes the header into the first [`HEADER_BYTES`] of `out`.
    ///
    /// # Panics
    /// When `out` is shorter than a header: the caller sizes the buffer.
    pub fn encode(&self, out: &mut [u8]) {
        let out = out
            .first_chunk_mut::<HEADER_BYTES>()
            .expect("the caller leaves room");
        // An answer is made from the header that it answers, and says nothing of its own messages.
        let ended = match self.kind.says_ended() {
            true => self.ended,
            false => EndedEarlier::NOT_SAID,
        };
        out[0] = VERSION;
        out[1] = self.kind as u8 | ended.to_bits() << KIND_BITS;
        out[2] = self.flags.0;
        out[3] = self.class.0 | ParityLayout::to_bits(self.parity) << CLASS_BITS;
        put32(out, JOB_AT, self.job.0);
        put16(out, EPOCH_AT, self.epoch);
        put16(out, 10, self.source.0);
        put32(out, 12, self.step.0);
        put32(out, 16, self.key.0 as u32);
        put32(out, 20, (self.key.0 >> 32) as u32);
        put32(out, 24, self.message.0);
        let [low, middle, high] = self.signature.to_bytes();
        put24(out, 28, self.segment, low);
        put24(out, 32, self.segments, middle);
        put32(out, 36, self.number.0);
        put32(out, 40, self.message_bytes);
        put16(out, LENGTH_AT, self.length);
        put16(out, 46, self.layer.0);
        out[48] = self.magnitude.0;
        out[49] = self.entropy.0;
        put16(out, 50, self.contributors);
        put32(out, 52, self.sent_at);
        put24(out, 56, self.protected, high);
        put32(out, CHECKSUM_AT, self.checksum);
    }

    /// Reads a datagram without its tag: its header, and the payload that follows.
    ///
    /// # Errors
    /// [`DecodeError`] for anything that is not a whole packet of this version. The driver verifies
    /// checksum and tag; the receiver checks whether the packet fits a message.
    pub fn decode(datagram: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        let Some((bytes, payload)) = datagram.split_first_chunk::<HEADER_BYTES>() else {
            return Err(DecodeError::Short(datagram.len()));
        };
        if bytes[0] != VERSION {
            return Err(DecodeError::Version(bytes[0]));
        }
        let ended = EndedEarlier::from_bits(bytes[1] >> KIND_BITS);
        let kind = PacketKind::from_byte(bytes[1] & KIND_MASK)
            .filter(|kind| ended == EndedEarlier::NOT_SAID || kind.says_ended())
            .ok_or(DecodeError::Kind(bytes[1]))?;
        let header = Self {
            kind,
            flags: Flags(bytes[2]),
            class: Class(bytes[3] & CLASS_MASK),
            ended,
            parity: ParityLayout::from_bits(bytes[3] >> CLASS_BITS),
            job: JobId(get32(bytes, 4)),
            epoch: get16(bytes, 8),
            source: Rank(get16(bytes, 10)),
            step: Step(get32(bytes, 12)),
            key: MessageKey(get64(bytes, 16)),
            message: MessageId(get32(bytes, 24)),
            signature: Signature::from_bytes([bytes[31], bytes[35], bytes[59]]),
            segment: get24(bytes, 28),
            segments: get24(bytes, 32),
            number: PathNumber(get32(bytes, 36)),
            message_bytes: get32(bytes, 40),
            length: get16(bytes, LENGTH_AT),
            layer: Layer(get16(bytes, 46)),
            magnitude: Magnitude(bytes[48]),
            entropy: Entropy(bytes[49]),
            contributors: get16(bytes, 50),
            sent_at: get32(bytes, 52),
            protected: get24(bytes, 56),
            checksum: get32(bytes, CHECKSUM_AT),
        };
        header.checked(payload.len())?;
        Ok((header, payload))
    }

    /// Whether `later` is the header of packet `index` of the run of DATA that begins with `first`:
    /// it has the next segment and the next number of its path, and apart from them differs only in
    /// length, layer, magnitude and checksum.
    #[inline]
    pub fn continues(first: &[u8; HEADER_BYTES], index: u32, later: &[u8; HEADER_BYTES]) -> bool {
        let differ =
            |at: usize, ahead: u64| get64(first, at).wrapping_add(ahead) ^ get64(later, at);
        let (counted, low) = (u64::from(index) << 32, u64::from(u32::MAX));
        let alike = differ(0, 0) | differ(8, 0) | differ(16, 0);
        let counts = differ(24, counted) | differ(32, counted);
        let rest = differ(40, 0) & low | differ(48, 0) & !0xFF | differ(56, 0) & low;
        alike | counts | rest == 0
    }

    /// The job and the source that a datagram names; `None` if it is shorter than a header. Reads
    /// no other field.
    pub fn origin(datagram: &[u8]) -> Option<(JobId, Rank)> {
        let bytes = datagram.first_chunk::<HEADER_BYTES>()?;
        Some((JobId(get32(bytes, JOB_AT)), Rank(get16(bytes, 10))))
    }

    fn checked(&self, present: usize) -> Result<(), DecodeError> {
        let said = usize::from(self.length);
        if said != present {
            return Err(DecodeError::Length { said, present });
        }
        if self.kind.comes_in_runs() && self.segment >= self.segments {
            let (segment, segments) = (self.segment, self.segments);
            return Err(DecodeError::Segment { segment, segments });
        }
        Ok(())
    }

    /// Of a PROBE, how many segments of the message were sent.
    pub(crate) fn sent_segments(&self) -> u32 {
        match self.flags.has(Flags::ALL_SENT) {
            true => self.segments,
            false => self.segment,
        }
    }

    /// Bytes of the whole packet.
    pub fn packet_bytes(&self) -> ByteCount {
        ByteCount::new(HEADER_BYTES as u64 + u64::from(self.length))
    }
}

/// Whether time stamp `a` is later than `b`, both of one wrapping clock.
pub(crate) fn is_later(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}

#[inline]
fn put16(out: &mut [u8], at: usize, value: u16) {
    *out[at..].first_chunk_mut().expect("within the header") = value.to_le_bytes();
}

#[inline]
fn put32(out: &mut [u8], at: usize, value: u32) {
    *out[at..].first_chunk_mut().expect("within the header") = value.to_le_bytes();
}

/// Writes 24 bits and, after them, a byte of the signature.
#[inline]
fn put24(out: &mut [u8], at: usize, value: u32, behind: u8) {
    debug_assert!(value <= SEGMENTS_MAX, "a message is cut to fewer segments");
    put32(out, at, value & SEGMENTS_MAX | u32::from(behind) << 24);
}

fn get16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn get24(bytes: &[u8], at: usize) -> u32 {
    get32(bytes, at) & SEGMENTS_MAX
}

#[inline]
fn get64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("within the header"))
}

fn get32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_program_parses_this_version() {
        let program = include_str!("../../deploy/p4/aggregator.p4");
        let kinds = [PacketKind::Sum, PacketKind::Total].map(|kind| kind as u8);
        for (name, value) in [("VERSION", VERSION), ("SUM", kinds[0]), ("TOTAL", kinds[1])] {
            let wanted = format!("const bit<8> {name} = {value};");
            assert!(program.contains(&wanted), "{wanted}");
        }
    }

    fn header() -> Header {
        Header {
            kind: PacketKind::Data,
            flags: Flags::PROTECTED.with(Flags::REPAIR),
            class: Class(3),
            ended: EndedEarlier::from_bits(2),
            parity: ParityLayout::from_bits(9),
            job: JobId(0xDEAD_BEEF),
            epoch: 5,
            source: Rank(7),
            step: Step(11),
            key: MessageKey::new(1, 2, 3),
            message: MessageId(13),
            signature: Signature::new(0x00AB_CDEF).expect("24 bits"),
            segment: 1,
            segments: 2,
            number: PathNumber(4),
            message_bytes: 8,
            length: 4,
            layer: Layer(17),
            magnitude: Magnitude(19),
            entropy: Entropy(23),
            contributors: 29,
            sent_at: 31,
            protected: 1,
            checksum: 37,
        }
    }

    #[test]
    fn a_header_survives_the_wire() {
        let mut packet = [0; HEADER_BYTES + 4];
        header().encode(&mut packet);
        let (decoded, payload) = Header::decode(&packet).expect("a whole packet");
        assert_eq!((decoded, payload.len()), (header(), 4));
        let origin = Header::origin(&packet);
        assert_eq!(origin, Some((header().job, header().source)));
        assert_eq!(Header::origin(&packet[..63]), None);
    }

    #[test]
    fn an_answer_says_nothing_of_ended_messages() {
        let mut packet = [0; HEADER_BYTES + 4];
        let kind = PacketKind::Stop;
        Header { kind, ..header() }.encode(&mut packet);
        let decoded = Header::decode(&packet).map(|(header, _)| (header.kind, header.ended));
        assert_eq!(decoded, Ok((kind, EndedEarlier::NOT_SAID)));
    }

    #[test]
    fn the_signature_fills_top_bytes_of_segment_counts() {
        let largest = Header {
            segment: SEGMENTS_MAX - 1,
            segments: SEGMENTS_MAX,
            protected: SEGMENTS_MAX,
            ..header()
        };
        let mut packet = [0; HEADER_BYTES + 4];
        largest.encode(&mut packet);
        assert_eq!([packet[31], packet[35], packet[59]], [0xEF, 0xCD, 0xAB]);
        let decoded = Header::decode(&packet).map(|(header, _)| header);
        assert_eq!(decoded, Ok(largest));
    }

    #[test]
    fn a_packet_continues_its_run_only_by_counting_up() {
        let encoded = |header: Header| {
            let mut bytes = [0; HEADER_BYTES];
            header.encode(&mut bytes);
            bytes
        };
        let first = encoded(Header {
            number: PathNumber(u32::MAX),
            segments: 9,
            ..header()
        });
        let next = encoded(Header {
            segment: 4,
            segments: 9,
            number: PathNumber(2),
            length: 3,
            layer: Layer(18),
            magnitude: Magnitude(20),
            checksum: 38,
            ..header()
        });
        assert!(Header::continues(&first, 3, &next));
        assert!(!Header::continues(&first, 2, &next));
        let free = [44, 45, 46, 47, 48, 60, 61, 62, 63];
        for at in 0..HEADER_BYTES {
            let mut other = next;
            other[at] ^= 0x10;
            assert_eq!(
                Header::continues(&first, 3, &other),
                free.contains(&at),
                "byte {at}"
            );
        }
    }

    #[test]
    fn foreign_bytes_are_refused_with_the_reason() {
        let mut packet = [0; HEADER_BYTES + 4];
        header().encode(&mut packet);
        assert_eq!(Header::decode(&packet[..63]), Err(DecodeError::Short(63)));
        let said_not_present = DecodeError::Length {
            said: 4,
            present: 3,
        };
        assert_eq!(Header::decode(&packet[..67]), Err(said_not_present));
        packet[1] = 13;
        assert_eq!(Header::decode(&packet), Err(DecodeError::Kind(13)));
        packet[1] = PacketKind::Stop as u8 | 1 << KIND_BITS;
        assert_eq!(Header::decode(&packet), Err(DecodeError::Kind(packet[1])));
        packet[0] = 1;
        assert_eq!(Header::decode(&packet), Err(DecodeError::Version(1)));
    }

    #[test]
    fn a_segment_outside_its_message_is_refused() {
        let mut packet = [0; HEADER_BYTES + 4];
        Header {
            segment: 2,
            ..header()
        }
        .encode(&mut packet);
        assert!(matches!(
            Header::decode(&packet),
            Err(DecodeError::Segment { .. })
        ));
    }
}
