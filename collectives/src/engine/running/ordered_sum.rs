//! Sums contributions in the order of ranks, whatever the order in which their segments come.
//!
//! The order holds for each cell of a region; a cell is as long as a full segment.
//!
//! 1. A cell's turns go to the ranks in ascending order, this rank among them.
//! 2. A segment whose turn it is is added at once. An earlier one waits in the slot of its rank.
//! 3. The sum of the ranks before this one forms in the first slot. At this rank's turn it is added
//!    to the own values, and from then on the sum forms in the region.
//! 4. This rank's turn comes when its own values are there. A hole's turn is skipped.
//!
//! So equal contributions with equal holes give equal bits. A rank that is first or second copies
//! only segments that come early; a later one also copies the first contribution.

use std::ops::Range;

use gradwire_protocol::units::Rank;

use crate::engine::memory::SpareScratch;
use crate::numbers::dtype::{DType, ReduceOp};
use crate::numbers::kernels::accumulate;

/// A region's elements, and how they are summed.
#[derive(Clone, Copy, Debug)]
pub(super) struct SumShape {
    pub(super) dtype: DType,
    pub(super) op: ReduceOp,
    pub(super) bytes: usize,
    pub(super) cell_bytes: usize,
}

/// A segment's bytes and their offset in the region.
#[derive(Clone, Copy, Debug)]
pub(super) struct LandedBytes<'a> {
    pub(super) offset: usize,
    pub(super) bytes: &'a [u8],
}

/// How far the sum of a cell has come.
#[derive(Clone, Copy, Debug, Default)]
struct CellSum {
    /// Turns that are over.
    turn: usize,
    /// Whether the first slot has the sum of ranks before this one.
    has_begun: bool,
}

/// The owner of a turn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum TurnOwner {
    Slot(usize),
    Own,
}

/// The sum of one region.
#[derive(Debug)]
pub(super) struct OrderedSum {
    shape: SumShape,
    /// The other ranks that contribute, ascending. A rank's place among them is its slot.
    others: Vec<Rank>,
    /// How many of them come before this rank.
    before_own: usize,
    /// Gates that have to open before the own values are there.
    closed_gates: usize,
    /// Empty until the first segment comes.
    cells: Vec<CellSum>,
    /// Bytes that wait in each cell of each slot, or [`HOLE`].
    waiting: Vec<u32>,
    /// As many bytes as the region for each of the others; empty until a segment has to wait.
    slots: Vec<u8>,
}

/// Stands for the bytes of a cell that will never come.
const HOLE: u32 = u32::MAX;

impl OrderedSum {
    /// The sum of `others`, which ascend, and of this rank, which comes after `before_own` of them
    /// and whose values are there when `closed_gates` more gates have opened.
    pub(super) fn new(
        shape: SumShape,
        others: Vec<Rank>,
        before_own: usize,
        closed_gates: usize,
    ) -> Self {
        // The order of the first two operands does not matter.
        let before_own = if before_own == 1 { 0 } else { before_own };
        Self {
            shape,
            others,
            before_own,
            closed_gates,
            cells: Vec::new(),
            waiting: Vec::new(),
            slots: Vec::new(),
        }
    }

    /// Adds a segment of rank `from` to the region `target`, or keeps it until its turn.
    pub(super) fn land(
        &mut self,
        target: &mut [u8],
        from: Rank,
        landed: LandedBytes<'_>,
        spares: &mut SpareScratch,
    ) {
        self.begin(target);
        let slot = self.slot_of(from);
        let LandedBytes { mut offset, bytes } = landed;
        let mut rest = bytes;
        while !rest.is_empty() {
            let cell = offset / self.shape.cell_bytes;
            let range = self.range(cell);
            let (part, behind) = rest.split_at(rest.len().min(range.end - offset));
            if part.len() == range.len() && self.owner(cell) == Some(TurnOwner::Slot(slot)) {
                self.add(target, cell, part, spares);
                self.cells[cell].turn += 1;
            } else {
                self.keep(
                    slot,
                    LandedBytes {
                        offset,
                        bytes: part,
                    },
                    spares,
                );
                let at = self.waiting_at(slot, cell);
                self.waiting[at] += part.len() as u32;
            }
            self.drain(target, cell);
            (offset, rest) = (offset + part.len(), behind);
        }
    }

    /// Skips bytes that rank `from` will never bring: whole cells.
    pub(super) fn skip(&mut self, target: &mut [u8], from: Rank, hole: Range<usize>) {
        self.begin(target);
        let slot = self.slot_of(from);
        for cell in hole.start / self.shape.cell_bytes..hole.end.div_ceil(self.shape.cell_bytes) {
            let at = self.waiting_at(slot, cell);
            self.waiting[at] = HOLE;
            self.drain(target, cell);
        }
    }

