//! The results of a table's cells, found by the cells' settings.

use std::collections::{BTreeMap, BTreeSet};

use gradwire_netsim::results::statistics::Estimate;
use gradwire_workloads::workload::Workload;
use serde_json::Value;

use crate::sim::training::mean;
use crate::sweep::cells::SweepCell;
use crate::sweep::folder::SweepFolder;
use crate::sweep::record::CellRecord;

/// The runs of a table, in the order of its plans.
#[derive(Debug)]
pub struct TableEvidence {
    runs: Vec<CellRun>,
    /// Cells without a result, each with the reason.
    pub missing: Vec<String>,
}

/// A cell that has run.
#[derive(Clone, Debug)]
pub struct CellRun {
    /// Its settings.
    pub point: CellPoint,
    /// Its workload, its background and its fabric, as the plan writes them.
    pub setting: String,
    seed: u64,
    /// Keys of the job that its plan sets.
    set: Value,
    result: Value,
}

/// The settings of a cell of training steps, without its seed.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct CellPoint {
    /// The model.
    pub model: String,
    /// The way to sum gradients.
    pub exchange: SumExchange,
    /// The rate of hosts, as the plan writes it: `25G`.
    pub rate: String,
    /// The random loss of its links, as the plan writes it: `0.1%`; `None` where the plan has none.
    pub loss: String,
    /// The load of the other traffic, as the plan writes it: `0.3`.
    pub load: String,
    /// The memory of a port, as the plan writes it: `512KiB/port*1.0`.
    pub buffer: String,
    /// The slow spells of its hosts, as the plan writes them: `slow-send=3ms/300ms/25%`.
    pub spells: String,
    /// The name of its case in the plan.
    pub case: String,
}

/// The way to sum gradients.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum SumExchange {
    /// Through parameter servers.
    Servers,
    /// By all-reduces in a ring.
    Ring,
}

impl SumExchange {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Servers, Self::Ring];
}

impl CellPoint {
    /// Reads the settings of a cell.
    pub fn of(cell: &SweepCell) -> Self {
        let (fabric, workload) = (&cell.scenario.fabric, &cell.scenario.workload);
        let behind = fabric.split_once('@').map_or("", |(_, rest)| rest);
        let with = |start: &str| behind.split(',').find(|option| option.starts_with(start));
        let option = |name: &str| with(name).and_then(|option| option.strip_prefix(name));
        let background = cell.scenario.background.as_deref();
        let load = background.and_then(|text| text.split(['@', ':']).nth(2));
        Self {
            model: Workload::model_of(workload).unwrap_or_default().to_owned(),
            exchange: match workload.contains(":ps=") {
                true => SumExchange::Servers,
                false => SumExchange::Ring,
            },
            rate: behind.split([',', '/']).next().unwrap_or("").to_owned(),
            loss: option("loss=").unwrap_or("0%").to_owned(),
            load: load.unwrap_or("0").to_owned(),
            buffer: option("buffer=").unwrap_or("").to_owned(),
            spells: with("slow-").unwrap_or_default().to_owned(),
            case: cell.case.clone().unwrap_or_default(),
        }
    }

    /// Returns the same with another case.
    #[must_use]
    pub fn with_case(&self, case: &str) -> Self {
        let case = case.to_owned();
        Self {
            case,
            ..self.clone()
        }
    }
}

impl CellRun {
    /// Returns the number at a place of the result, such as `/training/0/iteration_us`.
    pub fn number(&self, place: &str) -> Option<f64> {
        self.result.pointer(place)?.as_f64()
    }

    /// Returns the numbers of a list at a place of the result.
    fn numbers(&self, place: &str) -> Vec<f64> {
        let list = self.result.pointer(place).and_then(Value::as_array);
        let numbers = list.into_iter().flatten();
        numbers.filter_map(Value::as_f64).collect()
    }

    /// Returns the times of the rounds of a collective from this one on, each the mean over its
    /// hosts, in microseconds.
    fn round_times(&self, first: u32) -> Vec<f64> {
        let list = self
            .result
            .pointer("/tasks/by_name")
            .and_then(Value::as_array);
        let rounds = list.into_iter().flatten().filter(|round| {
            let name = round["name"].as_str().unwrap_or_default();
            let number = name.rsplit(' ').next().and_then(|word| word.parse().ok());
            number.is_some_and(|number: u32| number >= first)
        });
        let times = rounds.map(|round| round["mean_us"].as_f64());
        times.flatten().collect()
    }

    /// Returns a key of the job as the plan sets it.
    pub fn key(&self, key: &str) -> Option<&str> {
        self.set[key].as_str()
    }
}

impl TableEvidence {
    /// Reads the results of cells in a folder.
    pub fn of(cells: &[SweepCell], folder: &SweepFolder) -> Self {
        let (mut runs, mut missing) = (Vec::new(), Vec::new());
        for cell in cells {
            match folder.record(&cell.id) {
                Some(CellRecord {
                    result: Some(result),
                    scenario,
                    error,
                    ..
                }) => {
                    missing.extend(error.map(|error| format!("{}: {error}", cell.label)));
                    runs.push(CellRun {
                        point: CellPoint::of(cell),
                        setting: setting(cell),
                        seed: cell.scenario.seed,
                        set: scenario["set"].clone(),
                        result: Value::Object(result),
                    });
                }
                Some(CellRecord { error, .. }) => {
                    let reason = error.unwrap_or_else(|| "it has no result".to_owned());
                    missing.push(format!("{}: {reason}", cell.label));
                }
                None => missing.push(format!("{}: has not run", cell.label)),
            }
        }
        Self { runs, missing }
    }

    /// Returns all runs.
    pub fn runs(&self) -> &[CellRun] {
        &self.runs
    }

