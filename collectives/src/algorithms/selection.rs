//! Chooses the algorithm of an operation. Every rank chooses the same one: from the job, the group,
//! the hosts and the operation, which are equal on all ranks.
//!
//! 1. An algorithm that the job names is used if it exists for the operation.
//! 2. An *exchange* is direct whatever else holds: a reduction with a codec, since each algorithm
//!    that adds on the way would encode partial sums again and again (its chunks are so long that
//!    shards fill packets), and in small groups one that tolerates loss with
//!    `collectives.patience`, which leaves out only contributions to direct ones.
//! 3. Without an exchange the job's measured table decides. A tolerance does not affect the choice:
//!    direct reductions lose what they may, the other algorithms are lossless. Small tensors are
//!    lossless, unless the job says how small (`fits_one_step`).
//! 4. Otherwise an all-reduce follows these rules:
//!
//!    - All ranks on one host: direct, at any size. Memory is the wire then, and direct moves each
//!      byte once, with one wait; a ring moves as many bytes and waits n - 1 times.
//!    - Two or more ranks on each of two or more hosts: hierarchical above [`DIRECT_BYTES_MAX`],
//!      with the rule for flat groups between the hosts.
//!    - Flat: direct if few bytes are sent (in one step, if very few), if few ranks are far apart
//!      (`direct_sizes`), or if the tensor has one chunk (in large groups two) and the core is
//!      known to carry what all ranks send to all. A core that does not slows direct reductions
//!      down more than loss does, and so do several chunks across several switches, which a ring
//!      hardly loads. Otherwise the ring if its messages are long enough and ranks are near, and
//!      else halving-doubling.

mod direct_sizes;

use gradwire_protocol::job::{AlgorithmChoice, Job, ReduceAlgorithm, ToleranceUse};
use gradwire_protocol::units::{ByteCount, Share, Span};

use self::direct_sizes::{DIRECT_BYTES_MAX, FEW_RANKS, GroupReach, apart};
use crate::algorithms::hierarchical::{BetweenHosts, HostGroups};
use crate::algorithms::operation_plan::OperationPlan;
use crate::algorithms::{
    all_gather, all_to_all, barrier, broadcast, direct, gather, halving_doubling, hierarchical,
    one_step, point_to_point, reduce, ring, scatter,
};
use crate::operation::{Collective, Operation};
use crate::plan::region::TensorMemory;
use crate::plan::{GroupSeat, MessagePlan, TensorCut};

/// Shards of a reduction with a codec are at least this long, if the tensor is: they are encoded
/// into a few packets.
const ENCODED_SHARD_MIN: usize = 256 << 10;

/// A ring with messages shorter than this spends its 2 (n - 1) steps waiting: 32 KiB take 10
/// microseconds at 25 Gb/s, about the latency of one step. Halving-doubling takes 2 log2 n steps
/// for as many bytes, or up to twice as many bytes when n is not a power of two.
const RING_SHARD_MIN: usize = 32 << 10;

/// Direct takes one step instead of two if a rank sends no more than this in it: 64 KiB take 20
/// microseconds at 25 Gb/s, about as long as a step waits.
const ONE_STEP_BYTES_MAX: usize = 64 << 10;

/// A hierarchical all-reduce is cut into at least this many chunks, since its three stages overlap
/// only between chunks, unless chunks would be shorter than [`DIRECT_BYTES_MAX`].
const STAGED_CHUNKS: usize = 4;

/// The settings of a job, and its hosts, that decide about algorithms.
#[derive(Clone, Debug)]
pub(crate) struct Preference {
    algorithm: ReduceAlgorithm,
    table: Vec<AlgorithmChoice>,
    chunk: ByteCount,
    /// Shorter messages are lossless.
    min_lossy: ByteCount,
    tolerance_use: ToleranceUse,
    /// Share of the ranks' bandwidth that the core of the network carries, if it is known.
    core: Option<Share>,
    /// Whether ranks that are late are not waited for.
    has_patience: bool,
    /// The longest round trip between two ranks, if the job says it.
    round_trip: Option<Span>,
    /// The round trip between rank 0 and each rank; empty if they are not known.
    round_trips: Vec<Span>,
    /// The host of every rank; empty if each has one of its own.
    hosts: Vec<u16>,
}

