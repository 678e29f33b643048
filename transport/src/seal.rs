//! Turns messages into packets of this job, and checks that received bytes are such packets.
//!
//! - Going out, a run is [staged](Seal::stage): each packet is copied into the staging buffer and
//!   sealed on the way. Large payloads that need no seal are gathered from the message without a
//!   copy.
//! - Coming in, checks run in the order of their cost. [`Seal::read`] uses no cryptography. Only a
//!   packet that passes it, and comes from an address of its sender, reaches [`Seal::open`].
//!
//! Not here: how packets reach the kernel, which [`crate::udp`] does.

mod cipher;
mod keys;
mod rejection;
mod window;

use std::ops::Range;

use gradwire_protocol::job::{Checksum, Job, PacketSecurity};
use gradwire_protocol::machine::{Payload, RunHeaders, RunLength, Transmit};
use gradwire_protocol::prefetch::prefetch_behind;
use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{JobId, Rank};
use gradwire_protocol::wire::{
    CHECKSUM_AT, HEADER_BYTES, Header, LENGTH_AT, PacketKind, TAG_BYTES,
};

use crate::address::Address;
use crate::control::PairSecrets;
use crate::lanes::AegisLanes;
use crate::message::{GatheredPackets, SLOT_BYTES};

use cipher::PacketAead;
use keys::{InboundKeys, KeyDirection, OutboundKeys};
pub use rejection::PacketRejection;

/// A peer that packets go to: its addresses, one per entropy, and the seal for its packets.
#[derive(Debug)]
pub struct Destination<'a> {
    /// The peer's data addresses, one per entropy.
    pub addresses: &'a [Address],
    /// Seals the packets.
    pub seal: &'a mut Seal,
}

/// What protects packets of a job whose ranks compute AEGIS in these lanes: the AEAD's name, or
/// "none".
pub fn protection(job: &Job, lanes: AegisLanes) -> &'static str {
    match job.security {
        PacketSecurity::Aead => PacketAead::of(job.cipher, lanes).name(),
        PacketSecurity::None => job.protection(),
    }
}

/// Seals and opens the packets of one rank.
#[derive(Debug)]
pub struct Seal {
    identity: Identity,
    protection: Protection,
    staging: Vec<u8>,
}

/// The packets of a run that [`Seal::open_run`] has opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenedRun {
    /// The first packet and those that continue it.
    pub length: RunLength,
    /// Why the packet behind them is rejected, if it continues the run.
    pub rejection: Option<PacketRejection>,
}

#[derive(Debug)]
enum Protection {
    Nothing,
    Checksum(Crc32),
    /// By rank; `None` for this rank itself.
    Aead(Vec<Option<PairKeys>>),
}

