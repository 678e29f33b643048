//! `gradwire perf tune`: which algorithm of all-reduce is fastest here, by world and size, written
//! as `collectives.table` into a job file.

use std::path::Path;

use gradwire_protocol::job::{Job, ReduceAlgorithm};
use gradwire_protocol::units::{ByteCount, Share};
use gradwire_report::printing::OutputForm;
use indicatif::ProgressBar;
use serde_json::{Map, Value, json};
use toml_edit::{Array, DocumentMut, Item};

use super::ground::{job_on, passed, progress_bar, refuse_spinning, sizes};
use super::options::TuneOptions;
use super::table::rounded;
use crate::exit::CommandError;
use gradwire_lab::crew::kind::PerfCollective;
use gradwire_lab::crew::launcher::Crew;
use gradwire_lab::crew::rounds::{ROUND_PATIENCE, Ratio, RoundSeries, RoundsPlan};
use gradwire_lab::crew::verdict;
use gradwire_lab::error::LabError;
use gradwire_lab::job_file::document;

/// The measured algorithms, the simplest first. Ranks of one host have no second level for a
/// hierarchy.
const ALGORITHMS: [(&str, ReduceAlgorithm); 3] = [
    ("direct", ReduceAlgorithm::Direct),
    ("halving-doubling", ReduceAlgorithm::HalvingDoubling),
    ("ring", ReduceAlgorithm::Ring),
];
/// A less simple algorithm must be faster by this factor in the median.
const CLEARLY: f64 = 1.05;
/// And faster at all in this share of the rounds: of five in all five.
const MOSTLY: f64 = 0.9;

/// Measures the algorithms and writes the table.
///
/// # Errors
/// [`CommandError`] when options make no sense, ranks fail, a result is wrong, or the file cannot
/// be written.
pub fn run(options: &TuneOptions) -> Result<(), CommandError> {
    let mut job = job_on(&options.ground)?;
    refuse_spinning(&job)?;
    // The table is for lossless operations.
    job.tolerance = Share::NONE;
    let document = options.out.as_deref().map(document::read).transpose()?;
    let form = options.ground.form();
    let mut worlds = options.ranks.clone();
    worlds.sort_unstable();
    worlds.dedup();
    let mut found = Vec::new();
    let mut wrong = Vec::new();
    for world in worlds {
        let sizes = sizes(PerfCollective::AllReduce, world, &options.sizes)?;
        let mut tuning = Tuning::new(options, world, &job)?;
        tuning.head(form);
        let progress = progress_bar(sizes.len());
        for bytes in sizes {
            let line = tuning.measure(options, bytes, (&job, &mut wrong))?;
            progress.suspend(|| form.print(|| line.text(), || line.json()));
            progress.inc(1);
            found.push(line);
        }
        finish(&progress, tuning)?;
    }
    passed(wrong)?;
    let entries = entries(&found);
    if let (Some(path), Some(document)) = (&options.out, document) {
        write(path, document, &entries)?;
    }
    tell(form, &entries, options.out.as_deref());
    Ok(())
}

fn finish(progress: &ProgressBar, tuning: Tuning) -> Result<(), LabError> {
    progress.finish_and_clear();
    tuning.crews.into_iter().try_for_each(Crew::end)
}

/// The algorithms that run with this number of ranks.
struct Tuning {
    world: u16,
    network: &'static str,
    crews: Vec<Crew>,
}

impl Tuning {
    fn new(options: &TuneOptions, world: u16, job: &Job) -> Result<Self, CommandError> {
        let place = options.ground.place(world)?;
        let crew = |(_, algorithm): &(&str, ReduceAlgorithm)| {
            let mut job = job.clone();
            job.collectives.algorithm = *algorithm;
            Crew::of_ranks(world, &job, &place)
        };
        let crews = ALGORITHMS.iter().map(crew).collect::<Result<_, _>>()?;
        Ok(Self {
            world,
            network: place.network(),
            crews,
        })
    }

