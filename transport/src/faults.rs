//! Injected faults, for tests and demonstrations: they treat single packets as a bad network would.
//!
//! - Faults act on received packets, after super-packets are split. On loopback a whole GSO send
//!   would otherwise be lost as one.
//! - The same seed, rank and sequence of arrivals give the same faults. Bursts of drops also depend
//!   on the times of arrival.
//! - A job without faults skips this layer.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use gradwire_protocol::job::{self, DropFrom};
use gradwire_protocol::loss::LossProcess;
use gradwire_protocol::machine::Ecn;
use gradwire_protocol::units::{Instant, Rank, Share, Span};
use gradwire_protocol::wire::{Flags, PacketKind};

/// How much later a reordered packet is handed over.
const REORDER_BY: Span = Span::from_micros(300);
/// A burst of drops ends after this long without a packet. A full queue, which causes bursts in
/// networks, lasts for a time and not for a number of packets. A burst counted in packets alone
/// would outlast the silence that it causes, and drop probe after probe.
const BURST_ENDS_AFTER: Span = Span::from_millis(1);

/// The header fields on which the fate of a packet may depend.
#[derive(Clone, Copy, Debug)]
pub struct FaultSubject {
    /// Its source.
    pub source: Rank,
    /// Its kind.
    pub kind: PacketKind,
    /// Its flags.
    pub flags: Flags,
}

impl FaultSubject {
    /// Whether its segment may be missing, and is sent for the first time. Such packets leave as
    /// droppable until half of the loss that their message tolerates has happened.
    fn may_be_missing(self) -> bool {
        let must_arrive = self.flags.has(Flags::PROTECTED) || self.flags.has(Flags::REPAIR);
        self.kind == PacketKind::Data && !must_arrive
    }
}

/// The fate of a packet, apart from the delay of all packets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FaultVerdict {
    /// It arrives unchanged.
    Pass,
    /// It never arrives.
    Drop,
    /// It arrives this much later, after others that were sent later.
    Hold(Span),
    /// It arrives twice.
    Duplicate,
    /// It arrives with one bit flipped, counted from its first.
    Corrupt(usize),
}

/// A source of faults for the packets that one rank receives.
#[derive(Debug)]
pub struct FaultInjector {
    wanted: job::FaultKeys,
    rank: Rank,
    /// Whether packets are dropped alike, and nothing else happens to them.
    only_drops: bool,
    rng: ChaCha8Rng,
    loss: LossProcess,
    last_arrival: Instant,
    held: BinaryHeap<Reverse<HeldPacket>>,
    sequence: u64,
    dropped: u64,
}

/// A packet that is held back.
#[derive(Debug)]
pub(crate) struct HeldPacket {
    at: Instant,
    sequence: u64,
    pub(crate) packet: Vec<u8>,
    pub(crate) ecn: Ecn,
}

impl FaultInjector {
    /// The faults that a job asks for in the packets that `rank` receives; `None` if it asks for
    /// none.
    pub fn new(wanted: &job::FaultKeys, rank: Rank) -> Option<Self> {
        wanted.any().then(|| Self {
            wanted: wanted.clone(),
            rank,
            only_drops: only_drops(wanted),
            rng: ChaCha8Rng::seed_from_u64(wanted.seed ^ (u64::from(rank.0) << 32)),
            loss: LossProcess::new(wanted.drop, wanted.burst),
            last_arrival: Instant::START,
            held: BinaryHeap::new(),
            sequence: 0,
            dropped: 0,
        })
    }

    /// Notes the time of the packets that are judged next.
    pub fn arrive(&mut self, now: Instant) {
        if self.wanted.burst > 1.0 && now > self.last_arrival + BURST_ENDS_AFTER {
            self.loss.forget(&mut self.rng);
        }
        self.last_arrival = now;
    }

    /// How many of the next `most` packets pass before one is dropped; if they are fewer, that one
    /// has been judged, too. `None` if packets have to be judged one by one.
    pub fn passing(&mut self, most: usize) -> Option<usize> {
        if !self.only_drops {
            return None;
        }
        let passing = self.loss.passes(most as u64, &mut self.rng) as usize;
        self.dropped += u64::from(passing < most);
        Some(passing)
    }

    /// Decides the fate of a packet of `bytes` bytes. `look` reads its header, or returns `None` if
    /// it cannot; it is called only when the decision depends on the header.
    pub fn judge(
        &mut self,
        look: impl FnOnce() -> Option<FaultSubject>,
        bytes: usize,
    ) -> FaultVerdict {
        let verdict = self.verdict(look, bytes);
        self.dropped += u64::from(verdict == FaultVerdict::Drop);
        verdict
    }