/// What protects the packets to one rank, or from one.
#[derive(Debug)]
enum PairProtection<'a, K> {
    Nothing,
    Checksum(&'a Crc32),
    Aead(&'a mut K),
}

/// A checksum of no bytes. Packets begin with a copy: a new one asks for the processor's abilities.
#[derive(Clone, Debug)]
struct Crc32(crc32fast::Hasher);

impl Crc32 {
    fn new() -> Self {
        Self(crc32fast::Hasher::new())
    }

    /// The checksum of a packet, as it stands in its header.
    #[inline]
    fn of(&self, packet: &[u8]) -> [u8; HEADER_BYTES - CHECKSUM_AT] {
        let mut sum = self.0.clone();
        sum.update(packet);
        sum.finalize().to_le_bytes()
    }

    /// The same of a packet whose payload lies elsewhere.
    fn of_both(&self, header: &[u8], payload: &[u8]) -> [u8; HEADER_BYTES - CHECKSUM_AT] {
        let mut sum = self.0.clone();
        sum.update(header);
        sum.update(payload);
        sum.finalize().to_le_bytes()
    }
}

/// The keys of both directions between this rank and another.
#[derive(Debug)]
struct PairKeys {
    outbound: OutboundKeys,
    inbound: InboundKeys,
}

impl Seal {
    /// The seal that a job asks for; its peers compute AEGIS in these lanes, too.
    ///
    /// # Panics
    /// When packets are sealed, and `secrets` does not have one secret for each rank of the job.
    pub fn of(job: &Job, identity: Identity, secrets: &PairSecrets, lanes: AegisLanes) -> Self {
        match job.security {
            PacketSecurity::Aead => {
                Self::aead(identity, secrets, PacketAead::of(job.cipher, lanes))
            }
            PacketSecurity::None => Self::none(identity, job.transport.checksum),
        }
    }

    /// A seal without cryptography: a CRC-32 detects damage if `checksum` is on.
    pub fn none(identity: Identity, checksum: Checksum) -> Self {
        let protection = match checksum {
            Checksum::On => Protection::Checksum(Crc32::new()),
            Checksum::Off => Protection::Nothing,
        };
        Self::new(identity, protection)
    }

    /// A seal that encrypts and authenticates every packet.
    fn aead(identity: Identity, secrets: &PairSecrets, aead: PacketAead) -> Self {
        let ranks = 0..identity.world_size;
        assert_eq!(secrets.len(), ranks.len(), "a secret for each rank");
        let pair = |rank| {
            let peer = Rank(rank);
            let direction = |source, destination| KeyDirection {
                aead,
                job: identity.job,
                epoch: identity.epoch,
                source,
                destination,
            };
            let secret = secrets.with(peer);
            (peer != identity.rank).then(|| PairKeys {
                outbound: OutboundKeys::new(direction(identity.rank, peer), secret),
                inbound: InboundKeys::new(direction(peer, identity.rank), secret),
            })
        };
        Self::new(identity, Protection::Aead(ranks.map(pair).collect()))
    }

    fn new(identity: Identity, protection: Protection) -> Self {
        Self {
            identity,
            protection,
            staging: vec![0; SLOT_BYTES],
        }
    }

    /// Whether payloads may be sent from where they are. Encryption must write them to a new place.
    pub fn may_gather(&self) -> bool {
        !matches!(self.protection, Protection::Aead(_))
    }

    /// The job and the epoch of its packets.
    pub(crate) fn membership(&self) -> (JobId, u16) {
        (self.identity.job, self.identity.epoch)
    }

    /// Bytes of the tag after the payload of every packet.
    pub fn tag_bytes(&self) -> usize {
        match self.protection {
            Protection::Nothing | Protection::Checksum(_) => 0,
            Protection::Aead(_) => TAG_BYTES,
        }
    }

    /// Writes packets of a run one after the other, at most [`SLOT_BYTES`] together.
    pub fn stage(&mut self, transmit: &Transmit<'_>, packets: Range<usize>) -> &[u8] {
        let headers = transmit.headers();
        let mut outbound = self.protection.outbound(headers.to());
        let end = outbound.stage(&headers, packets, &mut self.staging);
        &self.staging[..end]
    }

    /// Writes packet `index` of a run at the start of `out`, and returns its length in bytes.
    ///
    /// # Panics
    /// When `out` is shorter than the packet.
    pub fn stage_one(
        &mut self,
        headers: &RunHeaders<'_, '_>,
        index: usize,
        out: &mut [u8],
    ) -> usize {
        let mut outbound = self.protection.outbound(headers.to());
        outbound.stage(headers, index..index + 1, out)
    }

    /// Writes the headers of a run one after the other; payloads stay where they are.
    ///
    /// # Panics
    /// When packets [may not be gathered](Self::may_gather), or payloads are only lengths.
    pub(crate) fn gather<'a>(
        &'a mut self,
        transmit: &Transmit<'a>,
        packets: Range<usize>,
    ) -> GatheredPackets<'a> {
        let checksum = match &self.protection {
            Protection::Nothing => None,
            Protection::Checksum(checksum) => Some(checksum),
            Protection::Aead(_) => panic!("sealed packets are staged"),
        };
        let headers = &mut self.staging[..packets.len() * HEADER_BYTES];
        let (template, mut gathered) = (transmit.headers(), GatheredPackets::default());
        for (index, out) in packets.zip(headers.chunks_exact_mut(HEADER_BYTES)) {
            let payload = template.write(index, out).bytes();
            let payload = payload.expect("only bytes are gathered");
            if let Some(checksum) = checksum {
                let sum = checksum.of_both(out, payload);
                out[CHECKSUM_AT..].copy_from_slice(&sum);
            }
            gathered.push(payload);
        }
        gathered.with_headers(headers)
    }

    /// Decodes the header of a packet that may be one of this job. The header is not authenticated
    /// yet. Costs a few comparisons.
    ///
    /// # Errors
    /// [`PacketRejection`], except those that [`Seal::open`] finds.
    pub fn read(&self, packet: &[u8]) -> Result<Header, PacketRejection> {
        let plain = packet.len().checked_sub(self.tag_bytes());
        let plain = &packet[..plain.ok_or(PacketRejection::Malformed)?];
        let (header, _) = Header::decode(plain).map_err(|_| PacketRejection::Malformed)?;
        let us = &self.identity;
        if header.job != us.job {
            Err(PacketRejection::Foreign)
        } else if header.epoch != us.epoch {
            Err(PacketRejection::OldEpoch)
        } else if header.source == us.rank || header.source.0 >= us.world_size {
            Err(PacketRejection::UnknownSender)
        } else {
            Ok(header)
        }
    }

    /// Opens a packet in place, with the header that [`Seal::read`] returned. Afterwards the header
    /// is known to be as its sender wrote it, and the payload behind it is in clear.
    ///
    /// # Errors
    /// [`PacketRejection::Forged`] and [`PacketRejection::Replayed`]; the packet's bytes
    /// are garbage then.
    pub fn open(&mut self, header: &Header, packet: &mut [u8]) -> Result<(), PacketRejection> {
        self.protection
            .inbound(header.source)?
            .open(header.kind, packet)
    }

    /// Opens the packets behind the `first` of a run of DATA, which has been opened and has this
    /// header, up to one that does not [continue](Header::continues) the run or is rejected.
    pub fn open_run<'p>(
        &mut self,
        header: &Header,
        first: &[u8],
        others: impl Iterator<Item = &'p mut [u8]>,
    ) -> OpenedRun {
        let mut opened = OpenedRun {
            length: RunLength::of_one(header),
            rejection: None,
        };
        let (tag, start) = (self.tag_bytes(), first.first_chunk::<HEADER_BYTES>());
        let start = start.filter(|_| header.kind.comes_in_runs());
        let inbound = self.protection.inbound(header.source);
        let (Some(start), Ok(mut inbound)) = (start, inbound) else {
            return opened;
        };
        for packet in others {
            let Some(later) = packet.first_chunk::<HEADER_BYTES>() else {
                break;
            };
            let length = u16::from_le_bytes([later[LENGTH_AT], later[LENGTH_AT + 1]]);
            let bytes = HEADER_BYTES + usize::from(length) + tag;
            let packets = opened.length.packets;
            if packet.len() != bytes || !Header::continues(start, packets, later) {
                break;
            }
            if let Err(rejection) = inbound.open(header.kind, packet) {
                opened.rejection = Some(rejection);
                break;
            }
            opened.length = RunLength {
                packets: packets + 1,
                last: length,
            };
            // Only the last packet may be shorter.
            if length != header.length {
                break;
            }
        }
        opened
    }
}

