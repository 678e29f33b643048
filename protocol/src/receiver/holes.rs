//! The missing segments of one message: which of them its sender has lost, and which are accepted.
//!
//! 1. [`HoleState::accept`] accepts as many holes as the message tolerates and the ledger allows,
//!    and only of segments that are certainly not protected. It takes segments that the sender has
//!    found lost before those that may only be late, and then the least needed ones. Each is
//!    reserved in the ledger.
//! 2. An accepted segment that arrives after all is stored, and released in the ledger.
//! 3. When the message ends, [`HoleState::take`] books the holes that are still accepted as lost.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::bitmap::{self, Bitmap};
use crate::budget::{BudgetVerdict, Ledger};
use crate::message::SumName;
use crate::priority::{RepairNeed, TieBreaker};
use crate::segment::Segmentation;
use crate::units::Share;
use crate::wire::{Flags, Header, HoleProof, SegmentReport};

/// The missing segments of a message, and how much its sender has said about them.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct HoleState {
    protected_missing: u32,
    /// Whether the sender has said that every segment was sent at least once.
    all_sent: bool,
    /// How sure the sender is of the holes that it has named last.
    proof: HoleProof,
    /// The segments that the sender has found lost and does not repair unless it is asked to.
    lost: Option<Bitmap>,
    /// Segments that are accepted as holes: reserved in the ledger, and never asked for.
    accepted: Option<Bitmap>,
}

impl HoleState {
    /// The state of a message before its first segment, with `protected` protected ones.
    pub(super) fn new(protected: u32) -> Self {
        Self {
            protected_missing: protected,
            all_sent: false,
            proof: HoleProof::default(),
            lost: None,
            accepted: None,
        }
    }

    /// The packet says whether all was sent, and whether its sender is sure about holes.
    pub(super) fn on_probe(&mut self, header: &Header) {
        self.all_sent |= header.flags.has(Flags::ALL_SENT);
        self.proof = HoleProof::of(header.flags);
    }

    /// Whether the sender has said that all was sent.
    pub(super) fn all_sent(&self) -> bool {
        self.all_sent
    }

    /// Whether some segments are accepted as holes.
    pub(super) fn are_accepted(&self) -> bool {
        self.accepted.is_some()
    }

    /// New segments have arrived, the first of them with this header. The flags of all are equal.
    pub(super) fn on_segments(&mut self, header: &Header, segments: u32) {
        if header.flags.has(Flags::PROTECTED) {
            self.protected_missing = self.protected_missing.saturating_sub(segments);
        }
    }

    /// A new segment has arrived; returns whether it was accepted as a hole.
    pub(super) fn fill(&mut self, segment: u32) -> bool {
        (self.accepted.as_mut()).is_some_and(|holes| holes.remove(segment))
    }

    /// Processes the holes in a PROBE: the segments that the sender has found lost and does not
    /// repair. A segment that an earlier PROBE named and this one does not is repaired, or has
    /// arrived. Returns how many missing segments are named for the first time.
    pub(super) fn on_lost(
        &mut self,
        told: Option<(SegmentReport, &[u8])>,
        received: &Bitmap,
    ) -> u32 {
        let before = self.lost.take();
        let Some((report, encoded)) = told else {
            return 0;
        };
        let segments = received.len();
        let mut news = 0;
        let mut lost = Bitmap::new(segments);
        let is_new = |segment| before.as_ref().is_none_or(|before| !before.has(segment));
        bitmap::decode_runs(encoded, report.bits, |at, run| {
            let first = report.first.saturating_add(at).min(segments);
            for segment in first..first.saturating_add(run).min(segments) {
                let missing = !received.has(segment) && lost.insert(segment);
                news += u32::from(missing && is_new(segment));
            }
        });
        self.lost = Some(lost);
        news
    }

    /// How many missing segments its sender has named last.
    pub(super) fn named(&self) -> u32 {
        self.lost.as_ref().map_or(0, Bitmap::ones)
    }

    /// The receiver asks for repairs, so segments that the sender has given up may arrive after
    /// all.
    pub(super) fn forget_lost(&mut self) {
        self.lost = None;
    }

    /// How sure the sender is that every missing segment is lost, so that waiting brings none;
    /// `None` if it does not say so.
    pub(super) fn proof_of_all(&self, received: &Bitmap) -> Option<HoleProof> {
        let lost = self.lost.as_ref().filter(|_| self.all_sent)?;
        let missing = received.zeros();
        let are_named = missing > 0
            && lost.ones() >= missing
            && received.iter_zeros().all(|segment| lost.has(segment));
        are_named.then_some(self.proof)
    }

    /// How many of these segments the sender has not found lost.
    pub(super) fn not_lost(&self, holes: &Bitmap) -> u32 {
        let is_lost = |segment: &u32| self.lost.as_ref().is_some_and(|lost| lost.has(*segment));
        holes
            .iter_ones()
            .filter(|segment| !is_lost(segment))
            .count() as u32
    }

