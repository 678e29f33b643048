//! `gradwire perf loss`: goodput of all-reduces whose packets are dropped, as a share of the
//! loss-free one, with and without a tolerance, and Gloo's.

use gradwire_protocol::job::Job;
use gradwire_protocol::job::notation::show_share;
use gradwire_protocol::units::Share;
use gradwire_report::columns::heads;
use gradwire_report::printing::OutputForm;
use serde_json::{Map, Value, json};

use super::ground::{
    job_on, on_the_network, one_size, passed, progress_bar, refuse_spinning, security,
};
use super::options::{LossOptions, RivalOptions};
use super::table::{gigabytes, ratio_json, rounded};
use crate::exit::CommandError;
use gradwire_lab::crew::kind::PerfCollective;
use gradwire_lab::crew::launcher::Crew;
use gradwire_lab::crew::messages::{Measured, Round};
use gradwire_lab::crew::place::{CrewPlace, Lab};
use gradwire_lab::crew::rival::{self, Rival};
use gradwire_lab::crew::rounds::{ROUND_PATIENCE, Ratio, RoundSeries, RoundsPlan};
use gradwire_lab::crew::verdict;
use gradwire_lab::error::LabError;

/// Widths of the columns.
const WIDTHS: [usize; 14] = [11, 9, 9, 10, 5, 10, 10, 10, 10, 8, 7, 13, 8, 8];
/// The tolerance that is measured when the job has none.
const TOLERANCE: f64 = 0.1;

/// Measures goodput under loss.
///
/// # Errors
/// [`CommandError`] when options make no sense, ranks fail, or a result is wrong.
pub fn run(options: &LossOptions) -> Result<(), CommandError> {
    let sizes = options.bytes.iter();
    let sizes = sizes.map(|bytes| one_size(options.ranks, *bytes));
    let sizes = each_once(&sizes.collect::<Result<Vec<u64>, _>>()?);
    let drops = each_once(&options.drops);
    let jobs = Jobs::new(options)?;
    let rounds = options.comparison.rounds.unwrap_or(5);
    let place = options.ground.place(options.ranks)?;
    let mut gloo = gloo(&options.comparison, options.ranks, &place)?;
    let mut free = Crew::of_ranks(options.ranks, &jobs.free, &place)?;
    let mut report = LossReport {
        form: options.ground.form(),
        ranks: options.ranks,
        rounds,
        network: place.network(),
        wire: free.wire().to_owned(),
        security: security(&jobs.free, free.wire()),
        shares: Map::new(),
    };
    report.head();
    let progress = progress_bar(drops.len() * sizes.len());
    let mut wrong = Vec::new();
    for drop in &drops {
        progress.set_message(format!("{} dropped", show_share(*drop)));
        let (lossless, tolerant) = (jobs.lossless(*drop), jobs.tolerant(*drop));
        let mut lossless_crew = Crew::of_ranks(options.ranks, &lossless, &place)?;
        let mut tolerant_crew = Crew::of_ranks(options.ranks, &tolerant, &place)?;
        let contestants = if gloo.is_some() { 5 } else { 3 };
        for bytes in sizes.iter().copied() {
            progress.set_message(format!("{bytes} bytes, {} dropped", show_share(*drop)));
            let plan = RoundsPlan {
                kind: PerfCollective::AllReduce,
                bytes,
                rounds,
                iterations: options.iterations,
                warmup: 1,
            };
            let series = plan.alternate(contestants, &mut |at, round| match (at, &mut gloo) {
                (0, _) => free.round(round, ROUND_PATIENCE),
                (1, _) => lossless_crew.round(round, ROUND_PATIENCE),
                (2, _) => tolerant_crew.round(round, ROUND_PATIENCE),
                (3, Some(gloo)) => gloo.round(round, Share::NONE),
                (_, Some(gloo)) => gloo.round(round, *drop),
                (_, None) => unreachable!("without Gloo there are three contestants"),
            })?;
            for (job, series) in [&jobs.free, &lossless, &tolerant].into_iter().zip(&series) {
                let kind = PerfCollective::AllReduce;
                wrong.extend(verdict::faults(kind, bytes, series, job));
            }
            progress.suspend(|| report.print((bytes, *drop), jobs.tolerance, &series));
            progress.inc(1);
        }
        lossless_crew.end()?;
        tolerant_crew.end()?;
    }
    progress.finish_and_clear();
    report.finish();
    free.end()?;
    gloo.map_or(Ok(()), |gloo| gloo.crew.end())?;
    Ok(passed(wrong)?)
}

