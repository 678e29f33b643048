//! One trial: the script in its own process, with a job that drops packets on purpose, and the
//! counts that its ranks leave.
//!
//! A trial of the metric drops a little more than the tolerance allows, so that most of it is
//! really used. The accepted share is read from the ranks' counts, never assumed. A trial of time
//! drops the share that the network loses, of all packets, whatever the tolerance.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::Duration;

use gradwire_protocol::job::{DropFrom, Job, ReduceAlgorithm};

use gradwire_runtime::metrics::Snapshot;
use gradwire_runtime::trace::COUNTS;
use gradwire_tuning::tolerance::{ToleranceSetting, ToleranceTrial};
use toml::{Table, Value};

use super::journal::{Accepted, TrialPurpose, TrialRecord};
use super::metric;
use crate::crew::leash::{self, how_it_ended};
use crate::error::LabError;
use crate::files;
use crate::sim::cost::now;

/// Mean length of bursts, and the dropped share of droppable packets as a multiple of the
/// tolerance; about a quarter of a message is protected. Losses differ between messages, above all
/// in bursts: a message repairs its losses beyond the tolerance, and no other may use them.
const INDEPENDENT: (f64, f64) = (1.0, 1.25);
const BURSTS: (f64, f64) = (8.0, 1.5);
/// The largest dropped share; with more, no message would ever arrive.
const DROP_MAX: f64 = 0.9;
/// Timeout of a lossy trial, as a multiple of the slowest lossless one, and its least value.
const SLOWER: f64 = 10.0;
const PATIENCE_MIN: Duration = Duration::from_secs(30);
/// Interval of checks whether a script has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Number of lines of a failed script's standard error that are shown.
const LINES: usize = 12;

/// The settings common to all trials of a search.
#[derive(Clone, Debug)]
pub struct TrialBench {
    /// The job of the user, without tolerance and faults.
    pub job: Job,
    /// The script.
    pub command: Vec<String>,
    /// The metric that it prints.
    pub metric: String,
    /// Its timeout.
    pub timeout: Duration,
    /// The folder of all trials.
    pub folder: PathBuf,
}

/// The packets that a trial drops.
#[derive(Clone, Copy, Debug)]
pub struct TrialLosses {
    /// The dropped share.
    pub drop: f64,
    /// Mean length of a run of drops.
    pub burst: f64,
    /// Which packets may be dropped.
    pub drop_from: DropFrom,
}

/// A trial to run.
#[derive(Clone, Copy, Debug)]
pub struct TrialRequest<'a> {
    /// The tolerance to try.
    pub setting: &'a ToleranceSetting,
    /// The seed of the script and of the losses.
    pub seed: u64,
    /// The reason for it.
    pub purpose: TrialPurpose,
    losses: TrialLosses,
}

impl<'a> TrialRequest<'a> {
    /// A trial of the metric: packets that may be missing are dropped, more than are tolerated.
    pub fn of_metric(setting: &'a ToleranceSetting, seed: u64) -> Self {
        let (burst, more) = losses(seed);
        Self {
            setting,
            seed,
            purpose: TrialPurpose::Metric,
            losses: TrialLosses {
                drop: (setting.largest() * more).min(DROP_MAX),
                burst,
                drop_from: DropFrom::Droppable,
            },
        }
    }

    /// A trial of time: this share of all packets is dropped.
    pub fn of_time(setting: &'a ToleranceSetting, seed: u64, path_loss: f64) -> Self {
        Self {
            setting,
            seed,
            purpose: TrialPurpose::Time,
            losses: TrialLosses {
                drop: path_loss,
                burst: 1.0,
                drop_from: DropFrom::All,
            },
        }
    }

    /// Whether this trial has been done.
    pub fn is_done_by(&self, record: &TrialRecord) -> bool {
        let is_same = record.trial.setting == *self.setting && record.trial.seed == self.seed;
        is_same && record.purpose == self.purpose && record.drop == self.losses.drop
    }

    /// Whether it loses nothing and tolerates nothing, so that it must succeed.
    fn is_baseline(&self) -> bool {
        self.setting.is_lossless() && self.purpose == TrialPurpose::Metric
    }
}

