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
use crate::counters::QueueCount;
use crate::dialect::commands::CommandWords;
use crate::dialect::contract::{Dialect, PlatformTexts};
use crate::lint::Finding;
use crate::plan::Plan;
use crate::ports::SeenPorts;
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

impl Linux {
    /// The shell command that exports configuration and counters of a plan's ports. The folder of
    /// bpffs is in its variable `BPFFS`, where the target is `linux:bpf`.
    pub fn export_command(plan: &Plan) -> String {
        export::command(plan, ExportCounters::With)
    }
}

impl Dialect for Linux {
    fn texts(&self) -> PlatformTexts {
        PlatformTexts {
            limits: include_str!("linux/limits.toml"),
            commands: include_str!("linux/commands.txt"),
        }
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

    fn ports(&self, text: &str) -> Result<SeenPorts, ReadError> {
        let ports = understood(text)?.0.ports.into_iter();
        Ok(SeenPorts::all(ports.map(|port| (port.name, None))))
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

    fn words(&self, plan: &Plan) -> CommandWords {
        let form = LinuxForm::of(plan);
        let marks = match form {
            LinuxForm::Host | LinuxForm::SharedHost => "packets of each class; no drops",
            LinuxForm::Bpf => "packets of each class; drops where a queue was full",
            LinuxForm::Switch | LinuxForm::Lab | LinuxForm::Shared => {
                "per queue `marked` and `early`; `pdrop` means full"
            }
        };
        let port = plan.site.ports.first().expect("a plan has a port");
        vec![
            ("first port", render::quoted(&port.name)),
            ("marks", marks.to_owned()),
            ("queues", form.queues_at().to_owned()),
            ("export", export::command(plan, ExportCounters::Without)),
            ("export and counters", Self::export_command(plan)),
        ]
    }

    fn own_counters(&self, plan: &Plan, text: &str) -> Result<Vec<QueueCount>, ReadError> {
        Ok(counters::counts(plan, &export::read(text)?))
    }
}