/// The values in their order, without those that came before.
fn each_once<T: Copy + PartialEq>(values: &[T]) -> Vec<T> {
    let is_new = |&at: &usize| !values[..at].contains(&values[at]);
    let places = (0..values.len()).filter(is_new);
    places.map(|at| values[at]).collect()
}

/// The jobs that are compared: equal but for drops and tolerance.
struct Jobs {
    free: Job,
    tolerance: Share,
}

impl Jobs {
    fn new(options: &LossOptions) -> Result<Self, CommandError> {
        if let Some(drop) = options.ground.job.drop {
            let drop = show_share(drop);
            let text = format!(
                "--drop {drop}: this command takes --drops, with one share or \
            several"
            );
            return Err(CommandError::Usage(text));
        }
        let mut job = job_on(&options.ground)?;
        refuse_spinning(&job)?;
        job.transport.wire = on_the_network(job.transport.wire);
        job.faults.drop = Share::NONE;
        let tolerance = match job.tolerance.is_none() {
            true => Share::new(TOLERANCE).expect("a tenth is a share"),
            false => job.tolerance,
        };
        job.tolerance = Share::NONE;
        Ok(Self {
            free: job,
            tolerance,
        })
    }

    fn lossless(&self, drop: Share) -> Job {
        let mut job = self.free.clone();
        job.faults.drop = drop;
        job
    }

    fn tolerant(&self, drop: Share) -> Job {
        Job {
            tolerance: self.tolerance,
            ..self.lossless(drop)
        }
    }
}

/// Gloo's ranks, and the links on which its packets are dropped.
struct Gloo<'a> {
    crew: Crew,
    lab: &'a Lab,
}

fn gloo<'a>(
    comparison: &RivalOptions,
    ranks: u16,
    place: &'a CrewPlace,
) -> Result<Option<Gloo<'a>>, CommandError> {
    if comparison.rivals().contains(&Rival::Openmpi) {
        let text = "--against openmpi: its shared memory loses nothing; compare with gloo";
        return Err(CommandError::Usage(text.to_owned()));
    }
    if comparison.against.is_empty() {
        return Ok(None);
    }
    let CrewPlace::Lab(lab) = place else {
        let text = "--against gloo needs --netns: the kernel drops packets of TCP only on links \
                    that this run has made";
        return Err(CommandError::Usage(text.to_owned()));
    };
    let crew = rival::crew(
        Rival::Gloo,
        &comparison.python(),
        (PerfCollective::AllReduce, ranks),
        place,
    )?;
    Ok(Some(Gloo { crew, lab }))
}

impl Gloo<'_> {
    fn round(&mut self, round: &Round, drop: Share) -> Result<Vec<Measured>, LabError> {
        self.lab.disturb(drop)?;
        let measured = self.crew.round(round, ROUND_PATIENCE)?;
        self.lab.calm()?;
        Ok(measured)
    }
}

/// Prints the measurements.
struct LossReport {
    form: OutputForm,
    ranks: u16,
    rounds: u32,
    network: &'static str,
    wire: String,
    security: &'static str,
    /// The printed shares by size and drop, for the last object.
    shares: Map<String, Value>,
}

/// One line: who, of which series, beside which other one.
struct GoodputRow<'a> {
    bytes: u64,
    drop: Share,
    backend: &'static str,
    tolerance: Share,
    free: &'a RoundSeries,
    lossy: &'a RoundSeries,
}

impl GoodputRow<'_> {
    fn share(&self) -> Ratio {
        Ratio::of(self.free, self.lossy)
    }

    fn text(&self) -> String {
        let share = self.share();
        let (free, lossy) = (self.free.time_us(), self.lossy.time_us());
        let spread = format!("{:.1}-{:.1}", share.min * 100.0, share.max * 100.0);
        format!(
            "{:>11} {:>9} {:>9} {:>10} {:>5} {free:>10.1} {:>10.1} {lossy:>10.1} {:>10.1} {:>8.3} \
             {:>7.1} {spread:>13} {:>8} {:>8}",
            self.bytes,
            show_share(self.drop),
            self.backend,
            show_share(self.tolerance),
            self.lossy.iterations(),
            self.free.p99_us(),
            self.lossy.p99_us(),
            gigabytes(self.bytes, lossy),
            share.median * 100.0,
            sum(self.lossy, |rank| rank.lost_segments),
            sum(self.lossy, |rank| rank.repaired_segments),
        )
    }
}