/// How a script ended.
enum ScriptEnd {
    Exited(ExitStatus),
    TookTooLong,
}

impl TrialBench {
    /// Returns the timeout of a lossy trial. A tolerance that makes training much slower is
    /// rejected whatever the metric, so the search need not wait for it.
    pub fn patience(&self, done: &[TrialRecord]) -> Duration {
        let lossless = done.iter().filter(|one| one.trial.setting.is_lossless());
        let slowest = lossless.map(|one| one.seconds).fold(0.0, f64::max);
        let patience = Duration::from_secs_f64(SLOWER * slowest);
        patience.max(PATIENCE_MIN).min(self.timeout)
    }

    /// Runs one trial in a folder of this name, which is emptied first; `patience` is the timeout
    /// of lossy ones.
    ///
    /// # Errors
    /// [`LabError`] when the script cannot be started, fails, prints no metric, or has no gradients
    /// that could be lost.
    pub fn run(
        &self,
        request: &TrialRequest<'_>,
        name: &str,
        patience: Duration,
    ) -> Result<TrialRecord, LabError> {
        let folder = self.folder.join(name);
        let (setting, seed) = (request.setting, request.seed);
        let place = TrialFolder { folder, seed };
        place.prepare(&job_text(&self.job, setting, (&request.losses, seed)))?;
        let started = now();
        let limit = match setting.is_lossless() {
            true => self.timeout,
            false => patience,
        };
        let end = self.script(&place, limit)?;
        let seconds = started.elapsed().as_secs_f64();
        let (metric, note) = match end {
            ScriptEnd::TookTooLong if request.is_baseline() => return Err(self.too_long(&place)),
            ScriptEnd::TookTooLong => (None, Some(self.given_up(limit))),
            ScriptEnd::Exited(status) if status.success() => (Some(self.metric_of(&place)?), None),
            ScriptEnd::Exited(status) => return Err(place.failed(status)),
        };
        let counts = counts(&place.folder.join("ranks"));
        let told = CountedLosses::of(&counts);
        if note.is_none() {
            fits(request, &told, &place)?;
        }
        let number = metric.filter(|metric| metric.is_finite());
        if number.is_none() && request.is_baseline() {
            return Err(self.no_number(&place));
        }
        Ok(TrialRecord {
            trial: ToleranceTrial {
                setting: setting.clone(),
                seed,
                metric: number,
            },
            purpose: request.purpose,
            drop: request.losses.drop,
            burst: request.losses.burst,
            accepted: told.sum,
            seconds: (seconds * 1e3).round() / 1e3,
            all_reduce_us: mean_all_reduce(&counts),
            note: note.or_else(|| match metric {
                Some(metric) if number.is_none() => Some(format!("it was {metric}")),
                _ => self.doubt(request, &counts),
            }),
        })
    }

    /// A remark on a trial without loss in which no gradient travelled by layer: the first trial
    /// with a tolerance will fail then, and that comes some trials later.
    fn doubt(&self, request: &TrialRequest<'_>, counts: &[Snapshot]) -> Option<String> {
        let classes = counts.iter().flat_map(|counts| &counts.messages);
        let last = classes.map(|message| message.class).max();
        let has_layers = self.job.priority.dscps.len() > 2;
        let is_doubtful = request.setting.is_lossless() && has_layers && last == Some(1);
        is_doubtful.then(|| {
            "no gradient travels by layer: is the model registered (gradwire.ddp.register)?"
                .to_owned()
        })
    }

    fn given_up(&self, limit: Duration) -> String {
        let seconds = limit.as_secs_f64();
        match limit < self.timeout {
            true => format!("given up after {seconds:.0} s: far slower than without loss"),
            false => "it took longer than --timeout".to_owned(),
        }
    }

