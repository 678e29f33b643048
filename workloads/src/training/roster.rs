//! The hosts that exchange with each other: servers, teams of workers, partners, and their groups.
//!
//! - Servers, or the centre of a gossip, are the first hosts; all others are workers.
//! - Workers in a row are a team. Its first worker, the leader, collects the team's gradients,
//!   exchanges them with servers or other leaders, and spreads the new values. A team of one is its
//!   own leader.
//! - A server, or the centre, has a group of two with each leader; two partners have one, too.

use std::collections::BTreeMap;

use super::exchange::{GradientExchange, Partners, Training};

/// The members of a training job, and its groups.
pub(super) struct Roster {
    /// The hosts that serve: 0 up to this one.
    pub(super) servers: u32,
    /// The hosts that compute.
    pub(super) workers: Vec<u32>,
    /// Hosts of each group.
    pub(super) groups: Vec<Vec<u32>>,
    team: u32,
    partners: Option<Partners>,
    /// The group of two hosts, the lower one first.
    pairs: BTreeMap<(u32, u32), u32>,
    /// The group of the first team.
    first_team: u32,
}

impl Roster {
    /// Makes the roster of this many hosts.
    pub(super) fn new(training: &Training, hosts: u32) -> Self {
        let (servers, partners) = match training.exchange {
            GradientExchange::Servers(servers) => (servers, None),
            GradientExchange::Gossip(Partners::Centre) => (1, Some(Partners::Centre)),
            GradientExchange::Gossip(partners) => (0, Some(partners)),
            _ => (0, None),
        };
        let mut roster = Self {
            servers,
            workers: (servers..hosts).collect(),
            groups: Vec::new(),
            team: training.team,
            partners,
            pairs: BTreeMap::new(),
            first_team: 0,
        };
        match (servers, partners) {
            (0, None) => roster.groups.push(roster.leaders().collect()),
            (0, Some(partners)) => roster.add_partners(partners),
            _ => roster.add_servers(),
        }
        roster.first_team = roster.groups.len() as u32;
        if roster.team > 1 {
            let teams = roster.workers.chunks(roster.team as usize);
            roster.groups.extend(teams.map(<[u32]>::to_vec));
        }
        roster
    }

    /// The first host of each team.
    pub(super) fn leaders(&self) -> impl Iterator<Item = u32> + '_ {
        self.workers.iter().copied().step_by(self.team as usize)
    }

    /// The number of a worker among the leaders, if it is one.
    pub(super) fn leader(&self, worker: u32) -> Option<u32> {
        worker
            .is_multiple_of(self.team)
            .then_some(worker / self.team)
    }

    /// The group of a worker's team, if it has more members.
    pub(super) fn team(&self, worker: u32) -> Option<u32> {
        (self.team > 1).then_some(self.first_team + worker / self.team)
    }

    /// The group of a server with a leader, by their hosts.
    pub(super) fn with_server(&self, server: u32, leader: u32) -> u32 {
        self.pairs[&(server, leader)]
    }

    /// The group in which a leader exchanges in a step: that of all leaders, or with its partner.
    pub(super) fn exchange(&self, number: u32, step: u32) -> u32 {
        let count = self.leaders().count() as u32;
        let own = self.workers[(number * self.team) as usize];
        let Some(partners) = self.partners else {
            return 0;
        };
        if partners == Partners::Centre {
            return self.with_server(0, own);
        }
        let other = partner(partners, number, (count, step));
        let other = self.workers[(other * self.team) as usize];
        self.pairs[&(own.min(other), own.max(other))]
    }

    fn add_servers(&mut self) {
        let leaders: Vec<u32> = self.leaders().collect();
        for server in 0..self.servers {
            for &leader in &leaders {
                self.add_pair(server, leader);
            }
        }
    }

    fn add_partners(&mut self, partners: Partners) {
        let leaders: Vec<u32> = self.leaders().collect();
        let count = leaders.len() as u32;
        // After this many steps the partners repeat.
        let period = match partners {
            Partners::HalvingDoubling => count.ilog2(),
            Partners::Ring | Partners::Centre => 2,
        };
        for step in 0..period {
            for number in 0..count {
                let other = partner(partners, number, (count, step));
                if number < other {
                    self.add_pair(leaders[number as usize], leaders[other as usize]);
                }
            }
        }
    }

    fn add_pair(&mut self, low: u32, high: u32) {
        let group = self.groups.len() as u32;
        if let std::collections::btree_map::Entry::Vacant(free) = self.pairs.entry((low, high)) {
            free.insert(group);
            self.groups.push(vec![low, high]);
        }
    }
}

/// The partner of a leader among this many, in a step.
fn partner(partners: Partners, number: u32, (count, step): (u32, u32)) -> u32 {
    match partners {
        Partners::HalvingDoubling => number ^ (1 << (step % count.ilog2())),
        // Even steps pair 0 with 1, odd ones 1 with 2.
        Partners::Ring | Partners::Centre => match (number + step).is_multiple_of(2) {
            true => (number + 1) % count,
            false => (number + count - 1) % count,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partners_find_each_other_and_reach_all() {
        for partners in [Partners::Ring, Partners::HalvingDoubling] {
            for count in [2, 4, 8, 16] {
                let mut reached: Vec<u64> = (0..count).map(|number| 1 << number).collect();
                for step in 0..count {
                    let other = |number| partner(partners, number, (count, step));
                    let before = reached.clone();
                    for number in 0..count {
                        assert_ne!(other(number), number);
                        assert_eq!(other(other(number)), number, "{partners:?} {count} {step}");
                        reached[number as usize] |= before[other(number) as usize];
                    }
                }
                assert!(reached.iter().all(|set| set.count_ones() == count));
            }
        }
    }
}
