//! A policy on the ports of one switch of one platform, ready for a dialect to write.
//!
//! Everything is decided here, once for all platforms, by their [`PlatformLimits`]: which queue has
//! which number, how a threshold is rounded, whether droppable packets are told apart by ECN or by
//! a DSCP of their own, and which policies are refused. The notes say what was decided: see
//! [`Plan::notes`].

mod error;
mod queues;
mod site;
mod threshold;

use gradwire_protocol::units::{ByteCount, Dscp, Rate, Share};
use strum::Display;

use crate::limits::{NotEct, PlatformLimits};
use crate::target::SwitchTarget;
use gradwire_fabric::policy::{Balance, QosPolicy};

pub use error::PlanError;
pub use queues::{PlanQueue, Purpose, Selection};
pub use site::{Site, SwitchPort};
pub use threshold::Threshold;

use threshold::Rounding;

/// One set of thresholds: of all queues that mark at this share, on all ports of this rate.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ThresholdProfile {
    /// Its name: `100G`, with `-50` or `-12_5` behind it where the share is not all of rate x RTT.
    pub name: String,
    /// Speed of the ports.
    pub rate: Rate,
    /// Share of rate x RTT.
    pub share: Share,
    /// The thresholds.
    pub threshold: Threshold,
}

/// A note to people about a plan.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Note {
    /// Its kind.
    pub kind: NoteKind,
    /// One sentence.
    pub text: String,
}

/// Kinds of notes.
#[derive(Clone, Copy, Debug, Display, Eq, PartialEq)]
#[strum(serialize_all = "lowercase")]
pub enum NoteKind {
    /// How a number came about.
    Formula,
    /// A number that the platform cannot write as it is.
    Rounded,
    /// The platform cannot do it, so the plan does it in another way.
    Realised,
    /// A warning.
    Warning,
}

/// How much of a switch a plan sets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PlanScope {
    /// Its ports, and how the switch chooses paths.
    Switch,
    /// Some of its ports only.
    Ports,
}

/// A policy on the ports of one switch.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The platform.
    pub target: SwitchTarget,
    /// Where it is for, and where it comes from.
    pub site: Site,
    /// Queues, the first to be served first.
    pub queues: Vec<PlanQueue>,
    /// Thresholds, by rate and share, ascending.
    pub profiles: Vec<ThresholdProfile>,
    /// How droppable packets are told apart.
    pub selection: Selection,
    /// How packets are spread over equal paths.
    pub balance: Balance,
    /// Dynamic threshold of data queues as an exponent of two, where memory is shared. Platforms
    /// may write it for the other queues, too.
    pub alpha: Option<i8>,
    /// Bytes to which packets are trimmed that a full data queue would drop.
    pub trims_to: Option<ByteCount>,
    /// How much of the switch it sets.
    pub scope: PlanScope,
    /// Notes to people.
    pub notes: Vec<Note>,
}

impl Plan {
    /// The plan of a policy for a target.
    ///
    /// # Errors
    /// [`PlanError`] names the contradiction or the missing ability, and how to mend it.
    pub fn new(
        target: SwitchTarget,
        limits: &PlatformLimits,
        policy: &QosPolicy,
        site: Site,
    ) -> Result<Self, PlanError> {
        error::check(target, limits, policy, &site)?;
        let selection = queues::selection(target, limits, policy)?;
        let mut plan = Self {
            target,
            queues: queues::queues(limits, policy),
            profiles: Vec::new(),
            selection,
            balance: policy.balance,
            alpha: None,
            trims_to: policy.trims_to,
            scope: PlanScope::Switch,
            notes: Vec::new(),
            site,
        };
        plan.note_selection(limits);
        plan.add_profiles(limits, policy)?;
        plan.add_alpha(limits)?;
        plan.warn(limits, policy);
        Ok(plan)
    }

    /// The same plan for some ports of a switch: settings by which the whole switch chooses paths
    /// stay as they are.
    #[must_use]
    pub fn for_these_ports_only(mut self) -> Self {
        self.scope = PlanScope::Ports;
        let text = "settings by which the whole switch chooses paths are left out, since only \
                    some of its ports are asked for";
        self.note(NoteKind::Warning, text.to_owned());
        self
    }

    /// How paths are chosen, where the plan says so for the whole switch.
    pub fn balance_to_set(&self) -> Option<Balance> {
        (self.scope == PlanScope::Switch).then_some(self.balance)
    }

    /// The thresholds of a queue on a port; `None` where it drops only when it is full.
    pub fn profile(&self, queue: &PlanQueue, port: &SwitchPort) -> Option<&ThresholdProfile> {
        let share = queue.marks_above?;
        let mut profiles = self.profiles.iter();
        profiles.find(|profile| profile.share == share && profile.rate == port.rate)
    }

