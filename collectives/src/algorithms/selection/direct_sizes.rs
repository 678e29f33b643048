//! Up to which size an all-reduce is direct: where few bytes are sent, or where a ring would wait
//! long for its steps.

use gradwire_protocol::units::{Rank, Share, Span};

/// Up to this size the one or two steps of direct algorithms beat the fewer peers and bytes of
/// others.
pub(super) const DIRECT_BYTES_MAX: usize = 256 << 10;

/// Up to this many ranks. In larger groups the 2 (n - 1) messages per rank of a direct all-reduce
/// of a small tensor, each a packet or two and its answer, outweigh the 2 log2 n steps of
/// halving-doubling.
const DIRECT_WORLD_MAX: usize = 64;

/// The same for groups of up to this many ranks, whose direct reductions have few messages: 1 MiB
/// takes 10 to 20 % less time than around a ring on the cores of one host, 4 MiB more.
const DIRECT_BYTES_FEW: usize = 1 << 20;
pub(super) const FEW_RANKS: usize = 8;

/// From this length on, a message costs its hosts hardly more than its bytes.
const LONG_SHARD: usize = 16 << 10;

/// A ring with messages shorter than this waits so long for its steps that two chunks take less
/// time directly, where the core carries them: 8 MiB 9 to 30 % less among 64 to 256 simulated
/// hosts, 8 to 27 % less with 1 % lost (once 1 % more).
const SHORT_RING_SHARD: usize = 128 << 10;

/// The minimum share of the ranks' bandwidth that the core must carry for a direct reduction.
const CORE_MIN: f64 = 0.9;

/// Bytes per second by which a ring's bytes are weighed against its waits: 10 Gb/s.
const RING_RATE: f64 = 1.25e9;

/// Ranks whose round trips to rank 0 differ by so much are far apart. What differs by less may be
/// the time that a busy host took to answer.
const FAR: Span = Span::from_millis(5);

/// The longest round trip between two of these ranks, as far as it is known from those between rank
/// 0 and each rank of the job; zero if it is short.
pub(super) fn apart(ranks: &[Rank], round_trips: &[Span]) -> Span {
    let of = |rank: &Rank| round_trips.get(usize::from(rank.0)).copied();
    let known = || ranks.iter().filter_map(of);
    let [longest, shortest] = [known().max(), known().min()].map(Option::unwrap_or_default);
    let apart = longest.beyond(shortest);
    if apart >= FAR { apart } else { Span::ZERO }
}

/// How the ranks of a group reach each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupReach {
    /// How many they are.
    pub(super) world: usize,
    /// The longest round trip between two of them; zero if they are near each other.
    pub(super) round_trip: Span,
    /// Share of the ranks' bandwidth that the core of the network carries, if it is known.
    pub(super) core: Option<Share>,
}

impl GroupReach {
    /// Where neighbours are far apart, a ring waits for 2 (n - 1) steps, a direct reduction for 2
    /// (Thakur et al., IJHPCA 2005): the bytes that the core could carry meanwhile, at
    /// [`RING_RATE`] a rank. None in large groups on unknown networks: all the bytes of a direct
    /// reduction cross the path between two sites, those of a ring only twice.
    pub(super) fn far_bytes(self) -> usize {
        let carried = match self.core {
            Some(core) => core.get(),
            None if self.world <= FEW_RANKS => 1.0,
            None => return 0,
        };
        let waits = self.world.saturating_sub(2) as f64 * self.round_trip.as_secs_f64();
        (waits * RING_RATE / 2.0 * carried) as usize
    }

    /// Whether an all-reduce of this length, in chunks of `chunk`, is direct. One chunk is, where
    /// the core carries what all send to all: among 4 to 256 simulated hosts it takes up to 25 %
    /// less time than by other algorithms (4 % more in one case), up to 45 % less where packets
    /// are lost. In large groups two chunks are.
    pub(super) fn is_direct(self, bytes: usize, chunk: usize) -> bool {
        let most = match self.world {
            world if world > DIRECT_WORLD_MAX => 0,
            world if world > FEW_RANKS => DIRECT_BYTES_MAX.max(self.far_bytes()),
            _ => DIRECT_BYTES_FEW.max(self.far_bytes()),
        };
        bytes <= most || self.carries(bytes, chunk)
    }

    /// Whether the core certainly does not hold up a direct reduction of this length, which has so
    /// few chunks that no other algorithm is faster, and messages not too short for so many ranks.
    pub(super) fn carries(self, bytes: usize, chunk: usize) -> bool {
        let is_full = self.core.is_some_and(|core| core.get() >= CORE_MIN);
        let is_long = self.world <= DIRECT_WORLD_MAX || bytes / self.world >= LONG_SHARD;
        let chunks = match chunk / self.world < SHORT_RING_SHARD {
            true => 2,
            false => 1,
        };
        is_full && bytes <= chunk * chunks && is_long
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_far_apart_if_its_ranks_are_at_different_distances_of_rank_0() {
        let round_trips = [0, 0, 40, 41, 4].map(Span::from_millis);
        let apart = |ranks: &[u16]| {
            let ranks: Vec<Rank> = ranks.iter().copied().map(Rank).collect();
            apart(&ranks, &round_trips).as_micros()
        };
        assert_eq!(apart(&[0, 1]), 0);
        assert_eq!(apart(&[1, 2]), 40_000);
        assert_eq!(apart(&[2, 3]), 0, "they may be near each other");
        assert_eq!(apart(&[1, 4]), 0, "a busy host answers as late");
        assert_eq!(apart(&[0, 1, 2, 3, 4]), 41_000);
    }
}
