//! The residuals that an operation has taken, and those that it would leave.
//!
//! Both wait here until the operation ends. If it succeeds, the lost values are kept for the next
//! step. If it fails, the caller repeats its contributions, so the residuals that it had added are
//! kept again as they were.

use crate::numbers::holes::ResidualPiece;

/// The residuals of one operation.
#[derive(Debug, Default)]
pub(super) struct ResidualDraft {
    /// Values that were added to contributions.
    taken: Vec<ResidualPiece>,
    /// Values of contributions that were lost.
    lost: Vec<ResidualPiece>,
}

impl ResidualDraft {
    pub(super) fn take(&mut self, pieces: Vec<ResidualPiece>) {
        self.taken.extend(pieces);
    }

    pub(super) fn lose(&mut self, piece: ResidualPiece) {
        self.lost.push(piece);
    }

    /// What is left when the operation has succeeded.
    pub(super) fn into_lost(self) -> Vec<ResidualPiece> {
        self.lost
    }

    /// What is left when the operation has failed.
    pub(super) fn into_taken(self) -> Vec<ResidualPiece> {
        self.taken
    }
}
