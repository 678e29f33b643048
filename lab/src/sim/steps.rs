//! Training steps of a report: a table of their times, a picture of one step, and the accepted
//! losses of each layer.

use std::collections::BTreeMap;

use super::drawn::{DrawnRun, swatch};
use super::step;
use gradwire_netsim::results::statistics::Spread;
use gradwire_report::html::{self, figure, section};
use gradwire_report::numbers::count;
use gradwire_report::svg::escaped;

/// Layers of the table of losses; those that lost most.
const LAYERS_MAX: usize = 16;
const TIMES: &str = "Simulated microseconds. An iteration is from the end of a forward pass to the \
    end of the next one, on the worker that is last; computing is the time that the slowest worker \
    computes in it; exposed is the rest: communication that computing does not hide. FCT is from \
    the time at which a push, a pull or an all-reduce could start until it was done.";
const STEP: &str = "One worker in the last step, layers from front to back: the backward \
    pass makes their gradients, messages carry them from the time at which they could start, and \
    the forward pass of a layer waits for its update.";
const LOSSES: &str = "Share of the segments that hosts expected of a layer's gradients and \
    accepted as lost, within the tolerance; a loss of a bucket counts for all of its layers.";

/// The sections of runs that have training steps; empty where no run has any.
pub fn steps(runs: &[DrawnRun]) -> String {
    if runs.iter().all(|run| run.summary.training.is_empty()) {
        return String::new();
    }
    section("Training steps", TIMES, &times(runs)) + &pictures(runs) + &losses(runs)
}

fn times(runs: &[DrawnRun]) -> String {
    let names = "transport | job | steps ended | iteration | p99 | computing | exposed | share | \
                 FCT | p99";
    let mut rows = Vec::new();
    for DrawnRun { summary, .. } in runs {
        for job in &summary.training {
            let ended = job.iterations_us.len() as u64;
            let share = job.exposed_us.zip(job.iteration_us);
            let share =
                share.map(|(exposed, iteration)| exposed / iteration.max(f64::MIN_POSITIVE));
            let fct = |of: fn(&Spread) -> f64| micros(job.fct_us.as_ref().map(of));
            rows.push(vec![
                swatch(&summary.transport),
                escaped(&job.job),
                format!("{} of {}", count(ended), count(u64::from(job.steps))),
                micros(job.iteration_us),
                micros(job.iteration_p99_us),
                micros(Some(job.compute_us)),
                micros(job.exposed_us),
                percent(share),
                fct(|figures| figures.mean),
                fct(|figures| figures.p99),
            ]);
        }
    }
    html::table(names, rows)
}

fn micros(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
}

fn percent(share: Option<f64>) -> String {
    let share = share.map(|share| format!("{:.1} %", share * 100.0));
    share.unwrap_or_else(|| "-".to_owned())
}

fn pictures(runs: &[DrawnRun]) -> String {
    let drawn = runs.iter().filter_map(|run| {
        let (told, picture) = step::last(run)?;
        let caption = format!("{} {}", swatch(&run.summary.transport), escaped(&told));
        Some(figure(&caption, &picture))
    });
    let drawn: String = drawn.collect();
    match drawn.as_str() {
        "" => drawn,
        _ => section("One step", STEP, &drawn),
    }
}

/// By job and layer, the share that each run lost, and the layer's place in the forward pass.
type Losses<'a> = BTreeMap<(&'a str, usize, &'a str), Vec<f64>>;

fn losses(runs: &[DrawnRun]) -> String {
    let mut lost: Losses<'_> = BTreeMap::new();
    for (column, run) in runs.iter().enumerate() {
        for job in &run.summary.training {
            for (place, loss) in job.losses.iter().enumerate() {
                let key = (job.job.as_str(), place, loss.layer.as_str());
                lost.entry(key).or_insert_with(|| vec![0.0; runs.len()])[column] = loss.share;
            }
        }
    }
    let most = |shares: &Vec<f64>| shares.iter().copied().fold(0.0, f64::max);
    lost.retain(|_, shares| most(shares) > 0.0);
    let all = lost.len();
    let mut sorted: Vec<f64> = lost.values().map(most).collect();
    sorted.sort_by(|one, other| other.total_cmp(one));
    if let Some(&least) = sorted.get(LAYERS_MAX - 1) {
        lost.retain(|_, shares| most(shares) >= least);
    }
    if lost.is_empty() {
        let told = "No layer's gradients lost anything: every segment arrived or was sent again.";
        return section("Loss by layer", told, "");
    }
    let transports = runs.iter().map(|run| swatch(&run.summary.transport));
    let names: Vec<String> = ["layer".to_owned()].into_iter().chain(transports).collect();
    let rows = lost.iter().map(|((_, _, layer), shares)| {
        let shares = shares.iter();
        let shares = shares.map(|share| format!("{:.3} %", share * 100.0));
        [escaped(layer)].into_iter().chain(shares).collect()
    });
    let table = html::table(&names.join(" | "), rows);
    let more = match all - lost.len() {
        0 => String::new(),
        more => format!(
            " The {} layers that lost less are left out.",
            count(more as u64)
        ),
    };
    let told = format!("{LOSSES}{more}");
    section("Loss by layer", &told, &table)
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::job::notation;

    use super::*;
    use crate::sim::scenario::Scenario;

    fn run(workload: &str, tolerance: &str) -> DrawnRun {
        let scenario = Scenario {
            tolerance: notation::share(tolerance),
            ..Scenario::new("single:5@10G", workload)
        };
        let loaded = scenario.load().expect("both exist");
        DrawnRun::of(&scenario, loaded, &mut |_| {}).expect("they fit each other")
    }

    #[test]
    fn steps_have_a_table_a_picture_and_losses() {
        let page = steps(&[run("step:alexnet:ps=1,scale=2000,steps=2", "10%")]);
        assert!(page.contains("<td>2 of 2</td>"), "{page}");
        assert!(
            page.contains("<h2>One step</h2>") && page.contains("<svg"),
            "{page}"
        );
        assert!(page.contains("<h2>Loss by layer</h2>"), "{page}");
    }

    #[test]
    fn without_steps_there_is_nothing() {
        assert_eq!(steps(&[run("permutation:10KB", "0%")]), "");
    }

    #[test]
    fn only_the_layers_that_lost_most_are_listed() {
        let mut run = run("step:resnet50:ps=1,scale=2000,steps=1", "0%");
        assert!(losses(std::slice::from_ref(&run)).contains("No layer's gradients lost"));
        let job = run.summary.training.first_mut().expect("it has steps");
        for (place, loss) in job.losses.iter_mut().enumerate() {
            loss.share = place as f64 / 1_000.0;
        }
        let layers = job.losses.len();
        let table = losses(&[run]);
        assert_eq!(table.matches("<tr>").count(), 1 + LAYERS_MAX);
        let left_out = format!("The {} layers that lost less", layers - 1 - LAYERS_MAX);
        assert!(table.contains(&left_out), "{table}");
        assert!(table.contains("<td>fc</td>"), "{table}");
    }
}
