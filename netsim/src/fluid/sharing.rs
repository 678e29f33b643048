//! How messages share links: by strict priority, and among messages of equal turn max-min fair, by
//! progressive filling (Bertsekas and Gallager, Data Networks, section 6.5.2).

use super::FluidLink;
use crate::transports::reference::player::MessageTurn;

/// The two links that a message takes.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum LinkSide {
    /// Of its sender.
    Up,
    /// Of its receiver.
    Down,
}

/// A message that wants to be sent.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Demand {
    pub(super) turn: MessageTurn,
    pub(super) hosts: (u32, u32),
    /// Which of the messages that have begun it is.
    pub(super) number: u32,
}

/// The part of its links that a message gets, and the link that gives no more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LinkShare {
    pub(super) bits_per_pico: f64,
    pub(super) bound: LinkSide,
}

/// Less than this share of a link is no bandwidth but a rounding error.
const LEAST: f64 = 1e-9;

/// The links, and the bandwidth that is left of each while it is divided.
#[derive(Debug)]
pub(super) struct Shares {
    whole: Vec<f64>,
    left: Vec<f64>,
    users: Vec<u32>,
}

impl Shares {
    pub(super) fn new(links: &[FluidLink]) -> Self {
        let sides = links.iter().flat_map(|link| [link.up, link.down]);
        let whole: Vec<f64> = sides
            .map(|rate| rate.as_bits_per_second() as f64 / 1e12)
            .collect();
        Self {
            left: whole.clone(),
            users: vec![0; whole.len()],
            whole,
        }
    }

    /// The share of each demand; those of earlier turns take what they can before others.
    pub(super) fn divide(&mut self, demands: &[Demand]) -> Vec<(Demand, LinkShare)> {
        let mut demands = demands.to_vec();
        demands.sort_unstable();
        self.left.copy_from_slice(&self.whole);
        let mut shares = Vec::with_capacity(demands.len());
        for equal in demands.chunk_by(|one, other| one.turn == other.turn) {
            self.fill(equal.to_vec(), &mut shares);
        }
        shares
    }

    /// Raises the shares of equal demands together until each meets a link that is full.
    fn fill(&mut self, mut open: Vec<Demand>, shares: &mut Vec<(Demand, LinkShare)>) {
        for link in open.iter().flat_map(links) {
            self.users[link] += 1;
        }
        let mut full = Vec::new();
        while !open.is_empty() {
            let room = |link: usize| self.left[link].max(0.0) / f64::from(self.users[link]);
            let rooms = open.iter().flat_map(links).map(room);
            let tightest = rooms.fold(f64::MAX, f64::min);
            let limit = tightest * (1.0 + LEAST) + f64::MIN_POSITIVE;
            open.retain(|demand| {
                let [up, down] = links(demand).map(room);
                let side = if down < up {
                    LinkSide::Down
                } else {
                    LinkSide::Up
                };
                let is_full = up.min(down) <= limit;
                if is_full {
                    full.push((*demand, side));
                }
                !is_full
            });
            for (demand, bound) in full.drain(..) {
                for link in links(&demand) {
                    self.left[link] -= tightest;
                    self.users[link] -= 1;
                }
                let real = tightest > LEAST * self.whole[links(&demand)[bound as usize]];
                let bits_per_pico = if real { tightest } else { 0.0 };
                shares.push((
                    demand,
                    LinkShare {
                        bits_per_pico,
                        bound,
                    },
                ));
            }
        }
    }
}

fn links(demand: &Demand) -> [usize; 2] {
    let (from, to) = demand.hosts;
    [from as usize * 2, to as usize * 2 + 1]
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::units::{Rate, Step};

    use super::*;

    fn demand(step: u32, hosts: (u32, u32)) -> Demand {
        Demand {
            turn: MessageTurn::of(Step(step), None),
            hosts,
            number: 0,
        }
    }

    fn divided(demands: &[Demand]) -> Vec<f64> {
        let rate = Rate::from_gbps(10);
        let links = [FluidLink {
            up: rate,
            down: rate,
        }; 4];
        let shares = Shares::new(&links).divide(demands);
        let of = |demand: &Demand| shares.iter().find(|(one, _)| one == demand);
        let gbps = demands
            .iter()
            .map(|one| of(one).map_or(-1.0, |(_, share)| share.bits_per_pico));
        gbps.map(|share| (share * 1e6).round() / 1e3).collect()
    }

    #[test]
    fn messages_to_one_host_share_its_link() {
        let shares = divided(&[demand(0, (0, 3)), demand(0, (1, 3)), demand(0, (1, 2))]);
        assert_eq!(shares, [5.0, 5.0, 5.0]);
        let uneven = divided(&[
            demand(0, (0, 3)),
            demand(0, (1, 3)),
            demand(0, (2, 3)),
            demand(0, (2, 1)),
        ]);
        assert_eq!(uneven, [3.333, 3.333, 3.333, 6.667]);
    }

    #[test]
    fn older_steps_leave_nothing_to_newer_ones() {
        assert_eq!(
            divided(&[demand(1, (0, 3)), demand(0, (1, 3))]),
            [0.0, 10.0]
        );
    }
}
