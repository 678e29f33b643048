//! Sends packets of several tags at given times, without answers, and measures the fate of each
//! tag on a path that may be too narrow for them.
//!
//! A stream is one traffic class byte: DSCP and ECN. Packets take all pairs of ports in turn, so
//! that switches that hash spread them.

use std::time::Duration;

use super::client::{ProbeClient, ProbeQuestion};
use super::clock::{now, wall_ns};
use super::packet::{AnswerForm, PROBE_BYTES, ProbeAnswer, ProbeKind, ProbePacket, SOCKETS};
use super::socket::SendOptions;

/// Round trips from which the other clock is estimated.
const ROUND_TRIPS: u32 = 50;
/// Time between questions for tallies while packets may still arrive, and the number of equal
/// answers after which no more are expected.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const SAME_LOOKS: u32 = 5;
/// The longest time that packets may be under way after the last was sent.
const DRAIN_MAX: Duration = Duration::from_secs(20);

/// The packets to send.
#[derive(Clone, Copy, Debug)]
pub struct Tagging<'a> {
    /// Traffic class byte of each stream, 16 at most. The first is the highest: questions use it.
    pub classes: &'a [u8],
    /// UDP payload of each packet, at least 68 bytes and at most 65,000.
    pub payload: usize,
}

/// The fate of a stream.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Passage {
    /// Packets that this kernel accepted.
    pub sent: u32,
    /// Packets that this kernel refused, for example for lack of room.
    pub refused: u32,
    /// Packets that arrived.
    pub received: u32,
    /// Packets that arrived with CE.
    pub marked: u32,
    /// Packets that were sent as ECT and arrived as not-ECT.
    pub bleached: u32,
    /// Packets that arrived with another DSCP.
    pub rewritten: u32,
    /// One-way delays above the minimum of all streams: median and 99th percentile, with a
    /// resolution of 1/32. `None` if no packet came.
    pub delays: Option<(Duration, Duration)>,
}

/// The fate of all streams.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Passages {
    /// By stream.
    pub streams: Vec<Passage>,
    /// Packets that the server's kernel dropped for lack of room. The network did not lose these.
    pub kernel_drops: u32,
    /// The largest delay of a departure, because this host was busy.
    pub latest: Duration,
}

impl ProbeClient {
    /// Sends packets at the given times, each with the number of its stream. Waits until no more
    /// arrive, and asks for the counts. `None` if the server no longer answers, or is too old to
    /// count.
    pub fn tagged(
        &mut self,
        tagging: Tagging<'_>,
        departures: impl Iterator<Item = (Duration, usize)>,
    ) -> Option<Passages> {
        let highest = tagging.classes.first().copied().unwrap_or(0);
        let trips = self.round_trips_in(highest, ROUND_TRIPS)?;
        let before = self.looked_at(0, tagging)?.kernel_drops;
        let mut passages = Passages {
            streams: vec![Passage::default(); tagging.classes.len()],
            ..Passages::default()
        };
        // Stamps are early by a round trip, so that no error of the clocks makes a delay negative.
        let ahead = trips.clock_ahead_ns - trips.least.as_nanos() as i64;
        let mut bytes = vec![0; tagging.payload.max(PROBE_BYTES)];
        let start = now();
        for (due, stream) in departures {
            let late = start.elapsed().checked_sub(due);
            match late {
                Some(late) => passages.latest = passages.latest.max(late),
                None => std::thread::sleep(due - start.elapsed().min(due)),
            }
            let class = tagging.classes[stream];
            let passage = &mut passages.streams[stream];
            let path = (passage.sent + passage.refused) as usize % SOCKETS;
            ProbePacket {
                kind: ProbeKind::Tagged,
                form: AnswerForm::Single,
                answer_class: class,
                session: self.session,
                sequence: stream as u32,
                answer_bytes: 0,
                stamp_ns: wall_ns().wrapping_add_signed(ahead),
            }
            .encode(&mut bytes);
            let sending = SendOptions {
                to: self.peer(path),
                class,
                packet_bytes: None,
            };
            match self.sockets[path].send(&bytes, sending) {
                Ok(()) => passage.sent += 1,
                Err(_) => passage.refused += 1,
            }
        }
        let answers = self.settled(tagging)?;
        passages.take(&answers);
        passages.kernel_drops = passages.kernel_drops.wrapping_sub(before);
        Some(passages)
    }