/// Whether the ranks choose for themselves. They do so, too, for sums that no aggregator carries.
const fn is_open(algorithm: ReduceAlgorithm) -> bool {
    matches!(
        algorithm,
        ReduceAlgorithm::Auto | ReduceAlgorithm::InNetwork
    )
}

/// Whether long all-reduces between this many hosts are lossless whatever the job tolerates,
/// because the job leaves the algorithm open and others are at least as fast there.
pub fn ignores_tolerance(job: &Job, hosts: usize) -> bool {
    let preference = Preference::of(job);
    let chunk = preference.chunk.as_usize();
    let reach = GroupReach {
        world: hosts,
        round_trip: Span::ZERO,
        core: preference.core,
    };
    let is_direct = reach.carries(chunk, chunk) || preference.needs_exchange(hosts);
    is_open(preference.algorithm) && hosts > 2 && !is_direct
}

impl Preference {
    /// The preference of a job.
    pub(crate) fn of(job: &Job) -> Self {
        Self {
            algorithm: job.collectives.algorithm,
            table: job.collectives.table.clone(),
            hosts: Vec::new(),
            chunk: job.collectives.chunk,
            min_lossy: job.min_lossy_message(),
            tolerance_use: job.tolerance_use(),
            core: job.collectives.core,
            has_patience: job.collectives.patience.is_some(),
            round_trip: job.collectives.round_trip,
            round_trips: Vec::new(),
        }
    }

    /// The preference when rank i is on host `hosts[i]`.
    pub(crate) fn with_hosts(self, hosts: Vec<u16>) -> Self {
        Self { hosts, ..self }
    }

    /// The preference when rank 0 has measured these round trips to all ranks.
    pub(crate) fn with_round_trips(self, round_trips: Vec<Span>) -> Self {
        Self {
            round_trips,
            ..self
        }
    }

    /// The preference that cuts tensors into such chunks.
    pub(crate) fn with_chunk(self, chunk: ByteCount) -> Self {
        Self { chunk, ..self }
    }

    /// Shorter messages are lossless whatever the tolerance.
    pub(crate) fn min_lossy_bytes(&self) -> usize {
        self.min_lossy.as_usize()
    }

    /// Which longer messages use their tolerance.
    pub(crate) fn tolerance_use(&self) -> ToleranceUse {
        self.tolerance_use
    }

    /// The messages of a valid operation in a group of two or more.
    pub(crate) fn plan(&self, operation: &Operation, seat: GroupSeat<'_>) -> OperationPlan {
        let bytes = operation.buffer.len();
        let block = operation.block_bytes(seat.ranks[seat.me]);
        let cut = |chunks_max| self.cut(operation, bytes, chunks_max);
        let seat_of = |rank| {
            let at = seat.ranks.iter().position(|&other| other == rank);
            at.expect("validated: the peer is in the group")
        };
        let source = if operation.input.is_none() {
            TensorMemory::Buffer
        } else {
            TensorMemory::Input
        };
        let scattered = seat.world() > 2 && bytes > DIRECT_BYTES_MAX;
        let plan = match operation.collective {
            Collective::AllReduce => return self.all_reduce(operation, seat),
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
            Collective::AllToAll => {
                let even = vec![block; seat.world()];
                let splits = operation.splits.as_ref();
                let splits = splits.map(|splits| (&*splits.input, &*splits.output));
                let (input, output) = splits.unwrap_or((&even, &even));
                all_to_all::all_to_all(seat, input, output)
            }
            Collective::Barrier => barrier::barrier(seat),
            Collective::Send { to, .. } => point_to_point::send(to, bytes),
            Collective::Receive { from, .. } => point_to_point::receive(from, bytes),
            Collective::ReceiveAny { .. } => {
                unreachable!("it becomes a receive from a rank before it is planned")
            }
        };
        plan.into()
    }

