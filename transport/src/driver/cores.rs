//! Moves a thread off the core of the peer that it waits for.
//!
//! Where all cores of a host are busy, the kernel may put two ranks that wait for each other on one
//! core: a packet wakes its receiver on the core of its sender. Then each spins while the other
//! could answer, and an operation takes two spins. All cores look equally busy, so the kernel may
//! leave it so. A rank detects it: it has spun in vain and falls asleep, the answer comes at once,
//! but then it waits for its core until the peer has worked and spun.

use std::fs;

use gradwire_protocol::units::{Instant, Span};
use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

use super::setup::DrivePace;

/// What wakes a thread within this time after it fell asleep is probably an answer that needed its
/// core.
const AT_ONCE: Span = Span::from_micros(150);
/// A peer keeps the core for its spin and for work that takes at most as long. Other programs
/// mostly keep it for a time slice, which is milliseconds.
const SPINS_KEPT_MAX: u64 = 2;
/// The minimum time between two moves.
const REST: Span = Span::from_millis(10);

/// Where a thread runs, and how long it has waited for cores so far although it could run.
#[derive(Clone, Copy, Debug)]
pub(super) struct CoreUse {
    core: usize,
    waited_ns: u64,
}

impl CoreUse {
    /// That of this thread. `None` if the kernel does not count it (`CONFIG_SCHED_INFO`).
    pub(super) fn now() -> Option<Self> {
        let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        Some(Self {
            core: sched_getcpu().ok()?,
            waited_ns: text.split_whitespace().nth(1)?.parse().ok()?,
        })
    }
}

/// A sleep after a spin in vain.
#[derive(Clone, Copy, Debug)]
struct VainSleep {
    began: Instant,
    before: CoreUse,
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
    /// Watches a rank of this pace. A rank that never spins is not watched.
    pub(super) fn of(pace: DrivePace) -> Self {
        let watches = pace.ranks_here > 1 && pace.caller_spin > Span::ZERO;
        Self {
            spin: watches.then_some(pace.caller_spin),
            sleep: None,
            rests_until: Instant::START,
            cores_left: 0,
        }
    }

    /// How often the thread has left its core.
    pub(super) fn cores_left(&self) -> u64 {
        self.cores_left
    }

    /// The thread falls asleep after it has spun for `spun`.
    pub(super) fn sleeps(
        &mut self,
        now: Instant,
        spun: Span,
        core_use: impl FnOnce() -> Option<CoreUse>,
    ) {
        let is_vain = self.spin.is_some_and(|spin| spun >= spin) && now >= self.rests_until;
        let before = is_vain.then(core_use).flatten();
        self.sleep = before.map(|before| VainSleep { began: now, before });
    }

    /// The thread runs again; returns whether it should leave its core, because a peer has probably
    /// used it meanwhile.
    pub(super) fn wakes(
        &mut self,
        now: Instant,
        core_use: impl FnOnce() -> Option<CoreUse>,
    ) -> bool {
        let (Some(spin), Some(VainSleep { began, before })) = (self.spin, self.sleep.take()) else {
            return false;
        };
        let kept_max = spin * SPINS_KEPT_MAX;
        // Most sleeps are too short or too long for that, and need no look.
        if now - began < spin || now - began > kept_max + AT_ONCE {
            return false;
        }
        let Some(after) = core_use() else {
            return false;
        };
        let kept = Span::from_nanos(after.waited_ns.saturating_sub(before.waited_ns));
        let came = now - (began + kept);
        // On another core the thread may have been moved already.
        let leaves =
            after.core == before.core && came <= AT_ONCE && kept >= spin && kept <= kept_max;
        if leaves {
            self.cores_left += 1;
            self.rests_until = now + REST;
        }
        leaves
    }
}

/// Moves this thread to any other core that it may use, and then lets it use all of them again.
/// Where it may not, it stays.
pub(super) fn leave_core() {
    let this = Pid::from_raw(0);
    let (Ok(core), Ok(allowed)) = (sched_getcpu(), sched_getaffinity(this)) else {
        return;
    };
    if let Some(others) = others(allowed, core) {
        let _ = sched_setaffinity(this, &others);
        let _ = sched_setaffinity(this, &allowed);
    }
}

/// The allowed cores but for this one, if there are any.
fn others(allowed: CpuSet, core: usize) -> Option<CpuSet> {
    let mut others = allowed;
    others.unset(core).ok()?;
    let is_allowed = |core| others.is_set(core).unwrap_or(false);
    (0..CpuSet::count()).any(is_allowed).then_some(others)
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

    fn at(micros: u64) -> Instant {
        Instant::START + Span::from_micros(micros)
    }

    /// Sleeps at `began` for `slept` microseconds after a spin of `spun`, and waits for the core in
    /// the last `kept`; returns whether the thread should leave core 0, having woken on `core`.
    fn leaves(
        watch: &mut CoreWatch,
        began: u64,
        (spun, slept, kept): (u64, u64, u64),
        core: usize,
    ) -> bool {
        let core_use = |core, waited: u64| {
            let waited_ns = 1_000_000 + waited * 1_000;
            move || Some(CoreUse { core, waited_ns })
        };
        watch.sleeps(at(began), Span::from_micros(spun), core_use(0, 0));
        watch.wakes(at(began + slept), core_use(core, kept))
    }

    #[test]
    fn a_peer_answers_at_once_and_keeps_the_core_for_its_spin() {
        let after = |slept, kept| leaves(&mut watch(SPIN, 2), 5_000, (200, slept, kept), 0);
        assert!(after(270, 250) && after(200, 200) && after(550, 400));
        assert!(!after(270, 0), "the core was free");
        assert!(!after(270, 150), "a short interruption");
        assert!(!after(3_050, 3_000), "a time slice of another program");
        assert!(!after(500, 250), "the answer came late");
    }

    #[test]
    fn only_spins_in_vain_among_ranks_of_a_host_are_watched() {
        let stacked = |mut watch: CoreWatch, spun| leaves(&mut watch, 0, (spun, 270, 250), 0);
        assert!(stacked(watch(SPIN, 2), 200));
        assert!(!stacked(watch(SPIN, 2), 199), "a short spin");
        assert!(!stacked(watch(SPIN, 1), 200), "no other rank");
        assert!(!stacked(watch(Span::ZERO, 4), 200), "ranks share cores");
        let elsewhere = leaves(&mut watch(SPIN, 2), 0, (200, 270, 250), 1);
        assert!(!elsewhere, "the kernel has moved the thread");
    }

    #[test]
    fn a_thread_that_has_left_its_core_stays_for_ten_milliseconds() {
        let mut watch = watch(SPIN, 2);
        let told = [0, 1_000, 10_200, 10_300, 20_600]
            .map(|began| leaves(&mut watch, began, (200, 270, 250), 0));
        assert_eq!(told, [true, false, false, true, true]);
        assert_eq!(watch.cores_left(), 3);
    }

    #[test]
    fn a_thread_leaves_to_another_allowed_core() {
        let set = |cores: &[usize]| {
            let mut set = CpuSet::new();
            cores
                .iter()
                .for_each(|&core| set.set(core).expect("a core"));
            set
        };
        assert_eq!(others(set(&[0, 1, 5]), 1), Some(set(&[0, 5])));
        assert_eq!(others(set(&[3]), 3), None);
        let this = Pid::from_raw(0);
        let allowed = sched_getaffinity(this);
        leave_core();
        assert_eq!(sched_getaffinity(this), allowed, "it may go back");
    }
}
