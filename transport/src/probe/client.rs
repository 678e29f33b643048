//! A session with a server of probes, which is asked one question at a time.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use super::clock::now;
use super::packet::{self, AnswerForm, PROBE_BYTES, ProbeAnswer, ProbeKind, ProbePacket, SOCKETS};
use super::socket::{self, PacketRefusal, ProbeSocket, SendOptions};
use crate::udp::SLOT_BYTES;

/// Greetings before a server counts as unreachable.
const GREETINGS: u32 = 15;
const GREETING_PATIENCE: Duration = Duration::from_millis(200);
/// The minimum and the maximum time to wait for one answer.
const PATIENCE_MIN: Duration = Duration::from_millis(100);
const PATIENCE_MAX: Duration = Duration::from_millis(500);
/// Tries of a question before silence counts as an answer.
const TRIES: u32 = 3;
/// Bytes of a question for a piece of a report: any path carries them.
const REPORT_BYTES: usize = 1_200;

/// The side that asks.
#[derive(Debug)]
pub struct ProbeClient {
    pub(super) sockets: Vec<ProbeSocket>,
    pub(super) server: SocketAddr,
    /// Ports of the server, one per socket; 0 where it has none.
    pub(super) ports: [u16; SOCKETS],
    pub(super) session: u64,
    pub(super) sequence: u32,
    /// Questions for tallies asked so far.
    pub(super) looks: u16,
    pub(super) slot: Vec<u8>,
    server_mtu: u32,
    patience: Duration,
    refusals: Vec<PacketRefusal>,
}

/// A session could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ProbeConnectError {
    /// No socket could be opened.
    #[error("cannot open UDP sockets towards {server}: {source}")]
    Socket {
        /// The server.
        server: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The host refuses: no process listens on the port, or a firewall rejects the packets.
    #[error("{server} refuses UDP probes (ICMP destination unreachable, code {code})")]
    Refused {
        /// The server.
        server: SocketAddr,
        /// Code of the ICMP message. 3 of IPv4 and 4 of IPv6 mean that no process listens.
        code: u8,
    },
    /// No answer came.
    #[error("{server} does not answer UDP probes")]
    Silent {
        /// The server.
        server: SocketAddr,
    },
}

/// One question.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeQuestion {
    pub(super) kind: ProbeKind,
    /// Bytes of the datagram, at least [`PROBE_BYTES`].
    pub(super) bytes: usize,
    pub(super) class: u8,
    pub(super) answer_bytes: usize,
    pub(super) answer_class: u8,
    /// The pair of ports: index of the own socket and of the server's port.
    pub(super) path: usize,
}

impl ProbeQuestion {
    /// A small question with a small answer.
    pub(super) const PLAIN: Self = Self {
        kind: ProbeKind::Echo,
        bytes: PROBE_BYTES,
        class: 0,
        answer_bytes: PROBE_BYTES,
        answer_class: 0,
        path: 0,
    };
}

/// An answer, its traffic class and its time.
#[derive(Clone, Debug)]
pub(super) struct HeardAnswer {
    pub(super) answer: ProbeAnswer,
    pub(super) class: u8,
    pub(super) text: Vec<u8>,
    pub(super) round_trip: Duration,
}

impl ProbeClient {
    /// Opens a session with the server at `server`, from `local` or from the address that the
    /// kernel would choose.
    ///
    /// # Errors
    /// [`ProbeConnectError`] if there is no answer within 3 s.
    pub fn connect(server: SocketAddr, local: Option<IpAddr>) -> Result<Self, ProbeConnectError> {
        Self::connect_in(server, local, 0)
    }

    /// As [`Self::connect`], with greetings in packets of a traffic class (DSCP and ECN).
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn connect_in(
        server: SocketAddr,
        local: Option<IpAddr>,
        class: u8,
    ) -> Result<Self, ProbeConnectError> {
        let failed = |source| ProbeConnectError::Socket { server, source };
        let local = match local {
            Some(local) => local,
            None => socket::address_towards(server).map_err(failed)?,
        };
        let open = |_| ProbeSocket::open(SocketAddr::new(local, 0));
        let sockets: io::Result<Vec<ProbeSocket>> = (0..SOCKETS).map(open).collect();
        let mut client = Self {
            sockets: sockets.map_err(failed)?,
            server,
            ports: [server.port(); SOCKETS],
            session: rand::random(),
            sequence: 0,
            looks: 0,
            slot: vec![0; SLOT_BYTES],
            server_mtu: 0,
            patience: GREETING_PATIENCE,
            refusals: Vec::new(),
        };
        client.greet(class)?;
        Ok(client)
    }

    /// The address of this host from which probes leave.
    pub fn local(&self) -> IpAddr {
        self.sockets[0].address().ip()
    }

