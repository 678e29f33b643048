//! Several transports on the same fabric, workload and seeds.
//!
//! Every transport runs every seed once, and ratios are taken seed by seed, so differences between
//! seeds are in no ratio. A rival that was faster is shown as such.

use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Args;
use gradwire_netsim::results::statistics::{Estimate, Spread};
use gradwire_report::numbers::count;
use serde::Serialize;

use super::cost::cores;
use super::progress::RunProgress;
use super::scenario::Scenario;
use super::summary::Summary;
use crate::error::LabError;
use crate::side_by_side::side_by_side;

/// A compared quantity: its name for people and for programs, and its place in a summary.
struct Metric {
    title: &'static str,
    key: &'static str,
    of: fn(&Summary) -> Option<f64>,
}

const METRICS: [Metric; 5] = [
    Metric {
        title: "FCT p50 us",
        key: "fct_p50_us",
        of: |summary| all_ended(summary).map(|figures| figures.p50),
    },
    Metric {
        title: "FCT p99 us",
        key: "fct_p99_us",
        of: |summary| all_ended(summary).map(|figures| figures.p99),
    },
    Metric {
        title: "FCT max us",
        key: "fct_max_us",
        of: |summary| all_ended(summary).map(|figures| figures.max),
    },
    Metric {
        title: "iteration us",
        key: "iteration_us",
        of: |summary| {
            let ended = summary.unfinished().is_ok();
            let first = summary.training.first().filter(|_| ended);
            first.and_then(|training| training.iteration_us)
        },
    },
    Metric {
        title: "makespan us",
        key: "makespan_us",
        of: |summary| {
            let ended = summary.unfinished().is_ok() && summary.tasks.is_some();
            ended.then_some(summary.makespan_us)
        },
    },
];

/// Percentiles of a run whose flows did not all end would flatter it.
fn all_ended(summary: &Summary) -> Option<&Spread> {
    let ended = summary.finished == summary.flows;
    summary.fct_us.as_ref().filter(|_| ended)
}

/// A comparison, as JSON shows it.
#[derive(Debug, Serialize)]
pub struct TransportComparison {
    simulated: bool,
    fabric: String,
    workload: String,
    background: Option<String>,
    seeds: Vec<u64>,
    base: String,
    transports: Vec<TransportRow>,
    /// Of each metric the transport with the least mean.
    fastest: serde_json::Map<String, serde_json::Value>,
    #[serde(skip)]
    unfinished: Option<LabError>,
}

/// One transport over all seeds.
#[derive(Debug, Serialize)]
struct TransportRow {
    transport: String,
    flows: usize,
    finished: usize,
    /// Means per seed of the packets that ports dropped, links lost, and senders repeated.
    dropped: f64,
    links_lost: f64,
    trimmed: f64,
    retransmissions: f64,
    lost_within_tolerance: f64,
    cpu_s: f64,
    metrics: Vec<MetricEstimate>,
}

/// One metric of one transport.
#[derive(Debug, Serialize)]
struct MetricEstimate {
    metric: &'static str,
    mean: Option<Estimate>,
    /// To the first transport, seed by seed.
    ratio: Option<Estimate>,
}

/// The parameters of a comparison.
#[derive(Args, Clone, Debug)]
pub struct ComparisonPlan {
    /// The scenario, with the first seed.
    #[command(flatten)]
    pub scenario: Scenario,
    /// The transports; ratios are to the first.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "gradwire,dctcp,ndp,roce,pfabric",
        value_name = "NAMES",
        conflicts_with = "transport"
    )]
    pub transports: Vec<String>,
    /// How many seeds, from --seed upwards.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(2..=1000))]
    pub seeds: u16,
    /// Runs at a time; by default as many as the cores allow with --threads.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024), value_name = "RUNS")]
    pub parallel: Option<u16>,
}

