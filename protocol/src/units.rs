//! Quantities with their units, and the small numbers that name things.
//!
//! Time is picoseconds in a `u64` (213 days; see [`Instant::LAST`]), so that one bit at 1 Tb/s is a
//! whole number.
//! No type here reads a clock: an [`Instant`] is a distance from a start that the driver chose.

use std::fmt;
use std::ops::{Add, AddAssign, Mul, Sub};

use serde::{Deserialize, Serialize};

/// A point in time: picoseconds since the driver's start.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
pub struct Instant(u64);

/// A point in time in whole microseconds since the driver's start, as packets are stamped. It has
/// 64 bits, of which a packet carries the low 32: only they wrap.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
pub struct Stamp(u64);

/// A length of time in picoseconds. Saturates instead of wrapping.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
pub struct Span(u64);

const PS_PER_NS: u64 = 1_000;
const PS_PER_US: u64 = 1_000_000;
const PS_PER_MS: u64 = 1_000_000_000;

impl Instant {
    /// The driver's start.
    pub const START: Self = Self(0);

    /// The last instant that a driver may give to a machine: 212 days after its start. A day of it
    /// is left for deadlines; later ones would all be equal, and due at once forever.
    pub const LAST: Self = Self(u64::MAX - 86_400 * 1_000 * PS_PER_MS);

    /// The instant that lies `picoseconds` after the start.
    pub const fn from_picos(picoseconds: u64) -> Self {
        Self(picoseconds)
    }

    /// Picoseconds since the start.
    pub const fn as_picos(self) -> u64 {
        self.0
    }

    /// Time since `earlier`; zero when `earlier` is later.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// The time stamp of a packet that leaves now.
    pub const fn stamp(self) -> Stamp {
        Stamp(self.0 / PS_PER_US)
    }

    /// Microseconds since the start, wrapped to the 32 bits of a packet's time stamp.
    pub const fn wire_micros(self) -> u32 {
        self.stamp().on_wire()
    }
}

impl Stamp {
    /// The bits that a packet carries.
    pub const fn on_wire(self) -> u32 {
        self.0 as u32
    }

    /// The stamp of this clock that a packet carried as these bits: the latest one that is not
    /// after `latest`. No packet lives for 72 minutes.
    pub const fn from_wire(bits: u32, latest: Self) -> Self {
        let earlier = latest.on_wire().wrapping_sub(bits);
        Self(latest.0.saturating_sub(earlier as u64))
    }

    /// The time since `earlier`, in whole microseconds; zero when `earlier` is later.
    pub const fn since(self, earlier: Self) -> Span {
        Span::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// The stamp that is `span` earlier, but not before the start.
    #[must_use]
    pub const fn before(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.as_micros()))
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A span of `n` picoseconds.
    pub const fn from_picos(n: u64) -> Self {
        Self(n)
    }

    /// A span of `n` nanoseconds.
    pub const fn from_nanos(n: u64) -> Self {
        Self(n.saturating_mul(PS_PER_NS))
    }

    /// A span of `n` microseconds.
    pub const fn from_micros(n: u64) -> Self {
        Self(n.saturating_mul(PS_PER_US))
    }

    /// A span of `n` milliseconds.
    pub const fn from_millis(n: u64) -> Self {
        Self(n.saturating_mul(PS_PER_MS))
    }

    /// The span in picoseconds.
    pub const fn as_picos(self) -> u64 {
        self.0
    }

    /// The span in whole nanoseconds, rounded down.
    pub const fn as_nanos(self) -> u64 {
        self.0 / PS_PER_NS
    }

    /// The span in whole microseconds, rounded down.
    pub const fn as_micros(self) -> u64 {
        self.0 / PS_PER_US
    }

