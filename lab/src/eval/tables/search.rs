//! Chunk and credit found in few trials, beside the whole grid.
//!
//! The simulator runs the whole grid. The search then asks for points of it one by one, as
//! `gradwire tune schedule` would, and receives the results of their cells.

use std::collections::BTreeMap;

use gradwire_protocol::job::notation;
use gradwire_protocol::units::ByteCount;
use gradwire_tuning::surface::{Axes, SchedulePoint, ScheduleSearch, SizeAxis};

use super::super::evidence::{CellPoint, TableEvidence, larger};
use super::super::published::SEARCH_TRIALS;
use super::super::section::{Chart, ChartShape, EvalGoal, GoalState, Grid, Value};
use crate::eval::findings::{ITERATION, TableFindings};

const CHUNK: &str = "collectives.chunk";
const CREDIT: &str = "collectives.credit";
/// Percent by which the found point may be slower than the best of the grid.
const APART_MOST: f64 = 5.0;
const SEED: u64 = 1;

const ABOUT: [&str; 2] = [
    "Every chunk with every credit is simulated, in powers of two. The search (a Gaussian process, \
     expected improvement) sees only the cells that it asks for, 15 at most, and its best is \
     compared with the best of all.",
    "A ring of 8 workers behind one switch, sizes and times divided by 32: a chunk or a credit of \
     64 KiB stands for one of 2 MiB. Published (ByteScheduler, SOSP'19): a search of 15 steps, 10 \
     of them drawn at random.",
];

/// Times of a grid, by chunk, then credit.
type Times = BTreeMap<(ByteCount, ByteCount), f64>;

/// A grid and the result of its search.
struct SearchedGrid {
    point: CellPoint,
    times: Times,
    found: Option<Trials>,
}

/// A search that has ended.
struct Trials {
    best: SchedulePoint,
    time: f64,
    trials: usize,
    /// The best after each trial.
    course: Vec<f64>,
}

impl SearchedGrid {
    fn least(&self) -> Option<((ByteCount, ByteCount), f64)> {
        let times = self.times.iter().map(|(key, time)| (*key, *time));
        times.min_by(|(_, one), (_, other)| one.total_cmp(other))
    }

    fn most(&self) -> Option<f64> {
        self.times.values().copied().max_by(f64::total_cmp)
    }

    /// Percent by which the found point is slower than the best.
    fn apart(&self) -> Option<f64> {
        larger(
            self.least().map(|(_, time)| time),
            self.found.as_ref().map(|found| found.time),
        )
    }
}

/// Makes the table.
pub fn found(evidence: &TableEvidence) -> TableFindings {
    let points = evidence.points().into_iter();
    let rows: Vec<SearchedGrid> = points.map(|point| row(evidence, point)).collect();
    TableFindings {
        about: ABOUT.map(str::to_owned).to_vec(),
        grids: vec![grid(&rows)],
        charts: vec![chart(&rows)],
        goals: vec![goal(&rows)],
    }
}

fn row(evidence: &TableEvidence, point: CellPoint) -> SearchedGrid {
    let own = evidence
        .runs()
        .iter()
        .filter(|run| run.point.with_case("") == point);
    let times: Times = own
        .filter_map(|run| {
            let size = |key| notation::size(run.key(key)?);
            Some(((size(CHUNK)?, size(CREDIT)?), run.number(ITERATION)?))
        })
        .collect();
    let found = search(&times);
    SearchedGrid {
        point,
        times,
        found,
    }
}

/// Searches a grid; `None` where the grid has gaps.
fn search(times: &Times) -> Option<Trials> {
    let axes = Axes {
        chunk: axis(times.keys().map(|(chunk, _)| *chunk))?,
        credit: axis(times.keys().map(|(_, credit)| *credit))?,
    };
    let mut search = ScheduleSearch::new(axes, SEARCH_TRIALS, SEED);
    let mut course = Vec::new();
    while let Some(setting) = search.propose() {
        let time = times.get(&(setting.chunk, setting.credit))?;
        search.tell(setting, *time);
        course.push(search.best()?.1);
    }
    let (best, time) = search.best()?;
    Some(Trials {
        best,
        time,
        trials: search.told(),
        course,
    })
}

