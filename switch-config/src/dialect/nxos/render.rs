//! The plan as lines of NX-OS.

use super::change::{CLASS, INPUT, NxosRules, OUTPUT, QUEUE, class_of};
use crate::notation::indented::{self, CommandRules};
use crate::plan::{OURS, Plan, SwitchPort, is_our_name};
use crate::tree::ConfigEntry;
use crate::tree::order::natural;

/// All sections of the plan.
pub(super) fn sections(plan: &Plan) -> Vec<ConfigEntry> {
    let mut sections: Vec<ConfigEntry> = Vec::new();
    for queue in &plan.queues {
        let mut dscps: Vec<u8> = queue.dscps.iter().map(|dscp| dscp.0).collect();
        dscps.extend(queue.droppable.iter().map(|dscp| dscp.0));
        dscps.sort_unstable();
        let dscps: Vec<String> = dscps.iter().map(u8::to_string).collect();
        let matches = ConfigEntry::leaf(format!("match dscp {}", dscps.join(",")));
        let name = format!("{CLASS} {OURS}-{}", queue.name());
        sections.push(ConfigEntry::new(name, vec![matches]));
    }
    sections.sort_by(|one, other| natural(one.text(), other.text()));
    sections.push(input(plan));
    let rates = plan.port_of_each_rate().into_iter();
    sections.extend(rates.map(|port| output(plan, port)));
    sections.extend(plan.site.ports.iter().map(interface));
    sections
}

/// The whole configuration, with where it comes from above it.
pub(super) fn whole(plan: &Plan) -> String {
    let origin = plan.site.origin.replace(['\n', '\r'], " ");
    format!(
        "! gradwire switch render --platform {}\n! {origin}\n! not verified by any validator: see \
         `gradwire switch platforms`\n{}",
        plan.target,
        indented::text(&sections(plan), NxosRules.spaces())
    )
}

/// The wanted configuration: the plan, and the removal of sections of ours that it does not have.
pub(super) fn wanted(plan: &Plan, running: &[ConfigEntry]) -> Vec<ConfigEntry> {
    let mut sections = sections(plan);
    let stale = |line: &&ConfigEntry| {
        let words = [OUTPUT, INPUT, CLASS].into_iter();
        let mut names = words.filter_map(|words| line.after(words));
        names.any(is_our_name) && !sections.iter().any(|other| other.text() == line.text())
    };
    let mut gone: Vec<&ConfigEntry> = running.iter().filter(stale).collect();
    gone.reverse();
    let gone: Vec<ConfigEntry> = gone
        .into_iter()
        .map(|line| ConfigEntry::leaf(format!("no {}", line.text())))
        .collect();
    sections.extend(gone);
    sections
}

/// The policy that sends each class to its queue, and all others to the last. Classes share no
/// DSCP, so their order has no meaning: they stand by name.
fn input(plan: &Plan) -> ConfigEntry {
    let group = |queue: u8| vec![ConfigEntry::leaf(format!("set qos-group {queue}"))];
    let mut classes: Vec<ConfigEntry> = Vec::new();
    for queue in &plan.queues {
        let name = format!("class {OURS}-{}", queue.name());
        classes.push(ConfigEntry::new(name, group(queue.number)));
    }
    classes.sort_by(|one, other| natural(one.text(), other.text()));
    let last = plan.queues.last().map_or(0, |queue| queue.number);
    classes.push(ConfigEntry::new("class class-default", group(last)));
    ConfigEntry::new(format!("{INPUT} {OURS}"), classes)
}

/// The policy of the queues of ports of one rate.
fn output(plan: &Plan, port: &SwitchPort) -> ConfigEntry {
    let classes = (0..8).rev().map(|number| {
        let queue = plan.queues.iter().enumerate();
        let mut queue = queue.filter(|(_, queue)| queue.number == number);
        let found = queue.next();
        let percent = found.and_then(|(_, queue)| queue.percent());
        let mut lines = vec![ConfigEntry::leaf(match (found, percent, number) {
            (_, Some(percent), _) => format!("bandwidth remaining percent {percent}"),
            (_, None, 0) => "bandwidth remaining percent 100".to_owned(),
            (Some((at, _)), None, _) => format!("priority level {}", at + 1),
            (None, None, _) => "bandwidth remaining percent 0".to_owned(),
        })];
        let profile = found.and_then(|(_, queue)| plan.profile(queue, port));
        lines.extend(profile.map(|profile| {
            ConfigEntry::leaf(format!(
                "random-detect minimum-threshold {} kbytes maximum-threshold {} kbytes \
                 drop-probability 100 weight 0 ecn",
                profile.threshold.low, profile.threshold.high
            ))
        }));
        ConfigEntry::new(format!("{QUEUE} {}", class_of(number)), lines)
    });
    ConfigEntry::new(format!("{OUTPUT} {OURS}-{}", port.rate), classes.collect())
}

fn interface(port: &SwitchPort) -> ConfigEntry {
    let lines = [
        "priority-flow-control mode off".to_owned(),
        format!("service-policy type qos input {OURS}"),
        format!("service-policy type queuing output {OURS}-{}", port.rate),
    ];
    let lines = lines.into_iter().map(ConfigEntry::leaf).collect();
    ConfigEntry::new(format!("interface {}", port.name), lines)
}
