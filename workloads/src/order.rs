//! Which tasks of a program wait for which, an order in which each comes after those, and the
//! numbers of collectives.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::workload::{Task, Work};

/// The tasks for which each task of a program still waits.
#[derive(Clone, Debug)]
pub struct TaskWaits {
    left: Vec<u32>,
    /// For each task, those that wait for its end.
    at_end: Vec<Vec<u32>>,
    /// For each task, those that wait for its start.
    at_start: Vec<Vec<u32>>,
}

impl TaskWaits {
    /// The waits of tasks of which none has started.
    ///
    /// # Panics
    /// When a task waits for one that is not there.
    pub fn new(tasks: &[Task]) -> Self {
        let mut waits = Self {
            left: Vec::with_capacity(tasks.len()),
            at_end: vec![Vec::new(); tasks.len()],
            at_start: vec![Vec::new(); tasks.len()],
        };
        for (number, task) in (0..).zip(tasks) {
            let left = task.after.len() + task.after_start.len();
            waits.left.push(left as u32);
            for &before in &task.after {
                waits.at_end[before as usize].push(number);
            }
            for &before in &task.after_start {
                waits.at_start[before as usize].push(number);
            }
        }
        waits
    }

    /// The tasks that wait for no other.
    pub fn free(&self) -> impl Iterator<Item = u32> {
        let all = (0..).zip(&self.left);
        all.filter(|(_, left)| **left == 0).map(|(task, _)| task)
    }

    /// A task has started; returns the tasks that wait for no other any more.
    pub fn start(&mut self, task: u32) -> Vec<u32> {
        released(
            &mut self.left,
            std::mem::take(&mut self.at_start[task as usize]),
        )
    }

    /// A task has ended; returns the tasks that wait for no other any more.
    pub fn end(&mut self, task: u32) -> Vec<u32> {
        released(
            &mut self.left,
            std::mem::take(&mut self.at_end[task as usize]),
        )
    }
}

/// Those of the tasks that have waited for one other only.
fn released(left: &mut [u32], mut tasks: Vec<u32>) -> Vec<u32> {
    tasks.retain(|&task| {
        let left = &mut left[task as usize];
        *left -= 1;
        *left == 0
    });
    tasks
}

/// Numbers the collectives of each group from 1, in the order of the program, in which the check of
/// workloads compares them: ranks may start them in different orders. Other tasks have 0.
pub fn collective_numbers(tasks: &[Task]) -> Vec<u32> {
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    let numbers = tasks.iter().map(|task| match task.work {
        Work::Collective { group, .. } => {
            let count = counts.entry(group).or_default();
            *count += 1;
            *count
        }
        _ => 0,
    });
    numbers.collect()
}

/// Sorts tasks whose indices may point forward. Among tasks that could come next, the earlier one
/// stays first, so that equal programs are sorted equally.
///
/// # Errors
/// The index of a task that waits for itself through others.
pub(super) fn in_order(tasks: Vec<Task>) -> Result<Vec<Task>, usize> {
    let mut waits = TaskWaits::new(&tasks);
    let mut next: BinaryHeap<Reverse<u32>> = waits.free().map(Reverse).collect();
    let mut order = Vec::with_capacity(tasks.len());
    while let Some(Reverse(number)) = next.pop() {
        order.push(number);
        next.extend(waits.start(number).into_iter().map(Reverse));
        next.extend(waits.end(number).into_iter().map(Reverse));
    }
    match waits.left.iter().position(|&left| left > 0) {
        Some(stuck) => Err(stuck),
        None => Ok(renumbered(tasks, &order)),
    }
}

fn renumbered(tasks: Vec<Task>, order: &[u32]) -> Vec<Task> {
    let mut place = vec![0; order.len()];
    for (new, &old) in (0..).zip(order) {
        place[old as usize] = new;
    }
    let mut sorted: Vec<(u32, Task)> = place.iter().copied().zip(tasks).collect();
    sorted.sort_unstable_by_key(|(new, _)| *new);
    let tasks = sorted.into_iter().map(|(_, mut task)| {
        for before in task.after.iter_mut().chain(&mut task.after_start) {
            *before = place[*before as usize];
        }
        task
    });
    tasks.collect()
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::units::Span;

    use super::*;
    fn task(name: &str, after: &[u32]) -> Task {
        let work = Work::Compute {
            span: Span::ZERO,
            unit: 0,
        };
        Task::new(name, work, after.to_vec())
    }

    #[test]
    fn a_task_that_waits_for_a_later_one_moves_behind_it() {
        let tasks = vec![task("a", &[2]), task("b", &[]), task("c", &[1])];
        let sorted = in_order(tasks).expect("there is no circle");
        assert_eq!(sorted, [task("b", &[]), task("c", &[0]), task("a", &[1])]);
    }

    #[test]
    fn a_circle_names_a_task_on_it() {
        let tasks = vec![task("a", &[]), task("b", &[2]), task("c", &[1])];
        assert_eq!(in_order(tasks), Err(1));
    }
}
