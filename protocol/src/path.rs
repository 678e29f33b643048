//! Faults of the path to one peer, as its acknowledgements show them. Each fault is told once.
//!
//! 1. *It loses most packets* ([`PathFault::LosesMost`]) for `INTERVALS_BAD` intervals, while the
//!    peer answers: the sender falls back to one packet per `TRICKLE`, as a circuit breaker demands
//!    (RFC 8084), until an interval loses little.
//! 2. *Full packets vanish* ([`PathFault::FullPacketsVanish`]): the same, and none of them arrives,
//!    although control packets do. Then a link on the path has a smaller MTU than the job.
//! 3. *Long packets go on vanishing* ([`PathFault::LongPacketsLost`]) for the job's peer timeout,
//!    while the peer answers: their messages cannot end, so the job does. A PROBE that names holes
//!    is long, too, and lost if only a short one is answered.
//! 4. *All packets arrive marked* ([`PathFault::MarksEverything`]) though the window is at its
//!    minimum and no queue delays them ([`crate::congestion`]). Marks are ignored (RFC 9000,
//!    section 13.4.2); delay and loss remain signals.
//! 5. *ECN is cleared* ([`PathFault::ClearsEcn`]): control packets, which leave as ECT, arrive
//!    without. No marks can arrive then; delay and loss remain signals. The receiving side tells.

use serde::{Deserialize, Serialize};

use crate::congestion::Feedback;
use crate::machine::Ecn;
use crate::units::{ByteCount, Instant, Span};

/// The shares of an interval are judged together.
const INTERVAL: Span = Span::from_millis(1_000);
/// Segments that an interval needs for a judgement.
const SEGMENTS_MIN: u64 = 8;
/// Consecutive intervals that lose more than half, until the sender falls back.
const INTERVALS_BAD: u32 = 3;
/// A loss of at most one in this many segments is little.
const LITTLE: u64 = 10;
/// A sender that has fallen back sends one packet in this time.
const TRICKLE: Span = Span::from_millis(100);
/// Long packets that are lost, and none that arrives, until the path counts as one that takes none.
const VANISHED_MIN: u32 = 8;
/// Control packets without ECT after which the path is known to clear ECN.
const CLEARED_MIN: u64 = 64;

/// A fault of the path to or from a peer.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum PathFault {
    /// It lost more than half of the segments that were sent for seconds.
    LosesMost {
        /// Segments lost in the last second.
        lost: u64,
        /// Segments sent in it, as far as their fate is known.
        of: u64,
    },
    /// No full packet arrives for seconds, while smaller ones do.
    FullPacketsVanish {
        /// Bytes of a full packet with gradwire's header, without those of IP and UDP.
        bytes: u64,
    },
    /// No packet of this length has arrived for the job's peer timeout, while shorter ones do.
    LongPacketsLost {
        /// Bytes of such a packet with gradwire's header, without those of IP and UDP.
        bytes: u64,
        /// Since the first of those that are lost was known to be.
        lasting: Span,
    },
    /// All packets arrive marked, though no queue delays them.
    MarksEverything,
    /// Packets from the peer arrive without the ECT that they left with.
    ClearsEcn,
}

/// The watch over the path to one peer.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct PathWatch {
    packet: u64,
    ends: Instant,
    acked: u64,
    lost: u64,
    /// Bad intervals in a row.
    bad: u32,
    /// Whether a full packet has arrived since the last good interval.
    full_arrived: bool,
    vanishing: Option<VanishingPackets>,
    /// A peer may be without full packets for this long.
    peer_timeout: Span,
    /// `Some` while the sender has fallen back.
    trickle: Option<Trickle>,
}

/// Packets of some length and more, of which none has arrived since the first one was lost.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct VanishingPackets {
    bytes: u64,
    lost: u32,
    since: Instant,
    /// When the last one was lost.
    last: Instant,
}

