//! Reads the disciplines of a port into terms that all platforms share.

use std::collections::BTreeMap;

use super::form::{BANDS, LinuxForm};
use super::object::ObjectFile;
use super::render::ASSURED_BPS;
use super::state::{FilterAct, HtbClass, Qdisc, TcFilter, TcPort, TcState, read_rate};
use crate::lint::{Finding, Rule};
use crate::plan::{Plan, PlanQueue, SwitchPort};
use crate::reading::{Landing, Marking, PortReading, QueueReading, Reading, Service};
use gradwire_fabric::policy::DSCPS;

/// The exponent of the fastest average that tc configures: W = 1/2.
const FASTEST: u64 = 1;

/// Reads the ports of a plan. `findings` are the mistakes found while reading the state.
pub(super) fn reading(plan: &Plan, switch: &TcState, mut findings: Vec<Finding>) -> Reading {
    let mut ports = BTreeMap::new();
    for port in &plan.site.ports {
        let Some(state) = switch.port(&port.name) else {
            continue;
        };
        let mut check = PortCheck {
            plan,
            port,
            state,
            switch,
            findings: Vec::new(),
        };
        ports.extend(check.read().map(|found| (port.name.clone(), found)));
        findings.append(&mut check.findings);
    }
    Reading::new(ports, findings)
}

/// A port of the plan, its state on the switch, and the mistakes in it.
struct PortCheck<'a> {
    plan: &'a Plan,
    port: &'a SwitchPort,
    state: &'a TcPort,
    switch: &'a TcState,
    findings: Vec<Finding>,
}

impl<'a> PortCheck<'a> {
    fn form(&self) -> LinuxForm {
        LinuxForm::of(self.plan)
    }

    fn add(&mut self, rule: Rule, text: impl Into<String>) {
        self.findings
            .push(Finding::new(rule, &self.port.name, text));
    }

    /// Reads the port. `None` if only the kernel's own discipline is there.
    fn read(&mut self) -> Option<PortReading> {
        let root = self.state.root()?;
        let at = self.form().queues_at();
        let wanted = match self.form().has_classes() {
            true => "htb",
            false => "prio",
        };
        let Some(queues) = self
            .state
            .qdiscs
            .get(at)
            .filter(|qdisc| qdisc.kind == wanted)
        else {
            let text = format!(
                "has {} {} at its root; the plan has {wanted} {at}",
                root.kind, root.handle
            );
            self.add(Rule::NoQueue, text);
            return Some(PortReading::default());
        };
        let mut found = PortReading::default();
        self.landings(queues, &mut found);
        for queue in &self.plan.queues {
            let said = self.queue(queue, queues);
            found.queues.insert(queue.number, said);
        }
        self.share(&mut found);
        if self.form() == LinuxForm::Bpf {
            self.program();
        }
        Some(found)
    }

    /// The queue of a class; `None` if the form has no such class.
    fn queue_of_class(&self, class: &str) -> Option<u8> {
        (0..BANDS).find(|queue| self.form().class(*queue) == class)
    }

    fn landings(&mut self, queues: &Qdisc, found: &mut PortReading) {
        let others = match queues.kind.as_str() {
            "htb" => queues
                .options
                .get("default")
                .map(|class| format!("1:{class}")),
            _ => queues.options.get("priomap").and_then(|map| {
                let band: u8 = map.split(' ').next()?.parse().ok()?;
                Some(format!("{}{:x}", queues.handle, band + 1))
            }),
        };
        for dscp in 0..DSCPS as u8 {
            let [ipv4, ipv6] = [("ip", 16), ("ipv6", 20)].map(|(protocol, shift)| {
                let class = self.class_of(protocol, u32::from(dscp) << 2 << shift);
                class.or(others.as_deref())
            });
            found.landings[usize::from(dscp)] = ipv4.and_then(|class| {
                let queue = self.queue_of_class(class)?;
                Some(Landing {
                    queue,
                    drops_first: false,
                })
            });
            if ipv4 != ipv6 {
                let [ipv4, ipv6] = [ipv4, ipv6].map(|class| class.unwrap_or("nowhere"));
                let text = format!("DSCP {dscp} leads to {ipv4} in IPv4 and to {ipv6} in IPv6");
                self.add(Rule::DscpQueue, text);
            }
        }
    }