    fn head(&self, form: OutputForm) {
        let (world, wire) = (self.world, self.crews[0].wire());
        let names = ALGORITHMS.map(|(name, _)| format!("{name:>17}")).concat();
        let units = ALGORITHMS.map(|_| format!("{:>17}", "us")).concat();
        form.remark(format_args!(
            "# all-reduce, {world} ranks on this machine ({}) over {wire}\n\
             #{:>11}{names}  {:<17} {:>7} {:>7}\n\
             #{:>11}{units}  {:<17} {:>7} {:>7}",
            self.network, "size", "taken", "faster", "rounds", "bytes", "", "times", "won"
        ));
    }

    fn measure(
        &mut self,
        options: &TuneOptions,
        bytes: u64,
        (job, wrong): (&Job, &mut Vec<String>),
    ) -> Result<AlgorithmRow, CommandError> {
        let plan = RoundsPlan {
            kind: PerfCollective::AllReduce,
            bytes,
            rounds: options.rounds,
            iterations: None,
            warmup: 3,
        };
        let crews = &mut self.crews;
        let series = plan.alternate(crews.len(), &mut |at, round| {
            crews[at].round(round, ROUND_PATIENCE)
        })?;
        for series in &series {
            wrong.extend(verdict::faults(
                PerfCollective::AllReduce,
                bytes,
                series,
                job,
            ));
        }
        Ok(AlgorithmRow::new(self.world, bytes, &series))
    }
}

/// The measurements of one world and size.
#[derive(Clone, Debug)]
struct AlgorithmRow {
    world: u16,
    bytes: u64,
    times_us: Vec<f64>,
    /// Which algorithm is taken.
    taken: usize,
    /// How it compares with the simplest one, or if it is that, how the next best does.
    margin: Ratio,
    rounds: usize,
}

impl AlgorithmRow {
    fn new(world: u16, bytes: u64, series: &[RoundSeries]) -> Self {
        let taken = clear_winner(series);
        let others = (0..series.len()).filter(|at| *at != taken);
        let best = |a: &usize, b: &usize| series[*a].time_us().total_cmp(&series[*b].time_us());
        let against = match taken {
            0 => others.min_by(best).expect("there are several algorithms"),
            _ => 0,
        };
        Self {
            world,
            bytes,
            times_us: series.iter().map(RoundSeries::time_us).collect(),
            taken,
            margin: Ratio::of(&series[against], &series[taken]),
            rounds: series[0].rounds.len(),
        }
    }

    fn name(&self) -> &'static str {
        ALGORITHMS[self.taken].0
    }

    fn text(&self) -> String {
        let times = self.times_us.iter().map(|time| format!("{time:>17.1}"));
        let (name, won) = (self.name(), format!("{}/{}", self.margin.won, self.rounds));
        format!(
            "{:>12}{}  {name:<17} {:>7.2} {won:>7}",
            self.bytes,
            times.collect::<String>(),
            self.margin.median,
        )
    }

    fn json(&self) -> Value {
        let times = ALGORITHMS.iter().zip(&self.times_us);
        let times = times.map(|((name, _), time)| ((*name).to_owned(), rounded(*time).into()));
        json!({
            "ranks": self.world,
            "size_bytes": self.bytes,
            "times_us": times.collect::<Map<String, Value>>(),
            "taken": self.name(),
            "faster": rounded(self.margin.median),
            "rounds_won": self.margin.won,
            "rounds": self.rounds,
        })
    }
}

/// The simplest algorithm to which no other one is clearly better; of the clearly better ones the
/// fastest.
fn clear_winner(series: &[RoundSeries]) -> usize {
    let better = |than: usize| {
        let beats = |at: &usize| {
            let ratio = Ratio::of(&series[than], &series[*at]);
            let rounds = series[*at].rounds.len() as f64;
            ratio.median >= CLEARLY && ratio.won as f64 >= MOSTLY * rounds
        };
        let time = |a: &usize, b: &usize| series[*a].time_us().total_cmp(&series[*b].time_us());
        (than + 1..series.len()).filter(beats).min_by(time)
    };
    let mut winner = 0;
    while let Some(next) = better(winner) {
        winner = next;
    }
    winner
}

