//! Which packets beyond the first missing one have arrived: the bitmap of both ends of IRN.
//!
//! The network cards of the paper have 128 bits, more than a window of 111 packets ever needs. This
//! one grows, for the ablation without a window.

use std::collections::VecDeque;

/// A set of packets that forgets its front.
#[derive(Debug, Default)]
pub(crate) struct PacketBitmap {
    words: VecDeque<u64>,
    /// Words forgotten.
    forgotten: u32,
    /// One beyond the largest member there ever was.
    end: u32,
}

impl PacketBitmap {
    /// Whether a packet is in it.
    pub(crate) fn has(&self, packet: u32) -> bool {
        let word = (packet / u64::BITS).checked_sub(self.forgotten);
        let word = word.and_then(|word| self.words.get(word as usize));
        word.is_some_and(|word| word >> (packet % u64::BITS) & 1 == 1)
    }

    /// Adds a packet that was not forgotten.
    pub(crate) fn add(&mut self, packet: u32) {
        let Some(word) = (packet / u64::BITS).checked_sub(self.forgotten) else {
            return;
        };
        let words = self.words.len().max(word as usize + 1);
        self.words.resize(words, 0);
        self.words[word as usize] |= 1 << (packet % u64::BITS);
        self.end = self.end.max(packet + 1);
    }

    /// Frees the memory of the packets before this one.
    pub(crate) fn forget_before(&mut self, packet: u32) {
        while self.forgotten < packet / u64::BITS {
            self.words.pop_front();
            self.forgotten += 1;
        }
    }

    /// One beyond the largest packet in it.
    pub(crate) const fn end(&self) -> u32 {
        self.end
    }

    /// The first packet from this one on that is missing although a later one is there.
    pub(crate) fn hole_from(&self, packet: u32) -> Option<u32> {
        (packet..self.end).find(|&packet| !self.has(packet))
    }

    /// The first packet from this one on that is missing.
    pub(crate) fn missing_from(&self, packet: u32) -> u32 {
        self.hole_from(packet)
            .unwrap_or_else(|| packet.max(self.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_found_and_the_front_is_forgotten() {
        let mut bitmap = PacketBitmap::default();
        for packet in (0..300).filter(|packet| ![70, 71, 256].contains(packet)) {
            bitmap.add(packet);
        }
        bitmap.forget_before(70);
        assert_eq!(bitmap.words.len(), 4);
        assert_eq!(
            (bitmap.hole_from(70), bitmap.hole_from(72)),
            (Some(70), Some(256))
        );
        assert_eq!(
            (bitmap.hole_from(257), bitmap.missing_from(257)),
            (None, 300)
        );
        assert_eq!(bitmap.missing_from(400), 400);
        assert!(bitmap.has(299) && !bitmap.has(300) && !bitmap.has(5));
    }
}