/// Runs all transports and seeds.
///
/// # Errors
/// [`LabError`] when the scenario makes no sense for one of the transports.
pub fn compare(options: &ComparisonPlan) -> Result<TransportComparison, LabError> {
    let seeds = u64::from(options.seeds);
    let seeds: Vec<u64> = (0..seeds)
        .map(|more| options.scenario.seed + more)
        .collect();
    let scenarios = scenarios(options, &seeds)?;
    let summaries = run_all(&scenarios, parallel(options))?;
    let by_transport: Vec<&[Summary]> = summaries.chunks(seeds.len()).collect();
    let unfinished = summaries.iter().try_for_each(Summary::unfinished);
    Ok(TransportComparison {
        unfinished: unfinished.err(),
        ..comparison(options, seeds, &by_transport)
    })
}

impl TransportComparison {
    /// The comparison as a table.
    pub fn table(&self) -> String {
        table(self)
    }

    /// `Ok` where all flows and tasks ended.
    ///
    /// # Errors
    /// [`LabError::Unfinished`] of the first run that did not end.
    pub fn unfinished(self) -> Result<(), LabError> {
        self.unfinished.map_or(Ok(()), Err)
    }
}

/// All runs, transport by transport. Every transport is loaded once before the first run, so that
/// mistakes are reported at once.
fn scenarios(options: &ComparisonPlan, seeds: &[u64]) -> Result<Vec<Scenario>, LabError> {
    let mut scenarios = Vec::new();
    for (index, transport) in options.transports.iter().enumerate() {
        if options.transports[..index].contains(transport) {
            let text = format!("--transports: {transport} is named twice");
            return Err(LabError::Usage(text));
        }
        let of_seed = |&seed| Scenario {
            transport: transport.clone(),
            seed,
            ..options.scenario.clone()
        };
        scenarios.extend(seeds.iter().map(of_seed));
        scenarios[scenarios.len() - 1].load()?;
    }
    Ok(scenarios)
}

fn parallel(options: &ComparisonPlan) -> usize {
    let fitting = (cores() / options.scenario.threads).max(1);
    options.parallel.map_or(fitting, usize::from)
}

/// Runs all scenarios, this many at a time; summaries are in their order.
fn run_all(scenarios: &[Scenario], parallel: usize) -> Result<Vec<Summary>, LabError> {
    let progress = RunProgress::of_runs(scenarios.len());
    let ended = AtomicUsize::new(0);
    let summaries = side_by_side(scenarios, parallel, |scenario| {
        let loaded = scenario.load()?;
        let name = format!("{} seed {}", scenario.transport, scenario.seed);
        let (_, summary) = scenario.run(&loaded, &mut progress.run(&name, &loaded))?;
        progress.done(ended.fetch_add(1, Ordering::Relaxed) + 1);
        Ok(summary)
    });
    progress.end();
    summaries
}

fn comparison(
    options: &ComparisonPlan,
    seeds: Vec<u64>,
    runs: &[&[Summary]],
) -> TransportComparison {
    let rows = runs.iter().map(|summaries| row(summaries, runs[0]));
    let transports: Vec<TransportRow> = rows.collect();
    let fastest = METRICS.iter().enumerate().filter_map(|(index, metric)| {
        let row = fastest(&transports, index)?;
        Some((metric.key.to_owned(), row.transport.clone().into()))
    });
    TransportComparison {
        simulated: true,
        fabric: options.scenario.fabric.clone(),
        workload: options.scenario.workload.clone(),
        background: options.scenario.background.clone(),
        seeds,
        base: options.transports[0].clone(),
        fastest: fastest.collect(),
        transports,
        unfinished: None,
    }
}

fn fastest(rows: &[TransportRow], metric: usize) -> Option<&TransportRow> {
    let mean = |row: &&TransportRow| row.metrics[metric].mean.map(|interval| interval.mean);
    let with_mean = rows.iter().filter(|row| mean(row).is_some());
    with_mean.min_by(|a, b| {
        let (a, b) = (mean(a).unwrap_or(f64::MAX), mean(b).unwrap_or(f64::MAX));
        a.total_cmp(&b)
    })
}

