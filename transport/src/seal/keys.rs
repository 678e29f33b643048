//! Keys of one directed pair of ranks; they seal and open its packets.
//!
//! Rank 0 gives each pair of ranks a secret (see `control::secrets`). HKDF-SHA256 derives from it
//! one secret per direction, bound to cipher, job, epoch, source and destination. From the secret
//! of a direction derive a key and an IV for the job's cipher, and the secret of the next
//! generation:
//!
//! ```text
//!   pair secret --"data" cipher job epoch ranks--> secret 0 --"next"--> secret 1 --> ...
//!                                                     |                    |
//!                                                  key 0, IV 0          key 1, IV 1
//! ```
//!
//! - Every packet, including a retransmission, takes the next number of its direction.
//! - Its nonce is the IV XOR the number (RFC 8446, 5.3). Its generation is the number's bits from
//!   23 on, so no key seals more than 2^23 packets (RFC 9001, 6.6, has this limit for
//!   AES-128-GCM).
//! - So no nonce is ever used twice with one key, whatever is sent again.
//! - Both ends see the generation in the number and change keys without a message.
//! - A receiver keeps the keys of three generations: previous, current and next. After a pause in
//!   which it missed more, it derives the key that a packet names, and changes to that key only
//!   after the packet had a correct tag.

use std::fmt;

use gradwire_protocol::units::{JobId, Rank};
use gradwire_protocol::wire::{CHECKSUM_AT, HEADER_BYTES, PacketKind};

use super::cipher::{PacketAead, PacketKey};
use super::rejection::PacketRejection;
use super::window::{Freshness, ReplayWindow};
use crate::hkdf::{Secret, expand};

/// A number's bits below its generation.
const GENERATION_AT: u32 = 23;

/// The packets that a chain of keys protects: those from `source` to `destination` in one epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyDirection {
    pub(super) aead: PacketAead,
    pub(super) job: JobId,
    pub(super) epoch: u16,
    pub(super) source: Rank,
    pub(super) destination: Rank,
}

impl KeyDirection {
    fn chain(self, pair: &Secret) -> KeyChain {
        let (job, epoch) = (self.job.0.to_be_bytes(), self.epoch.to_be_bytes());
        let ends = [self.source, self.destination].map(|rank| rank.0.to_be_bytes());
        let purpose: [&[u8]; 6] = [
            b"gradwire data",
            self.aead.name().as_bytes(),
            &job,
            &epoch,
            &ends[0],
            &ends[1],
        ];
        KeyChain {
            secret: expand(pair, &purpose),
            aead: self.aead,
        }
    }
}

/// The secret of the next generation.
#[derive(Clone)]
struct KeyChain {
    secret: Secret,
    aead: PacketAead,
}

impl KeyChain {
    /// Derives the next generation's key, and replaces the secret by the one after it.
    fn advance(&mut self) -> PacketKey {
        let key = self.key();
        self.skip();
        key
    }

    fn key(&self) -> PacketKey {
        PacketKey::of(&self.secret, self.aead)
    }

    /// Replaces the secret by the one after it.
    fn skip(&mut self) {
        self.secret = expand(&self.secret, &[b"gradwire next"]);
    }
}

fn generation(number: u64) -> u64 {
    number >> GENERATION_AT
}

/// Seals the packets of one direction.
pub(super) struct OutboundKeys {
    next: u64,
    generation: u64,
    key: PacketKey,
    chain: KeyChain,
}

impl OutboundKeys {
    pub(super) fn new(direction: KeyDirection, pair: &Secret) -> Self {
        let mut chain = direction.chain(pair);
        Self {
            next: 0,
            generation: 0,
            key: chain.advance(),
            chain,
        }
    }

    /// Seals `payload` behind the header that `packet` starts with, and writes the packet's number
    /// into that header. The length of `packet` must be exactly header, payload and tag.
    #[inline]
    pub(super) fn seal(&mut self, packet: &mut [u8], payload: &[u8]) {
        let number = self.take_number();
        let (header, body) = packet.split_at_mut(HEADER_BYTES);
        header[CHECKSUM_AT..].copy_from_slice(&(number as u32).to_le_bytes());
        self.key.seal(number, header, payload, body);
    }

