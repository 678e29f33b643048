//! The server of probes: several sockets, one thread.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::clock::{now, wall_ns};
use super::desk::{ProbeArrival, ProbeDesk};
use super::load::{RUN_BYTES_MAX, RUN_PACKETS_MAX};
use super::packet::{AnswerForm, ProbeKind, ProbePacket, SOCKETS};
use super::socket::{self, PacketRefusal, ProbeSocket, SendOptions};
use crate::interface;
use crate::message::ReceivedMessage;
use crate::udp::SLOT_BYTES;

/// Time to wait for the other probes of a run if they arrive one by one.
const RUN_PATIENCE: Duration = Duration::from_millis(2);
/// The maximum number of super-packets read from one socket before the next one has its turn.
const DRAINED_MAX: usize = 256;

/// Answers probes.
#[derive(Debug)]
pub struct ProbeServer {
    sockets: Vec<ProbeSocket>,
    drops: Vec<u32>,
    desk: ProbeDesk,
    slot: Vec<u8>,
    out: Vec<u8>,
}

/// A server of probes could not be opened.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen for probes on {address}: {source}; is the address this host's, and the port \
     free?"
)]
pub struct ProbeServerError {
    address: SocketAddr,
    source: io::Error,
}

/// Answers that leave together, all of equal length, class and destination.
#[derive(Debug, Default)]
struct AnswerRun {
    bytes: Vec<u8>,
    to: Option<(SendOptions, usize)>,
}

impl ProbeServer {
    /// Listens on `address`, and on further ports of it that the kernel chooses, [`SOCKETS`] in
    /// all. Port 0 takes any free one.
    ///
    /// # Errors
    /// [`ProbeServerError`] when the address is not this host's or the port is in use.
    pub fn bind(address: SocketAddr) -> Result<Self, ProbeServerError> {
        let failed = |source| ProbeServerError { address, source };
        let further = SocketAddr::new(address.ip(), 0);
        let addresses = [address].into_iter().chain([further; SOCKETS - 1]);
        let sockets: io::Result<Vec<ProbeSocket>> = addresses.map(ProbeSocket::open).collect();
        let sockets = sockets.map_err(failed)?;
        let mut ports = [0; SOCKETS];
        for (port, socket) in ports.iter_mut().zip(&sockets) {
            *port = socket.address().port();
        }
        Ok(Self {
            drops: vec![0; sockets.len()],
            sockets,
            desk: ProbeDesk::new(ports),
            slot: vec![0; SLOT_BYTES],
            out: vec![0; SLOT_BYTES],
        })
    }

    /// The addresses on which it listens; clients connect to the first.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sockets.iter().map(ProbeSocket::address).collect()
    }

    /// Sets the report of this host, which clients may read from now on.
    pub fn publish(&mut self, report: &str) {
        self.desk.publish(report.as_bytes().to_vec());
    }

    /// Answers for the given time, then returns.
    pub fn answer_for(&mut self, span: Duration) {
        let end = now() + span;
        loop {
            let left = end.saturating_duration_since(now());
            if left.is_zero() {
                return;
            }
            socket::wait(self.sockets.iter(), left);
            for index in 0..self.sockets.len() {
                self.drain(index);
                while let Some(refusal) = self.sockets[index].refusal() {
                    if let PacketRefusal::TooBig { mtu, to, .. } = refusal {
                        self.desk.told_mtu(to, mtu);
                    }
                }
            }
        }
    }

    fn drain(&mut self, index: usize) {
        let mut run = AnswerRun::default();
        let mut waited = false;
        for _ in 0..DRAINED_MAX {
            match self.sockets[index].receive(&mut self.slot) {
                Some(received) => self.answer(index, &received, &mut run),
                None if run.to.is_some() && !waited => {
                    waited = true;
                    std::thread::sleep(RUN_PATIENCE);
                }
                None => break,
            }
        }
        self.flush(index, &mut run);
    }

    fn answer(&mut self, index: usize, received: &ReceivedMessage, run: &mut AnswerRun) {
        if let Some(drops) = received.kernel_drops {
            self.drops[index] = drops;
            self.desk.kernel_drops = self.drops.iter().fold(0, |sum, one| sum.wrapping_add(*one));
        }
        let packet_bytes = received.packet_bytes.unwrap_or(received.bytes).max(1);
        let together = received.bytes.div_ceil(packet_bytes);
        let mut at = 0;
        while at < received.bytes {
            let bytes = packet_bytes.min(received.bytes - at);
            let probe = ProbePacket::decode(&self.slot[at..at + bytes]);
            at += bytes;
            let Some(probe) = probe else { continue };
            let arrived = ProbeArrival {
                from: received.from.ip(),
                bytes,
                class: received.traffic_class,
                run: u16::try_from(together).unwrap_or(u16::MAX),
                wall_ns: wall_ns(),
                mtu: match probe.kind {
                    ProbeKind::Hello => mtu_towards(received.from),
                    _ => 0,
                },
            };
            let Some(reply) = self.desk.reply(&probe, &arrived, rand::random()) else {
                continue;
            };
            let length = reply.bytes;
            self.out[..length].fill(0);
            reply.answer.encode(reply.text, &mut self.out[..length]);
            let sending = SendOptions {
                to: received.from,
                class: probe.answer_class,
                packet_bytes: None,
            };
            if probe.form == AnswerForm::Run {
                if !run.takes(sending, length) {
                    self.flush(index, run);
                }
                run.push(sending, &self.out[..length]);
            } else {
                // An answer that cannot be sent is lost; the error queue has the reason.
                let _ = self.sockets[index].send(&self.out[..length], sending);
            }
        }
    }

    fn flush(&mut self, index: usize, run: &mut AnswerRun) {
        let Some((sending, length)) = run.to.take() else {
            return;
        };
        let bytes = std::mem::take(&mut run.bytes);
        let many = bytes.len() > length;
        let together = SendOptions {
            packet_bytes: many.then_some(length as u16),
            ..sending
        };
        if self.sockets[index].send(&bytes, together).is_err() && many {
            self.desk.run_refused = true;
            for packet in bytes.chunks(length) {
                let _ = self.sockets[index].send(packet, sending);
            }
        }
    }
}

impl AnswerRun {
    fn takes(&self, sending: SendOptions, length: usize) -> bool {
        let same = |(first, bytes): (SendOptions, usize)| {
            (first.to, first.class, bytes) == (sending.to, sending.class, length)
        };
        let bytes = self.bytes.len() + length;
        let fits = bytes <= RUN_BYTES_MAX && bytes / length <= RUN_PACKETS_MAX;
        fits && self.to.is_some_and(same)
    }

    fn push(&mut self, sending: SendOptions, answer: &[u8]) {
        self.to = Some((sending, answer.len()));
        self.bytes.extend_from_slice(answer);
    }
}

/// MTU of the interface that leads to a client, or 0.
fn mtu_towards(client: SocketAddr) -> u32 {
    let address = socket::address_towards(client);
    address.and_then(interface::mtu).unwrap_or(0)
}