    /// Returns the distinct settings apart from cases and seeds, in the order of the plans.
    pub fn points(&self) -> Vec<CellPoint> {
        let mut seen = BTreeSet::new();
        let points = self.runs.iter().map(|run| run.point.with_case(""));
        points.filter(|point| seen.insert(point.clone())).collect()
    }

    /// Returns the distinct [`CellRun::setting`]s, in the order of the plans.
    pub fn settings(&self) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        let settings = self.runs.iter().map(|run| run.setting.as_str());
        settings.filter(|setting| seen.insert(*setting)).collect()
    }

    /// Returns the time until everything of a setting and case has ended, by seed, in microseconds;
    /// without runs that did not end.
    pub fn times(&self, setting: &str, case: &str) -> BTreeMap<u64, f64> {
        let runs = self.runs.iter();
        let runs = runs.filter(|run| run.setting == setting && run.point.case == case);
        let ended = runs.filter(|run| run.number("/finished") == run.number("/flows"));
        let times = ended.filter_map(|run| Some((run.seed, run.number("/makespan_us")?)));
        times.collect()
    }

    /// Returns the names of the cases, in the order of the plans.
    pub fn cases(&self) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        let cases = self.runs.iter().map(|run| run.point.case.as_str());
        cases.filter(|case| seen.insert(*case)).collect()
    }

    /// Returns the mean over seeds of a number of a result.
    pub fn mean(&self, point: &CellPoint, place: &str) -> Option<f64> {
        let runs = self.runs.iter().filter(|run| run.point == *point);
        let numbers: Vec<f64> = runs.filter_map(|run| run.number(place)).collect();
        mean(&numbers)
    }

    /// Returns half the interval around the mean over seeds that holds the true mean in 95 of 100
    /// cases; `None` for fewer than two seeds.
    pub fn error(&self, point: &CellPoint, place: &str) -> Option<f64> {
        let runs = self.runs.iter().filter(|run| run.point == *point);
        let numbers: Vec<f64> = runs.filter_map(|run| run.number(place)).collect();
        let estimate = Estimate::of_mean(&numbers)?;
        Some(estimate.high - estimate.mean).filter(|half| half.is_finite())
    }

    /// Returns the 99th percentile by nearest rank of all numbers of a list, over all seeds.
    pub fn p99(&self, point: &CellPoint, place: &str) -> Option<f64> {
        let runs = self.runs.iter().filter(|run| run.point == *point);
        percentile(runs.flat_map(|run| run.numbers(place)).collect(), 99)
    }

    /// Returns the times of a point's rounds from this one on, over all seeds, in microseconds.
    pub fn round_times(&self, point: &CellPoint, first: u32) -> Vec<f64> {
        let runs = self.runs.iter().filter(|run| run.point == *point);
        runs.flat_map(|run| run.round_times(first)).collect()
    }
}

fn setting(cell: &SweepCell) -> String {
    let scenario = &cell.scenario;
    let background = scenario.background.as_ref();
    let background = background.map_or_else(String::new, |text| format!(" beside {text}"));
    format!("{}{background} on {}", scenario.workload, scenario.fabric)
}

/// Returns a percentile by nearest rank; `None` where there are no numbers.
pub fn percentile(mut numbers: Vec<f64>, percent: usize) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    let rank = (numbers.len() * percent).div_ceil(100);
    numbers.get(rank.checked_sub(1)?).copied()
}

/// Returns how much faster `time` is than `before`, in percent of speed: 100 means half the time.
pub fn faster(before: Option<f64>, time: Option<f64>) -> Option<f64> {
    let (before, time) = (before?, time?);
    (time > 0.0).then(|| (before / time - 1.0) * 100.0)
}

/// Returns how much larger `value` is than `before`, in percent.
pub fn larger(before: Option<f64>, value: Option<f64>) -> Option<f64> {
    let (before, value) = (before?, value?);
    (before > 0.0).then(|| (value / before - 1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::cells;
    use crate::sweep::plan::SweepPlan;

    #[test]
    fn cells_are_found_by_their_parameters() {
        let fabric = "leaf-spine:2x4x2@25G/100G,mtu=9000,loss=1%,buffer=64KiB/port*1.0";
        let background = "poisson:websearch@0.5:60ms";
        let text = format!(
            "[base]\nfabric = \"{fabric}\"\nbackground = \"{background}\"\n\
             workload = \"step:vgg16:ps=4,scale=64\"\n[[cases]]\nname = \"off\"\n"
        );
        let plan = SweepPlan::from_toml(&text).expect("it can be read");
        let cells = cells::of(&plan).expect("its cells make sense");
        let point = CellPoint::of(&cells[0]);
        let known = (&*point.model, &*point.rate, &*point.loss);
        assert_eq!(known, ("vgg16", "25G", "1%"));
        assert_eq!(
            (point.exchange, &*point.case),
            (SumExchange::Servers, "off")
        );
        assert_eq!((&*point.load, &*point.buffer), ("0.5", "64KiB/port*1.0"));
        let ring = cells[0].scenario.workload.replace("ps=4", "tensors");
        let scenario = crate::sim::scenario::Scenario::new("single:4@10G", &ring);
        let cell = SweepCell {
            scenario,
            ..cells[0].clone()
        };
        assert_eq!(CellPoint::of(&cell).exchange, SumExchange::Ring);
    }

    #[test]
    fn speed_is_compared_by_times() {
        assert_eq!(faster(Some(2.0), Some(1.0)), Some(100.0));
        assert_eq!(larger(Some(2.0), Some(1.0)), Some(-50.0));
        assert_eq!(faster(None, Some(1.0)), None);
    }
}
