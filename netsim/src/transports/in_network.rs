//! Transports whose all-reduces are summed by switches: SwitchML, ATP and NetReduce.
//!
//! The element and its policies are `gradwire_collectives::aggregation`; here is what surrounds
//! them in a fabric.
//!
//! - `trees`: the switches that add up a group's tensors, from the hosts' own switches to one root.
//! - `element`: an `Aggregator` in a switch.
//! - [`worker_host`]: a host of SwitchML or ATP. [`connections`]: a host of NetReduce, which is one
//!   of RoCE.
//! - `turns`: the all-reduces of a group, one after the other.
//!
//! Other flows and collectives ride IRN beside SwitchML and ATP, and RoCE beside NetReduce.

pub mod connections;
pub(crate) mod element;
pub(crate) mod trees;
mod turns;
pub mod worker_host;

use gradwire_collectives::aggregation::hashed::HashedSums;
use gradwire_collectives::aggregation::slots::{KnownSum, SlottedSums};
use gradwire_collectives::aggregation::{Aggregator, SumPacket};

use super::reference::cargo::ReferenceCargo;
use super::settings::ReferenceSettings;

/// Aggregators of a switch (ATP, section 6: 40,000).
const AGGREGATORS: usize = 40_000;

/// Who adds up, and how.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SumPolicy {
    /// SwitchML.
    SwitchMl,
    /// ATP.
    Atp,
    /// ATP where no switch has an aggregator: servers do everything.
    AtpServers,
    /// NetReduce.
    NetReduce,
}

impl SumPolicy {
    /// The element of a switch.
    pub(crate) fn aggregator(self, settings: &ReferenceSettings) -> Box<dyn Aggregator> {
        match self {
            Self::SwitchMl => {
                let slots = 2 * worker_host::window(settings);
                Box::new(SlottedSums::new(slots, KnownSum::GoesBack))
            }
            Self::NetReduce => {
                let slots = 2 * connections::WINDOW;
                Box::new(SlottedSums::new(slots, KnownSum::GoesOn))
            }
            Self::Atp => Box::new(HashedSums::new(AGGREGATORS)),
            Self::AtpServers => Box::new(HashedSums::new(0)),
        }
    }
}

/// The content of a packet: header fields of the transport that carries it, and a sum.
#[derive(Clone, Copy, Debug, Default)]
pub struct SumCargo {
    /// The header fields.
    pub(crate) flow: ReferenceCargo,
    /// What switches look at.
    pub(crate) sum: Option<SumPacket>,
}