    /// One port of each speed, the slowest first.
    pub fn port_of_each_rate(&self) -> Vec<&SwitchPort> {
        let mut ports: Vec<&SwitchPort> = self.site.ports.iter().collect();
        ports.sort_by_key(|port| port.rate);
        ports.dedup_by_key(|port| port.rate);
        ports
    }

    /// The queue of gradwire's control packets.
    pub fn control(&self) -> &PlanQueue {
        let is_control = |queue: &&PlanQueue| queue.purpose == Purpose::Control;
        let control = self.queues.iter().find(is_control);
        control.expect("class 0 of every policy is for control packets")
    }

    /// The queue of each DSCP, in order of DSCPs; those that the plan does not name go to the last.
    pub fn queue_of_dscp(&self, dscp: Dscp) -> &PlanQueue {
        let names =
            |queue: &&PlanQueue| queue.dscps.contains(&dscp) || queue.droppable.contains(&dscp);
        let named = self.queues.iter().find(names);
        let last = self
            .queues
            .last()
            .expect("a policy has at least two queues");
        named.unwrap_or(last)
    }

    fn note(&mut self, kind: NoteKind, text: String) {
        self.notes.push(Note { kind, text });
    }

    fn note_selection(&mut self, limits: &PlatformLimits) {
        if limits.not_ect.value == NotEct::ProbablyDropsEarly {
            let text =
                "that not-ECT packets are dropped early is inferred; see it on one port first";
            self.note(
                NoteKind::Warning,
                format!("{text} ({})", limits.not_ect.source),
            );
        }
        if self.selection == Selection::Precedence {
            let text = "droppable packets are told by their DSCP (drop precedence), since not-ECT \
                        ones are not dropped early here; nothing is marked: senders slow down by \
                        delay and loss only";
            self.note(
                NoteKind::Realised,
                format!("{text} ({})", limits.not_ect.source),
            );
        }
    }

    fn add_profiles(
        &mut self,
        limits: &PlatformLimits,
        policy: &QosPolicy,
    ) -> Result<(), PlanError> {
        let mut wanted: Vec<(Rate, Share)> = Vec::new();
        for port in &self.site.ports {
            let shares = self.queues.iter().filter_map(|queue| queue.marks_above);
            wanted.extend(shares.map(|share| (port.rate, share)));
        }
        wanted.sort_unstable();
        wanted.dedup();
        for (rate, share) in wanted {
            let rounding = Rounding {
                exact: ByteCount::new(share.of(policy.bytes_per_rtt(rate))),
                port_bytes: self.site.buffer.port_bytes(),
                thresholds: limits.thresholds.value,
            };
            let profile = ThresholdProfile {
                name: profile_name(rate, share),
                rate,
                share,
                threshold: rounding.threshold(self.target)?,
            };
            self.note_profile(&profile, policy);
            self.profiles.push(profile);
        }
        Ok(())
    }

    fn note_profile(&mut self, profile: &ThresholdProfile, policy: &QosPolicy) {
        let ThresholdProfile {
            name,
            rate,
            share,
            threshold,
        } = profile;
        let exact = threshold.exact.get();
        let rtt_us = policy.rtt.as_nanos() as f64 / 1e3;
        self.note(
            NoteKind::Formula,
            format!(
                "{name}: K = share x rate x RTT = {share} x {rate} x {rtt_us} us = {exact} bytes \
                 (DCTCP needs 1/7 of rate x RTT: SIGCOMM 2010, 3.3)"
            ),
        );
        let (low, high) = (threshold.low_bytes(), threshold.high_bytes());
        if low != exact || high > exact + 1 {
            let text = format!("{name}: from {low} to {high} bytes instead of at {exact}");
            self.note(NoteKind::Rounded, text);
        }
    }

    fn add_alpha(&mut self, limits: &PlatformLimits) -> Result<(), PlanError> {
        let Some(alpha) = self.site.buffer.alpha() else {
            return Ok(());
        };
        let Some(range) = limits.alphas.value else {
            self.note(
                NoteKind::Warning,
                format!(
                    "the dynamic threshold {alpha} of memory is not written: {}",
                    limits.alphas.source
                ),
            );
            return Ok(());
        };
        let exponent = alpha.log2().round() as i8;
        if !(range.least..=range.most).contains(&exponent) {
            return Err(PlanError::Alpha {
                target: self.target,
                given: alpha.to_string(),
                least: range.least,
                most: range.most,
            });
        }
        if 2_f64.powi(i32::from(exponent)) != alpha {
            self.note(
                NoteKind::Rounded,
                format!("alpha {alpha} is written as 2^{exponent}"),
            );
        }
        self.alpha = Some(exponent);
        Ok(())
    }

