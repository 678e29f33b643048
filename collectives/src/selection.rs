//! Which algorithm an operation takes. Every rank decides alike: from the job, the group and the
//! operation, which are equal everywhere.

use gradwire_protocol::job::{Algorithm, Job};
use gradwire_protocol::units::ByteCount;

use crate::buffer::Place;
use crate::direct;
use crate::operation::{Collective, Operation};
use crate::plan::{Cut, Plan, Seat};
use crate::{all_gather, barrier, broadcast, point_to_point, ring};

/// Up to this size the two steps of direct beat the fewer peers of a ring.
const DIRECT_BYTES_MAX: usize = 256 << 10;

/// What of a job decides about algorithms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Preference {
    algorithm: Algorithm,
    chunk: ByteCount,
    min_lossy: ByteCount,
}

impl Preference {
    /// The preference of a job.
    pub(crate) fn of(job: &Job) -> Self {
        Self {
            algorithm: job.collectives.algorithm,
            chunk: job.collectives.chunk,
            min_lossy: job.loss.min_message,
        }
    }

    /// Shorter messages are lossless whatever the tolerance.
    pub(crate) fn min_lossy_bytes(&self) -> usize {
        self.min_lossy.as_usize()
    }

    /// The messages of a valid operation in a group of two or more.
    pub(crate) fn plan(&self, operation: &Operation, seat: Seat<'_>) -> Plan {
        let bytes = operation.buffer.len();
        let element_bytes = operation.dtype.bytes();
        let seat_of = |rank| {
            let at = seat.ranks.iter().position(|&other| other == rank);
            at.expect("validated: the peer is in the group")
        };
        match operation.collective {
            Collective::AllReduce if self.takes_ring(operation, seat.world()) => {
                let chunks_max = ring::chunks_max(seat.world());
                ring::all_reduce(
                    seat,
                    &Cut::new(bytes, element_bytes, self.chunk, chunks_max),
                )
            }
            Collective::AllReduce => {
                let cut = Cut::new(bytes, element_bytes, self.chunk, direct::CHUNKS_MAX);
                direct::all_reduce(seat, &cut)
            }
            Collective::ReduceScatter => {
                let shard = ByteCount::new(self.chunk.get().div_ceil(seat.world() as u64));
                let cut = Cut::new(bytes, element_bytes, shard, direct::CHUNKS_MAX);
                direct::reduce_scatter(seat, &cut, bytes)
            }
            Collective::AllGather => {
                let in_place = operation.input.is_none();
                let source = if in_place {
                    Place::Buffer
                } else {
                    Place::Input
                };
                all_gather::all_gather(seat, bytes / seat.world(), source)
            }
            Collective::Broadcast { root } => broadcast::broadcast(seat, bytes, seat_of(root)),
            Collective::Barrier => barrier::barrier(seat),
            Collective::Send { to } => point_to_point::send(to, bytes),
            Collective::Receive { from } => point_to_point::receive(from, bytes),
        }
    }

    fn takes_ring(&self, operation: &Operation, world: usize) -> bool {
        let bytes = operation.buffer.len();
        let lossy = operation.may_lose() && bytes >= self.min_lossy_bytes();
        let wanted = match self.algorithm {
            Algorithm::Direct => false,
            Algorithm::Ring => true,
            Algorithm::Auto => world > 2 && !lossy && bytes > DIRECT_BYTES_MAX,
        };
        wanted && ring::chunks_max(world) > 0
    }
}
