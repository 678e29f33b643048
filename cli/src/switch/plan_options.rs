//! The options that say which plan is made. Doc comments on options are the help text.

use clap::Args;
use gradwire_protocol::units::{ByteCount, Dscp, Span};

use gradwire_lab::values::{size, span};

/// Which plan is made: options that all commands share.
#[derive(Args, Clone, Debug)]
pub struct PlanOptions {
    /// The platform, and its version behind a colon: sonic, nvue:5.14; `gradwire switch platforms`
    /// lists them.
    #[arg(long, value_name = "PLATFORM")]
    pub platform: String,
    /// The job file, or `default` for the default job.
    #[arg(value_name = "JOB")]
    pub job: String,
    /// The fabric: fabric.toml, or a shape such as leaf-spine:9x16x4@100G.
    #[arg(value_name = "FABRIC")]
    pub fabric: String,
    /// Which switch, and what it is planned for.
    #[command(flatten)]
    pub site: SiteOptions,
    /// Trim packets that a full data queue would drop to this many bytes, where switches can.
    #[arg(long, value_parser = size, value_name = "BYTES")]
    pub trim: Option<ByteCount>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Which switch, and what it is planned for.
#[derive(Args, Clone, Debug)]
pub struct SiteOptions {
    /// The switch of the fabric, by name; without it, the first.
    #[arg(long, value_name = "NAME")]
    pub switch: Option<String>,
    /// Names of its ports, in the order of its links in the fabric: swp1-32, or with commas.
    /// Fewer than it has links: only those. Without it, the platform's own, counted up.
    #[arg(long, value_name = "PORTS")]
    pub ports: Option<String>,
    /// Round trip without queues, for which thresholds are computed; without it, the fabric's,
    /// which does not include the time that hosts take.
    #[arg(long, value_parser = span, value_name = "SPAN")]
    pub rtt: Option<Span>,
    /// DSCPs of others that go to the highest queue, and that no class of the job may have.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "46,48,56",
        value_parser = dscp,
        value_name = "DSCPS"
    )]
    pub reserve: Vec<Dscp>,
}

/// Reads a DSCP.
fn dscp(text: &str) -> Result<Dscp, String> {
    let number = text.trim().parse().ok().filter(|number| *number < 64);
    let dscp = number.map(Dscp);
    dscp.ok_or_else(|| "allowed are whole numbers from 0 to 63, with commas".to_owned())
}
