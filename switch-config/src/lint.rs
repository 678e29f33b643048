//! Mistakes in a configuration that schemas let through and a plan does not.
//!
//! Dialects find the mistakes of their own tables while they read. Everything that platforms have
//! in common is compared with the plan here, once.

use std::fmt;

use gradwire_protocol::units::Dscp;
use strum::{IntoStaticStr, VariantNames};

use crate::plan::{Plan, PlanQueue, Purpose, Selection, SwitchPort};
use crate::reading::{Landing, Marking, PortReading, QueueReading, Reading, Service};

/// Kinds of mistakes. Each has a name by which documents and programs speak of it.
#[derive(Clone, Copy, Debug, Eq, IntoStaticStr, Ord, PartialEq, PartialOrd, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Rule {
    /// A value that the platform's schema forbids.
    Schema,
    /// A name that is defined nowhere.
    #[strum(serialize = "dangling-name")]
    Dangling,
    /// A port of the plan that the switch does not have.
    PortAbsent,
    /// A port that runs at another speed than the plan has thresholds for.
    PortSpeed,
    /// A port of the plan that the configuration does not have.
    PortUnsaid,
    /// A DSCP map that is empty, or has an empty key.
    DscpMapEmpty,
    /// A DSCP of the plan that leads to another queue, or nowhere.
    DscpQueue,
    /// A droppable DSCP without the drop precedence that goes first, or a kept one with it.
    DropPrecedence,
    /// A class of the switch that no queue takes.
    NoQueue,
    /// A queue that the platform does not have.
    QueueRange,
    /// A range of queues or priority groups that is empty, or overlaps another.
    BufferRange,
    /// A queue that is not served before those below it.
    ServiceOrder,
    /// A strict queue with a weight.
    StrictWeight,
    /// A data queue that does not mark ECT packets.
    EcnOff,
    /// A data queue that does not drop droppable packets early.
    EarlyDropOff,
    /// Marking or dropping of a share of packets instead of all.
    Probability,
    /// A lower threshold above the upper one.
    ThresholdOrder,
    /// A threshold that is not the plan's.
    Threshold,
    /// A control queue that marks or drops early.
    ControlMarked,
    /// A queue of others that drops early.
    OthersDropped,
    /// A class that is paused instead of dropped (PFC).
    PauseOn,
    /// More memory than the switch has.
    PoolSize,
    /// A static and a dynamic threshold at once.
    TwoThresholds,
    /// An egress queue with memory of an ingress pool.
    PoolDirection,
    /// The switch trims to a class or queue that the configuration does not name or does not have.
    TrimTarget,
    /// Paths that are not chosen by the UDP source port.
    HashFields,
}

impl Rule {
    /// Names of all rules.
    pub const NAMES: &'static [&'static str] = Self::VARIANTS;

    /// Its name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// One mistake.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// Of which kind.
    pub rule: Rule,
    /// Where: `QUEUE|Ethernet0|42`, or `Ethernet0, queue 3`.
    pub place: String,
    /// The value that is there, and the right one.
    pub text: String,
}

impl Finding {
    /// A mistake at a place.
    pub fn new(rule: Rule, place: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            rule,
            place: place.into(),
            text: text.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.rule.name(), self.place, self.text)
    }
}

/// All mistakes of a configuration that should realise the plan, in order of ports.
pub fn findings(plan: &Plan, reading: &Reading) -> Vec<Finding> {
    let mut findings = reading.findings.clone();
    for port in &plan.site.ports {
        match reading.ports.get(&port.name) {
            Some(said) => Comparison { plan, port, said }.add_to(&mut findings),
            None => findings.push(Finding::new(
                Rule::PortUnsaid,
                &port.name,
                "nothing is said of this port; the plan has it",
            )),
        }
    }
    findings
}

/// A port as planned and as read.
struct Comparison<'a> {
    plan: &'a Plan,
    port: &'a SwitchPort,
    said: &'a PortReading,
}