    /// One of the gates has opened that the own values in `target` come after.
    pub(super) fn open_gate(&mut self, target: &mut [u8]) {
        self.closed_gates -= 1;
        (0..self.cells.len()).for_each(|cell| self.drain(target, cell));
    }

    /// Whether segments can be added as they come from now on.
    pub(super) fn needs_no_order(&self) -> bool {
        self.others.len() == 1 && self.closed_gates == 0 && self.cells.is_empty()
    }

    /// The slots, to be used again.
    pub(super) fn into_slots(self) -> Vec<u8> {
        self.slots
    }

    fn begin(&mut self, target: &mut [u8]) {
        if self.cells.is_empty() {
            let cells = self.shape.bytes.div_ceil(self.shape.cell_bytes);
            self.cells = vec![CellSum::default(); cells];
            self.waiting = vec![0; cells * self.others.len()];
            (0..cells).for_each(|cell| self.drain(target, cell));
        }
    }

    fn slot_of(&self, from: Rank) -> usize {
        let slot = self.others.binary_search(&from);
        slot.expect("it was made with all ranks that contribute")
    }

    fn range(&self, cell: usize) -> Range<usize> {
        let start = cell * self.shape.cell_bytes;
        start..self.shape.bytes.min(start + self.shape.cell_bytes)
    }

    fn waiting_at(&self, slot: usize, cell: usize) -> usize {
        slot * self.cells.len() + cell
    }

    /// The rank whose turn it is, if any turn is left.
    fn owner(&self, cell: usize) -> Option<TurnOwner> {
        let turn = self.cells[cell].turn;
        match turn.checked_sub(self.before_own) {
            None => Some(TurnOwner::Slot(turn)),
            Some(0) => Some(TurnOwner::Own),
            Some(_) => (turn <= self.others.len()).then(|| TurnOwner::Slot(turn - 1)),
        }
    }

    /// Adds the whole cell of the rank whose turn it is.
    fn add(&mut self, target: &mut [u8], cell: usize, part: &[u8], spares: &mut SpareScratch) {
        let SumShape { dtype, op, .. } = self.shape;
        let range = self.range(cell);
        let CellSum { turn, has_begun } = self.cells[cell];
        if turn > self.before_own {
            accumulate(dtype, op, &mut target[range], part);
        } else if has_begun {
            accumulate(dtype, op, &mut self.slots[range], part);
        } else {
            let (offset, bytes) = (range.start, part);
            self.keep(0, LandedBytes { offset, bytes }, spares);
            self.cells[cell].has_begun = true;
        }
    }

    /// Writes bytes to a slot.
    fn keep(&mut self, slot: usize, landed: LandedBytes<'_>, spares: &mut SpareScratch) {
        if self.slots.is_empty() {
            self.slots = spares.take(self.shape.bytes * self.others.len());
        }
        let at = slot * self.shape.bytes + landed.offset;
        self.slots[at..at + landed.bytes.len()].copy_from_slice(landed.bytes);
    }

    /// Takes the turns of a cell until one has to wait.
    fn drain(&mut self, target: &mut [u8], cell: usize) {
        let range = self.range(cell);
        while let Some(owner) = self.owner(cell) {
            let whole = range.len() as u32;
            match owner {
                TurnOwner::Own if self.closed_gates > 0 => return,
                TurnOwner::Own => self.add_own(target, cell),
                TurnOwner::Slot(slot) => match self.waiting[self.waiting_at(slot, cell)] {
                    HOLE => {}
                    bytes if bytes == whole => self.add_slot(target, cell, slot),
                    _ => return,
                },
            }
            self.cells[cell].turn += 1;
        }
    }

    /// Adds the sum of the ranks before this one to the own values.
    fn add_own(&self, target: &mut [u8], cell: usize) {
        let SumShape { dtype, op, .. } = self.shape;
        let range = self.range(cell);
        if self.cells[cell].has_begun {
            accumulate(dtype, op, &mut target[range.clone()], &self.slots[range]);
        }
    }

