//! Reads the plan's ports from a CONFIG_DB: where DSCPs go, and how queues behave.
//!
//! Names are followed from a port to its maps and from a queue to its profiles. A name that
//! leads nowhere reads as unsaid; `check` and `meaning` name the mistake.

pub(super) mod check;
pub(super) mod config;
pub(super) mod meaning;
pub(super) mod models;
pub(super) mod ranges;

use crate::lint::{Finding, Rule};
use crate::plan::{Plan, SwitchPort};
use crate::reading::{ConfigReader, Landing, Marking, PortReading, QueueReading, Reading, Service};
use config::{Config, ConfigRow};
use gradwire_fabric::policy::DSCPS;
use models::QUEUES;

/// Reads a configuration.
pub(super) fn reading(plan: &Plan, config: Config<'_>) -> Reading {
    let mut reader = SonicReader {
        config,
        plan,
        findings: check::findings(config),
    };
    let ports = reader.ports(plan);
    reader.trimming();
    reader.hashing();
    Reading::new(ports, reader.findings)
}

struct SonicReader<'a> {
    config: Config<'a>,
    plan: &'a Plan,
    findings: Vec<Finding>,
}

impl ConfigReader for SonicReader<'_> {
    fn findings(&mut self) -> &mut Vec<Finding> {
        &mut self.findings
    }

    fn port(&mut self, port: &SwitchPort) -> Option<PortReading> {
        self.meaning(port);
        let config = self.config;
        let mut said = PortReading::default();
        for number in 0..QUEUES {
            if let Some(row) = config.of_queue("QUEUE", &port.name, number) {
                said.queues.insert(number, queue(config, row, number));
            }
        }
        match config.row("PORT_QOS_MAP", &port.name) {
            None if said.queues.is_empty() => return None,
            None => {}
            Some(bindings) => {
                said.landings = landings(config, bindings);
                said.pauses = pauses(bindings);
            }
        }
        if config.row("PFC_WD", &port.name).is_some() {
            let text = "the PFC watchdog watches this port, on which nothing is paused; remove it";
            self.find(Rule::PauseOn, format!("PFC_WD|{}", port.name), text);
        }
        for number in 0..QUEUES {
            if let Some(alpha) = alpha(config, port, number) {
                said.queues.entry(number).or_default().alpha = Some(alpha);
            }
        }
        Some(said)
    }
}

fn landings(config: Config<'_>, bindings: ConfigRow<'_>) -> [Option<Landing>; DSCPS] {
    let classes = config.named("DSCP_TO_TC_MAP", bindings, "dscp_to_tc_map");
    let queues = config.named("TC_TO_QUEUE_MAP", bindings, "tc_to_queue_map");
    std::array::from_fn(|dscp| {
        let class = classes?.text(&dscp.to_string())?;
        let queue = queues?.number(&class)?;
        Some(Landing {
            queue,
            drops_first: false,
        })
    })
}

fn pauses(bindings: ConfigRow<'_>) -> Vec<u8> {
    let classes = bindings.text("pfc_enable").unwrap_or_default();
    let classes = classes.split(',').filter_map(|class| class.parse().ok());
    classes.collect()
}

/// The dynamic threshold of a queue, as an exponent of two.
fn alpha(config: Config<'_>, port: &SwitchPort, number: u8) -> Option<i8> {
    let row = config.of_queue("BUFFER_QUEUE", &port.name, number)?;
    let profile = config.named("BUFFER_PROFILE", row, "profile")?;
    profile.number("dynamic_th")
}

fn queue(config: Config<'_>, row: ConfigRow<'_>, number: u8) -> QueueReading {
    let scheduler = config.named("SCHEDULER", row, "scheduler");
    let service = match scheduler.map(|scheduler| (scheduler, scheduler.text("type"))) {
        None => Service::Unsaid,
        Some((_, Some(kind))) if kind == "STRICT" => Service::Strict {
            rank: u16::from(number),
        },
        Some((scheduler, _)) => Service::weighted(scheduler.number("weight")),
    };
    let profile = config.named("WRED_PROFILE", row, "wred_profile");
    QueueReading {
        service,
        marking: profile.and_then(marking),
        alpha: None,
    }
}

/// The effect of a profile on green packets, as all are that no policer coloured; `None` when it
/// neither marks nor drops. Without a probability the switch takes 100 percent
/// (sonic-swss, `orchagent/qosorch.cpp`).
fn marking(profile: ConfigRow<'_>) -> Option<Marking> {
    let colours = profile.text("ecn").unwrap_or_default();
    let marks_ect = colours == "ecn_all" || colours.starts_with("ecn_green");
    let marks_ect = marks_ect || colours.ends_with("_green");
    let drops_droppable = profile.text("wred_green_enable").as_deref() == Some("true");
    let low = profile.number("green_min_threshold");
    let high = profile.number("green_max_threshold");
    if !marks_ect && !drops_droppable && low.is_none() && high.is_none() {
        return None;
    }
    Some(Marking {
        low: low.unwrap_or(0),
        high: high.unwrap_or(0),
        percent: profile.number("green_drop_probability").unwrap_or(100),
        marks_ect,
        drops_droppable,
    })
}
