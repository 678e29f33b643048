//! Sums contributions in rank order, whatever the order in which their segments arrive.
//!
//! The order holds for each cell of a region; a cell is as long as a full segment.
//!
//! 1. A cell's turns go to the ranks in ascending order, this rank among them.
//! 2. A segment whose turn it is is added at once. A segment that arrives before its turn waits in
//!    a copy of its cell.
//! 3. The sum of the ranks before this one is built in a separate cell. At this rank's turn it is
//!    added to the own values, and from then on the sum forms in the region.
//! 4. This rank's turn comes when its own values are available. A hole's turn is skipped.
//! 5. The memory of a copy goes to the next one as soon as it is added. So copies take as much
//!    memory as ranks are ahead of each other, and most of them stay in the cache.
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

impl LandedBytes<'_> {
    /// Their place in a region.
    #[inline]
    pub(super) fn target<'r>(&self, region: &'r mut [u8]) -> &'r mut [u8] {
        &mut region[self.offset..][..self.bytes.len()]
    }
}

/// The owner of a turn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum TurnOwner {
    Slot(usize),
    Own,
}

/// Copies of cells that wait, by slot and cell.
#[derive(Debug, Default)]
struct CellCopies {
    /// The place of each copy in `memory`, counted from 1; 0 if there is none.
    places: Vec<u32>,
    memory: Vec<Vec<u8>>,
    /// Places that are free.
    free: Vec<u32>,
}

impl CellCopies {
    fn has(&self, at: usize) -> bool {
        self.places[at] > 0
    }

    /// The copy at this slot and cell, or new memory for it.
    fn at(&mut self, at: usize, cell_bytes: usize, cells: &mut SpareScratch) -> &mut Vec<u8> {
        if !self.has(at) {
            let copy = cells.take(cell_bytes);
            self.put(at, copy);
        }
        &mut self.memory[self.places[at] as usize - 1]
    }

    fn put(&mut self, at: usize, copy: Vec<u8>) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.memory.push(Vec::new());
            self.memory.len() as u32
        });
        self.memory[place as usize - 1] = copy;
        self.places[at] = place;
    }

    /// The copy that lies there.
    fn take(&mut self, at: usize) -> Vec<u8> {
        let place = std::mem::take(&mut self.places[at]);
        self.free.push(place);
        std::mem::take(&mut self.memory[place as usize - 1])
    }
}

/// The sum of one region.
#[derive(Debug)]
pub(super) struct OrderedSum {
    shape: SumShape,
    /// The other ranks that contribute, ascending. A rank's place among them is its slot.
    others: Vec<Rank>,
    /// How many of them precede this rank.
    before_own: usize,
    /// Gates that must open before this rank's values are available.
    closed_gates: usize,
    /// Turns that are over, by cell. Empty until the first segment comes.
    turns: Vec<u32>,
    /// Bytes that have arrived of each cell of each slot, or [`HOLE`].
    came: Vec<u32>,
    /// Cells that wait. The first slot holds the sum of the ranks before this one.
    copies: CellCopies,
}

/// Stands for the bytes of a cell that will never come.
const HOLE: u32 = u32::MAX;