    fn take_number(&mut self) -> u64 {
        let number = self.next;
        if generation(number) > self.generation {
            self.change_keys();
        }
        self.next += 1;
        number
    }

    #[cold]
    fn change_keys(&mut self) {
        self.generation += 1;
        self.key = self.chain.advance();
    }
}

/// Opens the packets of one direction.
pub(super) struct InboundKeys {
    generation: u64,
    previous: Option<PacketKey>,
    current: PacketKey,
    next: PacketKey,
    chain: KeyChain,
    /// The chains of the generations from `generation + 2` on, as far as packets have named them.
    later: Vec<KeyChain>,
    window: ReplayWindow,
}

impl InboundKeys {
    pub(super) fn new(direction: KeyDirection, pair: &Secret) -> Self {
        let mut chain = direction.chain(pair);
        Self {
            generation: 0,
            previous: None,
            current: chain.advance(),
            next: chain.advance(),
            chain,
            later: Vec::new(),
            window: ReplayWindow::default(),
        }
    }

    /// Decrypts a packet (header, payload, tag) in place, and accepts each number once.
    ///
    /// DATA packets older than the window are accepted: the receiver of the message knows exactly
    /// which segments it has, and ignores repeated ones.
    ///
    /// # Errors
    /// [`PacketRejection::Forged`] when the tag is wrong, [`PacketRejection::Replayed`] when the
    /// number was accepted before or is too old to tell.
    #[inline]
    pub(super) fn open(
        &mut self,
        kind: PacketKind,
        packet: &mut [u8],
    ) -> Result<(), PacketRejection> {
        let (header, body) = packet.split_at_mut(HEADER_BYTES);
        let low = header[CHECKSUM_AT..].try_into().expect("four bytes");
        let number = self.window.whole(u32::from_le_bytes(low));
        let far;
        let key = match self.key_of(generation(number)) {
            Some(key) => key,
            None => {
                far = self.far_key(generation(number));
                far.as_ref().ok_or(PacketRejection::Forged)?
            }
        };
        key.open(number, header, body)?;
        while generation(number) > self.generation {
            self.change_keys();
        }
        match self.window.take(number) {
            Freshness::New => Ok(()),
            Freshness::TooOld if kind == PacketKind::Data => Ok(()),
            Freshness::Again | Freshness::TooOld => Err(PacketRejection::Replayed),
        }
    }

    fn key_of(&self, generation: u64) -> Option<&PacketKey> {
        if generation == self.generation {
            Some(&self.current)
        } else if generation == self.generation + 1 {
            Some(&self.next)
        } else if generation + 1 == self.generation {
            self.previous.as_ref()
        } else {
            None
        }
    }

    /// The key of a generation behind the next one: this rank has missed packets for a while. The
    /// number of a packet names at most 256 generations, so this search is bounded, and each chain
    /// is derived once. A forged packet costs the derivation of one key more than others do.
    #[cold]
    fn far_key(&mut self, generation: u64) -> Option<PacketKey> {
        let ahead = generation.checked_sub(self.generation + 2)? as usize;
        while self.later.len() <= ahead {
            let mut chain = self.later.last().unwrap_or(&self.chain).clone();
            if !self.later.is_empty() {
                chain.skip();
            }
            self.later.push(chain);
        }
        Some(self.later[ahead].key())
    }

    fn change_keys(&mut self) {
        if !self.later.is_empty() {
            self.later.remove(0);
        }
        self.generation += 1;
        let later = self.chain.advance();
        let current = std::mem::replace(&mut self.next, later);
        self.previous = Some(std::mem::replace(&mut self.current, current));
    }
}

/// Prints no key.
impl fmt::Debug for OutboundKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboundKeys")
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

