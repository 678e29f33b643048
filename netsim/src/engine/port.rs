//! A port of a switch or host: queues in front of a wire, by strict priority or as
//! [`crate::engine::turns`] has it.
//!
//! A queue marks ECT and drops not-ECT packets above its threshold, or with a probability that
//! grows with its depth if the policy has a ramp. It trims or drops above its limit, and serves in
//! order of arrival or, if the policy says so, the most urgent first (pFabric, Alizadeh et al.,
//! SIGCOMM 2013, section 3). Thresholds come from the [`QosPolicy`], limits from
//! the fabric's [`SwitchBuffer`]. [`crate::engine::region`] calls a port at each event.

use gradwire_fabric::policy::{QosPolicy, ServiceOrder, SwitchBuffer};
use gradwire_protocol::machine::Ecn;
use gradwire_protocol::priority::EarlyDrop;
use gradwire_protocol::units::{Instant, Rate, Span};

use crate::engine::host::Load;
use crate::engine::packets::{PacketArena, PacketIndex, SimPacket};
use crate::results::outcome::ClassCounts;

/// The maximum number of queues of a port.
pub const QUEUES: usize = 8;

/// Picoseconds a byte takes, times 2^16: exact for rates that divide 8 * 10^12, such as all of 10,
/// 25, 40, 50, 100, 200, 400 and 800 Gb/s.
pub fn picos_per_byte(rate: Rate) -> u64 {
    let bits = rate.as_bits_per_second().max(1);
    ((8_000_000_000_000_u128 << 16) / u128::from(bits)) as u64
}

/// The limits that all ports of one rate share.
#[derive(Clone, Copy, Debug)]
pub struct PortLimits {
    /// Depth above which each queue marks and drops.
    pub marks_above: [u64; QUEUES],
    /// Bit q: queue q drops not-ECT packets where it marks others.
    pub drops_early: u8,
    /// How the queues that mark do it instead, if they draw.
    pub ramp: Option<DepthRamp>,
    /// Depth above which data packets are trimmed, as those are that would be dropped; `u64::MAX`:
    /// never.
    pub trims_above: u64,
    /// Bytes that the port may hold.
    pub bytes: u64,
    /// If the port has memory of its own: a data queue may hold `alpha` times the free part.
    pub alpha: Option<f64>,
}

/// A [`gradwire_fabric::policy::MarkRamp`] in bytes.
#[derive(Clone, Copy, Debug)]
pub struct DepthRamp {
    depths: [u64; 2],
    share: f64,
}

impl DepthRamp {
    /// Depth above which a packet with this uniform draw is marked.
    fn marks_above(self, draw: u32) -> u64 {
        let ([from, to], draw) = (self.depths, f64::from(draw) / 2.0_f64.powi(32));
        match draw < self.share {
            true => from + ((to - from) as f64 * draw / self.share) as u64,
            false => to,
        }
    }
}

impl PortLimits {
    /// The limits of a switch port of this rate.
    pub fn of_switch(policy: &QosPolicy, buffer: SwitchBuffer, rate: Rate) -> Self {
        let trims = policy.trims_to.is_some();
        Self {
            marks_above: std::array::from_fn(|queue| policy.marks_above(queue, rate)),
            drops_early: drops_early(policy),
            ramp: policy.ramp.map(|ramp| DepthRamp {
                depths: ramp.depths(rate),
                share: ramp.share.get(),
            }),
            trims_above: if trims {
                policy.trims_above.bytes(rate, buffer.port_bytes())
            } else {
                u64::MAX
            },
            bytes: match buffer {
                SwitchBuffer::PerPort(bytes) => bytes.get(),
                SwitchBuffer::Divided { bytes, .. } | SwitchBuffer::Shared { bytes, .. } => {
                    bytes.get()
                }
            },
            alpha: match buffer {
                SwitchBuffer::Divided { alpha, .. } => Some(alpha),
                SwitchBuffer::PerPort(_) | SwitchBuffer::Shared { .. } => None,
            },
        }
    }

    /// The limits of a host's port: none, since a host never hands over more than one packet.
    pub fn of_host() -> Self {
        Self {
            marks_above: [u64::MAX; QUEUES],
            drops_early: 0,
            ramp: None,
            trims_above: u64::MAX,
            bytes: u64::MAX,
            alpha: None,
        }
    }
}

