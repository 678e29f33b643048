//! The options of `gradwire perf`. Doc comments on options are the help text.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use gradwire_protocol::units::{ByteCount, Share};
use gradwire_report::printing::OutputForm;

use crate::environment::Environment;
use crate::exit::CommandError;
use crate::job::options::JobOptions;
use crate::perf::table::PerfForm;
use gradwire_lab::crew::place::CrewPlace;
use gradwire_lab::crew::rival::Rival;
use gradwire_lab::values::{share, size};

const EXAMPLES: &str = "\
Examples:
  gradwire perf all-reduce -n 2 -b 4K -e 64M
  gradwire perf all-reduce -n 2 -b 64K -e 16M --drop 20% --tolerance 10% --seed 7
  gradwire perf all-reduce -n 2 -b 4K -e 64M -f 4 --against gloo,openmpi
  gradwire perf all-reduce -n 4 -b 4K -e 64M -f 4 --against gloo --netns --json
  gradwire perf all-reduce -n 4 -b 1M -e 64M --netns --algorithm in-network

Columns (as in nccl-tests; counts are sums over all ranks, warm-up included):
  time       of the slowest rank, in microseconds: median over iterations, then over rounds
  algbw      size / time, in gigabytes (10^9 bytes) per second
  busbw      rate of one link, comparable between world sizes: algbw times 2(n-1)/n for
             all-reduce, (n-1)/n for reduce-scatter, all-gather and all-to-all, 1 for the rest
  lost       segments that stayed missing, within the tolerance
  repaired   segments that were sent again
  sent       segments that were sent, each counted once
  #wrong     results that broke a check; any makes the exit code 1
  ratio      time of the rival / time of gradwire, above 1 where gradwire is faster; with the
             least and the greatest ratio of single rounds

Size is that of the whole tensor: in reduce-scatter, all-gather and all-to-all the sum over all
ranks. send-recv is a ping-pong of ranks 0 and 1; its time is one way.

JSON: one object a line for each size and backend, and a last one with \"summary\" and \"ratios\".
algbw_gb_per_s and busbw_gb_per_s have the unit of the table, gigabytes (10^9 bytes) per second.
CSV: a line of names, then a line for each size and backend, with the values of JSON.";

const LOSS_EXAMPLES: &str = "\
Examples:
  gradwire perf loss -n 2 --bytes 8M
  sudo gradwire perf loss -n 2 --bytes 8M --netns --against gloo
  sudo gradwire perf loss -n 4 --bytes 1M,8M,64M --drops 0%,1% --iterations 300 --netns

Goodput is size / time, as a share of the same ranks' goodput without drops, all in
alternation, five rounds unless --rounds says otherwise. Times are medians; p99 is the 99th
percentile of all timed all-reduces, and their maximum where they are fewer than 100. gradwire's
packets are dropped by its receivers, one by one. Gloo's are dropped by the kernel where they
arrive, by a filter on the link (tc, BPF), which sees a packet as it travels because segmentation
offload is off on that link while Gloo is measured, also without loss.";

const TUNE_EXAMPLES: &str = "\
Examples:
  gradwire perf tune -n 2,4 -b 4K -e 64M -f 4
  gradwire perf tune -n 4 -b 4K -e 64M --out job.toml

Measures each algorithm in alternation. The winner of a size is the simplest algorithm, unless
another one is faster by at least 5 % in the median, and in nine of ten rounds. --out writes
the winners as `collectives.table` and leaves everything else in the file as it is.";

const BUCKETS_EXAMPLES: &str = "\
Example:
  gradwire perf buckets -n 2 --buckets 64 --total 256M

Each bucket is an all-reduce of its own and belongs to one layer. They are submitted from the last
layer to the first, as backward passes do, and all are on their way at once. The table has the
order in which they were complete; beside it the order without knowledge of layers.
Inversions are pairs of layers of which the rear one was complete first; Kendall's tau is 1 when
the front layers finish first, -1 when they finish last.";

const SOAK_EXAMPLES: &str = "\
Example:
  gradwire perf soak -n 2 --bytes 8M --count 10000

Prints the resident set of each rank (VmRSS) after the warm-up and at the end; exit code 1 when one
grew by more than --growth.";

