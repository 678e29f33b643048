//! Curves of a report: completion times, slowdowns, queues over time.

use std::collections::BTreeMap;

use gradwire_netsim::results::outcome::{LinkOutcome, QueueSample};
use gradwire_netsim::results::statistics::{completion, micros, percentile, slowdown};
use gradwire_protocol::units::Span;

use super::drawn::DrawnRun;
use gradwire_report::plot::{Plot, PlotAxis, colour, dashed, stroke};

/// Points of a curve at most; more than a screen has would only make the page heavy.
const POINTS_MAX: usize = 500;
/// Ports whose queues are drawn.
const PORTS: usize = 4;
/// Colours of curves within one transport.
const PORT_COLOURS: [&str; PORTS] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"];

fn extent(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::MAX, 0.0), |(low, high): (f64, f64), value| {
        (low.min(value), high.max(value))
    })
}

/// The share of flows that were completed by a time; `None` when no flow was.
pub fn completion_times(runs: &[DrawnRun], size: (f64, f64)) -> Option<String> {
    let times = |run: &DrawnRun| sorted(run.flows().iter().filter_map(completion).map(micros));
    let curves: Vec<Vec<f64>> = runs.iter().map(times).collect();
    let ideal = sorted(runs[0].flows().iter().map(|flow| micros(flow.ideal)));
    let (low, high) = extent(curves.iter().flatten().chain(&ideal).copied());
    if curves.iter().all(Vec::is_empty) {
        return None;
    }
    let mut plot = Plot::new(
        size,
        PlotAxis::fitting("flow completion time, us", (low * 0.98, high * 1.02)),
        PlotAxis::linear("share of flows", (0.0, 1.0)),
    );
    let mut legend = vec![("alone".to_owned(), dashed("#8a94a0"))];
    plot.curve(&cumulative(&ideal, ideal.len()), &dashed("#8a94a0"));
    for (run, times) in runs.iter().zip(&curves).rev() {
        let style = stroke(colour(&run.summary.transport));
        plot.curve(&cumulative(times, run.summary.flows), &style);
    }
    for run in runs {
        let style = stroke(colour(&run.summary.transport));
        legend.push((run.summary.transport.clone(), style));
    }
    plot.legend(&legend);
    Some(plot.drawing.element("cumulative flow completion times"))
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Steps of a cumulative distribution over this many flows, some of which may have no value.
fn cumulative(sorted: &[f64], flows: usize) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    let every = sorted.len().div_ceil(POINTS_MAX).max(1);
    let last = sorted.len().saturating_sub(1);
    let mut height = 0.0;
    for (index, value) in sorted.iter().enumerate() {
        if index % every == 0 || index == last {
            points.push((*value, height));
            height = (index + 1) as f64 / flows.max(1) as f64;
            points.push((*value, height));
        }
    }
    points
}

/// Slowdown by flow size, median and 99th percentile; where all flows are equal, the share of
/// flows by slowdown. `None` when no flow was completed.
pub fn slowdowns(runs: &[DrawnRun], size: (f64, f64)) -> Option<String> {
    let by_size: Vec<_> = runs.iter().map(slowdown_by_size).collect();
    let sizes = by_size.iter().map(BTreeMap::len).max().unwrap_or(0);
    match sizes {
        0 => None,
        1 => Some(slowdown_shares(runs, size)),
        _ => Some(slowdown_curves(runs, &by_size, size)),
    }
}

/// Slowdowns, sorted, of flows whose size lies within a factor of two, by the lower end of that.
fn slowdown_by_size(run: &DrawnRun) -> BTreeMap<u32, Vec<f64>> {
    let mut groups: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for flow in run.flows() {
        let group = flow.bytes.get().max(1).ilog2();
        groups.entry(group).or_default().extend(slowdown(flow));
    }
    groups.retain(|_, values| !values.is_empty());
    for values in groups.values_mut() {
        values.sort_by(f64::total_cmp);
    }
    groups
}

fn slowdown_curves(
    runs: &[DrawnRun],
    groups: &[BTreeMap<u32, Vec<f64>>],
    size: (f64, f64),
) -> String {
    // The middle of a factor of two.
    let middle = |group: u32| 2_f64.powf(f64::from(group) + 0.5);
    let all = |per_mille: usize| {
        let values = groups.iter().flat_map(BTreeMap::values);
        values.map(move |values| percentile(values, per_mille))
    };
    let (low, high) = extent(all(500).chain(all(990)));
    let spread = extent(
        groups
            .iter()
            .flat_map(BTreeMap::keys)
            .map(|&group| middle(group)),
    );
    let mut plot = Plot::new(
        size,
        PlotAxis::fitting("flow size, bytes", spread),
        PlotAxis::fitting(
            "slowdown, p99 (solid) and p50 (dashed)",
            (low.min(1.0) * 0.95, high * 1.1),
        ),
    );
    let mut legend = Vec::new();
    for (run, groups) in runs.iter().zip(groups) {
        let colour = colour(&run.summary.transport);
        let curve = |per_mille: usize| -> Vec<(f64, f64)> {
            let points = groups.iter();
            points
                .map(|(&group, values)| (middle(group), percentile(values, per_mille)))
                .collect()
        };
        plot.curve(&curve(990), &stroke(colour));
        plot.curve(&curve(500), &dashed(colour));
        legend.push((run.summary.transport.clone(), stroke(colour)));
    }
    plot.legend(&legend);
    plot.drawing.element("slowdown by flow size")
}

