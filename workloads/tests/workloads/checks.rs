//! Faults that every workload is checked for, whoever made it, and parallel workloads.

use gradwire_protocol::units::{ByteCount, Instant, Span};
use gradwire_workloads::workload::{
    CollectiveKind, Flow, Program, Start, Task, Trigger, TriggerId, Work, Workload,
};

const KB: ByteCount = ByteCount::new(1000);

fn of_flows(flows: Vec<Flow>, triggers: Vec<Trigger>) -> Workload {
    Workload {
        flows,
        triggers,
        ..Workload::default()
    }
}

fn of_tasks(tasks: [Vec<Task>; 2]) -> Workload {
    let programs = (0..).zip(tasks);
    Workload {
        programs: programs
            .map(|(host, tasks)| Program { host, tasks })
            .collect(),
        groups: vec![vec![0, 1]],
        ..Workload::default()
    }
}

fn all_reduce(bytes: u64) -> Task {
    let work = Work::Collective {
        kind: CollectiveKind::AllReduce,
        group: 0,
        bytes: ByteCount::new(bytes),
        layers: Vec::new(),
    };
    Task::new("sum", work, Vec::new())
}

fn send(to: u32, after: &[u32]) -> Task {
    Task::new(
        "",
        Work::Send {
            to,
            bytes: KB,
            tag: 1,
        },
        after.to_vec(),
    )
}

fn receive(from: u32, after: &[u32]) -> Task {
    Task::new(
        "",
        Work::Receive {
            from,
            bytes: KB,
            tag: 1,
        },
        after.to_vec(),
    )
}

fn refusal(workload: &Workload) -> String {
    workload
        .check(2)
        .expect_err("the workload is wrong")
        .to_string()
}

fn on(trigger: u32) -> Flow {
    Flow {
        start: Start::On(TriggerId(trigger)),
        ..Flow::new(0, 1, KB)
    }
}

fn telling(trigger: u32, flow: Flow) -> Flow {
    Flow {
        when_received: Some(TriggerId(trigger)),
        ..flow
    }
}

#[test]
fn flows_go_between_two_hosts_of_the_fabric_and_carry_something() {
    let of = |flow| refusal(&of_flows(vec![flow], Vec::new()));
    let message = of(Flow::new(0, 2, KB));
    assert_eq!(message, "flow 0 uses host 2; the fabric has hosts 0 to 1");
    assert!(of(Flow::new(1, 1, KB)).starts_with("flow 0 goes from host 1 to itself"));
    assert!(of(Flow::new(0, 1, ByteCount::new(0))).starts_with("flow 0 carries 0 bytes"));
    assert!(of(on(0)).starts_with("flow 0 names trigger 0; the workload has 0 triggers"));
}

#[test]
fn a_flow_whose_trigger_nobody_fires_is_refused() {
    let circle = of_flows(
        vec![telling(1, on(0)), telling(0, on(1))],
        vec![Trigger::Once; 2],
    );
    let expected = "flow 0 waits for trigger 0 (once), which is told 0 times";
    assert!(refusal(&circle).starts_with(expected));
    let first = || telling(0, Flow::new(0, 1, KB));
    let barrier = of_flows(vec![first(), on(0)], vec![Trigger::Barrier(2)]);
    assert!(refusal(&barrier).contains("(when told 2 times), which is told 1 times"));
    let each = of_flows(vec![first(), on(0), on(0)], vec![Trigger::Each]);
    assert!(refusal(&each).starts_with("flow 2 waits"));
    let chain = of_flows(vec![first(), telling(0, on(0)), on(0)], vec![Trigger::Each]);
    assert_eq!(chain.check(2), Ok(()));
}

#[test]
fn tasks_wait_for_earlier_tasks_only() {
    let late = of_tasks([vec![send(1, &[0])], vec![receive(0, &[])]]);
    assert!(refusal(&late).starts_with("task 0 of host 0 waits for task 0"));
}

