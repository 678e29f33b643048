//! Measures a path with single probes: its round trip and MTU, changes of DSCP and ECN, and the
//! ports that it lets through.

use std::time::Duration;

use super::client::{ProbeClient, ProbeQuestion};
use super::clock::wall_ns;
use super::packet::{PROBE_BYTES, SOCKETS};
use super::socket::{Fragmentation, PacketRefusal, RefusalOrigin};

/// Bytes of a packet that every host must accept (RFC 791): the smallest probe of the path's MTU.
const SMALLEST: u32 = 576;
const UDP_HEADER_BYTES: u32 = 8;

/// Round trips of small packets, asked one after the other.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrips {
    /// The shortest.
    pub least: Duration,
    /// The median.
    pub median: Duration,
    /// Nanoseconds by which the server's wall clock is ahead, measured with the shortest round
    /// trip. The error is at most half of that round trip.
    pub clock_ahead_ns: i64,
}

/// The MTU of one direction of a path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PathReach {
    /// Bytes of the longest IP packet that arrived.
    pub bytes: u32,
    /// The MTU that ICMP or a kernel told the sender; `None` if longer packets vanish silently (a
    /// black hole).
    pub told: Option<u32>,
}

/// The MTU of a path in both directions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PathMtu {
    /// The longest packet that was tried.
    pub tried: u32,
    /// Towards the server; `None` if not even the smallest packet arrived.
    pub there: Option<PathReach>,
    /// Back from the server; at most that towards it, since only an arrived packet is answered.
    pub back: Option<PathReach>,
    /// If packets of `tried` bytes do not arrive: whether they do if routers may fragment them.
    pub cut_arrives: bool,
}

/// The fate of a traffic class (DSCP and ECN: the byte of the IP header) on a path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TagFate {
    /// As it was sent.
    pub sent: u8,
    /// As it arrived at the server; `None` if it did not arrive.
    pub there: Option<u8>,
    /// As the same class arrived here from the server.
    pub back: Option<u8>,
}

impl ProbeClient {
    /// Measures `count` round trips. `None` if no probe was answered.
    pub fn round_trips(&mut self, count: u32) -> Option<RoundTrips> {
        self.round_trips_in(0, count)
    }

    /// As [`Self::round_trips`], with packets of this traffic class.
    pub(super) fn round_trips_in(&mut self, class: u8, count: u32) -> Option<RoundTrips> {
        let question = ProbeQuestion {
            class,
            answer_class: class,
            ..ProbeQuestion::PLAIN
        };
        let mut times = Vec::new();
        let mut best: Option<(Duration, i64)> = None;
        for _ in 0..count {
            let Some(heard) = self.ask(&question) else {
                continue;
            };
            let taken = heard.round_trip;
            let middle = wall_ns().saturating_sub(taken.as_nanos() as u64 / 2);
            if best.is_none_or(|(least, _)| taken < least) {
                best = Some((taken, heard.answer.wall_ns.wrapping_sub(middle) as i64));
            }
            times.push(taken);
        }
        times.sort_unstable();
        let (least, clock_ahead_ns) = best?;
        Some(RoundTrips {
            least,
            median: times[times.len() / 2],
            clock_ahead_ns,
        })
    }

    /// Finds the longest IP packet, up to `most` bytes, that arrives in each direction.
    pub fn path_mtu(&mut self, most: u32) -> PathMtu {
        self.take_refusals();
        let mut told = None;
        let there = longest(most, |bytes| {
            let heard = self.ask_often(&self.sized(bytes, SMALLEST));
            told = told_by_network(&self.take_refusals()).or(told);
            (heard.is_some(), told)
        });
        let there = there.map(|bytes| PathReach { bytes, told });
        let back = there.and_then(|there| {
            let mut told = None;
            let bytes = longest(there.bytes, |bytes| {
                let heard = self.ask_often(&self.sized(bytes, bytes));
                if heard.is_none() {
                    let told_mtu = self
                        .ask_often(&ProbeQuestion::PLAIN)
                        .map(|one| one.answer.told_mtu);
                    told = told_mtu.filter(|mtu| *mtu > 0).map(u32::from).or(told);
                }
                (heard.is_some(), told)
            });
            bytes.map(|bytes| PathReach { bytes, told })
        });
        let whole = there.is_some_and(|reach| reach.bytes == most);
        PathMtu {
            tried: most,
            there,
            back,
            cut_arrives: whole || self.cut_arrives(most),
        }
    }