    fn script(&self, place: &TrialFolder, limit: Duration) -> Result<ScriptEnd, LabError> {
        let mut child = place.start(&self.command)?;
        // Hold the input for as long as the script may run.
        let leash = child.stdin.take();
        let started = now();
        let waiting = |source| LabError::system("waiting for the script")(source);
        while started.elapsed() < limit {
            if let Some(status) = child.try_wait().map_err(waiting)? {
                return Ok(ScriptEnd::Exited(status));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        drop(leash);
        child.wait().map_err(waiting)?;
        Ok(ScriptEnd::TookTooLong)
    }

    fn metric_of(&self, place: &TrialFolder) -> Result<f64, LabError> {
        let path = place.folder.join("stdout.txt");
        let bytes = files::bytes(&path)?;
        let name = &self.metric;
        metric::last(&String::from_utf8_lossy(&bytes), name).ok_or_else(|| {
            LabError::Usage(format!(
                "the script printed no line with the metric {name}, as {{\"{name}\": 0.97}} or \
                 {name}=0.97: print it at the end of rank 0, or name another with --metric; what \
                 it printed is in {}",
                path.display()
            ))
        })
    }

    fn too_long(&self, place: &TrialFolder) -> LabError {
        let message = format!(
            "took longer than {} s without any loss: give more with --timeout, or make it \
             shorter{}",
            self.timeout.as_secs_f64(),
            place.complaint()
        );
        script_failed(message)
    }

    fn no_number(&self, place: &TrialFolder) -> LabError {
        let (name, seed) = (&self.metric, place.seed);
        script_failed(format!(
            "ended with a {name} that is not a number, without any loss (seed {seed}), so other \
            trials cannot be compared with it"
        ))
    }
}

/// Mean length of bursts, and the factor by which losses exceed the tolerance.
fn losses(seed: u64) -> (f64, f64) {
    match seed.is_multiple_of(2) {
        true => BURSTS,
        false => INDEPENDENT,
    }
}

/// Returns the user's job with this setting and these losses of this seed. Shares are written as
/// numbers with all their digits. A trial of the metric must lose what the job may ever lose, also
/// where a message would gain no time on this machine, or an unknown network would have a ring: so
/// it says which messages may, and with which algorithm, unless the job does. Small tensors then
/// lose more than they would in the job.
pub fn job_text(
    job: &Job,
    setting: &ToleranceSetting,
    (losses, seed): (&TrialLosses, u64),
) -> String {
    let text = job.to_toml();
    let mut table: Table = text.parse().expect("a job writes a text that can be read");
    table.insert("tolerance".to_owned(), Value::Float(setting.least()));
    let mut put = |section: &str, key: &str, value: Value| {
        let section = table[section].as_table_mut();
        let section = section.expect("a job has this table");
        section.insert(key.to_owned(), value);
    };
    let drop_from: &str = losses.drop_from.into();
    put("faults", "drop", Value::Float(losses.drop));
    put("faults", "drop_from", Value::String(drop_from.to_owned()));
    put("faults", "burst", Value::Float(losses.burst));
    put("faults", "seed", Value::Integer(seed.cast_signed()));
    if losses.drop_from == DropFrom::Droppable {
        let least = job.min_lossy_message().get();
        put("loss", "min_message", Value::Integer(least.cast_signed()));
        if job.collectives.algorithm == ReduceAlgorithm::Auto {
            put(
                "collectives",
                "algorithm",
                Value::String("direct".to_owned()),
            );
        }
    }
    if setting.groups.len() > 1 {
        let groups = setting.groups.iter().copied().map(Value::Float);
        put("loss", "layer_tolerances", Value::Array(groups.collect()));
    }
    if let Some(tight) = setting.tight {
        put("loss", "tight_tolerance", Value::Float(tight));
    }
    table.to_string()
}

fn script_failed(message: String) -> LabError {
    LabError::Process {
        who: "the script".to_owned(),
        message,
        code: None,
    }
}

/// The folder of one trial.
struct TrialFolder {
    folder: PathBuf,
    seed: u64,
}

/// The losses that the ranks of a trial accepted.
struct CountedLosses {
    sum: Accepted,
    /// The job's tolerance, as the ranks know it.
    tolerance: f64,
}

impl TrialFolder {
    fn prepare(&self, job: &str) -> Result<(), LabError> {
        let folder = &self.folder;
        let cannot = |source| LabError::system(format!("cannot make {}", folder.display()))(source);
        if folder.exists() {
            std::fs::remove_dir_all(folder).map_err(cannot)?;
        }
        std::fs::create_dir_all(folder.join("ranks")).map_err(cannot)?;
        std::fs::write(folder.join("job.toml"), job).map_err(cannot)
    }

    fn start(&self, command: &[String]) -> Result<Child, LabError> {
        let starting = |source| {
            LabError::system(format!("starting a trial in {}", self.folder.display()))(source)
        };
        let seed = self.seed.to_string();
        let words = command.iter().map(|word| word.replace("{seed}", &seed));
        let folder = self.folder.canonicalize().map_err(starting)?;
        let output = |name| File::create(folder.join(name)).map_err(starting);
        leash::guarded(words)
            .map_err(starting)?
            .env("GRADWIRE_JOB", folder.join("job.toml"))
            .env("GRADWIRE_TRACE", folder.join("ranks"))
            .env("GRADWIRE_TRIAL_SEED", &seed)
            .stdout(output("stdout.txt")?)
            .stderr(output("stderr.txt")?)
            .spawn()
            .map_err(starting)
    }

    fn failed(&self, status: ExitStatus) -> LabError {
        let how = how_it_ended(status);
        script_failed(format!("{how} (seed {}){}", self.seed, self.complaint()))
    }

    /// Returns the last lines of its standard error: those behind the last line that names an
    /// error, or before `torchrun`'s long report about it.
    fn complaint(&self) -> String {
        let path = self.folder.join("stderr.txt");
        let bytes = std::fs::read(&path).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        if lines.is_empty() {
            return "; it said nothing on standard error".to_owned();
        }
        let begin = lines.len().saturating_sub(LINES);
        let named = lines[..begin].iter().rfind(|line| names_an_error(line));
        let launcher = lines.iter().position(|line| is_of_launcher(line));
        let before = launcher.and_then(|at| lines[..at.min(begin)].last());
        let error = named.or(before);
        let error = error.map(|line| format!("\n  {line}\n  ..."));
        let last = lines[begin..].join("\n  ");
        let path = path.display();
        format!(
            "; the end of {path}:{}\n  {last}",
            error.unwrap_or_default()
        )
    }
}

impl CountedLosses {
    /// Of the counts that the ranks left.
    fn of(all: &[Snapshot]) -> Self {
        let one = |snapshot: &Snapshot| Accepted {
            ranks: 1,
            owed_bytes: snapshot.loss.owed_bytes,
            allowed_bytes: snapshot.loss.allowed_bytes,
            lost_bytes: snapshot.loss.lost_bytes,
        };
        Self {
            sum: Accepted::sum(all.iter().map(one)),
            tolerance: all
                .iter()
                .map(|snapshot| snapshot.tolerance)
                .fold(0.0, f64::max),
        }
    }
}

/// The mean time of all-reduces in microseconds, over all ranks. The longest of each rank is left
/// out: it is that in which the rank waited for the others to start.
fn mean_all_reduce(all: &[Snapshot]) -> Option<f64> {
    let operations = all.iter().flat_map(|snapshot| &snapshot.operations);
    let times = operations
        .filter(|operation| operation.collective == "all_reduce" && operation.times.count > 1)
        .map(|operation| &operation.times);
    let (sum, count) = times.fold((0.0, 0), |(sum, count), times| {
        (
            sum + times.sum_us - times.max_us as f64,
            count + times.count - 1,
        )
    });
    (count > 0).then(|| (sum / count as f64 * 10.0).round() / 10.0)
}

/// Whether a line ends a Python traceback of a script, not of its launcher.
fn names_an_error(line: &str) -> bool {
    let (name, message) = line.split_once(": ").unwrap_or((line, ""));
    let named = name.ends_with("Error") || name.ends_with("Exception");
    named && !name.contains(' ') && !message.trim().is_empty()
}

/// Whether a line is an error logged by PyTorch: a letter, month and day.
fn is_of_launcher(line: &str) -> bool {
    let date = line.strip_prefix('E').and_then(|rest| rest.get(..5));
    let number = date.and_then(|date| date.strip_suffix(' '));
    number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn counts(folder: &Path) -> Vec<Snapshot> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let of_ranks = entries.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with(COUNTS) && name.ends_with(".json")
    });
    let texts = of_ranks.filter_map(|entry| std::fs::read(entry.path()).ok());
    texts
        .filter_map(|text| serde_json::from_slice(&text).ok())
        .collect()
}

