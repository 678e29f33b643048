//! Chooses the path of the next run of packets.
//!
//! Paths are taken in turn. A path that returned CE or lost a packet skips some turns, so that good
//! paths are reused and bad ones tried again later (the idea of REPS, Bonato et al., arXiv
//! 2407.21625, without its per-packet memory).

use crate::units::Entropy;

/// Turns that a path skips after a CE mark.
const MARK_TURNS: u8 = 1;
/// Turns that a path skips after a loss.
const LOSS_TURNS: u8 = 4;
const TURNS_MAX: u8 = 32;

/// The paths to one peer.
#[derive(Clone, Debug)]
pub struct Spray {
    sits_out: Vec<u8>,
    next: usize,
}

impl Spray {
    /// `paths` paths, at least one, beginning at `start` so that ranks do not move in step.
    pub fn new(paths: u8, start: u64) -> Self {
        let paths = usize::from(paths.max(1));
        Self {
            sits_out: vec![0; paths],
            next: (start % paths as u64) as usize,
        }
    }

    /// The path for the next run.
    pub fn take(&mut self) -> Entropy {
        let paths = self.sits_out.len();
        for _ in 0..paths {
            let path = self.next;
            self.next = (path + 1) % paths;
            if self.sits_out[path] == 0 {
                return Entropy(path as u8);
            }
            self.sits_out[path] -= 1;
        }
        let path = self.next;
        self.next = (path + 1) % paths;
        Entropy(path as u8)
    }

    /// Packets on these paths (bit e for entropy e) arrived with CE.
    pub fn on_marks(&mut self, entropies: u64) {
        for (path, turns) in self.sits_out.iter_mut().enumerate().take(64) {
            if entropies >> path & 1 == 1 {
                *turns = (*turns + MARK_TURNS).min(TURNS_MAX);
            }
        }
    }

    /// A packet on this path was lost.
    pub fn on_loss(&mut self, entropy: Entropy) {
        if let Some(turns) = self.sits_out.get_mut(usize::from(entropy.0)) {
            *turns = (*turns + LOSS_TURNS).min(TURNS_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_paths_are_taken_in_turn() {
        let mut spray = Spray::new(4, 2);
        let taken: Vec<u8> = (0..5).map(|_| spray.take().0).collect();
        assert_eq!(taken, [2, 3, 0, 1, 2]);
    }

    #[test]
    fn a_lossy_path_is_tried_again_later() {
        let mut spray = Spray::new(4, 0);
        spray.on_loss(Entropy(1));
        let taken: Vec<u8> = (0..20).map(|_| spray.take().0).collect();
        assert!(!taken[..12].contains(&1));
        assert!(taken.contains(&1));
    }

    #[test]
    fn one_of_only_bad_paths_is_taken() {
        let mut spray = Spray::new(2, 0);
        spray.on_marks(3);
        assert!(spray.take().0 < 2);
    }
}
