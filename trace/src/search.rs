//! Looks for keys of the job and a bucket size that make a step shorter, in the manner of dPRO (Hu
//! et al., MLSys 2022, section 5): replay, walk over the critical path, change what is on it,
//! repeat.
//!
//! 1. If the path holds only computing, nothing about communication can help, and the search ends.
//! 2. For each order of the scheduler the other dimensions are tried in turn, at neighbouring
//!    values first: bucket (tensor fusion and partition), credit (the scheduler), chunk (partition
//!    of messages). The best change is kept, until a round changes nothing, or after 5 rounds.
//! 3. If one rank does not take as long as all with these changes (below), the walk is done again
//!    with all.
//! 4. Changes that gain nothing beside the others are taken back, and so is a credit that gains
//!    little. The rest is found if together it gains more than replays may be off by. Of the two
//!    orders the better one is found.
//!
//! A trial is a partial replay ([`Depth::Partial`]): one iteration instead of all, which is the
//! steady state, and of ranks that do the same only one ([`crate::folded`]). One rank has no
//! messages of others that wait for it. So in an all-reduce it does not show the gain of smaller
//! messages, and those are tried with all ranks; and full replays decide about the order.

use gradwire_netsim::fluid::{FluidError, FluidExtent};
use gradwire_protocol::priority::SendOrder;
use gradwire_protocol::units::ByteCount;
use gradwire_workloads::workload::{CollectiveKind, Work};

use crate::critical::{CriticalPath, PathResource};
use crate::folded;
use crate::replay::{Scene, replay};
use crate::whatif::{WhatIf, changed};

/// A change that gains less than this share of an iteration gains nothing.
const GAIN_MIN: f64 = 0.001;
/// The same of a credit, which replays overrate: with servers at 10 Gb/s by up to 11 points. They
/// know neither the windows nor the grants by which packets of front layers overtake without one.
const GAIN_CREDIT: f64 = 0.12;
/// So much at least all changes gain together, or none is recommended: most replays are within 5 %
/// of packet-level runs, and of 14 smaller gains such runs confirmed 4 (`benches/README.md`).
const GAIN_WORTH: f64 = 0.05;
const ROUNDS_MAX: usize = 5;
/// If computing fills more of the path than this, communication is hidden.
const COMPUTE_BOUND: f64 = 0.995;

/// How a trial is replayed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Depth {
    /// All iterations of all ranks.
    Full,
    /// One iteration, of ranks that do the same only one where that shows the gain.
    Partial,
}

/// A search that has ended.
#[derive(Clone, Debug)]
pub struct Found {
    /// The iteration before, by full replay, in microseconds.
    pub before_us: f64,
    /// The iteration with the changes, by full replay, in microseconds.
    pub after_us: f64,
    /// The changes, one for each dimension that helped; none if they gain less than 5 %.
    pub changes: Vec<WhatIf>,
    /// How many trials there were.
    pub trials: usize,
}

/// Searches; `watch` is told the number of trials and the shortest iteration so far.
///
/// # Errors
/// [`FluidError`] when the run is too large.
pub fn search(
    scene: &Scene,
    depth: Depth,
    watch: &mut dyn FnMut(usize, f64),
) -> Result<Found, FluidError> {
    let first = replay(scene)?;
    let before_us = first.iteration_us();
    let mut found = Found {
        before_us,
        after_us: before_us,
        changes: Vec::new(),
        trials: 0,
    };
    let path = CriticalPath::of(&scene.workload, &first);
    let length: f64 = path.shares().iter().map(|(_, time)| time).sum();
    if path.on(PathResource::Compute) >= COMPUTE_BOUND * length {
        return Ok(found);
    }
    let folded = (depth == Depth::Partial).then(|| folded::fold(scene));
    for order in [SendOrder::Layers, SendOrder::Arrival] {
        let mut walk = SearchWalk {
            whole: scene,
            folded: folded.as_ref(),
            changes: new_order(scene, order),
            best: before_us,
            trials: found.trials,
        };
        walk.walk(watch)?;
        if walk.is_misled()? {
            (walk.folded, walk.changes) = (None, new_order(scene, order));
            walk.walk(watch)?;
        }
        found.trials = walk.trials;
        let (changes, after_us) = confirmed(scene, walk.changes, before_us)?;
        if after_us < found.after_us {
            (found.changes, found.after_us) = (changes, after_us);
        }
    }
    Ok(found)
}

/// The change to an order; none if the scene has it.
fn new_order(scene: &Scene, order: SendOrder) -> Vec<WhatIf> {
    let is_new = order != scene.job.collectives.order;
    is_new.then_some(WhatIf::Order(order)).into_iter().collect()
}

/// The changes that full replays confirm, and the iteration with them: a partial replay may
/// mislead, and a change that gained something may gain nothing beside later ones.
fn confirmed(
    scene: &Scene,
    mut changes: Vec<WhatIf>,
    before_us: f64,
) -> Result<(Vec<WhatIf>, f64), FluidError> {
    let iteration = |changes: &[WhatIf]| match changed(scene, changes) {
        Ok(after) if !changes.is_empty() => Ok(replay(&after)?.iteration_us()),
        _ => Ok(before_us),
    };
    let mut after_us = iteration(&changes)?;
    for at in (0..changes.len()).rev() {
        let mut fewer = changes.clone();
        fewer.remove(at);
        let without = iteration(&fewer)?;
        let least = match changes[at] {
            WhatIf::Credit(_) => GAIN_CREDIT,
            _ => GAIN_MIN,
        };
        if after_us > without * (1.0 - least) {
            (changes, after_us) = (fewer, without);
        }
    }
    Ok(match after_us > before_us * (1.0 - GAIN_WORTH) {
        true => (Vec::new(), before_us),
        false => (changes, after_us),
    })
}

