//! A smaller scene that takes as long: one iteration instead of all, and of ranks that do the same
//! only one.
//!
//! Ranks are alike when their programs, links and groups are. Workers of parameter servers then
//! send and receive the same at the same time, so each gets an equal part of a server's link. One
//! of them stands for all, with that part as the server's link. Of the ranks of an all-reduce one
//! stands for all, too ([`FluidExtent::First`]): each sends at the time at which the others do.
//! Their messages differ in the layers that they hold, so the order in which they leave may differ
//! from the whole run's, and a search may miss what smaller messages would gain there.

use gradwire_netsim::fluid::{FluidExtent, FluidLink};
use gradwire_protocol::units::Rate;
use gradwire_workloads::training::StepEnds;
use gradwire_workloads::workload::{Program, Task, Work};

use crate::network::TracedNetwork;
use crate::replay::Scene;

/// Forward passes that a folded scene keeps: the ends of one warm and one measured iteration.
const PASSES: u32 = 3;
/// Times of ranks that are alike differ by this share at most: the clock of a trace is not exact.
const TIMES_APART: f64 = 0.01;
/// Rates of links differ more, since the same messages fall into other windows on each rank. Ranks
/// that are alike get their mean.
const RATES_APART: f64 = 0.25;

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
        Some(Likeness::OfPeers(peers)) => stand_for(&mut folded, &peers),
        Some(Likeness::OfWorkers(workers)) => keep_one(&mut folded, &workers),
        None => {}
    }
    folded
}

/// The ranks that do the same.
enum Likeness {
    /// All ranks, each the neighbour of others.
    OfPeers(Vec<u32>),
    /// The workers of parameter servers.
    OfWorkers(Vec<u32>),
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

/// Whether all ranks that compute are alike, and which.
fn alike(scene: &Scene) -> Option<Likeness> {
    let [ends] = &scene.workload.step_ends[..] else {
        return None;
    };
    let workers: Vec<u32> = ends.workers.iter().map(|worker| worker.host).collect();
    let others = scene.workload.programs.len() - workers.len();
    let groups = scene.workload.groups.iter();
    let mut groups = groups.filter(|group| !group.is_empty());
    let ranks_inside = |group: &[u32]| group.iter().filter(|rank| workers.contains(rank)).count();
    let fits = match others {
        0 => groups.all(|group| group.len() == workers.len() && ranks_inside(group) == group.len()),
        _ => groups.all(|group| group.len() == 2 && ranks_inside(group) == 1),
    };
    let program = |host: u32| scene.workload.programs.iter().find(|one| one.host == host);
    let link = |host: u32| scene.network.links[host as usize];
    let first = program(*workers.first()?)?;
    let own = link(first.host);
    let equal = workers.iter().all(|&host| {
        let other = link(host);
        let rates = [(own.up, other.up), (own.down, other.down)];
        let rates = rates.map(|(one, other)| [one, other].map(|rate| rate.as_bits_per_second()));
        rates.iter().all(|&pair| is_near(pair, RATES_APART))
            && program(host).is_some_and(|other| same(scene, first, other))
    });
    (fits && equal).then_some(match others {
        0 => Likeness::OfPeers(workers),
        _ => Likeness::OfWorkers(workers),
    })
}

fn is_near([one, other]: [u64; 2], apart: f64) -> bool {
    one.abs_diff(other) as f64 <= apart * one.max(other) as f64
}

/// Lets the first of some equal ranks run alone.
fn stand_for(scene: &mut Scene, peers: &[u32]) {
    scene.extent = FluidExtent::First;
    let first = peers[0];
    share_links(&mut scene.network, peers);
    scene
        .workload
        .programs
        .retain(|program| program.host == first);
    for ends in &mut scene.workload.step_ends {
        ends.workers.retain(|worker| worker.host == first);
    }
}

/// Gives some ranks the mean of their links.
fn share_links(network: &mut TracedNetwork, ranks: &[u32]) {
    for links in [&mut network.links, &mut network.busiest] {
        let mean = |side: fn(&FluidLink) -> Rate| {
            let rates = ranks.iter().map(|&rank| side(&links[rank as usize]));
            let sum: u64 = rates.map(Rate::as_bits_per_second).sum();
            Rate::from_bits_per_second(sum / ranks.len() as u64)
        };
        let (up, down) = (mean(|link| link.up), mean(|link| link.down));
        for &rank in ranks {
            links[rank as usize] = FluidLink { up, down };
        }
    }
}

/// Whether two ranks do the same in the same group or with the same server.
fn same(scene: &Scene, one: &Program, other: &Program) -> bool {
    let server = |group: u32, own: u32| {
        let ranks = scene.workload.groups[group as usize].iter();
        ranks.copied().find(|&rank| rank != own)
    };
    let meets = |group: u32, with: u32| {
        group == with || server(group, one.host) == server(with, other.host)
    };
    let mut tasks = one.tasks.iter().zip(&other.tasks);
    one.tasks.len() == other.tasks.len()
        && tasks.all(|(a, b)| a.after == b.after && a.name == b.name && works(a, b, &meets))
}

/// Whether two tasks are as much work, their collectives in groups that `meets` takes for alike.
fn works(one: &Task, other: &Task, meets: &dyn Fn(u32, u32) -> bool) -> bool {
    match (&one.work, &other.work) {
        (
            Work::Collective {
                kind,
                group,
                bytes,
                layers,
            },
            Work::Collective {
                kind: of,
                group: with,
                bytes: long,
                layers: inside,
            },
        ) => (kind, bytes, layers) == (of, long, inside) && meets(*group, *with),
        (Work::Compute { span, unit }, Work::Compute { span: of, unit: on }) => {
            unit == on && is_near([span, of].map(|one| one.as_picos()), TIMES_APART)
        }
        (work, same) => work == same,
    }
}

/// Keeps the first of some equal workers.
fn keep_one(scene: &mut Scene, workers: &[u32]) {
    share_links(&mut scene.network, workers);
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
        for links in [&mut scene.network.links, &mut scene.network.busiest] {
            let link = &mut links[program.host as usize];
            *link = FluidLink {
                up: part(link.up),
                down: part(link.down),
            };
        }
    }
    for ends in &mut scene.workload.step_ends {
        ends.workers.retain(|worker| worker.host == kept);
    }
}
