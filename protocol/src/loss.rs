//! Which packets a bad link loses: single ones, or bursts.
//!
//! Simulated links and the fault layer of real sockets both use this one process.

use rand::{Rng, RngExt};

use crate::units::Share;

/// A loss process with two states (Gilbert, 1960): it enters bursts so often that the given share
/// of packets is lost, and leaves them so that they have the given mean length. It draws how many
/// packets a state lasts, a geometric number, so that most packets cost no draw.
#[derive(Clone, Debug)]
pub struct LossProcess {
    drop: Share,
    enter: f64,
    leave: f64,
    in_burst: bool,
    /// The next packets that come in this state; `None` before that is drawn.
    left: Option<u64>,
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
            left: None,
        }
    }

    /// Forgets whether it was in a burst: the next packet is lost with the same probability as any.
    pub fn forget(&mut self, rng: &mut impl Rng) {
        self.in_burst = rng.random_bool(self.drop.get());
        self.left = None;
    }

    /// Whether the next packet is lost.
    pub fn loses(&mut self, rng: &mut impl Rng) -> bool {
        self.passes(1, rng) == 0
    }

    /// How many of the next packets pass before one is lost, up to `most`. If they are fewer, the
    /// lost one has come, too.
    pub fn passes(&mut self, most: u64, rng: &mut impl Rng) -> u64 {
        if self.drop.is_none() || self.drop == Share::ALL {
            return if self.drop.is_none() { most } else { 0 };
        }
        let mut passed = 0;
        loop {
            let mut left = self.left.unwrap_or_else(|| self.more(rng));
            if !self.in_burst {
                let taken = left.min(most - passed);
                (passed, left) = (passed + taken, left - taken);
            }
            if passed == most {
                self.left = Some(left);
                return passed;
            }
            if self.in_burst && left > 0 {
                self.left = Some(left - 1);
                return passed;
            }
            self.in_burst = !self.in_burst;
            self.left = Some(self.more(rng).saturating_add(1));
        }
    }

    /// How many more packets come in this state.
    fn more(&self, rng: &mut impl Rng) -> u64 {
        let ends = if self.in_burst {
            self.leave
        } else {
            self.enter
        };
        // The inverse of a geometric distribution; with `ends` = 1 the logarithm is infinite.
        let drawn = 1.0 - rng.random::<f64>();
        (drawn.ln() / (-ends).ln_1p()) as u64
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
    fn the_least_share_loses_next_to_none() {
        assert_eq!(lost_of(1e-18, 1.0, 1_000_000).0, 0.0);
    }

    #[test]
    fn packets_are_lost_alike_singly_and_in_runs() {
        let process = || LossProcess::new(Share::new(0.2).expect("a share"), 3.0);
        let rng = || ChaCha8Rng::seed_from_u64(9);
        let (mut single, mut draws) = (process(), rng());
        let singly: Vec<bool> = (0..10_000).map(|_| single.loses(&mut draws)).collect();
        let (mut many, mut draws) = (process(), rng());
        let mut in_runs = Vec::new();
        while in_runs.len() < singly.len() {
            let passed = many.passes(46, &mut draws);
            in_runs.extend((0..passed).map(|_| false));
            in_runs.extend((passed < 46).then_some(true));
        }
        in_runs.truncate(singly.len());
        assert_eq!(in_runs, singly);
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
