//! The all-reduces of a run in buckets of another size: tensor fusion and partition.
//!
//! The gradients of a step form one stream in the order in which they are ready, cut at the layers
//! that each all-reduce names. A bucket is closed when it has reached its size, as PyTorch's DDP
//! closes them. The first of a step has no smaller cap: DDP has one for it only where its
//! `bucket_cap_mb` is not given. A bucket leaves when its last layer's backward pass has ended, and
//! has no layer that is ready only after a task that waits for the bucket. Smaller pieces than
//! layers are not known, so a layer is never cut.

use std::collections::{BTreeMap, BTreeSet};

use gradwire_protocol::units::{ByteCount, Layer};
use gradwire_workloads::workload::{CollectiveKind, Program, Task, Work, Workload};

/// A layer's gradients in one all-reduce.
#[derive(Clone, Copy, Debug)]
struct Piece {
    group: u32,
    step: u32,
    layer: Option<Layer>,
    bytes: u64,
    /// The backward task after which it is ready; `None` where none was recorded.
    ready: Option<u32>,
    /// The all-reduce that it was in.
    from: u32,
    /// The first task that waits for that all-reduce.
    awaited: u32,
}

/// A new bucket.
#[derive(Debug)]
struct Bucket {
    pieces: Vec<Piece>,
    ready: Option<u32>,
    awaited: u32,
    bytes: u64,
    name: String,
}

/// The workload with buckets that are closed at a size.
pub fn rebucketed(workload: &Workload, limit: u64) -> Workload {
    let mut changed = workload.clone();
    let names = workload
        .step_ends
        .first()
        .map_or(&[][..], |ends| &ends.layers);
    for program in &mut changed.programs {
        let places = rebuild(program, names, limit);
        let ends = changed
            .step_ends
            .iter_mut()
            .flat_map(|ends| &mut ends.workers);
        for worker in ends.filter(|worker| worker.host == program.host) {
            for end in &mut worker.forward_ends {
                *end = places[&(*end)];
            }
        }
    }
    changed
}

/// Replaces the all-reduces of a program; returns the new numbers of the tasks that stay.
fn rebuild(program: &mut Program, names: &[String], limit: u64) -> BTreeMap<u32, u32> {
    let buckets = buckets(&pieces(program, names), limit);
    let mut at: BTreeMap<Option<u32>, Vec<usize>> = BTreeMap::new();
    for (number, bucket) in buckets.iter().enumerate() {
        at.entry(bucket.ready).or_default().push(number);
    }
    let reduces = Reduces::new(program, &buckets);
    let mut places = BTreeMap::new();
    let mut bucket_places = vec![0; buckets.len()];
    let mut tasks = Vec::new();
    for &bucket in at.get(&None).into_iter().flatten() {
        bucket_places[bucket] = tasks.len() as u32;
        tasks.push(buckets[bucket].task(None));
    }
    for (number, task) in (0..).zip(&program.tasks) {
        if is_reduce(task) {
            continue;
        }
        let mut task = task.clone();
        let waits = reduces.awaited(program, &task, &buckets, names);
        for list in [&mut task.after, &mut task.after_start] {
            list.retain(|before| !is_reduce(&program.tasks[*before as usize]));
        }
        for before in task.after.iter_mut().chain(&mut task.after_start) {
            *before = places[before];
        }
        task.after
            .extend(waits.into_iter().map(|bucket| bucket_places[bucket]));
        places.insert(number, tasks.len() as u32);
        tasks.push(task);
        for &bucket in at.get(&Some(number)).into_iter().flatten() {
            bucket_places[bucket] = tasks.len() as u32;
            tasks.push(buckets[bucket].task(Some(places[&number])));
        }
    }
    program.tasks = tasks;
    places
}

fn is_reduce(task: &Task) -> bool {
    let kind = CollectiveKind::AllReduce;
    matches!(&task.work, Work::Collective { kind: of, .. } if *of == kind)
}