/// What a sender that has fallen back may do.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
enum Trickle {
    /// Send a packet.
    Ready,
    /// Wait. The first answer of the peer, to a PROBE for example, after that time ends the wait.
    Waits(Instant),
}

impl PathWatch {
    /// A path of which nothing is known, with full packets of `packet` bytes.
    pub(crate) fn new(packet: ByteCount, peer_timeout: Span) -> Self {
        Self {
            packet: packet.get(),
            ends: Instant::START,
            acked: 0,
            lost: 0,
            bad: 0,
            full_arrived: true,
            vanishing: None,
            peer_timeout,
            trickle: None,
        }
    }

    /// A packet of `bytes` bytes is lost. It does not count if it is shorter than others that are
    /// lost now.
    pub(crate) fn on_lost(&mut self, now: Instant, bytes: u64) {
        // A segment without bytes in flight was lost before.
        if bytes == 0 {
            return;
        }
        let recent = self.vanishing.filter(|one| self.is_recent(now, one));
        let begins = VanishingPackets {
            bytes,
            lost: 0,
            since: now,
            last: now,
        };
        let mut vanishing = recent.unwrap_or(begins);
        if bytes >= vanishing.bytes {
            vanishing.lost += 1;
            vanishing.last = now;
        }
        self.vanishing = Some(vanishing);
    }

    /// Whether packets are still being lost: a rank that sent none for a while has lost none.
    fn is_recent(&self, now: Instant, vanishing: &VanishingPackets) -> bool {
        now - vanishing.last < self.peer_timeout.divided(2).max(TRICKLE * 4)
    }

    /// A PROBE of `bytes` bytes has arrived.
    pub(crate) fn on_probe_arrived(&mut self, bytes: u64) {
        self.vanishing = self.vanishing.filter(|vanishing| vanishing.bytes > bytes);
    }

    /// A BITMAP shows that a segment is missing whose packet of `bytes` bytes was in flight. The
    /// feedback of that BITMAP does not count it.
    pub(crate) fn on_missing(&mut self, now: Instant, bytes: u64) {
        self.lost += u64::from(bytes > 0);
        self.on_lost(now, bytes);
    }

    /// No long packet has arrived for as long as a peer may be silent. Told once.
    fn take_vanished(&mut self, now: Instant, news: &Feedback) -> Option<PathFault> {
        let vanishing = self.vanishing?;
        // Of two segments of a message one is full. A segment without bytes was thought lost.
        let may_be_long = news.acked.get() >= vanishing.bytes || news.acked.get() == 0;
        if news.segments > 1 || news.segments == 1 && may_be_long {
            self.vanishing = None;
            return None;
        }
        let lasting = now - vanishing.since;
        if !self.is_recent(now, &vanishing)
            || lasting < self.peer_timeout
            || vanishing.lost < VANISHED_MIN
        {
            return None;
        }
        self.vanishing = None;
        let bytes = vanishing.bytes;
        Some(PathFault::LongPacketsLost { bytes, lasting })
    }

    /// Processes an acknowledgement; returns a fault that has shown.
    pub(crate) fn on_feedback(&mut self, now: Instant, news: &Feedback) -> Option<PathFault> {
        self.acked += u64::from(news.segments);
        self.lost += u64::from(news.lost);
        self.full_arrived |= news.acked.get() >= self.packet;
        if let Some(Trickle::Waits(until)) = self.trickle
            && now >= until
        {
            self.trickle = Some(Trickle::Ready);
        }
        if self.vanishing.is_some()
            && let Some(fault) = self.take_vanished(now, news)
        {
            return Some(fault);
        }
        if now < self.ends {
            return None;
        }
        self.ends = now + INTERVAL;
        let (acked, lost) = (self.acked, self.lost);
        let of = acked + lost;
        if of < SEGMENTS_MIN {
            // Too few to judge: they count in the next interval.
            return None;
        }
        (self.acked, self.lost) = (0, 0);
        if lost * 2 <= of {
            self.bad = 0;
            if lost * LITTLE <= of {
                self.trickle = None;
            }
            return None;
        }
        if self.bad == 0 {
            self.full_arrived = news.acked.get() >= self.packet;
        }
        self.bad += 1;
        if self.bad < INTERVALS_BAD || self.trickle.is_some() {
            return None;
        }
        self.trickle = Some(Trickle::Waits(now + TRICKLE));
        Some(match self.full_arrived {
            true => PathFault::LosesMost { lost, of },
            false => PathFault::FullPacketsVanish { bytes: self.packet },
        })
    }