    /// The tallies, when they no longer change.
    fn settled(&mut self, tagging: Tagging<'_>) -> Option<Vec<ProbeAnswer>> {
        let end = now() + DRAIN_MAX;
        let (mut last, mut same) = (Vec::new(), 0);
        while same < SAME_LOOKS && now() < end {
            std::thread::sleep(LOOK_EVERY);
            let streams = 0..tagging.classes.len();
            let answers: Option<Vec<ProbeAnswer>> = streams
                .map(|stream| self.looked_at(stream, tagging))
                .collect();
            let answers = answers?;
            let received = |answers: &[ProbeAnswer]| -> Vec<u32> {
                answers.iter().map(|one| one.tally.received).collect()
            };
            same = match received(&answers) == received(&last) {
                true => same + 1,
                false => 0,
            };
            last = answers;
        }
        Some(last)
    }

    /// Asks for the tally of a stream.
    fn looked_at(&mut self, stream: usize, tagging: Tagging<'_>) -> Option<ProbeAnswer> {
        let sequence = self.sequence;
        self.looks = self.looks.wrapping_add(1);
        self.sequence = u32::from(self.looks) << 16 | stream as u32;
        let class = tagging.classes.first().copied().unwrap_or(0);
        let question = ProbeQuestion {
            kind: ProbeKind::Tally,
            class,
            answer_class: class,
            ..ProbeQuestion::PLAIN
        };
        let heard = self.ask_often(&question);
        self.sequence = sequence;
        Some(heard?.answer)
    }
}

impl Passages {
    fn take(&mut self, answers: &[ProbeAnswer]) {
        let came = answers.iter().filter(|one| one.tally.received > 0);
        let least = came.map(|one| one.tally.least_ns).min().unwrap_or(0);
        let above = |nanos: u32| Duration::from_nanos(u64::from(nanos.saturating_sub(least)));
        for (passage, answer) in self.streams.iter_mut().zip(answers) {
            let tally = answer.tally;
            passage.received = tally.received;
            passage.marked = tally.marked;
            passage.bleached = tally.bleached;
            passage.rewritten = tally.rewritten;
            let delays = (above(tally.median_ns), above(tally.p99_ns));
            passage.delays = (tally.received > 0).then_some(delays);
            self.kernel_drops = answer.kernel_drops;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::super::ProbeServer;
    use super::*;

    #[test]
    fn on_loopback_every_tag_arrives_as_it_was_sent() {
        let mut server =
            ProbeServer::bind("127.0.0.1:0".parse().expect("an address")).expect("bound");
        let address = server.addresses()[0];
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    server.answer_for(Duration::from_millis(20));
                }
            });
            let mut client = ProbeClient::connect(address, None).expect("a session");
            let classes = [40 << 2 | 2, 34 << 2 | 2, 34 << 2, 26 << 2 | 3];
            let tagging = Tagging {
                classes: &classes,
                payload: 200,
            };
            let times = (0..400).map(|n| (Duration::from_micros(100 * n), n as usize % 4));
            let passages = client.tagged(tagging, times).expect("tallies");
            done.store(true, Ordering::Relaxed);
            assert_eq!(passages.kernel_drops, 0);
            for (stream, passage) in passages.streams.iter().enumerate() {
                assert_eq!((passage.sent, passage.received), (100, 100), "{stream}");
                assert_eq!((passage.bleached, passage.rewritten), (0, 0), "{stream}");
                assert_eq!(passage.marked, if stream == 3 { 100 } else { 0 });
                let (median, p99) = passage.delays.expect("packets came");
                assert!(median <= p99);
            }
        });
    }
}