    /// The span in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-12
    }

    /// The span divided by `n`; `n` must not be zero.
    pub const fn divided(self, n: u64) -> Self {
        Self(self.0 / n)
    }

    /// The part of this span that exceeds `other`.
    pub const fn beyond(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add<Span> for Instant {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub for Instant {
    type Output = Span;
    fn sub(self, earlier: Self) -> Span {
        self.since(earlier)
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Mul<u64> for Span {
    type Output = Self;
    fn mul(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ps if ps >= 1_000 * PS_PER_MS => write!(f, "{:.3}s", self.as_secs_f64()),
            ps if ps >= PS_PER_MS => write!(f, "{}ms", trimmed(ps, PS_PER_MS)),
            ps if ps >= PS_PER_US => write!(f, "{}us", trimmed(ps, PS_PER_US)),
            ps => write!(f, "{}ns", trimmed(ps, PS_PER_NS)),
        }
    }
}

fn trimmed(value: u64, unit: u64) -> String {
    let text = format!("{:.3}", value as f64 / unit as f64);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A number of bytes.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
pub struct ByteCount(u64);

impl ByteCount {
    /// `n` bytes.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// `n` times 1,024 bytes.
    pub const fn kib(n: u64) -> Self {
        Self(n * 1024)
    }

    /// `n` times 1,048,576 bytes.
    pub const fn mib(n: u64) -> Self {
        Self(n * 1024 * 1024)
    }

    /// The number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number of bytes, for indexing memory.
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }

    /// The part of this count that exceeds `other`.
    pub const fn beyond(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for ByteCount {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for ByteCount {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n >= 1 << 30 && n % (1 << 30) == 0 => write!(f, "{}GiB", n >> 30),
            n if n >= 1 << 20 && n % (1 << 20) == 0 => write!(f, "{}MiB", n >> 20),
            n if n >= 1 << 10 && n % (1 << 10) == 0 => write!(f, "{}KiB", n >> 10),
            n => write!(f, "{n}B"),
        }
    }
}

/// A data rate in bits per second.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
pub struct Rate(u64);

impl Rate {
    /// A rate of `n` bits per second; zero means "nothing passes".
    pub const fn from_bits_per_second(n: u64) -> Self {
        Self(n)
    }

    /// A rate of `n` gigabits per second.
    pub const fn from_gbps(n: u64) -> Self {
        Self(n * 1_000_000_000)
    }

    /// Bits per second.
    pub const fn as_bits_per_second(self) -> u64 {
        self.0
    }

    /// How long `bytes` take on a link of this rate, rounded up to a picosecond.
    pub fn transmit_time(self, bytes: ByteCount) -> Span {
        if self.0 == 0 {
            return Span(u64::MAX);
        }
        let picos = (u128::from(bytes.0) * 8_000_000_000_000).div_ceil(u128::from(self.0));
        Span(u64::try_from(picos).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Rate {
    /// In the largest unit of which it is a whole number; units are powers of 1,000.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            ("T", 1_000_000_000_000),
            ("G", 1_000_000_000),
            ("M", 1_000_000),
            ("K", 1_000),
        ];
        let mut units = units.into_iter();
        match units.find(|(_, unit)| self.0 != 0 && self.0.is_multiple_of(*unit)) {
            Some((name, unit)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}bps", self.0),
        }
    }
}

/// A share between 0 and 1, kept in parts per million so that it compares and prints exactly.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
pub struct Share(u32);

impl Share {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Everything.
    pub const ALL: Self = Self(1_000_000);

    /// The share nearest to `value`; `None` when `value` is not between 0 and 1.
    pub fn new(value: f64) -> Option<Self> {
        (0.0..=1.0)
            .contains(&value)
            .then(|| Self((value * 1e6).round() as u32))
    }

    /// The share as a number between 0 and 1.
    pub fn get(self) -> f64 {
        f64::from(self.0) / 1e6
    }

    /// The share in percent, if that is a whole number.
    pub const fn whole_percent(self) -> Option<u32> {
        match self.0 % 10_000 {
            0 => Some(self.0 / 10_000),
            _ => None,
        }
    }

    /// Whether the share is zero.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The share of `whole`, rounded down.
    pub const fn of(self, whole: u64) -> u64 {
        ((whole as u128 * self.0 as u128) / 1_000_000) as u64
    }

    /// The share of `whole`, rounded up.
    pub const fn of_rounded_up(self, whole: u64) -> u64 {
        ((whole as u128 * self.0 as u128).div_ceil(1_000_000)) as u64
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", trimmed(u64::from(self.0), 10_000))
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord,
            PartialEq, PartialOrd, Serialize,
        )]
        pub struct $type(pub $inner);

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

name!(
    /// A process of the job, from 0 to world size - 1.
    Rank(u16)
);
name!(
    /// The receive that a message answers: group in the top 16 bits, operation sequence in the next
    /// 32, part of the operation in the last 16. Both sides count alike, without communicating.
    MessageKey(u64)
);
name!(
    /// A step of the training job; the loss budget is kept per step.
    Step(u32)
);
impl Step {
    /// Whether this step comes before another one. Their numbers wrap.
    pub const fn is_before(self, other: Self) -> bool {
        other.0.wrapping_sub(self.0) as i32 > 0
    }
}

name!(
    /// A step counted without wrapping, by which steps are put in order. [`StepClock`] gives it.
    StepSerial(u64)
);

/// Orders steps although their numbers wrap.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepClock {
    newest: Option<StepSerial>,
}

impl StepClock {
    /// The count of a step: of all counts that end in its 32 bits, the one nearest to the newest so
    /// far.
    pub fn serial(&mut self, step: Step) -> StepSerial {
        let first = StepSerial(1 << 32 | u64::from(step.0));
        let newest = self.newest.unwrap_or(first);
        let ahead = step.0.wrapping_sub(newest.0 as u32) as i32;
        let serial = StepSerial(newest.0.wrapping_add_signed(i64::from(ahead)));
        self.newest = Some(newest.max(serial));
        serial
    }
}

name!(
    /// Number of a message between one sender and one receiver as it travels: the low 32 bits of
    /// its [`MessageSerial`]. It wraps.
    MessageId(u32)
);
name!(
    /// Number of a message between one sender and one receiver, counted from their first. It never
    /// wraps.
    MessageSerial(u64)
);

impl PathNumber {
    /// The number `packets` later.
    #[must_use]
    #[inline]
    pub const fn plus(self, packets: u32) -> Self {
        Self(self.0.wrapping_add(packets))
    }

    /// How many packets it is ahead of `other`; negative if it is behind.
    pub const fn ahead_of(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }

    /// The one that is ahead.
    pub const fn newest(self, other: Self) -> Self {
        if self.ahead_of(other) < 0 {
            other
        } else {
            self
        }
    }
}

impl MessageSerial {
    /// The number of the first message between two ranks, whose id is this. Numbers below it stand
    /// for messages that were sent before it and are overtaken by it.
    pub const fn first(id: MessageId) -> Self {
        Self(1 << 32 | id.0 as u64)
    }

    /// The number as it travels.
    pub const fn id(self) -> MessageId {
        MessageId(self.0 as u32)
    }

    /// Of all numbers with this id the one nearest to `self` (serial number arithmetic, RFC 1982).
    #[must_use]
    pub const fn nearest(self, id: MessageId) -> Self {
        let ahead = id.0.wrapping_sub(self.0 as u32) as i32;
        Self(self.0.wrapping_add_signed(ahead as i64))
    }
}

name!(
    /// Position of a layer in forward order, 0 = needed first by the next forward pass.
    Layer(u16)
);

impl Layer {
    /// Packets without a layer. They have the last class.
    pub const UNTAGGED: Self = Self(u16::MAX);
}

name!(
    /// Traffic class, 0 = highest. Class 0 belongs to control packets.
    Class(u8)
);
name!(
    /// The six bits of the IP header that a switch maps to a queue.
    Dscp(u8)
);
name!(
    /// One of the paths of a peer: an index into the UDP source ports of the sender.
    Entropy(u8)
);
name!(
    /// Counts the DATA and PROBE packets of one path, from one rank to another; wraps.
    PathNumber(u32)
);
name!(
    /// log2 of a segment's running mean |g|, in quarters, offset so that 255 is largest; 0 = not
    /// known.
    Magnitude(u8)
);
name!(
    /// Identity of a job, drawn by rank 0 at start; packets of other jobs are ignored.
    JobId(u32)
);

impl MessageKey {
    /// The key of `part` of operation `sequence` in `group`.
    pub const fn new(group: u16, sequence: u32, part: u16) -> Self {
        Self((group as u64) << 48 | (sequence as u64) << 16 | part as u64)
    }

    /// The group, the operation's sequence number and its part.
    pub const fn parts(self) -> (u16, u32, u16) {
        ((self.0 >> 48) as u16, (self.0 >> 16) as u32, self.0 as u16)
    }
}

/// The kind of a message's operation: 24 bits that travel with the message. The protocol compares
/// them with those that the receiver posted, and gives them no other meaning.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
pub struct Signature(u32);

impl Signature {
    /// The signature of messages that do not name their operation.
    pub const NONE: Self = Self(0);
    /// How many bits there are.
    pub const BITS: u32 = 24;

    /// The signature of these bits; `None` when they are more than [`Self::BITS`].
    pub const fn new(bits: u32) -> Option<Self> {
        if bits >> Self::BITS == 0 {
            Some(Self(bits))
        } else {
            None
        }
    }

    /// Its bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The bytes of the bits, lowest first.
    pub const fn to_bytes(self) -> [u8; 3] {
        [self.0 as u8, (self.0 >> 8) as u8, (self.0 >> 16) as u8]
    }

    /// The signature whose bits these bytes are, lowest first.
    pub const fn from_bytes(bytes: [u8; 3]) -> Self {
        Self(bytes[0] as u32 | (bytes[1] as u32) << 8 | (bytes[2] as u32) << 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transmit_time_is_exact_at_line_rate() {
        let time = Rate::from_gbps(100).transmit_time(ByteCount::new(1500));
        assert_eq!(time, Span::from_nanos(120));
    }

    #[test]
    fn a_stamp_comes_back_whole_however_often_its_bits_wrap() {
        for micros in [0, 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 40) + 7] {
            let sent = Instant::START + Span::from_micros(micros);
            for age in [0, 1, 1_000, 1 << 31, (1 << 32) - 1] {
                let latest = (sent + Span::from_micros(age)).stamp();
                let stamp = Stamp::from_wire(sent.wire_micros(), latest);
                assert_eq!(stamp, sent.stamp(), "{age} us after {micros} us");
            }
        }
        let forged = Stamp::from_wire(5, Instant::START.stamp());
        assert_eq!(forged, Instant::START.stamp(), "none is before the start");
    }

    #[test]
    fn a_share_outside_zero_to_one_does_not_exist() {
        assert_eq!(Share::new(1.5), None);
        assert_eq!(Share::new(-0.1), None);
        assert_eq!(Share::new(f64::NAN), None);
        assert_eq!(Share::new(0.1).map(|share| share.of(99)), Some(9));
    }

    #[test]
    fn quantities_print_with_their_unit() {
        assert_eq!(Span::from_micros(1500).to_string(), "1.5ms");
        assert_eq!(ByteCount::kib(64).to_string(), "64KiB");
        assert_eq!(
            Share::new(0.025).expect("within 0 to 1").to_string(),
            "2.5%"
        );
    }

    #[test]
    fn a_message_key_gives_back_its_parts() {
        assert_eq!(MessageKey::new(7, u32::MAX, 9).parts(), (7, u32::MAX, 9));
    }
}
