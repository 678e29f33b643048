//! Looks for keys of the job and a bucket size that make a step shorter, in the manner of dPRO (Hu
//! et al., MLSys 2022, section 5): replay, walk over the critical path, change what is on it,
//! repeat.
//!
//! 1. If the path holds only computing, nothing about communication can help, and the search ends.
//! 2. Else each dimension is tried in turn, at neighbouring values first: bucket (tensor fusion and
//!    partition), credit and order (the scheduler), chunk (partition of messages).
//! 3. The best change is kept. The search ends when a round gains less than 0.1 %, or after 5
//!    rounds.
//!
//! A trial is a partial replay ([`Depth::Partial`]): one iteration instead of all, which is the
//! steady state, and of ranks that do the same only one ([`crate::folded`]).

use gradwire_netsim::fluid::FluidError;
use gradwire_protocol::priority::SendOrder;
use gradwire_protocol::units::ByteCount;
use gradwire_workloads::workload::{CollectiveKind, Work};

use crate::critical::{CriticalPath, PathResource};
use crate::folded;
use crate::replay::{Scene, replay};
use crate::whatif::{WhatIf, changed};

/// A round that gains less than this ends the search.
const GAIN_MIN: f64 = 0.001;
const ROUNDS_MAX: usize = 5;
/// If computing fills more of the path than this, communication is hidden.
const COMPUTE_BOUND: f64 = 0.995;

/// How a trial is replayed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Depth {
    /// All iterations of all ranks.
    Full,
    /// One iteration, of ranks that do the same only one.
    Partial,
}

/// A search that has ended.
#[derive(Clone, Debug)]
pub struct Found {
    /// The iteration before, by full replay, in microseconds.
    pub before_us: f64,
    /// The iteration with the changes, by full replay, in microseconds.
    pub after_us: f64,
    /// The changes, one for each dimension that helped.
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
    let path = CriticalPath::of(&scene.workload, &first);
    let trial_scene = match depth {
        Depth::Full => scene.clone(),
        Depth::Partial => folded::fold(scene),
    };
    let mut walk = SearchWalk {
        best: replay(&trial_scene)?.iteration_us(),
        scene: trial_scene,
        changes: Vec::new(),
        trials: 0,
    };
    let length: f64 = path.shares().iter().map(|(_, time)| time).sum();
    if path.on(PathResource::Compute) < COMPUTE_BOUND * length {
        for _ in 0..ROUNDS_MAX {
            let before = walk.best;
            for dimension in dimensions(scene) {
                walk.along(&dimension, watch)?;
            }
            if walk.best > before * (1.0 - GAIN_MIN) {
                break;
            }
        }
    }
    let changes = walk.changes;
    let after_us = match changed(scene, &changes) {
        Ok(after) if !changes.is_empty() => replay(&after)?.iteration_us(),
        _ => before_us,
    };
    // A partial replay may mislead; what a full one does not confirm is not recommended.
    let (changes, after_us) = match after_us < before_us * (1.0 - GAIN_MIN) {
        true => (changes, after_us),
        false => (Vec::new(), before_us),
    };
    Ok(Found {
        before_us,
        after_us,
        changes,
        trials: walk.trials,
    })
}

struct SearchWalk {
    scene: Scene,
    changes: Vec<WhatIf>,
    best: f64,
    trials: usize,
}

impl SearchWalk {
    /// Tries the values of a dimension and keeps the best one, if it is better.
    fn along(
        &mut self,
        values: &[WhatIf],
        watch: &mut dyn FnMut(usize, f64),
    ) -> Result<(), FluidError> {
        let kind = std::mem::discriminant(&values[0]);
        let others = self
            .changes
            .iter()
            .filter(|one| std::mem::discriminant(*one) != kind);
        let others: Vec<WhatIf> = others.cloned().collect();
        for value in values {
            let mut changes = others.clone();
            changes.push(value.clone());
            // Ranks that have not recorded the same layers cannot be given other buckets.
            let Ok(scene) = changed(&self.scene, &changes) else {
                continue;
            };
            let iteration = replay(&scene)?.iteration_us();
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
        [SendOrder::Layers, SendOrder::Arrival]
            .map(WhatIf::Order)
            .to_vec(),
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