/// Bit q: queue q drops early.
fn drops_early(policy: &QosPolicy) -> u8 {
    let queues = policy.queues.iter().enumerate();
    let drops = queues.filter(|(_, row)| row.early_drop == EarlyDrop::On);
    drops.fold(0, |bits, (queue, _)| bits | 1 << queue)
}

/// The fate of a packet that wants to enter a queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum QueueVerdict {
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
    head: PacketIndex,
    tail: PacketIndex,
    bytes: u32,
}

/// The queues of a port and its counters. The fields that every packet needs come first, in as few
/// cache lines as possible: a fabric of a thousand hosts does not fit the processor's caches.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct PortQueues {
    /// When the packet on the wire has left.
    pub free_at: Instant,
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
    /// Its counters.
    pub record: PortRecord,
}

/// The counters of a port; those that every packet changes come first.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub struct PortRecord {
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
    pub paused_since: Option<Instant>,
    /// Time for which a queue was paused.
    pub paused: Span,
    /// The counters of each queue.
    pub classes: [ClassCounts; QUEUES],
}

impl Default for PortQueues {
    /// An idle port.
    fn default() -> Self {
        let empty = Fifo {
            head: PacketIndex::NONE,
            tail: PacketIndex::NONE,
            bytes: 0,
        };
        Self {
            free_at: Instant::START,
            waiting: 0,
            occupied: 0,
            paused: 0,
            ready_due: false,
            down: false,
            fifos: [empty; QUEUES],
            record: PortRecord::default(),
        }
    }
}

impl PortQueues {
    /// Whether a packet of this queue can go on the wire at once.
    #[inline]
    pub fn is_idle(&self, now: Instant, queue: u8) -> bool {
        self.free_at <= now && !self.ready_due && self.paused >> queue & 1 == 0
    }

    /// Whether the wire is free and all queues are empty.
    #[inline]
    pub fn is_free(&self, now: Instant) -> bool {
        self.free_at <= now && !self.ready_due && self.occupied == 0
    }

    /// Whether a packet waits in a queue that is not paused.
    #[inline]
    pub fn can_serve(&self) -> bool {
        self.occupied & !self.paused != 0
    }

