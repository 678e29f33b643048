//! The options of `gradwire top`. Doc comments on options are the help text.

use clap::Args;
use gradwire_protocol::job::notation;
use gradwire_protocol::units::Span;

/// Shown below the options.
pub const TOP_EXAMPLES: &str = "\
Examples (the job says `port = 9400` in its [metrics]):
  gradwire top
  gradwire top --host 10.0.0.1 --host 10.0.0.2 --port 9400
  gradwire top --once --json

Other hosts answer when the job says `bind = \"any\"` too.
Columns (rates are those of the last refresh; rtt is since the start, of ranks their worst peer's):
  out, in    megabytes (10^6 bytes) per second, headers included
  lost       of a rank, share of the bytes that might be lost; of a peer, of all that came from it
  tol        share that the tolerance allows
  repair/s   segments sent again
  mark/s     packets that came with CE
  rtt50/99   round trip that half, and 99 in 100, do not exceed, in microseconds
  kdrops     packets that this host's kernel dropped, since the start
  ops/s      operations that ended
  flight     kilobytes (10^3 bytes) on their way to the peer, and the window that bounds them

Keys: q quits, up and down choose a rank, left and right a column, s sorts by it, again the other
way round.";

/// Options of `gradwire top`.
#[derive(Args, Clone, Debug)]
pub struct Top {
    /// The job's `metrics.port`: this port and up to 63 above it are asked on each host.
    #[arg(long, default_value_t = 9400, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// A host of the job, by name or address; can be given several times.
    #[arg(long, default_value = "127.0.0.1", value_name = "HOST")]
    pub host: Vec<String>,
    /// Time from one refresh to the next.
    #[arg(long, default_value = "1s", value_parser = interval, value_name = "SPAN")]
    pub interval: Span,
    /// Print one table, of one interval, and end; the default when the output is not a terminal.
    #[arg(long)]
    pub once: bool,
    /// Print one JSON object a line and refresh, until the last rank is gone.
    #[arg(long)]
    pub json: bool,
}

fn interval(text: &str) -> Result<Span, String> {
    let least = Span::from_millis(100);
    let given = notation::span(text).filter(|given| *given >= least);
    given.ok_or_else(|| "allowed is 100ms or more, with s, ms, us or ns".to_owned())
}