    /// Whether the sender leaves holes unless it is asked to repair them.
    pub(super) fn are_left(&self) -> bool {
        self.lost.is_some()
    }

    /// Accepts holes of a message with this tolerance, by the rules at the top of this file. The
    /// receiver cannot tell which missing segments are protected: it only leaves room for their
    /// number. Their sender repairs them even if they are accepted here.
    pub(super) fn accept(
        &mut self,
        received: &Bitmap,
        limits: &HoleLimits,
        tie_breaker: TieBreaker,
        ledger: &mut Ledger,
    ) {
        let cut = limits.cut;
        let mut accepted = (self.accepted.take()).unwrap_or_else(|| Bitmap::new(cut.segments()));
        let unprotected = received.zeros().saturating_sub(self.protected_missing);
        let most = limits.most().min(unprotected);
        let room = most.saturating_sub(accepted.ones());
        let is_lost = |segment| self.lost.as_ref().is_some_and(|lost| lost.has(segment));
        let mut holes: Vec<(bool, RepairNeed, u32)> = (received.iter_zeros())
            .filter(|&segment| room > 0 && !accepted.has(segment))
            .map(|segment| {
                let need = RepairNeed::unknown(tie_breaker, segment);
                (!is_lost(segment), need, segment)
            })
            .collect();
        holes.sort_unstable();
        for (.., segment) in holes.into_iter().take(room as usize) {
            let bytes = u64::from(cut.length(segment));
            if ledger.reserve(limits.sum, bytes) == BudgetVerdict::Refused {
                break;
            }
            accepted.insert(segment);
        }
        self.accepted = Some(accepted);
    }

    /// Bytes of the missing segments that are not accepted.
    pub(super) fn open_bytes(&self, received: &Bitmap, cut: Segmentation) -> u64 {
        let accepted = self.accepted.as_ref();
        let open = received.zeros() - accepted.map_or(0, Bitmap::ones);
        let is_open = |segment| {
            !received.has(segment) && accepted.is_none_or(|accepted| !accepted.has(segment))
        };
        let last = cut.segments() - 1;
        let short = match is_open(last) {
            true => cut.segment_bytes() - cut.length(last),
            false => 0,
        };
        u64::from(open) * u64::from(cut.segment_bytes()) - u64::from(short)
    }

    /// Accepts all missing segments, protected ones too: the caller has reserved them.
    pub(super) fn give_up(&mut self, received: &Bitmap) {
        let mut accepted = (self.accepted.take()).unwrap_or_else(|| Bitmap::new(received.len()));
        for segment in received.iter_zeros() {
            accepted.insert(segment);
        }
        self.accepted = Some(accepted);
        self.protected_missing = 0;
    }

    /// Whether every missing segment is accepted.
    pub(super) fn are_all_accepted(&self, received: &Bitmap) -> bool {
        let accepted = self.accepted.as_ref().map_or(0, Bitmap::ones);
        let missing = received.zeros();
        missing == accepted && (missing == 0 || self.protected_missing == 0)
    }

    /// Forgets the accepted holes, and releases them in the ledger.
    pub(super) fn release(&mut self, sum: SumName, cut: Segmentation, ledger: &mut Ledger) {
        if let Some(holes) = self.accepted.take() {
            let bytes = |segment| u64::from(cut.length(segment));
            ledger.release(sum, holes.iter_ones().map(bytes).sum());
        }
    }

    /// Takes the accepted holes, and books them as lost.
    pub(super) fn take(
        &mut self,
        sum: SumName,
        cut: Segmentation,
        ledger: &mut Ledger,
    ) -> Option<Bitmap> {
        let holes = self.accepted.take().filter(|holes| holes.ones() > 0)?;
        let bytes = |segment| u64::from(cut.length(segment));
        let missing_bytes = holes.iter_ones().map(bytes).sum();
        ledger.lose(sum.step, holes.ones(), missing_bytes);
        Some(holes)
    }

    /// The segments that a BITMAP shows: those that arrived, and those that are accepted as holes,
    /// so that the sender does not repair them.
    pub(super) fn shown<'a>(&self, received: &'a Bitmap) -> Cow<'a, Bitmap> {
        match &self.accepted {
            Some(accepted) => {
                let mut shown = received.clone();
                for segment in accepted.iter_ones() {
                    shown.insert(segment);
                }
                Cow::Owned(shown)
            }
            None => Cow::Borrowed(received),
        }
    }
}

/// How many holes a message tolerates, and which budgets pay for them.
#[derive(Clone, Copy, Debug)]
pub(super) struct HoleLimits {
    pub(super) cut: Segmentation,
    pub(super) tolerance: Share,
    pub(super) sum: SumName,
}

impl HoleLimits {
    /// Segments that may be missing.
    pub(super) fn most(&self) -> u32 {
        self.cut.holes_allowed(self.tolerance)
    }
}
