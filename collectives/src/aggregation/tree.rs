//! Where packets of sums go from a switch: up to the root, down to members, or to a destination.

use super::{Aggregator, Contributors, SumKind, SumOutcome, SumPacket, TreePlace, TreeTier};

/// A switch in the tree of a job, whose ports are known by `P`.
#[derive(Clone, Debug)]
pub struct TreeSwitch<P> {
    place: TreePlace,
    up: Option<P>,
    down: Vec<P>,
}

/// Where a packet goes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NextHop<P> {
    /// Nowhere: it ends here.
    Nowhere,
    /// To its destination, on the way of any other packet.
    Destination,
    /// Out of these ports, a copy each.
    Ports(Vec<P>),
}

impl<P: Copy + PartialEq> TreeSwitch<P> {
    /// A switch with nothing below it yet; without a port up it is the root.
    pub fn new(up: Option<P>) -> Self {
        let place = TreePlace {
            tier: match up {
                None => TreeTier::Root,
                Some(_) => TreeTier::Branch,
            },
            ..TreePlace::default()
        };
        Self {
            place,
            up,
            down: Vec::new(),
        }
    }

    /// A member is at the end of a port.
    pub fn add_member(&mut self, port: P, seat: usize) {
        self.place.direct = self.place.direct.and(Contributors::one(seat));
        self.add_switch(port, Contributors::one(seat));
    }

    /// A switch with these members below it is at the end of a port.
    pub fn add_switch(&mut self, port: P, members: Contributors) {
        self.place.below = self.place.below.and(members);
        self.down.push(port);
    }

    /// The members below it.
    pub const fn below(&self) -> Contributors {
        self.place.below
    }

    /// Lets the element decide about a packet from a port; returns where the packet goes.
    pub fn arrive(
        &self,
        element: &mut dyn Aggregator,
        packet: &mut SumPacket,
        from: P,
    ) -> NextHop<P> {
        let came = packet.kind;
        let is_from_below = self.down.contains(&from);
        let is_on_its_way_down = came != SumKind::Result && !is_from_below;
        if came == SumKind::Answer || is_on_its_way_down {
            return NextHop::Destination;
        }
        match element.arrive(&self.place, packet) {
            SumOutcome::Absorb => NextHop::Nowhere,
            SumOutcome::Reply => NextHop::Ports(vec![from]),
            SumOutcome::Pass | SumOutcome::Replace => match (packet.kind, self.up) {
                (SumKind::Result | SumKind::Answer, _) | (_, None) => NextHop::Destination,
                (_, Some(up)) => NextHop::Ports(vec![up]),
            },
            SumOutcome::Multicast => {
                let spared = (came == SumKind::Result).then_some(from);
                let up = self.up.filter(|_| is_from_below && spared.is_some());
                let all = self.down.iter().copied().chain(up);
                NextHop::Ports(all.filter(|&port| Some(port) != spared).collect())
            }
        }
    }
}
