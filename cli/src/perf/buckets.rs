//! `gradwire perf buckets`: many all-reduces at once, one per layer, and the order in which they
//! are complete.

use std::time::Duration;

use gradwire_report::columns::heads;
use gradwire_report::printing::OutputForm;
use serde_json::json;

use super::ground::{check_ranks, job_on, passed, progress_bar, security};
use super::options;
use super::table::{gigabytes, rounded};
use crate::exit::CommandError;
use gradwire_lab::crew::kind::PerfCollective;
use gradwire_lab::crew::launcher::Crew;
use gradwire_lab::crew::messages::{Layering, Measured};
use gradwire_lab::crew::rounds::{median, slowest};
use gradwire_lab::crew::{ELEMENT_BYTES, messages, verdict};

/// Longest that all buckets together may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// Measures the order.
///
/// # Errors
/// [`CommandError`] when options make no sense, ranks fail, or a result is wrong.
pub fn run(options: &options::BucketsOptions) -> Result<(), CommandError> {
    check_ranks(options.ranks)?;
    let job = job_on(&options.ground)?;
    let bytes = bucket_bytes(options)?;
    let place = options.ground.place(options.ranks)?;
    let mut crew = Crew::of_ranks(options.ranks, &job, &place)?;
    let progress = progress_bar(options.rounds as usize);
    let mut order = |layering| {
        let buckets = messages::BucketsRound {
            count: options.buckets,
            bytes,
            layering,
        };
        crew.buckets(&buckets, PATIENCE)
    };
    let (mut known, mut unknown, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
    order(Layering::Known)?;
    for _ in 0..options.rounds {
        for (layering, rounds) in [
            (Layering::Known, &mut known),
            (Layering::Unknown, &mut unknown),
        ] {
            let measured = order(layering)?;
            wrong.extend(verdict::faults_of_round(
                PerfCollective::AllReduce,
                &measured,
                &job,
            ));
            rounds.push(measured);
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    let report = BucketsReport {
        ranks: options.ranks,
        bytes,
        network: place.network(),
        wire: crew.wire().to_owned(),
        security: security(&job, crew.wire()),
        known: LayerOrder::of(&known),
        unknown: LayerOrder::of(&unknown),
    };
    match options.ground.form() {
        OutputForm::Text => report.text(),
        OutputForm::Json => report.json(),
    }
    crew.end()?;
    Ok(passed(wrong)?)
}

fn bucket_bytes(options: &options::BucketsOptions) -> Result<u64, CommandError> {
    let (total, count) = (options.total, u64::from(options.buckets));
    let bytes = total.get() / count / ELEMENT_BYTES * ELEMENT_BYTES;
    if bytes == 0 || bytes > u64::from(u32::MAX) {
        let text = format!(
            "--total {total} in {count} buckets: allowed are 4 bytes to below 4GiB for each"
        );
        return Err(CommandError::Usage(text));
    }
    Ok(bytes)
}

/// When and in which order the layers were complete.
struct LayerOrder {
    /// Of each layer the median time on the slowest rank.
    times_us: Vec<f64>,
    /// Of each layer its place in the order of these times, from 0.
    places: Vec<usize>,
    /// Median over rounds of the pairs in the wrong order.
    inversions: f64,
    pairs: usize,
}

impl LayerOrder {
    fn of(rounds: &[Vec<Measured>]) -> Self {
        let rounds: Vec<Vec<f64>> = rounds.iter().map(|round| slowest(round)).collect();
        let layers = rounds[0].len();
        let of_layer = |layer: usize| median(rounds.iter().map(|times| times[layer]).collect());
        let times_us: Vec<f64> = (0..layers).map(of_layer).collect();
        let inverted = rounds.iter().map(|times| inversions(times) as f64);
        Self {
            places: places(&times_us),
            inversions: median(inverted.collect()),
            pairs: layers * (layers - 1) / 2,
            times_us,
        }
    }

    /// Kendall's rank correlation of layers and times (Biometrika 30, 1938).
    fn tau(&self) -> f64 {
        1.0 - 2.0 * self.inversions / self.pairs as f64
    }

    fn end_us(&self) -> f64 {
        self.times_us.iter().copied().fold(0.0, f64::max)
    }
}

/// Pairs of layers of which the rear one was complete first.
fn inversions(times: &[f64]) -> usize {
    let behind = |at: usize| {
        times[at + 1..]
            .iter()
            .filter(move |rear| **rear < times[at])
    };
    (0..times.len()).map(|at| behind(at).count()).sum()
}

/// Of each entry its place when they are sorted.
fn places(times: &[f64]) -> Vec<usize> {
    let mut sorted: Vec<usize> = (0..times.len()).collect();
    sorted.sort_by(|a, b| times[*a].total_cmp(&times[*b]));
    let mut places = vec![0; times.len()];
    for (place, layer) in sorted.into_iter().enumerate() {
        places[layer] = place;
    }
    places
}

struct BucketsReport {
    ranks: u16,
    bytes: u64,
    network: &'static str,
    wire: String,
    security: &'static str,
    known: LayerOrder,
    unknown: LayerOrder,
}

impl BucketsReport {
    fn layers(&self) -> usize {
        self.known.places.len()
    }

    fn text(&self) {
        let (layers, bytes, ranks) = (self.layers(), self.bytes, self.ranks);
        println!(
            "# {layers} all-reduces of {bytes} bytes at once, {ranks} ranks on this machine ({}) \
             over {}, security {}",
            self.network, self.wire, self.security
        );
        let names = "layer | submitted | complete | time | without layers: | time";
        let units = "| as | as | us | complete as | us";
        for line in [names, units] {
            println!("{}", heads(&[7, 10, 9, 12, 16, 12], line));
        }
        for layer in 0..layers {
            println!(
                "{layer:>7} {:>10} {:>9} {:>12.1} {:>16} {:>12.1}",
                layers - 1 - layer,
                self.known.places[layer],
                self.known.times_us[layer],
                self.unknown.places[layer],
                self.unknown.times_us[layer],
            );
        }
        for (what, order) in [("layers known", &self.known), ("unknown", &self.unknown)] {
            println!(
                "# {what}: {} of {} pairs inverted, Kendall's tau {:.3}; all in {:.1} us, \
                 {:.3} GB/s",
                order.inversions,
                order.pairs,
                order.tau(),
                order.end_us(),
                gigabytes(bytes * layers as u64, order.end_us()),
            );
        }
    }

    fn json(&self) {
        for layer in 0..self.layers() {
            println!(
                "{}",
                json!({
                    "layer": layer,
                    "submitted_as": self.layers() - 1 - layer,
                    "complete_as": self.known.places[layer],
                    "time_us": rounded(self.known.times_us[layer]),
                    "complete_as_without_layers": self.unknown.places[layer],
                    "time_us_without_layers": rounded(self.unknown.times_us[layer]),
                })
            );
        }
        let order = |order: &LayerOrder| {
            json!({
                "inversions": order.inversions,
                "pairs": order.pairs,
                "kendall_tau": rounded(order.tau()),
                "time_us": rounded(order.end_us()),
            })
        };
        println!(
            "{}",
            json!({
                "summary": {
                    "ranks": self.ranks,
                    "buckets": self.layers(),
                    "bucket_bytes": self.bytes,
                    "network": self.network,
                    "wire": self.wire,
                    "security": self.security,
                },
                "with_layers": order(&self.known),
                "without_layers": order(&self.unknown),
            })
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(times: &[f64]) -> LayerOrder {
        let rank = Measured {
            times_us: times.to_vec(),
            ..Measured::default()
        };
        LayerOrder::of(&[vec![rank]])
    }

    #[test]
    fn tau_is_one_when_front_layers_finish_first() {
        assert_eq!(order(&[1.0, 2.0, 3.0, 4.0]).tau(), 1.0);
        assert_eq!(order(&[4.0, 3.0, 2.0, 1.0]).tau(), -1.0);
        assert_eq!(order(&[2.0, 1.0, 3.0]).inversions, 1.0);
    }

    #[test]
    fn places_are_those_of_the_times() {
        assert_eq!(order(&[30.0, 10.0, 20.0]).places, [2, 0, 1]);
    }
}
