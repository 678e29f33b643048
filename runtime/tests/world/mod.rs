//! Ranks of one process over loopback, and their most frequent operation: a sum over all of them.

use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::Duration;

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_collectives::operation::{Collective, Group, Layers, LossTerms, Operation};
use gradwire_protocol::job::Job;
use gradwire_protocol::units::{Rank, Step};
use gradwire_runtime::{LocalRank, OpenRank, Opening};

pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A rank that has not met the others.
pub(crate) fn open(rank: u16, world_size: u16, job: &Job) -> OpenRank {
    let opened = OpenRank::open(Opening {
        job: job.clone(),
        rank: Rank(rank),
        world_size,
        bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
        port: 0,
        token: "secret".to_owned(),
        certificates: None,
    });
    opened.expect("loopback has ports")
}

/// Runs `body` on each of `world_size` joined ranks at the same time.
pub(crate) fn on_ranks(world_size: u16, job: &Job, body: impl Fn(LocalRank) + Sync) {
    let ranks: Vec<OpenRank> = (0..world_size)
        .map(|rank| open(rank, world_size, job))
        .collect();
    let rendezvous = ranks[0].rendezvous().expect("rank 0 listens").to_string();
    thread::scope(|scope| {
        for rank in ranks {
            let (rendezvous, body) = (&rendezvous, &body);
            scope.spawn(move || body(rank.join(rendezvous, PATIENCE).expect("equal jobs")));
        }
    });
}

/// A lossless sum of 32-bit floats over all ranks.
pub(crate) fn sum(world_size: u16, sequence: u32, bytes: Vec<u8>) -> Operation {
    Operation {
        group: Group {
            id: 0,
            ranks: (0..world_size).map(Rank).collect(),
        },
        sequence,
        collective: Collective::AllReduce,
        dtype: DType::F32,
        op: ReduceOp::Sum,
        buffer: Buffer::Owned(bytes),
        input: None,
        splits: None,
        loss: LossTerms::NONE,
        step: Step(0),
        layers: Layers::default(),
        tensor_key: 1,
        deadline: None,
    }
}
