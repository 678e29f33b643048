//! The event queue: a calendar for the horizon of a fabric.
//!
//! Nearly all events of a fabric lie within microseconds: a packet's time on a wire, a port's time
//! to its next packet. So the calendar cuts time into narrow slots, puts an event into its
//! slot in constant time, and sorts the events of one slot at a time. Events beyond the horizon,
//! mostly timers, wait in a heap. Events of equal time are ordered by key, never by the order in
//! which they were added, so results do not depend on how a fabric is divided.
//!
//! Measured against a binary heap in `benches/README.md`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gradwire_protocol::units::{Instant, Span};

/// Later than every event.
pub const END_OF_TIME: Instant = Instant::from_picos(u64::MAX);
/// The slots cover this many bits of picoseconds, 33 us, or less if they would be too many.
const HORIZON_BITS: u32 = 25;
/// Bits of the maximum number of slots.
const SLOT_BITS_MAX: u32 = 14;
/// No event.
const NONE: u32 = u32::MAX;
/// A slot is at least this many bits of picoseconds wide: 256 ps.
const WIDTH_BITS_MIN: u32 = 8;
/// And at most this many: 65 ns.
const WIDTH_BITS_MAX: u32 = 16;

/// An event and its time. Events are ordered by time, then key, then data.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TimedEvent {
    /// When it happens.
    pub at: Instant,
    /// Its kind, port or host. Key and data together are unique among events of one time.
    pub key: u32,
    /// Any other number that the event needs.
    pub data: u32,
}

impl TimedEvent {
    /// One number that orders events as their fields do, and compares without branches.
    #[inline]
    fn order(&self) -> u128 {
        u128::from(self.at.as_picos()) << 64 | u128::from(self.key) << 32 | u128::from(self.data)
    }
}

impl Ord for TimedEvent {
    #[inline]
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for TimedEvent {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Some events of one slot. A large fabric's events do not fit the processor's caches, and links
/// from event to event would wait for memory each time, so a chunk holds several.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Chunk {
    events: [TimedEvent; CHUNK_EVENTS],
    count: u32,
    /// The chunk filled before, or the next free one.
    next: u32,
}

/// With the two numbers after them these events fill two cache lines.
const CHUNK_EVENTS: usize = 7;

/// Events in order.
#[derive(Debug)]
pub struct Calendar {
    width_bits: u32,
    /// Number of the current slot, counted from the start of time.
    present: u64,
    /// Its events, latest first.
    sorted: Vec<TimedEvent>,
    /// The last chunk of each slot; their number is a power of two.
    heads: Vec<u32>,
    occupied: Vec<u64>,
    chunks: Vec<Chunk>,
    free: u32,
    far: BinaryHeap<Reverse<TimedEvent>>,
}

impl Calendar {
    /// An empty calendar for events that lie `gap` apart on average.
    pub fn new(gap: Span) -> Self {
        let wanted = (gap.as_picos().max(1) * 8).ilog2();
        let width_bits = wanted.clamp(WIDTH_BITS_MIN, WIDTH_BITS_MAX);
        let slot_bits = (HORIZON_BITS - width_bits).min(SLOT_BITS_MAX);
        Self {
            width_bits,
            present: 0,
            sorted: Vec::new(),
            heads: vec![NONE; 1 << slot_bits],
            occupied: vec![0; 1 << (slot_bits - 6)],
            chunks: Vec::new(),
            free: NONE,
            far: BinaryHeap::new(),
        }
    }

    #[inline]
    fn slots(&self) -> u64 {
        self.heads.len() as u64
    }

    /// Position of a slot in the lists.
    #[inline]
    fn position(&self, slot: u64) -> usize {
        (slot & (self.slots() - 1)) as usize
    }

    #[inline]
    fn slot_of(&self, event: &TimedEvent) -> u64 {
        event.at.as_picos() >> self.width_bits
    }

    /// Adds an event, which must not lie before the one taken last.
    #[inline]
    pub fn push(&mut self, event: TimedEvent) {
        let slot = self.slot_of(&event);
        if slot <= self.present {
            let at = self.sorted.partition_point(|other| *other > event);
            self.sorted.insert(at, event);
        } else if slot - self.present < self.slots() {
            self.link(slot, event);
        } else {
            self.far.push(Reverse(event));
        }
    }

    #[inline]
    fn link(&mut self, slot: u64, event: TimedEvent) {
        let at = self.position(slot);
        let head = self.heads[at];
        if let Some(chunk) = self.chunks.get_mut(head as usize)
            && let Some(place) = chunk.events.get_mut(chunk.count as usize)
        {
            *place = event;
            chunk.count += 1;
            return;
        }
        let fresh = self.fresh_chunk(head);
        let chunk = &mut self.chunks[fresh as usize];
        (chunk.events[0], chunk.count) = (event, 1);
        self.heads[at] = fresh;
        self.occupied[at / 64] |= 1 << (at % 64);
    }

    #[cold]
    fn fresh_chunk(&mut self, next: u32) -> u32 {
        let index = self.free;
        if index != NONE {
            let chunk = &mut self.chunks[index as usize];
            self.free = chunk.next;
            (chunk.count, chunk.next) = (0, next);
            return index;
        }
        let nothing = TimedEvent {
            at: Instant::START,
            key: 0,
            data: 0,
        };
        self.chunks.push(Chunk {
            events: [nothing; CHUNK_EVENTS],
            count: 0,
            next,
        });
        (self.chunks.len() - 1) as u32
    }

