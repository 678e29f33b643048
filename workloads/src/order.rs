//! Sorts tasks so that each comes after all tasks for which it waits.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::workload::Task;

/// Sorts tasks whose indices may point forward. Among tasks that could come next, the earlier one
/// stays first, so that equal programs are sorted equally.
///
/// # Errors
/// The index of a task that waits for itself through others.
pub(super) fn in_order(tasks: Vec<Task>) -> Result<Vec<Task>, usize> {
    let mut left = Vec::with_capacity(tasks.len());
    let mut later: Vec<Vec<u32>> = vec![Vec::new(); tasks.len()];
    for (number, task) in (0..).zip(&tasks) {
        left.push(task.after.len() + task.after_start.len());
        for &before in task.after.iter().chain(&task.after_start) {
            later[before as usize].push(number);
        }
    }
    let free = (0..).zip(&left).filter(|(_, left)| **left == 0);
    let mut next: BinaryHeap<Reverse<u32>> = free.map(|(number, _)| Reverse(number)).collect();
    let mut order = Vec::with_capacity(tasks.len());
    while let Some(Reverse(number)) = next.pop() {
        order.push(number);
        for &waiting in &later[number as usize] {
            let left = &mut left[waiting as usize];
            *left -= 1;
            if *left == 0 {
                next.push(Reverse(waiting));
            }
        }
    }
    match left.iter().position(|&left| left > 0) {
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
    use crate::workload::Work;

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