#[test]
fn members_of_a_group_do_the_same() {
    let differ = of_tasks([vec![all_reduce(8)], vec![all_reduce(9)]]);
    assert!(refusal(&differ).starts_with(
        "task 0 (`sum`) of host 1 is collective 0 of group 0 there and is all-reduce of 9B; on \
         host 0 it is all-reduce of 8B"
    ));
    let missing = of_tasks([vec![all_reduce(8)], Vec::new()]);
    assert!(refusal(&missing).contains("on host 1 it is missing"));
    let mut twice = of_tasks([Vec::new(), Vec::new()]);
    twice.groups[0] = vec![0, 0];
    assert_eq!(
        refusal(&twice),
        "group 0 has host 0 twice; list every host once"
    );
    let mut other = of_tasks([vec![all_reduce(8)], Vec::new()]);
    other.groups[0] = vec![1];
    assert!(refusal(&other).contains("needs member host 0 in group 0"));
}

#[test]
fn every_send_meets_a_receive() {
    let alone = of_tasks([vec![send(1, &[])], Vec::new()]);
    assert!(refusal(&alone).starts_with("task 0 of host 0 meets no receive with tag 1 on host 1"));
    let deaf = of_tasks([Vec::new(), vec![receive(0, &[])]]);
    assert!(refusal(&deaf).starts_with("task 0 of host 1 meets no send with tag 1 on host 0"));
}

#[test]
fn hosts_that_wait_for_each_other_in_a_circle_are_refused() {
    let first_receive = |peer| vec![receive(peer, &[]), send(peer, &[0])];
    let circle = of_tasks([first_receive(1), first_receive(0)]);
    let expected = "task 0 of host 0 can never be complete: its dependencies wait for it (4";
    assert!(refusal(&circle).starts_with(expected));
    let fine = of_tasks([vec![send(1, &[]), receive(1, &[0])], first_receive(0)]);
    assert_eq!(fine.check(2), Ok(()));
}

#[test]
fn a_background_keeps_its_own_triggers_groups_messages_and_units() {
    let compute = |unit| {
        let span = Span::from_nanos(1);
        Task::new("", Work::Compute { span, unit }, Vec::new())
    };
    let job = || {
        let mut job = of_tasks([
            vec![compute(0), all_reduce(8), send(1, &[1])],
            vec![all_reduce(8), receive(0, &[0])],
        ]);
        job.flows = vec![telling(0, Flow::new(0, 1, KB)), on(0)];
        job.triggers = vec![Trigger::Once];
        job
    };
    let both = job().with_background(job());
    assert_eq!(both.check(2), Ok(()));
    assert_eq!(both.flows[3].start, Start::On(TriggerId(1)));
    assert_eq!(both.groups.len(), 2);
    let tasks = &both.programs[0].tasks;
    assert!(matches!(tasks[3].work, Work::Compute { unit: 1, .. }));
    assert!(matches!(tasks[4].work, Work::Collective { group: 1, .. }));
    assert_eq!(
        tasks[5].work,
        Work::Send {
            to: 1,
            bytes: KB,
            tag: 3
        }
    );
    assert_eq!(tasks[5].after, [4]);
}

#[test]
fn a_workload_moves_to_the_hosts_that_are_listed() {
    let mut job = of_tasks([vec![send(1, &[])], vec![receive(0, &[])]]);
    job.flows = vec![Flow::new(0, 1, KB)];
    let moved = job
        .clone()
        .on_hosts(&[5, 3])
        .expect("two hosts for two hosts");
    assert_eq!((moved.flows[0].source, moved.flows[0].destination), (5, 3));
    assert_eq!(moved.flows[0].start, Start::At(Instant::START));
    assert_eq!(moved.groups, [[5, 3]]);
    assert_eq!(moved.programs[1].host, 3);
    assert!(matches!(
        moved.programs[0].tasks[0].work,
        Work::Send { to: 3, .. }
    ));
    let error = job
        .on_hosts(&[5])
        .expect_err("host 1 has no place")
        .to_string();
    assert_eq!(
        error,
        "`` uses host 1, but it is put on 1 hosts: list at least 2"
    );
}
