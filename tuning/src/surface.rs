//! Bayesian search for the chunk and the credit with which a training step is fastest.
//!
//! The step time over both sizes is a valley (Peng et al., A generic communication scheduler for
//! distributed DNN training acceleration, SOSP 2019, sections 2.3 and 4.3):
//!
//! - Small chunks pay for each message; large ones cannot be overtaken.
//! - Little credit leaves the wire idle for a round trip; much credit is a queue in order of
//!   arrival.
//!
//! Both axes are in powers of two. The model is of the logarithm of the time, because ratios
//! matter, not seconds.
//!
//! As in that paper, a Gaussian process estimates the points that are not measured. The next point
//! has the largest expected improvement (Jones, Schonlau and Welch, Efficient global optimization
//! of expensive black-box functions, J. Global Optimization 13, 1998, equation 15). At most 15
//! points are measured. Process and improvement are those of the crate `optimizer` (Matern 5/2).
//! Its margin of improvement is 0 where the paper's is 0.1, since a search on a grid never asks for
//! a point twice anyway. The first points are a low-discrepancy sequence (R2, Roberts 2018),
//! shifted by the seed.
//!
//! Not here: how a trial is run and timed.

use gradwire_protocol::units::ByteCount;
use optimizer::prelude::{Direction, GpSampler, IntParam, ParamValue, Parameter, Study, Trial};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Trials that the search needs on an 8 x 8 grid (Peng et al., section 4.3).
pub const TRIALS: usize = 15;

/// Points that are measured before the model is asked for one.
const DESIGN: usize = 5;
/// Variance of a single measurement; the reported values are scaled to a variance of 1.
const NOISE: f64 = 1e-3;
/// Points among which the crate looks for the largest expected improvement: 4 for each of 8 x 8.
const CANDIDATES: usize = 256;
/// The two steps of the R2 sequence: first and second power of the inverse of the plastic number.
const R2: [f64; 2] = [0.754_877_666_246_692_7, 0.569_840_290_998_053_2];

/// Sizes to choose from, each twice the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeAxis {
    /// The smallest.
    pub smallest: ByteCount,
    /// The number of sizes, at least 1.
    pub steps: u8,
}

impl SizeAxis {
    /// The sizes, smallest first.
    pub fn sizes(self) -> impl Iterator<Item = ByteCount> {
        (0..self.steps).map(move |step| self.at(usize::from(step)))
    }

    fn at(self, step: usize) -> ByteCount {
        ByteCount::new(self.smallest.get() << step)
    }

    fn index_of(self, size: ByteCount) -> Option<usize> {
        self.sizes().position(|candidate| candidate == size)
    }
}

/// The grid that is searched: each chunk with each credit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axes {
    /// Sizes of `collectives.chunk`.
    pub chunk: SizeAxis,
    /// Sizes of `collectives.credit`.
    pub credit: SizeAxis,
}

impl Axes {
    /// All points, by rising chunk, then by rising credit.
    pub fn points(self) -> impl Iterator<Item = SchedulePoint> {
        let Self { chunk, credit } = self;
        let with = move |chunk| {
            credit
                .sizes()
                .map(move |credit| SchedulePoint { chunk, credit })
        };
        chunk.sizes().flat_map(with)
    }

    fn cell_of(self, point: SchedulePoint) -> Option<Cell> {
        Some([
            self.chunk.index_of(point.chunk)?,
            self.credit.index_of(point.credit)?,
        ])
    }

    fn point(self, [chunk, credit]: Cell) -> SchedulePoint {
        SchedulePoint {
            chunk: self.chunk.at(chunk),
            credit: self.credit.at(credit),
        }
    }

    /// The cell closest to `wanted` that is not `taken`. There must be a free cell.
    fn nearest(self, wanted: Cell, taken: &[Cell]) -> Cell {
        let [chunks, credits] = self.lengths();
        let cells = (0..chunks).flat_map(|chunk| (0..credits).map(move |credit| [chunk, credit]));
        let free = cells.filter(|cell| !taken.contains(cell));
        let nearest = free.min_by_key(|cell| {
            let [chunk, credit]: [usize; 2] =
                std::array::from_fn(|axis| cell[axis].abs_diff(wanted[axis]));
            chunk * chunk + credit * credit
        });
        nearest.expect("fewer cells are taken than there are")
    }

