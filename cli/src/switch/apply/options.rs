//! The options of `gradwire switch apply`. Doc comments on options are the help text.

use clap::{Args, ValueEnum};

use crate::switch::plan_options::{PlanOptions, SiteOptions};

/// Behind the help of the command.
pub const EXAMPLES: &str = "\
Examples:
  gradwire switch apply --netns sw --ports p0,p1 job.toml single:2@100M
  gradwire switch apply --netns leaf0 --existing --router --ports h0,h1,s0,s1 job.toml fabric.toml
  gradwire switch apply --netns sw --export >counters.txt
  gradwire switch apply --netns sw --remove

The command makes a namespace, and in it a bridge with the ports of the switch. Each port is an end
of a veth pair; the other end, the port's name with -o behind it, stays where the command runs: move
it to the place of a host. Names of ports have at most 13 letters. With --existing, namespace and
ports exist already. Ports get the fabric's rate, by HTB, and the queues of the plan. Where the
kernel has no prio or no red, an eBPF program takes their place, and the command says so.
`gradwire switch verify --counters` reads the output of --export, with the target that was printed
at the set-up.";

/// Options of `gradwire switch apply`.
#[derive(Args, Clone, Debug)]
pub struct Apply {
    /// Name of the network namespace.
    #[arg(long, value_name = "NAME")]
    pub netns: String,
    /// The job file, or `default` for the default job.
    #[arg(value_name = "JOB", required_unless_present_any = ["remove", "export"])]
    pub job: Option<String>,
    /// The fabric: fabric.toml, or a shape such as single:2@100M.
    #[arg(value_name = "FABRIC", required_unless_present_any = ["remove", "export"])]
    pub fabric: Option<String>,
    /// Which switch, and what it is planned for.
    #[command(flatten)]
    pub site: SiteOptions,
    /// Route between ports instead of bridging them; addresses and routes are yours.
    #[arg(long)]
    pub router: bool,
    /// Namespace and ports exist: only queues, and bridge or routing, are set up.
    #[arg(long)]
    pub existing: bool,
    /// The implementation; `auto` asks the kernel.
    #[arg(long, value_enum, default_value = "auto", value_name = "FORM")]
    pub form: WantedForm,
    /// Print configuration and counters of a namespace that was set up.
    #[arg(long, conflicts_with_all = ["remove", "job"])]
    pub export: bool,
    /// Remove everything that was set up.
    #[arg(long, conflicts_with = "job")]
    pub remove: bool,
}

/// The implementation.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum WantedForm {
    /// `lab` where the kernel has prio and red, else `bpf`.
    Auto,
    /// prio and red below HTB.
    Lab,
    /// HTB and an eBPF program.
    Bpf,
}

impl Apply {
    /// The plan that is asked for, on this platform.
    pub fn plan(&self, platform: &str) -> PlanOptions {
        PlanOptions {
            platform: platform.to_owned(),
            job: self.job.clone().unwrap_or_default(),
            fabric: self.fabric.clone().unwrap_or_default(),
            site: self.site.clone(),
            trim: None,
            json: false,
        }
    }
}
