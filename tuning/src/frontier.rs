//! The Pareto frontier of time and memory over the ways to run each layer of a model: FT, the
//! search of TensorOpt (Cai et al., TPDS 2022, arXiv 2004.10856), on a chain of layers.
//!
//! - A layer has ways to run, with time and memory, and with the layout of activations that each
//!   takes and gives. Another layout between two layers costs time.
//! - For each prefix of the chain and each layout behind it there is a frontier: points that no
//!   other beats. **Product**: each of them with each way of the next layer. **Union**: all that
//!   leave the same layout. **Reduce**: sorted by memory, a point stays if it is faster than all
//!   before it.
//! - Times and memory add up over layers. Of the memory that a layer needs only while it runs (its
//!   peak), the largest counts. So each peak is the limit in turn: ways above it are left out, and
//!   the frontiers of all limits are reduced together.
//!
//! The result is exact for a grain of zero; a property compares it with all combinations.

use std::collections::{BTreeMap, BTreeSet};

use gradwire_protocol::units::Span;

/// A way to run a layer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LayerWay {
    /// The layout of activations that it takes, as an index; `None` takes any.
    pub takes: Option<usize>,
    /// The layout that it gives.
    pub gives: usize,
    /// Its time in a step, forward and backward.
    pub time: Span,
    /// Bytes on a device that it adds during the whole step.
    pub memory: u64,
    /// Bytes on a device that it needs only while it runs.
    pub peak: u64,
}

/// A layer of a chain.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ChainLayer {
    /// The ways to run it; at least one.
    pub ways: Vec<LayerWay>,
    /// The time of a change of layout before it: `changes[from][to]`.
    pub changes: Vec<Vec<Span>>,
}

/// A point of the frontier.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FrontierPoint {
    /// Time of a step.
    pub time: Span,
    /// Bytes on a device.
    pub memory: u64,
    /// The way of each layer, as an index.
    pub ways: Vec<usize>,
}

/// Returns the frontier of a chain by ascending memory and falling time. The first layer takes
/// layout 0. Of points whose memory lies in the same `grain` bytes only the smallest and the
/// fastest are kept, which bounds the number of points. Both ends of the frontier stay exact.
pub fn frontier(chain: &[ChainLayer], grain: u64) -> Vec<FrontierPoint> {
    let ways = chain.iter().flat_map(|layer| &layer.ways);
    let peaks: BTreeSet<u64> = ways.map(|way| way.peak).collect();
    let limits = peaks.into_iter().chain(chain.is_empty().then_some(0));
    let mut points = limits
        .flat_map(|limit| under(chain, limit, grain))
        .collect();
    reduce(&mut points, 0);
    points
}

/// Returns the fastest point of a frontier within this many bytes.
pub fn fastest_within(frontier: &[FrontierPoint], memory: u64) -> Option<&FrontierPoint> {
    frontier.iter().rev().find(|point| point.memory <= memory)
}

/// Anything that a frontier is made of.
trait Costed {
    fn time(&self) -> Span;
    fn memory(&self) -> u64;
}

impl Costed for FrontierPoint {
    fn time(&self) -> Span {
        self.time
    }

    fn memory(&self) -> u64 {
        self.memory
    }
}

/// A point of a prefix of the chain.
#[derive(Clone, Copy)]
struct PrefixPoint {
    time: Span,
    memory: u64,
    /// The place of the point before it in the trail, and the way of the last layer.
    last: Option<(usize, usize)>,
    /// Its own place in the trail.
    place: usize,
}

impl Costed for PrefixPoint {
    fn time(&self) -> Span {
        self.time
    }

    fn memory(&self) -> u64 {
        self.memory
    }
}

/// The frontier of the ways whose peak is within a limit; of their peaks the largest is added.
fn under(chain: &[ChainLayer], limit: u64, grain: u64) -> Vec<FrontierPoint> {
    let start = PrefixPoint {
        time: Span::ZERO,
        memory: 0,
        last: None,
        place: 0,
    };
    let mut trail: Vec<Option<(usize, usize)>> = vec![None];
    let mut fronts = BTreeMap::from([(0, vec![start])]);
    for layer in chain {
        let mut next: BTreeMap<usize, Vec<PrefixPoint>> = BTreeMap::new();
        for (&layout, points) in &fronts {
            let ways = layer.ways.iter().enumerate();
            for (number, way) in ways.filter(|(_, way)| way.peak <= limit) {
                let change = way.takes.map(|takes| layer.changes[layout][takes]);
                let time = way.time + change.unwrap_or(Span::ZERO);
                let product = points.iter().map(|point| PrefixPoint {
                    time: point.time + time,
                    memory: point.memory + way.memory,
                    last: Some((point.place, number)),
                    place: 0,
                });
                next.entry(way.gives).or_default().extend(product);
            }
        }
        for points in next.values_mut() {
            reduce(points, grain);
            for point in points {
                point.place = trail.len();
                trail.push(point.last);
            }
        }
        fronts = next;
    }
    let points = fronts.into_values().flatten();
    points.map(|point| unrolled(chain, &trail, point)).collect()
}

