//! Up to which size an all-reduce is direct: where few bytes are sent, or where a ring would wait
//! long for its steps.

use gradwire_protocol::units::Span;

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

/// Bytes per second by which a ring's bytes are weighed against its waits: 10 Gb/s.
const RING_RATE: f64 = 1.25e9;

/// A ring of so many ranks, some of them so far apart, waits for 2 (n - 1) steps, a direct
/// reduction for 2 (Thakur et al., IJHPCA 2005): the bytes that it could move meanwhile at
/// [`RING_RATE`].
pub(super) fn far_bytes(world: usize, round_trip: Option<Span>) -> usize {
    let waits = world.saturating_sub(2) as f64 * round_trip.unwrap_or_default().as_secs_f64();
    (waits * RING_RATE / 2.0) as usize
}

/// The largest all-reduce that is direct because of its size.
pub(super) fn direct_bytes_max(world: usize, round_trip: Option<Span>) -> usize {
    if world > DIRECT_WORLD_MAX {
        return 0;
    }
    let few = match world {
        0..=FEW_RANKS => DIRECT_BYTES_FEW,
        _ => DIRECT_BYTES_MAX,
    };
    few.max(far_bytes(world, round_trip))
}