/// The measurements.
#[derive(Debug, Subcommand)]
pub enum PerfCommand {
    /// Sum of 32-bit floats over all ranks, for a range of sizes.
    #[command(after_help = EXAMPLES)]
    AllReduce(CollectiveOptions),
    /// Sum over all ranks; each rank gets a block of it.
    #[command(after_help = EXAMPLES)]
    ReduceScatter(CollectiveOptions),
    /// Every rank gets the blocks of all ranks.
    #[command(after_help = EXAMPLES)]
    AllGather(CollectiveOptions),
    /// Every rank gets the tensor of rank 0.
    #[command(after_help = EXAMPLES)]
    Broadcast(CollectiveOptions),
    /// Rank 0 gets the sum over all ranks.
    #[command(after_help = EXAMPLES)]
    Reduce(CollectiveOptions),
    /// Every rank gets a block of every rank.
    #[command(after_help = EXAMPLES)]
    AllToAll(CollectiveOptions),
    /// All ranks wait for each other; sizes have no effect.
    #[command(after_help = EXAMPLES)]
    Barrier(CollectiveOptions),
    /// Ping-pong between rank 0 and rank 1: latency and bandwidth one way.
    #[command(after_help = EXAMPLES)]
    SendRecv(CollectiveOptions),
    /// Goodput of all-reduces while packets are dropped, as a share of the loss-free goodput.
    #[command(after_help = LOSS_EXAMPLES, mut_arg("drop", |one| one.hide(true)))]
    Loss(LossOptions),
    /// Measure the algorithms of all-reduce, and write the best ones into a job file.
    #[command(
        after_help = TUNE_EXAMPLES,
        long_flag = "tune",
        mut_arg("algorithm", |one| one.hide(true))
    )]
    Tune(TuneOptions),
    /// Run many all-reduces at once: in which order of layers do they complete?
    #[command(after_help = BUCKETS_EXAMPLES)]
    Buckets(BucketsOptions),
    /// Run many all-reduces one after the other: does a rank's memory stay flat?
    #[command(after_help = SOAK_EXAMPLES)]
    Soak(SoakOptions),
}

/// Options of the commands that measure one collective.
#[derive(Args, Clone, Debug)]
pub struct CollectiveOptions {
    /// How many ranks to start, at least 2.
    #[arg(short = 'n', long, default_value_t = 2, value_name = "RANKS")]
    pub ranks: u16,
    /// The sizes.
    #[command(flatten)]
    pub sizes: SizeRange,
    /// Timed iterations per size; by default about half a second's worth, 5 to 200.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000), value_name = "COUNT")]
    pub iterations: Option<u32>,
    /// Minimum iterations per size before the timed ones; small sizes get about 50 ms of them.
    #[arg(long, default_value_t = 3, value_name = "COUNT")]
    pub warmup: u32,
    /// Print comma-separated values instead of the table.
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// Place of the ranks, their job, and the form of the output.
    #[command(flatten)]
    pub ground: GroundOptions,
    /// The rivals.
    #[command(flatten)]
    pub comparison: RivalOptions,
}

impl CollectiveOptions {
    /// How rows are printed.
    pub fn form(&self) -> PerfForm {
        match self.csv {
            true => PerfForm::Csv,
            false => PerfForm::Report(self.ground.form()),
        }
    }
}

/// A range of sizes.
#[derive(Args, Clone, Copy, Debug)]
pub struct SizeRange {
    /// Smallest size: bytes, or with K, M, G (powers of 1,024).
    #[arg(short, long, default_value = "4K", value_parser = size, value_name = "SIZE")]
    pub begin: ByteCount,
    /// Largest size.
    #[arg(short, long, default_value = "64M", value_parser = size, value_name = "SIZE")]
    pub end: ByteCount,
    /// Factor from one size to the next.
    #[arg(short, long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(2..))]
    pub factor: u64,
}

/// Place of the ranks, their job, and the form of the output.
#[derive(Args, Clone, Debug)]
pub struct GroundOptions {
    /// Print JSON, one object a line, instead of the table.
    #[arg(long)]
    pub json: bool,
    /// The job.
    #[command(flatten)]
    pub job: JobOptions,
    /// Run each rank in a network namespace of its own, joined by veth links; needs root.
    #[arg(long, help_heading = "Network")]
    pub netns: bool,
    /// Addresses of this machine, one for each rank, instead of loopback: as for several NICs.
    #[arg(
        long,
        value_delimiter = ',',
        conflicts_with = "netns",
        value_name = "ADDRESS",
        help_heading = "Network"
    )]
    pub bind: Vec<IpAddr>,
    /// MTU of the links of --netns.
    #[arg(
        long,
        default_value_t = 1500,
        value_parser = clap::value_parser!(u32).range(576..=65_535),
        value_name = "BYTES",
        help_heading = "Network"
    )]
    pub link_mtu: u32,
}

impl GroundOptions {
    /// Where the ranks are.
    ///
    /// # Errors
    /// [`CommandError`] when namespaces cannot be made, or there are not as many addresses as
    /// ranks.
    pub fn place(&self, ranks: u16) -> Result<CrewPlace, CommandError> {
        let link_mtu = self.netns.then_some(self.link_mtu);
        let own = self.netns && self.has_own_aggregator();
        Ok(CrewPlace::new(
            &self.bind,
            link_mtu,
            ranks + u16::from(own),
        )?)
    }

    /// Whether the ranks get an aggregator of their own, since the options name the algorithm and
    /// none that runs.
    pub fn has_own_aggregator(&self) -> bool {
        self.job.algorithm.as_deref() == Some("in-network") && self.job.aggregator.is_none()
    }

    /// For whom rows are printed.
    pub fn form(&self) -> OutputForm {
        self.json.into()
    }
}

