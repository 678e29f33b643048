//! Packets on their way, in one arena: what switches look at apart from what hosts wrote.
//!
//! A hop touches one entry of 32 bytes. The cargo, which may be a hundred and more, is written by
//! the sender and read by the receiver only. Freed entries are used again, cargo and all, so that a
//! run allocates as much as is ever on the way at once.

use gradwire_protocol::machine::Ecn;

use crate::engine::host::Load;

/// No packet.
pub const NONE: u32 = u32::MAX;

/// What switches and links see of a packet.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub struct Packet {
    /// The packet behind it in a queue, or the next free entry.
    pub next: u32,
    /// The host that sent it.
    pub source: u32,
    /// The host that it goes to.
    pub destination: u32,
    /// Hash of the pair and the entropy.
    pub path: u32,
    /// Served first where least, in queues that look at it.
    pub urgency: u32,
    /// The port that it came through last.
    pub ingress: u32,
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
    /// What it carries.
    pub load: Load,
}

/// All packets of a region.
#[derive(Debug)]
pub struct Packets<C> {
    entries: Vec<Packet>,
    cargo: Vec<C>,
    free: u32,
}

impl<C> Default for Packets<C> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            cargo: Vec::new(),
            free: NONE,
        }
    }
}

impl<C: Default> Packets<C> {
    /// An entry that nobody uses, with whatever its last user left in it.
    #[inline]
    pub fn reserve(&mut self) -> u32 {
        let index = self.free;
        if index != NONE {
            self.free = self.entries[index as usize].next;
            return index;
        }
        self.cargo.push(C::default());
        self.entries.push(Packet {
            next: NONE,
            source: 0,
            destination: 0,
            path: 0,
            urgency: 0,
            ingress: NONE,
            bytes: 0,
            entropy: 0,
            queue: 0,
            dscp: 0,
            ecn: Ecn::Ect,
            load: Load::Control,
        });
        (self.entries.len() - 1) as u32
    }

    /// Gives an entry back.
    #[inline]
    pub fn release(&mut self, index: u32) {
        self.entries[index as usize].next = self.free;
        self.free = index;
    }

    /// What switches see.
    #[inline]
    pub fn at(&mut self, index: u32) -> &mut Packet {
        &mut self.entries[index as usize]
    }

    /// What hosts wrote.
    #[inline]
    pub fn cargo(&mut self, index: u32) -> &mut C {
        &mut self.cargo[index as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_as_small_as_half_a_cache_line() {
        assert_eq!(size_of::<Packet>(), 32);
    }

    #[test]
    fn a_released_entry_is_used_again() {
        let mut packets = Packets::<Vec<u8>>::default();
        let (first, second) = (packets.reserve(), packets.reserve());
        packets.cargo(first).push(7);
        packets.release(first);
        assert_ne!(packets.reserve(), second);
        assert_eq!(packets.cargo(first), &[7]);
    }
}
