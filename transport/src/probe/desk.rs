//! Decides the server's answers: to which probes, and with how many bytes. No socket and no clock.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::packet::{
    self, PROBE_BYTES, ProbeAnswer, ProbeKind, ProbePacket, ProbeWelcome, SOCKETS,
};
use super::tally::{STREAMS_MAX, StreamTally, TaggedPacket, TaggedStream};

/// The maximum number of sessions; a new one ends the oldest.
const SESSIONS_MAX: usize = 4096;
/// The maximum number of sessions with streams; a new one takes away the streams of the oldest.
const COUNTING_SESSIONS_MAX: usize = 16;

/// Circumstances of a probe's arrival.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeArrival {
    pub(super) from: IpAddr,
    pub(super) bytes: usize,
    pub(super) class: u8,
    /// Packets in its super-packet.
    pub(super) run: u16,
    pub(super) wall_ns: u64,
    /// MTU of the interface that leads to the sender; 0 if unknown.
    pub(super) mtu: u32,
}

/// A reply to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeReply<'a> {
    pub(super) answer: ProbeAnswer,
    pub(super) text: &'a [u8],
    /// Bytes of the datagram, never more than those of the probe.
    pub(super) bytes: usize,
}

#[derive(Debug)]
struct ProbeSession {
    client: IpAddr,
    since: u64,
    counted: u32,
    told_mtu: u16,
    /// Streams of TAGGED probes; empty if there were none.
    streams: Vec<TaggedStream>,
}

/// The sessions of a server, and the facts that it tells all clients.
#[derive(Debug, Default)]
pub(super) struct ProbeDesk {
    sessions: BTreeMap<u64, ProbeSession>,
    opened: u64,
    ports: [u16; SOCKETS],
    report: Vec<u8>,
    pub(super) kernel_drops: u32,
    pub(super) run_refused: bool,
}

impl ProbeDesk {
    pub(super) fn new(ports: [u16; SOCKETS]) -> Self {
        Self {
            ports,
            ..Self::default()
        }
    }

    /// Sets the text with which REPORT is answered from now on.
    pub(super) fn publish(&mut self, report: Vec<u8>) {
        self.report = report;
    }

    /// Notes an ICMP message: packets to a client are too large.
    pub(super) fn told_mtu(&mut self, client: Option<IpAddr>, mtu: u32) {
        for session in self.sessions.values_mut() {
            if client.is_none_or(|client| client == session.client) {
                session.told_mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
            }
        }
    }

