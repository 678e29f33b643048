//! A probe and its answer, byte by byte. Numbers are little-endian.
//!
//! ```text
//!  at  bytes  probe                         answer
//!   0      4  "GWDR"                        the same
//!   4      1  version, 1                    the same
//!   5      1  kind                          kind + 128
//!   6      1  1: answer as part of a run    traffic class that the probe arrived with
//!   7      1  traffic class of the answer,  1: the kernel refused to send a run
//!             of TAGGED the probe's own
//!   8      8  session; of HELLO a nonce     the same
//!  16      4  sequence; of REPORT an offset the same
//!             of TAGGED a stream; of TALLY
//!             one, and questions so far x 2^16
//!  20      4  bytes of the answer at most   COUNT probes so far; of REPORT its length
//!  24      4  zero                          packets that the server's kernel dropped so far
//!  28      2  zero                          packets in the super-packet that the probe came in
//!  30      2  zero                          MTU that ICMP told the server about this client
//!  32      8  of TAGGED the sender's clock  wall clock of the server, nanoseconds since 1970
//!  40         zero                          HELLO: session 8, MTU 4, ports 8 x 2; REPORT: text;
//!                                           TALLY: 7 x 4, in the order of `tally::Tally`
//! ```
//!
//! TAGGED has no answer.
//!
//! Every probe has at least [`PROBE_BYTES`], so that any answer fits into the bytes that were
//! received.

use super::tally::StreamTally;

/// Sockets of a client and of a server, each with a port of its own, as a rank has by default.
pub const SOCKETS: usize = 8;
/// Bytes of the smallest probe, and of any answer but a report's.
pub(super) const PROBE_BYTES: usize = 68;
/// Where the text of a report starts.
const TEXT_AT: usize = 40;
const MAGIC: [u8; 4] = *b"GWDR";
const VERSION: u8 = 1;
const ANSWER: u8 = 128;

/// The kinds of probes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(super) enum ProbeKind {
    /// Opens a session and asks for the other ports of the server.
    Hello = 0,
    /// Asks for an answer.
    Echo = 1,
    /// Asks for an answer, and is counted.
    Count = 2,
    /// Asks for a piece of the findings of the server's own host.
    Report = 3,
    /// Gets no answer, but is counted with its tags and its time.
    Tagged = 4,
    /// Asks for the counts of a stream of TAGGED.
    Tally = 5,
}

/// The form of the answers to probes that arrive together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum AnswerForm {
    /// One by one.
    Single,
    /// As one run.
    Run,
}

/// A probe.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ProbePacket {
    pub(super) kind: ProbeKind,
    pub(super) form: AnswerForm,
    pub(super) answer_class: u8,
    pub(super) session: u64,
    pub(super) sequence: u32,
    pub(super) answer_bytes: u32,
    /// Of TAGGED: the time of sending, by an estimate of the server's clock.
    pub(super) stamp_ns: u64,
}

/// The additional fields of an answer to HELLO.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct ProbeWelcome {
    pub(super) session: u64,
    /// MTU of the server's interface; 0 if unknown.
    pub(super) mtu: u32,
    /// Its ports; 0 for none.
    pub(super) ports: [u16; SOCKETS],
}

/// An answer without the text of a report.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ProbeAnswer {
    pub(super) kind: ProbeKind,
    pub(super) seen_class: u8,
    pub(super) run_refused: u8,
    pub(super) session: u64,
    pub(super) sequence: u32,
    pub(super) counted: u32,
    pub(super) kernel_drops: u32,
    pub(super) seen_run: u16,
    pub(super) told_mtu: u16,
    pub(super) wall_ns: u64,
    pub(super) welcome: ProbeWelcome,
    /// Of TALLY.
    pub(super) tally: StreamTally,
}

