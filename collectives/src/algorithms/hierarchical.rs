//! Hierarchical all-reduce: within hosts, between hosts, within hosts again.
//!
//! For groups in which several ranks share a host. With H hosts, m ranks on this rank's host, s on
//! the host with the fewest ranks, and a tensor of S bytes:
//!
//! | per rank and chunk | messages | bytes sent |
//! |---|---|---|
//! | first s of a host, within the host | 2 (m - 1) | S (s - 1) / s + S (m - 1) / s |
//! | first s of a host, between hosts | those of s-th parts among H ranks | 2 S (H - 1) / (s H) |
//! | the other m - s, within the host | s | S |
//!
//! Each chunk is cut into s shards, and rank number j of a host owns shard j there.
//!
//! 1. Reduce-scatter: every rank sends shard j to the owner of shard j on its host.
//! 2. Between hosts: the H owners of shard j all-reduce it among themselves, `direct`, by `ring` or
//!    by `halving_doubling`, as a group of H ranks would.
//! 3. All-gather: each owner sends its shard to the others of its host.
//!
//! So a host sends 2 S (H - 1) / H bytes to the others, however many ranks it has. Ranks that
//! ignore hosts send up to m times as much. Steps: those between hosts, and two within.
//!
//! If hosts have unequal numbers of ranks, the ranks beyond the first s contribute their tensors
//! and receive the result. No split can spare the ranks of the smallest host their S / s each; more
//! shards would only relieve the others. The three stages of one chunk overlap those of the next
//! ones.
//!
//! The first half between hosts may lose segments if it is done directly. A message there is the
//! sum of one host's ranks, so a lost segment counts as m missing contributions and not one. But m
//! times fewer segments cross the wire, so if holes are rescaled the mean squared error is nearly
//! that of
//! `direct`. Messages within hosts are lossless.
//!
//! Only the owner on the same host overwrites a shard, after it has received the contribution.
//! Between hosts the overwriting rule of the algorithm used there holds, because each rank's own
//! part is complete before any of it leaves.

use gradwire_protocol::units::Rank;

use crate::algorithms::direct::{self, DirectExchange};
use crate::algorithms::halving_doubling::{self, HalvingSwaps};
use crate::algorithms::ring::{self, RingLap};
use crate::plan::{
    ElementRun, GateId, GroupSeat, MessagePlan, PARTS, PlannedReceive, PlannedSend, TensorCut,
};

/// Messages within a host that a chunk numbers: one to reduce and one to gather.
const INNER_PARTS: usize = 2;

/// How the owners of a shard all-reduce it among themselves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BetweenHosts {
    Direct,
    Ring,
    HalvingDoubling,
}

impl BetweenHosts {
    fn chunk_parts(self, hosts: usize) -> usize {
        match self {
            Self::Direct => direct::CHUNK_PARTS,
            Self::Ring => ring::chunk_parts(hosts),
            Self::HalvingDoubling => halving_doubling::chunk_parts(hosts),
        }
    }
}

/// Which seats of a group are on which host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct HostGroups {
    /// The seats of each host, hosts in the order of their first seats.
    seats: Vec<Vec<usize>>,
    smallest: usize,
}

impl HostGroups {
    /// The hosts of a group, given the host of every rank of the job.
    pub(crate) fn of(ranks: &[Rank], host_of_rank: &[u16]) -> Self {
        let mut seats: Vec<Vec<usize>> = Vec::new();
        let mut numbers: Vec<u16> = Vec::new();
        for (seat, rank) in ranks.iter().enumerate() {
            let number = host_of_rank[usize::from(rank.0)];
            match numbers.iter().position(|&known| known == number) {
                Some(host) => seats[host].push(seat),
                None => {
                    numbers.push(number);
                    seats.push(vec![seat]);
                }
            }
        }
        let smallest = seats.iter().map(Vec::len).min().unwrap_or(0);
        Self { seats, smallest }
    }

    /// The number of hosts.
    pub(crate) fn count(&self) -> usize {
        self.seats.len()
    }