    /// Sends each traffic class both ways, and returns the classes that arrived.
    pub fn tags(&mut self, classes: &[u8]) -> Vec<TagFate> {
        classes.iter().map(|class| self.tag(*class)).collect()
    }

    /// Which pairs of ports, one of each side, reach each other and back.
    pub fn open_ports(&mut self) -> [bool; SOCKETS] {
        let mut open = [false; SOCKETS];
        for (path, open) in open.iter_mut().enumerate() {
            let question = ProbeQuestion {
                path,
                ..ProbeQuestion::PLAIN
            };
            *open = self.ports[path] != 0 && self.ask_often(&question).is_some();
        }
        open
    }

    fn cut_arrives(&mut self, bytes: u32) -> bool {
        let question = self.sized(bytes, SMALLEST);
        let allowed = self.sockets[0]
            .set_fragmentation(Fragmentation::Allowed)
            .is_ok();
        let arrives = allowed && self.ask_often(&question).is_some();
        // This option was set before, so it can be set again.
        let _ = self.sockets[0].set_fragmentation(Fragmentation::Forbidden);
        arrives
    }

    fn tag(&mut self, sent: u8) -> TagFate {
        let there = ProbeQuestion {
            class: sent,
            ..ProbeQuestion::PLAIN
        };
        let back = ProbeQuestion {
            answer_class: sent,
            ..ProbeQuestion::PLAIN
        };
        TagFate {
            sent,
            there: self.ask_often(&there).map(|heard| heard.answer.seen_class),
            back: self.ask_often(&back).map(|heard| heard.class),
        }
    }

    /// A question and an answer whose IP packets have these lengths.
    fn sized(&self, bytes: u32, answer_bytes: u32) -> ProbeQuestion {
        let overhead = self.overhead();
        let payload = |bytes: u32| (bytes.saturating_sub(overhead) as usize).max(PROBE_BYTES);
        ProbeQuestion {
            bytes: payload(bytes),
            answer_bytes: payload(answer_bytes),
            ..ProbeQuestion::PLAIN
        }
    }

    /// Bytes of the IP and UDP headers.
    pub(super) fn overhead(&self) -> u32 {
        UDP_HEADER_BYTES + if self.server.is_ipv6() { 40 } else { 20 }
    }
}

/// The largest number up to `most` that `arrives`. `arrives` also returns the largest number that
/// the network told, if any. `None` if not even [`SMALLEST`] arrives.
fn longest(most: u32, mut arrives: impl FnMut(u32) -> (bool, Option<u32>)) -> Option<u32> {
    let (whole, mut told) = arrives(most);
    if whole {
        return Some(most);
    }
    if !arrives(SMALLEST).0 {
        return None;
    }
    let (mut good, mut bad) = (SMALLEST, most);
    while bad - good > 1 {
        // The number that the network told is tried first, then the next one.
        let hint = told.take().filter(|told| (good + 1..bad).contains(told));
        let next = match hint {
            Some(told) => told,
            None => good + (bad - good) / 2,
        };
        let (arrived, now_told) = arrives(next);
        if arrived && hint.is_some() && next + 1 < bad {
            let (beyond, _) = arrives(next + 1);
            (good, bad) = if beyond {
                (next + 1, bad)
            } else {
                (next, next + 1)
            };
        } else if arrived {
            good = next;
        } else {
            bad = next;
            told = now_told;
        }
    }
    Some(good)
}

fn told_by_network(refusals: &[PacketRefusal]) -> Option<u32> {
    refusals.iter().rev().find_map(|refusal| match refusal {
        PacketRefusal::TooBig {
            mtu,
            by: RefusalOrigin::Network,
            ..
        } => Some(*mtu),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_packet_is_found() {
        for mtu in SMALLEST + 1..=1500 {
            let silent = longest(1500, |bytes| (bytes <= mtu, None));
            assert_eq!(silent, Some(mtu), "a black hole");
            let mut asked = 0;
            let told = longest(1500, |bytes| {
                asked += 1;
                (bytes <= mtu, (bytes > mtu).then_some(mtu))
            });
            assert_eq!(told, Some(mtu), "told by the network");
            assert!(asked <= 5, "{asked} probes for {mtu}");
        }
        assert_eq!(longest(1500, |_| (false, None)), None);
    }

    #[test]
    fn wrong_hints_of_the_network_are_corrected() {
        for mtu in [576, 900, 1280, 1499, 1500] {
            let wrong = longest(1500, |bytes| (bytes <= mtu, Some(1000)));
            assert_eq!(wrong, Some(mtu));
        }
    }
}
