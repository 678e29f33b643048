//! Compares the search with the whole grid, on modelled surfaces.

mod step;

use gradwire_protocol::units::ByteCount;
use gradwire_tuning::surface::{Axes, SchedulePoint, ScheduleSearch, SizeAxis, TRIALS};
use step::{Layers, Wire};

/// Rates at which the wire is the bottleneck, is about as fast as computing, and is faster.
const RATES_GBPS: [u64; 3] = [10, 25, 100];

fn axes() -> Axes {
    Axes {
        chunk: SizeAxis {
            smallest: ByteCount::kib(128),
            steps: 8,
        },
        credit: SizeAxis {
            smallest: ByteCount::kib(256),
            steps: 8,
        },
    }
}

/// One surface: its name and the time at each point.
struct Surface {
    name: String,
    times: Vec<(SchedulePoint, f64)>,
}

impl Surface {
    fn time(&self, point: SchedulePoint) -> f64 {
        let of_point =
            |(candidate, time): &(SchedulePoint, f64)| (*candidate == point).then_some(*time);
        self.times
            .iter()
            .find_map(of_point)
            .expect("a point of the grid")
    }

    fn least(&self) -> f64 {
        self.times
            .iter()
            .map(|(_, time)| *time)
            .fold(f64::MAX, f64::min)
    }
}

fn surfaces() -> Vec<Surface> {
    let mut surfaces = Vec::new();
    for layers in [Layers::one_huge(), Layers::even(), Layers::large_first()] {
        for rate in RATES_GBPS {
            let wire = Wire::of_gbps(rate);
            let times = axes().points();
            let times = times.map(|point| (point, step::time(&layers, wire, point)));
            surfaces.push(Surface {
                name: format!("{} at {rate} Gb/s", layers.name),
                times: times.collect(),
            });
        }
    }
    surfaces
}

/// How much longer a step takes at the point that the search finds than at the best of the grid.
fn excess(surface: &Surface, seed: u64) -> f64 {
    let mut search = ScheduleSearch::new(axes(), TRIALS, seed);
    while let Some(point) = search.propose() {
        search.tell(point, surface.time(point));
    }
    assert!(search.told() <= TRIALS);
    let (point, value) = search.best().expect("the search told its points");
    assert_eq!(value.to_bits(), surface.time(point).to_bits());
    value / surface.least() - 1.0
}

#[expect(
    clippy::disallowed_methods,
    reason = "a slow test asks GRADWIRE_SLOW, see CONTRIBUTING.md"
)]
fn seeds() -> std::ops::Range<u64> {
    let slow = std::env::var_os("GRADWIRE_SLOW").is_some();
    if slow { 0..30 } else { 0..5 }
}

#[test]
fn fifteen_trials_come_within_five_percent_of_the_whole_grid() {
    for surface in surfaces() {
        let mut all: Vec<(f64, u64)> = seeds().map(|seed| (excess(&surface, seed), seed)).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (median, _) = all[all.len() / 2];
        let (worst, seed) = all[all.len() - 1];
        let name = &surface.name;
        println!(
            "{name}: median {:.2} %, worst {:.2} % (seed {seed}) of {} seeds",
            median * 100.0,
            worst * 100.0,
            all.len()
        );
        assert!(worst <= 0.05, "{name}: {worst}, seed {seed}");
    }
}

#[test]
fn the_surface_of_a_large_first_layer_is_a_valley() {
    let (layers, wire) = (Layers::large_first(), Wire::of_gbps(25));
    let times = axes().points();
    let times: Vec<f64> = times
        .map(|point| step::time(&layers, wire, point))
        .collect();
    let least = times.iter().copied().fold(f64::MAX, f64::min);
    let (smallest, largest) = (times[0], times[times.len() - 1]);
    assert!(smallest > 1.2 * least, "{smallest} beside {least}");
    assert!(largest > 1.05 * least, "{largest} beside {least}");
}