    fn all_reduce(&self, operation: &Operation, seat: GroupSeat<'_>) -> OperationPlan {
        let bytes = operation.buffer.len();
        let cut = |chunks_max| self.cut(operation, bytes, chunks_max);
        match self.reduces_by(operation, seat) {
            ReductionWay::Direct if self.takes_one_step(operation, seat.world()) => {
                one_step::all_reduce(seat, bytes).into()
            }
            ReductionWay::Direct => {
                let chunks_max = self.direct_chunks_max(operation, bytes / seat.world());
                let at_once = direct::chunks_at_once(seat.world(), self.apart(operation));
                let cut = cut(chunks_max).at_once(at_once);
                direct::all_reduce(seat, &cut).into()
            }
            ReductionWay::Ring => ring::all_reduce(seat, &cut(ring::chunks_max(seat.world()))),
            ReductionWay::HalvingDoubling => {
                let chunks_max = halving_doubling::chunks_max(seat.world());
                halving_doubling::all_reduce(seat, &cut(chunks_max)).into()
            }
            ReductionWay::Hierarchical(hosts) => self.hierarchical(operation, seat, &hosts).into(),
        }
    }

    /// The longest round trip between two ranks of an operation; zero if they are near.
    fn apart(&self, operation: &Operation) -> Span {
        let known = || apart(&operation.group.ranks, &self.round_trips);
        self.round_trip.unwrap_or_else(known)
    }

    fn takes_one_step(&self, operation: &Operation, world: usize) -> bool {
        let is_plain = operation.codec().is_none() && !self.is_lossy(operation, world);
        is_plain && fits_one_step(operation, world)
    }

    fn hierarchical(
        &self,
        operation: &Operation,
        seat: GroupSeat<'_>,
        hosts: &HostGroups,
    ) -> MessagePlan {
        let bytes = operation.buffer.len();
        let between = self.between(operation, hosts);
        let owned = bytes / hosts.smallest() / hosts.count();
        let chunks_max = self.direct_chunks_max(operation, owned);
        let chunks_max = chunks_max.min(hosts.chunks_max(between));
        let chunk = ByteCount::new(self.staged_chunk(bytes) as u64);
        let cut = TensorCut::new(bytes, operation.dtype.bytes(), chunk, chunks_max);
        hierarchical::all_reduce(seat, &cut, hosts, between)
    }

    fn staged_chunk(&self, bytes: usize) -> usize {
        let part = (bytes / STAGED_CHUNKS).max(DIRECT_BYTES_MAX);
        part.min(self.chunk.as_usize())
    }

    /// How the owners of a shard all-reduce it among their hosts.
    fn between(&self, operation: &Operation, hosts: &HostGroups) -> BetweenHosts {
        let bytes = operation.buffer.len();
        let chunk = self.staged_chunk(bytes) / hosts.smallest();
        let owned = bytes / hosts.smallest();
        match self.flat(operation, hosts.count(), owned, chunk) {
            ReductionWay::Ring => BetweenHosts::Ring,
            ReductionWay::HalvingDoubling => BetweenHosts::HalvingDoubling,
            ReductionWay::Direct | ReductionWay::Hierarchical(_) => BetweenHosts::Direct,
        }
    }

    /// A chunk of a reduce-scatter is a piece of each rank's block.
    fn reduce_scatter(&self, operation: &Operation, seat: GroupSeat<'_>) -> MessagePlan {
        let block = operation.buffer.len();
        let piece = ByteCount::new(self.chunk.get().div_ceil(seat.world() as u64));
        let cut = |chunks_max| TensorCut::new(block, operation.dtype.bytes(), piece, chunks_max);
        match self.reduces_by(operation, seat) {
            ReductionWay::Ring => {
                ring::reduce_scatter(seat, &cut(ring::chunks_max(seat.world())), block)
            }
            _ => {
                direct::reduce_scatter(seat, &cut(self.direct_chunks_max(operation, block)), block)
            }
        }
    }

    fn cut(&self, operation: &Operation, bytes: usize, chunks_max: usize) -> TensorCut {
        TensorCut::new(bytes, operation.dtype.bytes(), self.chunk, chunks_max)
    }

    /// The maximum number of chunks of a direct reduction in which each rank reduces `own` bytes.
    /// Where loss is tolerated, chunks stay long enough that their shards do not count as lossless
    /// messages, as all of them would in large groups.
    fn direct_chunks_max(&self, operation: &Operation, own: usize) -> usize {
        let shortest = match operation.codec() {
            Some(_) => ENCODED_SHARD_MIN.max(self.min_lossy_bytes()),
            None if operation.may_lose() => self.min_lossy_bytes().max(1),
            None => return direct::CHUNKS_MAX,
        };
        (own / shortest).clamp(1, direct::CHUNKS_MAX)
    }

