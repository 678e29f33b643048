//! The fate of a packet between two hosts.
//!
//! A link is a port with a queue and a wire after it. The queue serves at a rate, marks ECT and
//! drops not-ECT packets above a threshold and drops everything above its limit, as a RED/ECN port
//! does. The wire adds latency and jitter, loses single packets or bursts, and duplicates.

use rand::{Rng, RngExt};

use gradwire_protocol::loss::LossProcess;
use gradwire_protocol::machine::Ecn;
use gradwire_protocol::units::{ByteCount, Instant, Rate, Share, Span};

/// A queue in front of a wire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Queue {
    /// Its service rate.
    pub rate: Rate,
    /// Above this many bytes ECT packets are marked and not-ECT packets dropped.
    pub threshold: ByteCount,
    /// Above this many bytes every packet is dropped.
    pub limit: ByteCount,
}

/// The nature of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// The queue; without it packets leave at once.
    pub queue: Option<Queue>,
    /// Time on the wire.
    pub latency: Span,
    /// Extra delay of each packet, uniform up to this: packets overtake each other.
    pub jitter: Span,
    /// Share of packets that the wire loses.
    pub drop: Share,
    /// Mean length of a loss burst in packets, at least 1.
    pub burst: f64,
    /// Share of packets that arrive twice.
    pub duplicate: Share,
}

impl Profile {
    /// Makes a wire that only takes time.
    pub fn perfect(latency: Span) -> Self {
        Self {
            queue: None,
            latency,
            jitter: Span::ZERO,
            drop: Share::NONE,
            burst: 1.0,
            duplicate: Share::NONE,
        }
    }

    /// Makes a wire that loses this share of its packets, and reorders and duplicates others.
    pub fn rough(drop: Share) -> Self {
        Self {
            jitter: Span::from_micros(60),
            drop,
            duplicate: Share::new(0.02).expect("a share"),
            ..Self::perfect(Span::from_micros(10))
        }
    }
}

/// The fate of one packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// The wire loses it.
    Lost,
    /// The queue drops it.
    Dropped,
    /// It arrives then, with these ECN bits, and once more at the second time if there is one.
    Arrives(Instant, Ecn, Option<Instant>),
}

/// A link in use.
#[derive(Clone, Debug)]
pub struct LossyLink {
    profile: Profile,
    free_at: Instant,
    loss: LossProcess,
}

impl LossyLink {
    /// Makes an idle link.
    pub fn new(profile: Profile) -> Self {
        Self {
            profile,
            free_at: Instant::START,
            loss: LossProcess::new(profile.drop, profile.burst),
        }
    }

    /// Decides the fate of a packet of `bytes` that enters the link now.
    pub fn carry(&mut self, now: Instant, bytes: ByteCount, ecn: Ecn, rng: &mut impl Rng) -> Fate {
        let Some((leaves, ecn)) = self.enqueue(now, bytes, ecn) else {
            return Fate::Dropped;
        };
        if self.loss.loses(rng) {
            return Fate::Lost;
        }
        let arrives = leaves + self.wire_time(rng);
        let twice = rng.random_bool(self.profile.duplicate.get());
        let again = twice.then(|| leaves + self.wire_time(rng));
        Fate::Arrives(arrives, ecn, again)
    }

    fn enqueue(&mut self, now: Instant, bytes: ByteCount, ecn: Ecn) -> Option<(Instant, Ecn)> {
        let Some(queue) = self.profile.queue else {
            return Some((now, ecn));
        };
        let waiting = self.free_at - now;
        let above = |depth: ByteCount| waiting > queue.rate.transmit_time(depth);
        if above(queue.limit) || (above(queue.threshold) && ecn == Ecn::NotEct) {
            return None;
        }
        let ecn = if above(queue.threshold) { Ecn::Ce } else { ecn };
        self.free_at = self.free_at.max(now) + queue.rate.transmit_time(bytes);
        Some((self.free_at, ecn))
    }

    fn wire_time(&self, rng: &mut impl Rng) -> Span {
        let jitter = self.profile.jitter.as_picos();
        self.profile.latency + Span::from_picos(rng.random_range(0..=jitter))
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn a_full_queue_marks_the_protected_and_drops_the_droppable() {
        let queue = Queue {
            rate: Rate::from_gbps(1),
            threshold: ByteCount::new(3000),
            limit: ByteCount::new(6000),
        };
        let profile = Profile {
            queue: Some(queue),
            ..Profile::perfect(Span::ZERO)
        };
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let mut link = LossyLink::new(profile);
        let mut fates = Vec::new();
        for ecn in [
            Ecn::Ect,
            Ecn::Ect,
            Ecn::Ect,
            Ecn::NotEct,
            Ecn::Ect,
            Ecn::Ect,
            Ecn::Ect,
        ] {
            fates.push(
                match link.carry(Instant::START, ByteCount::new(1500), ecn, &mut rng) {
                    Fate::Arrives(_, Ecn::Ce, _) => "marked",
                    Fate::Arrives(..) => "passed",
                    Fate::Dropped => "dropped",
                    Fate::Lost => "lost",
                },
            );
        }
        let expected = [
            "passed", "passed", "passed", "dropped", "marked", "marked", "dropped",
        ];
        assert_eq!(fates, expected);
    }
}