impl ProbeKind {
    fn of(byte: u8) -> Option<Self> {
        let all = [
            Self::Hello,
            Self::Echo,
            Self::Count,
            Self::Report,
            Self::Tagged,
            Self::Tally,
        ];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

impl ProbePacket {
    /// Writes the probe into the first bytes of `out`, at least [`PROBE_BYTES`].
    pub(super) fn encode(&self, out: &mut [u8]) {
        out[..PROBE_BYTES].fill(0);
        opening(out, self.kind as u8);
        out[6] = u8::from(self.form == AnswerForm::Run);
        out[7] = self.answer_class;
        out[8..16].copy_from_slice(&self.session.to_le_bytes());
        out[16..20].copy_from_slice(&self.sequence.to_le_bytes());
        out[20..24].copy_from_slice(&self.answer_bytes.to_le_bytes());
        out[32..40].copy_from_slice(&self.stamp_ns.to_le_bytes());
    }

    /// The probe in a datagram; `None` if it is not a probe.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let kind = ProbeKind::of(opened(bytes)?)?;
        Some(Self {
            kind,
            form: if bytes[6] == 1 {
                AnswerForm::Run
            } else {
                AnswerForm::Single
            },
            answer_class: bytes[7],
            session: u64_at(bytes, 8),
            sequence: u32_at(bytes, 16),
            answer_bytes: u32_at(bytes, 20),
            stamp_ns: u64_at(bytes, 32),
        })
    }
}

impl ProbeAnswer {
    /// Writes the answer and `text` into `out`, whose length is at least [`PROBE_BYTES`] and as
    /// long as both.
    pub(super) fn encode(&self, text: &[u8], out: &mut [u8]) {
        out[..PROBE_BYTES].fill(0);
        opening(out, self.kind as u8 | ANSWER);
        out[6] = self.seen_class;
        out[7] = self.run_refused;
        out[8..16].copy_from_slice(&self.session.to_le_bytes());
        out[16..20].copy_from_slice(&self.sequence.to_le_bytes());
        out[20..24].copy_from_slice(&self.counted.to_le_bytes());
        out[24..28].copy_from_slice(&self.kernel_drops.to_le_bytes());
        out[28..30].copy_from_slice(&self.seen_run.to_le_bytes());
        out[30..32].copy_from_slice(&self.told_mtu.to_le_bytes());
        out[32..40].copy_from_slice(&self.wall_ns.to_le_bytes());
        if self.kind == ProbeKind::Report {
            out[TEXT_AT..][..text.len()].copy_from_slice(text);
            return;
        }
        if self.kind == ProbeKind::Tally {
            for (number, out) in words(&self.tally)
                .iter()
                .zip(out[40..68].chunks_exact_mut(4))
            {
                out.copy_from_slice(&number.to_le_bytes());
            }
            return;
        }
        out[40..48].copy_from_slice(&self.welcome.session.to_le_bytes());
        out[48..52].copy_from_slice(&self.welcome.mtu.to_le_bytes());
        for (port, out) in self
            .welcome
            .ports
            .iter()
            .zip(out[52..68].chunks_exact_mut(2))
        {
            out.copy_from_slice(&port.to_le_bytes());
        }
    }

    /// The answer in a datagram; `None` if it is not an answer.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let kind = ProbeKind::of(opened(bytes)?.checked_sub(ANSWER)?)?;
        let mut ports = [0; SOCKETS];
        for (index, port) in ports.iter_mut().enumerate() {
            *port = u16_at(bytes, 52 + 2 * index);
        }
        Some(Self {
            kind,
            seen_class: bytes[6],
            run_refused: bytes[7],
            session: u64_at(bytes, 8),
            sequence: u32_at(bytes, 16),
            counted: u32_at(bytes, 20),
            kernel_drops: u32_at(bytes, 24),
            seen_run: u16_at(bytes, 28),
            told_mtu: u16_at(bytes, 30),
            wall_ns: u64_at(bytes, 32),
            welcome: ProbeWelcome {
                session: u64_at(bytes, 40),
                mtu: u32_at(bytes, 48),
                ports,
            },
            tally: match kind {
                ProbeKind::Tally => tally_at(bytes, 40),
                _ => StreamTally::default(),
            },
        })
    }
}

fn words(tally: &StreamTally) -> [u32; 7] {
    [
        tally.received,
        tally.marked,
        tally.bleached,
        tally.rewritten,
        tally.least_ns,
        tally.median_ns,
        tally.p99_ns,
    ]
}

fn tally_at(bytes: &[u8], at: usize) -> StreamTally {
    let word = |index: usize| u32_at(bytes, at + 4 * index);
    StreamTally {
        received: word(0),
        marked: word(1),
        bleached: word(2),
        rewritten: word(3),
        least_ns: word(4),
        median_ns: word(5),
        p99_ns: word(6),
    }
}

