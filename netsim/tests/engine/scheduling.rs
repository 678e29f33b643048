//! Training steps with and without scheduled gradients agree with the flow-level model of
//! ByteScheduler (Peng et al., SOSP 2019), and no packet is sent twice on a loss-free fabric.

use gradwire_netsim::results::outcome::Outcome;
use gradwire_netsim::results::steps::Steps;
use gradwire_netsim::setup::Setup;
use gradwire_protocol::priority::SendOrder;
use gradwire_protocol::units::ByteCount;
use gradwire_workloads::workload::Work;

use crate::world::{lines, micros, run};

fn vgg16(order: SendOrder, part: &str) -> (Setup, Outcome) {
    let line = format!("step:vgg16:ps=4,scale=64,steps=1,part={part}");
    let mut setup = lines("single:8@25G", &line, 1);
    setup.job.collectives.order = order;
    if order == SendOrder::Layers {
        setup.job.collectives.credit = ByteCount::kib(128);
    }
    let outcome = run(&setup);
    (setup, outcome)
}

fn step(setup: &Setup, outcome: &Outcome) -> f64 {
    let jobs = Steps::of(&setup.workload, &outcome.tasks);
    micros(jobs[0].iterations[0])
}

#[test]
fn parts_that_leave_by_layer_hide_a_pull_behind_the_push_and_nothing_is_sent_twice() {
    let (off, off_outcome) = vgg16(SendOrder::Arrival, "whole");
    let (on, on_outcome) = vgg16(SendOrder::Layers, "2MiB");
    for outcome in [&off_outcome, &on_outcome] {
        let counts = &outcome.transport;
        assert_eq!((counts.repaired, counts.duplicates), (0, 0));
    }
    // 138 million floats at 25 Gb/s, a 64th of them: 2,767 us a way and worker, push and pull one
    // after the other or at once.
    let (off, on) = (step(&off, &off_outcome), step(&on, &on_outcome));
    assert!((5_300.0..6_500.0).contains(&off), "{off} us");
    assert!((2_767.0..3_700.0).contains(&on), "{on} us");
}

#[test]
fn classes_that_starve_behind_higher_ones_are_not_sent_again() {
    let (_, outcome) = vgg16(SendOrder::Layers, "4MiB");
    assert_eq!(outcome.transport.repaired, 0);
}

#[test]
fn no_forward_pass_of_a_layer_begins_before_its_update() {
    let (setup, outcome) = vgg16(SendOrder::Layers, "2MiB");
    let task = |host, task| {
        let found = outcome.tasks.iter();
        let mut found = found.filter(|one| one.host == host && one.task == task);
        found.next().expect("it has ended")
    };
    let mut checked = 0;
    for program in &setup.workload.programs {
        for (number, one) in (0..).zip(&program.tasks) {
            for &before in &one.after {
                let starts = task(program.host, number).started;
                assert!(starts >= task(program.host, before).ended, "{}", one.name);
                let update = program.tasks[before as usize].name.starts_with("pull");
                checked += u32::from(update && matches!(one.work, Work::Compute { .. }));
            }
        }
    }
    assert!(checked > 100, "{checked} updates");
}
