//! SONiC: the tables of CONFIG_DB, as one JSON object.
//!
//! Start here: [`Sonic`] is the dialect, and `limits` what the platform can do. The other files are
//! one concern each:
//! - `render`: a plan as tables; `change`: a plan put into a running configuration.
//! - `models`: the tables as SONiC's YANG models type them; `check`: what they forbid; [`yang`]: a
//!   configuration as validators read it.
//! - `read`: what a configuration says; `meaning`: what models let through all the same.
//! - `counters`, `procedure`: exports of counters, and commands for people.
//!
//! Sources are sonic-net/sonic-buildimage at commit 086b03bd (2026-08-23) and the documents of
//! sonic-net/SONiC that are named beside each fact. No switch of any maker was at hand: what an
//! ASIC does with these tables is its maker's word.

mod change;
mod check;
mod config;
mod counters;
mod meaning;
mod models;
mod ranges;
mod read;
mod render;
pub mod yang;

use crate::change::ConfigChange;
use crate::counters::QueueCount;
use crate::dialect::contract::{Dialect, Look};
use crate::limits::{Alphas, Fact, Limits, NotEct, Thresholds, Trims, Unit};
use crate::notation::json;
use crate::plan::Plan;
use crate::policy::Balance;
use crate::reading::{ReadError, Reading};

use config::{Config, WHAT};

/// Unicast queues of a port; the templates of all makers configure these.
const QUEUES: u8 = 8;

/// The dialect of SONiC.
#[derive(Debug)]
pub struct Sonic;

impl Dialect for Sonic {
    fn limits(&self, _version: &str) -> Limits {
        Limits {
            queues: Fact::new(QUEUES, "files/build_templates/qos_config.j2: queues 0 to 7"),
            thresholds: Fact::new(
                Thresholds {
                    unit: Unit::Bytes(1),
                    least: 1,
                    most: u32::MAX as u64,
                    apart: 0,
                },
                "sonic-wred-profile.yang: bytes, max >= min; SAI saiwred.h has 32 bits of them",
            ),
            not_ect: Fact::new(
                NotEct::DropsEarly,
                "SAI saiwred.h and doc/qos/wred_ecn_marking_thresholds_HLD.md: one set of \
                 thresholds; colours with ECN are marked instead of dropped if they are ECT",
            ),
            drop_precedence: Fact::new(
                false,
                "no table of CONFIG_DB maps a DSCP to a colour (yang-models)",
            ),
            marks_beside_precedence: Fact::new(false, "no table maps a DSCP to a colour"),
            alphas: Fact::new(
                Some(Alphas { least: -8, most: 7 }),
                "sonic-buffer-profile.yang: dynamic_th",
            ),
            trims: Fact::new(
                Some(Trims {
                    least: 1,
                    most: u32::MAX as u64,
                }),
                "sonic-trimming.yang: any size of 32 bits; what the ASIC takes is in STATE_DB, \
                 SWITCH_CAPABILITY",
            ),
            balances: Fact::new(
                &[Balance::Ecmp],
                "sonic-hash.yang; choosing by packet (doc/ARS/Local_ARS_HLD.md rev. 1.4) is in no \
                 model of this version",
            ),
            remarks: &REMARKS,
        }
    }

    fn port_name(&self, number: usize) -> String {
        format!("Ethernet{}", number * 4)
    }

    fn render(&self, plan: &Plan) -> String {
        json::write(&render::render(plan))
    }

    fn read(&self, plan: &Plan, text: &str) -> Result<Reading, ReadError> {
        let root = json::read(WHAT, text)?;
        let config = Config(&root);
        let mut findings = check::findings(config);
        findings.extend(meaning::findings(config, plan));
        let ports = plan.site.ports.iter().filter_map(|port| {
            let reading = read::port(config, plan, port)?;
            Some((port.name.clone(), reading))
        });
        Ok(Reading {
            ports: ports.collect(),
            findings,
        })
    }

    fn change(&self, plan: &Plan, running: &str) -> Result<ConfigChange, ReadError> {
        let running = json::read(WHAT, running)?;
        config::check_shape(&running, &change::TOUCHED)?;
        Ok(json::change(&running, &change::with_plan(plan, &running)))
    }

    fn apply(&self, running: &str, change: &str) -> Result<String, ReadError> {
        let mut root = json::read(WHAT, running)?;
        json::apply(&mut root, change)?;
        Ok(json::write(&root))
    }

    fn procedure(&self, plan: &Plan) -> Vec<Look> {
        counters::procedure(plan)
    }

    fn looks(&self, plan: &Plan) -> Vec<Look> {
        counters::looks(plan)
    }

    fn counters(&self, _plan: &Plan, text: &str) -> Result<Vec<QueueCount>, ReadError> {
        counters::read(text)
    }
}

/// What is to be known besides.
const REMARKS: [Fact<&'static str>; 5] = [
    Fact::new(
        "releases before 2026 refuse new WRED profiles as a patch, and none takes a new pool: \
         there the whole configuration is reloaded, which interrupts traffic",
        "sonic-utilities, gcu_field_operation_validators.conf.json and pull request 4219",
    ),
    Fact::new(
        "JSON has no comments: what is ours is known by its name, GRADWIRE",
        "sonic-yang-models refuse unknown tables and fields",
    ),
    Fact::new(
        "traffic is trusted by port, not by switch: PORT_QOS_MAP|global is not touched",
        "sonic-port-qos-map.yang",
    ),
    Fact::new(
        "a switch keeps its own pools: `diff` writes one only where there is none, so load its \
         patch, and the whole configuration only into a switch that has nothing yet",
        "files/build_templates/buffers_config.j2 of each device",
    ),
    Fact::new(
        "which fields SWITCH_HASH takes is in STATE_DB, SWITCH_CAPABILITY|switch",
        "doc/hash/hash-design.md",
    ),
];