/// Entries of `collectives.table`: neighbouring sizes with one winner are one entry.
fn entries(lines: &[AlgorithmRow]) -> Vec<String> {
    let mut entries = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let next = lines.get(at + 1);
        let goes_on = next.is_some_and(|next| (next.world, next.taken) == (line.world, line.taken));
        if !goes_on {
            let size = ByteCount::new(line.bytes);
            entries.push(format!("{} {size} {}", line.world, line.name()));
        }
    }
    entries
}

fn write(path: &Path, mut document: DocumentMut, entries: &[String]) -> Result<(), LabError> {
    set_table(&mut document, entries);
    document::save(path, &document)
}

/// Sets `collectives.table`, an entry a line, and leaves everything else as it is.
fn set_table(document: &mut DocumentMut, entries: &[String]) {
    let mut array = Array::new();
    for entry in entries {
        array.push(entry.as_str());
    }
    for entry in array.iter_mut() {
        entry.decor_mut().set_prefix("\n    ");
    }
    array.set_trailing("\n");
    array.set_trailing_comma(true);
    document::table(document, "collectives").insert("table", Item::Value(array.into()));
}

fn tell(form: OutputForm, entries: &[String], out: Option<&Path>) {
    let text = || {
        let quoted = entries.iter().map(|entry| format!("    {entry:?},\n"));
        let written = out.map(|path| format!("# written to {}\n", path.display()));
        format!(
            "# collectives.table: for groups of at most so many ranks, tensors of at most so many\n\
             # bytes; the first entry that matches is taken\n[collectives]\ntable = [\n{}]\n{}",
            quoted.collect::<String>(),
            written.unwrap_or_default()
        )
    };
    let written_to = out.map(|path| path.display().to_string());
    let value = || json!({ "summary": { "table": entries, "written_to": written_to } });
    form.print(text, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradwire_lab::crew::messages::Measured;

    fn series(rounds: &[f64]) -> RoundSeries {
        let round = |time: &f64| {
            vec![Measured {
                times_us: vec![*time],
                ..Measured::default()
            }]
        };
        RoundSeries {
            warmup: Vec::new(),
            rounds: rounds.iter().map(round).collect(),
        }
    }

    #[test]
    fn the_simplest_wins_unless_another_one_is_clearly_better() {
        let simple = series(&[100.0; 5]);
        let slightly = series(&[97.0; 5]);
        let unsure = series(&[50.0, 50.0, 50.0, 130.0, 130.0]);
        let clearly = series(&[80.0; 5]);
        let all = |third: &RoundSeries| [simple.clone(), slightly.clone(), third.clone()];
        assert_eq!(clear_winner(&all(&slightly)), 0);
        assert_eq!(clear_winner(&all(&unsure)), 0);
        assert_eq!(clear_winner(&all(&clearly)), 2);
    }

    #[test]
    fn neighbours_with_one_winner_are_one_entry() {
        let line = |world, bytes, taken| AlgorithmRow {
            world,
            bytes,
            times_us: Vec::new(),
            taken,
            margin: Ratio::of(&series(&[1.0]), &series(&[1.0])),
            rounds: 5,
        };
        let lines = [
            line(2, 4096, 0),
            line(2, 65536, 0),
            line(4, 4096, 0),
            line(4, 65536, 2),
            line(4, 1 << 20, 2),
        ];
        let expected = ["2 64KiB direct", "4 4KiB direct", "4 1MiB ring"];
        assert_eq!(entries(&lines), expected);
    }

    #[test]
    fn other_parts_of_job_files_stay() {
        let text =
            "# mine\nname = 'a' # kept\n\n[collectives]\ntable = []\nchunk = \"1MiB\" # ok\n";
        let mut document: DocumentMut = text.parse().expect("TOML");
        set_table(
            &mut document,
            &["2 64KiB direct".to_owned(), "2 1MiB ring".to_owned()],
        );
        let expected = text.replace("[]", "[\n    \"2 64KiB direct\",\n    \"2 1MiB ring\",\n]");
        assert_eq!(document.to_string(), expected);
        let mut empty = DocumentMut::new();
        set_table(&mut empty, &["2 64KiB direct".to_owned()]);
        let expected = "[collectives]\ntable = [\n    \"2 64KiB direct\",\n]\n";
        assert_eq!(empty.to_string(), expected);
    }
}