/// The layers of all all-reduces, in the order of a program.
fn pieces(program: &Program, names: &[String]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut before = 0;
    for (number, task) in (0..).zip(&program.tasks) {
        let Work::Collective {
            kind: CollectiveKind::AllReduce,
            group,
            bytes,
            layers,
        } = &task.work
        else {
            continue;
        };
        let ready = before_reduces(program, number);
        let awaited = first_awaiting(program, number);
        let ends = layers
            .iter()
            .skip(1)
            .map(|(at, _)| *at)
            .chain([bytes.get()]);
        let spans = layers
            .iter()
            .zip(ends)
            .map(|(&(at, layer), end)| (Some(layer), end - at));
        let mut spans: Vec<(Option<Layer>, u64)> = spans.collect();
        if spans.is_empty() {
            spans.push((None, bytes.get()));
        }
        for (layer, bytes) in spans {
            let name = layer.and_then(|layer| names.get(usize::from(layer.0)));
            let made = name
                .zip(ready)
                .and_then(|(name, ready)| made_by(program, (before, ready), name));
            let (group, step, from) = (*group, task.step, number);
            let ready = made.or(ready);
            pieces.push(Piece {
                group,
                step,
                layer,
                bytes,
                ready,
                from,
                awaited,
            });
        }
        before = ready.unwrap_or_default();
    }
    pieces
}

/// The last task before an all-reduce that is none itself.
fn before_reduces(program: &Program, reduce: u32) -> Option<u32> {
    let before = |task: &u32| program.tasks[*task as usize].after.last().copied();
    let mut causes = std::iter::successors(before(&reduce), before);
    causes.find(|&task| !is_reduce(&program.tasks[task as usize]))
}

/// The first task that waits for an all-reduce; the end of the program if none does.
fn first_awaiting(program: &Program, reduce: u32) -> u32 {
    let mut tasks = (0..).zip(&program.tasks).skip(reduce as usize);
    let found = tasks.find(|(_, task)| !is_reduce(task) && task.after.contains(&reduce));
    found.map_or(u32::MAX, |(number, _)| number)
}