    fn lengths(self) -> [usize; 2] {
        [self.chunk.steps, self.credit.steps].map(usize::from)
    }
}

/// One combination to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SchedulePoint {
    /// `collectives.chunk`.
    pub chunk: ByteCount,
    /// `collectives.credit`.
    pub credit: ByteCount,
}

/// Steps along both axes.
type Cell = [usize; 2];

/// A search under way. The same axes, number of trials, seed and values give the same points.
pub struct ScheduleSearch {
    axes: Axes,
    trials: usize,
    designed: Vec<Cell>,
    told: Vec<(Cell, f64)>,
    study: Study<f64>,
    parameters: [IntParam; 2],
}

impl ScheduleSearch {
    /// A search of at most `trials` points of `axes`; a small grid has fewer.
    ///
    /// # Panics
    ///
    /// If an axis has no step.
    pub fn new(axes: Axes, trials: usize, seed: u64) -> Self {
        let lengths = axes.lengths();
        assert!(lengths.iter().all(|length| *length > 0), "an axis is empty");
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let sampler = GpSampler::builder()
            .n_startup_trials(1)
            .n_candidates(CANDIDATES)
            .noise_variance(NOISE)
            .seed(random.random())
            .build();
        let trials = trials.min(lengths[0] * lengths[1]);
        let origin = [random.random(), random.random()];
        let mut search = Self {
            axes,
            trials,
            designed: designed(axes, trials.min(DESIGN), origin),
            told: Vec::new(),
            study: Study::with_sampler(Direction::Minimize, sampler),
            parameters: lengths.map(|length| IntParam::new(0, length as i64 - 1)),
        };
        // The sampler learns its dimensions from the first trial, so it answers that one blindly.
        search.proposed();
        search
    }

    /// The first points. They depend on no measured value, so a caller can measure them at the same
    /// time; it must tell them in this order.
    pub fn design(&self) -> Vec<SchedulePoint> {
        let designed = self.designed.iter();
        designed.map(|cell| self.axes.point(*cell)).collect()
    }

    /// The point to measure next; `None` once all trials have been told.
    pub fn propose(&mut self) -> Option<SchedulePoint> {
        if self.told.len() >= self.trials {
            return None;
        }
        let designed = self.designed.iter();
        let untold = designed.copied().find(|cell| !self.has(cell));
        let cell = untold.unwrap_or_else(|| {
            let proposed = self.proposed();
            let told = self.told.iter().map(|(cell, _)| *cell);
            self.axes.nearest(proposed, &told.collect::<Vec<_>>())
        });
        Some(self.axes.point(cell))
    }

    /// Takes the measured time of `point`, in any unit and above zero; smaller is better. A point
    /// that was not asked for counts as a trial, too.
    ///
    /// # Panics
    ///
    /// If `point` is not of the axes, or `value` is not above zero.
    pub fn tell(&mut self, point: SchedulePoint, value: f64) {
        let cell = self.axes.cell_of(point);
        let cell = cell.expect("a point that was measured is one of the axes");
        assert!(value > 0.0, "a time is above zero, not {value}");
        let values = cell.map(|step| ParamValue::Int(step as i64));
        let ids = self.parameters.each_ref().map(Parameter::id);
        self.study.enqueue(ids.into_iter().zip(values).collect());
        let mut trial = self.study.ask();
        self.read(&mut trial);
        self.study.tell(trial, Ok::<_, String>(value.ln()));
        self.told.push((cell, value));
    }

    /// The best point that was told, and its value; of equal ones the first.
    pub fn best(&self) -> Option<(SchedulePoint, f64)> {
        let by_value = |a: &&(Cell, f64), b: &&(Cell, f64)| a.1.total_cmp(&b.1);
        let (cell, value) = *self.told.iter().min_by(by_value)?;
        Some((self.axes.point(cell), value))
    }

