//! Linux: queueing disciplines, which the program `tc` of iproute2 configures.
//!
//! Start here.
//!
//! - `form` names the disciplines and where each stands; `limits.toml` states what Linux
//!   can do.
//! - `render` writes a plan as a shell script.
//! - `script` reads such scripts, and `export` reads the output of tc, both into `state`.
//! - `check` compares a state with a plan, `change` leads from one to the other and back,
//!   `counters` reads its counters.
//! - `program` is the eBPF program that marks and drops where the kernel has no `red`. `assembler`
//!   encodes it; `object` and `btf` make the file from which tc loads it.

mod assembler;
mod btf;
mod change;
mod check;
mod counters;
mod export;
mod form;
mod object;
mod program;
mod render;
mod script;
mod state;

use export::ExportCounters;
use form::LinuxForm;
use state::TcState;

use crate::change::ConfigChange;
use crate::counters::{QueueCount, neutral};
use crate::dialect::contract::{Dialect, Look};
use crate::limits::PlatformLimits;
use crate::lint::Finding;
use crate::plan::Plan;
use crate::reading::{ReadError, Reading};

/// Linux.
#[derive(Debug)]
pub struct Linux;

/// Reads a script, as run on fresh ports, or an export.
fn understood(text: &str) -> Result<(TcState, Vec<Finding>), ReadError> {
    if !text.lines().any(|line| line.contains("tc qdisc ")) {
        return Ok((export::read(text)?, Vec::new()));
    }
    let mut switch = TcState::default();
    let findings = script::run(&mut switch, text);
    Ok((switch, findings))
}

fn look(command: String, expect: &str) -> Look {
    Look {
        command,
        expect: expect.to_owned(),
    }
}

/// The first port, as a word of the shell.
fn first_port(plan: &Plan) -> String {
    let port = plan.site.ports.first();
    render::quoted(port.map_or("PORT", |port| &port.name))
}

impl Linux {
    /// The shell command that exports configuration and counters of a plan's ports. The folder of
    /// bpffs is in its variable `BPFFS`, where the target is `linux:bpf`.
    pub fn export_command(plan: &Plan) -> String {
        export::command(plan, ExportCounters::With)
    }
}

impl Dialect for Linux {
    fn limits(&self, version: &str) -> PlatformLimits {
        PlatformLimits::of(version, include_str!("linux/limits.toml"))
    }

    fn port_name(&self, number: usize) -> String {
        format!("swp{number}")
    }

    fn render(&self, plan: &Plan) -> String {
        render::script(plan)
    }

    fn read(&self, plan: &Plan, text: &str) -> Result<Reading, ReadError> {
        let (switch, findings) = understood(text)?;
        Ok(check::reading(plan, &switch, findings))
    }

    fn change(&self, plan: &Plan, running: &str) -> Result<ConfigChange, ReadError> {
        change::change(plan, &understood(running)?.0)
    }

    fn apply(&self, running: &str, change: &str) -> Result<String, ReadError> {
        let mut switch = export::read(running)?;
        let findings = script::run(&mut switch, change);
        match findings.first() {
            Some(finding) => Err(ReadError::new("script of tc commands", finding.to_string())),
            None => Ok(export::write(&switch)),
        }
    }

    fn procedure(&self, plan: &Plan) -> Vec<Look> {
        let port = first_port(plan);
        let export = export::command(plan, ExportCounters::Without);
        vec![
            look(
                format!("{{ {export}; }} >before.txt"),
                "an export, as root: keep it, `gradwire switch diff` and `undo` read it",
            ),
            look(
                "sh -n gradwire.sh && sudo sh gradwire.sh".to_owned(),
                "nothing is printed; packets that wait in a changed port are lost. tc cannot try \
                 without effect: try on one port, by --ports",
            ),
            look(
                format!("sudo tc qdisc del dev {port} root"),
                "that port is as the kernel made it; `gradwire switch undo` writes what takes back \
                 all, hashing too. Nothing survives a restart: run the script where ports come up",
            ),
        ]
    }

    fn looks(&self, plan: &Plan) -> Vec<Look> {
        let port = first_port(plan);
        let form = LinuxForm::of(plan);
        let marks = match form {
            LinuxForm::Host => "packets of each class; no drops",
            LinuxForm::Bpf => "packets of each class; drops where a queue was full",
            LinuxForm::Switch | LinuxForm::Lab => {
                "per queue `marked` and `early`; `pdrop` means full"
            }
        };
        let export = export::command(plan, ExportCounters::With);
        vec![
            look(
                format!("{{ {export}; }} >counters.txt"),
                "what `gradwire switch verify --counters` and `check` read",
            ),
            look(format!("tc -s qdisc show dev {port}"), marks),
            look(
                format!("tc filter show dev {port} parent {}", form.queues_at()),
                "each DSCP of the plan leads to its class, in IPv4 and IPv6",
            ),
        ]
    }

    fn counters(&self, plan: &Plan, text: &str) -> Result<Vec<QueueCount>, ReadError> {
        neutral::read(text).unwrap_or_else(|| Ok(counters::counts(plan, &export::read(text)?)))
    }
}
