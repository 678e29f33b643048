//! Packets and the steps of drivers: the next event of a run, and what is noted of each packet.

use gradwire_protocol::job::HoleFilling;
use gradwire_protocol::machine::Machine;
use gradwire_protocol::units::{Instant, MessageKey, Rank, Share, Span};
use gradwire_protocol::wire::{Header, PacketKind, SegmentReport};

use super::{ClusterRun, Flying};
use crate::cluster::draw::fold;
use crate::cluster::evidence::{Found, HoleTerms, ReceiverPatience};
use crate::cluster::host::{ArrivedPacket, DriverStep, HostArrival, IDLE_ROUNDS_MAX};
use crate::cluster::program::PlannedOperation;
use crate::cluster::violation::ClusterCheck;

/// Runs of packets that a driver sends before it reads again.
const RUNS_PER_ROUND: usize = 16;

/// How a driver ends a round.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum RoundEnd {
    /// The machine may have more to send at once.
    More,
    /// It has none, or the host takes none.
    Sleep,
}

impl ClusterRun<'_> {
    /// The next event; `false` if there is none.
    pub(super) fn happen(&mut self) -> Result<bool, Found> {
        let arrival = self.flying.next_at();
        let hosts = self.hosts.iter().enumerate();
        let step = hosts
            .filter_map(|(at, host)| Some((host.next()?, at)))
            .min();
        match (arrival, step) {
            (None, None) => return Ok(false),
            (Some(at), step) if step.is_none_or(|(step, _)| at <= step) => {
                self.now = self.now.max(at);
                let flying = self.flying.pop().expect("just seen");
                self.arrive(flying);
            }
            (_, Some((at, host))) => {
                self.now = self.now.max(at);
                self.step(host)?;
            }
            (Some(_), None) => unreachable!("an arrival without a step comes first"),
        }
        Ok(true)
    }

    pub(super) fn arrive(&mut self, flying: Flying) {
        let host = &mut self.hosts[usize::from(flying.to)];
        if host.is_dead {
            return;
        }
        let header = flying.packet.header;
        for (shown, gone) in host.draw_reset(self.now) {
            self.evidence.vanished(flying.to, &gone, shown);
        }
        if host.is_down(self.now) {
            self.evidence.vanished(flying.to, &header, self.now);
            return;
        }
        let arrival = host.arrive(self.now, flying.packet);
        if header.kind != PacketKind::Data {
            return;
        }
        match arrival {
            HostArrival::Shown => {}
            HostArrival::Late(by) => self.evidence.held(flying.to, &header, self.now, (by, by)),
            HostArrival::Stalled(by) => {
                self.evidence
                    .held(flying.to, &header, self.now, (by, Span::ZERO));
            }
            HostArrival::Dropped => self.evidence.dropped(flying.to, &header, self.now),
            HostArrival::Vanished => self.evidence.vanished(flying.to, &header, self.now),
        }
    }

    /// One step of a host's driver.
    pub(super) fn step(&mut self, at: usize) -> Result<(), Found> {
        let now = self.now;
        let host = &mut self.hosts[at];
        match host.step {
            DriverStep::Sleep | DriverStep::Receive => {
                let (evidence, traffic) = (&mut self.evidence, &mut self.traffic);
                let to = host.rank.0;
                host.receive(now, |header| {
                    traffic.heard(now, (header.source.0, to), header.kind);
                    if header.kind == PacketKind::Data {
                        evidence.handed(to, header, now);
                    }
                });
                host.go_on(now, DriverStep::Timeouts);
            }
            DriverStep::Timeouts => {
                host.time_out();
                host.go_on(now, DriverStep::Commands);
            }
            DriverStep::Commands => {
                self.command(at)?;
                self.hosts[at].go_on(now, DriverStep::Send);
            }
            DriverStep::Send => {
                let end = self.send(at)?;
                self.end_round(at, end)?;
            }
        }
        self.take_completions(at)?;
        self.spread_abort(at);
        Ok(())
    }

    fn end_round(&mut self, at: usize, end: RoundEnd) -> Result<(), Found> {
        let host = &mut self.hosts[at];
        host.idle_rounds = if host.worked { 0 } else { host.idle_rounds + 1 };
        host.worked = false;
        if host.idle_rounds > IDLE_ROUNDS_MAX {
            let detail = format!("rank {at} spins: {IDLE_ROUNDS_MAX} rounds without work");
            return Err((ClusterCheck::Liveness, detail));
        }
        let next = match end {
            RoundEnd::More => DriverStep::Receive,
            RoundEnd::Sleep => DriverStep::Sleep,
        };
        host.go_on(self.now, next);
        Ok(())
    }

    /// Sends runs until the machine has none, or the host takes no more; tells whether there may be
    /// more to send at once.
    fn send(&mut self, at: usize) -> Result<RoundEnd, Found> {
        for _ in 0..RUNS_PER_ROUND {
            let host = &mut self.hosts[at];
            if self.now < host.full_until {
                return Ok(RoundEnd::Sleep);
            }
            let room = host.draw_room();
            let reading = host.clock.reading(self.now);
            let Some(transmit) = host.communicator.poll_transmit(reading) else {
                (host.decided, host.reserved) = (None, None);
                return Ok(RoundEnd::Sleep);
            };
            host.worked = true;
            let (to, ecn, count) = (transmit.to.0, transmit.ecn, transmit.packets());
            let packet = |index| {
                let header = transmit.header(index);
                let payload = transmit.payload(&header);
                let payload = payload.bytes().unwrap_or_default().to_vec();
                ArrivedPacket {
                    header,
                    payload,
                    ecn,
                }
            };
            let mut packets: Vec<ArrivedPacket> = (0..count).map(packet).collect();
            let verdicts = packets.iter().filter(|packet| {
                matches!(packet.header.kind, PacketKind::Bitmap | PacketKind::Stop)
            });
            let verdicts: Vec<ArrivedPacket> = verdicts.cloned().collect();
            if let Some((taken, pause)) = room {
                packets.truncate(taken % count);
                let unsent = transmit.unsent_from(packets.len());
                host.communicator.handle_unsent(reading, &unsent);
                host.full_until = self.now + pause;
            }
            for verdict in verdicts {
                self.hear_verdict(at as u16, to, &verdict)?;
            }
            for packet in packets {
                self.transmit(at as u16, to, packet)?;
            }
        }
        Ok(RoundEnd::More)
    }

    pub(super) fn transmit(
        &mut self,
        from: u16,
        to: u16,
        packet: ArrivedPacket,
    ) -> Result<(), Found> {
        let header = packet.header;
        self.show_packet(from, to, &packet);
        self.note_packet(to, &header);
        if header.kind == PacketKind::Data {
            self.traffic.data(self.now, (from, to));
        } else {
            self.traffic.control(self.now, (from, to), header.kind)?;
        }
        let mut copies = self.paths.carry(self.now, (from, to), &header, packet.ecn);
        if self.hosts[usize::from(from)].is_down(self.now) {
            copies = [None, None];
        }
        match header.kind {
            PacketKind::Data => self.evidence.sent(to, &header, &copies),
            PacketKind::Probe => self.evidence.begun(to, &header),
            _ => {}
        }
        for copy in copies.into_iter().flatten() {
            let packet = ArrivedPacket {
                ecn: copy.ecn,
                ..packet.clone()
            };
            self.flying.push(copy.arrives, Flying { to, packet });
        }
        Ok(())
    }

    pub(super) fn show_packet(&mut self, from: u16, to: u16, packet: &ArrivedPacket) {
        let Some(show) = &mut self.show else {
            return;
        };
        let at: Span = self.now - Instant::START;
        let Header {
            kind,
            key,
            segment,
            segments,
            flags,
            ..
        } = &packet.header;
        let (group, sequence, part) = key.parts();
        let told = match (kind, SegmentReport::decode(&packet.payload)) {
            (PacketKind::Ack | PacketKind::Bitmap | PacketKind::Stop, Some((report, _))) => {
                let SegmentReport {
                    received,
                    granted,
                    cumulative,
                    ..
                } = report;
                format!(": has {received}, all before {cumulative}, granted {granted}")
            }
            _ => format!(" {flags:?}"),
        };
        show(&format!(
            "{at} {from}->{to} {kind:?} group {group} sequence {sequence} part {part} \
             segment {segment} of {segments}{told}"
        ));
    }

    pub(super) fn note_packet(&mut self, to: u16, header: &Header) {
        self.last_packet = self.now;
        self.tally.packets += 1;
        let time = (self.now - Instant::START).as_nanos();
        let mut bytes = [0; 96];
        header.encode(&mut bytes);
        let hash = fold(self.tally.hash, &bytes);
        self.tally.hash = fold(fold(hash, &time.to_le_bytes()), &to.to_le_bytes());
    }

    pub(super) fn hear_verdict(
        &mut self,
        from: u16,
        to: u16,
        packet: &ArrivedPacket,
    ) -> Result<(), Found> {
        let Some(report) = SegmentReport::decode(&packet.payload) else {
            return Ok(());
        };
        let key = packet.header.key;
        let host = &self.hosts[usize::from(from)];
        if packet.header.kind == PacketKind::Bitmap {
            let reserved = host.reserved.unwrap_or(self.now);
            self.evidence.accepted((to, from, key), report, reserved);
            return Ok(());
        }
        let decided = host.decided.unwrap_or(self.now);
        let terms = self.hole_terms(Rank(from), key);
        self.evidence
            .stopped((to, from, key), report, decided, terms)
    }

    /// What a rank may do without in a message that it receives.
    fn hole_terms(&self, rank: Rank, key: MessageKey) -> HoleTerms {
        let mut terms = HoleTerms {
            tolerance: Share::NONE,
            patience: ReceiverPatience::Endless,
        };
        if let Some(planned) = self.program.find(key) {
            terms.tolerance = planned.tolerances[usize::from(rank.0)];
            if self.may_lose_patience(rank, planned) {
                let addends = planned.group.ranks.len() as u64 - 1;
                terms.patience = ReceiverPatience::MayEnd { addends };
            }
        }
        terms
    }

    /// Whether the rank has learned how long sums of an operation's tensor take, and may wait for
    /// one no longer.
    fn may_lose_patience(&self, rank: Rank, planned: &PlannedOperation) -> bool {
        let Some(tensor) = planned.tensor else {
            return false;
        };
        let is_earlier = |other: &&PlannedOperation| {
            other.tensor == Some(tensor) && self.results[other.index].contains_key(&rank)
        };
        let learned = self.program.operations[..planned.index].iter();
        self.program.job.collectives.patience.is_some()
            && planned.holes == HoleFilling::ErrorFeedback
            && learned.filter(is_earlier).count() >= self.program.limits.1.learning
    }
}
