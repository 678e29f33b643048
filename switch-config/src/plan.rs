//! A policy on the ports of one switch of one platform: what dialects write down.
//!
//! Everything is decided here, once for all platforms, by their [`Limits`]: which queue has which
//! number, how a threshold is rounded, whether droppable packets are told apart by ECN or by a DSCP
//! of their own, and what is refused. What was decided is told in [`Plan::notes`].

mod error;

use std::fmt;

use gradwire_protocol::units::{ByteCount, Class, Dscp, Rate, Share};

use crate::limits::{Limits, NotEct, Thresholds, Unit};
use crate::policy::{Balance, Buffer, QosPolicy};
use crate::target::Target;

pub use error::PlanError;

/// A port of the switch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Port {
    /// Its name, as the platform writes it.
    pub name: String,
    /// Its speed.
    pub rate: Rate,
}

/// Where a plan is for.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// Where plan and policy come from, for the comment at the top: job, fabric, switch.
    pub origin: String,
    /// Ports that get it, in order.
    pub ports: Vec<Port>,
    /// Packet memory of the switch.
    pub buffer: Buffer,
}

/// What a queue is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Purpose {
    /// Routing protocols and others that the policy reserves; gradwire sends nothing there.
    Reserved,
    /// Gradwire's control packets.
    Control,
    /// Packets of a class of gradients.
    Data(Class),
}

/// One strict-priority queue.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PlanQueue {
    /// What it is for.
    pub purpose: Purpose,
    /// Its number: 0 is the last to be served, and takes the packets of all other DSCPs.
    pub number: u8,
    /// DSCPs that lead to it and are kept, ascending.
    pub dscps: Vec<Dscp>,
    /// DSCP that leads to it and is dropped first, where the job has such.
    pub droppable: Option<Dscp>,
    /// Depth at which it marks and drops, as a share of rate x RTT; `None`: only when full.
    pub marks_above: Option<Share>,
}

impl PlanQueue {
    /// A name for it, of lower-case letters, digits and a dash: `reserved`, `control`, `class-3`.
    pub fn name(&self) -> String {
        match self.purpose {
            Purpose::Reserved => "reserved".to_owned(),
            Purpose::Control => "control".to_owned(),
            Purpose::Data(class) => format!("class-{class}"),
        }
    }
}

/// How droppable packets are told apart from protected ones in the same queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Selection {
    /// By ECN: not-ECT is dropped where ECT is marked.
    Ecn,
    /// By a second DSCP with a drop precedence that goes first; ECT of the first DSCP is marked.
    PrecedenceAndEcn,
    /// By a second DSCP with a drop precedence that goes first; nothing is marked.
    Precedence,
}

/// A threshold as the platform can write it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Threshold {
    /// Lower threshold, in units.
    pub low: u64,
    /// Upper threshold, in units: above it every packet is marked or dropped.
    pub high: u64,
    /// The unit.
    pub unit: Unit,
    /// Memory of a port that percents are of.
    pub port_bytes: ByteCount,
    /// The depth that was wanted: share x rate x RTT.
    pub exact: ByteCount,
}

impl Threshold {
    /// A number of units in bytes.
    fn bytes(&self, units: u64) -> u64 {
        match self.unit {
            Unit::Bytes(size) => units * size,
            Unit::PercentOfPort => self.port_bytes.get() * units / 100,
        }
    }

    /// The lower threshold in bytes.
    pub fn low_bytes(&self) -> u64 {
        self.bytes(self.low)
    }

    /// The upper threshold in bytes.
    pub fn high_bytes(&self) -> u64 {
        self.bytes(self.high)
    }
}

/// One set of thresholds: of all queues that mark at this share, on all ports of this rate.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Profile {
    /// Its name: `100G`, with `-50` behind it where the share is not all of rate x RTT.
    pub name: String,
    /// Speed of the ports.
    pub rate: Rate,
    /// Share of rate x RTT.
    pub share: Share,
    /// The thresholds.
    pub threshold: Threshold,
}

/// What a person is told about a plan.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Note {
    /// Of what kind.
    pub kind: NoteKind,
    /// One sentence.
    pub text: String,
}

/// Kinds of notes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NoteKind {
    /// How a number came about.
    Formula,
    /// A number that the platform cannot write as it is.
    Rounded,
    /// What the platform cannot do, done in another way.
    Realised,
    /// What may surprise.
    Warning,
}

impl fmt::Display for NoteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Formula => "formula",
            Self::Rounded => "rounded",
            Self::Realised => "realised",
            Self::Warning => "warning",
        })
    }
}