    /// Ranks of the host with the fewest ranks, which is the number of shards.
    pub(crate) fn smallest(&self) -> usize {
        self.smallest
    }

    /// Whether the group has several hosts, and some host several ranks.
    pub(crate) fn have_two_levels(&self) -> bool {
        self.count() > 1 && self.seats.iter().any(|seats| seats.len() > 1)
    }

    /// The maximum number of chunks whose messages can be numbered; 0 when there are too many hosts
    /// for one chunk.
    pub(crate) fn chunks_max(&self, between: BetweenHosts) -> usize {
        usize::from(PARTS) / INNER_PARTS.max(between.chunk_parts(self.count()))
    }
}

/// All-reduce in place in the result buffer.
pub(crate) fn all_reduce(
    seat: GroupSeat<'_>,
    cut: &TensorCut,
    hosts: &HostGroups,
    between: BetweenHosts,
) -> MessagePlan {
    let mut plan = MessagePlan::new();
    let floor = HostFloor::new(seat, hosts, between);
    let parts = INNER_PARTS.max(between.chunk_parts(hosts.count()));
    let mut gathered: Vec<GateId> = Vec::with_capacity(cut.chunks);
    for chunk in 0..cut.chunks {
        let descent = HostDescent {
            floor: &floor,
            chunk: cut.chunk(chunk),
            first_part: chunk * parts,
        };
        gathered.push(descent.add_to(&mut plan, cut.start_of(chunk, &gathered)));
    }
    plan.sealed()
}

/// The environment of a seat, equal for all its chunks.
struct HostFloor<'a> {
    between: BetweenHosts,
    /// The ranks of this host, in the group's order.
    local: Vec<Rank>,
    /// The position of this rank among them.
    number: usize,
    shards: usize,
    /// On each host, the rank with this rank's number.
    column: Vec<Rank>,
    /// How many ranks each host has.
    brings: Vec<u16>,
    host: usize,
    everybody: &'a [Rank],
}

impl<'a> HostFloor<'a> {
    fn new(seat: GroupSeat<'a>, hosts: &HostGroups, between: BetweenHosts) -> Self {
        let place = hosts.seats.iter().enumerate().find_map(|(host, seats)| {
            let number = seats.iter().position(|&local| local == seat.me)?;
            Some((host, number))
        });
        let (host, number) = place.expect("every seat is on a host");
        let rank = |&at: &usize| seat.ranks[at];
        let same_number = hosts.seats.iter().filter_map(|seats| seats.get(number));
        Self {
            between,
            local: hosts.seats[host].iter().map(rank).collect(),
            number,
            shards: hosts.smallest,
            column: same_number.map(rank).collect(),
            brings: hosts.seats.iter().map(|seats| seats.len() as u16).collect(),
            host,
            everybody: seat.ranks,
        }
    }

    /// This rank's seat on its host.
    fn inner(&self) -> GroupSeat<'_> {
        GroupSeat::new(&self.local, self.number)
    }

    /// This rank's seat among the owners of its shard.
    fn outer(&self) -> GroupSeat<'_> {
        GroupSeat {
            ranks: &self.column,
            me: self.host,
            brings: &self.brings,
        }
    }
}

/// One chunk's way.
struct HostDescent<'a> {
    floor: &'a HostFloor<'a>,
    chunk: ElementRun,
    first_part: usize,
}

