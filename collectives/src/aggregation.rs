//! Sums within the network: a switch element with five outcomes, and the policies that decide.
//!
//! - A [`SumPacket`] carries one packet's worth of a tensor: the [`PartialSum`] of some members of
//!   a job, or the sum of all. A partial sum is known by the set of its contributors, so that one
//!   can see without arithmetic that a result has every contribution once.
//! - An [`Aggregator`] is what a switch does with such packets. Switches form a tree: each knows
//!   the members below it ([`TreePlace`]), and the root has all of them below it.
//! - [`slots`]: SwitchML and NetReduce, whose packets have slots of their own; [`hashed`]: ATP,
//!   whose packets share aggregators and fall back to a server.
//! - [`tree`]: where a packet goes from a switch, given the outcome.
//! - [`worker`]: the end that sends contributions and takes results.
//!
//! None of these knows a network: a simulator carries their packets. SwitchML's policy also runs
//! with values and on real sockets:
//!
//! - [`packets`]: how its packets are written on the wire.
//! - [`aggregator`]: the element as a machine of its own.
//! - [`member`]: the part of a rank in the sum of one tensor.
//! - [`network_sums`]: the all-reduces of a rank, which end by the ranks alone where the aggregator
//!   fails.

pub mod aggregator;
pub mod hashed;
pub mod member;
pub mod network_sums;
pub mod packets;
pub mod slots;
pub mod tree;
pub mod worker;

#[cfg(test)]
mod trial;

/// The most members that a job may have.
pub const MEMBERS_MAX: usize = u128::BITS as usize;

/// A set of members of a job, by seat.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Contributors(u128);

impl Contributors {
    /// The member on a seat.
    ///
    /// # Panics
    /// When the seat is not below [`MEMBERS_MAX`].
    pub fn one(seat: usize) -> Self {
        assert!(seat < MEMBERS_MAX, "seat {seat} of at most {MEMBERS_MAX}");
        Self(1 << seat)
    }

    /// The members on the first seats.
    ///
    /// # Panics
    /// When there are more than [`MEMBERS_MAX`].
    pub fn all(members: usize) -> Self {
        (0..members).map(Self::one).fold(Self::default(), Self::and)
    }

    /// The members of either set.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether a member is in both.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether all of its members are in another set.
    pub const fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }
}

/// A sum of contributions.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PartialSum {
    /// The members whose contributions are in it.
    pub who: Contributors,
    /// Whether one of them is in it twice.
    pub twice: bool,
}

impl PartialSum {
    /// A member's contribution.
    pub fn of(seat: usize) -> Self {
        Self {
            who: Contributors::one(seat),
            twice: false,
        }
    }

    /// Adds another sum.
    pub const fn add(&mut self, other: Self) {
        self.twice = self.twice || other.twice || self.who.meets(other.who);
        self.who = self.who.and(other.who);
    }
}

/// One packet's worth of a job's tensors.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SumPacket {
    /// The job.
    pub job: u32,
    /// Number of the packet, counted over all tensors of the job.
    pub number: u32,
    /// What it is.
    pub kind: SumKind,
    /// Its content.
    pub sum: PartialSum,
}

/// What a packet is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum SumKind {
    /// A contribution, on its way to the root.
    #[default]
    Contribution,
    /// The same, sent again because no result has come.
    Again,
    /// A contribution that found its aggregator taken (ATP): it goes to the server as it is.
    Collided,
    /// The sum of all, for all members.
    Result,
    /// The sum of all, for the one member that it goes to: no switch looks at it.
    Answer,
}

/// What a switch knows of its place in the tree of a job.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TreePlace {
    /// The members below it.
    pub below: Contributors,
    /// Of these, the members without a switch in between.
    pub direct: Contributors,
    /// Whether a switch is above it.
    pub tier: TreeTier,
}

/// A switch's place in the tree.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum TreeTier {
    /// All members are below it.
    #[default]
    Root,
    /// It has a switch above it.
    Branch,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SumOutcome {
    /// It goes on as it came: a contribution to the switch above or, from the root, to its
    /// destination; a result to its destination.
    Pass,
    /// The element keeps its content, or nothing of it.
    Absorb,
    /// It goes on with another content.
    Replace,
    /// A copy goes to every member below. If it came as a result, from a server below, a copy also
    /// goes up, and none goes back.
    Multicast,
    /// It goes back to where it came from, with another content.
    Reply,
}

/// What a switch does with packets of sums. Implementors: [`slots::SlottedSums`],
/// [`hashed::HashedSums`] and [`hashed::SumServer`].
pub trait Aggregator: std::fmt::Debug + Send {
    /// A packet arrives: contributions from below, results from anywhere.
    fn arrive(&mut self, place: &TreePlace, packet: &mut SumPacket) -> SumOutcome;
}
