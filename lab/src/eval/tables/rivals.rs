//! gradwire beside the strongest known designs: a row for each cell, and who wins it.

use std::collections::BTreeMap;

use gradwire_netsim::results::statistics::Estimate;

use super::super::evidence::TableEvidence;
use super::super::section::{EvalGoal, GoalState, Grid, Value};
use crate::eval::findings::TableFindings;

/// How the names of our cases begin.
const OURS: &str = "gradwire";
/// Our cases that are judged, with their names beside ratios: they are lossless.
const JUDGED: [(&str, &str); 2] = [(OURS, OURS), ("gradwire, switches trim", "trimming")];
/// Options of fabrics that all cells share.
const COMMON: &str = ",mtu=4150,framing=0";
/// Ratios that differ less from 1 are level, even if every seed agrees.
const LEVEL: f64 = 0.01;
/// The verdict if seeds differ too much for another one.
const UNDECIDED: &str = "undecided";

const ABOUT: [&str; 2] = [
    "The time until the last flow or task has ended, in microseconds, means over seeds. Packets \
     and links are those of htsim's validation runs: 4,086 + 64 bytes, 100 Gb/s, 1 us. Each \
     transport has the switches that its design asks for: nscc, rccc, eqds and ndp trim, pfabric \
     sorts, roce pauses; gradwire's, dctcp's, swift's and irn's mark or drop.",
    "The ratio is gradwire's time over that of the best rival, seed by seed, with its 95 % \
     interval (Student's t). gradwire is level where the ratio is within 1 % of 1, and the cell is \
     undecided where the interval holds 1 otherwise. The second ratio is that of gradwire with \
     switches that trim, as nscc, rccc, eqds and ndp have them. A tolerance of 10 % is not judged.",
];

/// The verdicts on our cases in one cell, in the order of [`JUDGED`].
type CellVerdicts = [Option<RivalVerdict>; JUDGED.len()];

/// Who wins a cell.
struct RivalVerdict {
    best: String,
    ratio: Estimate,
}

impl RivalVerdict {
    fn of(evidence: &TableEvidence, setting: &str, ours: &str) -> Option<Self> {
        let own = evidence.times(setting, ours);
        let cases = evidence.cases().into_iter();
        let rivals = cases.filter(|case| !case.starts_with(OURS));
        let times = rivals.filter_map(|case| {
            let times = evidence.times(setting, case);
            Some((case, average(&times)?, times))
        });
        let (best, _, times) = times.min_by(|(_, one, _), (_, other, _)| one.total_cmp(other))?;
        let pairs = own.iter();
        let pairs = pairs.filter_map(|(seed, own)| Some((*own, *times.get(seed)?)));
        let (own, other): (Vec<f64>, Vec<f64>) = pairs.unzip();
        Some(Self {
            best: best.to_owned(),
            ratio: Estimate::of_ratio(&own, &other)?,
        })
    }

    fn is_behind(&self) -> bool {
        self.ratio.low > 1.0 && self.ratio.mean > 1.0 + LEVEL
    }

    fn told(&self) -> &'static str {
        let off = self.ratio.mean - 1.0;
        match self.is_behind() {
            true => "behind",
            false if self.ratio.high < 1.0 && off < -LEVEL => "ahead",
            false if off.abs() <= LEVEL => "level",
            false => UNDECIDED,
        }
    }

    fn interval(&self) -> String {
        let Estimate { mean, low, high } = self.ratio;
        match low.is_finite() && high.is_finite() && low > 0.0 {
            true => format!("{mean:.3} [{low:.3}, {high:.3}]"),
            false => format!("{mean:.3}"),
        }
    }
}

fn average(times: &BTreeMap<u64, f64>) -> Option<f64> {
    let sum: f64 = times.values().sum();
    (!times.is_empty()).then(|| sum / times.len() as f64)
}

/// Makes the table.
pub fn found(evidence: &TableEvidence) -> TableFindings {
    let settings = evidence.settings();
    let verdicts: Vec<(&str, CellVerdicts)> = settings
        .iter()
        .map(|setting| {
            let verdict = |(ours, _)| RivalVerdict::of(evidence, setting, ours);
            (*setting, JUDGED.map(verdict))
        })
        .collect();
    let goals = (0..).zip(JUDGED).map(|(at, (ours, _))| {
        let verdicts = verdicts.iter();
        let of_case = verdicts.filter_map(|(setting, all)| Some((*setting, all[at].as_ref()?)));
        goal(ours, &of_case.collect::<Vec<_>>())
    });
    TableFindings {
        about: ABOUT.map(str::to_owned).to_vec(),
        grids: vec![grid(evidence, &verdicts)],
        charts: Vec::new(),
        goals: goals.collect(),
    }
}

fn grid(evidence: &TableEvidence, verdicts: &[(&str, CellVerdicts)]) -> Grid {
    let rows = verdicts.iter().map(|(setting, verdicts)| {
        let mut row = vec![Value::text(setting.replace(COMMON, ""))];
        let cases = evidence.cases().into_iter();
        row.extend(cases.map(|case| Value::number(average(&evidence.times(setting, case)), 1)));
        let best = verdicts.iter().flatten().next();
        row.push(best.map_or(Value::Missing, |one| Value::text(one.best.clone())));
        for verdict in verdicts {
            let of = |text: fn(&RivalVerdict) -> String| {
                verdict
                    .as_ref()
                    .map_or(Value::Missing, |one| Value::text(text(one)))
            };
            row.extend([of(RivalVerdict::interval), of(|one| one.told().to_owned())]);
        }
        row
    });
    let columns = ["cell"].into_iter().chain(evidence.cases());
    let columns = columns.map(str::to_owned).chain(["best rival".to_owned()]);
    let judged = JUDGED.iter();
    let judged = judged.flat_map(|(_, name)| [format!("{name} / it"), format!("{name} is")]);
    Grid::new("Time to the end, us", columns.chain(judged), rows)
}

fn goal(ours: &str, judged: &[(&str, &RivalVerdict)]) -> EvalGoal {
    let undecided = judged
        .iter()
        .filter(|(_, verdict)| verdict.told() == UNDECIDED);
    let undecided = undecided.count();
    let behind = judged.iter().filter(|(_, verdict)| verdict.is_behind());
    let behind: Vec<String> = behind
        .map(|(setting, verdict)| {
            let (setting, best) = (setting.replace(COMMON, ""), &verdict.best);
            format!("{setting}: {} times {best}", verdict.interval())
        })
        .collect();
    EvalGoal {
        what: format!("{ours}: ahead of or level with the best rival in every cell"),
        found: match behind.is_empty() {
            true => format!("in {} of {} cells", judged.len() - undecided, judged.len()),
            false => format!(
                "behind in {} of {} cells: {}",
                behind.len(),
                judged.len(),
                behind.join("; ")
            ),
        },
        state: GoalState::of(match behind.is_empty() {
            false => Some(false),
            true => (undecided == 0 && !judged.is_empty()).then_some(true),
        }),
    }
}