    /// The class to which packets go, given the first four bytes of their network header: the first
    /// matching filter decides.
    fn class_of(&self, protocol: &str, word: u32) -> Option<&'a str> {
        let of_dscp = |filter: &&TcFilter| {
            filter.protocol == protocol && filter.parent == self.form().queues_at()
        };
        let mut filters = self.state.filters.iter().filter(of_dscp);
        filters.find_map(|filter| match &filter.act {
            FilterAct::Bits {
                at: 0,
                mask,
                value,
                class,
            } if word & mask == *value => Some(class.as_str()),
            _ => None,
        })
    }

    fn queue(&mut self, queue: &PlanQueue, queues: &Qdisc) -> QueueReading {
        let class = self.form().class(queue.number);
        let service = match queues.kind.as_str() {
            "htb" => self.turn(queue, &class),
            _ => match queues.number("bands") {
                Some(bands) if u64::from(BANDS - queue.number) <= bands => Service::Strict {
                    rank: queue.number.into(),
                },
                _ => Service::Unsaid,
            },
        };
        if service == Service::Unsaid {
            self.add(Rule::NoQueue, format!("there is no class {class}"));
        }
        QueueReading {
            service,
            marking: self.marking(queue, &class),
            alpha: None,
        }
    }

    /// Where a class of HTB has a share of the link, those that the plan has in order beside it
    /// share the rest.
    fn share(&self, found: &mut PortReading) {
        let shares = found
            .queues
            .values()
            .filter_map(|queue| match queue.service {
                Service::Weighted { weight, .. } => weight,
                _ => None,
            });
        let rest = 100_u32.checked_sub(shares.sum());
        let Some(rest) = rest.filter(|rest| *rest < 100) else {
            return;
        };
        for queue in self
            .plan
            .queues
            .iter()
            .filter(|queue| queue.percent().is_some())
        {
            let read = found.queues.entry(queue.number).or_default();
            if let Service::Strict { rank } = read.service {
                let weight = Some(rest);
                read.service = Service::Weighted { weight, rank };
            }
        }
    }

    /// When HTB serves a class, compared with the others.
    fn turn(&mut self, queue: &PlanQueue, class: &str) -> Service {
        let Some(HtbClass {
            parent,
            turn,
            rate,
            ceil,
            ..
        }) = self.state.classes.get(class)
        else {
            return Service::Unsaid;
        };
        let link = self.port.rate.as_bits_per_second();
        if parent != "1:1" {
            let text = format!("class {class} is below {parent}; it must be below 1:1");
            self.add(Rule::Dangling, text);
        }
        if read_rate(ceil).is_some_and(|most| most * 100 < link * 99) {
            let text = format!("class {class} gets at most {ceil} of {}", self.port.rate);
            self.add(Rule::ServiceOrder, text);
        }
        let strict = Service::Strict {
            rank: 7_u16.saturating_sub(u16::from(*turn)),
        };
        let shares = self
            .plan
            .queues
            .iter()
            .any(|queue| queue.percent().is_some());
        match read_rate(rate) {
            Some(assured) if assured > ASSURED_BPS => match shares && queue.percent().is_none() {
                true => strict,
                false => {
                    let percent = (assured + link / 200).saturating_mul(100) / link.max(1);
                    Service::weighted(u32::try_from(percent).ok())
                }
            },
            _ => strict,
        }
    }

    fn marking(&mut self, queue: &PlanQueue, class: &str) -> Option<Marking> {
        if self.form() == LinuxForm::Bpf {
            let profile = self.plan.profile(queue, self.port)?;
            let there = self.state.filters.iter();
            let there = there.filter(|filter| matches!(filter.act, FilterAct::Program { .. }));
            return (there.count() > 0).then_some(Marking {
                low: profile.threshold.low_bytes(),
                high: profile.threshold.high_bytes(),
                percent: 100,
                marks_ect: true,
                drops_droppable: queue.has_gradients(),
            });
        }
        let red = self.state.leaf(class).filter(|leaf| leaf.kind == "red")?;
        if red.is_on("adaptive") {
            let text = format!(
                "red {} adapts its probability; it must act always",
                red.handle
            );
            self.add(Rule::Probability, text);
        }
        if red.number("ewma").is_some_and(|weight| weight > FASTEST) {
            let weight = red.number("ewma").unwrap_or(0);
            let text = format!(
                "red {} averages with W = 1/2^{weight} and lags behind the queue; write `avpkt 1`, \
                 and `burst` as `min`",
                red.handle
            );
            self.add(Rule::Threshold, text);
        }
        if red.number("limit") < red.number("max") {
            let text = format!(
                "red {} is full before it marks: limit is below max",
                red.handle
            );
            self.add(Rule::PoolSize, text);
        }
        let ecn = red.is_on("ecn");
        Some(Marking {
            low: red.number("min").unwrap_or(0),
            high: red.number("max").unwrap_or(0),
            percent: 100,
            marks_ect: ecn && !red.is_on("harddrop"),
            drops_droppable: !(ecn && red.is_on("nodrop")),
        })
    }

    /// The program that marks and drops must be the plan's, complete, and see every packet first.
    fn program(&mut self) {
        let wanted = ObjectFile::of_port(self.plan, self.port).name;
        for (at, filter) in self.state.filters.iter().enumerate() {
            let FilterAct::Program { object, direct } = &filter.act else {
                continue;
            };
            if *object != wanted {
                let text =
                    format!("runs the program {object}; the plan's is {wanted}: other thresholds");
                self.add(Rule::Threshold, text);
            }
            if self.switch.objects.get(object) == Some(&false) {
                let text = format!("the text of {object} is not that program");
                self.add(Rule::Schema, text);
            }
            if !direct {
                let text = format!("{object} is not `direct-action`: nothing is dropped");
                self.add(Rule::EarlyDropOff, text);
            }
            if at > 0 || filter.protocol != "all" {
                let text = format!(
                    "{object} does not see every packet: it must be the first filter, of all \
                     protocols"
                );
                self.add(Rule::EarlyDropOff, text);
            }
        }
    }
}