    /// Adds the cell that waits in a slot.
    fn add_slot(&mut self, target: &mut [u8], cell: usize, slot: usize) {
        let SumShape {
            dtype, op, bytes, ..
        } = self.shape;
        let range = self.range(cell);
        if slot >= self.before_own {
            let waiting = &self.slots[slot * bytes..][range.clone()];
            return accumulate(dtype, op, &mut target[range], waiting);
        }
        let has_begun = std::mem::replace(&mut self.cells[cell].has_begun, true);
        if slot == 0 {
            return; // the sum begins with it, where it is
        }
        let (first, later) = self.slots.split_at_mut(bytes);
        let waiting = &later[(slot - 1) * bytes..][range.clone()];
        if has_begun {
            accumulate(dtype, op, &mut first[range], waiting);
        } else {
            first[range].copy_from_slice(waiting);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole numbers below `end`: splitmix64 (Steele, Lea and Flood, 2014).
    struct Draws(u64);

    impl Draws {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((mixed ^ (mixed >> 31)) % end as u64) as usize
        }

        /// Floats whose sum depends on the order of adding.
        fn floats(&mut self, count: usize) -> Vec<u8> {
            let mut float = || {
                let size = (1_u32 << self.below(24)) as f32;
                (self.below(1 << 20) as f32 / 1e5 - 5.0) * size
            };
            (0..count).flat_map(|_| float().to_le_bytes()).collect()
        }
    }

    const CELL: usize = 24;

    /// One case: contributions, the segments that come, and the holes of each rank.
    struct Case {
        contributions: Vec<Vec<u8>>,
        me: usize,
        /// Of ranks that lose nothing, segments may have any length; others' are cells.
        holes: Vec<Vec<usize>>,
        /// By rank, offset and length of its segments.
        segments: Vec<(usize, usize, usize)>,
    }

    impl Case {
        fn draw(draws: &mut Draws) -> Self {
            let (world, bytes) = (2 + draws.below(7), 4 * (1 + draws.below(60)));
            let contributions = (0..world).map(|_| draws.floats(bytes / 4)).collect();
            let me = draws.below(world);
            let mut holes = vec![vec![]; world];
            let mut segments = vec![];
            for rank in (0..world).filter(|&rank| rank != me) {
                let loses = draws.below(2) == 0;
                let step = if loses {
                    CELL
                } else {
                    4 * (1 + draws.below(40))
                };
                for (cell, offset) in (0..bytes).step_by(step).enumerate() {
                    if loses && draws.below(3) == 0 {
                        holes[rank].push(cell);
                    } else {
                        segments.push((rank, offset, step.min(bytes - offset)));
                    }
                }
            }
            Self {
                contributions,
                me,
                holes,
                segments,
            }
        }

        /// What arrived, cell by cell in the order of ranks.
        fn folded(&self) -> Vec<u8> {
            let whole = self.contributions[self.me].len();
            let mut result = vec![];
            for (cell, start) in (0..whole).step_by(CELL).enumerate() {
                let range = start..whole.min(start + CELL);
                let came = (0..self.holes.len()).filter(|&rank| !self.holes[rank].contains(&cell));
                let parts = came.map(|rank| self.contributions[rank][range.clone()].to_vec());
                let sum = parts.reduce(|mut sum, part| {
                    accumulate(DType::F32, ReduceOp::Sum, &mut sum, &part);
                    sum
                });
                result.extend(sum.expect("the own part is there"));
            }
            result
        }

        /// The sum when segments come, holes are told and gates open in an order that is drawn.
        fn summed(&self, draws: &mut Draws) -> Vec<u8> {
            let mut target = self.contributions[self.me].clone();
            let rank = |rank: usize| Rank(rank as u16);
            let others = (0..self.holes.len()).filter(|&other| other != self.me);
            let shape = SumShape {
                dtype: DType::F32,
                op: ReduceOp::Sum,
                bytes: target.len(),
                cell_bytes: CELL,
            };
            let gates = draws.below(3);
            let others = others.map(rank).collect();
            let mut sum = OrderedSum::new(shape, others, self.me, gates);
            let mut spares = SpareScratch::default();
            let (mut left, mut closed) = (self.segments.clone(), gates);
            while !left.is_empty() || closed > 0 {
                if closed > 0 && draws.below(left.len() + 1) == 0 {
                    sum.open_gate(&mut target);
                    closed -= 1;
                    continue;
                }
                let (from, offset, length) = left.swap_remove(draws.below(left.len()));
                let bytes = &self.contributions[from][offset..offset + length];
                sum.land(
                    &mut target,
                    rank(from),
                    LandedBytes { offset, bytes },
                    &mut spares,
                );
                if left.iter().all(|(rank, ..)| *rank != from) {
                    self.skip_holes_of(from, &mut sum, &mut target);
                }
            }
            // A rank of which no segment came is told by its holes alone.
            let came = |rank| self.segments.iter().any(|segment| segment.0 == rank);
            for silent in (0..self.holes.len()).filter(|&rank| rank != self.me && !came(rank)) {
                self.skip_holes_of(silent, &mut sum, &mut target);
            }
            target
        }

        fn skip_holes_of(&self, from: usize, sum: &mut OrderedSum, target: &mut [u8]) {
            for cell in &self.holes[from] {
                let hole = cell * CELL..target.len().min((cell + 1) * CELL);
                sum.skip(target, Rank(from as u16), hole);
            }
        }
    }

    #[test]
    fn any_order_of_arrival_gives_the_fold_by_ranks() {
        for seed in 0..3_000 {
            let mut draws = Draws(seed);
            let case = Case::draw(&mut draws);
            let (folded, world) = (case.folded(), case.holes.len());
            for _ in 0..3 {
                let summed = case.summed(&mut draws);
                assert!(summed == folded, "seed {seed}: rank {} of {world}", case.me);
            }
        }
    }
}