    fn verdict(
        &mut self,
        look: impl FnOnce() -> Option<FaultSubject>,
        bytes: usize,
    ) -> FaultVerdict {
        let all = self.wanted.drop_from == DropFrom::All;
        let looks = !all || !self.wanted.one_way.is_empty();
        let seen = looks.then(look).flatten();
        let is_cut =
            |packet: FaultSubject| self.wanted.one_way.contains(&(packet.source, self.rank));
        if seen.is_some_and(is_cut) {
            return FaultVerdict::Drop;
        }
        let may_go = all || seen.is_some_and(FaultSubject::may_be_missing);
        if may_go && self.loss.loses(&mut self.rng) {
            return FaultVerdict::Drop;
        }
        if self.hits(self.wanted.corrupt) {
            return FaultVerdict::Corrupt(self.rng.random_range(0..bytes.max(1) * 8));
        }
        if self.hits(self.wanted.duplicate) {
            return FaultVerdict::Duplicate;
        }
        if self.hits(self.wanted.reorder) {
            return FaultVerdict::Hold(self.wanted.delay + REORDER_BY);
        }
        FaultVerdict::Pass
    }

    /// Draws whether a packet is hit. A share of zero costs no draw.
    fn hits(&mut self, share: Share) -> bool {
        !share.is_none() && self.rng.random_bool(share.get())
    }

    /// The delay of every packet that is not held longer.
    pub fn delay(&self) -> Span {
        self.wanted.delay
    }

    /// Packets dropped so far.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(crate) fn hold(&mut self, until: Instant, packet: &[u8], ecn: Ecn) {
        self.sequence += 1;
        let (sequence, packet) = (self.sequence, packet.to_vec());
        self.held.push(Reverse(HeldPacket {
            at: until,
            sequence,
            packet,
            ecn,
        }));
    }

    /// The next held packet whose time has come.
    pub(crate) fn release(&mut self, now: Instant) -> Option<HeldPacket> {
        if self.next_release().is_none_or(|at| at > now) {
            return None;
        }
        self.held.pop().map(|Reverse(held)| held)
    }

    pub(crate) fn next_release(&self) -> Option<Instant> {
        self.held.peek().map(|Reverse(held)| held.at)
    }
}

fn only_drops(wanted: &job::FaultKeys) -> bool {
    let shares = [wanted.corrupt, wanted.duplicate, wanted.reorder];
    wanted.drop_from == DropFrom::All
        && wanted.one_way.is_empty()
        && wanted.delay == Span::ZERO
        && shares.iter().all(|share| share.is_none())
}

impl HeldPacket {
    fn key(&self) -> (Instant, u64) {
        (self.at, self.sequence)
    }
}

impl PartialEq for HeldPacket {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for HeldPacket {}

impl PartialOrd for HeldPacket {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for HeldPacket {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::job::Job;
    use gradwire_protocol::units::Share;

    use super::*;

    fn share(value: f64) -> Share {
        Share::new(value).expect("a share")
    }

    /// A segment that may be missing.
    fn data(source: Rank) -> FaultSubject {
        FaultSubject {
            source,
            kind: PacketKind::Data,
            flags: Flags::NONE,
        }
    }

    fn verdicts(wanted: &job::FaultKeys, packets: usize) -> Vec<FaultVerdict> {
        let mut faults = FaultInjector::new(wanted, Rank(1)).expect("faults are wanted");
        (0..packets)
            .map(|_| faults.judge(|| Some(data(Rank(0))), 1500))
            .collect()
    }

    #[test]
    fn a_job_without_faults_has_no_fault_layer() {
        assert!(FaultInjector::new(&Job::default().faults, Rank(0)).is_none());
    }

    #[test]
    fn each_fault_happens_as_often_as_wanted() {
        let mut wanted = Job::default().faults;
        wanted.drop = share(0.1);
        wanted.corrupt = share(0.1);
        wanted.duplicate = share(0.1);
        wanted.reorder = share(0.1);
        let verdicts = verdicts(&wanted, 100_000);
        let count = |of: fn(&FaultVerdict) -> bool| verdicts.iter().filter(|&v| of(v)).count();
        assert!((9_600..10_400).contains(&count(|v| *v == FaultVerdict::Drop)));
        assert!((8_600..9_400).contains(&count(|v| matches!(v, FaultVerdict::Corrupt(_)))));
        assert!((7_700..8_500).contains(&count(|v| *v == FaultVerdict::Duplicate)));
        assert!((6_900..7_700).contains(&count(|v| matches!(v, FaultVerdict::Hold(_)))));
    }

