//! Properties that every dialect must have with any plan.

use std::collections::BTreeMap;

use gradwire_fabric::policy::{ClassQueue, QosPolicy, SwitchBuffer};
use gradwire_protocol::job::Job;
use gradwire_protocol::priority::EarlyDrop;
use gradwire_protocol::units::{ByteCount, Class, Dscp, Rate, Share, Span};
use gradwire_switch_config::dialect::{self, Dialect};
use gradwire_switch_config::lint;
use gradwire_switch_config::notation::yaml;
use gradwire_switch_config::plan::{Plan, Site, SwitchPort};
use gradwire_switch_config::target::{Platform, SwitchTarget};
use gradwire_switch_config::tree::ConfigEntry;

/// The target of a name.
pub(crate) fn target(name: &str) -> SwitchTarget {
    SwitchTarget::read(name).expect("the test names a known target")
}

/// A plan of this many classes, control packets among them, on two ports of 100G and one of 400G.
pub(crate) fn plan_of(target: SwitchTarget, classes: usize) -> Plan {
    let mut policy = QosPolicy::of_job(&Job::default(), Span::from_micros(14));
    let seconds = [0, 36, 28, 20, 12, 9, 1, 4].map(Dscp);
    while policy.queues.len() < classes {
        let class = Class(policy.queues.len() as u8);
        policy.queues.push(ClassQueue {
            class,
            dscp: Dscp(2),
            droppable: None,
            marks_above: Some(Share::ALL),
            early_drop: EarlyDrop::On,
        });
    }
    policy.queues.truncate(classes);
    for (queue, second) in policy.queues.iter_mut().zip(seconds).skip(1) {
        queue.droppable = Some(second);
    }
    let dialect = dialect::of(target.platform);
    let port = |number, gbps| SwitchPort {
        name: dialect.port_name(number),
        rate: Rate::from_gbps(gbps),
    };
    let site = Site {
        origin: "job.toml on fabric.toml, leaf-3".to_owned(),
        ports: vec![port(0, 100), port(1, 100), port(2, 400)],
        buffer: SwitchBuffer::PerPort(ByteCount::mib(16)),
    };
    let limits = dialect.limits(target.version);
    Plan::new(target, &limits, &policy, site).expect("the plan of the test is possible")
}

/// Reads back without findings, the same twice, no change after it; a running
/// configuration gets the plan, and by the inverse is as it was: byte for byte, or setting by
/// setting where order or layout is the switch's own.
pub(crate) fn hold(plan: &Plan, running: &str) {
    let dialect = dialect::of(plan.target.platform);
    let text = dialect.render(plan);
    assert_eq!(text, dialect.render(plan), "rendered twice");
    assert_eq!(findings(dialect, plan, &text), [""; 0], "of\n{text}");
    let none = dialect.change(plan, &text).expect("it can be read");
    assert_eq!((none.forward.as_str(), none.inverse.as_str()), ("", ""));

    let change = dialect.change(plan, running).expect("it can be read");
    let after = dialect.apply(running, &change.forward);
    let after = after.expect("the change fits");
    assert_eq!(findings(dialect, plan, &after), [""; 0], "of\n{after}");
    let again = dialect.change(plan, &after).expect("it can be read");
    assert_eq!(again.forward, "", "applied twice");
    let undone = dialect.apply(&after, &change.inverse);
    let undone = undone.expect("the inverse fits");
    match plan.target.platform {
        Platform::Eos | Platform::Nxos | Platform::Junos => {
            assert_eq!(settings(&undone), settings(running));
        }
        Platform::Nvue => {
            let read = dialect.apply(running, "").expect("it can be read");
            assert_eq!(undone, read);
            assert_eq!(set_leaves(&undone), set_leaves(running));
        }
        _ => assert_eq!(undone, running, "undone by\n{}", change.inverse),
    }
}

/// Each line of a command-line export with the sections around it, sorted, since a switch exports
/// them in an order of its own.
fn settings(text: &str) -> Vec<Vec<&str>> {
    let mut section: Vec<&str> = Vec::new();
    let lines = text.lines().filter(|line| {
        let start = line.trim_start();
        !start.is_empty() && !start.starts_with(['!', '#'])
    });
    let mut settings: Vec<Vec<&str>> = Vec::new();
    for line in lines {
        let width = |line: &str| line.len() - line.trim_start().len();
        section.retain(|above| width(above) < width(line));
        section.push(line);
        settings.push(section.clone());
    }
    settings.sort();
    settings
}

/// How YAML types the end of a path.
#[derive(Debug, Eq, PartialEq)]
enum LeafType {
    /// An empty map or list.
    Empty,
    /// A text.
    Text,
    /// Perhaps a number, a truth value or null.
    Word,
}

/// Paths of every `- set:` of a file of NVUE with the values at their ends; a later item goes over
/// an earlier one.
fn set_leaves(text: &str) -> BTreeMap<Vec<String>, (String, LeafType)> {
    let items = yaml::parse("test", text).expect("it is YAML");
    let mut leaves = BTreeMap::new();
    for set in items.below.iter().filter_map(|item| item.child("set")) {
        add_leaves(&[], set, &mut leaves);
    }
    leaves
}

fn add_leaves(
    path: &[String],
    entry: &ConfigEntry,
    leaves: &mut BTreeMap<Vec<String>, (String, LeafType)>,
) {
    if entry.below.is_empty() {
        let is_word = |line: &String| {
            line.chars()
                .all(|c| c.is_alphanumeric() || "+-._~".contains(c))
        };
        let (value, kind) = match &entry.line {
            None => (entry.value.as_str(), LeafType::Empty),
            Some(line) if line.is_empty() => ("~", LeafType::Word),
            Some(line) if is_word(line) => (line.as_str(), LeafType::Word),
            Some(_) => (entry.value.as_str(), LeafType::Text),
        };
        leaves.insert(path.to_vec(), (value.to_owned(), kind));
    }
    for child in &entry.below {
        add_leaves(&yaml::below(path, child), child, leaves);
    }
}

/// A plan in place of another, and back.
pub(crate) fn hold_over(first: &Plan, second: &Plan, running: &str) {
    let dialect = dialect::of(first.target.platform);
    let change = dialect.change(first, running).expect("it can be read");
    let between = dialect.apply(running, &change.forward);
    hold(second, &between.expect("the change fits"));
}

/// Findings in the words of a person.
pub(crate) fn findings(dialect: &dyn Dialect, plan: &Plan, text: &str) -> Vec<String> {
    let reading = dialect
        .read(plan, text)
        .expect("it has the platform's form");
    let findings = lint::findings(plan, &reading);
    findings.iter().map(ToString::to_string).collect()
}