impl Comparison<'_> {
    fn add_to(&self, findings: &mut Vec<Finding>) {
        if !self.said.pauses.is_empty() {
            let classes: Vec<String> = self.said.pauses.iter().map(u8::to_string).collect();
            let text = format!("PFC is on for {}; it must be off", classes.join(", "));
            findings.push(Finding::new(Rule::PauseOn, &self.port.name, text));
        }
        for queue in &self.plan.queues {
            findings.extend(self.landings(queue));
            findings.extend(self.service(queue));
            findings.extend(self.marking(queue));
            findings.extend(self.memory(queue));
        }
    }

    fn place(&self, queue: &PlanQueue) -> String {
        format!(
            "{}, queue {} ({})",
            self.port.name,
            queue.number,
            queue.name()
        )
    }

    fn queue(&self, queue: &PlanQueue) -> QueueReading {
        let said = self.said.queues.get(&queue.number).copied();
        said.unwrap_or_default()
    }

    fn landings(&self, queue: &PlanQueue) -> Vec<Finding> {
        let kept = queue.dscps.iter().map(|dscp| (*dscp, false));
        let by_precedence = self.plan.selection != Selection::Ecn;
        let dropped = queue.droppable.iter().map(|dscp| (*dscp, by_precedence));
        let wanted = kept.chain(dropped);
        wanted
            .filter_map(|(dscp, drops_first)| {
                let wanted = Landing {
                    queue: queue.number,
                    drops_first,
                };
                self.landing(dscp, wanted)
            })
            .collect()
    }

    fn landing(&self, dscp: Dscp, wanted: Landing) -> Option<Finding> {
        let place = format!("{}, DSCP {dscp}", self.port.name);
        let queue = wanted.queue;
        match self.said.landings[usize::from(dscp.0)] {
            None => Some(Finding::new(
                Rule::DscpQueue,
                place,
                format!("leads nowhere; it must lead to queue {queue}"),
            )),
            Some(said) if said.queue != queue => Some(Finding::new(
                Rule::DscpQueue,
                place,
                format!(
                    "leads to queue {}; it must lead to queue {queue}",
                    said.queue
                ),
            )),
            Some(said) if said.drops_first != wanted.drops_first => Some(Finding::new(
                Rule::DropPrecedence,
                place,
                match wanted.drops_first {
                    true => "has no drop precedence that goes first; droppable packets need it",
                    false => "has the drop precedence that goes first; its packets are to be kept",
                },
            )),
            Some(_) => None,
        }
    }

    /// Every queue must have the plan's turn, and be served before the ones of the same turn that
    /// come later in the plan.
    fn service(&self, queue: &PlanQueue) -> Option<Finding> {
        let said = self.queue(queue).service;
        let wanted = match queue.percent() {
            None => "it must be strict".to_owned(),
            Some(percent) => format!("it must have the weight {percent}"),
        };
        let text = match (said, queue.percent()) {
            (Service::Unsaid, _) => format!("its service is not said; {wanted}"),
            (Service::Strict { rank }, None) => self.later(queue, rank)?,
            (Service::Strict { .. }, Some(_)) => format!("is strict; {wanted}"),
            (Service::Weighted { .. }, None) => format!("is served in turn with others; {wanted}"),
            (Service::Weighted { weight, rank }, Some(percent)) => match weight {
                None => format!("has no weight; {wanted}"),
                Some(weight) if weight != u32::from(percent) => {
                    format!("has the weight {weight}; {wanted}")
                }
                Some(_) => self.later(queue, rank)?,
            },
        };
        Some(Finding::new(Rule::ServiceOrder, self.place(queue), text))
    }

    /// The mistake that a queue of the same turn, later in the plan, is not served after this rank.
    fn later(&self, queue: &PlanQueue, rank: u16) -> Option<String> {
        let at = self.plan.queues.iter().position(|one| one == queue)?;
        let later = self.plan.queues[at + 1..].iter();
        let later = later.filter(|other| other.turn == queue.turn);
        let mut ranks = later.filter_map(|other| match self.queue(other).service {
            Service::Strict { rank } | Service::Weighted { rank, .. } => Some((other, rank)),
            Service::Unsaid => None,
        });
        let (first, _) = ranks.find(|(_, other)| *other >= rank)?;
        Some(format!(
            "is not served before queue {}; it must be",
            first.number
        ))
    }

    /// Where memory is shared, a data queue must have the plan's dynamic threshold.
    fn memory(&self, queue: &PlanQueue) -> Option<Finding> {
        let wanted = self.plan.alpha.filter(|_| queue.has_gradients())?;
        let text = match self.queue(queue).alpha {
            Some(found) if found == wanted => return None,
            Some(found) => {
                format!("may take 2^{found} of the free memory; the plan has 2^{wanted}")
            }
            None => format!("has no dynamic threshold; the plan has 2^{wanted}"),
        };
        Some(Finding::new(Rule::Threshold, self.place(queue), text))
    }

    fn marking(&self, queue: &PlanQueue) -> Vec<Finding> {
        let found = self.queue(queue).marking;
        let place = self.place(queue);
        match (self.plan.profile(queue, self.port), found) {
            (None, None) => Vec::new(),
            (None, Some(_)) => vec![Finding::new(
                match queue.purpose {
                    Purpose::Others => Rule::OthersDropped,
                    _ => Rule::ControlMarked,
                },
                place,
                "marks or drops early; its packets must only be dropped when it is full",
            )],
            (Some(_), None) => vec![Finding::new(
                Rule::EarlyDropOff,
                place,
                "has no thresholds: it neither marks nor drops early",
            )],
            (Some(profile), Some(found)) => {
                let threshold = profile.threshold;
                let wanted = (threshold.low_bytes(), threshold.high_bytes());
                let mistakes = self.mistakes(queue, found, wanted).into_iter();
                let found = mistakes.map(|(rule, text)| Finding::new(rule, &place, text));
                found.collect()
            }
        }
    }

    fn mistakes(
        &self,
        queue: &PlanQueue,
        found: Marking,
        wanted: (u64, u64),
    ) -> Vec<(Rule, String)> {
        let Marking {
            low, high, percent, ..
        } = found;
        let mut mistakes = Vec::new();
        if low > high {
            let text = format!("begins at {low} bytes and is full at {high}: swap them");
            mistakes.push((Rule::ThresholdOrder, text));
        } else if (low, high) != wanted {
            let (least, most) = wanted;
            let text = format!("from {low} to {high} bytes; the plan has {least} to {most}");
            mistakes.push((Rule::Threshold, text));
        }
        if percent < 100 {
            let text = format!("acts on {percent} % of packets; it must on 100 %");
            mistakes.push((Rule::Probability, text));
        }
        if self.plan.selection != Selection::Precedence && !found.marks_ect {
            let text = "does not mark ECT packets; ECN must be on".to_owned();
            mistakes.push((Rule::EcnOff, text));
        }
        if found.drops_droppable && !queue.has_gradients() {
            let text = "drops early; packets of others must only be dropped when it is full";
            mistakes.push((Rule::OthersDropped, text.to_owned()));
        }
        if !found.drops_droppable && queue.has_gradients() {
            let text = "does not drop droppable packets early; that must be on".to_owned();
            mistakes.push((Rule::EarlyDropOff, text));
        }
        mistakes
    }
}