impl Protection {
    /// What protects packets to this rank.
    fn outbound(&mut self, to: Rank) -> PairProtection<'_, OutboundKeys> {
        match self {
            Self::Nothing => PairProtection::Nothing,
            Self::Checksum(checksum) => PairProtection::Checksum(checksum),
            Self::Aead(pairs) => {
                let pair = pairs[usize::from(to.0)].as_mut();
                let pair = pair.expect("a machine does not send to its own rank");
                PairProtection::Aead(&mut pair.outbound)
            }
        }
    }

    /// What protects packets from this rank.
    fn inbound(&mut self, from: Rank) -> Result<PairProtection<'_, InboundKeys>, PacketRejection> {
        Ok(match self {
            Self::Nothing => PairProtection::Nothing,
            Self::Checksum(checksum) => PairProtection::Checksum(checksum),
            Self::Aead(pairs) => {
                let pair = pairs.get_mut(usize::from(from.0));
                let pair = pair.and_then(Option::as_mut);
                PairProtection::Aead(&mut pair.ok_or(PacketRejection::UnknownSender)?.inbound)
            }
        })
    }
}

impl PairProtection<'_, OutboundKeys> {
    /// Writes packets of a run one after the other at the start of `out`; returns their length in
    /// bytes.
    fn stage(
        &mut self,
        headers: &RunHeaders<'_, '_>,
        packets: Range<usize>,
        out: &mut [u8],
    ) -> usize {
        match self {
            Self::Nothing => stage_each(headers, packets, out, 0, write_plain),
            Self::Checksum(checksum) => stage_each(headers, packets, out, 0, |packet, payload| {
                write_plain(packet, payload);
                let sum = checksum.of(packet);
                packet[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&sum);
            }),
            Self::Aead(outbound) => {
                stage_each(headers, packets, out, TAG_BYTES, |packet, payload| {
                    write_sealed(packet, payload, outbound);
                })
            }
        }
    }
}

