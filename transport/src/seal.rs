//! What makes bytes a packet of this job: headers written and sealed on the way out, checked on the
//! way in.
//!
//! Runs that are copied together are [staged](Seal::stage), large payloads are
//! [gathered](Seal::gather) from where they lie. How packets reach the kernel is [`crate::udp`]'s.

use std::ops::Range;

use gradwire_protocol::job::Checksum;
use gradwire_protocol::machine::{Payload, Transmit};
use gradwire_protocol::wire::{CHECKSUM_AT, HEADER_BYTES};

use crate::message::Gathered;
use crate::udp::SLOT_BYTES;

/// Seals and opens the packets of one rank.
#[derive(Debug)]
pub struct Seal {
    checksum: Checksum,
    staging: Vec<u8>,
}

impl Seal {
    /// A seal that protects packets from accidents only, by a CRC-32, or from nothing.
    pub fn none(checksum: Checksum) -> Self {
        Self {
            checksum,
            staging: Vec::with_capacity(SLOT_BYTES),
        }
    }

    /// The packets of a run, one behind the other.
    pub fn stage(&mut self, transmit: &Transmit<'_>, packets: Range<usize>) -> &[u8] {
        self.staging.clear();
        for index in packets {
            let header = transmit.header(index);
            let at = self.staging.len();
            self.staging.resize(at + HEADER_BYTES, 0);
            header.encode(&mut self.staging[at..]);
            match transmit.payload(&header) {
                Payload::Bytes(bytes) => self.staging.extend_from_slice(bytes),
                Payload::Length(length) => self.staging.resize(at + HEADER_BYTES + length, 0),
            }
            if self.checksum == Checksum::On {
                let sum = crc32fast::hash(&self.staging[at..]);
                let field = at + CHECKSUM_AT;
                self.staging[field..field + 4].copy_from_slice(&sum.to_le_bytes());
            }
        }
        &self.staging
    }

    /// Only the headers of a run are written together; payloads stay where they lie in `message`.
    pub(crate) fn gather<'a>(
        &'a mut self,
        transmit: &Transmit<'_>,
        message: &'a [u8],
        packets: Range<usize>,
    ) -> Gathered<'a> {
        self.staging.clear();
        self.staging.resize(packets.len() * HEADER_BYTES, 0);
        let mut gathered = Gathered::default();
        for (index, out) in packets.zip(self.staging.chunks_exact_mut(HEADER_BYTES)) {
            let header = transmit.header(index);
            header.encode(out);
            let payload = &message[header.offset as usize..][..usize::from(header.length)];
            if self.checksum == Checksum::On {
                let mut sum = crc32fast::Hasher::new();
                sum.update(out);
                sum.update(payload);
                out[CHECKSUM_AT..].copy_from_slice(&sum.finalize().to_le_bytes());
            }
            gathered.push(payload);
        }
        gathered.with_headers(&self.staging)
    }

    /// Whether a packet is as its sender sealed it. `packet` is at least a header long, `said` the
    /// checksum in that header.
    pub fn is_intact(&self, packet: &mut [u8], said: u32) -> bool {
        if self.checksum == Checksum::Off {
            return true;
        }
        packet[CHECKSUM_AT..HEADER_BYTES].fill(0);
        crc32fast::hash(packet) == said
    }
}