/// The last backward task of a layer among some.
fn made_by(program: &Program, (first, last): (u32, u32), layer: &str) -> Option<u32> {
    let of_layer = |name: &str| {
        let rest = name
            .strip_prefix("backward ")
            .and_then(|name| name.strip_prefix(layer));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    (first..=last).rev().find(|&number| {
        let task = &program.tasks[number as usize];
        of_layer(&task.name) && !is_reduce(task)
    })
}

fn buckets(pieces: &[Piece], limit: u64) -> Vec<Bucket> {
    let mut buckets: Vec<Bucket> = Vec::new();
    let mut number = 0;
    for piece in pieces {
        let open = buckets.last_mut().filter(|bucket| {
            let first = bucket.pieces[0];
            (first.group, first.step) == (piece.group, piece.step)
        });
        let comes_before = |awaited: u32| piece.ready.is_none_or(|ready| ready < awaited);
        match open {
            Some(open) if open.bytes < limit && comes_before(open.awaited) => {
                open.bytes += piece.bytes;
                open.ready = open.ready.max(piece.ready);
                open.awaited = open.awaited.min(piece.awaited);
                open.pieces.push(*piece);
            }
            open => {
                number = open.map_or(0, |_| number + 1);
                buckets.push(Bucket {
                    pieces: vec![*piece],
                    ready: piece.ready,
                    awaited: piece.awaited,
                    bytes: piece.bytes,
                    name: format!("all-reduce bucket {number}"),
                });
            }
        }
    }
    buckets
}

/// The all-reduces of a program, to find the new buckets of tasks that wait for them.
struct Reduces {
    /// How many each step has.
    of_step: BTreeMap<u32, usize>,
    /// The new buckets that have bytes of each.
    buckets: BTreeMap<u32, Vec<usize>>,
}

impl Reduces {
    fn new(program: &Program, buckets: &[Bucket]) -> Self {
        let mut reduces = Self {
            of_step: BTreeMap::new(),
            buckets: BTreeMap::new(),
        };
        for reduce in program.tasks.iter().filter(|task| is_reduce(task)) {
            *reduces.of_step.entry(reduce.step).or_default() += 1;
        }
        for (number, bucket) in buckets.iter().enumerate() {
            for piece in &bucket.pieces {
                let known = reduces.buckets.entry(piece.from).or_default();
                if known.last() != Some(&number) {
                    known.push(number);
                }
            }
        }
        reduces
    }

    /// The new buckets that a task waits for: those that have bytes of its all-reduces, and of its
    /// own layer only where it did not wait for all of them.
    fn awaited(
        &self,
        program: &Program,
        task: &Task,
        buckets: &[Bucket],
        names: &[String],
    ) -> Vec<usize> {
        let awaited: Vec<u32> = (task.after.iter().copied())
            .filter(|&before| is_reduce(&program.tasks[before as usize]))
            .collect();
        if awaited.is_empty() {
            return Vec::new();
        }
        let layer = task.name.strip_prefix("forward ");
        let layer = layer.and_then(|layer| names.iter().position(|name| name == layer));
        let steps = awaited.iter().map(|&one| program.tasks[one as usize].step);
        let steps: BTreeSet<u32> = steps.collect();
        let all: usize = steps.iter().map(|step| self.of_step[step]).sum();
        let layer = layer.filter(|_| awaited.len() < all || all == 1);
        let has = |bucket: &Bucket| {
            let pieces = bucket.pieces.iter();
            let mut pieces = pieces.filter(|piece| awaited.contains(&piece.from));
            pieces.any(|piece| {
                let own = piece.layer.map(|layer| usize::from(layer.0));
                layer.is_none() || own.is_none() || own == layer
            })
        };
        let known = awaited.iter().filter_map(|one| self.buckets.get(one));
        let known: BTreeSet<usize> = known.flatten().copied().collect();
        known
            .into_iter()
            .filter(|&number| has(&buckets[number]))
            .collect()
    }
}

impl Bucket {
    fn task(&self, ready: Option<u32>) -> Task {
        let first = self.pieces[0];
        let mut layers: Vec<(u64, Layer)> = Vec::new();
        let mut at = 0;
        for piece in &self.pieces {
            if let Some(layer) = piece.layer
                && layers.last().is_none_or(|(_, last)| *last != layer)
            {
                layers.push((at, layer));
            }
            at += piece.bytes;
        }
        let work = Work::Collective {
            kind: CollectiveKind::AllReduce,
            group: first.group,
            bytes: ByteCount::new(self.bytes),
            layers,
        };
        Task {
            step: first.step,
            ..Task::new(self.name.clone(), work, ready.into_iter().collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::units::Rate;
    use gradwire_workloads::workload::Hosts;

    use super::*;

    fn workload() -> Workload {
        let rate = Rate::from_gbps(10);
        Workload::from_pattern(
            "step:vgg16:ddp,steps=2,bucket=15MiB",
            Hosts { count: 2, rate },
            1,
        )
        .expect("it is a pattern")
    }

    fn sizes(workload: &Workload) -> Vec<u64> {
        let tasks = workload.programs[0]
            .tasks
            .iter()
            .filter(|task| task.step == 0);
        let bytes = tasks.filter_map(|task| match &task.work {
            Work::Collective { bytes, .. } => Some(bytes.get()),
            _ => None,
        });
        bytes.collect()
    }

    #[test]
    fn the_same_size_gives_the_same_buckets() {
        let before = workload();
        let same = rebucketed(&before, 15 << 20);
        assert_eq!(sizes(&same), sizes(&before));
        let waits = |of: &Workload| {
            of.programs[1]
                .tasks
                .iter()
                .map(|task| task.after.len())
                .sum::<usize>()
        };
        assert_eq!(waits(&same), waits(&before));
    }

    #[test]
    fn fusion_and_partition_keep_every_byte() {
        let before = workload();
        let bytes: u64 = sizes(&before).iter().sum();
        for (limit, count) in [(u64::MAX, 1), (1, 16)] {
            let changed = rebucketed(&before, limit);
            assert_eq!(sizes(&changed).iter().sum::<u64>(), bytes);
            assert_eq!(sizes(&changed).len(), count, "one for each layer at most");
        }
    }

    /// Two passes, the first of which waits for an all-reduce that a recording begins with.
    fn begins_with_a_reduce() -> Workload {
        let mut changed = workload();
        for program in &mut changed.programs {
            let reduce = program.tasks.iter().find(|task| is_reduce(task)).cloned();
            let reduce = reduce.expect("a step has all-reduces");
            let first = Task {
                after: Vec::new(),
                step: 0,
                ..reduce
            };
            for task in &mut program.tasks {
                for before in task.after.iter_mut().chain(&mut task.after_start) {
                    *before += 1;
                }
            }
            program.tasks[0].after.push(0);
            program.tasks[0].after_start.push(0);
            program.tasks.insert(0, first);
        }
        let ends = changed.step_ends.iter_mut();
        for end in ends.flat_map(|ends| &mut ends.workers) {
            end.forward_ends.iter_mut().for_each(|end| *end += 1);
        }
        changed
    }

    #[test]
    fn a_recording_may_begin_with_an_all_reduce() {
        let before = begins_with_a_reduce();
        assert_eq!(before.check(2), Ok(()));
        let bytes: u64 = sizes(&before).iter().sum();
        for limit in [1, 15 << 20, u64::MAX] {
            let changed = rebucketed(&before, limit);
            assert_eq!(changed.check(2), Ok(()), "limit {limit}");
            assert_eq!(sizes(&changed).iter().sum::<u64>(), bytes, "limit {limit}");
        }
    }
}
