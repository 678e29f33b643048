//! Flows that arrive at random, with sizes drawn from a distribution.
//!
//! Arrivals are a Poisson process: gaps between flows are exponential, pairs of hosts are drawn
//! evenly. The load is the share of the sum of all host link rates that the flows' bytes take, as
//! in the traffic generator of HPCC (Li et al., SIGCOMM 2019).

use gradwire_protocol::job::notation;
use gradwire_protocol::units::{ByteCount, Instant, Share, Span};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::fault::TextError;
use crate::words::{did_you_mean, lines};
use crate::workload::{Flow, Hosts, Start, Workload};

/// Flow sizes: a cumulative distribution, linear between its points.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeDistribution {
    /// Bytes, and the share of flows of at most that size; both never fall.
    points: Vec<(f64, f64)>,
}

/// Flows that arrive at random.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrivals {
    /// Their sizes.
    pub sizes: SizeDistribution,
    /// Share of the sum of all host link rates.
    pub load: Share,
    /// The time during which flows begin.
    pub length: Span,
}

/// Errors of arrivals and of size distributions.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ArrivalsError {
    /// The text does not have the needed form.
    #[error("`{given}`: {what}; write it like `poisson:websearch@0.6:10ms`")]
    Form {
        /// The given text.
        given: String,
        /// The fault.
        what: String,
    },
    /// The distribution is unknown.
    #[error(
        "no distribution `{given}`{nearest}; known are {}, or give a file",
        SizeDistribution::names()
    )]
    Unknown {
        /// The name.
        given: String,
        /// A suggestion, or an empty text.
        nearest: String,
    },
    /// There are too few hosts, or none has a rate.
    #[error("arrivals need two hosts or more with links; there are {hosts}")]
    TooFewHosts {
        /// Their number.
        hosts: u32,
    },
    /// There are more flows than a run can hold.
    #[error(
        "about {flows} flows would arrive, which take {} or more; choose a load or a time for at \
         most {most}",
        DrawLimits::memory(*flows)
    )]
    TooMany {
        /// The expected number.
        flows: u64,
        /// The largest allowed number.
        most: u64,
    },
    /// The points of a distribution are faulty.
    #[error(transparent)]
    Points(#[from] TextError),
}

const WEB_SEARCH: &str = include_str!("../data/workloads/websearch.cdf");
const HADOOP: &str = include_str!("../data/workloads/hadoop.cdf");
const KNOWN: [(&str, &str); 2] = [("websearch", WEB_SEARCH), ("hadoop", HADOOP)];
/// Bytes that a flow takes at least: its line, its start and its two ends.
pub(crate) const FLOW_MEMORY: u64 = 200;

/// The flows that are drawn at most.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DrawLimits {
    /// How many.
    pub flows: u64,
    /// Flows that would begin later are left out.
    pub until: Span,
}

impl Default for DrawLimits {
    fn default() -> Self {
        Self {
            flows: 100_000_000,
            until: Span::from_picos(u64::MAX),
        }
    }
}

impl DrawLimits {
    /// The memory that this many flows take, in words.
    pub(crate) fn memory(flows: u64) -> String {
        match flows as f64 * FLOW_MEMORY as f64 {
            bytes if bytes < 1e9 => format!("{:.0} MB", bytes / 1e6),
            bytes => format!("{:.1} GB", bytes / 1e9),
        }
    }
}

impl SizeDistribution {
    /// Returns the distribution of this name: `websearch` or `hadoop`.
    ///
    /// # Errors
    /// [`ArrivalsError::Unknown`] names the known ones.
    pub fn named(name: &str) -> Result<Self, ArrivalsError> {
        let known = KNOWN.iter().find(|(known, _)| *known == name);
        let Some((_, text)) = known else {
            return Err(ArrivalsError::Unknown {
                given: name.to_owned(),
                nearest: did_you_mean(name, KNOWN.map(|(known, _)| known)),
            });
        };
        Ok(Self::parse(text)?)
    }

