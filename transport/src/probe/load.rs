//! Measures a path with many packets: whether runs stay runs, and how many of thousands are lost or
//! overtaken.

use std::time::Duration;

use super::client::{ProbeClient, ProbeQuestion};
use super::clock::now;
use super::packet::{AnswerForm, PROBE_BYTES, ProbeAnswer, ProbeKind, ProbePacket};
use super::socket::{self, SendOptions};

/// Fewer bytes and packets than the limits of any GSO send.
pub(super) const RUN_BYTES_MAX: usize = 60_000;
pub(super) const RUN_PACKETS_MAX: usize = 60;
/// Packets of a run, and bytes of each if the path carries them.
const RUN_PACKETS: usize = 16;
const RUN_PACKET_BYTES: u32 = 1_024;
/// Runs sent one after the other. A NIC hands over the packets that arrived since the last poll:
/// few, until packets follow each other closely.
const BURST: usize = 4;
/// Repetitions. The best one counts, since a wake-up in the middle cuts a run.
const BURSTS: u32 = 5;
/// Tries of the question after a series.
const LAST_QUESTIONS: u32 = 5;
/// Probes a second of a series.
const SERIES_RATE: u32 = 10_000;

/// The fate of runs: equal packets that are handed to the kernel as one (GSO), and glued together
/// again by the other kernel (GRO).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct GsoRuns {
    /// Packets of each run.
    pub packets: usize,
    /// Whether this kernel, and the server's, accepted a run.
    pub taken: (bool, bool),
    /// The maximum number of packets that the server received as one, perhaps of several runs; 0 if
    /// none arrived.
    pub glued_there: usize,
    /// The maximum number of packets that were received here as one.
    pub glued_back: usize,
}

/// The fate of a series of small packets, each of which is answered.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ProbeSeries {
    /// Probes that were sent.
    pub sent: u32,
    /// Probes that did not arrive at the server.
    pub lost_there: u32,
    /// Answers that did not arrive here.
    pub lost_back: u32,
    /// Probes that arrived after one that was sent later.
    pub overtaken_there: u32,
    /// Answers that arrived after one that was sent later.
    pub overtaken_back: u32,
    /// Packets that the kernels of both hosts dropped meanwhile for lack of room. The network did
    /// not lose these.
    pub kernel_drops: u32,
}

/// An answer to one probe of a series, in the order of arrival here.
#[derive(Clone, Copy, Debug)]
struct SeriesEcho {
    /// The sequence number of the probe.
    sequence: u32,
    /// Probes that the server had counted by then, this one included.
    counted: u32,
}

/// The answers to a series so far.
#[derive(Debug, Default)]
struct SeriesTally {
    /// The first sequence of the series.
    first: u32,
    echoes: Vec<SeriesEcho>,
    /// Packets that this socket has dropped since it was opened.
    own_drops: u32,
    /// The answer to the question after the series.
    last: Option<ProbeAnswer>,
}

impl ProbeClient {
    /// Sends runs, and asks for answers as runs. `mtu` is the MTU of the path in bytes.
    pub fn runs(&mut self, mtu: u32) -> GsoRuns {
        let packet_bytes = RUN_PACKET_BYTES.min(mtu.saturating_sub(self.overhead())) as usize;
        let packet_bytes = packet_bytes.max(PROBE_BYTES);
        let mut runs = GsoRuns {
            packets: RUN_PACKETS,
            taken: (true, true),
            glued_there: 0,
            glued_back: 0,
        };
        for _ in 0..BURSTS {
            self.burst(packet_bytes, &mut runs);
            if !runs.taken.0 || runs.glued_there.min(runs.glued_back) >= RUN_PACKETS {
                break;
            }
        }
        runs
    }

    /// Sends `count` small probes at a moderate rate. `None` if the server no longer answers.
    pub fn series(&mut self, count: u32) -> Option<ProbeSeries> {
        let before = self.ask_often(&ProbeQuestion::PLAIN)?.answer;
        let mut tally = SeriesTally {
            first: self.sequence + 1,
            ..SeriesTally::default()
        };
        let mut sent = 0;
        let start = now();
        while sent < count {
            let due = (start.elapsed().as_micros() * u128::from(SERIES_RATE) / 1_000_000) as u32;
            while sent < count.min(due) {
                self.send_small(ProbeKind::Count);
                sent += 1;
            }
            self.collect(&mut tally);
            socket::wait(self.sockets.iter().take(1), Duration::from_micros(500));
        }
        self.collect_until(&mut tally, |tally| tally.echoes.len() >= count as usize);
        // The question follows the last probe, so its answer follows the last answer.
        for _ in 0..LAST_QUESTIONS {
            if tally.last.is_none() {
                self.send_small(ProbeKind::Echo);
                self.collect_until(&mut tally, |tally| tally.last.is_some());
            }
        }
        let after = tally.last?;
        let arrived = after.counted.wrapping_sub(before.counted);
        let echoes = &mut tally.echoes;
        let overtaken_back = overtaken(echoes.iter().map(|echo| echo.counted));
        echoes.sort_unstable_by_key(|echo| echo.counted);
        let server_drops = after.kernel_drops.wrapping_sub(before.kernel_drops);
        Some(ProbeSeries {
            sent,
            lost_there: sent.saturating_sub(arrived),
            lost_back: arrived.saturating_sub(echoes.len() as u32),
            overtaken_there: overtaken(echoes.iter().map(|echo| echo.sequence)),
            overtaken_back,
            kernel_drops: server_drops + tally.own_drops,
        })
    }

