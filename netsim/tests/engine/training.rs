//! Training steps take the time of computing and of communication that computing does not hide.
//!
//! One switch, links of 100 Gb/s, two workers unless said. A direct all-reduce of S bytes of two
//! workers puts S bytes on each link, in either direction. So does a push to a server that has one
//! worker, and the pull behind it.

use gradwire_netsim::results::steps::Steps;
use gradwire_netsim::setup::Setup;
use gradwire_protocol::priority::SendOrder;
use gradwire_protocol::units::{Instant, Rate, Span};
use gradwire_workloads::model::Model;
use gradwire_workloads::workload::{Hosts, Workload};

use crate::world::{fabric, lines, micros, run, setup, share, tolerant};

const RATE: Rate = Rate::from_gbps(100);

/// A model of (bytes, forward, backward in microseconds) for each layer, front to back.
pub(crate) fn model(layers: &[(u64, u64, u64)]) -> Model {
    let rows = layers
        .iter()
        .enumerate()
        .map(|(number, (bytes, forward, backward))| {
            format!("l{number},{},{forward}000,{backward}000\n", bytes / 4)
        });
    let table = format!(
        "layer,parameters,forward_ns,backward_ns\n{}",
        rows.collect::<String>()
    );
    Model::from_csv("m", &table).expect("the table is right")
}

/// Steps of a model of such layers.
fn steps(layers: &[(u64, u64, u64)], how: &str, hosts: u32) -> Steps {
    let hosts = Hosts {
        count: hosts,
        rate: RATE,
    };
    let line = format!("step:m:{how}");
    let workload = Workload::from_pattern_with(&line, hosts, 1, &[model(layers)]);
    let workload = workload.expect("the line is right");
    let setup = setup(fabric(&format!("single:{}@100G", hosts.count)), workload);
    let outcome = run(&setup);
    let mut all = Steps::of(&setup.workload, &outcome.tasks);
    all.pop().expect("it has steps")
}

/// Asserts that each step takes `expected` microseconds, within a share of it.
pub(crate) fn each_takes(steps: &Steps, count: usize, expected: f64, within: f64) {
    assert_eq!(steps.iterations.len(), count, "every step has ended");
    for iteration in &steps.iterations {
        let ratio = micros(*iteration) / expected;
        let what = format!("{:?}, expected {expected} us", steps.iterations);
        assert!((ratio - 1.0).abs() <= within, "{what}");
    }
}

/// The time of an all-reduce of this many bytes alone.
fn alone(bytes: u64, hosts: u32) -> f64 {
    let outcome = run(&lines(
        &format!("single:{hosts}@100G"),
        &format!("all-reduce:{bytes}"),
        1,
    ));
    let ended = outcome.tasks.iter().filter_map(|task| task.ended).max();
    micros(ended.expect("it has ended").since(Instant::START))
}

#[test]
fn what_is_computed_hides_all_but_the_exchange_of_the_front_layer() {
    let layers = [(1_000_000, 1_000, 2_000); 4];
    let front = alone(1_000_000, 2);
    for update in ["layer", "all"] {
        let steps = steps(&layers, &format!("tensors,steps=3,update={update}"), 2);
        assert_eq!(steps.compute, Span::from_millis(12));
        each_takes(&steps, 3, 12_000.0 + front, 0.0005);
        for exposed in steps.exposed() {
            assert!(
                (micros(exposed) - front).abs() < 5.0,
                "{exposed}, alone {front} us"
            );
        }
    }
}

#[test]
fn where_nothing_is_computed_a_step_is_its_exchange() {
    for (hosts, share) in [(2, 1.0), (4, 1.5)] {
        let steps = steps(
            &[(12_000_000, 0, 0); 4],
            "ddp,steps=2,algorithm=ring",
            hosts,
        );
        // 2 (P - 1) / P of the bytes, 64 + 66 bytes around each 4,032, and a few round trips.
        let wire = 48_000_000.0 * share * 8.0 / 1e5 * (4_032.0 + 130.0) / 4_032.0;
        assert_eq!(steps.compute, Span::ZERO);
        each_takes(&steps, 2, wire, 0.03);
    }
}

#[test]
fn an_exchange_that_is_longer_than_its_cover_is_exposed_by_the_rest() {
    // The back layer's exchange takes 10 MB or 800 us, and is covered by 300 us of the front
    // layer's backward pass; the front layer's takes 80 us more on the same links.
    let layers = [(1_000_000, 100, 300), (10_000_000, 100, 200)];
    let both = alone(11_000_000, 2);
    let all = steps(&layers, "tensors,steps=2,update=all", 2);
    each_takes(&all, 2, 200.0 + both + 200.0, 0.03);
    // By layers, the front layer overtakes on the way, and its forward pass hides behind the rest.
    let by_layer = steps(&layers, "tensors,steps=2,update=layer", 2);
    each_takes(&by_layer, 2, 200.0 + both + 100.0, 0.03);
}

