//! How far a simulation has come, and how much longer it will take: a bar on standard error, where
//! that is a terminal.
//!
//! Flows of a run often end all together, so their number says little. The bar shows the simulated
//! time over the least time that the workload can take: all bytes of the busiest host at the rate
//! of its link, behind the last start that is known.

use gradwire_fabric::topology::Device;
use gradwire_netsim::engine::parallel::Glance;
use gradwire_netsim::setup::Setup;
use gradwire_protocol::units::{ByteCount, Instant, Rate, Span};
use gradwire_workloads::workload::{Program, Start, Work};
use indicatif::{ProgressBar, ProgressStyle};

use super::scenario::Loaded;

/// Steps of a bar for one run.
const STEPS: u64 = 1000;

/// A bar of this many steps; `beside` is the template of the text at its right.
pub fn bar(steps: u64, beside: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(&format!("{{bar:30}} {beside}"));
    let style = style.expect("the template is constant and well-formed");
    ProgressBar::new(steps).with_style(style)
}

/// A bar over one or several runs.
#[derive(Clone, Debug)]
pub struct RunProgress {
    bar: ProgressBar,
}

impl RunProgress {
    /// A bar for this many runs.
    pub fn of_runs(runs: usize) -> Self {
        let beside = "{percent:>3}%  {elapsed} gone, about {eta} left  {msg}";
        let bar = bar(runs as u64 * STEPS, beside);
        Self { bar }
    }

    /// The observer of one run, which moves the bar by the run's part.
    pub fn run<'a>(&'a self, name: &str, loaded: &Loaded) -> impl FnMut(Glance) + use<'a> {
        let (least, total) = (least(&loaded.setup), loaded.total());
        self.bar.set_message(name.to_owned());
        let mut shown = 0;
        move |glance| {
            let steps = (share(&glance, least, total) * STEPS as f64) as u64;
            self.bar.inc(steps.saturating_sub(shown));
            shown = shown.max(steps);
        }
    }

    /// Sets the bar to this many runs done.
    pub fn done(&self, runs: usize) {
        let position = runs as u64 * STEPS;
        self.bar.set_position(position.max(self.bar.position()));
    }

    /// Takes the bar away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// How much of a run is done; below 1 until all is.
fn share(glance: &Glance, least: Span, total: u64) -> f64 {
    let ended = glance.done as f64 / total.max(1) as f64;
    let time = glance.now.as_picos() as f64 / least.as_picos().max(1) as f64;
    // A run that takes longer than the least it could goes on towards the end ever more slowly.
    let time = if time < 0.8 { time } else { 1.0 - 0.16 / time };
    ended.max(time).min(0.99)
}

/// The least simulated time that a workload can take, roughly.
pub fn least(setup: &Setup) -> Span {
    let (fabric, workload) = (&setup.fabric, &setup.workload);
    let mut hosts = vec![(0_u64, 0_u64, Span::ZERO); fabric.hosts as usize];
    let mut rates = vec![Rate::from_gbps(100); hosts.len()];
    for link in &fabric.links {
        for end in link.ends {
            if let Device::Host(host) = end {
                rates[host as usize] = link.rate;
            }
        }
    }
    let mut last_start = Span::ZERO;
    for flow in &workload.flows {
        if let Start::At(start) = flow.start {
            last_start = last_start.max(start.since(Instant::START));
        }
        for (host, sent, received) in [
            (flow.source, flow.bytes.get(), 0),
            (flow.destination, 0, flow.bytes.get()),
        ] {
            if let Some(sums) = hosts.get_mut(host as usize) {
                sums.0 += sent;
                sums.1 += received;
            }
        }
    }
    for program in &workload.programs {
        if let Some(sums) = hosts.get_mut(program.host as usize) {
            let (bytes, busy) = of_program(program);
            sums.0 += bytes;
            sums.2 = sums.2 + busy;
        }
    }
    let times = hosts
        .iter()
        .zip(rates)
        .map(|(&(sent, received, busy), rate)| {
            rate.transmit_time(ByteCount::new(sent.max(received)))
                .max(busy)
        });
    times.max().unwrap_or_default().max(last_start)
}

/// Bytes that a rank sends about, and the time for which it computes on its busiest unit, roughly.
fn of_program(program: &Program) -> (u64, Span) {
    let (mut bytes, mut busy) = (0, Span::ZERO);
    for task in &program.tasks {
        match &task.work {
            Work::Compute { span, .. } => busy = busy + *span,
            Work::Collective { bytes: size, .. } => bytes += 2 * size.get(),
            Work::Send { bytes: size, .. } => bytes += size.get(),
            Work::Receive { .. } => {}
        }
    }
    (bytes, busy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::scenario::Scenario;

    #[test]
    fn busiest_hosts_decide_the_least_time() {
        let scenario = Scenario::new("single:8@100G", "incast:7x1000000");
        let loaded = scenario.load().expect("both exist");
        assert_eq!(least(&loaded.setup), Span::from_micros(560));
    }

    #[test]
    fn shares_stay_below_one_until_the_end() {
        let mut before = 0.0;
        for now in [0, 40, 79, 81, 100, 200, 1_000, 1_000_000] {
            let glance = Glance {
                now: Instant::from_picos(now),
                done: 0,
                events: 0,
            };
            let share = share(&glance, Span::from_picos(100), 10);
            assert!((before..1.0).contains(&share), "{share} at {now}");
            before = share;
        }
    }
}
