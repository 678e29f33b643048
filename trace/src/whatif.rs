//! A question: the same training with another network, job or rank.
//!
//! Loss is a model: a lost packet that the tolerance does not bear takes its place on the link
//! again, and the message that it is of takes a round trip longer.

use gradwire_fabric::settings;
use gradwire_netsim::fluid::FluidExtent;
use gradwire_protocol::job::notation;
use gradwire_protocol::priority::SendOrder;
use gradwire_protocol::units::{ByteCount, Rate, Share, Span};
use gradwire_workloads::check::WorkloadError;
use gradwire_workloads::workload::{Work, Workload};

use crate::buckets::rebucketed;
use crate::replay::Scene;

/// Payload of a packet, by which a message's chance of a loss is estimated.
const PACKET_BYTES: f64 = 4096.0;

/// The known questions, for help and errors.
pub const KNOWN: &str = "bandwidth=25G or bandwidth=x2, latency=10us, loss=1%, tolerance=1%, \
    chunk=1MiB, credit=4MiB, bucket=50MiB, scheduler=on or off, slow=RANK:1.5, beside=2";

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub enum WhatIf {
    /// Links of this rate.
    Bandwidth(Rate),
    /// Links this many times as fast.
    Faster(f64),
    /// One way takes this long.
    Latency(Span),
    /// This share of packets is lost.
    Loss(Share),
    /// This share may be missing.
    Tolerance(Share),
    /// `collectives.chunk`.
    Chunk(ByteCount),
    /// `collectives.credit`.
    Credit(ByteCount),
    /// Buckets of this size: fusion and partition.
    Bucket(ByteCount),
    /// `collectives.order`.
    Order(SendOrder),
    /// A rank that computes this many times as long.
    Slow(u32, f64),
    /// This many such jobs on the same ranks at once, each with its own processors.
    Beside(u32),
}

/// A question that cannot be asked.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum WhatIfError {
    /// Not a known one.
    #[error("`{given}`: known are {KNOWN}")]
    Unknown {
        /// The text.
        given: String,
    },
    /// A rank that is not there.
    #[error("slow={rank}: the run has ranks 0 to {last}")]
    Rank {
        /// The given rank.
        rank: u32,
        /// The last one.
        last: u32,
    },
    /// Buckets that the ranks would cut apart from each other.
    #[error("bucket={bytes}: {error}; the ranks have not recorded the same layers: record again")]
    Buckets {
        /// The size.
        bytes: ByteCount,
        /// The first task that does not fit.
        error: WorkloadError,
    },
}

impl WhatIf {
    /// Reads questions with commas between them.
    ///
    /// # Errors
    /// [`WhatIfError::Unknown`] names the one that is wrong, and those that are known.
    pub fn list(given: &str) -> Result<Vec<Self>, WhatIfError> {
        let texts = given
            .split(',')
            .map(str::trim)
            .filter(|text| !text.is_empty());
        texts.map(Self::one).collect()
    }

    fn one(given: &str) -> Result<Self, WhatIfError> {
        let unknown = || WhatIfError::Unknown {
            given: given.to_owned(),
        };
        let (key, value) = given.split_once('=').ok_or_else(unknown)?;
        let factor = |text: &str| {
            text.parse()
                .ok()
                .filter(|times| (0.01..=100.0).contains(times))
        };
        let read = match key.trim() {
            "bandwidth" => match value.strip_prefix('x') {
                Some(times) => factor(times).map(Self::Faster),
                None => settings::rate(value).map(Self::Bandwidth),
            },
            "latency" => notation::span(value).map(Self::Latency),
            "loss" => notation::share(value).map(Self::Loss),
            "tolerance" => notation::share(value).map(Self::Tolerance),
            "chunk" => notation::size(value).map(Self::Chunk),
            "credit" => notation::size(value).map(Self::Credit),
            "bucket" => notation::size(value).map(Self::Bucket),
            "scheduler" if value == "on" => Some(Self::Order(SendOrder::Layers)),
            "scheduler" if value == "off" => Some(Self::Order(SendOrder::Arrival)),
            "slow" => value
                .split_once(':')
                .and_then(|(rank, times)| Some(Self::Slow(rank.parse().ok()?, factor(times)?))),
            "beside" => value
                .parse()
                .ok()
                .filter(|jobs| (2..=8).contains(jobs))
                .map(Self::Beside),
            _ => None,
        };
        read.ok_or_else(unknown)
    }
}