#[test]
fn the_slowest_worker_sets_the_pace() {
    let layers = [(1_000_000, 1_000, 2_000); 4];
    let steps = steps(&layers, "tensors,steps=2,slow=2", 4);
    assert_eq!(steps.compute, Span::from_millis(24));
    each_takes(&steps, 2, 24_000.0 + alone(1_000_000, 4), 0.001);
}

#[test]
fn a_server_takes_in_what_all_workers_push_and_puts_out_as_much() {
    let steps = steps(&[(4_000_000, 0, 0)], "ps=1,steps=2", 3);
    // Two workers: 8 MB in, then 8 MB out.
    let wire = 16_000_000.0 * 8.0 / 1e5 * (4_032.0 + 130.0) / 4_032.0;
    each_takes(&steps, 2, wire, 0.06);
}

#[test]
fn servers_share_the_load_of_their_workers() {
    let one = steps(&[(3_000_000, 0, 0); 8], "ps=1,steps=1", 5);
    let four = steps(&[(3_000_000, 0, 0); 8], "ps=4,steps=1", 8);
    let [one, four] = [one, four].map(|steps| micros(steps.iterations[0]));
    // One link takes 96 MB in 7.7 ms, and the last layer out again; four links a quarter each.
    assert!((7_700.0..=9_300.0).contains(&one), "{one}");
    assert!((1_925.0..=3_400.0).contains(&four), "{four}");
}

/// The first iteration if front layers leave first, over the one in order of arrival.
fn layers_over_arrival(mut setup: Setup) -> f64 {
    let iteration = |order| {
        setup.job.collectives.order = order;
        let steps = Steps::of(&setup.workload, &run(&setup).tasks);
        micros(steps[0].iterations[0])
    };
    let [layers, arrival] = [SendOrder::Layers, SendOrder::Arrival].map(iteration);
    layers / arrival
}

/// Its mean over five runs, in which the last worker is slower by 0 to 4 %: one run is a draw.
fn mean_layers_over_arrival(steps: &str) -> f64 {
    let slow = (0..5).map(|percent| 1.0 + f64::from(percent) / 100.0);
    let lines = slow.map(|slow| lines("single:16@10G", &format!("{steps},slow={slow}"), 1));
    lines.map(layers_over_arrival).sum::<f64>() / 5.0
}

/// Segments of back layers wait in switches while others send front layers. A worker whose grants
/// they used up fell behind the others, and all sums waited for it: 27 ms.
#[test]
fn the_order_of_layers_costs_nothing_at_servers() {
    let mut layers = vec![(442_500 * 4, 170, 330); 13];
    layers[0] = (1_425_000 * 4, 100, 100);
    let hosts = Hosts {
        count: 16,
        rate: RATE,
    };
    let line = "step:m:ps=2,steps=1,part=256KiB";
    let workload = Workload::from_pattern_with(line, hosts, 1, &[model(&layers)]);
    let setup = setup(
        fabric("single:16@100G"),
        workload.expect("the line is right"),
    );
    let ratio = layers_over_arrival(setup);
    assert!(ratio < 1.0, "{ratio:.3}");
}

/// Every layer overtook the contributions of the layer before, so that hardly any was whole before
/// the backward pass ended, and the servers' links stood idle until then: 9 % more than in order of
/// arrival. 2 to 3 % are left.
#[test]
fn contributions_to_servers_are_whole_before_the_backward_pass_ends() {
    let ratio = mean_layers_over_arrival("step:gpt2:ps=8,scale=64,steps=1");
    assert!(ratio <= 1.05, "{ratio:.3}");
}

/// Sums of a bucket's front layers overtook its contributions of back layers, and the other ranks
/// waited for these: 8 % more than in order of arrival.
#[test]
fn sums_do_not_overtake_the_contributions_of_their_bucket() {
    let steps = "step:resnet50:ddp,algorithm=direct,scale=32,steps=1";
    let ratio = mean_layers_over_arrival(steps);
    assert!(ratio <= 0.95, "{ratio:.3}");
}

/// A ring is always lossless; a direct all-reduce may lose in its first half.
#[test]
fn losses_are_accepted_within_the_tolerance_and_told_by_layer() {
    let mut setup = tolerant(lines(
        "single:4@100G",
        "step:vgg16:tensors,steps=1,scale=64,algorithm=direct",
        1,
    ));
    for link in &mut setup.fabric.links {
        link.loss = share(0.02);
    }
    let outcome = run(&setup);
    let steps = &Steps::of(&setup.workload, &outcome.tasks)[0];
    assert_eq!(steps.losses.len(), 16);
    assert!(outcome.transport.lost_within_tolerance > 0);
    assert!(steps.losses.iter().any(|loss| loss.share > 0.0));
    for loss in &steps.losses {
        assert!(loss.share <= 0.1, "{loss:?}");
    }
}
