//! The next packets of an endpoint.
//!
//! 1. Control packets go before data, peers in turn. They have class 0 and ECT, so that no gradient
//!    starves them and no queue drops them early. Only a PROBE has the class and the path of its
//!    data.
//! 2. Data goes to the peer whose next segment has the first turn. Repairs precede new segments of
//!    the same urgency. Peers with equal turns rotate. Parity leaves after all data.

use super::Endpoint;
use super::peer::NextTurn;
use crate::machine::{Ecn, Payload, SegmentRun, Transmit};
use crate::metrics::PeerStanding;
use crate::priority::CONTROL;
use crate::reach::Reach;
use crate::sender::Burst;
use crate::units::{Instant, MessageKey, Rank};
use crate::wire::{Header, PacketKind};

static FIRST: SegmentRun = SegmentRun::FIRST;

/// The payload of the packets that leave next.
#[derive(Clone, Copy, Debug)]
pub struct WantedPayload<'r> {
    /// The receiver of the message.
    pub to: Rank,
    /// The key of the message.
    pub key: MessageKey,
    /// Of PARITY, the segments whose XOR is wanted, each filled up with zeros to the length of the
    /// message's first one. `None`: the whole message.
    pub parity_of: Option<&'r SegmentRun>,
    /// Bytes of each segment but the last.
    pub segment_bytes: u32,
}

/// The next packets of an endpoint, as [`Endpoint::poll_next`] has taken them.
#[derive(Debug)]
pub struct NextPackets(PacketChoice);

#[derive(Debug)]
enum PacketChoice {
    Control(usize, Header),
    Data(usize, Burst),
}

impl Endpoint {
    /// [`Machine::poll_transmit`](crate::machine::Machine::poll_transmit) for a caller that has the
    /// bytes. If `payload` returns none, the packets carry only lengths.
    pub fn poll_transmit_from<'a>(
        &'a mut self,
        now: Instant,
        payload: impl FnOnce(WantedPayload<'_>) -> Option<Payload<'a>>,
    ) -> Option<Transmit<'a>> {
        let next = self.poll_next(now)?;
        Some(self.transmit(next, payload))
    }

    /// Takes the next packets, for a caller that asks several endpoints for one that has any. They
    /// count as sent: [`Endpoint::transmit`] follows before any other call.
    pub fn poll_next(&mut self, now: Instant) -> Option<NextPackets> {
        let control = self.poll_control(now);
        let choice = match control {
            Some((at, header)) => PacketChoice::Control(at, header),
            None => {
                let (at, burst) = self.poll_data(now)?;
                PacketChoice::Data(at, burst)
            }
        };
        Some(NextPackets(choice))
    }

    /// The packets that [`Endpoint::poll_next`] has just taken. If `payload` returns none, they
    /// carry only lengths.
    pub fn transmit<'a>(
        &'a mut self,
        NextPackets(choice): NextPackets,
        payload: impl FnOnce(WantedPayload<'_>) -> Option<Payload<'a>>,
    ) -> Transmit<'a> {
        match choice {
            PacketChoice::Control(at, header) => self.control_transmit(at, header),
            PacketChoice::Data(at, burst) => self.data_transmit((at, burst), payload),
        }
    }

    fn poll_control(&mut self, now: Instant) -> Option<(usize, Header)> {
        while let Some(&at) = self.talkers.front() {
            let at = at as usize;
            if self.peers[at].standing != PeerStanding::Failed {
                let peer = self.peers.wake(at);
                peer.expect_first(&self.common);
                let (settings, body) = (self.common.settings(peer.reach), &mut self.body);
                if let Some(header) = peer.receiver.poll_report(now, settings, body) {
                    return Some((at, header));
                }
                let control = peer.sender.poll_control(now, &peer.rtt, settings, body);
                if let Some(header) = control {
                    if peer.sender.has_news() {
                        self.collect_sent(at);
                    }
                    return Some((at, header));
                }
            }
            self.talkers.pop_front();
            self.peers[at].talks = false;
            self.touch(now, at);
        }
        None
    }

    fn control_transmit(&mut self, at: usize, mut header: Header) -> Transmit<'_> {
        header.source = self.common.network.identity.rank;
        header.checksum = 0;
        let peer = self.peers.wake(at);
        if header.kind != PacketKind::Probe {
            header.class = CONTROL;
            header.entropy = peer.sender.take_entropy();
        }
        let transmit = Transmit {
            to: peer.rank,
            class: header.class,
            dscp: (self.common.network.policy).dscp_of(header.class, Ecn::Ect),
            ecn: Ecn::Ect,
            entropy: header.entropy,
            template: header,
            run: &FIRST,
            segment_bytes: self.common.settings(peer.reach).segment_bytes,
            tags: None,
            message: Payload::Bytes(&self.body),
        };
        if let Some(traffic) = &mut peer.traffic {
            traffic.on_sent(&transmit);
        }
        transmit
    }

    fn data_transmit<'a>(
        &'a mut self,
        (at, burst): (usize, Burst),
        payload: impl FnOnce(WantedPayload<'_>) -> Option<Payload<'a>>,
    ) -> Transmit<'a> {
        let template = burst.template;
        let is_parity = template.kind == PacketKind::Parity;
        let peer = self.peers.wake(at);
        let segment_bytes = self.common.settings(peer.reach).segment_bytes;
        let message = payload(WantedPayload {
            to: peer.rank,
            key: template.key,
            parity_of: is_parity.then_some(&self.run),
            segment_bytes,
        });
        let bytes = match is_parity {
            true => usize::from(template.length),
            false => template.message_bytes as usize,
        };
        let transmit = Transmit {
            to: peer.rank,
            class: template.class,
            dscp: self
                .common
                .network
                .policy
                .dscp_of(template.class, burst.ecn),
            ecn: burst.ecn,
            entropy: template.entropy,
            template,
            run: match is_parity {
                true => &FIRST,
                false => &self.run,
            },
            segment_bytes,
            tags: peer.sender.tags(template.message),
            message: message.unwrap_or(Payload::Length(bytes)),
        };
        if let Some(traffic) = &mut peer.traffic {
            traffic.on_sent(&transmit);
        }
        transmit
    }

    fn poll_data(&mut self, now: Instant) -> Option<(usize, Burst)> {
        while let Some(at) = self.senders.pop(&mut self.peers) {
            let peer = self.peers.wake(at);
            if self.common.has_lost && peer.reach == Reach::Network {
                peer.sender.expect_loss();
            }
            peer.expect_first(&self.common);
            let (settings, run) = (self.common.settings(peer.reach), &mut self.run);
            let burst = peer.sender.poll_data(now, &peer.rtt, settings, run);
            if let Some(burst) = burst {
                let entry = &mut self.peers[at];
                entry.turn = NextTurn::Unknown;
                self.senders.push(at);
                if burst.probe_at > now {
                    self.arm(at, burst.probe_at);
                } else if !entry.talks {
                    entry.talks = true;
                    self.talkers.push_back(at as u32);
                }
                return Some((at, burst));
            }
            self.peers[at].sends = false;
        }
        None
    }
}