/// A scene with changes.
///
/// # Errors
/// [`WhatIfError::Rank`] when there is no such rank, [`WhatIfError::Buckets`] when ranks would not
/// cut their gradients into the same buckets.
pub fn changed(scene: &Scene, changes: &[WhatIf]) -> Result<Scene, WhatIfError> {
    let mut scene = scene.clone();
    let (mut lost, mut tolerated) = (0.0, 0.0);
    for change in changes {
        match *change {
            WhatIf::Bandwidth(rate) => scale_to(&mut scene, rate),
            WhatIf::Faster(times) => scene.network.speed_up(times),
            WhatIf::Latency(way) => scene.network.one_way = way,
            WhatIf::Loss(share) => lost = share.get(),
            WhatIf::Tolerance(share) => tolerated = share.get(),
            WhatIf::Chunk(chunk) => scene.job.collectives.chunk = chunk,
            WhatIf::Credit(credit) => scene.job.collectives.credit = credit,
            WhatIf::Order(order) => scene.job.collectives.order = order,
            WhatIf::Bucket(bytes) => {
                scene.workload = rebucketed(&scene.workload, bytes.get());
                // Ranks for which one stands cut their gradients as it does.
                if scene.extent == FluidExtent::Whole {
                    let checked = scene.workload.check(scene.network.links.len() as u32);
                    checked.map_err(|error| WhatIfError::Buckets { bytes, error })?;
                }
            }
            WhatIf::Slow(rank, times) => slow(&mut scene.workload, rank, times)?,
            WhatIf::Beside(jobs) => {
                let one = scene.workload.clone();
                for _ in 1..jobs {
                    let both = scene.workload.beside(one.clone());
                    scene.workload = both.expect("both have the same algorithm");
                }
            }
        }
    }
    lose(&mut scene, lost, tolerated);
    Ok(scene)
}

/// The fastest link gets this rate, all others as many times theirs.
fn scale_to(scene: &mut Scene, rate: Rate) {
    let used = scene.network.nominal.as_bits_per_second() as f64;
    scene
        .network
        .speed_up(rate.as_bits_per_second() as f64 / used);
}

fn lose(scene: &mut Scene, lost: f64, tolerated: f64) {
    let repaired = (lost - tolerated).max(0.0);
    if repaired > 0.0 {
        scene.network.speed_up(1.0 - repaired);
        let packets = scene.job.collectives.chunk.get() as f64 / PACKET_BYTES;
        let waits = 1.0 - (1.0 - repaired).powf(packets);
        let way = scene.network.one_way.as_picos() as f64;
        scene.network.one_way = Span::from_picos((way * (1.0 + 2.0 * waits)) as u64);
    }
}

fn slow(workload: &mut Workload, rank: u32, times: f64) -> Result<(), WhatIfError> {
    let last = workload.programs.len() as u32 - 1;
    let mut programs = workload.programs.iter_mut();
    let program = programs.find(|program| program.host == rank);
    let program = program.ok_or(WhatIfError::Rank { rank, last })?;
    for task in &mut program.tasks {
        if let Work::Compute { span, .. } = &mut task.work {
            *span = Span::from_picos((span.as_picos() as f64 * times) as u64);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_read_and_others_named() {
        let read = WhatIf::list("bandwidth=25G, credit=4MiB,scheduler=off,slow=1:1.5");
        let wanted = [
            WhatIf::Bandwidth(Rate::from_gbps(25)),
            WhatIf::Credit(ByteCount::mib(4)),
            WhatIf::Order(SendOrder::Arrival),
            WhatIf::Slow(1, 1.5),
        ];
        assert_eq!(read, Ok(wanted.to_vec()));
        for wrong in [
            "bandwith=25G",
            "bandwidth=fast",
            "scheduler=maybe",
            "slow=1",
            "beside=1",
        ] {
            let error = WhatIf::list(wrong).expect_err("it is wrong").to_string();
            assert!(
                error.starts_with(&format!("`{wrong}`: known are bandwidth=25G")),
                "{error}"
            );
        }
    }
}
