//! The faults that a seed can enable. Each seed enables a random subset of them: runs with all
//! faults at once get nowhere, and hide what a few faults together do.

use std::fmt;
use std::str::FromStr;

use rand::RngExt;

use super::draw;

macro_rules! faults {
    ($($(#[doc = $doc:literal])* $name:ident = $word:literal,)*) => {
        /// One kind of fault.
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
        pub enum ClusterFault { $($(#[doc = $doc])* $name,)* }

        impl ClusterFault {
            /// All kinds, in the order of declaration.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its name on the command line.
            pub fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }
        }
    };
}

faults! {
    /// Links lose single packets.
    Loss = "loss",
    /// Links lose packets in bursts.
    Burst = "burst",
    /// Links deliver packets twice.
    Duplicate = "duplicate",
    /// Packets of a path overtake each other by less than the gap.
    Jitter = "jitter",
    /// Packets of a path overtake each other by more than the gap.
    Straggle = "straggle",
    /// Ports have short queues that mark and drop.
    Queue = "queue",
    /// A TCP-like rival fills the queues.
    Rival = "rival",
    /// Paths of a few milliseconds up to 50.
    Far = "far",
    /// A path loses every packet in one direction for a while.
    Cut = "cut",
    /// Both directions fail when a sender has just sent the end of a message.
    EndOutage = "end-outage",
    /// Paths get longer or shorter.
    Reroute = "reroute",
    /// Full packets get lost for a while, short ones pass.
    Mtu = "mtu",
    /// The path clears the ECN bits.
    Bleach = "bleach",
    /// Clocks start anywhere in 2^32 microseconds.
    ClockStart = "clock-start",
    /// Clocks start shortly before 2^31 or 2^32 microseconds.
    ClockEdge = "clock-edge",
    /// Ids of messages and numbers of operations start shortly before 2^32.
    IdEdge = "id-edge",
    /// Clocks run at different speeds.
    Drift = "drift",
    /// Clocks jump forward.
    Jump = "jump",
    /// Hosts stop between any two steps of their driver.
    Freeze = "freeze",
    /// Packets that arrive while a host stops for long come up a little after its driver goes on.
    StallBelow = "stall-below",
    /// Hosts do not take a part of a run, because their own queue is full.
    Unsent = "unsent",
    /// One receive queue of a host hands its packets over late.
    LateQueue = "late-queue",
    /// Hosts drop arrived packets, and tell their driver.
    HostDrop = "host-drop",
    /// Each step of a slow host takes time.
    Slow = "slow",
    /// A rank ends without a word; the others are told at different times.
    Crash = "crash",
    /// Ranks submit operations seconds to hours after the others.
    LatePosting = "late-posting",
    /// All ranks pause for seconds to days.
    Idle = "idle",
    /// Ranks tolerate different losses in the same operation.
    Unequal = "unequal",
    /// A rank sends messages that no rank receives.
    Unmatched = "unmatched",
    /// A rank aborts; the others are told at different times.
    Abort = "abort",
    /// Ranks change their credit.
    Credit = "credit",
    /// The job changes its chunk.
    Chunk = "chunk",
    /// Clocks start two and a half days before the end of what they can hold.
    ClockEnd = "clock-end",
    /// Numbers of steps start shortly before 2^32.
    StepEdge = "step-edge",
    /// Numbers of packets on their paths start shortly before 2^32.
    NumberEdge = "number-edge",
    /// A host's network card starts anew: packets that its driver has not read are gone, and for a
    /// while it neither sends nor receives.
    NicReset = "nic-reset",
    /// Hosts drop arrived packets, and never tell their driver.
    SilentDrop = "silent-drop",
    /// The job says that its paths keep order, and they do, however late their packets are.
    KeptOrder = "kept-order",
    /// The blocks of an all-to-all have different lengths, some of them none.
    Uneven = "uneven",
    /// From some packet on, a path loses all full packets for ever.
    MtuShrink = "mtu-shrink",
    /// Ranks remember so little that a short job reaches every limit.
    SmallLimits = "small-limits",
    /// Ranks wait for late contributions no longer than usual, and learn that from few steps.
    Impatience = "impatience",
    /// Sums that may lose contributions are encoded, too.
    Codec = "codec",
}

impl ClusterFault {
    /// Whether a network with this fault may lose, delay or reorder packets, so that repairs are
    /// no waste.
    pub fn disturbs_packets(self) -> bool {
        use ClusterFault::{
            Bleach, Burst, Crash, Cut, Duplicate, EndOutage, HostDrop, Jitter, LateQueue, Loss,
            Mtu, MtuShrink, NicReset, Queue, Reroute, Rival, SilentDrop, SmallLimits, StallBelow,
            Straggle, Unsent,
        };
        matches!(
            self,
            Loss | Burst
                | Duplicate
                | Jitter
                | Straggle
                | Queue
                | Rival
                | Cut
                | EndOutage
                | Reroute
                | Mtu
                | MtuShrink
                | SmallLimits
                | Bleach
                | LateQueue
                | StallBelow
                | Unsent
                | HostDrop
                | NicReset
                | SilentDrop
                | Crash
        )
    }
}

/// One seed in this many has clean paths, and each other fault with this probability.
const CLEAN_EVERY: u64 = 8;
const CLEAN_SHARE: f64 = 0.4;
/// A path may shrink in one seed of this many.
const SHRINKS_EVERY: u64 = 4;

/// A set of faults.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct FaultSet(u64);

impl FaultSet {
    /// No fault.
    pub const NONE: Self = Self(0);

    /// The faults of a seed: of a few seeds none, of most a few, of some many. One seed in this
    /// many has none that disturbs packets, so that every repair is a violation.
    pub fn of_seed(seed: u64) -> Self {
        let mut rng = draw::stream(seed, "faults", 0);
        let share = draw::pick(&mut rng, &[0.0, 0.08, 0.15, 0.15, 0.25, 0.4]);
        let is_clean = seed % CLEAN_EVERY == CLEAN_EVERY - 1;
        let all = ClusterFault::ALL.iter().copied();
        let may_be = |fault: &ClusterFault| !is_clean || !fault.disturbs_packets();
        let share = if is_clean { CLEAN_SHARE } else { share };
        let drawn = all.filter(|_| rng.random_bool(share));
        // A path that shrinks ends the job, which few other checks survive: in few seeds.
        let is_rare = |fault: &ClusterFault| *fault == ClusterFault::MtuShrink;
        let may_shrink = seed.is_multiple_of(SHRINKS_EVERY);
        drawn
            .filter(|fault| may_be(fault) && (may_shrink || !is_rare(fault)))
            .collect()
    }

    /// Whether a fault is in the set.
    pub fn has(self, fault: ClusterFault) -> bool {
        self.0 & (1 << fault as u64) != 0
    }

    /// The set without a fault.
    #[must_use]
    pub fn without(self, fault: ClusterFault) -> Self {
        Self(self.0 & !(1 << fault as u64))
    }

    /// Whether paths keep order, however late their packets are: because the job says so, or so
    /// that few packets prove it.
    pub(crate) fn keeps_order(self, seed: u64) -> bool {
        let may_prove = self.has(ClusterFault::SmallLimits) && seed.is_multiple_of(2);
        self.has(ClusterFault::KeptOrder) || may_prove
    }

    /// The faults in the set.
    pub fn iter(self) -> impl Iterator<Item = ClusterFault> {
        let all = ClusterFault::ALL.iter().copied();
        all.filter(move |&fault| self.has(fault))
    }
}

impl FromIterator<ClusterFault> for FaultSet {
    fn from_iter<I: IntoIterator<Item = ClusterFault>>(faults: I) -> Self {
        Self(
            faults
                .into_iter()
                .fold(0, |set, fault| set | 1 << fault as u64),
        )
    }
}

/// "loss+freeze", or "none".
impl fmt::Display for FaultSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE {
            return f.write_str("none");
        }
        for (at, fault) in self.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { "+" })?;
            f.write_str(fault.word())?;
        }
        Ok(())
    }
}

impl FromStr for FaultSet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::NONE);
        }
        let read = |word: &str| {
            let mut all = ClusterFault::ALL.iter().copied();
            all.find(|fault| fault.word() == word).ok_or_else(|| {
                let known: Vec<&str> = ClusterFault::ALL.iter().map(|fault| fault.word()).collect();
                format!(
                    "no fault is called {word:?}; write none, or some of {} with + between",
                    known.join(", ")
                )
            })
        };
        text.split('+').map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_faults_reads_back() {
        for seed in 0..100 {
            let faults = FaultSet::of_seed(seed);
            assert_eq!(faults.to_string().parse(), Ok(faults));
        }
        let refusal = "loss+fire".parse::<FaultSet>().expect_err("no such fault");
        assert!(
            refusal.starts_with("no fault is called \"fire\""),
            "{refusal}"
        );
    }
}
