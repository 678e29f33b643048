//! The result of a search: in words, for programs, and as keys of a job file.

use std::path::Path;

use gradwire_protocol::units::ByteCount;
use gradwire_tuning::surface::SchedulePoint;
use serde::Serialize;
use toml_edit::DocumentMut;

use super::trials::PointTrial;
use super::{ScheduleQuestion, ScheduleTrials};
use crate::error::LabError;
use crate::job_file::document;

/// The result as JSON. Sizes are bytes.
#[derive(Clone, Debug, Serialize)]
pub struct ScheduleReport {
    fabric: String,
    workload: String,
    seed: u64,
    trials: Vec<PointTime>,
    best: PointTime,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    grid: Vec<PointTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grid_best: Option<PointTime>,
    /// Extra time of a step at the best trial over the best point of the grid, as a share.
    #[serde(skip_serializing_if = "Option::is_none")]
    excess: Option<f64>,
    wall_s: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct PointTime {
    chunk: u64,
    credit: u64,
    iteration_us: f64,
}

impl From<&PointTrial> for PointTime {
    fn from(trial: &PointTrial) -> Self {
        let SchedulePoint { chunk, credit } = trial.point;
        Self {
            chunk: chunk.get(),
            credit: credit.get(),
            iteration_us: trial.iteration_us,
        }
    }
}

impl ScheduleReport {
    /// Makes the report of a search of at least one trial that took `wall_s` seconds.
    pub fn new(question: &ScheduleQuestion, found: ScheduleTrials, wall_s: f64) -> Self {
        let rows = |trials: &[PointTrial]| trials.iter().map(PointTime::from).collect::<Vec<_>>();
        let (trials, grid) = (rows(&found.trials), rows(&found.grid));
        let best = least(&trials).expect("a search tries at least one point");
        let grid_best = least(&grid);
        Self {
            fabric: question.scenario.fabric.clone(),
            workload: question.scenario.workload.clone(),
            seed: question.scenario.seed,
            excess: grid_best.map(|least| best.iteration_us / least.iteration_us - 1.0),
            trials,
            best,
            grid,
            grid_best,
            wall_s,
        }
    }

    /// Returns the report in words.
    pub fn text(&self) -> String {
        let mut text = format!(
            "# simulated: {} on {}, seed {}\n\n",
            self.workload, self.fabric, self.seed
        );
        text += &format!(
            "{:>6}{:>12}{:>12}{:>14}\n",
            "trial", "chunk", "credit", "step us"
        );
        let mut least = f64::INFINITY;
        for (number, row) in (1..).zip(&self.trials) {
            let mark = if row.iteration_us < least {
                "  best so far"
            } else {
                ""
            };
            least = least.min(row.iteration_us);
            text += &format!("{number:>6}{}{mark}\n", row.cells());
        }
        text += &format!("\n{:>6}{}\n", "best", self.best.cells());
        if let (Some(row), Some(excess)) = (self.grid_best, self.excess) {
            let (points, share) = (self.grid.len(), excess * 100.0);
            text += &format!("{:>6}{}  of {points} points\n", "grid", row.cells());
            text += &format!("\na step with the found sizes takes {share:.2} % longer\n");
        }
        let (chunk, credit) = self.best.sizes();
        text + &format!("\n[collectives]\nchunk = \"{chunk}\"\ncredit = \"{credit}\"\n")
    }

    /// Puts the result into a job file, which may be new.
    ///
    /// # Errors
    /// [`LabError`] when the file is no job or cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), LabError> {
        let mut document = document::read(path)?;
        put(&mut document, self.best);
        document::save(path, &document)
    }
}

impl PointTime {
    fn sizes(self) -> (ByteCount, ByteCount) {
        (ByteCount::new(self.chunk), ByteCount::new(self.credit))
    }

    fn cells(&self) -> String {
        let (chunk, credit) = self.sizes();
        format!(
            "{:>12}{:>12}{:>14.1}",
            chunk.to_string(),
            credit.to_string(),
            self.iteration_us
        )
    }
}

fn least(rows: &[PointTime]) -> Option<PointTime> {
    let by_time = |a: &&PointTime, b: &&PointTime| a.iteration_us.total_cmp(&b.iteration_us);
    rows.iter().min_by(by_time).copied()
}

/// Sets both keys, and leaves everything else unchanged.
fn put(document: &mut DocumentMut, row: PointTime) {
    let (chunk, credit) = row.sizes();
    let collectives = document::table(document, "collectives");
    for (key, size) in [("chunk", chunk), ("credit", credit)] {
        document::put(collectives, key, size.to_string().into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_of_a_job_file_stay() {
        let text = "# mine\nname = 'a'\n\n[collectives]\nchunk = \"1MiB\" # why\ntable = []\n";
        let mut document: DocumentMut = text.parse().expect("TOML");
        let row = PointTime {
            chunk: 2 << 20,
            credit: 4 << 20,
            iteration_us: 1.0,
        };
        put(&mut document, row);
        let written = text.replace("1MiB", "2MiB") + "credit = \"4MiB\"\n";
        assert_eq!(document.to_string(), written);
        let mut empty = DocumentMut::new();
        put(&mut empty, row);
        let written = "[collectives]\nchunk = \"2MiB\"\ncredit = \"4MiB\"\n";
        assert_eq!(empty.to_string(), written);
    }
}