impl OrderedSum {
    /// The sum of `others`, in ascending order, and of this rank, which follows the first
    /// `before_own` of them and whose values are available when `closed_gates` more gates have
    /// opened.
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
            turns: Vec::new(),
            came: Vec::new(),
            copies: CellCopies::default(),
        }
    }

    /// Adds a segment of rank `from` to the region `target`, or keeps it until its turn.
    pub(super) fn land(
        &mut self,
        target: &mut [u8],
        from: Rank,
        landed: LandedBytes<'_>,
        cells: &mut SpareScratch,
    ) {
        self.begin(target, cells);
        let slot = self.slot_of(from);
        let LandedBytes { mut offset, bytes } = landed;
        let mut rest = bytes;
        while !rest.is_empty() {
            let cell = offset / self.shape.cell_bytes;
            let range = self.range(cell);
            let (part, behind) = rest.split_at(rest.len().min(range.end - offset));
            if part.len() == range.len() && self.owner(cell) == Some(TurnOwner::Slot(slot)) {
                self.add(target, cell, part, cells);
                self.turns[cell] += 1;
            } else {
                let (at, start) = (self.place_of(slot, cell), offset - range.start);
                let copy = self.copies.at(at, self.shape.cell_bytes, cells);
                copy[start..start + part.len()].copy_from_slice(part);
                self.came[at] += part.len() as u32;
            }
            self.drain(target, cell, cells);
            (offset, rest) = (offset + part.len(), behind);
        }
    }

    /// Skips bytes that rank `from` will never deliver: whole cells.
    pub(super) fn skip(
        &mut self,
        target: &mut [u8],
        from: Rank,
        hole: Range<usize>,
        cells: &mut SpareScratch,
    ) {
        self.begin(target, cells);
        let slot = self.slot_of(from);
        for cell in hole.start / self.shape.cell_bytes..hole.end.div_ceil(self.shape.cell_bytes) {
            let at = self.place_of(slot, cell);
            self.came[at] = HOLE;
            if self.copies.has(at) {
                cells.keep(self.copies.take(at));
            }
            self.drain(target, cell, cells);
        }
    }

    /// One of the gates has opened that precede this rank's values in `target`.
    pub(super) fn open_gate(&mut self, target: &mut [u8], cells: &mut SpareScratch) {
        self.closed_gates -= 1;
        (0..self.turns.len()).for_each(|cell| self.drain(target, cell, cells));
    }

    /// Whether segments can be added as they arrive from now on.
    pub(super) fn needs_no_order(&self) -> bool {
        self.others.len() == 1 && self.closed_gates == 0 && self.turns.is_empty()
    }

    fn begin(&mut self, target: &mut [u8], cells: &mut SpareScratch) {
        if self.turns.is_empty() {
            let count = self.shape.bytes.div_ceil(self.shape.cell_bytes);
            self.turns = vec![0; count];
            self.came = vec![0; count * self.others.len()];
            self.copies.places = vec![0; count * self.others.len()];
            (0..count).for_each(|cell| self.drain(target, cell, cells));
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

    fn place_of(&self, slot: usize, cell: usize) -> usize {
        slot * self.turns.len() + cell
    }

    /// The rank whose turn it is, if any turn is left.
    fn owner(&self, cell: usize) -> Option<TurnOwner> {
        let turn = self.turns[cell] as usize;
        match turn.checked_sub(self.before_own) {
            None => Some(TurnOwner::Slot(turn)),
            Some(0) => Some(TurnOwner::Own),
            Some(_) => (turn <= self.others.len()).then(|| TurnOwner::Slot(turn - 1)),
        }
    }

    /// Adds the whole cell of the rank whose turn it is.
    fn add(&mut self, target: &mut [u8], cell: usize, part: &[u8], cells: &mut SpareScratch) {
        let SumShape {
            dtype,
            op,
            cell_bytes,
            ..
        } = self.shape;
        let (range, first) = (self.range(cell), self.place_of(0, cell));
        if self.turns[cell] as usize > self.before_own {
            accumulate(dtype, op, &mut target[range], part);
        } else {
            let has_begun = self.copies.has(first);
            let sum = &mut self.copies.at(first, cell_bytes, cells)[..part.len()];
            match has_begun {
                true => accumulate(dtype, op, sum, part),
                false => sum.copy_from_slice(part),
            }
        }
    }

    /// Takes the turns of a cell until one must wait.
    fn drain(&mut self, target: &mut [u8], cell: usize, cells: &mut SpareScratch) {
        let range = self.range(cell);
        while let Some(owner) = self.owner(cell) {
            let whole = range.len() as u32;
            match owner {
                TurnOwner::Own if self.closed_gates > 0 => return,
                TurnOwner::Own => {
                    let first = self.place_of(0, cell);
                    // Without ranks before this one the first slot has a later contribution.
                    if self.before_own > 0 && self.copies.has(first) {
                        self.add_copy(first, &mut target[range.clone()], cells);
                    }
                }
                TurnOwner::Slot(slot) => match self.came[self.place_of(slot, cell)] {
                    HOLE => {}
                    bytes if bytes == whole => self.add_slot(target, cell, slot, cells),
                    _ => return,
                },
            }
            self.turns[cell] += 1;
        }
    }

    /// Adds the cell that waits in a slot.
    fn add_slot(&mut self, target: &mut [u8], cell: usize, slot: usize, cells: &mut SpareScratch) {
        let (range, at) = (self.range(cell), self.place_of(slot, cell));
        if slot >= self.before_own {
            return self.add_copy(at, &mut target[range], cells);
        }
        if slot == 0 {
            return; // the sum begins with it, where it is
        }
        let (first, waiting) = (self.place_of(0, cell), self.copies.take(at));
        if self.copies.has(first) {
            let SumShape { dtype, op, .. } = self.shape;
            let sum = &mut self.copies.at(first, range.len(), cells)[..range.len()];
            accumulate(dtype, op, sum, &waiting[..range.len()]);
            cells.keep(waiting);
        } else {
            self.copies.put(first, waiting);
        }
    }

    /// Adds a copy to values of the region, and frees its memory.
    fn add_copy(&mut self, at: usize, values: &mut [u8], cells: &mut SpareScratch) {
        let SumShape { dtype, op, .. } = self.shape;
        let copy = self.copies.take(at);
        accumulate(dtype, op, values, &copy[..values.len()]);
        cells.keep(copy);
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
        /// Segments of ranks that lose nothing may have any length; those of others are cells.
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

        /// The segments that arrived, cell by cell in rank order.
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

        /// The sum when segments arrive, holes are reported and gates open in a random order.
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
                    sum.open_gate(&mut target, &mut spares);
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
                    self.skip_holes_of(from, &mut sum, &mut target, &mut spares);
                }
            }
            // A rank none of whose segments arrived is known by its holes alone.
            let came = |rank| self.segments.iter().any(|segment| segment.0 == rank);
            for silent in (0..self.holes.len()).filter(|&rank| rank != self.me && !came(rank)) {
                self.skip_holes_of(silent, &mut sum, &mut target, &mut spares);
            }
            target
        }

        fn skip_holes_of(
            &self,
            from: usize,
            sum: &mut OrderedSum,
            target: &mut [u8],
            spares: &mut SpareScratch,
        ) {
            for cell in &self.holes[from] {
                let hole = cell * CELL..target.len().min((cell + 1) * CELL);
                sum.skip(target, Rank(from as u16), hole, spares);
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