/// Writes packets of a run one after the other at the start of `out`, `seal_bytes` longer than
/// header and payload; `finish` writes all but the header. Returns their length in bytes.
#[inline]
fn stage_each(
    headers: &RunHeaders<'_, '_>,
    packets: Range<usize>,
    out: &mut [u8],
    seal_bytes: usize,
    mut finish: impl FnMut(&mut [u8], Payload<'_>),
) -> usize {
    let mut end = 0;
    for index in packets {
        let packet = &mut out[end..];
        let payload = headers.write(index, packet);
        if let Payload::Bytes(bytes) = payload {
            prefetch_behind(bytes);
        }
        let bytes = HEADER_BYTES + payload.len() + seal_bytes;
        finish(&mut packet[..bytes], payload);
        end += bytes;
    }
    end
}

impl PairProtection<'_, InboundKeys> {
    /// Opens a packet of this kind in place.
    #[inline]
    fn open(&mut self, kind: PacketKind, packet: &mut [u8]) -> Result<(), PacketRejection> {
        match self {
            Self::Nothing => Ok(()),
            Self::Checksum(checksum) => {
                let said = std::mem::take(checksum_of(packet));
                let intact = checksum.of(packet) == said;
                intact.then_some(()).ok_or(PacketRejection::Forged)
            }
            Self::Aead(inbound) => inbound.open(kind, packet),
        }
    }
}

fn checksum_of(packet: &mut [u8]) -> &mut [u8; HEADER_BYTES - CHECKSUM_AT] {
    let checksum = packet[CHECKSUM_AT..].first_chunk_mut();
    checksum.expect("a packet has a header")
}

/// Writes the payload behind the header that `packet` starts with.
fn write_plain(packet: &mut [u8], payload: Payload<'_>) {
    match payload {
        Payload::Bytes(bytes) => packet[HEADER_BYTES..].copy_from_slice(bytes),
        Payload::Length(_) => packet[HEADER_BYTES..].fill(0),
    }
}