    /// How an all-reduce or reduce-scatter is done.
    fn reduces_by(&self, operation: &Operation, seat: GroupSeat<'_>) -> ReductionWay {
        let hosts = self.hosts_of(seat);
        let (world, bytes) = (seat.world(), operation.tensor_bytes());
        let is_exchange = self.is_exchange(operation, world);
        let matches = |choice: &&AlgorithmChoice| {
            world <= usize::from(choice.world) && bytes as u64 <= choice.bytes.get()
        };
        let table = self.table.iter().filter(|_| !is_exchange);
        let table = table.filter(matches);
        let listed = table.map(|choice| choice.algorithm);
        let adds_on_the_way = |way: &ReduceAlgorithm| {
            matches!(
                way,
                ReduceAlgorithm::Ring | ReduceAlgorithm::HalvingDoubling
            )
        };
        let named = Some(self.algorithm).filter(|named| !is_open(*named));
        let named = named.filter(|way| operation.codec().is_none() || !adds_on_the_way(way));
        let wanted = named.into_iter().chain(listed.filter(|_| named.is_none()));
        let mut possible = wanted.filter_map(|way| possible(way, operation, world, hosts.as_ref()));
        possible
            .next()
            .unwrap_or_else(|| self.automatic(operation, world, hosts))
    }

    /// The hosts of a group, if hosts are known.
    fn hosts_of(&self, seat: GroupSeat<'_>) -> Option<HostGroups> {
        (!self.hosts.is_empty()).then(|| HostGroups::of(seat.ranks, &self.hosts))
    }

    /// Whether an operation of so many ranks may lose segments.
    fn is_lossy(&self, operation: &Operation, world: usize) -> bool {
        let is_long = operation.tensor_bytes() >= self.min_lossy_bytes();
        let is_used = match self.tolerance_use {
            ToleranceUse::WhereItPays => !fits_one_step(operation, world),
            ToleranceUse::Always => true,
        };
        operation.may_lose() && is_long && is_used
    }

    /// Whether a reduction is direct because of its codec, or for patience.
    fn is_exchange(&self, operation: &Operation, world: usize) -> bool {
        let is_patient = || self.needs_exchange(world) && self.is_lossy(operation, world);
        operation.codec().is_some() || is_patient()
    }

    /// Whether tolerant reductions between so many ranks are exchanges although the core is not
    /// known: patience leaves out only contributions to direct ones. So few usually share one
    /// switch.
    fn needs_exchange(&self, world: usize) -> bool {
        self.has_patience && self.core.is_none() && world <= FEW_RANKS
    }

    fn automatic(
        &self,
        operation: &Operation,
        world: usize,
        hosts: Option<HostGroups>,
    ) -> ReductionWay {
        let bytes = operation.tensor_bytes();
        let flat = || self.flat(operation, world, bytes, self.chunk.as_usize());
        match hosts {
            Some(hosts) if hosts.count() == 1 => ReductionWay::Direct,
            Some(hosts) if hosts.smallest() > 1 && bytes > DIRECT_BYTES_MAX => {
                let way = ReduceAlgorithm::Hierarchical;
                let two_levels = possible(way, operation, world, Some(&hosts));
                two_levels.unwrap_or_else(flat)
            }
            _ => flat(),
        }
    }

    /// For `bytes` in chunks of `chunk` among `world` ranks, no two on one host.
    fn flat(
        &self,
        operation: &Operation,
        world: usize,
        bytes: usize,
        chunk: usize,
    ) -> ReductionWay {
        let shard = bytes.min(chunk) / world;
        let reach = GroupReach {
            world,
            round_trip: self.apart(operation),
            core: self.core,
        };
        let is_direct = reach.is_direct(bytes, chunk);
        let waits_long = bytes <= reach.far_bytes();
        if self.is_exchange(operation, world) || world <= 2 || is_direct {
            ReductionWay::Direct
        } else if shard < RING_SHARD_MIN || waits_long || ring::chunks_max(world) == 0 {
            ReductionWay::HalvingDoubling
        } else {
            ReductionWay::Ring
        }
    }
}

