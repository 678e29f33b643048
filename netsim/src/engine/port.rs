//! A port of a switch or host: strict-priority queues in front of a wire.
//!
//! A queue marks ECT and drops not-ECT packets above its threshold, trims or drops above its
//! limit, and serves in order of arrival, or, where the policy says so, the least urgency first
//! (pFabric, Alizadeh et al., SIGCOMM 2013, section 3). Thresholds come from the
//! [`QosPolicy`], limits from the fabric's [`Buffer`]. What happens when is in
//! [`crate::engine::region`].

use gradwire_fabric::policy::{Order, QosPolicy};
use gradwire_protocol::machine::Ecn;
use gradwire_protocol::units::Rate;

use crate::engine::host::Load;
use crate::engine::packets::{NONE, Packet, Packets};
use crate::results::outcome::ClassCounts;
use gradwire_fabric::policy::Buffer;

/// The most queues of a port.
pub const QUEUES: usize = 8;

/// Picoseconds a byte takes, times 2^16: exact for rates that divide 8 * 10^12, such as all of 10,
/// 25, 40, 50, 100, 200, 400 and 800 Gb/s.
pub fn picos_per_byte(rate: Rate) -> u64 {
    let bits = rate.as_bits_per_second().max(1);
    ((8_000_000_000_000_u128 << 16) / u128::from(bits)) as u64
}

/// What all ports of one rate have in common.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Depth above which each queue marks and drops.
    pub marks_above: [u64; QUEUES],
    /// Depth above which data packets are trimmed; `u64::MAX` where they are not.
    pub trims_above: u64,
    /// Bytes that the port may hold.
    pub bytes: u64,
    /// Of a port's own memory: how many times what is free a data queue may hold.
    pub alpha: Option<f64>,
}

impl Limits {
    /// Of a switch port of this rate.
    pub fn of_switch(policy: &QosPolicy, buffer: Buffer, rate: Rate) -> Self {
        let trims = policy.trims_to.is_some();
        Self {
            marks_above: std::array::from_fn(|queue| policy.marks_above(queue, rate)),
            trims_above: if trims {
                policy.trims_above.get()
            } else {
                u64::MAX
            },
            bytes: match buffer {
                Buffer::PerPort(bytes) => bytes.get(),
                Buffer::Divided { bytes, .. } | Buffer::Shared { bytes, .. } => bytes.get(),
            },
            alpha: match buffer {
                Buffer::Divided { alpha, .. } => Some(alpha),
                Buffer::PerPort(_) | Buffer::Shared { .. } => None,
            },
        }
    }

    /// Of a host's port: it takes all that the host gives, which is never more than one packet.
    pub fn of_host() -> Self {
        Self {
            marks_above: [u64::MAX; QUEUES],
            trims_above: u64::MAX,
            bytes: u64::MAX,
            alpha: None,
        }
    }
}

/// What becomes of a packet that wants to enter a queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// It enters.
    Enter,
    /// It enters and is marked.
    EnterMarked,
    /// It is cut to its header.
    Trim,
    /// It is dropped: droppable, and the queue is above its threshold.
    DropEarly,
    /// It is dropped: no room.
    DropFull,
}

#[derive(Clone, Copy, Debug)]
struct Fifo {
    head: u32,
    tail: u32,
    bytes: u32,
}

/// What a port does and has done. What every packet needs stands first, in as few cache lines as
/// it fits: a fabric of a thousand hosts does not fit the processor's caches.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Port {
    /// When the packet on the wire has left.
    pub free_at: u64,
    /// Bytes waiting.
    pub waiting: u64,
    /// Bit q: queue q has packets.
    occupied: u8,
    /// Bit q: queue q is paused.
    paused: u8,
    /// Whether an event is due at `free_at`.
    pub ready_due: bool,
    /// Whether its link is down.
    pub down: bool,
    fifos: [Fifo; QUEUES],
    /// What it did.
    pub record: Record,
}

/// What a port has done, what every packet changes first.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub struct Record {
    /// Bytes put on the wire.
    pub bytes: u64,
    /// Packets put on the wire.
    pub packets: u64,
    /// Data packets among these.
    pub data_packets: u64,
    /// Largest number of bytes waiting.
    pub peak: u64,
    /// Sum over all packets of bytes x time in the queue, in byte-picoseconds.
    pub integral: i128,
    /// Packets lost on the wire.
    pub lost: u64,
    /// When the first queue was paused, if one is.
    pub paused_since: Option<u64>,
    /// Picoseconds for which a queue was paused.
    pub paused: u64,
    /// What each queue did.
    pub classes: [ClassCounts; QUEUES],
}

impl Default for Port {
    /// An idle port.
    fn default() -> Self {
        let empty = Fifo {
            head: NONE,
            tail: NONE,
            bytes: 0,
        };
        Self {
            free_at: 0,
            waiting: 0,
            occupied: 0,
            paused: 0,
            ready_due: false,
            down: false,
            fifos: [empty; QUEUES],
            record: Record::default(),
        }
    }
}

impl Port {
    /// Whether a packet of this queue can go on the wire at once.
    #[inline]
    pub fn is_idle(&self, now: u64, queue: u8) -> bool {
        self.free_at <= now && !self.ready_due && self.paused >> queue & 1 == 0
    }

    /// Whether nothing is on the wire and nothing waits.
    #[inline]
    pub fn is_free(&self, now: u64) -> bool {
        self.free_at <= now && !self.ready_due && self.occupied == 0
    }

    /// Whether a packet waits in a queue that is not paused.
    #[inline]
    pub fn can_serve(&self) -> bool {
        self.occupied & !self.paused != 0
    }