impl LossReport {
    fn head(&self) {
        let Self {
            ranks,
            wire,
            security,
            rounds,
            network,
            ..
        } = self;
        self.form.remark(format_args!(
            "# all-reduce, {ranks} ranks on this machine ({network}) over {wire}, \
             security {security}, rounds {rounds}\n\
             # times are medians and 99th percentiles; goodput is size / time; its share is of the \
             same ranks' when nothing is dropped, measured in turn"
        ));
        let names = "size | dropped | backend | tolerance | times | loss-free | p99 | lossy | p99 \
                     | goodput | share | rounds | lost | repaired";
        let units = "B ||||| us | us | us | us | GB/s | % | min-max | segments | segments";
        for line in [names, units].map(|line| heads(&WIDTHS, line)) {
            self.form.remark(format_args!("{line}"));
        }
    }

    fn print(&mut self, (bytes, drop): (u64, Share), tolerance: Share, series: &[RoundSeries]) {
        let ours = |tolerance, lossy| GoodputRow {
            bytes,
            drop,
            backend: "gradwire",
            tolerance,
            free: &series[0],
            lossy,
        };
        let mut lines = vec![ours(Share::NONE, &series[1]), ours(tolerance, &series[2])];
        if let [_, _, _, free, lossy] = series {
            lines.push(GoodputRow {
                backend: "gloo",
                free,
                ..ours(Share::NONE, lossy)
            });
        }
        for line in lines {
            self.form.print(|| line.text(), || self.json(&line));
            let key = format!("{}, {}", line.backend, show_share(line.tolerance));
            let of_size = self.shares.entry(bytes.to_string());
            let of_size = of_size.or_insert_with(|| json!({}));
            of_size[show_share(drop)][key] = ratio_json(&line.share());
        }
    }

    fn finish(&self) {
        let text = "# gradwire: each receiver drops single packets, below what splits GRO\n\
                    # gloo: the kernel drops single packets where they arrive (tc, BPF); \
                    segmentation offload is off on its links, loss-free too";
        let summary = || {
            json!({
                "summary": {
                    "collective": "all-reduce",
                    "ranks": self.ranks,
                    "rounds": self.rounds,
                    "network": self.network,
                    "wire": self.wire,
                    "security": self.security,
                },
                "goodput_shares": self.shares,
            })
        };
        self.form.print(|| text.to_owned(), summary);
    }

    fn json(&self, line: &GoodputRow<'_>) -> Value {
        let share = line.share();
        let (free, lossy) = (line.free.time_us(), line.lossy.time_us());
        let ours = line.backend == "gradwire";
        json!({
            "backend": line.backend,
            "wire": if ours { self.wire.as_str() } else { "tcp" },
            "security": if ours { self.security } else { "none" },
            "size_bytes": line.bytes,
            "ranks": self.ranks,
            "dropped": line.drop.get(),
            "tolerance": line.tolerance.get(),
            "iterations": line.lossy.iterations(),
            "loss_free_iterations": line.free.iterations(),
            "loss_free_time_us": rounded(free),
            "loss_free_p99_us": rounded(line.free.p99_us()),
            "time_us": rounded(lossy),
            "p99_us": rounded(line.lossy.p99_us()),
            "goodput_gbps": rounded(gigabytes(line.bytes, lossy) * 8.0),
            "goodput_share": rounded(share.median),
            "goodput_share_min": rounded(share.min),
            "goodput_share_max": rounded(share.max),
            "lost_segments": sum(line.lossy, |rank| rank.lost_segments),
            "repaired_segments": sum(line.lossy, |rank| rank.repaired_segments),
            "faults_dropped": sum(line.lossy, |rank| rank.faults_dropped),
        })
    }
}

fn sum(series: &RoundSeries, count: fn(&Measured) -> u64) -> u64 {
    series.parts().flatten().map(count).sum()
}