/// Whether an operation is an all-reduce that takes less time in one step than in two. In one step
/// all ranks add all contributions, so none may miss a part that others have.
fn fits_one_step(operation: &Operation, world: usize) -> bool {
    let is_whole = operation.collective == Collective::AllReduce;
    is_whole && operation.buffer.len() * (world - 1) <= ONE_STEP_BYTES_MAX
}

/// A named algorithm, if it exists for the operation and the group.
fn possible(
    way: ReduceAlgorithm,
    operation: &Operation,
    world: usize,
    hosts: Option<&HostGroups>,
) -> Option<ReductionWay> {
    let is_whole = operation.collective == Collective::AllReduce;
    match way {
        // The aggregator does not carry these.
        ReduceAlgorithm::Auto | ReduceAlgorithm::InNetwork => None,
        ReduceAlgorithm::Direct => Some(ReductionWay::Direct),
        ReduceAlgorithm::Ring => Some(if ring::chunks_max(world) > 0 {
            ReductionWay::Ring
        } else {
            ReductionWay::Direct
        }),
        ReduceAlgorithm::HalvingDoubling => is_whole.then_some(ReductionWay::HalvingDoubling),
        ReduceAlgorithm::Hierarchical => {
            let hosts = hosts.filter(|hosts| is_whole && hosts.have_two_levels());
            hosts.map(|hosts| ReductionWay::Hierarchical(hosts.clone()))
        }
    }
}

/// How a reduction to all ranks is done.
#[derive(Clone, Debug, Eq, PartialEq)]
enum ReductionWay {
    Direct,
    Ring,
    HalvingDoubling,
    Hierarchical(HostGroups),
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::job::notation;
    use gradwire_protocol::units::{Rank, Step};

