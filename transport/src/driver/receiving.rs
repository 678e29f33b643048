//! Receiving: from rings and sockets, through injected faults and the seal, to the machine.
//!
//! The packets of a super-packet that continue each other are checked against the first one's
//! header, and reach the machine as one run.

use std::io;

use gradwire_protocol::machine::{ArrivedRun, Datagram, Ecn, Machine, Payload, RunPayloads};
use gradwire_protocol::units::{Instant, Span};
use gradwire_protocol::wire::{HEADER_BYTES, Header};

use super::engine::DriverEngine;
use super::patience::Drained;
use crate::address::Address;
use crate::faults::{FaultSubject, FaultVerdict};
use crate::message::SLOT_BYTES;
use crate::seal::{OpenedRun, PacketRejection};
use crate::udp::SuperPacket;

/// Bytes read from sockets before timeouts and sending get their turn again: as many as a window
/// has, so that all that waits is reported at once.
const BYTES_PER_ROUND: usize = 1 << 20;
/// A shorter super-packet counts as this many bytes. A packet of this length that arrives alone may
/// be one of a run that the network has parted.
const READ_BYTES_MIN: usize = 1 << 10;
/// The same of a super-packet that is rejected.
const GARBAGE_BYTES: usize = 4 << 10;
/// Packets read from a neighbour's ring before the others get their turn again.
const PACKETS_PER_RING: usize = 16;
/// Rounds between two looks at the sockets of a rank with neighbours: a look is a system call.
const SOCKETS_EVERY: u32 = 8;
/// The same where all ranks are neighbours and there are no guests: only foreign packets come by
/// sockets.
const UNUSED_SOCKETS_EVERY: u32 = 256;

/// A super-packet that was read.
struct ReadArrival {
    /// Its bytes, or what it counts as.
    bytes: usize,
    kind: ArrivalKind,
}

/// What tells whether more of a super-packet's kind may follow on its socket.
#[derive(Clone, Copy, Eq, PartialEq)]
enum ArrivalKind {
    /// Packets that the kernel has joined, or a short one.
    Joined,
    /// One packet that may be part of a run.
    Parted,
    /// Packets of which none was accepted: garbage, which comes in single packets.
    Garbage,
}

/// The bytes that one socket has given in its turn. Each socket gives at least as many bytes as the
/// largest super-packet of any socket has. If a socket with single packets gave one of them while
/// others gave runs, its packets would wait longer than those sent after them, and their sender
/// would take them for lost.
#[derive(Default)]
struct SocketTurn {
    bytes: usize,
}

impl SocketTurn {
    /// Adds what the socket gave; returns whether to read it again, without asking it first.
    /// `largest` is the largest super-packet of the round.
    fn goes_on(&mut self, arrival: &ReadArrival, largest: usize) -> bool {
        self.bytes += arrival.bytes;
        let most = match arrival.kind {
            ArrivalKind::Joined => largest,
            ArrivalKind::Parted | ArrivalKind::Garbage => SLOT_BYTES,
        };
        self.bytes < most
    }
}

impl<M: Machine> DriverEngine<M> {
    /// Reads packets that neighbours have written; returns whether there were any.
    fn read_rings(&mut self) -> (bool, Drained) {
        let Some(neighbours) = &mut self.setup.neighbours else {
            return (false, Drained::Fully);
        };
        let (mut busy, mut drained) = (false, Drained::Fully);
        for ring in 0..neighbours.len() {
            let writer = neighbours.writer(ring);
            for read in 0..=PACKETS_PER_RING {
                let Some(packet) = neighbours.peek(ring) else {
                    break;
                };
                if read == PACKETS_PER_RING {
                    drained = Drained::Partly;
                    break;
                }
                // A rank speaks for itself only, in its own ring as over a socket.
                if packet.header.source == writer {
                    let datagram = Datagram {
                        header: packet.header,
                        payload: Payload::Bytes(packet.payload),
                        ecn: Ecn::Ect,
                    };
                    self.machine.handle_datagram(self.clock.now(), datagram);
                    self.tally.received_packets += 1;
                } else {
                    self.tally.count(PacketRejection::UnknownSender);
                }
                neighbours.release(ring);
                busy = true;
            }
        }
        (busy, drained)
    }

    /// Reads rings, and in some rounds sockets; returns whether a packet was accepted, and whether
    /// all that may have packets are empty.
    pub(super) fn receive(&mut self) -> io::Result<(bool, Drained)> {
        let (read, rings) = self.read_rings();
        if self.setup.neighbours.is_some() {
            let (every, drained) = match self.are_all_near && self.guests.is_empty() {
                true => (UNUSED_SOCKETS_EVERY, rings),
                false => (SOCKETS_EVERY, Drained::Partly),
            };
            if !self.rounds.is_multiple_of(every) {
                return Ok((read, drained));
            }
        }
        let (received, sockets) = self.drain_sockets()?;
        let drained = match rings {
            Drained::Fully => sockets,
            Drained::Partly => Drained::Partly,
        };
        Ok((read | received, drained))
    }

