//! Which packets a bad link loses: single ones, or bursts.
//!
//! Simulated links and the fault layer of real sockets both use this one process.

use rand::{Rng, RngExt};

use crate::units::Share;

/// A loss process with two states (Gilbert, 1960): it enters bursts so often that the given share
/// of packets is lost, and leaves them so that they have the given mean length.
#[derive(Clone, Debug)]
pub struct LossProcess {
    drop: Share,
    enter: f64,
    leave: f64,
    in_burst: bool,
}

impl LossProcess {
    /// A process that loses `drop` of all packets in bursts of `burst` packets on average; bursts
    /// cannot be shorter than those of independent losses, and are at least as long.
    pub fn new(drop: Share, burst: f64) -> Self {
        let independent = 1.0 / (1.0 - drop.get()).max(f64::EPSILON);
        let leave = 1.0 / burst.max(independent);
        let enter = (drop.get() * leave / (1.0 - drop.get()).max(f64::EPSILON)).min(1.0);
        Self {
            drop,
            enter,
            leave,
            in_burst: false,
        }
    }

    /// Forgets whether it was in a burst: the next packet is lost with the same probability as any.
    pub fn forget(&mut self, rng: &mut impl Rng) {
        self.in_burst = rng.random_bool(self.drop.get());
    }

    /// Whether the next packet is lost.
    pub fn loses(&mut self, rng: &mut impl Rng) -> bool {
        if self.drop.is_none() || self.drop == Share::ALL {
            return !self.drop.is_none();
        }
        self.in_burst = match self.in_burst {
            true => !rng.random_bool(self.leave),
            false => rng.random_bool(self.enter),
        };
        self.in_burst
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// Packets lost and bursts among `packets`.
    fn lost_of(drop: f64, burst: f64, packets: usize) -> (f64, f64) {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let mut process = LossProcess::new(Share::new(drop).expect("a share"), burst);
        let (mut lost, mut bursts, mut before) = (0.0, 0.0, false);
        for _ in 0..packets {
            let now = process.loses(&mut rng);
            lost += f64::from(u8::from(now));
            bursts += f64::from(u8::from(now && !before));
            before = now;
        }
        (lost, bursts)
    }

    #[test]
    fn losses_have_their_share_and_burst_length() {
        for (drop, burst) in [(0.05, 4.0), (0.01, 16.0), (0.2, 2.0)] {
            let (lost, bursts) = lost_of(drop, burst, 2_000_000);
            assert!((lost / 2e6 / drop - 1.0).abs() < 0.1, "{lost} of {drop}");
            assert!(
                (lost / bursts / burst - 1.0).abs() < 0.1,
                "{lost} in {bursts} of {burst}"
            );
        }
    }

    #[test]
    fn a_process_that_forgets_loses_the_same_share() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let mut process = LossProcess::new(Share::new(0.3).expect("a share"), 8.0);
        let mut lost = 0;
        for _ in 0..100_000 {
            process.forget(&mut rng);
            lost += u32::from(process.loses(&mut rng));
        }
        assert!((29_000..31_000).contains(&lost), "{lost}");
    }

    #[test]
    fn independent_losses_are_independent() {
        let (lost, bursts) = lost_of(0.2, 1.0, 400_000);
        assert!((lost / 400_000.0 / 0.2 - 1.0).abs() < 0.03, "{lost}");
        assert!(
            (lost / bursts / 1.25 - 1.0).abs() < 0.03,
            "{lost} in {bursts}"
        );
    }
}