/// Checks that the ranks ran the given job, and could lose packets.
fn fits(
    request: &TrialRequest<'_>,
    told: &CountedLosses,
    place: &TrialFolder,
) -> Result<(), LabError> {
    let setting = request.setting;
    let wrong = |message: &str| Err(LabError::Usage(format!("the script {message}")));
    let wanted = setting.largest();
    let ranks = place.folder.join("ranks");
    if told.sum.ranks == 0 {
        let ranks = ranks.display();
        return wrong(&format!(
            "uses no rank of gradwire, or changes GRADWIRE_TRACE, or ended without its ranks \
             leaving their job: none has left its counts in {ranks}. It must call \
             init_process_group(\"gradwire\")"
        ));
    }
    let of_job = setting.least();
    if (told.tolerance - of_job).abs() > 1e-6 {
        return wrong(&format!(
            "does not run the job that GRADWIRE_JOB names: its ranks tolerated {}% instead of {}%",
            percent(told.tolerance),
            percent(of_job)
        ));
    }
    if setting.is_lossless() {
        return match told.sum.owed_bytes {
            0 => Ok(()),
            _ => wrong(
                "sets a tolerance of its own: let it call gradwire.ddp.register(model) without \
                 one, so that the job says it",
            ),
        };
    }
    if told.sum.owed_bytes == 0 {
        // A trial of time lets no tensor lose that one step reduces.
        if request.purpose == TrialPurpose::Time {
            return Ok(());
        }
        return wrong(
            "can lose nothing: no message had a tolerance. Its model must be registered with \
             gradwire.ddp.register, have more than one layer, and messages above \
             loss.min_message",
        );
    }
    let allowed = told.sum.allowed_bytes as f64 / told.sum.owed_bytes as f64;
    if allowed > wanted * 1.01 + 1e-6 {
        return wrong(&format!(
            "sets a tolerance of its own: its messages might lose {}% where the job says {}%",
            percent(allowed),
            percent(wanted)
        ));
    }
    Ok(())
}