/// A policy on the ports of one switch.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The platform.
    pub target: Target,
    /// Where it is for, and where it comes from.
    pub site: Site,
    /// Queues, the first to be served first.
    pub queues: Vec<PlanQueue>,
    /// Thresholds, by rate and share, ascending.
    pub profiles: Vec<Profile>,
    /// How droppable packets are told apart.
    pub selection: Selection,
    /// How packets are spread over equal paths.
    pub balance: Balance,
    /// Dynamic threshold of data queues as an exponent of two, where memory is shared.
    pub alpha: Option<i8>,
    /// Bytes to which packets are trimmed that a full data queue would drop.
    pub trims_to: Option<ByteCount>,
    /// What people are told.
    pub notes: Vec<Note>,
}

impl Plan {
    /// The plan of a policy for a target.
    ///
    /// # Errors
    /// [`PlanError`] names what the target cannot do, or what contradicts itself, and what to do.
    pub fn new(
        target: Target,
        limits: &Limits,
        policy: &QosPolicy,
        site: Site,
    ) -> Result<Self, PlanError> {
        error::check(target, limits, policy, &site)?;
        let selection = selection(target, limits, policy)?;
        let mut plan = Self {
            target,
            queues: queues(limits, policy),
            profiles: Vec::new(),
            selection,
            balance: policy.balance,
            alpha: None,
            trims_to: policy.trims_to,
            notes: Vec::new(),
            site,
        };
        plan.note_selection(limits);
        plan.add_profiles(limits, policy)?;
        plan.add_alpha(limits)?;
        plan.warn(policy);
        Ok(plan)
    }

    /// The thresholds of a queue on a port; `None` where it only drops what it has no room for.
    pub fn profile(&self, queue: &PlanQueue, port: &Port) -> Option<&Profile> {
        let share = queue.marks_above?;
        let mut profiles = self.profiles.iter();
        profiles.find(|profile| profile.share == share && profile.rate == port.rate)
    }