    /// Says how queues of others and of gradients share the link.
    fn note_turns(&mut self, limits: &PlatformLimits, policy: &QosPolicy) {
        let Some(percent) = policy.others else {
            let text = "strict priority: while higher queues have packets, lower ones wait, and \
                        the last may starve; it also carries every DSCP that is not named";
            return self.note(NoteKind::Warning, text.to_owned());
        };
        let last = self.queues.last().map_or(0, |queue| queue.number);
        let share = format!(
            "queue {last} has every DSCP that is not named, and {percent} % of the link while it \
             has packets"
        );
        if !queues::merges(limits, policy) {
            let text = format!("{share}; the queues of gradients keep their order in the rest");
            return self.note(NoteKind::Formula, text);
        }
        let text = format!(
            "{share}; all classes of gradients share queue {}, since no order can be kept beside \
             a share",
            last + 1
        );
        let source = &limits.order_beside_share.source;
        self.note(NoteKind::Realised, format!("{text} ({source})"));
    }

    fn warn(&mut self, limits: &PlatformLimits, policy: &QosPolicy) {
        self.note_turns(limits, policy);
        let marks = policy
            .queues
            .iter()
            .any(|queue| queue.marks_above.is_some());
        if self.profiles.is_empty() {
            let reason = match marks {
                true => "a sending host keeps its own packets",
                false => "the fabric says mark = off",
            };
            let text = format!("nothing is marked or dropped early: {reason}");
            self.note(NoteKind::Warning, text);
        }
        self.warn_of_shared_dscps();
        self.warn_of_the_last_queue();
    }

    /// Names the DSCPs of the job that common traffic of others has, too.
    fn warn_of_shared_dscps(&mut self) {
        let used = |dscp: u8| {
            let named = |queue: &PlanQueue| {
                let mut own = queue.dscps.iter().chain(&queue.droppable);
                own.any(|one| *one == Dscp(dscp)) && queue.has_gradients()
            };
            self.queues.iter().any(named)
        };
        let shared = SHARED_DSCPS.iter().filter(|(dscp, _)| used(*dscp));
        let shared: Vec<String> = shared
            .map(|(dscp, whose)| format!("{dscp} is {whose}"))
            .collect();
        if !shared.is_empty() {
            let text = format!(
                "DSCP {}: where such packets of others pass, they share gradwire's queues and \
                 are marked and dropped early in them; write other numbers into priority.dscps of \
                 the job, or mark those packets anew at the edge",
                shared.join(", ")
            );
            self.note(NoteKind::Warning, text);
        }
    }

    /// The fate of packets of others in the last queue, with its threshold.
    fn warn_of_the_last_queue(&mut self) {
        let last = self.queues.last();
        let Some(last) = last.filter(|last| last.marks_above.is_some() && last.has_gradients())
        else {
            return;
        };
        let ports = self.port_of_each_rate().into_iter();
        let depths = ports.filter_map(|port| {
            let low = self.profile(last, port)?.threshold.low_bytes();
            Some(format!("{low} bytes at {}", port.rate))
        });
        let depths: Vec<String> = depths.collect();
        if depths.is_empty() {
            return;
        }
        let act = match self.selection {
            Selection::Ecn => "without ECN are dropped",
            Selection::Precedence => "of its droppable DSCP are dropped",
        };
        let text = format!(
            "packets of others with DSCP 0, or any that is not named, share queue {} with \
             gradients: they wait behind {} strict queues, and those {act} above {}; ECN at their \
             senders (tcp_ecn = 1) makes drops marks, and priority.untagged = \"30%\" in the job \
             gives them a queue of their own with that share of the link",
            last.number,
            self.queues.len() - 1,
            depths.join(", ")
        );
        self.note(NoteKind::Warning, text);
    }
}

/// DSCPs of a default job that common traffic of others has by its own defaults (`IPQoS` of
/// ssh_config(5) before OpenSSH 10.1; NVIDIA's and Microsoft's guides to RoCE).
const SHARED_DSCPS: [(u8, &str); 4] = [
    (8, "SSH's for copies"),
    (18, "SSH's for terminals"),
    (24, "RoCE's on many fabrics"),
    (26, "RoCE's on many fabrics"),
];

/// The beginning of all names of ours on a switch.
pub(crate) const OURS: &str = "gradwire";

/// Whether a name on a switch is one of ours: `gradwire`, or `gradwire-` and more.
pub(crate) fn is_our_name(name: &str) -> bool {
    let rest = name.strip_prefix(OURS);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// `100G`, or `100G-12_5` for an eighth of rate x RTT: of letters that every platform takes.
fn profile_name(rate: Rate, share: Share) -> String {
    match share {
        Share::ALL => rate.to_string(),
        _ => {
            let percent = share.to_string().replace('.', "_");
            format!("{rate}-{}", percent.trim_end_matches('%'))
        }
    }
}