struct SearchWalk<'a> {
    whole: &'a Scene,
    /// The scene of partial replays.
    folded: Option<&'a Scene>,
    changes: Vec<WhatIf>,
    /// The shortest iteration so far, as the last replayed scene has it.
    best: f64,
    trials: usize,
}

impl SearchWalk<'_> {
    /// Tries each dimension in turn, until none changes anything.
    fn walk(&mut self, watch: &mut dyn FnMut(usize, f64)) -> Result<(), FluidError> {
        for _ in 0..ROUNDS_MAX {
            let before = self.changes.clone();
            for dimension in dimensions(self.whole) {
                let shows = |folded: &&Scene| !needs_all_ranks(folded, &dimension[0]);
                let scene = self.folded.filter(shows).unwrap_or(self.whole);
                self.along(scene, &dimension, watch)?;
            }
            if self.changes == before {
                break;
            }
        }
        Ok(())
    }

    /// Whether one rank with these changes does not take as long as all.
    fn is_misled(&self) -> Result<bool, FluidError> {
        let Some(folded) = self.folded else {
            return Ok(false);
        };
        let [one, all] = [folded, self.whole].map(|scene| trial(scene, &self.changes));
        Ok(one?
            .zip(all?)
            .is_some_and(|(one, all)| (one / all - 1.0).abs() > GAIN_WORTH))
    }

    /// Tries the values of a dimension by replays of a scene and keeps the best one, if it is
    /// better.
    fn along(
        &mut self,
        scene: &Scene,
        values: &[WhatIf],
        watch: &mut dyn FnMut(usize, f64),
    ) -> Result<(), FluidError> {
        let kind = std::mem::discriminant(&values[0]);
        let others = self
            .changes
            .iter()
            .filter(|one| std::mem::discriminant(*one) != kind);
        let others: Vec<WhatIf> = others.cloned().collect();
        // The time of one rank is not compared with that of all.
        if let Some(now) = trial(scene, &self.changes)? {
            self.best = now;
        }
        let tried = self.changes.clone();
        for value in values.iter().filter(|value| !tried.contains(value)) {
            let mut changes = others.clone();
            changes.push(value.clone());
            let Some(iteration) = trial(scene, &changes)? else {
                continue;
            };
            self.trials += 1;
            if iteration < self.best * (1.0 - GAIN_MIN) {
                self.best = iteration;
                self.changes = changes;
            }
            watch(self.trials, self.best);
        }
        Ok(())
    }
}

/// The iteration of a scene with some changes; `None` where ranks that have not recorded the same
/// layers cannot be given other buckets.
fn trial(scene: &Scene, changes: &[WhatIf]) -> Result<Option<f64>, FluidError> {
    let changed = changed(scene, changes).ok();
    let iteration = |scene: Scene| Ok(replay(&scene)?.iteration_us());
    changed.map(iteration).transpose()
}

/// Whether a folded scene does not show the gain of a change.
fn needs_all_ranks(folded: &Scene, change: &WhatIf) -> bool {
    folded.extent == FluidExtent::First && matches!(change, WhatIf::Chunk(_))
}

/// The values of each dimension that a scene has.
fn dimensions(scene: &Scene) -> Vec<Vec<WhatIf>> {
    let sizes = |from: u32, to: u32| (from..=to).map(|power| ByteCount::new(1 << power));
    let mut tasks = scene
        .workload
        .programs
        .iter()
        .flat_map(|program| &program.tasks);
    let reduces = tasks.any(|task| {
        let kind = CollectiveKind::AllReduce;
        matches!(&task.work, Work::Collective { kind: of, .. } if *of == kind)
    });
    let mut dimensions = vec![
        sizes(20, 26).map(WhatIf::Credit).collect(),
        sizes(18, 24).map(WhatIf::Chunk).collect(),
    ];
    if reduces {
        dimensions.insert(0, sizes(20, 28).map(WhatIf::Bucket).collect());
    }
    dimensions
}

/// The keys of `job.toml` that changes set, and the `bucket_cap_mb` of DDP.
pub fn keys(changes: &[WhatIf]) -> (Vec<(&'static str, String)>, Option<f64>) {
    let mut keys = Vec::new();
    let mut bucket = None;
    for change in changes {
        match change {
            WhatIf::Credit(credit) => keys.push(("collectives.credit", credit.to_string())),
            WhatIf::Chunk(chunk) => keys.push(("collectives.chunk", chunk.to_string())),
            WhatIf::Order(SendOrder::Layers) => {
                keys.push(("collectives.order", "layers".to_owned()));
            }
            WhatIf::Order(SendOrder::Arrival) => {
                keys.push(("collectives.order", "arrival".to_owned()));
            }
            WhatIf::Bucket(bytes) => bucket = Some(bytes.get() as f64 / f64::from(1 << 20)),
            _ => {}
        }
    }
    (keys, bucket)
}
