//! Chooses the path of the next run of packets.
//!
//! Paths are taken in turn. A path that returned CE or lost a packet skips some turns, so that good
//! paths are reused and bad ones tried again later (the idea of REPS, Bonato et al., arXiv
//! 2407.21625, without its per-packet memory). A path that disappoints again when it is back skips
//! twice as many turns, and half as many once it was taken without a complaint: so a slow path gets
//! as much as it bears.

use crate::units::Entropy;

/// Turns that a path skips after a CE mark, and at most after one.
const MARK_TURNS: u8 = 1;
const MARK_TURNS_MAX: u8 = 16;
/// Turns that a path skips after a loss.
const LOSS_TURNS: u8 = 4;
const TURNS_MAX: u8 = 32;

/// A path to a peer.
#[derive(Clone, Copy, Debug)]
struct PathTurns {
    /// Turns that it still skips.
    sits_out: u8,
    /// Turns that it skips after the next mark.
    after_mark: u8,
    /// Whether it returned a mark since it was taken.
    is_marked: bool,
}

/// The paths to one peer.
#[derive(Clone, Debug)]
pub struct Spray {
    paths: Vec<PathTurns>,
    next: usize,
}

impl Spray {
    /// `paths` paths, at least one, beginning at `start` so that ranks do not move in step.
    pub fn new(paths: u8, start: u64) -> Self {
        let fresh = PathTurns {
            sits_out: 0,
            after_mark: MARK_TURNS,
            is_marked: true,
        };
        let paths = usize::from(paths.max(1));
        Self {
            paths: vec![fresh; paths],
            next: (start % paths as u64) as usize,
        }
    }

    /// The path for the next run.
    pub fn take(&mut self) -> Entropy {
        for _ in 0..self.paths.len() {
            let at = self.turn();
            let path = &mut self.paths[at];
            if path.sits_out == 0 {
                if !path.is_marked {
                    path.after_mark = (path.after_mark / 2).max(MARK_TURNS);
                }
                path.is_marked = false;
                return Entropy(at as u8);
            }
            path.sits_out -= 1;
        }
        Entropy(self.turn() as u8)
    }

    fn turn(&mut self) -> usize {
        let at = self.next;
        self.next = (at + 1) % self.paths.len();
        at
    }

    /// Packets on these paths (bit e for entropy e) arrived with CE.
    pub fn on_marks(&mut self, entropies: u64) {
        for (at, path) in self.paths.iter_mut().enumerate().take(64) {
            if entropies >> at & 1 == 1 {
                path.sits_out = (path.sits_out + path.after_mark).min(TURNS_MAX);
                if !path.is_marked {
                    path.after_mark = (path.after_mark * 2).min(MARK_TURNS_MAX);
                }
                path.is_marked = true;
            }
        }
    }

    /// A packet on this path was lost.
    pub fn on_loss(&mut self, entropy: Entropy) {
        if let Some(path) = self.paths.get_mut(usize::from(entropy.0)) {
            path.sits_out = (path.sits_out + LOSS_TURNS).min(TURNS_MAX);
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
    fn a_path_that_is_always_marked_gets_few_turns() {
        let mut spray = Spray::new(4, 0);
        let mut taken = [0; 4];
        for _ in 0..1000 {
            let path = spray.take().0;
            taken[usize::from(path)] += 1;
            if path == 1 {
                spray.on_marks(1 << 1);
            }
        }
        assert!((15..40).contains(&taken[1]), "{taken:?}");
        let mut again = 0;
        for _ in 0..400 {
            again += u32::from(spray.take().0 == 1);
        }
        assert!(again > 80, "{again} turns once marks have ended");
    }

    #[test]
    fn one_of_only_bad_paths_is_taken() {
        let mut spray = Spray::new(2, 0);
        spray.on_marks(3);
        assert!(spray.take().0 < 2);
    }
}