    use super::*;
    use crate::numbers::dtype::{DType, ReduceOp};
    use crate::operation::buffer::Buffer;
    use crate::operation::{Group, Layers, LossTerms};
    use crate::plan::{PlannedSend, Reliability, SegmentLanding};

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
            splits: None,
            loss: LossTerms::NONE,
            step: Step(0),
            layers: Layers::default(),
            tensor_key: 0,
            deadline: None,
        }
    }

    fn choice(algorithm: ReduceAlgorithm, operation: &Operation) -> ReductionWay {
        let mut job = Job::default();
        job.collectives.algorithm = algorithm;
        let ranks = &operation.group.ranks;
        Preference::of(&job).reduces_by(operation, GroupSeat::new(ranks, 0))
    }

    #[test]
    fn auto_goes_by_size_and_world() {
        let (kib, mib) = (1 << 10, 1 << 20);
        let expected = [
            (2, 64 * mib, ReductionWay::Direct),
            (4, mib, ReductionWay::Direct),
            (4, 1025 * kib, ReductionWay::Ring),
            (8, mib, ReductionWay::Direct),
            (8, 1025 * kib, ReductionWay::Ring),
            (9, 256 * kib, ReductionWay::Direct),
            (9, mib, ReductionWay::Ring),
            (64, 256 * kib, ReductionWay::Direct),
            (64, mib, ReductionWay::HalvingDoubling),
            (64, 4 * mib, ReductionWay::Ring),
            (65, 64 * kib, ReductionWay::HalvingDoubling),
            (1024, 256 * mib, ReductionWay::HalvingDoubling),
        ];
        for (world, bytes, reduction) in expected {
            let operation = operation(Collective::AllReduce, world, bytes);
            let chosen = choice(ReduceAlgorithm::Auto, &operation);
            assert_eq!(chosen, reduction, "{bytes} bytes, {world} ranks");
        }
    }

    /// The choice for an all-reduce where the core carries this share.
    fn carried(core: Option<f64>, tolerance: Share, world: u16, bytes: usize) -> ReductionWay {
        let mut operation = operation(Collective::AllReduce, world, bytes);
        operation.loss.tolerance = tolerance;
        let mut job = Job::default();
        job.collectives.core = core.map(|core| Share::new(core).expect("a share"));
        let ranks = &operation.group.ranks;
        Preference::of(&job).reduces_by(&operation, GroupSeat::new(ranks, 0))
    }

    #[test]
    fn few_chunks_are_direct_through_a_full_core_whatever_is_tolerated() {
        let mib = 1 << 20;
        for tolerance in [Share::NONE, Share::ALL] {
            for (core, world, bytes, expected) in [
                (1.0, 64, 4 * mib, ReductionWay::Direct),
                (0.9, 64, 4 * mib, ReductionWay::Direct),
                (0.89, 64, 4 * mib, ReductionWay::Ring),
                (0.32, 64, 4 * mib, ReductionWay::Ring),
                (0.0, 64, 4 * mib, ReductionWay::Ring),
                (1.0, 32, 5 * mib, ReductionWay::Ring),
                (1.0, 64, 8 * mib, ReductionWay::Direct),
                (1.0, 64, 9 * mib, ReductionWay::Ring),
                (1.0, 256, 4 * mib, ReductionWay::Direct),
                (1.0, 256, 3 * mib, ReductionWay::HalvingDoubling),
            ] {
                let way = carried(Some(core), tolerance, world, bytes);
                assert_eq!(way, expected, "core {core}, {world} ranks, {bytes} bytes");
            }
        }
    }

    #[test]
    fn in_unknown_networks_a_tolerance_changes_no_choice() {
        let (kib, mib) = (1 << 10, 1 << 20);
        for world in [2, 3, 8, 9, 64, 65] {
            for bytes in [64 * kib, mib, 4 * mib, 1 << 30] {
                let lossless = operation(Collective::AllReduce, world, bytes);
                let expected = choice(ReduceAlgorithm::Auto, &lossless);
                let way = carried(None, Share::ALL, world, bytes);
                assert_eq!(way, expected, "{bytes} bytes, {world}");
            }
        }
    }

    #[test]
    fn patience_needs_exchanges_in_small_groups() {
        let mut job = Job::default();
        job.collectives.patience = Some(1.5);
        for (world, expected) in [(8, ReductionWay::Direct), (9, ReductionWay::Ring)] {
            let mut lossy = operation(Collective::AllReduce, world, 64 << 20);
            lossy.loss.tolerance = Share::ALL;
            let ranks = &lossy.group.ranks;
            let chosen = Preference::of(&job).reduces_by(&lossy, GroupSeat::new(ranks, 0));
            assert_eq!(chosen, expected, "{world} ranks");
            let is_told = ignores_tolerance(&job, usize::from(world));
            assert_eq!(is_told, world == 9, "{world} ranks");
        }
    }

    #[test]
    fn few_far_ranks_reduce_directly_what_takes_less_time_than_the_waits_of_a_ring() {
        let way = |millis, world, bytes, core: Option<f64>| {
            let mut job = Job::default();
            job.collectives.round_trip = Some(Span::from_millis(millis));
            job.collectives.core = core.map(|core| Share::new(core).expect("a share"));
            let operation = operation(Collective::AllReduce, world, bytes);
            let ranks = &operation.group.ranks;
            Preference::of(&job).reduces_by(&operation, GroupSeat::new(ranks, 0))
        };
        let mib = 1 << 20;
        for (millis, world, bytes, core, expected) in [
            (0, 4, 2 * mib, None, ReductionWay::Ring),
            // Two more round trips of 40 ms are as long as 50 MB take at 10 Gb/s, twice.
            (40, 4, 47 * mib, None, ReductionWay::Direct),
            (40, 4, 48 * mib, None, ReductionWay::Ring),
            (40, 4, 47 * mib, Some(0.5), ReductionWay::Ring),
            (40, 9, 4 * mib, None, ReductionWay::Ring),
            (40, 9, 4 * mib, Some(0.5), ReductionWay::Direct),
            (40, 65, 64 * mib, Some(0.5), ReductionWay::HalvingDoubling),
        ] {
            let what = format!("{millis} ms, {world} ranks, {bytes} bytes, core {core:?}");
            assert_eq!(way(millis, world, bytes, core), expected, "{what}");
        }
    }

    #[test]
    fn a_tolerance_that_long_all_reduces_ignore_is_told() {
        let ignores = |core: Option<f64>, hosts| {
            let mut job = Job::default();
            job.collectives.core = core.map(|core| Share::new(core).expect("a share"));
            let long = carried(core, Share::ALL, hosts, 4 << 20) != ReductionWay::Direct;
            (ignores_tolerance(&job, usize::from(hosts)), long)
        };
        for (core, hosts) in [
            (None, 2),
            (None, 8),
            (None, 9),
            (Some(0.5), 2),
            (Some(0.5), 3),
            (Some(1.0), 64),
            (Some(1.0), 256),
            (Some(1.0), 512),
        ] {
            let (told, is_lossless) = ignores(core, hosts);
            assert_eq!(told, is_lossless, "core {core:?}, {hosts} hosts");
        }
        let mut named = Job::default();
        named.collectives.algorithm = ReduceAlgorithm::Direct;
        assert!(!ignores_tolerance(&named, 99));
    }

    #[test]
    fn tolerant_shards_are_long_enough_to_be_lossy() {
        let mut job = Job::default();
        job.collectives.algorithm = ReduceAlgorithm::Direct;
        let preference = Preference::of(&job);
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
                let plan = preference
                    .plan(&lossy, GroupSeat::new(ranks, 1))
                    .into_listed();
                assert!(
                    plan.outbounds
                        .iter()
                        .all(|out| out.region.bytes >= shortest)
                );
                let contributions = plan.inbounds.iter();
                let reduced =
                    contributions.filter(|inbound| inbound.landing == SegmentLanding::Reduce);
                let others = usize::from(world) - 1;
                assert_eq!(reduced.count(), chunks * others, "{collective}, {world}");
            }
        }
    }

    #[test]
    fn named_algorithms_are_taken_if_they_exist() {
        let world = 4;
        let whole = operation(Collective::AllReduce, world, 64);
        let scattered = operation(Collective::ReduceScatter, world, 64);
        let halving = ReduceAlgorithm::HalvingDoubling;
        assert_eq!(choice(halving, &whole), ReductionWay::HalvingDoubling);
        assert_eq!(choice(halving, &scattered), ReductionWay::Direct);
        assert_eq!(choice(ReduceAlgorithm::Ring, &whole), ReductionWay::Ring);
        assert_eq!(
            choice(ReduceAlgorithm::Ring, &scattered),
            ReductionWay::Ring
        );
        let endless = operation(Collective::AllReduce, 40_000, 1 << 30);
        assert_eq!(
            choice(ReduceAlgorithm::Ring, &endless),
            ReductionWay::Direct
        );
    }

    fn on_hosts(job: &Job, hosts: &[u16], bytes: usize) -> ReductionWay {
        let operation = operation(Collective::AllReduce, hosts.len() as u16, bytes);
        let preference = Preference::of(job).with_hosts(hosts.to_vec());
        preference.reduces_by(&operation, GroupSeat::new(&operation.group.ranks, 1))
    }

    #[test]
    fn hosts_decide_between_direct_and_hierarchical() {
        let job = Job::default();
        for bytes in [4 << 10, 64 << 20] {
            assert_eq!(on_hosts(&job, &[7; 4], bytes), ReductionWay::Direct);
        }
        let (small, large) = (256 << 10, 2 << 20);
        let two_by_two = [0, 1, 0, 1];
        assert_eq!(on_hosts(&job, &two_by_two, small), ReductionWay::Direct);
        let chosen = on_hosts(&job, &two_by_two, large);
        assert!(matches!(chosen, ReductionWay::Hierarchical(_)));
        let lonely = [0, 0, 0, 1];
        assert_eq!(on_hosts(&job, &lonely, large), ReductionWay::Ring);
        let mut named = job.clone();
        named.collectives.algorithm = ReduceAlgorithm::Hierarchical;
        let chosen = on_hosts(&named, &lonely, large);
        assert!(matches!(chosen, ReductionWay::Hierarchical(_)));
        assert_eq!(on_hosts(&named, &[7; 4], large), ReductionWay::Direct);
        let apart = operation(Collective::AllReduce, 4, large);
        let chosen = choice(ReduceAlgorithm::Hierarchical, &apart);
        assert_eq!(chosen, ReductionWay::Ring, "hosts are not known");
    }

    #[test]
    fn between_hosts_their_number_and_shards_decide() {
        let layout: Vec<u16> = (0..32).map(|rank| rank / 2).collect();
        let preference = Preference::of(&Job::default()).with_hosts(layout);
        let mib = 1 << 20;
        let expected = [
            (mib / 2, BetweenHosts::Direct),
            (2 * mib, BetweenHosts::HalvingDoubling),
            (8 * mib, BetweenHosts::Ring),
        ];
        for (bytes, between) in expected {
            let whole = operation(Collective::AllReduce, 32, bytes);
            let hosts = preference.hosts_of(GroupSeat::new(&whole.group.ranks, 0));
            let hosts = hosts.expect("hosts are known");
            assert_eq!(preference.between(&whole, &hosts), between, "{bytes} bytes");
        }
    }

    #[test]
    fn small_tensors_take_one_step_whatever_the_job_tolerates_unless_it_says_how_small() {
        let steps = |min_message, tolerance, bytes| {
            let mut job = Job::default();
            job.loss.min_message = min_message;
            let mut reduced = operation(Collective::AllReduce, 2, bytes);
            reduced.loss.tolerance = tolerance;
            let seat = GroupSeat::new(&reduced.group.ranks, 0);
            let plan = Preference::of(&job).plan(&reduced, seat);
            let tolerant = |sent: PlannedSend| sent.reliability == Reliability::Tolerant;
            (plan.outbounds().count(), plan.outbounds().any(tolerant))
        };
        let (one, two) = ((1, false), (2, true));
        let said = Some(ByteCount::kib(16));
        assert_eq!(steps(None, Share::NONE, 64 << 10), one);
        assert_eq!(steps(None, Share::ALL, 64 << 10), one);
        assert_eq!(steps(None, Share::ALL, 65 << 10), two);
        assert_eq!(steps(said, Share::ALL, 64 << 10), two);
        assert_eq!(steps(said, Share::ALL, 8 << 10), one);
    }

    #[test]
    fn the_table_decides_where_there_is_no_exchange() {
        let mut job = Job::default();
        let entries = [
            "4 64KiB ring",
            "8 1MiB hierarchical",
            "8 1GiB halving-doubling",
        ];
        let table = entries.map(|text| notation::choice(text).expect("an entry"));
        job.collectives.table = table.to_vec();
        let chosen = |world, bytes| {
            let operation = operation(Collective::AllReduce, world, bytes);
            let ranks = &operation.group.ranks;
            Preference::of(&job).reduces_by(&operation, GroupSeat::new(ranks, 0))
        };
        assert_eq!(chosen(4, 64 << 10), ReductionWay::Ring);
        assert_eq!(chosen(4, 65 << 10), ReductionWay::HalvingDoubling);
        assert_eq!(chosen(5, 4 << 10), ReductionWay::HalvingDoubling);
        assert_eq!(chosen(9, 4 << 10), ReductionWay::Direct);
        let two_by_two = on_hosts(&job, &[0, 0, 1, 1], 65 << 10);
        assert!(matches!(two_by_two, ReductionWay::Hierarchical(_)));
        job.collectives.core = Some(Share::ALL);
        let mut lossy = operation(Collective::AllReduce, 4, 64 << 10);
        lossy.loss.tolerance = Share::ALL;
        let chosen = Preference::of(&job).reduces_by(&lossy, GroupSeat::new(&lossy.group.ranks, 0));
        assert_eq!(chosen, ReductionWay::Ring, "whatever is tolerated");
        job.collectives.algorithm = ReduceAlgorithm::Direct;
        let named = on_hosts(&job, &[0, 0, 1, 1], 65 << 10);
        assert_eq!(
            named,
            ReductionWay::Direct,
            "what a job names precedes the table"
        );
    }

    #[test]
    fn large_groups_take_few_messages_per_chunk() {
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
                let plan = preference
                    .plan(&operation, GroupSeat::new(ranks, me))
                    .into_listed();
                let messages = plan.outbounds.len() + plan.inbounds.len();
                let chunks = bytes / preference.chunk.as_usize();
                assert!(messages <= chunks * 4 * 1024, "{collective}: {messages}");
                assert!(plan.gates.len() <= messages + 1 + 2 * chunks);
            }
        }
    }
}
