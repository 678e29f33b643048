//! Two training jobs that take turns on the same ranks: one computes while the other exchanges its
//! gradients (Yu et al., CrossoverScheduler, arXiv 2103.07974, of which only the abstract is
//! public: the rules here are ours).
//!
//! Each rank has a lease. A job computes only while it holds it, from the start of its forward pass
//! to the end of its backward pass, and then passes it on. So with C the computing and E the
//! exchange of an equal step of both, two steps take max(2C, C+E, 2E) instead of 2(C+E).

use std::collections::BTreeMap;

use crate::workload::{Program, Task, Work, Workload};

/// Two jobs that take turns, the first one first; their groups and hosts are in one workload.
///
/// # Panics
/// When the jobs name different algorithms.
pub(super) fn crossover(one: Workload, other: Workload) -> Workload {
    let first_of = |program: &Program| (program.host, program.tasks.len());
    let firsts: BTreeMap<u32, usize> = one.programs.iter().map(first_of).collect();
    let both = one.beside(other);
    let mut both = both.expect("both jobs have the algorithm of one training");
    for program in &mut both.programs {
        let split = firsts.get(&program.host).copied().unwrap_or_default();
        let places = take_turns(program, split);
        let workers = both.step_ends.iter_mut().flat_map(|ends| &mut ends.workers);
        for worker in workers.filter(|worker| worker.host == program.host) {
            for end in &mut worker.forward_ends {
                *end = places[*end as usize];
            }
        }
    }
    both
}

/// Orders the tasks of both jobs by step, and lets each turn wait for the turn before it. Tasks
/// from `split` on are of the second job. Returns the new number of each task.
fn take_turns(program: &mut Program, split: usize) -> Vec<u32> {
    let mut order: Vec<usize> = (0..program.tasks.len()).collect();
    let turn = |at: usize| (program.tasks[at].step, at >= split);
    order.sort_by_key(|&at| turn(at));
    let turns: Vec<(u32, bool)> = order.iter().map(|&at| turn(at)).collect();
    let mut places = vec![0; order.len()];
    for (new, &old) in (0..).zip(&order) {
        places[old] = new;
    }
    let mut tasks: Vec<Task> = Vec::with_capacity(order.len());
    let (mut last, mut current) = (None, None);
    for (&old, turn) in order.iter().zip(turns) {
        let mut task = program.tasks[old].clone();
        let waits = task.after.iter_mut().chain(&mut task.after_start);
        waits.for_each(|wait| *wait = places[*wait as usize]);
        if let Work::Compute { .. } = task.work {
            if current != Some(turn) {
                current = Some(turn);
                // The last computation of the turn before.
                task.after.extend(last);
            }
            last = Some(tasks.len() as u32);
        }
        tasks.push(task);
    }
    program.tasks = tasks;
    places
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::units::Rate;

    use crate::workload::{Hosts, Work, Workload};

    #[test]
    fn no_rank_computes_for_both_jobs_at_once() {
        let rate = Rate::from_gbps(10);
        let text = "step:alexnet:ddp,steps=2,update=all,overlap=off,beside=alexnet";
        let workload = Workload::from_pattern(text, Hosts { count: 2, rate }, 1);
        let workload = workload.expect("it is a pattern");
        assert_eq!(workload.step_ends.len(), 2);
        let tasks = &workload.programs[1].tasks;
        let units = tasks.iter().filter_map(|task| match task.work {
            Work::Compute { unit, .. } => Some((unit, task.step)),
            _ => None,
        });
        let mut units: Vec<(u16, u32)> = units.collect();
        units.dedup();
        assert_eq!(units, [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]);
        for (number, task) in (0..).zip(tasks) {
            assert!(task.after.iter().all(|&before| before < number));
        }
    }
}