/// Prints no key.
impl fmt::Debug for InboundKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboundKeys")
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use gradwire_protocol::wire::TAG_BYTES;
    use proptest::prelude::*;

    use super::super::window::WINDOW;
    use super::*;
    use crate::lanes::AegisLanes;

    const PAIR: Secret = [7; 32];
    const HERE: KeyDirection = KeyDirection {
        aead: PacketAead::ALL[0],
        job: JobId(5),
        epoch: 0,
        source: Rank(0),
        destination: Rank(1),
    };

    impl OutboundKeys {
        /// The state after `next` packets.
        fn after(next: u64) -> Self {
            Self::of(HERE.aead, next)
        }

        /// The same with this AEAD.
        fn of(aead: PacketAead, next: u64) -> Self {
            let mut outbound = Self::new(KeyDirection { aead, ..HERE }, &PAIR);
            outbound.skip_to(next);
            outbound
        }

        /// All packets before this one have left.
        fn skip_to(&mut self, next: u64) {
            self.next = next;
            while self.generation < generation(next) {
                self.generation += 1;
                self.key = self.chain.advance();
            }
        }

        fn packet(&mut self, payload: &[u8]) -> Vec<u8> {
            let mut packet = vec![0; HEADER_BYTES + payload.len() + TAG_BYTES];
            self.seal(&mut packet, payload);
            packet
        }
    }

    fn any_aead() -> impl Strategy<Value = PacketAead> {
        prop::sample::select(PacketAead::ALL.to_vec())
    }

    fn inbound_of(aead: PacketAead) -> InboundKeys {
        InboundKeys::new(KeyDirection { aead, ..HERE }, &PAIR)
    }

    fn inbound_after(packets: &[u64]) -> InboundKeys {
        let mut inbound = InboundKeys::new(HERE, &PAIR);
        for &number in packets {
            let mut packet = OutboundKeys::after(number).packet(b"");
            assert_eq!(
                inbound.open(PacketKind::Data, &mut packet),
                Ok(()),
                "{number}"
            );
        }
        inbound
    }

    /// The first numbers of the second, third and later generations.
    const CHANGES: [u64; 4] = [1 << 23, 2 << 23, 3 << 23, 4 << 23];

    #[test]
    fn both_ends_change_keys_at_the_same_packet() {
        let mut inbound = inbound_after(&[0]);
        for change in CHANGES {
            let mut outbound = OutboundKeys::after(change - 2);
            for _ in 0..4 {
                let mut packet = outbound.packet(b"gradient");
                assert_eq!(inbound.open(PacketKind::Ack, &mut packet), Ok(()));
                assert_eq!(&packet[HEADER_BYTES..][..8], b"gradient");
            }
        }
        assert_eq!(inbound.generation, 4);
    }

    #[test]
    fn only_the_previous_generation_is_still_opened() {
        let late = OutboundKeys::after(CHANGES[0] - 1).packet(b"late");
        let open = |inbound: &mut InboundKeys| inbound.open(PacketKind::Data, &mut late.clone());
        assert_eq!(open(&mut inbound_after(&CHANGES[..1])), Ok(()));
        let older = open(&mut inbound_after(&CHANGES[..2]));
        assert_eq!(older, Err(PacketRejection::Forged));
    }

    #[test]
    fn a_paused_receiver_finds_later_generations() {
        let mut inbound = inbound_after(&[0]);
        // Generations that it has missed meanwhile; the last is as far as a number can name.
        for missed in [2_u64, 3, 255] {
            let number = (inbound.generation + missed) << GENERATION_AT;
            let mut outbound = OutboundKeys::after(number);
            let mut packet = outbound.packet(b"late");
            assert_eq!(inbound.open(PacketKind::Ack, &mut packet), Ok(()));
            assert_eq!(inbound.generation, generation(number));
            let mut next = OutboundKeys::after(number + (1 << GENERATION_AT)).packet(b"");
            assert_eq!(inbound.open(PacketKind::Ack, &mut next), Ok(()));
        }
    }

    #[test]
    fn a_forged_far_packet_changes_no_key() {
        let mut inbound = inbound_after(&[0]);
        for ahead in [200, 3, 255] {
            let mut packet = OutboundKeys::after(ahead << GENERATION_AT).packet(b"gradient");
            packet[HEADER_BYTES] ^= 1;
            let opened = inbound.open(PacketKind::Data, &mut packet);
            assert_eq!(opened, Err(PacketRejection::Forged));
        }
        assert_eq!(inbound.generation, 0);
        let mut packet = OutboundKeys::after(CHANGES[2]).packet(b"");
        assert_eq!(inbound.open(PacketKind::Data, &mut packet), Ok(()));
    }

    #[test]
    fn packets_pass_once_and_old_control_packets_never() {
        let first = OutboundKeys::after(0).packet(b"");
        let mut inbound = inbound_after(&[0]);
        let open = |inbound: &mut InboundKeys, kind| inbound.open(kind, &mut first.clone());
        assert_eq!(
            open(&mut inbound, PacketKind::Data),
            Err(PacketRejection::Replayed)
        );
        let mut inbound = inbound_after(&[0, 200_000]);
        assert_eq!(
            open(&mut inbound, PacketKind::Ack),
            Err(PacketRejection::Replayed)
        );
        assert_eq!(
            open(&mut inbound, PacketKind::Data),
            Ok(()),
            "the bitmap decides"
        );
    }

    #[test]
    fn keys_differ_by_cipher_job_epoch_and_rank() {
        let directions = [
            HERE,
            KeyDirection {
                job: JobId(6),
                ..HERE
            },
            KeyDirection { epoch: 1, ..HERE },
            KeyDirection {
                aead: PacketAead::Aegis(AegisLanes::Four),
                ..HERE
            },
            KeyDirection {
                aead: PacketAead::Aes128Gcm,
                ..HERE
            },
            KeyDirection {
                source: Rank(2),
                ..HERE
            },
            KeyDirection {
                destination: Rank(2),
                ..HERE
            },
            KeyDirection {
                source: Rank(1),
                destination: Rank(0),
                ..HERE
            },
        ];
        let secrets = directions.map(|direction| direction.chain(&PAIR).secret);
        assert_eq!(BTreeSet::from(secrets).len(), directions.len());
        let sealed = directions.map(|direction| {
            let mut packet = vec![0; HEADER_BYTES + TAG_BYTES];
            OutboundKeys::new(direction, &PAIR).seal(&mut packet, b"");
            packet
        });
        assert_eq!(BTreeSet::from(sealed).len(), directions.len());
    }

    /// What becomes of the next packet of a direction.
    #[derive(Clone, Copy, Debug)]
    enum PathStep {
        Arrives(PacketKind),
        ArrivesTwice(PacketKind),
        /// It is overtaken by all packets until the next `Release`.
        Waits(PacketKind),
        Release,
        /// This many packets are lost.
        Lost(u64),
    }

    fn any_step() -> impl Strategy<Value = PathStep> {
        let kind = prop::sample::select(vec![PacketKind::Data, PacketKind::Ack]);
        let lost = vec![
            1,
            40,
            WINDOW - 5,
            WINDOW + 100,
            1 << GENERATION_AT,
            5 << GENERATION_AT,
        ];
        prop_oneof![
            8 => kind.clone().prop_map(PathStep::Arrives),
            3 => kind.clone().prop_map(PathStep::ArrivesTwice),
            4 => kind.prop_map(PathStep::Waits),
            2 => Just(PathStep::Release),
            2 => prop::sample::select(lost).prop_map(PathStep::Lost),
        ]
    }

    /// A direction whose packets get lost, come twice and overtake each other, beside the rule that
    /// says which of them open.
    struct RoughPath {
        outbound: OutboundKeys,
        inbound: InboundKeys,
        waiting: Vec<(PacketKind, u64, Vec<u8>)>,
        opened: BTreeSet<u64>,
    }

    impl RoughPath {
        /// A direction on which one packet has arrived, with this number.
        fn from(aead: PacketAead, number: u64) -> Self {
            let mut path = Self {
                outbound: OutboundKeys::of(aead, number),
                inbound: inbound_of(aead),
                waiting: Vec::new(),
                opened: BTreeSet::new(),
            };
            // The receiver has seen the packets before, or could not name the high half.
            path.inbound.window.take(number - 1);
            path.opened.insert(number - 1);
            while path.inbound.generation < generation(number - 1) {
                path.inbound.change_keys();
            }
            path.take(PathStep::Arrives(PacketKind::Ack));
            path
        }

        /// The number of the next packet, and the packet.
        fn sealed(&mut self) -> (u64, Vec<u8>) {
            (self.outbound.next, self.outbound.packet(b"gradient"))
        }

        fn take(&mut self, step: PathStep) {
            match step {
                PathStep::Lost(count) => self.outbound.skip_to(self.outbound.next + count),
                PathStep::Release => {
                    for (kind, number, packet) in std::mem::take(&mut self.waiting) {
                        self.arrive(kind, number, &packet);
                    }
                }
                PathStep::Arrives(kind) => {
                    let (number, packet) = self.sealed();
                    self.arrive(kind, number, &packet);
                }
                PathStep::ArrivesTwice(kind) => {
                    let (number, packet) = self.sealed();
                    self.arrive(kind, number, &packet);
                    self.arrive(kind, number, &packet);
                }
                PathStep::Waits(kind) => {
                    let (number, packet) = self.sealed();
                    self.waiting.push((kind, number, packet));
                }
            }
        }

        fn arrive(&mut self, kind: PacketKind, number: u64, packet: &[u8]) {
            let newest = *self.opened.last().expect("one was opened at the start");
            let opened = self.inbound.open(kind, &mut packet.to_vec());
            let behind = newest.saturating_sub(number);
            if generation(number) + 1 < generation(newest) {
                assert_eq!(
                    opened,
                    Err(PacketRejection::Forged),
                    "{number} after {newest}"
                );
            } else if behind < WINDOW {
                let is_new = self.opened.insert(number);
                let expected = is_new.then_some(()).ok_or(PacketRejection::Replayed);
                assert_eq!(opened, expected, "{number} after {newest}");
            } else if behind >= WINDOW + 64 {
                let expected = match kind {
                    PacketKind::Data => Ok(()),
                    _ => Err(PacketRejection::Replayed),
                };
                assert_eq!(opened, expected, "{number} after {newest}");
            } else if opened.is_ok() {
                self.opened.insert(number);
            }
        }
    }

    proptest! {
        #[test]
        fn no_nonce_is_used_twice_with_one_key(
            aead in any_aead(),
            start in prop_oneof![Just(0_u64), Just(CHANGES[0] - 300), Just(CHANGES[2] - 300)],
            again in prop::collection::vec(0..2_u8, 600),
        ) {
            let (mut outbound, mut used) = (OutboundKeys::of(aead, start), BTreeSet::new());
            // Each packet repeats the payload before it, as a repair does, or has a new one.
            let mut payload = 0_u8;
            for again in again {
                payload = payload.wrapping_add(1 - again);
                let sealed = outbound.packet(&[payload; 4]);
                let number = outbound.next - 1;
                let said = &sealed[CHECKSUM_AT..HEADER_BYTES];
                prop_assert_eq!(said, &(number as u32).to_le_bytes());
                let used_now = outbound.key.iv_and_nonce(number);
                prop_assert!(used.insert(used_now), "number {number} twice");
                prop_assert_eq!(outbound.generation, generation(number));
            }
        }

        #[test]
        fn packets_of_a_rough_path_open_once_across_key_changes(
            aead in any_aead(),
            // The low half of the numbers wraps at 2^32, where a generation begins, too.
            edge in prop::sample::select(vec![CHANGES[0], CHANGES[1], 1 << 32, 3 << 32]),
            before in 1..300_u64,
            steps in prop::collection::vec(any_step(), 1..120),
        ) {
            let mut path = RoughPath::from(aead, edge - before);
            for step in steps {
                path.take(step);
            }
        }

        #[test]
        fn packets_of_any_size_open_unchanged(
            aead in any_aead(),
            payload in prop::collection::vec(any::<u8>(), 0..3000),
            number in prop_oneof![0..1_000_u64, CHANGES[0] - 5..CHANGES[0] + 5],
        ) {
            let mut packet = OutboundKeys::of(aead, number).packet(&payload);
            let sealed = packet.clone();
            let opened = inbound_of(aead).open(PacketKind::Data, &mut packet);
            prop_assert_eq!(opened, Ok(()));
            prop_assert_eq!(&packet[HEADER_BYTES..HEADER_BYTES + payload.len()], &payload[..]);
            prop_assert!(payload.len() < 8 || packet != sealed, "it travels encrypted");
        }

        #[test]
        fn a_flipped_bit_anywhere_is_refused(
            aead in any_aead(),
            payload in prop::collection::vec(any::<u8>(), 0..300),
            place in any::<prop::sample::Index>(),
        ) {
            let mut packet = OutboundKeys::of(aead, 0).packet(&payload);
            let bit = place.index(packet.len() * 8);
            packet[bit / 8] ^= 1 << (bit % 8);
            let refused = inbound_of(aead).open(PacketKind::Data, &mut packet);
            prop_assert_eq!(refused, Err(PacketRejection::Forged));
        }
    }
}
