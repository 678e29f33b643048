//! Which packets of a flow have arrived, at its receiver.

/// What a packet changes for its flow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Arrival {
    /// It is new.
    New,
    /// It is new, and it was the last missing one.
    Last,
    /// It was here before.
    Again,
}

/// A flow at its receiver. It frees its memory when all packets have arrived.
#[derive(Debug)]
pub(crate) struct IncomingFlow {
    seen: Box<[u64]>,
    missing: u32,
    /// Everything before this packet has arrived.
    before: u32,
}

impl IncomingFlow {
    /// A flow before its first packet.
    pub(crate) fn new(packets: u32) -> Self {
        let words = packets.div_ceil(u64::BITS) as usize;
        Self {
            seen: vec![0; words].into(),
            missing: packets,
            before: 0,
        }
    }

    /// Packets that have not arrived.
    pub(crate) const fn missing(&self) -> u32 {
        self.missing
    }

    /// The first packet that has not arrived.
    pub(crate) const fn before(&self) -> u32 {
        self.before
    }

    /// Whether a packet has not arrived.
    pub(crate) fn lacks(&self, packet: u32) -> bool {
        let word = self.seen.get((packet / u64::BITS) as usize);
        word.is_some_and(|word| word >> (packet % u64::BITS) & 1 == 0)
    }

    /// Notes that a packet has arrived.
    pub(crate) fn take(&mut self, packet: u32) -> Arrival {
        let (word, bit) = ((packet / u64::BITS) as usize, 1 << (packet % u64::BITS));
        let Some(word) = self.seen.get_mut(word) else {
            return Arrival::Again;
        };
        if *word & bit != 0 {
            return Arrival::Again;
        }
        *word |= bit;
        self.missing -= 1;
        while let Some(word) = self.seen.get((self.before / u64::BITS) as usize) {
            let here = (word >> (self.before % u64::BITS)).trailing_ones();
            if here == 0 {
                break;
            }
            self.before += here;
        }
        if self.missing > 0 {
            return Arrival::New;
        }
        self.seen = Box::default();
        Arrival::Last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_is_new_once_and_the_last_one_is_told() {
        let mut incoming = IncomingFlow::new(66);
        for packet in 1..66 {
            assert!(incoming.lacks(packet));
            assert_eq!(incoming.take(packet), Arrival::New);
            assert!(!incoming.lacks(packet));
            assert_eq!(incoming.take(packet), Arrival::Again);
        }
        assert_eq!(incoming.before(), 0);
        assert_eq!(incoming.take(0), Arrival::Last);
        assert_eq!(incoming.before(), 66);
        assert_eq!(incoming.take(65), Arrival::Again);
        assert_eq!(incoming.missing(), 0);
    }
}