/// The whole point: its ways, and the largest of their peaks in its memory.
fn unrolled(
    chain: &[ChainLayer],
    trail: &[Option<(usize, usize)>],
    point: PrefixPoint,
) -> FrontierPoint {
    let steps = std::iter::successors(point.last, |&(before, _)| trail[before]);
    let mut ways: Vec<usize> = steps.map(|(_, way)| way).collect();
    ways.reverse();
    let peaks = chain
        .iter()
        .zip(&ways)
        .map(|(layer, &way)| layer.ways[way].peak);
    FrontierPoint {
        time: point.time,
        memory: point.memory + peaks.max().unwrap_or(0),
        ways,
    }
}

/// Sorts points by memory and drops those that another one beats, or equals and stands before.
fn reduce<P: Costed>(points: &mut Vec<P>, grain: u64) {
    points.sort_by_key(|point| (point.memory(), point.time()));
    let mut kept: Vec<P> = Vec::new();
    for point in points.drain(..) {
        let last = kept.last();
        if last.is_some_and(|last| last.time() <= point.time()) {
            continue;
        }
        let cell = |other: &P| other.memory().checked_div(grain);
        let same = kept.len().checked_sub(2).is_some_and(|first| {
            cell(&kept[first]).is_some() && cell(&kept[first]) == cell(&point)
        });
        if same {
            kept.pop();
        }
        kept.push(point);
    }
    *points = kept;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All combinations of ways, each costed by itself, without those that another one beats.
    fn brute_force(chain: &[ChainLayer]) -> Vec<(Span, u64)> {
        let mut all = vec![(Span::ZERO, 0_u64, 0_u64, 0_usize)];
        for layer in chain {
            let with = |&(time, memory, peak, layout): &(Span, u64, u64, usize)| {
                let ways = layer.ways.iter();
                let with = ways.map(move |way| {
                    let change = way.takes.map(|takes| layer.changes[layout][takes]);
                    let time = time + way.time + change.unwrap_or(Span::ZERO);
                    (time, memory + way.memory, peak.max(way.peak), way.gives)
                });
                with.collect::<Vec<_>>()
            };
            all = all.iter().flat_map(with).collect();
        }
        let mut best: BTreeMap<u64, Span> = BTreeMap::new();
        for (time, memory, peak, _) in all {
            let least = best.entry(memory + peak).or_insert(time);
            *least = time.min(*least);
        }
        let beaten =
            |memory: u64, time: Span| best.range(..memory).any(|(_, &other)| other <= time);
        let points = best
            .iter()
            .filter(|&(&memory, &time)| !beaten(memory, time));
        points.map(|(&memory, &time)| (time, memory)).collect()
    }

    fn layers() -> impl Strategy<Value = Vec<ChainLayer>> {
        let way = (0..3_usize, 0..2_usize, 0..40_u64, 0..40_u64, 0..30_u64);
        let way = way.prop_map(|(takes, gives, time, memory, peak)| LayerWay {
            takes: (takes < 2).then_some(takes),
            gives,
            time: Span::from_nanos(time),
            memory,
            peak: peak / 10 * 10,
        });
        let changes = (0..9_u64, 0..9_u64).prop_map(|(there, back)| {
            let [there, back] = [there, back].map(Span::from_nanos);
            vec![vec![Span::ZERO, there], vec![back, Span::ZERO]]
        });
        let layer = (prop::collection::vec(way, 1..=4), changes);
        let layer = layer.prop_map(|(ways, changes)| ChainLayer { ways, changes });
        prop::collection::vec(layer, 1..=8)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        #[test]
        fn the_frontier_is_that_of_all_combinations(chain in layers()) {
            let found = frontier(&chain, 0);
            let costs: Vec<(Span, u64)> =
                found.iter().map(|point| (point.time, point.memory)).collect();
            prop_assert_eq!(costs, brute_force(&chain));
        }

        #[test]
        fn more_memory_is_never_slower(chain in layers(), grain in 0..20_u64) {
            let found = frontier(&chain, grain);
            let falls = |pair: &[FrontierPoint]| {
                pair[0].memory < pair[1].memory && pair[0].time > pair[1].time
            };
            prop_assert!(found.windows(2).all(falls), "{found:?}");
            let picked = (0..400).map(|memory| fastest_within(&found, memory));
            let times: Vec<Span> = picked.flatten().map(|point| point.time).collect();
            prop_assert!(times.windows(2).all(|pair| pair[0] >= pair[1]), "{times:?}");
        }

        #[test]
        fn a_coarse_frontier_is_at_most_a_grain_a_layer_away(
            chain in layers(),
            grain in 1..20_u64,
        ) {
            let coarse = frontier(&chain, grain);
            let exact = frontier(&chain, 0);
            let end = |points: &[FrontierPoint]| points.last().map(|point| point.time);
            prop_assert_eq!(end(&coarse), end(&exact));
            let room = grain * chain.len() as u64;
            for point in exact {
                let near = fastest_within(&coarse, point.memory + room);
                let near = near.map(|near| near.time);
                prop_assert!(near.is_some_and(|time| time <= point.time), "{point:?}");
            }
        }
    }

    #[test]
    fn nothing_fits_below_the_first_point() {
        let way = LayerWay {
            takes: None,
            gives: 0,
            time: Span::from_nanos(1),
            memory: 7,
            peak: 3,
        };
        let layer = ChainLayer {
            ways: vec![way],
            changes: Vec::new(),
        };
        let found = frontier(&[layer.clone(), layer], 0);
        assert_eq!(fastest_within(&found, 16), None);
        assert_eq!(
            fastest_within(&found, 17).map(|point| point.ways.len()),
            Some(2)
        );
    }
}