    #[test]
    fn the_same_seed_gives_the_same_verdicts() {
        let mut wanted = Job::default().faults;
        wanted.drop = share(0.3);
        assert_eq!(verdicts(&wanted, 1000), verdicts(&wanted, 1000));
        let other = job::FaultKeys {
            seed: 2,
            ..wanted.clone()
        };
        assert_ne!(verdicts(&wanted, 1000), verdicts(&other, 1000));
    }

    #[test]
    fn drops_alone_are_judged_in_runs() {
        let mut wanted = Job::default().faults;
        wanted.drop = share(0.3);
        let expected = verdicts(&wanted, 1000);
        let mut faults = FaultInjector::new(&wanted, Rank(1)).expect("faults are wanted");
        let mut judged = Vec::new();
        while judged.len() < expected.len() {
            let passing = faults.passing(7).expect("nothing but drops");
            judged.extend((0..passing).map(|_| FaultVerdict::Pass));
            judged.extend((passing < 7).then_some(FaultVerdict::Drop));
        }
        judged.truncate(expected.len());
        assert_eq!(judged, expected);
        wanted.reorder = share(0.1);
        let mut faults = FaultInjector::new(&wanted, Rank(1)).expect("faults are wanted");
        assert_eq!(faults.passing(7), None);
    }

    #[test]
    fn one_way_loss_takes_everything_of_one_direction() {
        let mut wanted = Job::default().faults;
        wanted.one_way = vec![(Rank(0), Rank(1))];
        assert!(
            verdicts(&wanted, 100)
                .iter()
                .all(|v| *v == FaultVerdict::Drop)
        );
        let mut faults = FaultInjector::new(&wanted, Rank(0)).expect("faults are wanted");
        let verdict = faults.judge(|| Some(data(Rank(1))), 1500);
        assert_eq!(verdict, FaultVerdict::Pass);
    }

    #[test]
    fn drops_can_be_limited_to_segments_that_may_be_missing() {
        let mut wanted = Job::default().faults;
        (wanted.drop, wanted.drop_from) = (share(0.25), DropFrom::Droppable);
        let mut faults = FaultInjector::new(&wanted, Rank(1)).expect("faults are wanted");
        let mut drops = |seen: Option<FaultSubject>| {
            let verdicts = (0..10_000).map(|_| faults.judge(|| seen, 1500));
            verdicts.filter(|one| *one == FaultVerdict::Drop).count()
        };
        let with = |flags| FaultSubject {
            flags,
            ..data(Rank(0))
        };
        assert_eq!(drops(Some(with(Flags::PROTECTED))), 0);
        assert_eq!(drops(Some(with(Flags::REPAIR))), 0);
        let control = FaultSubject {
            kind: PacketKind::Ack,
            ..data(Rank(0))
        };
        assert_eq!(drops(Some(control)), 0);
        assert_eq!(drops(None), 0);
        let of_droppable = drops(Some(data(Rank(0))));
        assert!((2_300..2_700).contains(&of_droppable), "{of_droppable}");
    }

    #[test]
    fn bursts_end_with_silence_and_keep_their_share() {
        let mut wanted = Job::default().faults;
        (wanted.drop, wanted.burst) = (share(0.3), 16.0);
        for (apart, runs) in [(10, 1_500..2_300), (2_000, 20_000..22_000)] {
            let mut faults = FaultInjector::new(&wanted, Rank(1)).expect("faults are wanted");
            let (mut drops, mut begun, mut before) = (0, 0, false);
            for number in 0..100_000 {
                faults.arrive(Instant::START + Span::from_micros(number * apart));
                let now = faults.judge(|| Some(data(Rank(0))), 1500) == FaultVerdict::Drop;
                drops += u32::from(now);
                begun += u32::from(now && !before);
                before = now;
            }
            assert!((28_000..32_000).contains(&drops), "{drops}");
            assert!(runs.contains(&begun), "{begun} runs, {apart} us apart");
        }
    }

    #[test]
    fn held_packets_are_released_in_time_order() {
        let mut wanted = Job::default().faults;
        wanted.delay = Span::from_micros(5);
        let mut faults = FaultInjector::new(&wanted, Rank(1)).expect("faults are wanted");
        let at = |micros| Instant::START + Span::from_micros(micros);
        faults.hold(at(20), b"later", Ecn::Ect);
        faults.hold(at(10), b"sooner", Ecn::Ect);
        assert!(faults.release(at(9)).is_none());
        assert_eq!(
            faults.release(at(30)).map(|held| held.packet),
            Some(b"sooner".to_vec())
        );
        assert_eq!(faults.next_release(), Some(at(20)));
    }
}