    /// Reads the sockets; returns whether a packet was accepted. Rejected packets do not count as
    /// work, so a flood of them cannot keep this thread awake: it sleeps and leaves the core to the
    /// rank that it waits for.
    fn drain_sockets(&mut self) -> io::Result<(bool, Drained)> {
        let (mut bytes, mut largest) = (0, 0);
        let before = self.tally.received_packets;
        while bytes < BYTES_PER_ROUND {
            let readable = self.setup.sockets.readable()?;
            if readable.is_empty() {
                let accepted = self.tally.received_packets > before;
                return Ok((accepted, Drained::Fully));
            }
            for index in readable {
                let mut turn = SocketTurn::default();
                while let Some(arrival) = self.read(index)? {
                    largest = largest.max(arrival.bytes);
                    bytes += arrival.bytes;
                    if !turn.goes_on(&arrival, largest) {
                        break;
                    }
                }
            }
        }
        let accepted = self.tally.received_packets > before;
        Ok((accepted, Drained::Partly))
    }

    /// Reads one super-packet from a socket; `None` when the socket is empty.
    fn read(&mut self, index: usize) -> io::Result<Option<ReadArrival>> {
        let arrival = self.setup.sockets.receive(index, &mut self.slot)?;
        Ok(arrival.map(|arrival| {
            let before = self.tally.received_packets;
            self.tally.receive_calls += 1;
            self.split(&arrival);
            let is_single = arrival.bytes == arrival.packet_bytes;
            let (kind, least) = match self.tally.received_packets > before {
                false => (ArrivalKind::Garbage, GARBAGE_BYTES),
                true if is_single && arrival.bytes >= READ_BYTES_MIN => {
                    (ArrivalKind::Parted, READ_BYTES_MIN)
                }
                true => (ArrivalKind::Joined, READ_BYTES_MIN),
            };
            let bytes = arrival.bytes.max(least);
            ReadArrival { bytes, kind }
        }))
    }

    /// Counts a rejected packet. In a flood of packets of other jobs the kernel drops them from now
    /// on. Guests are of other jobs, too.
    fn reject(&mut self, now: Instant, rejection: PacketRejection) {
        self.tally.count(rejection);
        if self.foreign.is_flood(now, rejection) && self.guests.is_empty() {
            let (job, epoch) = self.setup.seal.membership();
            let sockets = self.setup.sockets.sockets_mut();
            // Without a filter the packets are dropped here.
            let filtered = sockets.map(|sockets| sockets.keep_foreign_out(job, epoch));
            if let Some(Ok(())) = filtered {
                self.foreign.is_kept_out = true;
                log::warn!(
                    "packets of other jobs flood this rank's ports: the kernel drops them from \
                     now on"
                );
            }
        }
    }

    /// Takes the filter away that a flood has brought.
    pub(super) fn let_foreign_in(&mut self) {
        let was_kept_out = std::mem::take(&mut self.foreign.is_kept_out);
        if let (true, Some(sockets)) = (was_kept_out, self.setup.sockets.sockets_mut()) {
            sockets.let_foreign_in();
        }
    }

    /// Hands the packets of a super-packet over in runs. Injected faults part the runs, as a packet
    /// does that the network has lost.
    fn split(&mut self, arrival: &SuperPacket) {
        let now = self.clock.now();
        self.tally.malformed_packets += u64::from(arrival.bytes == 0);
        let mut slot = std::mem::take(&mut self.slot);
        let mut packets = &mut slot[arrival.at..][..arrival.bytes];
        while !packets.is_empty() {
            let (spared, verdict) = self.spare(now, packets, arrival);
            let (mut whole, others) = packets.split_at_mut(spared);
            while !whole.is_empty() {
                let taken = self.deliver_run(now, whole, arrival);
                whole = &mut whole[taken..];
            }
            let (harmed, others) = others.split_at_mut(arrival.packet_bytes.min(others.len()));
            if !harmed.is_empty() {
                self.harm(now, verdict, harmed, arrival);
            }
            packets = others;
        }
        self.slot = slot;
    }

    /// Asks the injected faults about `packets`, up to the first one that does not simply pass;
    /// returns the bytes before it and its fate.
    fn spare(
        &mut self,
        now: Instant,
        packets: &[u8],
        arrival: &SuperPacket,
    ) -> (usize, FaultVerdict) {
        let Some(faults) = &mut self.setup.faults else {
            return (packets.len(), FaultVerdict::Pass);
        };
        faults.arrive(now);
        let count = packets.len().div_ceil(arrival.packet_bytes);
        if let Some(passing) = faults.passing(count) {
            let spared = (passing * arrival.packet_bytes).min(packets.len());
            return (spared, FaultVerdict::Drop);
        }
        let is_delayed = faults.delay() > Span::ZERO;
        let mut spared = 0;
        for packet in packets.chunks(arrival.packet_bytes) {
            let verdict = self.judge(packet);
            if is_delayed || verdict != FaultVerdict::Pass {
                return (spared, verdict);
            }
            spared += packet.len();
        }
        (spared, FaultVerdict::Pass)
    }