/// Bytes of an answer that carries `text`.
pub(super) fn answer_bytes(text: usize) -> usize {
    (TEXT_AT + text).max(PROBE_BYTES)
}

/// Maximum bytes of text in an answer of `bytes`.
pub(super) fn text_room(bytes: usize) -> usize {
    bytes.saturating_sub(TEXT_AT)
}

/// The text in the answer to REPORT; shorter when the report ends.
pub(super) fn text_of<'a>(answer: &ProbeAnswer, bytes: &'a [u8]) -> &'a [u8] {
    let left = answer.counted.saturating_sub(answer.sequence) as usize;
    let text = &bytes[TEXT_AT..];
    &text[..left.min(text.len())]
}

fn opening(out: &mut [u8], kind: u8) {
    out[..4].copy_from_slice(&MAGIC);
    out[4] = VERSION;
    out[5] = kind;
}

/// The kind of a datagram that is long enough and of this protocol.
fn opened(bytes: &[u8]) -> Option<u8> {
    let ours = bytes.len() >= PROBE_BYTES && bytes[..4] == MAGIC && bytes[4] == VERSION;
    ours.then(|| bytes[5])
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_and_an_answer_read_back_as_written() {
        let probe = ProbePacket {
            kind: ProbeKind::Count,
            form: AnswerForm::Run,
            answer_class: 0xb8,
            session: 0x0123_4567_89ab_cdef,
            sequence: 7,
            answer_bytes: 1400,
            stamp_ns: 1 << 61,
        };
        let mut bytes = [0xff; PROBE_BYTES];
        probe.encode(&mut bytes);
        assert_eq!(ProbePacket::decode(&bytes), Some(probe));
        assert_eq!(ProbeAnswer::decode(&bytes), None, "a probe is no answer");
        let answer = ProbeAnswer {
            kind: ProbeKind::Hello,
            seen_class: 3,
            run_refused: 1,
            session: u64::MAX - 1,
            sequence: 7,
            counted: 99,
            kernel_drops: 5,
            seen_run: 16,
            told_mtu: 1280,
            wall_ns: 1 << 60,
            welcome: ProbeWelcome {
                session: 42,
                mtu: 9000,
                ports: [1, 2, 3, 4, 5, 6, 7, 65_535],
            },
            tally: StreamTally::default(),
        };
        answer.encode(&[], &mut bytes);
        assert_eq!(ProbeAnswer::decode(&bytes), Some(answer));
        assert_eq!(
            ProbePacket::decode(&bytes),
            None,
            "an answer is never answered"
        );
    }

    #[test]
    fn a_tally_reads_back_as_written() {
        let numbers = [1, 2, 3, 4, 5, 6, u32::MAX];
        let mut bytes = [0; PROBE_BYTES];
        let answer = ProbeAnswer {
            kind: ProbeKind::Tally,
            seen_class: 3,
            run_refused: 0,
            session: 1,
            sequence: 2,
            counted: 0,
            kernel_drops: 4,
            seen_run: 1,
            told_mtu: 0,
            wall_ns: 5,
            welcome: ProbeWelcome::default(),
            tally: StreamTally {
                received: numbers[0],
                marked: numbers[1],
                bleached: numbers[2],
                rewritten: numbers[3],
                least_ns: numbers[4],
                median_ns: numbers[5],
                p99_ns: numbers[6],
            },
        };
        answer.encode(&[], &mut bytes);
        let read = ProbeAnswer::decode(&bytes).expect("an answer");
        assert_eq!(read.tally, answer.tally);
        assert_eq!(words(&read.tally), numbers);
    }

    #[test]
    fn other_bytes_are_no_probe() {
        let mut bytes = [0; PROBE_BYTES];
        assert_eq!(ProbePacket::decode(&bytes), None);
        opening(&mut bytes, 1);
        assert!(ProbePacket::decode(&bytes).is_some());
        assert_eq!(
            ProbePacket::decode(&bytes[..PROBE_BYTES - 1]),
            None,
            "too short"
        );
        bytes[4] = 2;
        assert_eq!(ProbePacket::decode(&bytes), None, "another version");
    }
}