/// Writes a share in percent, with as few digits as possible.
pub fn percent(share: f64) -> String {
    let text = format!("{:.3}", share * 100.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::job::ToleranceUse;
    use gradwire_runtime::metrics::snapshot::{OperationTimes, TimeSpread};

    use super::*;

    #[test]
    fn trial_jobs_have_tolerance_and_drops() {
        let job = Job {
            name: "mine".to_owned(),
            ..Job::default()
        };
        let losses = TrialLosses {
            drop: 0.03,
            burst: 8.0,
            drop_from: DropFrom::Droppable,
        };
        let text = job_text(&job, &ToleranceSetting::overall(0.02), (&losses, 4));
        let read = Job::from_toml(&text).expect("it can be read");
        assert_eq!(read.name, "mine");
        assert_eq!(read.tolerance.get(), 0.02);
        assert_eq!(read.tolerance_use(), ToleranceUse::Always);
        assert_eq!(read.collectives.algorithm, ReduceAlgorithm::Direct);
        let faults = &read.faults;
        assert_eq!(
            (faults.drop.get(), faults.burst, faults.seed),
            (0.03, 8.0, 4)
        );
        assert_eq!(faults.drop_from, DropFrom::Droppable);
        let groups = ToleranceSetting {
            groups: vec![0.1, 0.02],
            tight: Some(0.01),
        };
        let text = job_text(&job, &groups, (&losses, 1));
        let read = Job::from_toml(&text).expect("it can be read");
        assert_eq!(read.tolerance.get(), 0.02);
        assert_eq!(read.loss.layer_tolerances.len(), 2);
        assert_eq!(
            read.loss.tight_tolerance.map(|share| share.get()),
            Some(0.01)
        );
        let setting = ToleranceSetting::lossless();
        let baseline = TrialRequest::of_metric(&setting, 1);
        let lossless = job_text(&job, &setting, (&baseline.losses, 1));
        let read = Job::from_toml(&lossless).expect("it can be read");
        assert!(read.tolerance.is_none() && !read.faults.any());
        let timed = TrialRequest::of_time(&setting, 1, 0.01);
        let lossless = job_text(&job, &setting, (&timed.losses, 1));
        let read = Job::from_toml(&lossless).expect("it can be read");
        assert!(read.tolerance.is_none());
        assert_eq!(read.tolerance_use(), ToleranceUse::WhereItPays);
        assert_eq!(read.collectives.algorithm, ReduceAlgorithm::Auto);
        let faults = &read.faults;
        assert_eq!((faults.drop.get(), faults.drop_from), (0.01, DropFrom::All));
    }

    #[test]
    fn the_first_all_reduce_of_a_rank_does_not_count() {
        let operation = |collective: &str, count, sum_us, max_us| OperationTimes {
            collective: collective.to_owned(),
            times: TimeSpread {
                count,
                sum_us,
                max_us,
                ..TimeSpread::default()
            },
            ..OperationTimes::default()
        };
        let rank = |operations| Snapshot {
            operations,
            ..Snapshot::default()
        };
        let ranks = [
            rank(vec![
                operation("all_reduce", 4, 9_300.0, 9_000),
                operation("barrier", 9, 1e9, 9),
            ]),
            rank(vec![operation("all_reduce", 2, 700.0, 600)]),
        ];
        assert_eq!(mean_all_reduce(&ranks), Some(100.0));
        assert_eq!(mean_all_reduce(&[rank(vec![])]), None);
    }

    #[test]
    fn script_errors_differ_from_launcher_output() {
        assert!(names_an_error("ValueError: no data"));
        assert!(names_an_error(
            "torch.distributed.DistBackendError: rank 1 was lost"
        ));
        for other in [
            "  raise ValueError: x",
            "ChildFailedError: ",
            "step 3: Error",
            "",
        ] {
            assert!(!names_an_error(other), "{other}");
        }
    }

    #[test]
    fn launcher_logs_differ_from_script_output() {
        assert!(is_of_launcher("E1122 00:34:35.1 4106 torch/distributed"));
        for other in [
            "E112 a",
            "Error",
            "W1122 00:34",
            "E11220",
            "Ä1122 ",
            "E112ä ",
        ] {
            assert!(!is_of_launcher(other), "{other}");
        }
    }

    fn done(setting: ToleranceSetting, seconds: f64) -> TrialRecord {
        TrialRecord {
            trial: ToleranceTrial {
                setting,
                seed: 1,
                metric: Some(0.9),
            },
            purpose: TrialPurpose::Metric,
            drop: 0.0,
            burst: 1.0,
            accepted: Accepted::default(),
            seconds,
            all_reduce_us: None,
            note: None,
        }
    }

    #[test]
    fn lossy_trials_may_take_ten_times_as_long() {
        let bench = TrialBench {
            job: Job::default(),
            command: Vec::new(),
            metric: "accuracy".to_owned(),
            timeout: Duration::from_secs(300),
            folder: PathBuf::new(),
        };
        let patience = |seconds| {
            let lossless = done(ToleranceSetting::lossless(), seconds);
            let slow = done(ToleranceSetting::overall(0.3), 1e4);
            bench.patience(&[lossless, slow]).as_secs()
        };
        assert_eq!([0.5, 7.0, 40.0].map(patience), [30, 70, 300]);
    }

    #[test]
    fn half_of_the_trials_lose_in_bursts() {
        let bursts = (1..=6).filter(|seed| losses(*seed).0 > 1.0).count();
        assert_eq!(bursts, 3);
    }

    #[test]
    fn shares_are_told_in_percent() {
        assert_eq!([0.0, 0.0015, 0.3].map(percent), ["0", "0.15", "30"]);
    }
}
