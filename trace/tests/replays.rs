//! Replays of schedules whose times are known: ByteScheduler's example, and two jobs in turns.

use gradwire_netsim::fluid::{FluidExtent, FluidLink};
use gradwire_protocol::job::Job;
use gradwire_protocol::priority::SendOrder;
use gradwire_protocol::units::{ByteCount, Rate, Span};
use gradwire_trace::critical::{CriticalPath, PathResource};
use gradwire_trace::folded::fold;
use gradwire_trace::network::TracedNetwork;
use gradwire_trace::replay::{Scene, replay};
use gradwire_trace::search::{Depth, search};
use gradwire_trace::whatif::{WhatIf, changed};
use gradwire_workloads::model::Model;
use gradwire_workloads::workload::{Hosts, Workload};

/// 1 MiB a millisecond: a unit of the example.
const UNIT: Rate = Rate::from_bits_per_second(8 * (1 << 20) * 1_000);
/// Three layers of 3, 6 and 3 units, whose passes take 2 units each.
const THREE: &str = "layer,parameters,forward_ns,backward_ns\n\
    a,786432,2000000,2000000\nb,1572864,2000000,2000000\nc,786432,2000000,2000000\n";

fn scene(line: &str, hosts: u32, rate: Rate) -> Scene {
    let model = Model::from_csv("three", THREE).expect("it is a table");
    let size = Hosts { count: hosts, rate };
    let workload = Workload::from_pattern_with(line, size, 1, &[model]);
    let links = vec![
        FluidLink {
            up: rate,
            down: rate
        };
        hosts as usize
    ];
    Scene {
        workload: workload.expect("it is a pattern"),
        job: Job::default(),
        extent: FluidExtent::Whole,
        network: TracedNetwork {
            busiest: links.clone(),
            links,
            nominal: rate,
            one_way: Span::ZERO,
        },
    }
}

fn millis(scene: &Scene) -> f64 {
    replay(scene).expect("it is small").iteration_us() / 1e3
}

#[test]
fn the_example_of_bytescheduler_takes_26_and_18_units() {
    let mut first_come = scene("step:three:ps=1,steps=1,part=whole", 2, UNIT);
    first_come.job.collectives.order = SendOrder::Arrival;
    let by_layer = scene("step:three:ps=1,steps=1,part=1MiB", 2, UNIT);
    let times = [millis(&first_come), millis(&by_layer)];
    let off = [times[0] - 26.0, times[1] - 18.0];
    assert!(off.iter().all(|off| off.abs() < 0.01), "{times:?}");
}

#[test]
fn two_jobs_in_turns_follow_the_closed_form() {
    // 12 MiB around a ring of two: 12 units of exchange, 12 of computing.
    let how = "ddp,algorithm=ring,update=all,overlap=off,steps=6";
    for times in [0.5, 0.8, 1.0, 1.5, 3.0, 10.0] {
        let rate = Rate::from_bits_per_second((UNIT.as_bits_per_second() as f64 * times) as u64);
        let mut alone = scene(&format!("step:three:{how}"), 2, rate);
        let mut both = scene(&format!("step:three:{how},beside=three"), 2, rate);
        // Front layers of one job must not overtake the rest of the other.
        for scene in [&mut alone, &mut both] {
            scene.job.collectives.order = SendOrder::Arrival;
        }
        let alone = millis(&alone);
        // At the ends of the run, one job has the ranks for itself.
        let iterations = replay(&both).expect("it is small").iterations_us;
        let both = iterations[1..4].iter().sum::<f64>() / 3e3;
        let (computing, exposed) = (12.0_f64, alone - 12.0);
        let closed = (2.0 * computing)
            .max(computing + exposed)
            .max(2.0 * exposed);
        assert!(
            (both / closed - 1.0).abs() < 0.03,
            "{both} for {closed} at {times} times the rate"
        );
    }
}

#[test]
fn twice_the_bandwidth_moves_the_path_from_links_to_computing() {
    let rate = Rate::from_bits_per_second(UNIT.as_bits_per_second() * 2);
    let slow = scene("step:three:ps=1,steps=3", 3, rate);
    let fast = changed(&slow, &[WhatIf::Faster(2.0)]).expect("no rank is named");
    let [links, computing] = [&slow, &fast].map(|scene| {
        let path = CriticalPath::of(&scene.workload, &replay(scene).expect("it is small"));
        let total: f64 = path.shares().iter().map(|(_, time)| time).sum();
        assert!(
            total > 0.98 * millis(scene) * 1e3,
            "{total} us of the iteration are explained"
        );
        (path.on(PathResource::Compute) / total, path)
    });
    assert!(
        links.0 < 0.5 && computing.0 > 0.6,
        "{} and {}",
        links.0,
        computing.0
    );
}

#[test]
fn one_of_equal_ranks_takes_as_long_as_all() {
    for how in [
        "ps=1",
        "ddp,algorithm=ring",
        "ddp,algorithm=direct",
        "ddp,algorithm=halving-doubling",
    ] {
        let mut whole = scene(&format!("step:three:{how},steps=5"), 4, UNIT);
        // By layer, messages of ranks that hold other layers wait for each other.
        whole.job.collectives.order = SendOrder::Arrival;
        let folded = fold(&whole);
        let tasks = |scene: &Scene| -> usize {
            let programs = scene.workload.programs.iter();
            programs.map(|program| program.tasks.len()).sum()
        };
        assert!(2 * tasks(&folded) < tasks(&whole), "{how} is not folded");
        let (part, all) = (millis(&folded), millis(&whole));
        assert!((part / all - 1.0).abs() < 0.01, "{how}: {part} for {all}");
    }
}

#[test]
fn a_partial_search_finds_most_of_the_gain() {
    let mut gain = 0.0;
    for line in [
        "step:three:ps=1,steps=3",
        "step:three:ps=1,steps=3,part=2MiB",
        "step:three:ddp,algorithm=ring,steps=3",
    ] {
        let mut scene = scene(line, 3, UNIT);
        scene.job.collectives.order = SendOrder::Arrival;
        let found = [Depth::Full, Depth::Partial]
            .map(|depth| search(&scene, depth, &mut |_, _| {}).expect("it is small"));
        let [full, partial] = found;
        let [best, found] = [&full, &partial].map(|found| found.before_us - found.after_us);
        assert!(found >= 0.5 * best, "{full:?}, {partial:?}");
        gain += best;
    }
    assert!(gain > 0.0, "a schedule by arrival can be improved");
}

/// By replay, layers first gain 4.5 %, and 9 % with a credit: no more than replays overrate credits
/// by.
#[test]
fn a_credit_that_gains_little_is_not_recommended() {
    let mut scene = scene("step:three:ps=1,steps=3,part=whole", 3, UNIT);
    scene.job.collectives.order = SendOrder::Arrival;
    let gain = |changes: &[WhatIf]| {
        let changed = changed(&scene, changes).expect("no rank is named");
        1.0 - millis(&changed) / millis(&scene)
    };
    let (order, credit) = (
        WhatIf::Order(SendOrder::Layers),
        WhatIf::Credit(ByteCount::mib(1)),
    );
    let (alone, both) = (gain(std::slice::from_ref(&order)), gain(&[order, credit]));
    assert!(alone < 0.05 && both > 0.08, "{alone}, {both}");
    for depth in [Depth::Full, Depth::Partial] {
        let found = search(&scene, depth, &mut |_, _| {}).expect("it is small");
        assert!(found.changes.is_empty(), "{found:?}");
    }
}