    /// Decides the fate of a packet; `room` is the memory that the switch still has for this queue,
    /// and `draw` a uniform number.
    #[inline]
    pub fn judge(
        &self,
        packet: &SimPacket,
        limits: &PortLimits,
        room: u64,
        draw: u32,
    ) -> QueueVerdict {
        let queue = usize::from(packet.queue);
        let depth = u64::from(self.fifos[queue].bytes);
        if depth > limits.trims_above && packet.load == Load::Data {
            return QueueVerdict::Trim;
        }
        let early = match (limits.marks_above[queue], limits.ramp) {
            (u64::MAX, _) => false,
            (_, Some(ramp)) => depth > ramp.marks_above(draw),
            (above, None) => depth > above,
        };
        let markable = packet.ecn != Ecn::NotEct;
        let trims = limits.trims_above != u64::MAX && packet.load == Load::Data;
        if early && !markable && limits.drops_early >> queue & 1 == 1 {
            return if trims {
                QueueVerdict::Trim
            } else {
                QueueVerdict::DropEarly
            };
        }
        if u64::from(packet.bytes) > room {
            return if trims {
                QueueVerdict::Trim
            } else {
                QueueVerdict::DropFull
            };
        }
        if early && markable {
            QueueVerdict::EnterMarked
        } else {
            QueueVerdict::Enter
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
    pub fn enter<C: Default>(
        &mut self,
        now: Instant,
        index: PacketIndex,
        packets: &mut PacketArena<C>,
    ) {
        let packet = packets.at(index);
        packet.next = PacketIndex::NONE;
        let (queue, bytes) = (usize::from(packet.queue), u32::from(packet.bytes));
        let fifo = &mut self.fifos[queue];
        fifo.bytes += bytes;
        let tail = std::mem::replace(&mut fifo.tail, index);
        if tail == PacketIndex::NONE {
            fifo.head = index;
        } else {
            packets.at(tail).next = index;
        }
        self.occupied |= 1 << queue;
        self.waiting += u64::from(bytes);
        self.record.peak = self.record.peak.max(self.waiting);
        self.record.classes[queue].queued += 1;
        self.record.integral -= i128::from(bytes) * i128::from(now.as_picos());
    }

    /// Bit q: a packet of queue q can be served.
    #[inline]
    pub fn ready(&self) -> u8 {
        self.occupied & !self.paused
    }

    /// Takes the packet of a queue that is served next.
    ///
    /// # Panics
    /// When the queue is empty.
    #[inline]
    pub fn leave<C: Default>(
        &mut self,
        now: Instant,
        queue: usize,
        order: ServiceOrder,
        packets: &mut PacketArena<C>,
    ) -> PacketIndex {
        let before = match order {
            ServiceOrder::Arrival => PacketIndex::NONE,
            ServiceOrder::Urgency => self.before_most_urgent(queue, packets),
        };
        self.unlink(now, queue, before, packets)
    }

    /// Takes the least urgent packet out of the newcomer's queue, if the newcomer is more urgent.
    pub fn evict<C: Default>(
        &mut self,
        now: Instant,
        newcomer: &SimPacket,
        packets: &mut PacketArena<C>,
    ) -> Option<PacketIndex> {
        let queue = usize::from(newcomer.queue);
        let (mut before, mut worst, mut urgency) =
            (PacketIndex::NONE, PacketIndex::NONE, newcomer.urgency);
        let (mut previous, mut index) = (PacketIndex::NONE, self.fifos[queue].head);
        while index != PacketIndex::NONE {
            let packet = packets.at(index);
            if packet.urgency > urgency {
                (before, worst, urgency) = (previous, index, packet.urgency);
            }
            (previous, index) = (index, packet.next);
        }
        (worst != PacketIndex::NONE).then(|| self.unlink(now, queue, before, packets))
    }

    /// The packet before the one to serve: the oldest of the flow that the most urgent packet
    /// belongs to, so that a flow's packets do not starve each other.
    fn before_most_urgent<C: Default>(
        &self,
        queue: usize,
        packets: &mut PacketArena<C>,
    ) -> PacketIndex {
        let (mut pair, mut urgency) = ((0, 0), u32::MAX);
        let mut index = self.fifos[queue].head;
        while index != PacketIndex::NONE {
            let packet = packets.at(index);
            if packet.urgency < urgency || index == self.fifos[queue].head {
                (pair, urgency) = ((packet.source, packet.destination), packet.urgency);
            }
            index = packet.next;
        }
        let (mut previous, mut index) = (PacketIndex::NONE, self.fifos[queue].head);
        loop {
            let packet = packets.at(index);
            if (packet.source, packet.destination) == pair {
                return previous;
            }
            (previous, index) = (index, packet.next);
        }
    }

    /// Takes the packet after `before` out of a queue; the first one when `before` is `NONE`.
    #[inline]
    fn unlink<C: Default>(
        &mut self,
        now: Instant,
        queue: usize,
        before: PacketIndex,
        packets: &mut PacketArena<C>,
    ) -> PacketIndex {
        let fifo = &mut self.fifos[queue];
        let index = if before == PacketIndex::NONE {
            fifo.head
        } else {
            packets.at(before).next
        };
        let SimPacket { next, bytes, .. } = *packets.at(index);
        if before == PacketIndex::NONE {
            fifo.head = next;
        } else {
            packets.at(before).next = next;
        }
        if next == PacketIndex::NONE {
            fifo.tail = before;
        }
        fifo.bytes -= u32::from(bytes);
        if fifo.head == PacketIndex::NONE {
            self.occupied &= !(1 << queue);
        }
        self.waiting -= u64::from(bytes);
        self.record.integral += i128::from(bytes) * i128::from(now.as_picos());
        index
    }

    /// Pauses a queue, or resumes it.
    pub fn pause(&mut self, now: Instant, queue: u8, pausing: Pausing) {
        let bit = 1 << queue;
        match pausing {
            Pausing::Stop => self.paused |= bit,
            Pausing::GoOn => self.paused &= !bit,
        }
        let record = &mut self.record;
        if self.paused == 0 {
            let since = record.paused_since.take();
            let paused = since.map_or(Span::ZERO, |since| now.since(since));
            record.paused = record.paused + paused;
        } else if record.paused_since.is_none() {
            record.paused_since = Some(now);
        }
    }
}

/// The command that a pause frame carries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pausing {
    /// Send no more packets of this queue.
    Stop,
    /// Send again.
    GoOn,
}
