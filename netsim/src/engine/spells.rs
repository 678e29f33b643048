//! The slow spells of a port: when its wire carries only a share of its rate.
//!
//! Spells are drawn as time passes, from a seed of the port, so no event marks their ends, and a
//! run has the same spells on any number of threads.

use gradwire_fabric::topology::{Device, HostSpells, SlowSpells};
use gradwire_protocol::units::{Instant, Span};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The spells of one port.
#[derive(Debug)]
pub struct PortSpells {
    spells: SlowSpells,
    is_slow: bool,
    /// When that changes.
    until: Instant,
    rng: ChaCha8Rng,
}

impl PortSpells {
    /// The spells of the port from one device to another, if its host has any.
    pub fn of(spells: &HostSpells, ends: (Device, Device), seed: u64) -> Option<Self> {
        let spells = match ends {
            (Device::Host(_), _) => spells.send?,
            (_, Device::Host(_)) => spells.receive?,
            _ => return None,
        };
        let mut port = Self {
            spells,
            is_slow: false,
            until: Instant::START,
            rng: ChaCha8Rng::seed_from_u64(seed),
        };
        port.until = Instant::START + port.draw(spells.apart);
        Some(port)
    }

    /// The time that a packet takes now, if it takes `span` at the full rate. Times of calls never
    /// fall.
    pub fn stretched(&mut self, now: Instant, span: Span) -> Span {
        while self.until <= now {
            self.is_slow = !self.is_slow;
            let mean = match self.is_slow {
                true => self.spells.length,
                false => self.spells.apart,
            };
            self.until = self.until + self.draw(mean);
        }
        match self.is_slow {
            true => Span::from_picos((span.as_picos() as f64 / self.spells.left.get()) as u64),
            false => span,
        }
    }

    /// Draws from the exponential distribution of this mean.
    fn draw(&mut self, mean: Span) -> Span {
        let drawn = -(1.0 - self.rng.random::<f64>()).ln();
        Span::from_picos((mean.as_picos() as f64 * drawn) as u64 + 1)
    }
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::units::Share;

    use super::*;

    fn spells() -> SlowSpells {
        SlowSpells {
            length: Span::from_micros(100),
            apart: Span::from_micros(300),
            left: Share::new(0.25).expect("a share"),
        }
    }

    fn port(ends: (Device, Device)) -> Option<PortSpells> {
        let send = Some(spells());
        let spells = HostSpells {
            send,
            receive: None,
        };
        PortSpells::of(&spells, ends, 7)
    }

    #[test]
    fn a_port_is_slow_for_its_share_of_the_time() {
        let mut port = port((Device::Host(0), Device::Switch(0))).expect("hosts have spells");
        let packet = Span::from_micros(1);
        let times = (0..1_000_000).map(|at| Instant::START + Span::from_micros(at));
        let slow = times.filter(|&at| port.stretched(at, packet) == packet * 4);
        let share = slow.count() as f64 / 1e6;
        assert!((0.23..0.27).contains(&share), "{share}");
    }

    #[test]
    fn only_the_named_direction_of_hosts_is_slow() {
        let (host, switch) = (Device::Host(0), Device::Switch(0));
        assert!(port((switch, host)).is_none());
        assert!(port((switch, switch)).is_none());
    }
}