fn axis(sizes: impl Iterator<Item = ByteCount>) -> Option<SizeAxis> {
    let mut sizes: Vec<ByteCount> = sizes.collect();
    sizes.sort();
    sizes.dedup();
    let axis = SizeAxis {
        smallest: *sizes.first()?,
        steps: u8::try_from(sizes.len()).ok()?,
    };
    axis.sizes().eq(sizes).then_some(axis)
}

fn shown((chunk, credit): (ByteCount, ByteCount)) -> String {
    let [chunk, credit] = [chunk, credit].map(|size| size.to_string());
    format!("{chunk}, {credit}")
}

fn grid(rows: &[SearchedGrid]) -> Grid {
    let columns = "model | rate | cells | best chunk, credit | its iteration, ms | worst, ms | \
                   found chunk, credit | its iteration, ms | trials | slower than the best";
    let rows = rows.iter().map(|row| {
        let (best, found) = (row.least(), row.found.as_ref());
        let millis = |time: Option<f64>| Value::number(time.map(|time| time / 1e3), 3);
        let setting =
            |setting: Option<_>| setting.map_or(Value::Missing, |one| Value::text(shown(one)));
        vec![
            Value::text(&row.point.model),
            Value::text(&row.point.rate),
            Value::Number(row.times.len() as f64, 0),
            setting(best.map(|(key, _)| key)),
            millis(best.map(|(_, time)| time)),
            millis(row.most()),
            setting(found.map(|found| (found.best.chunk, found.best.credit))),
            millis(found.map(|found| found.time)),
            Value::number(found.map(|found| found.trials as f64), 0),
            Value::change(row.apart()),
        ]
    });
    Grid::new(
        "The best of the grid, and what the search found",
        columns.split(" | "),
        rows,
    )
}

fn chart(rows: &[SearchedGrid]) -> Chart {
    let curves = rows.iter().filter_map(|row| {
        let ((_, least), found) = (row.least()?, row.found.as_ref()?);
        let course = (1_u32..).zip(&found.course);
        let points = course.map(|(trial, time)| (f64::from(trial), (time / least - 1.0) * 100.0));
        let name = format!("{} {}", row.point.model, row.point.rate);
        Some((name, points.collect()))
    });
    Chart {
        caption: "The best after each trial".to_owned(),
        axis: "percents above the best of the grid".to_owned(),
        shape: ChartShape::Curves("trials".to_owned(), curves.collect()),
    }
}

fn goal(rows: &[SearchedGrid]) -> EvalGoal {
    let apart: Vec<f64> = rows.iter().filter_map(SearchedGrid::apart).collect();
    let near = apart.iter().filter(|apart| **apart <= APART_MOST).count();
    let all = rows.len();
    EvalGoal {
        what: format!("Within 5 % of the best of the grid in at most {SEARCH_TRIALS} trials"),
        found: format!("{near} of {all} grids"),
        state: GoalState::of((all > 0 && apart.len() == all).then_some(near == all)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn valley() -> Times {
        let sizes = || (0..8).map(|step| ByteCount::new((64 << 10) << step));
        let mut times = Times::new();
        for (x, chunk) in (0_i32..).zip(sizes()) {
            for (y, credit) in (0_i32..).zip(sizes()) {
                let away = f64::from((x - 2).pow(2) + (y - 4).pow(2));
                times.insert((chunk, credit), 1e3 * (1.0 + away / 50.0));
            }
        }
        times
    }

    #[test]
    fn searches_see_few_cells_of_a_grid() {
        let found = search(&valley()).expect("the grid is whole");
        assert_eq!(found.trials, SEARCH_TRIALS);
        assert!(found.time <= 1_050.0, "{}", found.time);
        assert!(found.course.is_sorted_by(|one, other| one >= other));
    }

    #[test]
    fn grids_with_holes_are_not_searched() {
        let mut times = valley();
        let asked = search(&times).expect("the grid is whole").best;
        times.remove(&(asked.chunk, asked.credit));
        assert!(search(&times).is_none());
    }
}
