//! What a collective costs: its time when nothing else is on the links, by a replay of it alone.
//!
//! The links are those of a fabric's hosts, less headers and framing; the core carries everything.
//! Each collective is one task on every rank, run by `gradwire_netsim::fluid` with the algorithm,
//! chunks and credit of the job, as a whole run is. The time of a very large one lies on the line
//! through two smaller ones.

use std::collections::BTreeMap;

use gradwire_fabric::fitting::round_trip;
use gradwire_fabric::topology::Fabric;
use gradwire_netsim::fluid::{self, FluidError, FluidExtent, FluidLink, FluidSetup};
use gradwire_protocol::job::{Job, Mtu};
use gradwire_protocol::segment::segment_bytes;
use gradwire_protocol::units::{ByteCount, Instant, Rate, Span};
use gradwire_workloads::workload::{CollectiveKind, Program, Task, Work, Workload};

use crate::network::TracedNetwork;

/// Bytes times other ranks, on which the cost of a replay depends: of collectives above this, only
/// a part is replayed.
const REPLAYED_BYTES: u64 = 2 << 30;

/// The times of collectives among all hosts of a fabric.
#[derive(Clone, Debug)]
pub struct CollectiveCosts {
    job: Job,
    links: Vec<FluidLink>,
    one_way: Span,
    known: BTreeMap<(CollectiveKind, u64), Span>,
}

impl CollectiveCosts {
    /// The costs on a fabric with a job that is fitted to it
    /// ([`fitting::fitted`](gradwire_fabric::fitting::fitted)).
    pub fn new(fabric: &Fabric, job: &Job) -> Self {
        let payload = payload_rate(fabric, job);
        let link = FluidLink {
            up: payload,
            down: payload,
        };
        Self {
            job: job.clone(),
            links: vec![link; fabric.hosts as usize],
            one_way: round_trip(fabric).divided(2),
            known: BTreeMap::new(),
        }
    }

    /// The links on which they are replayed.
    pub fn network(&self) -> TracedNetwork {
        let payload = self.links.first().map(|link| link.up);
        TracedNetwork {
            links: self.links.clone(),
            busiest: self.links.clone(),
            nominal: payload.unwrap_or_default(),
            one_way: self.one_way,
        }
    }

    /// The time of a collective from its start on all ranks until the last one has ended; bytes
    /// as those of [`Work::Collective`].
    ///
    /// # Errors
    /// [`FluidError`] when it has too many messages.
    pub fn span(&mut self, kind: CollectiveKind, bytes: u64) -> Result<Span, FluidError> {
        let key = (kind, bytes);
        if let Some(&span) = self.known.get(&key) {
            return Ok(span);
        }
        let others = self.links.len().saturating_sub(1).max(1) as u64;
        let large = (REPLAYED_BYTES / others).next_power_of_two();
        let span = match bytes > large {
            true => {
                let (most, half) = (self.span(kind, large)?, self.span(kind, large / 2)?);
                let slope = most.beyond(half).as_secs_f64() / (large / 2) as f64;
                let beyond = slope * (bytes - large) as f64;
                most + Span::from_picos((beyond * 1e12).round() as u64)
            }
            false => self.replayed(kind, bytes)?,
        };
        self.known.insert(key, span);
        Ok(span)
    }

    fn replayed(&self, kind: CollectiveKind, bytes: u64) -> Result<Span, FluidError> {
        let hosts = 0..self.links.len() as u32;
        let work = Work::Collective {
            kind,
            group: 0,
            bytes: ByteCount::new(bytes),
            layers: Vec::new(),
        };
        let first = Program {
            host: 0,
            tasks: vec![Task::new("", work, Vec::new())],
        };
        let workload = Workload {
            programs: vec![first],
            groups: vec![hosts.collect()],
            ..Workload::default()
        };
        let outcome = fluid::run(&FluidSetup {
            workload: &workload,
            job: &self.job,
            links: self.links.clone(),
            one_way: self.one_way,
            extent: FluidExtent::First,
        })?;
        let ends = outcome.tasks.iter().filter_map(|task| task.ended);
        let last = ends.max().unwrap_or(Instant::START);
        Ok(last.since(Instant::START))
    }
}

/// The payload that a host's link carries in full packets.
fn payload_rate(fabric: &Fabric, job: &Job) -> Rate {
    let rate = fabric.host_rate();
    let Mtu::Bytes(mtu) = job.transport.mtu else {
        return rate;
    };
    let overhead = job.packet_overhead();
    let payload = segment_bytes(mtu, overhead);
    let share = f64::from(payload) / f64::from(payload + overhead + fabric.framing);
    let payload = rate.as_bits_per_second() as f64 * share;
    Rate::from_bits_per_second(payload as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use gradwire_fabric::fitting::{SendPattern, fitted};

    use super::*;

    fn costs(hosts: u32) -> CollectiveCosts {
        let fabric = Fabric::from_shape(&format!("single:{hosts}@100G")).expect("a shape");
        let job = fitted(
            &Job::default(),
            &BTreeSet::new(),
            &fabric,
            SendPattern::InTurns,
        );
        CollectiveCosts::new(&fabric, &job)
    }

    #[test]
    fn large_collectives_take_what_their_bytes_take() {
        let bytes = 256 << 20;
        for hosts in [4, 8] {
            let mut costs = costs(hosts);
            let wire = costs.links[0]
                .up
                .transmit_time(ByteCount::new(bytes))
                .as_secs_f64();
            let others = f64::from(hosts - 1) / f64::from(hosts);
            for (kind, times) in [
                (CollectiveKind::AllReduce, 2.0 * others),
                (CollectiveKind::ReduceScatter, others),
                (CollectiveKind::AllGather, others),
                (CollectiveKind::AllToAll, others),
            ] {
                let span = costs.span(kind, bytes).expect("it is small").as_secs_f64();
                let ratio = span / (wire * times);
                assert!((0.99..1.1).contains(&ratio), "{kind} on {hosts}: {ratio}");
            }
        }
    }

    #[test]
    fn a_very_large_collective_lies_on_the_line_of_smaller_ones() {
        let mut costs = costs(4);
        for bytes in [1 << 30, 3 << 30] {
            let kind = CollectiveKind::AllReduce;
            let line = costs.span(kind, bytes).expect("it is small").as_secs_f64();
            let whole = costs
                .replayed(kind, bytes)
                .expect("it is small")
                .as_secs_f64();
            assert!((line / whole - 1.0).abs() < 0.01, "{line} for {whole}");
        }
    }

    #[test]
    fn a_collective_is_replayed_once() {
        let mut costs = costs(4);
        let first = costs.span(CollectiveKind::AllGather, 1 << 20);
        assert_eq!(costs.known.len(), 1);
        assert_eq!(costs.span(CollectiveKind::AllGather, 1 << 20), first);
        assert_eq!(costs.known.len(), 1);
    }
}
