//! Which algorithm an operation takes. Every rank decides alike: from the job, the group and the
//! operation, which are equal everywhere.

use gradwire_protocol::job::{Algorithm, Job};
use gradwire_protocol::units::ByteCount;

use crate::buffer::Place;
use crate::operation::{Collective, Operation};
use crate::plan::{Cut, Plan, Seat};
use crate::{
    all_gather, all_to_all, barrier, broadcast, direct, gather, halving_doubling, point_to_point,
    reduce, ring, scatter,
};

/// Up to this size the one or two steps of direct algorithms beat the fewer peers and bytes of
/// others.
const DIRECT_BYTES_MAX: usize = 256 << 10;

/// Up to this many ranks. In larger groups the 2 (n - 1) messages per rank of a direct all-reduce
/// of a small tensor, each a packet or two and its answer, outweigh the 2 log2 n steps of
/// halving-doubling.
const DIRECT_WORLD_MAX: usize = 64;

/// A ring whose messages are shorter than this spends its 2 (n - 1) steps waiting: 32 KiB are 10
/// microseconds at 25 Gb/s, about one step's latency. Halving-doubling takes 2 log2 n steps for as
/// many bytes, or up to twice as many when n is no power of two.
const RING_SHARD_MIN: usize = 32 << 10;

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
        let block = operation.block_bytes(seat.ranks[seat.me]);
        let cut = |chunks_max| self.cut(operation, bytes, chunks_max);
        let seat_of = |rank| {
            let at = seat.ranks.iter().position(|&other| other == rank);
            at.expect("validated: the peer is in the group")
        };
        let source = if operation.input.is_none() {
            Place::Buffer
        } else {
            Place::Input
        };
        let scattered = seat.world() > 2 && bytes > DIRECT_BYTES_MAX;
        match operation.collective {
            Collective::AllReduce => self.all_reduce(operation, seat),
            Collective::ReduceScatter => self.reduce_scatter(operation, seat),
            Collective::Reduce { root } if scattered => {
                let chunks_max = self.direct_chunks_max(operation, bytes / seat.world());
                direct::reduce(seat, &cut(chunks_max), seat_of(root))
            }
            Collective::Reduce { root } => {
                reduce::reduce(seat, &cut(reduce::CHUNKS_MAX), seat_of(root))
            }
            Collective::Broadcast { root } if scattered => {
                broadcast::scattered(seat, &cut(broadcast::CHUNKS_MAX), seat_of(root))
            }
            Collective::Broadcast { root } => broadcast::direct(seat, bytes, seat_of(root)),
            Collective::AllGather => all_gather::all_gather(seat, block, source),
            Collective::Gather { root } => gather::gather(seat, block, seat_of(root), source),
            Collective::Scatter { root } => scatter::scatter(seat, block, seat_of(root)),
            Collective::AllToAll => all_to_all::all_to_all(seat, block),
            Collective::Barrier => barrier::barrier(seat),
            Collective::Send { to } => point_to_point::send(to, bytes),
            Collective::Receive { from } => point_to_point::receive(from, bytes),
        }
    }

    fn all_reduce(&self, operation: &Operation, seat: Seat<'_>) -> Plan {
        let bytes = operation.buffer.len();
        let cut = |chunks_max| self.cut(operation, bytes, chunks_max);
        match self.reduces_by(operation, seat.world()) {
            Reduction::Direct => {
                let chunks_max = self.direct_chunks_max(operation, bytes / seat.world());
                direct::all_reduce(seat, &cut(chunks_max))
            }
            Reduction::Ring => ring::all_reduce(seat, &cut(ring::chunks_max(seat.world()))),
            Reduction::HalvingDoubling => {
                let chunks_max = halving_doubling::chunks_max(seat.world());
                halving_doubling::all_reduce(seat, &cut(chunks_max))
            }
        }
    }

    /// A chunk of a reduce-scatter is a piece of each rank's block.
    fn reduce_scatter(&self, operation: &Operation, seat: Seat<'_>) -> Plan {
        let block = operation.buffer.len();
        let piece = ByteCount::new(self.chunk.get().div_ceil(seat.world() as u64));
        let cut = |chunks_max| Cut::new(block, operation.dtype.bytes(), piece, chunks_max);
        match self.reduces_by(operation, seat.world()) {
            Reduction::Ring => {
                ring::reduce_scatter(seat, &cut(ring::chunks_max(seat.world())), block)
            }
            Reduction::Direct | Reduction::HalvingDoubling => {
                direct::reduce_scatter(seat, &cut(self.direct_chunks_max(operation, block)), block)
            }
        }
    }

    fn cut(&self, operation: &Operation, bytes: usize, chunks_max: usize) -> Cut {
        Cut::new(bytes, operation.dtype.bytes(), self.chunk, chunks_max)
    }

    /// The most chunks of a direct reduction of which each rank reduces `own` bytes. Where loss is
    /// tolerated, chunks are not so short that their shards would count as lossless messages: in
    /// large groups that would be all of them.
    fn direct_chunks_max(&self, operation: &Operation, own: usize) -> usize {
        if !operation.may_lose() {
            return direct::CHUNKS_MAX;
        }
        let shortest = self.min_lossy_bytes().max(1);
        (own / shortest).clamp(1, direct::CHUNKS_MAX)
    }

    /// How an all-reduce or reduce-scatter is done.
    fn reduces_by(&self, operation: &Operation, world: usize) -> Reduction {
        let halves = operation.collective == Collective::AllReduce;
        let wanted = match self.algorithm {
            Algorithm::Direct => Reduction::Direct,
            Algorithm::Ring => Reduction::Ring,
            Algorithm::HalvingDoubling if halves => Reduction::HalvingDoubling,
            Algorithm::HalvingDoubling | Algorithm::Auto => self.automatic(operation, world),
        };
        let fits = wanted != Reduction::Ring || ring::chunks_max(world) > 0;
        if fits { wanted } else { Reduction::Direct }
    }

    /// Direct where contributions may be lost or little is sent, else the ring where its messages
    /// are long enough, and halving-doubling where they are not.
    fn automatic(&self, operation: &Operation, world: usize) -> Reduction {
        let bytes = operation.tensor_bytes();
        let lossy = operation.may_lose() && bytes >= self.min_lossy_bytes();
        let shard = bytes.min(self.chunk.as_usize()) / world;
        let is_small = world <= DIRECT_WORLD_MAX && bytes <= DIRECT_BYTES_MAX;
        if lossy || world <= 2 || is_small {
            Reduction::Direct
        } else if shard < RING_SHARD_MIN {
            Reduction::HalvingDoubling
        } else {
            Reduction::Ring
        }
    }
}

