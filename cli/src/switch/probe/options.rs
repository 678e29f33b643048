//! The options of `gradwire switch probe`. Doc comments on options are the help text.

use std::net::IpAddr;

use clap::{ArgGroup, Args};
use gradwire_fabric::settings;
use gradwire_protocol::units::{Rate, Share, Span};

use gradwire_lab::values::{share, span};
use gradwire_report::printing::OutputForm;

/// Behind the help of the command.
pub const EXAMPLES: &str = "\
Examples:
  gradwire switch probe --serve --bind 10.0.0.2                   on one host, and
  gradwire switch probe --peer 10.0.0.2:29410 job.toml            on another
  gradwire switch probe --peer 10.0.0.2:29410 job.toml --rate 1G,20G,30G,60G --length 5s --json
  gradwire switch probe --simulate fabric.toml job.toml --rate 1G,20G,30G,60G

The probe sends packets of every tag of the job at fixed mean rates, without reacting to losses:
control, and protected (ECT) and droppable (not-ECT) packets of each data class. Queues show their
rules only when the rates together exceed the path's; then all other traffic there suffers, too.
Gaps between packets are exponential and come from --seed; --simulate sends the same packets from
the first host of a simulated fabric to the last.
  sent, recv   packets; those not received are lost
  CE           packets that came with a mark
  tag          packets that came with another DSCP, or without the ECT they were sent with
  p50, p99     one-way delay above the least of all, in microseconds, in steps of a 32nd

Findings are right, unseen (no traffic that could tell), odd or wrong; wrong makes the exit code 1.
A server answers only its own protocol, never with more bytes than it was sent; the server of
`gradwire doctor --serve` is the same.";

/// Options of `gradwire switch probe`.
#[derive(Args, Clone, Debug)]
#[command(group(ArgGroup::new("side").required(true).args(["serve", "peer", "simulate"])))]
pub struct ProbeOptions {
    /// Count the packets of other hosts.
    #[arg(long)]
    pub serve: bool,
    /// Send to the host that serves: host:port.
    #[arg(long, value_name = "HOST:PORT")]
    pub peer: Option<String>,
    /// Send through a simulated fabric: fabric.toml, or a shape such as single:2@100G.
    #[arg(long, value_name = "FABRIC")]
    pub simulate: Option<String>,
    /// The job file, or `default` for the default job.
    #[arg(
        value_name = "JOB",
        default_value = "default",
        conflicts_with = "serve"
    )]
    pub job: String,
    /// Local address to serve on or to send from.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "simulate")]
    pub bind: Option<IpAddr>,
    /// Port to serve on; 0 takes any free one.
    #[arg(long, default_value_t = 29_410, requires = "serve")]
    pub port: u16,
    /// Rate of the payload of each class; one for all, or one for each with commas, control first.
    /// 0 leaves a class out.
    #[arg(
        long,
        default_value = "10M",
        value_delimiter = ',',
        value_parser = rate,
        value_name = "RATES"
    )]
    pub rate: Vec<Rate>,
    /// Share of a data class's rate that is droppable.
    #[arg(long, default_value = "50%", value_parser = share, value_name = "SHARE")]
    pub droppable: Share,
    /// For how long packets are sent; at most an hour.
    #[arg(long, default_value = "3s", value_parser = length, value_name = "SPAN")]
    pub length: Span,
    /// UDP payload of each packet.
    #[arg(
        long,
        default_value_t = 1_000,
        value_parser = clap::value_parser!(u32).range(68..=65_000),
        value_name = "BYTES"
    )]
    pub payload: u32,
    /// Seed of the gaps between packets.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Round trip for which the simulated switches' thresholds are computed, as in `switch render`.
    #[arg(long, value_parser = span, requires = "simulate", value_name = "SPAN")]
    pub rtt: Option<Span>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

impl ProbeOptions {
    /// How results are shown.
    pub fn form(&self) -> OutputForm {
        self.json.into()
    }
}

fn rate(text: &str) -> Result<Rate, String> {
    let none = (text.trim() == "0").then(Rate::default);
    let rate = none.or_else(|| settings::rate(text));
    rate.ok_or_else(|| format!("allowed are 0, and {}", settings::RATE_ALLOWED))
}

fn length(text: &str) -> Result<Span, String> {
    let allowed = Span::from_millis(1)..=Span::from_millis(3_600_000);
    let given = span(text).ok().filter(|given| allowed.contains(given));
    given.ok_or_else(|| "allowed are 1ms to 3600s, with s, ms or us".to_owned())
}