    /// The queue of each DSCP, in order of DSCPs; those that the plan does not name go to the last.
    pub fn queue_of_dscp(&self, dscp: Dscp) -> &PlanQueue {
        let names =
            |queue: &&PlanQueue| queue.dscps.contains(&dscp) || queue.droppable == Some(dscp);
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

    fn note_selection(&mut self, limits: &Limits) {
        let text = match self.selection {
            Selection::Ecn => return,
            Selection::PrecedenceAndEcn => {
                "droppable packets are told by their DSCP (drop precedence), since not-ECT ones are \
                 not dropped early here; protected ones are marked by ECN"
            }
            Selection::Precedence => {
                "droppable packets are told by their DSCP (drop precedence), since not-ECT ones are \
                 not dropped early here; nothing is marked: senders slow down by delay and loss only"
            }
        };
        let text = format!("{text} ({})", limits.not_ect.source);
        self.note(NoteKind::Realised, text);
    }

    fn add_profiles(&mut self, limits: &Limits, policy: &QosPolicy) -> Result<(), PlanError> {
        let mut wanted: Vec<(Rate, Share)> = Vec::new();
        for port in &self.site.ports {
            let shares = self.queues.iter().filter_map(|queue| queue.marks_above);
            wanted.extend(shares.map(|share| (port.rate, share)));
        }
        wanted.sort_unstable();
        wanted.dedup();
        for (rate, share) in wanted {
            let exact = ByteCount::new(share.of(policy.bytes_per_rtt(rate)));
            let port_bytes = self.site.buffer.port_bytes();
            let rounding = Rounding {
                exact,
                port_bytes,
                thresholds: limits.thresholds.value,
            };
            let threshold = rounding.threshold(self.target)?;
            let name = match share {
                Share::ALL => rate.to_string(),
                _ => format!("{rate}-{}", (share.get() * 100.0).round()),
            };
            self.note(
                NoteKind::Formula,
                format!(
                    "{name}: K = share x rate x RTT = {share} x {rate} x {} us = {exact} (DCTCP, \
                     SIGCOMM 2010, 3.3 needs 1/7 of it)",
                    policy.rtt.as_nanos() as f64 / 1e3
                ),
            );
            if threshold.low_bytes() != exact.get() || threshold.high_bytes() != exact.get() {
                self.note(
                    NoteKind::Rounded,
                    format!(
                        "{name}: marks and drops from {} to {} bytes instead of at {}",
                        threshold.low_bytes(),
                        threshold.high_bytes(),
                        exact.get()
                    ),
                );
            }
            self.profiles.push(Profile {
                name,
                rate,
                share,
                threshold,
            });
        }
        Ok(())
    }

    fn add_alpha(&mut self, limits: &Limits) -> Result<(), PlanError> {
        let Buffer::Shared { alpha, .. } = self.site.buffer else {
            return Ok(());
        };
        let Some(range) = limits.alphas.value else {
            self.note(
                NoteKind::Warning,
                format!(
                    "the dynamic threshold {alpha} of shared memory is not written: {}",
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

    fn warn(&mut self, policy: &QosPolicy) {
        self.note(
            NoteKind::Warning,
            "strict priority: while higher queues have packets, lower ones wait, and the last may \
             starve; it also carries every DSCP that is not named"
                .to_owned(),
        );
        let last = policy.queues.last();
        if last.is_some_and(|queue| queue.marks_above.is_some()) {
            self.note(
                NoteKind::Warning,
                "the last queue marks and drops early, so it does to not-ECT packets of others \
                 that share it; keep such traffic on a DSCP and queue of its own"
                    .to_owned(),
            );
        }
    }
}

/// How a platform tells droppable packets apart.
fn selection(target: Target, limits: &Limits, policy: &QosPolicy) -> Result<Selection, PlanError> {
    if limits.not_ect.value == NotEct::DropsEarly {
        return Ok(Selection::Ecn);
    }
    let second = policy.queues.iter().any(|queue| queue.droppable.is_some());
    match (second, limits.drop_precedence.value) {
        (true, true) if limits.marks_beside_precedence.value => Ok(Selection::PrecedenceAndEcn),
        (true, true) => Ok(Selection::Precedence),
        (false, true) => Err(PlanError::NeedsSecondDscps {
            target,
            basis: limits.not_ect.source,
            line: error::droppable_line(policy),
        }),
        (_, false) => Err(PlanError::NoSelection {
            target,
            basis: limits.not_ect.source,
        }),
    }
}

/// Queues from the first to be served, numbered so that the last is 0. Reserved DSCPs have a queue
/// of their own where there is one to spare, the highest of the platform, else the control queue.
fn queues(limits: &Limits, policy: &QosPolicy) -> Vec<PlanQueue> {
    let count = policy.queues.len() as u8;
    let spare = limits.queues.value > count && !policy.reserved.is_empty();
    let mut queues = Vec::new();
    let mut reserved = policy.reserved.clone();
    reserved.sort_unstable();
    if spare {
        queues.push(PlanQueue {
            purpose: Purpose::Reserved,
            number: limits.queues.value - 1,
            dscps: std::mem::take(&mut reserved),
            droppable: None,
            marks_above: None,
        });
    }
    for (number, queue) in (0..count).rev().zip(&policy.queues) {
        let is_control = queue.class.0 == 0;
        let mut dscps = vec![queue.dscp];
        if is_control {
            dscps.append(&mut reserved);
            dscps.sort_unstable();
        }
        queues.push(PlanQueue {
            purpose: if is_control {
                Purpose::Control
            } else {
                Purpose::Data(queue.class)
            },
            number,
            dscps,
            droppable: queue.droppable,
            marks_above: queue.marks_above,
        });
    }
    queues
}

/// A depth that is to be written in a platform's units.
struct Rounding {
    exact: ByteCount,
    port_bytes: ByteCount,
    thresholds: Thresholds,
}

impl Rounding {
    /// The lower threshold is the depth rounded down, the upper one as little above it as can be:
    /// a step, as nearly as the platform has it.
    fn threshold(&self, target: Target) -> Result<Threshold, PlanError> {
        let Thresholds {
            unit,
            least,
            most,
            apart,
        } = self.thresholds;
        let exact = self.exact.get();
        if exact > self.port_bytes.get() {
            return Err(PlanError::AboveBuffer {
                exact: self.exact,
                port_bytes: self.port_bytes,
            });
        }
        let units = match unit {
            Unit::Bytes(size) => exact / size,
            Unit::PercentOfPort => exact * 100 / self.port_bytes.get().max(1),
        };
        let low = units.max(least);
        let high = low + apart;
        if high > most {
            return Err(PlanError::Threshold {
                target,
                exact: self.exact,
                most,
            });
        }
        Ok(Threshold {
            low,
            high,
            unit,
            port_bytes: self.port_bytes,
            exact: self.exact,
        })
    }
}