    /// The reply to a probe. `fresh` is a random number that becomes the identifier of a new
    /// session. A probe is ignored if its address has no such session.
    pub(super) fn reply(
        &mut self,
        probe: &ProbePacket,
        arrived: &ProbeArrival,
        fresh: u64,
    ) -> Option<ProbeReply<'_>> {
        if arrived.bytes < PROBE_BYTES {
            return None;
        }
        let mut welcome = ProbeWelcome::default();
        let (mut counted, mut told_mtu) = (0, 0);
        if probe.kind == ProbeKind::Hello {
            welcome = ProbeWelcome {
                session: fresh,
                mtu: arrived.mtu,
                ports: self.ports,
            };
            self.open(fresh, arrived.from);
        } else {
            let session = self.sessions.get_mut(&probe.session)?;
            if session.client != arrived.from {
                return None;
            }
            session.counted += u32::from(probe.kind == ProbeKind::Count);
            (counted, told_mtu) = (session.counted, session.told_mtu);
        }
        if probe.kind == ProbeKind::Tagged {
            self.tag(probe, arrived);
            return None;
        }
        let tally = match probe.kind {
            ProbeKind::Tally => self.tally(probe),
            _ => StreamTally::default(),
        };
        let most = (probe.answer_bytes as usize).clamp(PROBE_BYTES, arrived.bytes);
        let (mut text, mut bytes) = (&[][..], most);
        if probe.kind == ProbeKind::Report {
            counted = self.report.len() as u32;
            text = self.report.get(probe.sequence as usize..).unwrap_or(&[]);
            text = &text[..text.len().min(packet::text_room(most))];
            bytes = packet::answer_bytes(text.len());
        }
        let answer = ProbeAnswer {
            kind: probe.kind,
            seen_class: arrived.class,
            run_refused: u8::from(self.run_refused),
            session: probe.session,
            sequence: probe.sequence,
            counted,
            kernel_drops: self.kernel_drops,
            seen_run: arrived.run,
            told_mtu,
            wall_ns: arrived.wall_ns,
            welcome,
            tally,
        };
        Some(ProbeReply {
            answer,
            text,
            bytes,
        })
    }

    /// Counts a TAGGED probe of a known session.
    fn tag(&mut self, probe: &ProbePacket, arrived: &ProbeArrival) {
        let index = probe.sequence as usize;
        if index >= STREAMS_MAX {
            return;
        }
        self.forget_streams(probe.session);
        let Some(session) = self.sessions.get_mut(&probe.session) else {
            return;
        };
        if session.streams.len() <= index {
            session
                .streams
                .resize_with(index + 1, TaggedStream::default);
        }
        session.streams[index].count(&TaggedPacket {
            sent_class: probe.answer_class,
            class: arrived.class,
            delay_ns: arrived.wall_ns.saturating_sub(probe.stamp_ns),
        });
    }

    /// Makes room for the first stream of a session, if too many others have streams.
    fn forget_streams(&mut self, beginner: u64) {
        let begins = |session: &ProbeSession| session.streams.is_empty();
        if !self.sessions.get(&beginner).is_some_and(begins) {
            return;
        }
        let with = self.sessions.values_mut().filter(|one| !begins(one));
        let mut with: Vec<&mut ProbeSession> = with.collect();
        if with.len() >= COUNTING_SESSIONS_MAX {
            with.sort_unstable_by_key(|session| session.since);
            with[0].streams = Vec::new();
        }
    }

    fn tally(&self, probe: &ProbePacket) -> StreamTally {
        let session = self.sessions.get(&probe.session);
        let index = usize::from(probe.sequence as u16);
        let stream = session.and_then(|session| session.streams.get(index));
        stream.map(TaggedStream::tally).unwrap_or_default()
    }

    fn open(&mut self, session: u64, client: IpAddr) {
        if self.sessions.len() >= SESSIONS_MAX {
            let oldest = self
                .sessions
                .iter()
                .min_by_key(|(_, session)| session.since);
            if let Some((&oldest, _)) = oldest {
                self.sessions.remove(&oldest);
            }
        }
        self.opened += 1;
        let opened = ProbeSession {
            client,
            since: self.opened,
            counted: 0,
            told_mtu: 0,
            streams: Vec::new(),
        };
        self.sessions.insert(session, opened);
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::AnswerForm;
    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const STRANGER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn probe(kind: ProbeKind, session: u64) -> ProbePacket {
        ProbePacket {
            kind,
            form: AnswerForm::Single,
            answer_class: 0,
            session,
            sequence: 0,
            answer_bytes: u32::MAX,
            stamp_ns: 0,
        }
    }

    fn arrived(from: IpAddr, bytes: usize) -> ProbeArrival {
        ProbeArrival {
            from,
            bytes,
            class: 0,
            run: 1,
            wall_ns: 0,
            mtu: 0,
        }
    }

    #[test]
    fn no_answer_has_more_bytes_than_its_probe() {
        let mut desk = ProbeDesk::new([0; SOCKETS]);
        desk.publish(vec![b'a'; 100_000]);
        desk.reply(
            &probe(ProbeKind::Hello, 1),
            &arrived(CLIENT, PROBE_BYTES),
            7,
        )
        .expect("a greeting is answered");
        for kind in [
            ProbeKind::Hello,
            ProbeKind::Echo,
            ProbeKind::Count,
            ProbeKind::Report,
        ] {
            for bytes in 0..2_000 {
                let reply = desk.reply(&probe(kind, 7), &arrived(CLIENT, bytes), 7);
                assert_eq!(reply.is_some(), bytes >= PROBE_BYTES, "{kind:?} {bytes}");
                assert!(
                    reply.is_none_or(|reply| reply.bytes <= bytes),
                    "{kind:?} {bytes}"
                );
            }
        }
    }

    #[test]
    fn a_session_belongs_to_the_address_that_opened_it() {
        let mut desk = ProbeDesk::new([0; SOCKETS]);
        let echo = probe(ProbeKind::Echo, 7);
        assert!(
            desk.reply(&echo, &arrived(CLIENT, 100), 0).is_none(),
            "none yet"
        );
        let hello = probe(ProbeKind::Hello, 1);
        let welcome = desk.reply(&hello, &arrived(CLIENT, 100), 7);
        assert_eq!(
            welcome
                .expect("a greeting is answered")
                .answer
                .welcome
                .session,
            7
        );
        assert!(desk.reply(&echo, &arrived(CLIENT, 100), 0).is_some());
        assert!(desk.reply(&echo, &arrived(STRANGER, 100), 0).is_none());
        assert!(
            desk.reply(&probe(ProbeKind::Echo, 8), &arrived(CLIENT, 100), 0)
                .is_none()
        );
    }

    #[test]
    fn tagged_probes_are_counted_and_not_answered() {
        let mut desk = ProbeDesk::new([0; SOCKETS]);
        desk.reply(&probe(ProbeKind::Hello, 1), &arrived(CLIENT, 100), 7)
            .expect("a greeting is answered");
        let tagged = |stream| ProbePacket {
            sequence: stream,
            ..probe(ProbeKind::Tagged, 7)
        };
        for stream in [0, 3, 3, STREAMS_MAX as u32, u32::MAX] {
            let reply = desk.reply(&tagged(stream), &arrived(CLIENT, 100), 0);
            assert!(reply.is_none());
        }
        desk.reply(&tagged(3), &arrived(STRANGER, 100), 0);
        let mut tally = |stream| {
            let question = ProbePacket {
                sequence: stream,
                ..probe(ProbeKind::Tally, 7)
            };
            let reply = desk.reply(&question, &arrived(CLIENT, 100), 0);
            reply.expect("a known session").answer.tally.received
        };
        assert_eq!([0, 1, 3, 99].map(&mut tally), [1, 0, 2, 0]);
    }

    #[test]
    fn few_sessions_have_streams_and_the_oldest_loses_its_own_first() {
        let mut desk = ProbeDesk::new([0; SOCKETS]);
        for session in 1..=COUNTING_SESSIONS_MAX as u64 + 1 {
            desk.reply(&probe(ProbeKind::Hello, 0), &arrived(CLIENT, 100), session)
                .expect("a greeting is answered");
            desk.reply(&probe(ProbeKind::Tagged, session), &arrived(CLIENT, 100), 0);
        }
        let counting = desk.sessions.values().filter(|one| !one.streams.is_empty());
        assert_eq!(counting.count(), COUNTING_SESSIONS_MAX);
        assert!(desk.sessions[&1].streams.is_empty());
    }

    #[test]
    fn sessions_are_bounded_and_the_oldest_goes_first() {
        let mut desk = ProbeDesk::new([0; SOCKETS]);
        for session in 1..=SESSIONS_MAX as u64 + 1 {
            let hello = probe(ProbeKind::Hello, 0);
            desk.reply(&hello, &arrived(CLIENT, 100), session)
                .expect("a greeting is answered");
        }
        assert_eq!(desk.sessions.len(), SESSIONS_MAX);
        assert!(!desk.sessions.contains_key(&1));
    }
}