/// The rivals of a comparison.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Comparison")]
pub struct RivalOptions {
    /// Measure other libraries too, in alternation, and print the ratios.
    #[arg(long, value_delimiter = ',', value_name = "LIBRARIES")]
    pub against: Vec<RivalLibrary>,
    /// Rounds in which all libraries take turns; 1 without --against, else 5.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "COUNT")]
    pub rounds: Option<u32>,
    /// Python that has PyTorch; by default that of VIRTUAL_ENV, else .venv/bin/python, else
    /// python3.
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
}

impl RivalOptions {
    /// The libraries that are measured too.
    pub fn rivals(&self) -> Vec<Rival> {
        let rivals = self.against.iter().map(|library| match library {
            RivalLibrary::Gloo => Rival::Gloo,
            RivalLibrary::Openmpi => Rival::Openmpi,
        });
        rivals.collect()
    }

    /// The Python that runs Gloo's ranks.
    pub fn python(&self) -> PathBuf {
        Environment::read().python(self.python.as_deref())
    }

    /// How many rounds there are.
    pub fn rounds(&self) -> u32 {
        self.rounds
            .unwrap_or(if self.against.is_empty() { 1 } else { 5 })
    }
}

/// A library to compare with.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum RivalLibrary {
    /// Gloo, as PyTorch brings it.
    Gloo,
    /// Open MPI, which uses shared memory between ranks of one host; all-reduce only.
    Openmpi,
}

/// Options of `gradwire perf loss`.
#[derive(Args, Clone, Debug)]
pub struct LossOptions {
    /// How many ranks to start, at least 2.
    #[arg(short = 'n', long, default_value_t = 2, value_name = "RANKS")]
    pub ranks: u16,
    /// Sizes of the tensor.
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = size,
        default_value = "8M",
        value_name = "SIZES"
    )]
    pub bytes: Vec<ByteCount>,
    /// Shares of packets to drop.
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = share,
        default_value = "0.1%,1%,5%",
        value_name = "SHARES"
    )]
    pub drops: Vec<Share>,
    /// Timed all-reduces per size, drop and backend, over all rounds and at least one in each; by
    /// default about half a second's worth, 5 to 200.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000), value_name = "COUNT")]
    pub iterations: Option<u32>,
    /// Place of the ranks, their job, and the form of the output.
    #[command(flatten)]
    pub ground: GroundOptions,
    /// The rivals.
    #[command(flatten)]
    pub comparison: RivalOptions,
}

/// Options of `gradwire perf tune`.
#[derive(Args, Clone, Debug)]
pub struct TuneOptions {
    /// How many ranks to start; several numbers are measured one after the other.
    #[arg(
        short = 'n',
        long,
        value_delimiter = ',',
        default_value = "2",
        value_name = "RANKS"
    )]
    pub ranks: Vec<u16>,
    /// The sizes.
    #[command(flatten)]
    pub sizes: SizeRange,
    /// Rounds in which the algorithms take turns.
    #[arg(
        long,
        default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(3..=1000),
        value_name = "COUNT"
    )]
    pub rounds: u32,
    /// The job file to write the table into; it need not exist.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Place of the ranks, their job, and the form of the output.
    #[command(flatten)]
    pub ground: GroundOptions,
}

/// Options of `gradwire perf buckets`.
#[derive(Args, Clone, Debug)]
pub struct BucketsOptions {
    /// How many ranks to start, at least 2.
    #[arg(short = 'n', long, default_value_t = 2, value_name = "RANKS")]
    pub ranks: u16,
    /// How many all-reduces are in flight at once; each is a layer.
    #[arg(
        long,
        default_value_t = 64,
        value_parser = clap::value_parser!(u16).range(2..=4096),
        value_name = "COUNT"
    )]
    pub buckets: u16,
    /// Size of all of them together.
    #[arg(long, default_value = "256M", value_parser = size, value_name = "SIZE")]
    pub total: ByteCount,
    /// How many rounds; times and orders are medians.
    #[arg(
        long,
        default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=1000),
        value_name = "COUNT"
    )]
    pub rounds: u32,
    /// Place of the ranks, their job, and the form of the output.
    #[command(flatten)]
    pub ground: GroundOptions,
}

/// Options of `gradwire perf soak`.
#[derive(Args, Clone, Debug)]
pub struct SoakOptions {
    /// How many ranks to start, at least 2.
    #[arg(short = 'n', long, default_value_t = 2, value_name = "RANKS")]
    pub ranks: u16,
    /// Size of the tensor.
    #[arg(long, default_value = "8M", value_parser = size, value_name = "SIZE")]
    pub bytes: ByteCount,
    /// How many all-reduces, after those of the warm-up, which are a tenth as many.
    #[arg(
        long,
        default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(10..=100_000_000),
        value_name = "COUNT"
    )]
    pub count: u32,
    /// How much the resident set of a rank may grow.
    #[arg(long, default_value = "1M", value_parser = size, value_name = "SIZE")]
    pub growth: ByteCount,
    /// Place of the ranks, their job, and the form of the output.
    #[command(flatten)]
    pub ground: GroundOptions,
}
