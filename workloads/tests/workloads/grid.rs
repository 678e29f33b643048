//! Steps whose matrices are sharded over a grid of hosts.

use std::collections::BTreeMap;

use gradwire_protocol::units::Rate;
use gradwire_workloads::model::Model;
use gradwire_workloads::workload::{CollectiveKind, Hosts, Work, Workload};

/// One matrix of 24 x 8 with a bias, between layers that only compute.
const SMALL: &str = "layer,tensor,parameters,forward_ns,backward_ns\n\
    front,weight,7,10,20\n\
    middle,weight,192,300,400\n\
    middle,bias,8,0,200\n\
    back,weight,7,30,40\n";

fn read(line: &str, count: u32) -> Result<Workload, String> {
    let small = Model::from_csv("small.csv", SMALL).expect("the table is right");
    let rate = Rate::from_gbps(100);
    let workload = Workload::from_pattern_with(line, Hosts { count, rate }, 1, &[small]);
    workload.map_err(|error| error.to_string())
}

fn grid(line: &str, count: u32) -> Workload {
    let workload = read(line, count).expect("the line is right");
    workload.check(count).expect("it can be carried");
    workload
}

/// The bytes that all hosts together send in one step, as the collectives of each group must.
fn sent(workload: &Workload) -> u64 {
    let mut by_group: BTreeMap<u32, u64> = BTreeMap::new();
    for program in &workload.programs {
        for task in program.tasks.iter().filter(|task| task.step > 0) {
            let Work::Collective {
                kind, group, bytes, ..
            } = &task.work
            else {
                continue;
            };
            let members = workload.groups[*group as usize].len() as u64;
            // Each block reaches, or leaves, all members but one. An all-reduce does both.
            let times = match kind {
                CollectiveKind::AllReduce => 2,
                _ => 1,
            };
            let all = times * bytes.get() * (members - 1);
            // Every member has the collective in its program.
            *by_group.entry(*group).or_default() += all / members;
        }
    }
    by_group.values().sum()
}

#[test]
fn a_grid_sends_the_bytes_of_the_published_form() {
    for (side, depth) in [(1, 1), (1, 2), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4)] {
        let hosts = side * side * depth;
        let line = format!("step:small.csv:summa={side}x{side}x{depth},tokens=32,steps=2");
        let workload = grid(&line, hosts as u32);
        let (tall, square) = (32 * 24 * 4, 24 * 8 * 4 / (side * side));
        // Forward belongs to the step before; steps 1 and 2 have two forward and one backward pass.
        let forward = (side - 1) * (tall + square);
        let backward = 2 * forward * depth + 2 * (depth - 1) * square;
        let expected = (2 * forward * depth + backward) * hosts / depth;
        assert_eq!(sent(&workload), expected, "{side}, {depth}");
    }
}

#[test]
fn each_host_meets_its_row_its_column_and_its_place_in_other_layers() {
    let workload = grid("step:small.csv:summa=2x2x2,steps=1", 8);
    let of = |host: u32| -> Vec<&Vec<u32>> {
        let groups = workload.groups.iter();
        groups.filter(|group| group.contains(&host)).collect()
    };
    assert_eq!(of(0), [&vec![0, 1], &vec![0, 2], &vec![0, 4]]);
    assert_eq!(of(7), [&vec![6, 7], &vec![5, 7], &vec![3, 7]]);
}

#[test]
fn blocks_of_the_next_turn_travel_while_a_host_computes() {
    let workload = grid("step:small.csv:summa=2x2x1,steps=1", 4);
    let tasks = &workload.programs[0].tasks;
    let name = |&at: &u32| tasks[at as usize].name.as_str();
    let computes: Vec<Vec<&str>> = tasks
        .iter()
        .filter(|task| task.name == "forward middle" && task.step == 0)
        .map(|task| task.after.iter().map(name).collect())
        .collect();
    let (a, b) = ("broadcast A forward middle", "broadcast B forward middle");
    assert_eq!(
        computes,
        [
            vec!["forward front", a, b],
            vec!["forward middle", "forward front", a, b]
        ]
    );
    let second = tasks.iter().filter(|task| task.name == a).nth(1);
    let second = second.expect("there are two turns");
    assert_eq!(
        second.after.iter().map(name).collect::<Vec<_>>(),
        ["forward front"]
    );
}

#[test]
fn a_wrong_grid_says_what_is_allowed() {
    let refusal = |text| read(text, 8).expect_err("the line is wrong");
    assert!(
        refusal("step:small.csv:summa=2x3x1").contains("as many rows as columns, such as 4x4x4")
    );
    assert!(refusal("step:small.csv:summa=0x0x1").contains("summa=`0x0x1`: it needs"));
    assert!(refusal("step:small.csv:summa=2x2x1").contains("4 hosts share the matrices"));
    assert!(refusal("step:small.csv:summa=4x4x1").contains("needs 16 hosts or more; there are 8"));
    assert!(refusal("step:vgg16:ddp,tokens=8").contains("tokens= is for summa="));
    assert!(refusal("step:llama-8b:summa=2x2x2").contains("no matrix with a bias"));
}