/// Seals the payload behind the header that `packet` starts with. A machine that sends lengths
/// instead of bytes sends zeros.
fn write_sealed(packet: &mut [u8], payload: Payload<'_>, outbound: &mut OutboundKeys) {
    static ZEROS: [u8; SLOT_BYTES] = [0; SLOT_BYTES];
    let bytes = match payload {
        Payload::Bytes(bytes) => bytes,
        Payload::Length(length) => &ZEROS[..length],
    };
    outbound.seal(packet, bytes);
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::endpoint::Endpoint;
    use gradwire_protocol::job::{Job, PacketCipher};
    use gradwire_protocol::machine::Machine;
    use gradwire_protocol::message::SendRequest;
    use gradwire_protocol::priority::{MessageShape, Policy, SegmentTags};
    use gradwire_protocol::units::{
        Instant, JobId, Layer, Magnitude, MessageKey, Share, Signature, Step,
    };

    use super::*;

    const BYTES: u32 = 5_000;

    fn identity(rank: u16) -> Identity {
        Identity {
            rank: Rank(rank),
            world_size: 2,
            job: JobId(1),
            epoch: 0,
        }
    }

    fn seals(protection: &str) -> [Seal; 2] {
        let secrets = PairSecrets::try_from("5a".repeat(64)).expect("two secrets");
        [0, 1].map(|rank| match protection {
            "aegis" => Seal::aead(
                identity(rank),
                &secrets,
                PacketAead::Aegis(AegisLanes::Four),
            ),
            "aes" => Seal::aead(identity(rank), &secrets, PacketAead::Aes128Gcm),
            _ => Seal::none(identity(rank), Checksum::On),
        })
    }

    /// An endpoint of rank 0 that sends a message of this many bytes.
    fn sending(
        bytes: u32,
        tolerance: Share,
        tags: impl FnOnce(&Policy, MessageShape) -> SegmentTags,
    ) -> Endpoint {
        let mut endpoint = Endpoint::new(identity(0), &Job::default(), 1);
        let shape = MessageShape {
            segments: bytes.div_ceil(endpoint.segment_bytes()),
            layer_count: 0,
        };
        let outgoing = SendRequest {
            key: MessageKey::new(0, 1, 0),
            signature: Signature::NONE,
            step: Step(0),
            bytes,
            tolerance,
            contributors: 1,
            tags: tags(&endpoint.settings().policy, shape),
        };
        endpoint.send(Instant::START, Rank(1), outgoing);
        endpoint
    }

    /// The packets of a message from rank 0, which leave as one run.
    fn packets(seal: &mut Seal) -> Vec<Vec<u8>> {
        let lossless =
            |policy: &Policy, shape: MessageShape| policy.lossless(shape, &[(0, Layer(3))]);
        let mut endpoint = sending(BYTES, Share::NONE, lossless);
        let message: Vec<u8> = (0..BYTES).map(|at| at as u8).collect();
        let mut transmit = endpoint.poll_transmit(Instant::START).expect("a run");
        transmit.message = Payload::Bytes(&message);
        let headers: Vec<Header> = (0..transmit.packets())
            .map(|at| transmit.header(at))
            .collect();
        let length = HEADER_BYTES + transmit.segment_bytes as usize + seal.tag_bytes();
        let staged = seal.stage(&transmit, 0..headers.len());
        let packets: Vec<Vec<u8>> = staged.chunks(length).map(<[u8]>::to_vec).collect();
        for (packet, header) in packets.iter().zip(&headers) {
            let (said, _) = Header::decode(&packet[..HEADER_BYTES + usize::from(header.length)])
                .expect("a whole packet");
            let checksum = header.checksum;
            assert_eq!(
                Header { checksum, ..said },
                *header,
                "a template says the same"
            );
        }
        packets
    }

    #[test]
    fn segments_that_do_not_follow_each_other_have_headers_of_their_own() {
        const LONG: u32 = 70_000;
        let mut segments = 0;
        let mut endpoint = sending(LONG, Share::ALL, |policy, shape| {
            segments = shape.segments;
            // A fifth of them are large; of these the first ones leave before all others.
            let magnitudes = (0..segments).map(|segment| Magnitude(u8::from(segment % 5 == 0)));
            policy.lossy(shape, &[(0, Layer(3))], magnitudes.collect())
        });
        let message: Vec<u8> = (0..LONG).map(|at| (at / 7) as u8).collect();
        let [mut seal, _] = seals("checked");
        let mut sent = Vec::new();
        while let Some(mut transmit) = endpoint.poll_transmit(Instant::START) {
            if transmit.template.kind != PacketKind::Data {
                continue;
            }
            transmit.message = Payload::Bytes(&message);
            let length = HEADER_BYTES + transmit.segment_bytes as usize;
            let staged = seal.stage(&transmit, 0..transmit.packets());
            for (at, packet) in staged.chunks(length).enumerate() {
                let (said, _) = Header::decode(packet).expect("a whole packet");
                let expected = transmit.header(at);
                let checksum = expected.checksum;
                assert_eq!(Header { checksum, ..said }, expected);
                let payload = transmit.payload(&expected);
                assert_eq!(payload.bytes(), Some(&packet[HEADER_BYTES..]));
                sent.push(said.segment);
            }
        }
        assert!(!sent.is_sorted(), "large ones first");
        sent.sort_unstable();
        assert!(sent.into_iter().eq(0..segments));
    }

    #[test]
    fn a_seal_is_that_of_its_job() {
        let secrets = PairSecrets::try_from("5a".repeat(64)).expect("two secrets");
        let job = Job {
            cipher: PacketCipher::Aes128Gcm,
            ..Job::default()
        };
        let first =
            packets(&mut Seal::of(&job, identity(0), &secrets, AegisLanes::Two)).swap_remove(0);
        let opened = |aead| {
            let (mut seal, mut packet) = (Seal::aead(identity(1), &secrets, aead), first.clone());
            let header = seal.read(&packet).expect("of this job");
            seal.open(&header, &mut packet)
        };
        assert_eq!(opened(PacketAead::Aes128Gcm), Ok(()));
        let forged = Err(PacketRejection::Forged);
        assert_eq!(opened(PacketAead::Aegis(AegisLanes::Four)), forged);
    }

    /// Opens the first packet, then those that continue it.
    fn opened(seal: &mut Seal, packets: &mut [Vec<u8>]) -> OpenedRun {
        let (first, others) = packets.split_first_mut().expect("a packet");
        let header = seal.read(first).expect("of this job");
        seal.open(&header, first).expect("as it was sealed");
        seal.open_run(&header, first, others.iter_mut().map(Vec::as_mut_slice))
    }

    #[test]
    fn a_run_ends_where_a_packet_does_not_continue_it() {
        for protection in ["aegis", "aes", "checked"] {
            let [mut sender, mut receiver] = seals(protection);
            let mut whole = packets(&mut sender);
            let count = whole.len();
            assert!(count > 3);
            let run = opened(&mut receiver, &mut whole);
            assert_eq!(run.length.packets as usize, count);
            assert_eq!(run.rejection, None);
            let full = u32::from(receiver.read(&whole[0]).expect("of this job").length);
            assert_eq!(
                u32::from(run.length.last),
                BYTES - full * (count as u32 - 1)
            );

            let mut swapped = packets(&mut sender);
            swapped.swap(1, 2);
            let run = opened(&mut receiver, &mut swapped);
            assert_eq!((run.length.packets, run.rejection), (1, None));
        }
    }

    #[test]
    fn a_forged_packet_ends_its_run_and_is_named() {
        for protection in ["aegis", "aes", "checked"] {
            let [mut sender, mut receiver] = seals(protection);
            let mut packets = packets(&mut sender);
            packets[2][HEADER_BYTES + 5] ^= 1;
            let run = opened(&mut receiver, &mut packets);
            let forged = Some(PacketRejection::Forged);
            assert_eq!((run.length.packets, run.rejection), (2, forged));
        }
    }
}
