//! Configurations that are broken on purpose, and the plan of the good one.
//!
//! A table has one mistake a line: the mistake itself, the rule of ours that names it, where it is
//! (a JSON pointer into the rendered plan), and the value that is written there.

use gradwire_fabric::policy::{QosPolicy, SwitchBuffer};
use gradwire_protocol::job::Job;
use gradwire_protocol::units::{ByteCount, Rate, Span};
use gradwire_switch_config::dialect;
use gradwire_switch_config::plan::{Plan, Site, SwitchPort};
use gradwire_switch_config::target::SwitchTarget;
use serde_json::Value;

/// Mistakes in a configuration of SONiC.
pub(crate) const SONIC: &str = include_str!("sonic.txt");

/// The default job on two ports that share memory, with trimming.
pub(crate) fn plan(target: SwitchTarget) -> Plan {
    let mut policy = QosPolicy::of_job(&Job::default(), Span::from_micros(14));
    policy.trims_to = Some(ByteCount::new(256));
    let dialect = dialect::of(target.platform);
    let port = |number| SwitchPort {
        name: dialect.port_name(number),
        rate: Rate::from_gbps(100),
    };
    let site = Site {
        origin: "a test".to_owned(),
        ports: vec![port(0), port(1)],
        buffer: SwitchBuffer::Shared {
            bytes: ByteCount::mib(16),
            alpha: 1.0,
        },
    };
    let limits = dialect.limits(target.version);
    Plan::new(target, &limits, &policy, site).expect("the defaults fit")
}

/// The mistakes of a table.
pub(crate) fn all(table: &'static str) -> Vec<Broken> {
    let mut by_models = true;
    let mut all = Vec::new();
    for line in table.lines() {
        if line.starts_with("== let through") {
            by_models = false;
        }
        if line.is_empty() || line.starts_with(['#', '=']) {
            continue;
        }
        let mut cells = line
            .split("  ")
            .map(str::trim)
            .filter(|cell| !cell.is_empty());
        let mut cell = || cells.next().expect("four cells");
        let [what, rule, path, value] = [cell(), cell(), cell(), cell()];
        all.push(Broken {
            what,
            rule,
            path,
            value,
            by_models,
        });
    }
    all
}

/// Something that is done to a good configuration.
pub(crate) struct Broken {
    pub(crate) what: &'static str,
    /// Name of our rule.
    pub(crate) rule: &'static str,
    /// JSON pointer to the value that is set.
    path: &'static str,
    /// The new value; `-`: it is removed.
    value: &'static str,
    /// Whether the models refuse it, too.
    pub(crate) by_models: bool,
}

impl Broken {
    /// The configuration with the mistake in it.
    pub(crate) fn text(&self, good: &Value) -> String {
        let mut value = good.clone();
        let (parent, key) = self.path.rsplit_once('/').expect("a pointer");
        let parent = value.pointer_mut(parent).expect("the parent is there");
        let parent = parent.as_object_mut().expect("an object");
        if self.value == "-" {
            parent.remove(key).expect("it is there");
        } else {
            let value = serde_json::from_str(self.value).expect("it is JSON");
            parent.insert(key.to_owned(), value);
        }
        value.to_string()
    }
}
