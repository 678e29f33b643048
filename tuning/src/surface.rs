//! Bayesian search for the chunk and the credit with which a training step is fastest.
//!
//! The time of a step over both sizes is a valley: small chunks pay for each message, large ones
//! cannot be overtaken; little credit leaves the wire idle for a round trip, much credit is a queue
//! in order of arrival (Peng et al., A generic communication scheduler for distributed DNN training
//! acceleration, SOSP 2019, sections 2.3 and 4.3). Both axes are in powers of two, and what is
//! modelled is the logarithm of the time: shares of it matter, not seconds.
//!
//! As in that paper a Gaussian process stands for what is not measured, and the next point is where
//! the expected improvement (Jones, Schonlau and Welch, Efficient global optimization of expensive
//! black-box functions, J. Global Optimization 13, 1998, equation 15) is largest, for at most 15
//! points. Process and improvement are those of the crate `optimizer` (Matern 5/2). Its margin of
//! improvement is 0 where the paper's is 0.1: on a grid no point is asked for twice anyway. The
//! first points are a low-discrepancy sequence (R2, Roberts 2018), moved by the seed.
//!
//! Not here: what a trial is and how long it takes.

use gradwire_protocol::units::ByteCount;
use optimizer::prelude::{Direction, GpSampler, IntParam, ParamValue, Parameter, Study, Trial};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// As many trials as the search needs on an 8 x 8 grid (Peng et al., section 4.3).
pub const TRIALS: usize = 15;

/// Points of the first design, before there is enough to model.
const DESIGN: usize = 5;
/// Variance of what is measured, beside a variance of 1 of all that was measured so far.
const NOISE: f64 = 1e-3;
/// Points among which the crate looks for the largest expected improvement: 4 per cell of 8 x 8.
const CANDIDATES: usize = 256;
/// The two steps of the R2 sequence: powers of the inverse of the plastic number.
const R2: [f64; 2] = [0.754_877_666_246_692_7, 0.569_840_290_998_053_2];

/// Sizes to choose from: `steps` of them, each twice the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    /// The smallest.
    pub smallest: ByteCount,
    /// How many there are, at least 1.
    pub steps: u8,
}

impl Axis {
    /// The sizes in rising order.
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

/// What is searched: each chunk with each credit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axes {
    /// Sizes of `collectives.chunk`.
    pub chunk: Axis,
    /// Sizes of `collectives.credit`.
    pub credit: Axis,
}

impl Axes {
    /// All points, by rising chunk, then by rising credit.
    pub fn points(self) -> impl Iterator<Item = Point> {
        let Self { chunk, credit } = self;
        let with = move |chunk| credit.sizes().map(move |credit| Point { chunk, credit });
        chunk.sizes().flat_map(with)
    }

    fn cell_of(self, point: Point) -> Option<Cell> {
        Some([
            self.chunk.index_of(point.chunk)?,
            self.credit.index_of(point.credit)?,
        ])
    }

    fn point(self, [chunk, credit]: Cell) -> Point {
        Point {
            chunk: self.chunk.at(chunk),
            credit: self.credit.at(credit),
        }
    }

    /// The cell next to `wanted` that is none of `taken`, of which there are fewer than cells.
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

/// One thing to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// `collectives.chunk`.
    pub chunk: ByteCount,
    /// `collectives.credit`.
    pub credit: ByteCount,
}

/// Steps along both axes.
type Cell = [usize; 2];

/// A search under way. The same axes, trials, seed and values give the same points.
pub struct Search {
    axes: Axes,
    trials: usize,
    designed: Vec<Cell>,
    told: Vec<(Cell, f64)>,
    study: Study<f64>,
    parameters: [IntParam; 2],
}

impl Search {
    /// A search of at most `trials` points of `axes`, of which there are fewer on a small grid.
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
        // The sampler learns of its dimensions from the first trial, which it answers blindly.
        search.proposed();
        search
    }

    /// The first points, which depend on no value: they can be measured at the same time, and be
    /// told in this order.
    pub fn design(&self) -> Vec<Point> {
        let designed = self.designed.iter();
        designed.map(|cell| self.axes.point(*cell)).collect()
    }

    /// What to measure next, or nothing: as many have been told as were allowed.
    pub fn propose(&mut self) -> Option<Point> {
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

    /// Takes what `point` was worth: a time in any unit, above zero; smaller is better. A point
    /// that was not asked for counts as a trial too.
    ///
    /// # Panics
    ///
    /// If `point` is not of the axes, or `value` is not above zero.
    pub fn tell(&mut self, point: Point, value: f64) {
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

    /// The best point that was told, and its value; the first of equals.
    pub fn best(&self) -> Option<(Point, f64)> {
        let by_value = |a: &&(Cell, f64), b: &&(Cell, f64)| a.1.total_cmp(&b.1);
        let (cell, value) = *self.told.iter().min_by(by_value)?;
        Some((self.axes.point(cell), value))
    }

    /// How many points may be told: as many as were asked for, or all.
    pub fn trials(&self) -> usize {
        self.trials
    }

    /// How many points have been told.
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
        // It comes back by `tell`, perhaps as its neighbour; a trial given up is not modelled.
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

/// The first cells: a low-discrepancy sequence that begins somewhere.
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
            chunk: Axis { smallest, steps },
            credit: Axis { smallest, steps },
        }
    }

    /// A bowl, with its bottom at the chunk of the third step and the credit of the sixth.
    fn bowl(point: Point) -> f64 {
        let steps = |size: ByteCount| (size.get() as f64 / 65536.0).log2();
        let (chunk, credit) = (steps(point.chunk) - 2.0, steps(point.credit) - 5.0);
        (0.02 * (chunk * chunk + credit * credit)).exp()
    }

    fn run(search: &mut Search) -> Vec<Point> {
        let mut points = Vec::new();
        while let Some(point) = search.propose() {
            search.tell(point, bowl(point));
            points.push(point);
        }
        points
    }

    #[test]
    fn the_same_seed_asks_for_the_same_points_and_another_for_others() {
        let points = |seed| run(&mut Search::new(axes(8), TRIALS, seed));
        assert_eq!(points(7), points(7));
        assert_ne!(points(7), points(8));
    }

    #[test]
    fn no_point_is_asked_for_twice_and_a_small_grid_ends_the_search() {
        let mut points = run(&mut Search::new(axes(3), TRIALS, 1));
        points.sort();
        assert_eq!(points, axes(3).points().collect::<Vec<_>>());
    }

    #[test]
    fn the_design_is_what_is_asked_for_first() {
        let mut search = Search::new(axes(8), TRIALS, 11);
        let design = search.design();
        assert_eq!(design.len(), DESIGN);
        assert_eq!(run(&mut search)[..DESIGN], design);
        assert_eq!(Search::new(axes(8), 2, 11).design(), design[..2]);
    }

    #[test]
    fn the_bottom_of_a_bowl_is_found() {
        for seed in 0..10 {
            let mut search = Search::new(axes(8), TRIALS, seed);
            run(&mut search);
            let (point, _) = search.best().expect("15 points were told");
            let steps = axes(8).cell_of(point).expect("a point of the axes");
            let off = steps[0].abs_diff(2) + steps[1].abs_diff(5);
            assert!(off <= 1, "seed {seed}: {steps:?}");
        }
    }

    #[test]
    fn a_told_point_that_was_not_asked_for_counts() {
        let mut search = Search::new(axes(8), 1, 3);
        let point = axes(8).points().nth(20).expect("there are 64");
        search.tell(point, 2.5);
        assert_eq!(search.propose(), None);
        assert_eq!(search.best(), Some((point, 2.5)));
    }
}