fn slowdown_shares(runs: &[DrawnRun], size: (f64, f64)) -> String {
    let values = |run: &DrawnRun| sorted(run.flows().iter().filter_map(slowdown));
    let curves: Vec<Vec<f64>> = runs.iter().map(values).collect();
    let (_, high) = extent(curves.iter().flatten().copied());
    let mut plot = Plot::new(
        size,
        PlotAxis::fitting(
            "slowdown (all flows have about the same size)",
            (0.98, high * 1.02),
        ),
        PlotAxis::linear("share of flows that are slower", (0.0, 1.0)),
    );
    let mut legend = Vec::new();
    for (run, values) in runs.iter().zip(&curves) {
        let style = stroke(colour(&run.summary.transport));
        let slower = cumulative(values, values.len());
        let slower: Vec<_> = slower
            .into_iter()
            .map(|(x, share)| (x, 1.0 - share))
            .collect();
        plot.curve(&slower, &style);
        legend.push((run.summary.transport.clone(), style));
    }
    plot.legend(&legend);
    plot.drawing.element("shares of flows by slowdown")
}

/// Queues of the ports with the deepest ones over time; `highest` is the top of the axis in bytes.
pub fn queues(run: &DrawnRun, highest: u64, size: (f64, f64)) -> String {
    let (outcome, end) = (&run.outcome, run.end());
    let mut plot = Plot::new(
        size,
        PlotAxis::linear("simulated time, us", (0.0, micros(end))),
        PlotAxis::linear("queue, kB", (0.0, highest.max(1) as f64 / 1e3)),
    );
    let mut legend = Vec::new();
    let busiest = busiest(&outcome.links);
    let every = run.loaded.setup.sample_every.unwrap_or_default();
    let stretch = end.divided(POINTS_MAX as u64).max(every);
    for (&link, colour) in busiest.iter().zip(PORT_COLOURS).rev() {
        let width = r#"stroke-width="1.5" stroke-linejoin="round""#;
        let style = format!(r#"stroke="{colour}" {width}"#);
        plot.curve(&depth(&outcome.samples, link, stretch, end), &style);
        let ends = &outcome.links[link as usize];
        let fabric = &run.loaded.setup.fabric;
        let name = |device| fabric.device_name(device);
        legend.push((
            format!("{} to {}", name(ends.from), name(ends.to)),
            stroke(colour),
        ));
    }
    legend.reverse();
    plot.legend(&legend);
    plot.drawing
        .element("depth of the deepest queues over time")
}

/// The ports with the deepest queues, deepest first; those that are hardly to be seen beside the
/// deepest are left out.
fn busiest(links: &[LinkOutcome]) -> Vec<u32> {
    let peak = |&link: &u32| links[link as usize].peak_queue;
    let mut order: Vec<u32> = (0..links.len() as u32).collect();
    order.sort_by_key(|link| (std::cmp::Reverse(peak(link)), *link));
    order.truncate(PORTS);
    let deepest = order.first().map_or(0, peak);
    order.retain(|link| peak(link) > deepest / 20);
    order
}

/// Microseconds and kilobytes of one port: the deepest sample of each stretch of time, from the
/// start to `end`. A port without a sample had an empty queue.
fn depth(samples: &[QueueSample], link: u32, stretch: Span, end: Span) -> Vec<(f64, f64)> {
    let stretch = stretch.as_picos().max(1);
    let mut deepest = vec![0; (end.as_picos() / stretch) as usize + 1];
    for sample in samples.iter().filter(|sample| sample.link == link) {
        if let Some(slot) = deepest.get_mut((sample.at.as_picos() / stretch) as usize) {
            *slot = sample.bytes.max(*slot);
        }
    }
    let points = deepest.into_iter().zip(0..);
    points
        .map(|(bytes, slot): (u64, u64)| ((slot * stretch) as f64 / 1e6, bytes as f64 / 1e3))
        .collect()
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::units::Instant;

    use super::*;

    #[test]
    fn cumulative_curves_end_at_the_completed_share() {
        let points = cumulative(&[1.0, 2.0, 4.0], 4);
        assert_eq!(points[0], (1.0, 0.0));
        assert_eq!(points.last(), Some(&(4.0, 0.75)));
        let many: Vec<f64> = (0..10_000).map(f64::from).collect();
        let points = cumulative(&many, many.len());
        assert!(points.len() <= 2 * POINTS_MAX + 2);
        assert_eq!(points.last(), Some(&(9_999.0, 1.0)));
    }

    #[test]
    fn a_port_without_a_sample_had_an_empty_queue() {
        let sample = |nanos, link, bytes| QueueSample {
            at: Instant::START + Span::from_nanos(nanos),
            link,
            bytes,
        };
        let samples = [
            sample(0, 1, 5_000),
            sample(500, 2, 900),
            sample(900, 1, 700),
        ];
        let depth = depth(&samples, 1, Span::from_nanos(250), Span::from_micros(1));
        assert_eq!(
            depth,
            [(0.0, 5.0), (0.25, 0.0), (0.5, 0.0), (0.75, 0.7), (1.0, 0.0)]
        );
    }
}