/// How a reduction to all ranks is done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Reduction {
    Direct,
    Ring,
    HalvingDoubling,
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::units::{Rank, Share, Step};

    use super::*;
    use crate::buffer::Buffer;
    use crate::dtype::{DType, ReduceOp};
    use crate::operation::{Group, Layers, Loss};
    use crate::plan::Landing;

    fn operation(collective: Collective, world: u16, bytes: usize) -> Operation {
        let (buffer, input) = match collective {
            Collective::ReduceScatter => (bytes / usize::from(world), Some(bytes)),
            Collective::AllToAll => (bytes, Some(bytes)),
            _ => (bytes, None),
        };
        Operation {
            group: Group {
                id: 0,
                ranks: (0..world).map(Rank).collect(),
            },
            sequence: 0,
            collective,
            dtype: DType::F32,
            op: ReduceOp::Sum,
            buffer: Buffer::Virtual(buffer),
            input: input.map(Buffer::Virtual),
            loss: Loss::NONE,
            step: Step(0),
            layers: Layers::default(),
            tensor_key: 0,
            deadline: None,
        }
    }

    fn choice(algorithm: Algorithm, operation: &Operation) -> Reduction {
        let mut job = Job::default();
        job.collectives.algorithm = algorithm;
        Preference::of(&job).reduces_by(operation, operation.group.ranks.len())
    }

    #[test]
    fn auto_goes_by_size_and_world() {
        let (kib, mib) = (1 << 10, 1 << 20);
        let expected = [
            (2, 64 * mib, Reduction::Direct),
            (4, 256 * kib, Reduction::Direct),
            (4, 257 * kib, Reduction::Ring),
            (8, 257 * kib, Reduction::Ring),
            (64, 256 * kib, Reduction::Direct),
            (64, mib, Reduction::HalvingDoubling),
            (64, 4 * mib, Reduction::Ring),
            (65, 64 * kib, Reduction::HalvingDoubling),
            (1024, 256 * mib, Reduction::HalvingDoubling),
        ];
        for (world, bytes, reduction) in expected {
            let operation = operation(Collective::AllReduce, world, bytes);
            let chosen = choice(Algorithm::Auto, &operation);
            assert_eq!(chosen, reduction, "{bytes} bytes, {world} ranks");
        }
    }

    #[test]
    fn auto_is_direct_where_loss_is_tolerated() {
        let mut lossy = operation(Collective::AllReduce, 1000, 1 << 30);
        lossy.loss.tolerance = Share::ALL;
        assert_eq!(choice(Algorithm::Auto, &lossy), Reduction::Direct);
        lossy.dtype = DType::I32;
        assert_eq!(choice(Algorithm::Auto, &lossy), Reduction::HalvingDoubling);
    }

    #[test]
    fn where_loss_is_tolerated_shards_are_long_enough_to_be_lossy_in_groups_of_any_size() {
        let preference = Preference::of(&Job::default());
        let shortest = preference.min_lossy_bytes();
        let collectives = [
            Collective::AllReduce,
            Collective::ReduceScatter,
            Collective::Reduce { root: Rank(3) },
        ];
        for (world, chunks) in [(4, 10), (256, 10), (1024, 2)] {
            for collective in collectives {
                let mut lossy = operation(collective, world, 40 << 20);
                lossy.loss.tolerance = Share::ALL;
                let ranks = &lossy.group.ranks;
                let plan = preference.plan(&lossy, Seat { ranks, me: 1 });
                assert!(
                    plan.outbounds
                        .iter()
                        .all(|out| out.region.bytes >= shortest)
                );
                let contributions = plan.inbounds.iter();
                let reduced = contributions.filter(|inbound| inbound.landing == Landing::Reduce);
                let others = usize::from(world) - 1;
                assert_eq!(reduced.count(), chunks * others, "{collective}, {world}");
            }
        }
    }

    #[test]
    fn what_a_job_names_is_taken_where_it_exists() {
        let world = 4;
        let whole = operation(Collective::AllReduce, world, 64);
        let scattered = operation(Collective::ReduceScatter, world, 64);
        let halving = Algorithm::HalvingDoubling;
        assert_eq!(choice(halving, &whole), Reduction::HalvingDoubling);
        assert_eq!(choice(halving, &scattered), Reduction::Direct);
        assert_eq!(choice(Algorithm::Ring, &whole), Reduction::Ring);
        assert_eq!(choice(Algorithm::Ring, &scattered), Reduction::Ring);
        let endless = operation(Collective::AllReduce, 40_000, 1 << 30);
        assert_eq!(choice(Algorithm::Ring, &endless), Reduction::Direct);
    }

    #[test]
    fn a_thousand_ranks_take_no_more_than_a_few_messages_per_chunk_and_peer() {
        let (world, bytes) = (1024, 16 << 20);
        let root = Rank(7);
        let collectives = [
            Collective::AllReduce,
            Collective::ReduceScatter,
            Collective::Reduce { root },
            Collective::Broadcast { root },
            Collective::AllGather,
            Collective::Gather { root },
            Collective::AllToAll,
        ];
        let preference = Preference::of(&Job::default());
        for collective in collectives {
            for me in [7, 8] {
                let operation = operation(collective, world, bytes);
                let ranks = &operation.group.ranks;
                let plan = preference.plan(&operation, Seat { ranks, me });
                let messages = plan.outbounds.len() + plan.inbounds.len();
                let chunks = bytes / preference.chunk.as_usize();
                assert!(messages <= chunks * 4 * 1024, "{collective}: {messages}");
                assert!(plan.gates.len() <= messages + 1 + 2 * chunks);
            }
        }
    }
}