    /// The server.
    pub fn server(&self) -> SocketAddr {
        self.server
    }

    /// MTU of the server's interface, if the server knows it.
    pub fn server_mtu(&self) -> Option<u32> {
        (self.server_mtu > 0).then_some(self.server_mtu)
    }

    /// The findings of the server's host about itself and others; `None` while it has none.
    pub fn report(&mut self) -> Option<String> {
        let mut text = Vec::new();
        loop {
            self.sequence = text.len() as u32;
            let question = ProbeQuestion {
                kind: ProbeKind::Report,
                bytes: REPORT_BYTES,
                answer_bytes: REPORT_BYTES,
                ..ProbeQuestion::PLAIN
            };
            let heard = self.ask_often(&question)?;
            text.extend_from_slice(&heard.text);
            if heard.text.is_empty() || text.len() >= heard.answer.counted as usize {
                break;
            }
        }
        let text = String::from_utf8(text).ok()?;
        (!text.is_empty()).then_some(text)
    }

    fn greet(&mut self, class: u8) -> Result<(), ProbeConnectError> {
        let server = self.server;
        let hello = ProbeQuestion {
            kind: ProbeKind::Hello,
            class,
            answer_class: class,
            ..ProbeQuestion::PLAIN
        };
        for _ in 0..GREETINGS {
            if let Some(heard) = self.ask(&hello) {
                let welcome = heard.answer.welcome;
                self.session = welcome.session;
                self.ports = welcome.ports;
                self.server_mtu = welcome.mtu;
                self.patience = (8 * heard.round_trip).clamp(PATIENCE_MIN, PATIENCE_MAX);
                return Ok(());
            }
            if let Some(PacketRefusal::Unreachable { code }) = self.refusals.last() {
                let code = *code;
                return Err(ProbeConnectError::Refused { server, code });
            }
        }
        Err(ProbeConnectError::Silent { server })
    }

    /// Asks up to [`TRIES`] times until there is an answer.
    pub(super) fn ask_often(&mut self, question: &ProbeQuestion) -> Option<HeardAnswer> {
        (0..TRIES).find_map(|_| self.ask(question))
    }

    /// Asks once. `None` if no answer comes in time, or if the packet could not be sent. Answers to
    /// earlier questions are ignored.
    pub(super) fn ask(&mut self, question: &ProbeQuestion) -> Option<HeardAnswer> {
        if ![ProbeKind::Report, ProbeKind::Tally].contains(&question.kind) {
            self.sequence += 1;
        }
        let probe = ProbePacket {
            kind: question.kind,
            form: AnswerForm::Single,
            answer_class: question.answer_class,
            session: self.session,
            sequence: self.sequence,
            answer_bytes: question.answer_bytes as u32,
            stamp_ns: 0,
        };
        let mut bytes = vec![0; question.bytes];
        probe.encode(&mut bytes);
        let asked = now();
        let sending = SendOptions {
            to: self.peer(question.path),
            class: question.class,
            packet_bytes: None,
        };
        let sent = self.sockets[question.path].send(&bytes, sending);
        let heard = match sent {
            Ok(()) => self.listen(question, asked),
            Err(_) => None,
        };
        while let Some(refusal) = self.sockets[question.path].refusal() {
            self.refusals.push(refusal);
        }
        heard
    }

    /// The server's address on a path.
    pub(super) fn peer(&self, path: usize) -> SocketAddr {
        SocketAddr::new(self.server.ip(), self.ports[path])
    }

    /// The refusals of packets since the last call.
    pub(super) fn take_refusals(&mut self) -> Vec<PacketRefusal> {
        std::mem::take(&mut self.refusals)
    }

    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    fn listen(&mut self, question: &ProbeQuestion, asked: Instant) -> Option<HeardAnswer> {
        let end = asked + self.patience;
        loop {
            while let Some(received) = self.sockets[question.path].receive(&mut self.slot) {
                let round_trip = asked.elapsed();
                let first = received
                    .packet_bytes
                    .unwrap_or(received.bytes)
                    .min(received.bytes);
                let bytes = &self.slot[..first];
                let Some(answer) = ProbeAnswer::decode(bytes) else {
                    continue;
                };
                let ours = (question.kind, self.session, self.sequence);
                if (answer.kind, answer.session, answer.sequence) == ours {
                    return Some(HeardAnswer {
                        class: received.traffic_class,
                        text: packet::text_of(&answer, bytes).to_vec(),
                        answer,
                        round_trip,
                    });
                }
            }
            let left = end.saturating_duration_since(now());
            if left.is_zero() {
                return None;
            }
            socket::wait(std::iter::once(&self.sockets[question.path]), left);
        }
    }
}
