//! A plan as Junos statements.

use super::change::JunosRules;
use super::scheduling::{LEVELS, Scheduling, scheduling};
use crate::notation::set_lines::{self, Words};
use crate::plan::{OURS, Plan, PlanQueue, Purpose, Selection, SwitchPort};
use crate::tree::ConfigEntry;
use crate::tree::load::load;

/// The class of the switch's own routing packets; Junos has it by default.
pub(super) const HOST_CLASS: &str = "network-control";

/// All statements of the plan, in the order of Junos.
pub(super) fn statements(plan: &Plan) -> Vec<ConfigEntry> {
    let mut writer = StatementWriter {
        plan,
        rules: JunosRules { plan: Some(plan) },
        statements: Vec::new(),
    };
    writer.classes();
    writer.drop_profiles();
    for port in plan.port_of_each_rate() {
        writer.schedulers(port);
    }
    for port in &plan.site.ports {
        writer.port(port);
    }
    writer.statements
}

/// The forwarding class of a queue.
fn class_name(queue: &PlanQueue) -> String {
    format!("{OURS}-{}", queue.name())
}

/// The forwarding class set of a queue: those with a weight are not with strict ones.
fn set_of(queue: &PlanQueue) -> String {
    match queue.percent() {
        None => OURS.to_owned(),
        Some(_) => format!("{OURS}-weighted"),
    }
}

/// The loss priority of droppable packets.
fn loss_priority(plan: &Plan) -> &'static str {
    match plan.selection {
        Selection::Ecn => "low",
        Selection::Precedence => "high",
    }
}

/// The transmit rate of a queue in percent: where queues keep an order, only others have one.
fn rate_of(queue: &PlanQueue, model: Scheduling) -> Option<u8> {
    let is_written = model == Scheduling::StrictSet || queue.purpose == Purpose::Others;
    queue.percent().filter(|_| is_written)
}

/// Words of a text that has no quotes.
fn words(text: &str) -> Words {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Writes the statements of a plan one by one, each where Junos would show it.
struct StatementWriter<'a> {
    plan: &'a Plan,
    rules: JunosRules<'a>,
    statements: Vec<ConfigEntry>,
}

impl StatementWriter<'_> {
    fn set(&mut self, text: &str) {
        self.put(words(text));
    }

    fn put(&mut self, mut words: Words) {
        words.insert(0, "class-of-service".to_owned());
        let entry = set_lines::statement(&self.rules, &words);
        load(&self.rules, &mut self.statements, &[entry]);
    }

    fn classes(&mut self) {
        let plan = self.plan;
        let strict_set = scheduling(plan.target.version) == Scheduling::StrictSet;
        for queue in &plan.queues {
            let class = class_name(queue);
            self.set(&format!(
                "forwarding-classes class {class} queue-num {}",
                queue.number
            ));
            let droppable = loss_priority(plan);
            let kept = queue.dscps.iter().map(|dscp| (dscp, "low"));
            let dropped = queue.droppable.iter().map(|dscp| (dscp, droppable));
            for (dscp, loss) in kept.chain(dropped) {
                self.set(&format!(
                    "classifiers dscp {OURS} forwarding-class {class} loss-priority {loss} \
                     code-points {:06b}",
                    dscp.0
                ));
            }
            if strict_set {
                let set = set_of(queue);
                self.set(&format!("forwarding-class-sets {set} class {class}"));
            }
        }
        if strict_set {
            self.set(&format!("forwarding-class-sets {OURS} class {HOST_CLASS}"));
        }
    }

    fn drop_profiles(&mut self) {
        for profile in &self.plan.profiles {
            let at = format!("drop-profiles {OURS}-{} interpolate", profile.name);
            self.set(&format!("{at} fill-level {}", profile.threshold.low));
            self.set(&format!("{at} fill-level {}", profile.threshold.high));
            self.set(&format!("{at} drop-probability 0"));
            self.set(&format!("{at} drop-probability 100"));
        }
    }

    /// Schedulers and their map for ports of one rate.
    fn schedulers(&mut self, port: &SwitchPort) {
        let plan = self.plan;
        let model = scheduling(plan.target.version);
        if model == Scheduling::StrictSet {
            for set in self.sets() {
                self.traffic_control(&set, port);
            }
        }
        for (at, queue) in plan.queues.iter().enumerate() {
            let map = match model {
                Scheduling::StrictSet => format!("{}-{}", set_of(queue), port.rate),
                Scheduling::Levels => format!("{OURS}-{}", port.rate),
            };
            let profile = plan.profile(queue, port);
            let scheduler = match profile {
                Some(_) => format!("{}-{}", class_name(queue), port.rate),
                None => class_name(queue),
            };
            let mut classes = vec![class_name(queue)];
            if at == 0 {
                classes.push(HOST_CLASS.to_owned());
            }
            for class in classes {
                self.set(&format!(
                    "scheduler-maps {map} forwarding-class {class} scheduler {scheduler}"
                ));
            }
            let priority = match (model, queue.percent()) {
                (Scheduling::StrictSet, None) => LEVELS[0],
                (Scheduling::StrictSet, Some(_)) => LEVELS[LEVELS.len() - 1],
                (Scheduling::Levels, _) => LEVELS[at],
            };
            self.set(&format!("schedulers {scheduler} priority {priority}"));
            if let Some(percent) = rate_of(queue, model) {
                self.set(&format!(
                    "schedulers {scheduler} transmit-rate percent {percent}"
                ));
            }
            let Some(profile) = profile else { continue };
            let loss = loss_priority(plan);
            self.set(&format!(
                "schedulers {scheduler} drop-profile-map loss-priority {loss} protocol any \
                 drop-profile {OURS}-{}",
                profile.name
            ));
            if plan.selection != Selection::Precedence {
                self.set(&format!(
                    "schedulers {scheduler} explicit-congestion-notification"
                ));
            }
        }
    }

    /// The forwarding class sets of the plan.
    fn sets(&self) -> Vec<String> {
        let mut sets: Vec<String> = self.plan.queues.iter().map(set_of).collect();
        sets.dedup();
        sets
    }

    /// The traffic control profile of a set on ports of a rate. Transmit rates in it count only
    /// beside a guaranteed rate.
    fn traffic_control(&mut self, set: &str, port: &SwitchPort) {
        let name = format!("{set}-{}", port.rate);
        if set != OURS {
            self.set(&format!(
                "traffic-control-profiles {name} guaranteed-rate percent 100"
            ));
        }
        self.set(&format!(
            "traffic-control-profiles {name} scheduler-map {name}"
        ));
    }

    fn port(&mut self, port: &SwitchPort) {
        let model = scheduling(self.plan.target.version);
        let mut bindings: Vec<String> = match model {
            Scheduling::StrictSet => {
                let sets = self.sets().into_iter();
                let bound = sets.map(|set| {
                    let profile = format!("{set}-{}", port.rate);
                    format!("forwarding-class-set {set} output-traffic-control-profile {profile}")
                });
                bound.collect()
            }
            Scheduling::Levels => vec![format!("scheduler-map {OURS}-{}", port.rate)],
        };
        bindings.push(format!("unit 0 classifiers dscp {OURS}"));
        for text in bindings {
            let mut line = vec!["interfaces".to_owned(), port.name.clone()];
            line.extend(words(&text));
            self.put(line);
        }
    }
}