impl HostDescent<'_> {
    fn add_to(&self, plan: &mut MessagePlan, start: GateId) -> GateId {
        let gates = plan.gates.len();
        let summed = self.add_reduction(plan, start);
        let complete = match self.floor.number < self.floor.shards {
            true => self.add_between(plan, summed),
            false => summed,
        };
        self.add_gather(plan, complete);
        plan.gate_after_all_since(gates)
    }

    fn part(&self, part: usize) -> u16 {
        u16::try_from(self.first_part + part).expect("chunks fit their numbers")
    }

    fn shard(&self, number: usize) -> ElementRun {
        self.chunk.shard(self.floor.shards, number)
    }

    fn owns(&self, number: usize) -> bool {
        number < self.floor.shards
    }

    /// Every rank of the host sends each owner its shard. Returns the gate after which this rank's
    /// own shard is the sum over its host.
    fn add_reduction(&self, plan: &mut MessagePlan, start: GateId) -> GateId {
        let inner = self.floor.inner();
        let summed = plan.gate_after(start);
        for other in inner.others() {
            let (peer, part) = (inner.ranks[other], self.part(0));
            if self.owns(other) {
                plan.send(PlannedSend::finished(
                    peer,
                    part,
                    self.shard(other).region(),
                    start,
                ));
            }
            if self.owns(inner.me) {
                let ours = self.shard(inner.me).region();
                plan.receive(PlannedReceive::contribution(peer, part, ours, summed).lossless());
            }
        }
        summed
    }

    /// The owners of a shard all-reduce it. Returns the gate after which all of it is available.
    fn add_between(&self, plan: &mut MessagePlan, summed: GateId) -> GateId {
        let gates = plan.gates.len();
        let (seat, stretch) = (self.floor.outer(), self.shard(self.floor.number));
        let first_part = self.first_part;
        match self.floor.between {
            BetweenHosts::Direct => {
                let exchange = DirectExchange {
                    seat,
                    stretch,
                    first_part,
                    start: summed,
                    ready: summed,
                };
                exchange.add_to(plan, |_| true);
            }
            BetweenHosts::Ring => {
                let lap = RingLap {
                    seat,
                    first_part,
                    gate: summed,
                    ready: summed,
                };
                lap.add_twice(plan, stretch);
            }
            BetweenHosts::HalvingDoubling => {
                HalvingSwaps::new(seat, stretch, first_part).add_to(plan, summed);
            }
        }
        plan.gate_after_all_since(gates)
    }

    /// Every owner sends its complete shard to the others of its host.
    fn add_gather(&self, plan: &mut MessagePlan, complete: GateId) {
        let inner = self.floor.inner();
        let gathered = plan.gate();
        for other in inner.others() {
            let (peer, part) = (inner.ranks[other], self.part(1));
            if self.owns(inner.me) {
                let ours = self.shard(inner.me).region();
                let contributors = GroupSeat::new(self.floor.everybody, 0).contributors();
                plan.send(PlannedSend::finished(peer, part, ours, complete).of(contributors));
            }
            if self.owns(other) {
                let theirs = self.shard(other).region();
                plan.receive(PlannedReceive::finished(peer, part, theirs, gathered));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::units::ByteCount;

    use super::*;
    use crate::plan::rehearsal::{Rehearsal, bytes_sent, plans};

    const ALL: [BetweenHosts; 3] = [
        BetweenHosts::Direct,
        BetweenHosts::Ring,
        BetweenHosts::HalvingDoubling,
    ];

    /// The host of every rank, ranks of a host one after the other or in turn.
    fn layouts() -> Vec<Vec<u16>> {
        vec![
            vec![0, 0, 1, 1],
            vec![0, 1, 0, 1],
            vec![0, 0, 0, 0, 1, 1, 1, 1],
            vec![0, 0, 1, 1, 2, 2],
            vec![2, 0, 1, 1, 0, 2, 3, 3, 4, 4],
            vec![0, 0, 0, 1],
            vec![1, 0, 0, 0, 0, 1, 2, 2, 2],
            vec![0, 0, 1],
        ]
    }

    fn hosts(layout: &[u16]) -> HostGroups {
        let ranks: Vec<Rank> = (0..layout.len() as u16).map(Rank).collect();
        HostGroups::of(&ranks, layout)
    }

    fn cut(bytes: usize, hosts: &HostGroups, between: BetweenHosts) -> TensorCut {
        TensorCut::new(bytes, 8, ByteCount::new(4096), hosts.chunks_max(between))
    }

    #[test]
    fn every_layout_is_right_in_any_order() {
        for layout in layouts() {
            let (hosts, world) = (hosts(&layout), layout.len());
            for (between, elements) in ALL.into_iter().flat_map(|way| [(way, 7), (way, 2500)]) {
                let cut = cut(elements * 8, &hosts, between);
                let plans = plans(world, |seat| all_reduce(seat, &cut, &hosts, between));
                let mut rehearsal = Rehearsal::new(plans, elements as u64);
                rehearsal.fill_buffers(elements);
                let expected = vec![rehearsal.finished_sum(elements); world];
                rehearsal.run();
                let right = rehearsal.buffers == expected;
                assert!(right, "{layout:?}, {between:?}, {elements} elements");
            }
        }
    }

    #[test]
    fn bytes_within_and_between_hosts_match_the_table() {
        let (layout, bytes) = ([0, 0, 1, 1, 2, 2, 3, 3], 64 << 10);
        let (hosts, count, on_host) = (hosts(&layout), 4, 2);
        for between in ALL {
            let cut = cut(bytes, &hosts, between);
            let all = plans(8, |seat| all_reduce(seat, &cut, &hosts, between));
            for (me, plan) in all.iter().enumerate() {
                let is_local = |out: &&PlannedSend| layout[usize::from(out.to.0)] == layout[me];
                let local = plan.outbounds.iter().filter(is_local);
                let local: usize = local.map(|out| out.region.bytes).sum();
                assert_eq!(local, 2 * bytes * (on_host - 1) / on_host);
                let outer = bytes_sent(plan) - local;
                assert_eq!(outer, 2 * bytes * (count - 1) / (on_host * count));
            }
        }
    }

    #[test]
    fn surplus_ranks_only_bring_and_take_tensors() {
        let layout = [0, 0, 0, 1, 1, 0];
        let (hosts, bytes) = (hosts(&layout), 64 << 10);
        assert_eq!((hosts.count(), hosts.smallest()), (2, 2));
        let cut = cut(bytes, &hosts, BetweenHosts::Direct);
        let all = plans(6, |seat| {
            all_reduce(seat, &cut, &hosts, BetweenHosts::Direct)
        });
        for beyond in [2, 5] {
            assert_eq!(bytes_sent(&all[beyond]), bytes);
            assert_eq!(all[beyond].outbounds.len(), 2 * cut.chunks);
            let locals = [Rank(0), Rank(1)];
            assert!(
                all[beyond]
                    .outbounds
                    .iter()
                    .all(|out| locals.contains(&out.to))
            );
        }
        let (own, shard) = (bytes / 2, bytes / 2);
        assert_eq!(bytes_sent(&all[0]), own + 3 * shard + 2 * bytes / 4);
    }

    #[test]
    fn messages_between_hosts_count_their_contributors() {
        let layout = [0, 0, 0, 1, 1, 2, 2, 2, 2];
        let hosts = hosts(&layout);
        for between in ALL {
            let cut = cut(4096, &hosts, between);
            for (me, plan) in plans(9, |seat| all_reduce(seat, &cut, &hosts, between))
                .iter()
                .enumerate()
            {
                let contributions = plan
                    .outbounds
                    .iter()
                    .filter(|out| out.part == 0 && layout[usize::from(out.to.0)] != layout[me]);
                let on_host = layout.iter().filter(|host| **host == layout[me]).count();
                for out in contributions.filter(|_| between != BetweenHosts::HalvingDoubling) {
                    assert_eq!(usize::from(out.contributors), on_host, "{between:?}, {me}");
                }
                let most = plan.outbounds.iter().map(|out| out.contributors).max();
                let owns = ![2, 7, 8].contains(&me);
                assert_eq!(most, Some(if owns { 9 } else { 1 }), "{between:?}, {me}");
            }
        }
    }

    #[test]
    fn flat_groups_have_one_level() {
        for layout in [vec![0, 0, 0], vec![0, 1, 2], vec![4]] {
            assert!(!hosts(&layout).have_two_levels(), "{layout:?}");
        }
        assert!(hosts(&[0, 1, 0]).have_two_levels());
    }
}