    /// Takes the first event if it lies before `end`.
    #[inline]
    pub fn pop_before(&mut self, end: Instant) -> Option<TimedEvent> {
        if self.sorted.is_empty() {
            self.advance(end);
        }
        let first = self.sorted.last()?;
        if first.at >= end {
            return None;
        }
        self.sorted.pop()
    }

    /// The event that comes after `between` others, if it is in the same slot.
    #[inline]
    pub fn ahead(&self, between: usize) -> Option<TimedEvent> {
        let place = self.sorted.len().checked_sub(1 + between)?;
        self.sorted.get(place).copied()
    }

    /// A time before which nothing happens: that of the first event, or of its slot. `None` when
    /// no event is left.
    pub fn not_before(&self) -> Option<Instant> {
        if let Some(event) = self.sorted.last() {
            return Some(event.at);
        }
        let slot = self.next_occupied();
        let near = slot.map(|slot| Instant::from_picos(slot << self.width_bits));
        let far = self.far.peek().map(|Reverse(event)| event.at);
        near.into_iter().chain(far).min()
    }

    /// Opens the next slot that has events, unless it begins at `end` or later.
    fn advance(&mut self, end: Instant) {
        let far = self.far.peek();
        let far = far.map(|Reverse(event)| self.slot_of(event));
        let next = match (self.next_occupied(), far) {
            (Some(near), Some(far)) => near.min(far),
            (Some(slot), None) | (None, Some(slot)) => slot,
            (None, None) => return,
        };
        if next << self.width_bits >= end.as_picos() {
            return;
        }
        self.present = next;
        while let Some(Reverse(event)) = self.far.peek().copied() {
            let slot = self.slot_of(&event);
            if slot - next >= self.slots() {
                break;
            }
            self.far.pop();
            self.link(slot, event);
        }
        self.open(next);
    }

    fn next_occupied(&self) -> Option<u64> {
        let words = self.occupied.len();
        let from = self.position(self.present + 1);
        let (word, bit) = (from / 64, from as u64 % 64);
        let ahead = self.occupied[word] >> bit;
        if ahead != 0 {
            return Some(self.present + 1 + u64::from(ahead.trailing_zeros()));
        }
        for step in 1..=words {
            let bits = self.occupied[(word + step) % words];
            if bits != 0 {
                let distance = step as u64 * 64 - bit + u64::from(bits.trailing_zeros());
                return Some(self.present + 1 + distance);
            }
        }
        None
    }

    fn open(&mut self, slot: u64) {
        let at = self.position(slot);
        let mut index = std::mem::replace(&mut self.heads[at], NONE);
        self.occupied[at / 64] &= !(1 << (at % 64));
        while index != NONE {
            let chunk = &mut self.chunks[index as usize];
            self.sorted
                .extend_from_slice(&chunk.events[..chunk.count as usize]);
            let next = std::mem::replace(&mut chunk.next, self.free);
            self.free = index;
            index = next;
        }
        self.sorted.sort_unstable_by(|a, b| b.cmp(a));
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn distance(rng: &mut impl Rng) -> u64 {
        match rng.random_range(0..10) {
            0 => 0,
            1 => rng.random_range(0..1_000_000_000),
            _ => rng.random_range(0..2_000_000),
        }
    }

    #[test]
    fn events_come_in_the_order_of_a_heap_however_far_apart_they_are() {
        for gap in [1, 500, 1_000_000] {
            let mut rng = ChaCha8Rng::seed_from_u64(gap);
            let (mut calendar, mut heap) =
                (Calendar::new(Span::from_picos(gap)), BinaryHeap::new());
            let mut now = Instant::START;
            for step in 0..200_000_u32 {
                let event = TimedEvent {
                    at: now + Span::from_picos(distance(&mut rng)),
                    key: rng.random_range(0..4),
                    data: step,
                };
                calendar.push(event);
                heap.push(Reverse(event));
                if rng.random_bool(0.45) || step > 100_000 {
                    let popped = calendar.pop_before(END_OF_TIME);
                    assert_eq!(popped, heap.pop().map(|Reverse(event)| event));
                    now = popped.expect("one was pushed").at;
                }
            }
            while let Some(Reverse(event)) = heap.pop() {
                let bound = calendar.not_before().expect("an event is left");
                assert!(bound <= event.at, "{bound:?} {event:?}");
                assert_eq!(calendar.pop_before(event.at), None);
                assert_eq!(
                    calendar.pop_before(event.at + Span::from_picos(1)),
                    Some(event)
                );
            }
            assert_eq!(calendar.pop_before(END_OF_TIME), None);
        }
    }

    #[test]
    fn an_event_pushed_between_windows_is_not_overtaken() {
        let mut calendar = Calendar::new(Span::from_picos(1));
        let event = |at| TimedEvent {
            at: Instant::from_picos(at),
            key: 0,
            data: 0,
        };
        calendar.push(event(9_000_000_000));
        assert_eq!(calendar.pop_before(Instant::from_picos(1_000_000)), None);
        calendar.push(event(2_000_000));
        assert_eq!(calendar.pop_before(END_OF_TIME), Some(event(2_000_000)));
        assert_eq!(calendar.pop_before(END_OF_TIME), Some(event(9_000_000_000)));
    }
}