    /// Hands over the run that `packets` begin with, as far as it passes all checks; returns the
    /// bytes that are done with.
    fn deliver_run(&mut self, now: Instant, packets: &mut [u8], arrival: &SuperPacket) -> usize {
        let apart = arrival.packet_bytes.min(packets.len());
        let (first, others) = packets.split_at_mut(apart);
        let header = match self.accept(first, Some(arrival.from)) {
            Ok(header) => header,
            Err(rejection) => {
                self.reject(now, rejection);
                return apart;
            }
        };
        let seal = match self.guests.sender(first) {
            Some(guest) => &mut guest.seal,
            None => &mut self.setup.seal,
        };
        let OpenedRun { length, rejection } =
            seal.open_run(&header, first, others.chunks_mut(apart));
        let count = length.packets as usize;
        self.tally.received_packets += count as u64;
        let end = (count - 1) * apart + HEADER_BYTES + usize::from(length.last);
        let bytes = &packets[HEADER_BYTES..end];
        let run = ArrivedRun {
            first: Datagram {
                header,
                payload: Payload::Bytes(&packets[HEADER_BYTES..][..usize::from(header.length)]),
                ecn: arrival.ecn,
            },
            length,
            payloads: RunPayloads::new(bytes, header.length, apart),
        };
        self.machine.handle_run(now, &run);
        if let Some(rejection) = rejection {
            self.reject(now, rejection);
        }
        let taken = count + usize::from(rejection.is_some());
        (taken * apart).min(packets.len())
    }

    /// Gives a packet the fate that the injected faults have decided.
    fn harm(
        &mut self,
        now: Instant,
        verdict: FaultVerdict,
        packet: &mut [u8],
        arrival: &SuperPacket,
    ) {
        match verdict {
            FaultVerdict::Pass => self.pass_on(now, packet, arrival),
            FaultVerdict::Drop => {}
            FaultVerdict::Hold(span) => {
                if let Some(faults) = &mut self.setup.faults {
                    faults.hold(now + span, packet, arrival.ecn);
                }
            }
            FaultVerdict::Duplicate => {
                let mut twin = packet.to_vec();
                self.pass_on(now, packet, arrival);
                self.pass_on(now, &mut twin, arrival);
            }
            FaultVerdict::Corrupt(bit) => {
                packet[bit / 8] ^= 1 << (bit % 8);
                self.pass_on(now, packet, arrival);
            }
        }
    }

    /// Asks the injected faults about a packet.
    fn judge(&mut self, packet: &[u8]) -> FaultVerdict {
        let Some(faults) = &mut self.setup.faults else {
            return FaultVerdict::Pass;
        };
        let seal = match self.guests.sender(packet) {
            Some(guest) => &guest.seal,
            None => &self.setup.seal,
        };
        let look = || {
            let header = seal.read(packet).ok()?;
            Some(FaultSubject {
                source: header.source,
                kind: header.kind,
                flags: header.flags,
            })
        };
        faults.judge(look, packet.len())
    }

    /// Hands a packet over, after the delay that faults add to all packets.
    fn pass_on(&mut self, now: Instant, packet: &mut [u8], arrival: &SuperPacket) {
        match &mut self.setup.faults {
            Some(faults) if faults.delay() > Span::ZERO => {
                faults.hold(now + faults.delay(), packet, arrival.ecn);
            }
            _ => self.deliver(now, packet, arrival.ecn, Some(arrival.from)),
        }
    }

    /// Hands over the packets whose hold is over; returns whether there were any.
    pub(super) fn release_held(&mut self) -> bool {
        let mut busy = false;
        let now = self.clock.now();
        while let Some(mut held) = self.setup.faults.as_mut().and_then(|f| f.release(now)) {
            self.deliver(now, &mut held.packet, held.ecn, None);
            busy = true;
        }
        busy
    }

    /// Hands one packet to the machine if it passes all checks. `from` is checked if it is known.
    fn deliver(&mut self, now: Instant, packet: &mut [u8], ecn: Ecn, from: Option<Address>) {
        let header = match self.accept(packet, from) {
            Ok(header) => header,
            Err(rejection) => return self.reject(now, rejection),
        };
        self.tally.received_packets += 1;
        let payload = Payload::Bytes(&packet[HEADER_BYTES..][..usize::from(header.length)]);
        self.machine.handle_datagram(
            now,
            Datagram {
                header,
                payload,
                ecn,
            },
        );
    }

    /// Checks and opens a packet, cheap checks first.
    fn accept(
        &mut self,
        packet: &mut [u8],
        from: Option<Address>,
    ) -> Result<Header, PacketRejection> {
        if let Some(guest) = self.guests.sender(packet) {
            return guest.accept(packet, from);
        }
        let header = self.setup.seal.read(packet)?;
        let peer = self.setup.peers.get(usize::from(header.source.0));
        let path = usize::from(header.entropy.0);
        let expected = peer.and_then(|addresses| addresses.get(path % addresses.len().max(1)));
        let expected = expected.ok_or(PacketRejection::UnknownSender)?;
        if from.is_some_and(|from| !expected.is_source(&from)) {
            return Err(PacketRejection::UnknownSender);
        }
        self.setup.seal.open(&header, packet)?;
        Ok(header)
    }
}