    /// Reads a distribution: each line has bytes and the share of flows of at most that size, from
    /// 0 to 1 or from 0 to 100, as public traffic generators write them.
    ///
    /// # Errors
    /// [`TextError`] names the first faulty line.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for line in lines(text) {
            let wrong = |rule: &str| {
                let given = line.words.join(" ");
                TextError::line(line.number, format!("`{given}`: {rule}"))
            };
            let number = |word: &str| {
                word.parse::<f64>()
                    .ok()
                    .filter(|it| (0.0..1e15).contains(it))
            };
            let numbers: Option<Vec<f64>> = line.words.iter().map(|word| number(word)).collect();
            let Some([bytes, share]) = numbers.as_deref() else {
                return Err(wrong(
                    "a line is bytes and the share or percentage up to them",
                ));
            };
            let (bytes, share) = (*bytes, *share);
            if points
                .last()
                .is_some_and(|last| bytes < last.0 || share < last.1)
            {
                return Err(wrong("bytes and shares must not fall from line to line"));
            }
            points.push((bytes, share));
        }
        let (bytes, last) = points.last().copied().unwrap_or((0.0, 0.0));
        if bytes < 1.0 || (last != 1.0 && last != 100.0) {
            let text = format!(
                "the last share is {last}; it must be 1 or 100 (percent), with bytes above 0"
            );
            return Err(TextError::Whole(text));
        }
        points.iter_mut().for_each(|(_, share)| *share /= last);
        Ok(Self { points })
    }

    /// Mean size in bytes.
    pub fn mean(&self) -> f64 {
        let first = self.points[0];
        let pieces = self.points.windows(2).map(|pair| {
            let [(from, below), (to, up_to)] = [pair[0], pair[1]];
            (from + to) / 2.0 * (up_to - below)
        });
        first.0 * first.1 + pieces.sum::<f64>()
    }

    /// Draws a size of at least one byte.
    pub fn draw(&self, rng: &mut impl Rng) -> ByteCount {
        let drawn = rng.random::<f64>();
        let next = self.points.partition_point(|(_, share)| *share <= drawn);
        let (to, up_to) = self.points[next.min(self.points.len() - 1)];
        let (from, below) = next
            .checked_sub(1)
            .map_or((to, 0.0), |last| self.points[last]);
        let bytes = if up_to > below {
            from + (to - from) * (drawn - below) / (up_to - below)
        } else {
            to
        };
        ByteCount::new((bytes.round() as u64).max(1))
    }

    /// Names of the known distributions, with commas.
    pub fn names() -> String {
        KNOWN.map(|(name, _)| name).join(", ")
    }
}

impl Arrivals {
    /// Reads `websearch@0.6:10ms`: a known distribution, a load and a time.
    ///
    /// # Errors
    /// [`ArrivalsError`] names the fault.
    pub fn from_pattern(text: &str) -> Result<Self, ArrivalsError> {
        let (name, load, length) = Self::parts(text)?;
        let sizes = SizeDistribution::named(name)?;
        Ok(Self {
            sizes,
            load,
            length,
        })
    }

    /// Splits a pattern into the name of the distribution (or the path of its file), load and time.
    ///
    /// # Errors
    /// [`ArrivalsError::Form`] names the fault.
    pub fn parts(text: &str) -> Result<(&str, Share, Span), ArrivalsError> {
        let wrong = |what: &str| ArrivalsError::Form {
            given: text.to_owned(),
            what: what.to_owned(),
        };
        let (rest, length) = text
            .rsplit_once(':')
            .ok_or_else(|| wrong("the time for which flows arrive is missing"))?;
        let (name, load) = rest
            .rsplit_once('@')
            .ok_or_else(|| wrong("the load is missing"))?;
        let load = notation::share(load)
            .filter(|load| !load.is_none())
            .ok_or_else(|| wrong("the load must be above 0 and at most 1 (or 100%)"))?;
        let length = notation::span(length)
            .filter(|length| *length > Span::ZERO)
            .ok_or_else(|| wrong("the time needs a unit: s, ms, us, ns or ps"))?;
        Ok((name.trim(), load, length))
    }

    /// Draws the flows that arrive at `hosts`, in order of time, from `seed`.
    ///
    /// # Errors
    /// [`ArrivalsError`] when there are too few hosts or too many flows.
    pub fn flows(&self, hosts: Hosts, seed: u64) -> Result<Workload, ArrivalsError> {
        self.flows_within(hosts, seed, DrawLimits::default())
    }

    /// Like [`Self::flows`], within these limits: flows until then are the same as without them.
    ///
    /// # Errors
    /// [`ArrivalsError`] when there are too few hosts or too many flows.
    pub fn flows_within(
        &self,
        hosts: Hosts,
        seed: u64,
        limits: DrawLimits,
    ) -> Result<Workload, ArrivalsError> {
        let length = self.length.min(limits.until);
        let bits = hosts.rate.as_bits_per_second() as f64 * f64::from(hosts.count);
        if hosts.count < 2 || bits == 0.0 {
            let hosts = hosts.count;
            return Err(ArrivalsError::TooFewHosts { hosts });
        }
        let per_pico = self.load.get() * bits / (8.0 * self.sizes.mean()) * 1e-12;
        let expected = (per_pico * length.as_picos() as f64) as u64;
        if expected > limits.flows {
            let (flows, most) = (expected, limits.flows);
            return Err(ArrivalsError::TooMany { flows, most });
        }
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut flows = Vec::with_capacity(expected as usize);
        let mut at = exponential(&mut rng) / per_pico;
        while at < length.as_picos() as f64 {
            flows.push(self.flow(&mut rng, hosts.count, Instant::from_picos(at as u64)));
            at += exponential(&mut rng) / per_pico;
        }
        Ok(Workload {
            flows,
            ..Workload::default()
        })
    }

    fn flow(&self, rng: &mut impl Rng, hosts: u32, at: Instant) -> Flow {
        let source = rng.random_range(0..hosts);
        let other = rng.random_range(0..hosts - 1);
        let destination = other + u32::from(other >= source);
        let mut flow = Flow::new(source, destination, self.sizes.draw(rng));
        flow.start = Start::At(at);
        flow
    }
}

/// Draws from the exponential distribution of mean 1.
fn exponential(rng: &mut impl Rng) -> f64 {
    -(1.0 - rng.random::<f64>()).ln()
}