    /// How many points may be told: as many as the caller wanted, or the whole grid.
    pub fn trials(&self) -> usize {
        self.trials
    }

    /// Number of points that trials have reported.
    pub fn told(&self) -> usize {
        self.told.len()
    }

    fn has(&self, cell: &Cell) -> bool {
        self.told.iter().any(|(told, _)| told == cell)
    }

    /// The cell where the crate expects the largest improvement.
    fn proposed(&mut self) -> Cell {
        let mut trial = self.study.ask();
        let cell = self.read(&mut trial);
        // The point or a neighbour comes back by `tell`; a failed trial is left out of the model.
        self.study.tell(trial, Err::<f64, _>("only asked"));
        cell
    }

    fn read(&self, trial: &mut Trial) -> Cell {
        self.parameters.each_ref().map(|parameter| {
            let step = parameter.suggest(trial).expect("its bounds are in order");
            usize::try_from(step).expect("its bounds begin at 0")
        })
    }
}

/// The first cells: a low-discrepancy sequence from `origin`, without repetition.
fn designed(axes: Axes, count: usize, origin: [f64; 2]) -> Vec<Cell> {
    let lengths = axes.lengths();
    let mut cells = Vec::new();
    for number in 0..count {
        let cell = std::array::from_fn(|axis| {
            let share = (origin[axis] + number as f64 * R2[axis]).fract();
            (share * lengths[axis] as f64) as usize
        });
        cells.push(axes.nearest(cell, &cells));
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes(steps: u8) -> Axes {
        let smallest = ByteCount::kib(64);
        Axes {
            chunk: SizeAxis { smallest, steps },
            credit: SizeAxis { smallest, steps },
        }
    }

    /// A bowl whose bottom is at the third chunk and the sixth credit.
    fn bowl(point: SchedulePoint) -> f64 {
        let steps = |size: ByteCount| (size.get() as f64 / 65536.0).log2();
        let (chunk, credit) = (steps(point.chunk) - 2.0, steps(point.credit) - 5.0);
        (0.02 * (chunk * chunk + credit * credit)).exp()
    }

    fn run(search: &mut ScheduleSearch) -> Vec<SchedulePoint> {
        let mut points = Vec::new();
        while let Some(point) = search.propose() {
            search.tell(point, bowl(point));
            points.push(point);
        }
        points
    }

    #[test]
    fn equal_seeds_ask_for_equal_points() {
        let points = |seed| run(&mut ScheduleSearch::new(axes(8), TRIALS, seed));
        assert_eq!(points(7), points(7));
        assert_ne!(points(7), points(8));
    }

    #[test]
    fn a_small_grid_is_searched_without_repetition() {
        let mut points = run(&mut ScheduleSearch::new(axes(3), TRIALS, 1));
        points.sort();
        assert_eq!(points, axes(3).points().collect::<Vec<_>>());
    }

    #[test]
    fn the_first_proposals_are_the_design() {
        let mut search = ScheduleSearch::new(axes(8), TRIALS, 11);
        let design = search.design();
        assert_eq!(design.len(), DESIGN);
        assert_eq!(run(&mut search)[..DESIGN], design);
        assert_eq!(ScheduleSearch::new(axes(8), 2, 11).design(), design[..2]);
    }

    #[test]
    fn the_bottom_of_a_bowl_is_found() {
        for seed in 0..10 {
            let mut search = ScheduleSearch::new(axes(8), TRIALS, seed);
            run(&mut search);
            let (point, _) = search.best().expect("15 points were told");
            let steps = axes(8).cell_of(point).expect("a point of the axes");
            let off = steps[0].abs_diff(2) + steps[1].abs_diff(5);
            assert!(off <= 1, "seed {seed}: {steps:?}");
        }
    }

    #[test]
    fn a_point_told_unasked_counts() {
        let mut search = ScheduleSearch::new(axes(8), 1, 3);
        let point = axes(8).points().nth(20).expect("there are 64");
        search.tell(point, 2.5);
        assert_eq!(search.propose(), None);
        assert_eq!(search.best(), Some((point, 2.5)));
    }
}