    /// Decides about a packet; `room` is what the switch's memory still has for this queue.
    #[inline]
    pub fn judge(&self, packet: &Packet, limits: &Limits, room: u64) -> Verdict {
        let queue = usize::from(packet.queue);
        let depth = u64::from(self.fifos[queue].bytes);
        if depth > limits.trims_above && packet.load == Load::Data {
            return Verdict::Trim;
        }
        let early = depth > limits.marks_above[queue];
        if early && packet.ecn == Ecn::NotEct {
            return Verdict::DropEarly;
        }
        if u64::from(packet.bytes) > room {
            return Verdict::DropFull;
        }
        if early {
            Verdict::EnterMarked
        } else {
            Verdict::Enter
        }
    }

    /// Bytes that a queue may still take of `free`, of which it may hold `alpha` times as much
    /// (Choudhury and Hahne, IEEE/ACM ToN 1998).
    #[inline]
    pub fn room_of(&self, queue: u8, free: u64, alpha: f64) -> u64 {
        let threshold = (free as f64 * alpha) as u64;
        let depth = u64::from(self.fifos[usize::from(queue)].bytes);
        threshold.saturating_sub(depth).min(free)
    }

    /// Puts a packet at the end of its queue.
    #[inline]
    pub fn enter<C: Default>(&mut self, now: u64, index: u32, packets: &mut Packets<C>) {
        let packet = packets.at(index);
        packet.next = NONE;
        let (queue, bytes) = (usize::from(packet.queue), u32::from(packet.bytes));
        let fifo = &mut self.fifos[queue];
        fifo.bytes += bytes;
        let tail = std::mem::replace(&mut fifo.tail, index);
        if tail == NONE {
            fifo.head = index;
        } else {
            packets.at(tail).next = index;
        }
        self.occupied |= 1 << queue;
        self.waiting += u64::from(bytes);
        self.record.peak = self.record.peak.max(self.waiting);
        self.record.classes[queue].queued += 1;
        self.record.integral -= i128::from(u64::from(bytes)) * i128::from(now);
    }

    /// Takes the packet that is served next.
    ///
    /// # Panics
    /// When none can be served.
    #[inline]
    pub fn leave<C: Default>(&mut self, now: u64, order: Order, packets: &mut Packets<C>) -> u32 {
        let queue = (self.occupied & !self.paused).trailing_zeros() as usize;
        let before = match order {
            Order::Arrival => NONE,
            Order::Urgency => self.before_most_urgent(queue, packets),
        };
        self.unlink(now, queue, before, packets)
    }

    /// Takes the least urgent packet of a queue, if it is less urgent than `urgency`.
    pub fn evict<C: Default>(
        &mut self,
        now: u64,
        newcomer: &Packet,
        packets: &mut Packets<C>,
    ) -> Option<u32> {
        let queue = usize::from(newcomer.queue);
        let (mut before, mut worst, mut urgency) = (NONE, NONE, newcomer.urgency);
        let (mut previous, mut index) = (NONE, self.fifos[queue].head);
        while index != NONE {
            let packet = packets.at(index);
            if packet.urgency > urgency {
                (before, worst, urgency) = (previous, index, packet.urgency);
            }
            (previous, index) = (index, packet.next);
        }
        (worst != NONE).then(|| self.unlink(now, queue, before, packets))
    }

    /// The packet before the one to serve: the oldest of the flow that the most urgent packet
    /// belongs to, so that a flow's packets do not starve each other.
    fn before_most_urgent<C: Default>(&self, queue: usize, packets: &mut Packets<C>) -> u32 {
        let (mut pair, mut urgency) = ((0, 0), u32::MAX);
        let mut index = self.fifos[queue].head;
        while index != NONE {
            let packet = packets.at(index);
            if packet.urgency < urgency || index == self.fifos[queue].head {
                (pair, urgency) = ((packet.source, packet.destination), packet.urgency);
            }
            index = packet.next;
        }
        let (mut previous, mut index) = (NONE, self.fifos[queue].head);
        loop {
            let packet = packets.at(index);
            if (packet.source, packet.destination) == pair {
                return previous;
            }
            (previous, index) = (index, packet.next);
        }
    }

    /// Takes the packet behind `before` out of a queue; the first one when `before` is none.
    #[inline]
    fn unlink<C: Default>(
        &mut self,
        now: u64,
        queue: usize,
        before: u32,
        packets: &mut Packets<C>,
    ) -> u32 {
        let fifo = &mut self.fifos[queue];
        let index = if before == NONE {
            fifo.head
        } else {
            packets.at(before).next
        };
        let Packet { next, bytes, .. } = *packets.at(index);
        if before == NONE {
            fifo.head = next;
        } else {
            packets.at(before).next = next;
        }
        if next == NONE {
            fifo.tail = before;
        }
        fifo.bytes -= u32::from(bytes);
        if fifo.head == NONE {
            self.occupied &= !(1 << queue);
        }
        self.waiting -= u64::from(bytes);
        self.record.integral += i128::from(bytes) * i128::from(now);
        index
    }

    /// Pauses a queue, or lets it go on.
    pub fn pause(&mut self, now: u64, queue: u8, pausing: Pausing) {
        let bit = 1 << queue;
        match pausing {
            Pausing::Stop => self.paused |= bit,
            Pausing::GoOn => self.paused &= !bit,
        }
        let record = &mut self.record;
        if self.paused == 0 {
            let since = record.paused_since.take();
            record.paused += since.map_or(0, |since| now - since);
        } else if record.paused_since.is_none() {
            record.paused_since = Some(now);
        }
    }
}

/// What a pause frame says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pausing {
    /// Send nothing more of this queue.
    Stop,
    /// Send again.
    GoOn,
}
