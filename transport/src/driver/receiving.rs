//! Receiving: from rings and sockets, through injected faults and the seal, to the machine.

use std::io;

use gradwire_protocol::machine::{Datagram, Ecn, Machine, Payload};
use gradwire_protocol::units::{Instant, Span};
use gradwire_protocol::wire::{HEADER_BYTES, Header};

use super::engine::DriverEngine;
use super::patience::Drained;
use crate::address::Address;
use crate::faults::{FaultSubject, FaultVerdict};
use crate::seal::PacketRejection;
use crate::udp::SuperPacket;
use crate::wires::ArrivalMode;

/// Super-packets read before timeouts and sending get their turn again.
const SUPER_PACKETS_PER_ROUND: usize = 16;
/// The same if every packet arrives alone.
const SINGLES_PER_ROUND: usize = 256;
/// Packets read from a neighbour's ring before the others get their turn again.
const PACKETS_PER_RING: usize = 16;
/// Rounds between two looks at the sockets of a rank with neighbours: a look is a system call.
const SOCKETS_EVERY: u32 = 8;

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

    /// Reads rings and sockets; returns whether a packet was accepted, and whether all are empty.
    pub(super) fn receive(&mut self) -> io::Result<(bool, Drained)> {
        let (read, rings) = self.read_rings();
        if self.setup.neighbours.is_some() && !self.rounds.is_multiple_of(SOCKETS_EVERY) {
            return Ok((read, Drained::Partly));
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
        let (mut reads, before) = (0, self.tally.received_packets);
        let most = match self.setup.sockets.arrivals() {
            ArrivalMode::Joined => SUPER_PACKETS_PER_ROUND,
            ArrivalMode::Single => SINGLES_PER_ROUND,
        };
        while reads < most {
            let readable = self.setup.sockets.readable()?;
            if readable.is_empty() {
                let accepted = self.tally.received_packets > before;
                return Ok((accepted, Drained::Fully));
            }
            for index in readable {
                reads += 1;
                if let Some(arrival) = self.setup.sockets.receive(index, &mut self.slot)? {
                    self.tally.receive_calls += 1;
                    self.split(&arrival);
                }
            }
        }
        let accepted = self.tally.received_packets > before;
        Ok((accepted, Drained::Partly))
    }

    /// Hands the packets of a super-packet over one by one, through the injected faults if any.
    fn split(&mut self, arrival: &SuperPacket) {
        let now = self.clock.now();
        self.tally.malformed_packets += u64::from(arrival.bytes == 0);
        let mut slot = std::mem::take(&mut self.slot);
        for packet in arrival.packets(&mut slot) {
            match self.judge(now, packet) {
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
        self.slot = slot;
    }

    /// Asks the injected faults about a packet.
    fn judge(&mut self, now: Instant, packet: &[u8]) -> FaultVerdict {
        let Some(faults) = &mut self.setup.faults else {
            return FaultVerdict::Pass;
        };
        let seal = match self.guests.sender(packet) {
            Some(guest) => &guest.seal,
            None => &self.setup.seal,
        };
        faults.arrive(now);
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
            Err(rejection) => return self.tally.count(rejection),
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