    /// The bytes of a window that may be in flight.
    pub(crate) fn limit(&self, window: ByteCount) -> ByteCount {
        match self.trickle {
            None => window,
            Some(Trickle::Ready) => ByteCount::new(self.packet).min(window),
            Some(Trickle::Waits(_)) => ByteCount::new(0),
        }
    }

    /// When the wait of a sender that has fallen back may end, if it waits.
    pub(crate) fn waits_until(&self) -> Option<Instant> {
        match self.trickle {
            Some(Trickle::Waits(until)) => Some(until),
            Some(Trickle::Ready) | None => None,
        }
    }

    /// Ends the wait of a sender that has asked its peer for no answer.
    pub(crate) fn end_wait(&mut self) {
        self.trickle = Some(Trickle::Ready);
    }

    /// Data was sent.
    pub(crate) fn on_sent(&mut self, now: Instant) {
        if self.trickle.is_some() {
            self.trickle = Some(Trickle::Waits(now + TRICKLE));
        }
    }
}

/// Counts control packets of a peer that arrived without the ECT that they left with.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct EcnWatch {
    cleared: u64,
    kept: u64,
}

impl EcnWatch {
    /// A control packet has arrived; returns the fault when it shows.
    pub(crate) fn on_control(&mut self, ecn: Ecn) -> Option<PathFault> {
        match ecn {
            Ecn::NotEct => self.cleared += 1,
            Ecn::Ect | Ecn::Ce => self.kept += 1,
        }
        let shows = self.cleared == CLEARED_MIN && self.kept == 0;
        shows.then_some(PathFault::ClearsEcn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: ByteCount = ByteCount::new(1500);
    const TIMEOUT: Span = Span::from_millis(20_000);

    fn news(segments: u32, lost: u32, bytes: u64) -> Feedback {
        Feedback {
            acked: ByteCount::new(bytes),
            segments,
            lost,
            ..Feedback::default()
        }
    }

    /// The faults after some seconds with the same acknowledgement every 100 ms.
    fn faults(watch: &mut PathWatch, from: u64, seconds: u64, each: &Feedback) -> Vec<PathFault> {
        let times = (0..seconds * 10).map(|n| Instant::START + Span::from_millis(from + n * 100));
        times
            .filter_map(|now| watch.on_feedback(now, each))
            .collect()
    }

    #[test]
    fn a_path_that_loses_most_gets_a_trickle_until_it_is_well() {
        let mut watch = PathWatch::new(PACKET, TIMEOUT);
        assert!(faults(&mut watch, 0, 10, &news(6, 4, 9_000)).is_empty());
        let told = faults(&mut watch, 10_000, 10, &news(4, 6, 6_000));
        assert_eq!(told, [PathFault::LosesMost { lost: 60, of: 100 }]);
        assert_eq!(watch.limit(ByteCount::mib(1)), PACKET);
        watch.on_sent(Instant::START + Span::from_millis(20_000));
        assert_eq!(watch.limit(ByteCount::mib(1)), ByteCount::new(0));
        assert!(faults(&mut watch, 20_000, 3, &news(1, 0, 1_500)).is_empty());
        assert_eq!(watch.limit(ByteCount::mib(1)), ByteCount::mib(1));
    }

    #[test]
    fn full_packets_that_never_arrive_are_named_with_their_size() {
        let mut watch = PathWatch::new(PACKET, TIMEOUT);
        assert!(faults(&mut watch, 0, 2, &news(8, 0, 12_000)).is_empty());
        let told = faults(&mut watch, 2_000, 6, &news(1, 3, 200));
        assert_eq!(told, [PathFault::FullPacketsVanish { bytes: 1500 }]);
    }

    #[test]
    fn losses_that_only_bitmaps_show_make_a_trickle() {
        let mut watch = PathWatch::new(PACKET, TIMEOUT);
        for millis in 0..5_000 {
            let now = Instant::START + Span::from_millis(millis);
            watch.on_missing(now, PACKET.get());
            let fault = watch.on_feedback(now, &news(0, 0, 0));
            if let Some(PathFault::FullPacketsVanish { .. }) = fault {
                return assert!(watch.limit(ByteCount::mib(1)) < PACKET);
            }
        }
        panic!("the sender repairs a packet a millisecond for five seconds");
    }

    #[test]
    fn long_packets_that_vanish_for_long_end_the_job() {
        let at = |seconds| Instant::START + Span::from_millis(seconds * 1_000);
        let lose = |watch: &mut PathWatch, from: u64, to: u64, news: &Feedback| {
            let mut told = Vec::new();
            for second in from..to {
                watch.on_lost(at(second), PACKET.get());
                told.extend(watch.on_feedback(at(second), news));
            }
            told
        };
        let mut watch = PathWatch::new(PACKET, TIMEOUT);
        assert!(lose(&mut watch, 0, 20, &news(1, 0, 200)).is_empty());
        assert!(
            lose(&mut watch, 20, 21, &news(1, 0, 1500)).is_empty(),
            "one arrives"
        );
        let told = lose(&mut watch, 21, 50, &news(1, 0, 200));
        let (bytes, lasting) = (1500, TIMEOUT);
        assert_eq!(told, [PathFault::LongPacketsLost { bytes, lasting }]);
    }

    #[test]
    fn an_idle_hour_after_losses_ends_no_job() {
        let at = |seconds: u64| Instant::START + Span::from_millis(seconds * 1_000);
        let mut watch = PathWatch::new(PACKET, TIMEOUT);
        for second in 0..10 {
            watch.on_lost(at(second), PACKET.get());
        }
        assert_eq!(watch.on_feedback(at(3_600), &news(1, 0, 200)), None);
        watch.on_lost(at(3_601), PACKET.get());
        assert_eq!(watch.on_feedback(at(3_602), &news(1, 0, 200)), None);
    }

    #[test]
    fn short_packets_that_get_lost_now_and_then_end_no_job() {
        let at = |millis| Instant::START + Span::from_millis(millis);
        let mut watch = PathWatch::new(PACKET, TIMEOUT);
        for millis in (0..50_000).step_by(100) {
            watch.on_lost(at(millis), 200);
            assert_eq!(watch.on_feedback(at(millis), &news(1, 0, 200)), None);
        }
        for millis in (50_000..75_000).step_by(100) {
            watch.on_lost(at(millis), 900);
            watch.on_lost(at(millis), 200);
            let told = watch.on_feedback(at(millis), &news(1, 0, 200));
            let is_told = millis - 50_000 >= 20_000;
            assert!(told.is_none() || is_told, "{millis} ms: {told:?}");
            if let Some(PathFault::LongPacketsLost { bytes, .. }) = told {
                return assert_eq!(bytes, 900);
            }
        }
        panic!("packets of 900 bytes vanish for 25 s");
    }

    #[test]
    fn cleared_ecn_is_told_once() {
        let mut watch = EcnWatch::default();
        let told = (0..1000).filter_map(|_| watch.on_control(Ecn::NotEct));
        assert_eq!(told.collect::<Vec<_>>(), [PathFault::ClearsEcn]);
        let mut watch = EcnWatch::default();
        assert_eq!(watch.on_control(Ecn::Ect), None);
        assert!((0..1000).all(|_| watch.on_control(Ecn::NotEct).is_none()));
    }
}
