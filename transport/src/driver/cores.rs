//! Moves a thread off the core of the peer that it waits for.
//!
//! Where all cores of a host are busy, the kernel may put two ranks that wait for each other on one
//! core: a packet wakes its receiver on the core of its sender. Then each spins while the other
//! could answer, and an operation takes two spins. The kernel moves neither, for all cores look
//! equally busy. The ranks find it out: a thread that has spun in vain falls asleep, the answer
//! comes at once, and the thread still waits for its core, as long as a peer works and spins.

use std::fs;

use gradwire_protocol::units::{Instant, Span};
use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

use super::setup::DrivePace;

/// An answer within this time after falling asleep came because this thread had left the core.
const AT_ONCE: Span = Span::from_micros(150);
/// A peer keeps the core for its spin and for work that takes at most as long. Other programs keep
/// it for a time slice, which is milliseconds.
const SPINS_KEPT: u64 = 2;
/// The minimum time between two moves.
const REST: Span = Span::from_millis(10);

/// A sleep after a spin in vain.
#[derive(Clone, Copy, Debug)]
struct VainSleep {
    began: Instant,
    /// The nanoseconds for which the thread had waited for cores until then.
    waited: u64,
}

/// Decides when the thread that drives leaves its core.
#[derive(Debug)]
pub(super) struct CoreWatch {
    /// How long callers of this rank and of its peers spin; `None` if no other rank is here.
    spin: Option<Span>,
    sleep: Option<VainSleep>,
    rests_until: Instant,
    cores_left: u64,
}

impl CoreWatch {
    /// Watches a rank of this pace.
    pub(super) fn of(pace: DrivePace) -> Self {
        let watches = pace.ranks_here > 1 && pace.caller_spin > Span::ZERO;
        Self {
            spin: watches.then_some(pace.caller_spin),
            sleep: None,
            rests_until: Instant::START,
            cores_left: 0,
        }
    }

    /// How often the thread has left the core of a peer.
    pub(super) fn cores_left(&self) -> u64 {
        self.cores_left
    }

    /// The thread falls asleep after it has spun for `spun`.
    pub(super) fn sleeps(&mut self, now: Instant, spun: Span) {
        let is_vain = self.spin.is_some_and(|spin| spun >= spin) && now >= self.rests_until;
        let waited = is_vain.then(waited_for_cores).flatten();
        self.sleep = waited.map(|waited| VainSleep { began: now, waited });
    }

    /// The thread runs again. Leaves its core if a peer has used it meanwhile.
    pub(super) fn wakes(&mut self, now: Instant) {
        let Some(sleep) = self.sleep.take() else {
            return;
        };
        let Some(waited) = waited_for_cores() else {
            return;
        };
        if self.is_peers(sleep, now, waited) && leave_core().is_some() {
            self.cores_left += 1;
            self.rests_until = now + REST;
        }
    }

    /// Whether a peer has used this core during a sleep that ended at `now`, if the thread had
    /// waited for cores for `waited` nanoseconds by then.
    fn is_peers(&self, sleep: VainSleep, now: Instant, waited: u64) -> bool {
        let Some(spin) = self.spin else {
            return false;
        };
        let kept = Span::from_nanos(waited.saturating_sub(sleep.waited));
        let came = now - (sleep.began + kept);
        came <= AT_ONCE && kept >= spin && kept <= spin * SPINS_KEPT
    }
}

/// The nanoseconds for which this thread has waited for cores so far although it could run. `None`
/// if the kernel does not count them (`CONFIG_SCHED_INFO`).
fn waited_for_cores() -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

/// Moves this thread to any other core that it may use, and then lets it use all of them again.
/// `None` if there is no other.
fn leave_core() -> Option<()> {
    let this = Pid::from_raw(0);
    let allowed = sched_getaffinity(this).ok()?;
    let mut others = allowed;
    others.unset(sched_getcpu().ok()?).ok()?;
    let is_allowed = |core| others.is_set(core).unwrap_or(false);
    (0..CpuSet::count()).any(is_allowed).then_some(())?;
    sched_setaffinity(this, &others).ok()?;
    sched_setaffinity(this, &allowed).ok()
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::job::IdleMode;

    use super::*;

    const SPIN: Span = Span::from_micros(200);

    fn watch(caller_spin: Span, ranks_here: usize) -> CoreWatch {
        CoreWatch::of(DrivePace {
            idle: IdleMode::Adaptive,
            caller_spin,
            ranks_here,
        })
    }

    /// Whether a thread leaves its core after a sleep of `slept` microseconds, of which it waited
    /// for the core in the last `kept`.
    fn leaves(slept: u64, kept: u64) -> bool {
        let sleep = VainSleep {
            began: Instant::START + Span::from_millis(5),
            waited: 1_000_000,
        };
        let now = sleep.began + Span::from_micros(slept);
        let waited = sleep.waited + kept * 1_000;
        watch(SPIN, 2).is_peers(sleep, now, waited)
    }

    #[test]
    fn a_peer_answers_at_once_and_keeps_the_core_for_its_spin() {
        assert!(leaves(270, 250));
        assert!(leaves(200, 200) && leaves(550, 400));
        assert!(!leaves(270, 0), "the core was free");
        assert!(!leaves(270, 150), "a short interruption");
        assert!(!leaves(3_050, 3_000), "a time slice of another program");
        assert!(!leaves(1_250, 250), "the answer came late");
    }

    #[test]
    fn only_spins_in_vain_among_ranks_of_a_host_are_watched() {
        let watched = |mut watch: CoreWatch, spun| {
            watch.sleeps(Instant::START, spun);
            watch.sleep.is_some()
        };
        assert_eq!(watched(watch(SPIN, 2), SPIN), waited_for_cores().is_some());
        assert!(!watched(watch(SPIN, 2), Span::from_micros(199)));
        assert!(!watched(watch(SPIN, 1), SPIN), "no other rank");
        assert!(!watched(watch(Span::ZERO, 4), SPIN), "ranks share cores");
    }

    #[test]
    fn a_thread_that_leaves_its_core_may_use_the_same_cores_as_before() {
        let this = Pid::from_raw(0);
        let allowed = sched_getaffinity(this).expect("Linux has it");
        let core = sched_getcpu().expect("Linux has it");
        let moved = std::thread::spawn(move || {
            let mut only = CpuSet::new();
            only.set(core).expect("a core of this host");
            sched_setaffinity(this, &only).expect("an allowed core");
            let from_the_only_one = leave_core();
            sched_setaffinity(this, &allowed).expect("allowed before");
            (from_the_only_one, leave_core(), sched_getaffinity(this))
        });
        let (from_the_only_one, from_many, after) = moved.join().expect("no panic");
        assert_eq!(from_the_only_one, None);
        let cores = (0..CpuSet::count()).filter(|core| allowed.is_set(*core) == Ok(true));
        assert_eq!(from_many.is_some(), cores.count() > 1);
        assert_eq!(after, Ok(allowed));
    }
}
