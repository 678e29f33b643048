//! Packets in flight, in one arena: fields that switches read are apart from the cargo of hosts.
//!
//! A hop touches one entry of 32 bytes. The cargo, which may be a hundred bytes and more, is only
//! written by the sender and read by the receiver. Freed entries are reused together with their
//! cargo, so a run allocates as many entries as are ever in flight at once.

use gradwire_fabric::routing::PortId;
use gradwire_protocol::machine::Ecn;
use gradwire_protocol::prefetch::prefetch_value;

use crate::engine::host::Load;

/// Position of a packet in a [`PacketArena`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PacketIndex(pub u32);

impl PacketIndex {
    /// No packet.
    pub const NONE: Self = Self(u32::MAX);
}

/// The fields of a packet that switches and links read.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub struct SimPacket {
    /// The packet behind it in a queue, or the next free entry.
    pub next: PacketIndex,
    /// The host that sent it.
    pub source: u32,
    /// The host that it goes to.
    pub destination: u32,
    /// Hash of the pair and the entropy.
    pub path: u32,
    /// Queues that serve by urgency serve the smallest first.
    pub urgency: u32,
    /// The port that sent it last.
    pub ingress: PortId,
    /// Bytes on a wire.
    pub bytes: u16,
    /// The path that its sender chose.
    pub entropy: u16,
    /// Strict-priority queue.
    pub queue: u8,
    /// Its DSCP.
    pub dscp: u8,
    /// Its ECN bits.
    pub ecn: Ecn,
    /// Data or control, or data that was trimmed.
    pub load: Load,
}

/// All packets of a thread's regions.
#[derive(Debug)]
pub struct PacketArena<C> {
    entries: Vec<SimPacket>,
    cargo: Vec<C>,
    free: PacketIndex,
}

impl<C> Default for PacketArena<C> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            cargo: Vec::new(),
            free: PacketIndex::NONE,
        }
    }
}

impl<C: Default> PacketArena<C> {
    /// A free entry, which still holds the fields and cargo of its last user.
    #[inline]
    pub fn reserve(&mut self) -> PacketIndex {
        let index = self.free;
        if index != PacketIndex::NONE {
            self.free = self.at(index).next;
            return index;
        }
        self.cargo.push(C::default());
        self.entries.push(SimPacket {
            next: PacketIndex::NONE,
            source: 0,
            destination: 0,
            path: 0,
            urgency: 0,
            ingress: PortId(u32::MAX),
            bytes: 0,
            entropy: 0,
            queue: 0,
            dscp: 0,
            ecn: Ecn::Ect,
            load: Load::Control,
        });
        PacketIndex((self.entries.len() - 1) as u32)
    }

    /// Gives an entry back.
    #[inline]
    pub fn release(&mut self, index: PacketIndex) {
        self.at(index).next = self.free;
        self.free = index;
    }

    /// Puts a packet of another arena into this one.
    pub fn insert(&mut self, (packet, cargo): (SimPacket, C)) -> PacketIndex {
        let index = self.reserve();
        let (fields, place) = self.both(index);
        (*fields, *place) = (packet, cargo);
        index
    }

    /// Takes a packet out, for another arena.
    pub fn remove(&mut self, index: PacketIndex) -> (SimPacket, C) {
        let (packet, cargo) = self.both(index);
        let packet = (*packet, std::mem::take(cargo));
        self.release(index);
        packet
    }

    /// The fields that switches read.
    #[inline]
    pub fn at(&mut self, index: PacketIndex) -> &mut SimPacket {
        &mut self.entries[index.0 as usize]
    }

    /// Asks the processor for an entry that is used soon.
    #[inline]
    pub fn prefetch(&self, index: PacketIndex) {
        prefetch_value(&self.entries[index.0 as usize]);
    }

    /// Both halves of an entry.
    #[inline]
    pub fn both(&mut self, index: PacketIndex) -> (&mut SimPacket, &mut C) {
        let at = index.0 as usize;
        (&mut self.entries[at], &mut self.cargo[at])
    }

    /// The cargo that hosts write and read.
    #[inline]
    pub fn cargo(&mut self, index: PacketIndex) -> &mut C {
        &mut self.cargo[index.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_as_small_as_half_a_cache_line() {
        assert_eq!(size_of::<SimPacket>(), 32);
    }

    #[test]
    fn a_released_entry_is_used_again() {
        let mut packets = PacketArena::<Vec<u8>>::default();
        let (first, second) = (packets.reserve(), packets.reserve());
        packets.cargo(first).push(7);
        packets.release(first);
        assert_ne!(packets.reserve(), second);
        assert_eq!(packets.cargo(first), &[7]);
    }
}