    fn burst(&mut self, packet_bytes: usize, runs: &mut GsoRuns) {
        let first = self.sequence + 1;
        let sending = SendOptions {
            to: self.peer(0),
            class: 0,
            packet_bytes: Some(packet_bytes as u16),
        };
        let mut bytes = vec![0; RUN_PACKETS * packet_bytes];
        for _ in 0..BURST {
            for packet in bytes.chunks_mut(packet_bytes) {
                self.sequence += 1;
                let probe = self.probe(ProbeKind::Echo, AnswerForm::Run, packet_bytes);
                probe.encode(packet);
            }
            if self.sockets[0].send(&bytes, sending).is_err() {
                runs.taken.0 = false;
                return;
            }
        }
        let end = now() + self.patience();
        let mut answers = 0;
        while answers < BURST * RUN_PACKETS && now() < end {
            socket::wait(self.sockets.iter().take(1), Duration::from_millis(5));
            while let Some(received) = self.sockets[0].receive(&mut self.slot) {
                let each = received.packet_bytes.unwrap_or(received.bytes).max(1);
                let packets = self.slot[..received.bytes].chunks(each);
                let ours = packets
                    .filter_map(ProbeAnswer::decode)
                    .filter(|answer| answer.session == self.session && answer.sequence >= first);
                let mut glued = 0;
                for answer in ours {
                    glued += 1;
                    runs.glued_there = runs.glued_there.max(usize::from(answer.seen_run));
                    runs.taken.1 &= answer.run_refused == 0;
                }
                runs.glued_back = runs.glued_back.max(glued);
                answers += glued;
            }
        }
    }

    fn send_small(&mut self, kind: ProbeKind) {
        self.sequence += 1;
        let mut bytes = [0; PROBE_BYTES];
        self.probe(kind, AnswerForm::Single, PROBE_BYTES)
            .encode(&mut bytes);
        let sending = SendOptions {
            to: self.peer(0),
            class: 0,
            packet_bytes: None,
        };
        // A probe that cannot be sent is lost.
        let _ = self.sockets[0].send(&bytes, sending);
    }

    /// Reads answers until there are `enough`, or until no more can be expected.
    fn collect_until(&mut self, tally: &mut SeriesTally, enough: impl Fn(&SeriesTally) -> bool) {
        let end = now() + self.patience();
        while !enough(tally) && now() < end {
            socket::wait(self.sockets.iter().take(1), Duration::from_millis(5));
            self.collect(tally);
        }
    }

    fn collect(&mut self, tally: &mut SeriesTally) {
        while let Some(received) = self.sockets[0].receive(&mut self.slot) {
            tally.own_drops = received.kernel_drops.unwrap_or(tally.own_drops);
            let each = received.packet_bytes.unwrap_or(received.bytes).max(1);
            let packets = self.slot[..received.bytes].chunks(each);
            for answer in packets.filter_map(ProbeAnswer::decode) {
                if answer.session != self.session || answer.sequence < tally.first {
                    continue;
                }
                match answer.kind {
                    ProbeKind::Count => tally.echoes.push(SeriesEcho {
                        sequence: answer.sequence,
                        counted: answer.counted,
                    }),
                    _ => tally.last = Some(answer),
                }
            }
        }
    }

    fn probe(&self, kind: ProbeKind, form: AnswerForm, answer_bytes: usize) -> ProbePacket {
        ProbePacket {
            kind,
            form,
            answer_class: 0,
            session: self.session,
            sequence: self.sequence,
            answer_bytes: answer_bytes as u32,
            stamp_ns: 0,
        }
    }
}

/// How many of these numbers follow a larger one.
fn overtaken(numbers: impl Iterator<Item = u32>) -> u32 {
    let mut largest = 0;
    let late = numbers.filter(|number| {
        let late = *number < largest;
        largest = largest.max(*number);
        late
    });
    late.count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_after_larger_ones_were_overtaken() {
        assert_eq!(overtaken([1, 2, 3, 5, 8].into_iter()), 0);
        assert_eq!(overtaken([1, 3, 2, 5, 4, 4].into_iter()), 3);
        assert_eq!(overtaken(std::iter::empty()), 0);
    }
}
