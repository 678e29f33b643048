//! A smaller scene that takes as long: one iteration instead of all, and of workers that do the
//! same only one.
//!
//! Workers of parameter servers that run equal programs on equal links send and receive the same at
//! the same time, so each gets an equal part of a server's link. One of them stands for all, with
//! that part as the server's link. Ranks of an all-reduce stay: each is the neighbour of another.

use gradwire_netsim::fluid::FluidLink;
use gradwire_protocol::units::Rate;
use gradwire_workloads::training::StepEnds;
use gradwire_workloads::workload::{Program, Task, Work};

use crate::replay::Scene;

/// Forward passes that a folded scene keeps: the ends of one warm and one measured iteration.
const PASSES: u32 = 3;

/// The folded scene.
pub fn fold(scene: &Scene) -> Scene {
    let mut folded = scene.clone();
    cut(&mut folded);
    // Ranks whose steps do not fit each other are cut apart.
    if folded
        .workload
        .check(folded.network.links.len() as u32)
        .is_err()
    {
        return scene.clone();
    }
    match alike(&folded) {
        Some(workers) => keep_one(&mut folded, &workers),
        None => folded,
    }
}

/// Cuts all programs behind the first passes.
fn cut(scene: &mut Scene) {
    let ends = scene.workload.step_ends.iter_mut();
    let passes: usize = PASSES as usize;
    let mut last = 0;
    for StepEnds { workers, steps, .. } in ends {
        *steps = (*steps).min(PASSES - 1);
        for worker in workers {
            worker.forward_ends.truncate(passes);
            let program = scene
                .workload
                .programs
                .iter()
                .find(|one| one.host == worker.host);
            let end = worker.forward_ends.last().copied().unwrap_or_default();
            let step = program.map_or(0, |program| program.tasks[end as usize].step);
            last = last.max(step);
        }
    }
    for program in &mut scene.workload.programs {
        // Tasks are in the order of steps; a task of the last step counts only if it is computing.
        let behind = |task: &Task| {
            let communicates = !matches!(task.work, Work::Compute { .. });
            task.step > last || (task.step == last && communicates)
        };
        let end = program.tasks.iter().position(behind);
        program.tasks.truncate(end.unwrap_or(program.tasks.len()));
    }
}

/// The workers of servers, if all are alike.
fn alike(scene: &Scene) -> Option<Vec<u32>> {
    let ends = scene.workload.step_ends.first()?;
    let workers: Vec<u32> = ends.workers.iter().map(|worker| worker.host).collect();
    let servers = (scene.workload.programs.iter()).filter(|one| !workers.contains(&one.host));
    let pairs = scene.workload.groups.iter().all(|group| {
        group.len() == 2 && group.iter().filter(|rank| workers.contains(rank)).count() == 1
    });
    if servers.count() == 0 || !pairs || scene.workload.step_ends.len() > 1 {
        return None;
    }
    let program = |host: u32| scene.workload.programs.iter().find(|one| one.host == host);
    let first = program(*workers.first()?)?;
    let link = scene.network.links[first.host as usize];
    let equal = workers.iter().all(|&host| {
        let other = program(host);
        scene.network.links[host as usize] == link
            && other.is_some_and(|other| same(scene, first, other))
    });
    equal.then_some(workers)
}

/// Whether two workers do the same with the same servers.
fn same(scene: &Scene, one: &Program, other: &Program) -> bool {
    let server = |group: u32, own: u32| {
        let ranks = scene.workload.groups[group as usize].iter();
        ranks.copied().find(|&rank| rank != own)
    };
    one.tasks.len() == other.tasks.len()
        && one
            .tasks
            .iter()
            .zip(&other.tasks)
            .all(|(a, b)| match (&a.work, &b.work) {
                (
                    Work::Collective {
                        kind, group, bytes, ..
                    },
                    Work::Collective {
                        kind: of,
                        group: with,
                        bytes: long,
                        ..
                    },
                ) => {
                    (kind, bytes) == (of, long)
                        && server(*group, one.host) == server(*with, other.host)
                }
                (work, same) => work == same,
            })
}

/// Keeps the first of some equal workers.
fn keep_one(scene: &mut Scene, workers: &[u32]) -> Scene {
    let (kept, others) = (workers[0], &workers[1..]);
    let is_other = |group: u32, groups: &[Vec<u32>]| {
        groups[group as usize]
            .iter()
            .any(|rank| others.contains(rank))
    };
    let groups = scene.workload.groups.clone();
    scene
        .workload
        .programs
        .retain(|program| !others.contains(&program.host));
    for program in scene
        .workload
        .programs
        .iter_mut()
        .filter(|program| program.host != kept)
    {
        let gone = |task: &Task| match task.work {
            Work::Collective { group, .. } => is_other(group, &groups),
            _ => false,
        };
        let mut places = vec![None; program.tasks.len()];
        let mut tasks: Vec<Task> = Vec::new();
        for (number, task) in program
            .tasks
            .iter()
            .enumerate()
            .filter(|(_, task)| !gone(task))
        {
            places[number] = Some(tasks.len() as u32);
            let new = |list: &[u32]| list.iter().filter_map(|&at| places[at as usize]).collect();
            let (after, after_start) = (new(&task.after), new(&task.after_start));
            tasks.push(Task {
                after,
                after_start,
                ..task.clone()
            });
        }
        program.tasks = tasks;
        let part = |rate: Rate| {
            Rate::from_bits_per_second(rate.as_bits_per_second() / workers.len() as u64)
        };
        let link = &mut scene.network.links[program.host as usize];
        *link = FluidLink {
            up: part(link.up),
            down: part(link.down),
        };
    }
    for ends in &mut scene.workload.step_ends {
        ends.workers.retain(|worker| worker.host == kept);
    }
    scene.clone()
}