fn row(summaries: &[Summary], base: &[Summary]) -> TransportRow {
    let mean = |count: fn(&Summary) -> f64| {
        summaries.iter().map(count).sum::<f64>() / summaries.len() as f64
    };
    let metrics = METRICS.iter().map(|metric| {
        let of = |summaries: &[Summary]| summaries.iter().map(metric.of).collect();
        let values: Option<Vec<f64>> = of(summaries);
        let base: Option<Vec<f64>> = of(base);
        let ratio = values.as_ref().zip(base);
        MetricEstimate {
            metric: metric.key,
            ratio: ratio.and_then(|(values, base)| Estimate::of_ratio(values, &base)),
            mean: values.and_then(|values| Estimate::of_mean(&values)),
        }
    });
    TransportRow {
        transport: summaries[0].transport.clone(),
        flows: summaries.iter().map(|summary| summary.flows).sum(),
        finished: summaries.iter().map(|summary| summary.finished).sum(),
        dropped: mean(|summary| {
            let of_class = summary.drops.iter().map(|row| row.counts.dropped());
            of_class.sum::<u64>() as f64
        }),
        links_lost: mean(|summary| summary.links_lost as f64),
        trimmed: mean(|summary| {
            summary
                .drops
                .iter()
                .map(|row| row.counts.trimmed)
                .sum::<u64>() as f64
        }),
        retransmissions: mean(|summary| summary.retransmissions as f64),
        lost_within_tolerance: mean(|summary| summary.lost_within_tolerance as f64),
        cpu_s: mean(|summary| summary.cpu_s),
        metrics: metrics.collect(),
    }
}

fn table(comparison: &TransportComparison) -> String {
    let TransportComparison { seeds, base, .. } = comparison;
    let background = comparison.background.as_ref();
    let background = background.map_or_else(String::new, |text| format!(" beside {text}"));
    let mut text = format!(
        "# simulated: {}{background} on {}\n# {} seeds, {} to {}; means over seeds, and how many \
         times {base}, with the 95 % interval\n",
        comparison.workload,
        comparison.fabric,
        seeds.len(),
        seeds[0],
        seeds[seeds.len() - 1],
    );
    let shown: Vec<usize> = (0..METRICS.len())
        .filter(|&metric| fastest(&comparison.transports, metric).is_some())
        .collect();
    text += &format!("{:<12}", "transport");
    for &metric in &shown {
        text += &format!("{:>12}  {:<24}", METRICS[metric].title, format!("x {base}"));
    }
    text += &format!("{:>10}{:>10}\n", "lost", "re-sent");
    for row in &comparison.transports {
        text += &format!("{:<12}", row.transport);
        for &metric in &shown {
            text += &cell(row, metric, base);
        }
        let lost = row.dropped + row.links_lost;
        let (lost, again) = (lost.round() as u64, row.retransmissions.round() as u64);
        text += &format!("{:>10}{:>10}\n", count(lost), count(again));
    }
    for &metric in &shown {
        if let Some(row) = fastest(&comparison.transports, metric) {
            text += &format!("# least {}: {}\n", METRICS[metric].title, row.transport);
        }
    }
    text
}

fn cell(row: &TransportRow, metric: usize, base: &str) -> String {
    let measured = &row.metrics[metric];
    let Some(mean) = measured.mean else {
        let ended = format!(
            "{}/{} ended",
            count(row.finished as u64),
            count(row.flows as u64)
        );
        return format!("{:>12}  {ended:<24}", "-");
    };
    let ratio = match measured.ratio {
        _ if row.transport == base => "1".to_owned(),
        None => "-".to_owned(),
        Some(ratio) => {
            let sure = (ratio.low..=ratio.high).contains(&1.0);
            let mark = if sure { " =" } else { "" };
            format!(
                "{:.3} [{:.3}, {:.3}]{mark}",
                ratio.mean, ratio.low, ratio.high
            )
        }
    };
    format!("{:>12.3}  {ratio:<24}", mean.mean)
}
