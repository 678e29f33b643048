//! IRN beside RoCE, as in its paper: 54 hosts, 40 Gb/s, 70 % load, queues of two bandwidth-delay
//! products, ECMP; and incasts of 10 to 50.
//!
//! Mittal et al., SIGCOMM 2018, sections 4.1 to 4.3. Packets have 1,000 bytes of payload. Sizes are
//! those of web search here, where the paper has others, so the order counts and not the numbers.

use std::collections::BTreeMap;
use std::path::Path;

use gradwire_fabric::policy::Balance;
use gradwire_netsim::results::statistics::slowdown;
use gradwire_netsim::setup::{Setup, Transport};
use gradwire_netsim::transports::irn::receiver::IrnReceiver;

use crate::world::{lines, micros, run, slow, took};

const SHAPE: &str = "fat-tree:k=6@40G,latency=2us,mtu=1064,framing=0,buffer=234KiB";
const ALL: [Transport; 8] = [
    Transport::RocePfc,
    Transport::Irn,
    Transport::IrnPfc,
    Transport::Roce,
    Transport::IrnDcqcn,
    Transport::IrnPfcDcqcn,
    Transport::IrnGoBack,
    Transport::IrnNoWindow,
];

fn with(transport: Transport, text: &str) -> Setup {
    let mut setup = lines(SHAPE, text, 1);
    setup.fabric.balance = Some(Balance::Ecmp);
    Setup { transport, ..setup }
}

/// Mean slowdown, and mean and 99th percentile of the completion time in microseconds.
fn figures(transport: Transport, text: &str) -> [f64; 3] {
    let outcome = run(&with(transport, text));
    let mut times: Vec<f64> = outcome
        .flows
        .iter()
        .map(|flow| micros(took(flow)))
        .collect();
    times.sort_unstable_by(f64::total_cmp);
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let slowdowns: Vec<f64> = outcome.flows.iter().filter_map(slowdown).collect();
    [
        mean(&slowdowns),
        mean(&times),
        times[times.len() * 99 / 100],
    ]
}

/// Table 1 of the paper without congestion control, and its ablations (figure 7).
#[test]
fn irn_without_pfc_beats_go_back_n_with_it() {
    if !slow() {
        return;
    }
    let all = ALL.map(|transport| {
        let [slowdown, mean, late] = figures(transport, "poisson:websearch@0.7:2ms");
        println!("{transport}: slowdown {slowdown:.2}, FCT {mean:.0}, p99 {late:.0} us");
        slowdown
    });
    assert!(all[1] < all[0], "IRN {}, RoCE with PFC {}", all[1], all[0]);
    assert!(all[1] < all[6], "IRN {}, with go-back-N {}", all[1], all[6]);
}

/// Figure 9 has 150 MB, which take as long without PFC as with it. Of 30 MB the timeouts of the
/// last flows are a larger part.
#[test]
fn an_incast_takes_a_fifth_longer_without_pfc() {
    if !slow() {
        return;
    }
    for text in ["incast:10x3MB", "incast:30x1MB", "incast:50x600KB"] {
        let last = [Transport::RocePfc, Transport::Irn].map(|transport| {
            let outcome = run(&with(transport, text));
            let times = outcome.flows.iter().map(|flow| micros(took(flow)));
            times.fold(0.0, f64::max)
        });
        println!(
            "{text}: RoCE with PFC {:.0}, IRN {:.0} us",
            last[0], last[1]
        );
        assert!(last[1] < 1.2 * last[0], "{text}: {last:?} us");
    }
}

/// Packets in a trace of the authors' simulator: an incast of 50 flows of 2,807 packets.
const LINES: usize = 140_361;

/// For each packet: whether a NACK answers it, the cumulative number, and the packet.
fn answers(input: &str) -> impl Iterator<Item = String> {
    let mut flows: BTreeMap<&str, IrnReceiver> = BTreeMap::new();
    input.lines().skip(1).map(move |line| {
        let words: Vec<&str> = line.split(' ').collect();
        let packet = words[2].parse().expect("a packet number");
        let flow = flows.entry(words[0]);
        let flow = flow.or_insert_with(|| IrnReceiver::new(u32::MAX));
        let reply = flow.reply(packet);
        let nack = u8::from(reply.beyond.is_some());
        format!("{nack} {} {packet} 0 0", reply.before)
    })
}

#[test]
fn every_reply_is_that_of_the_authors_hardware() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/golden/irn");
    let read = |name| std::fs::read_to_string(folder.join(name));
    let (Ok(input), Ok(output)) = (read("in.txt"), read("out.txt")) else {
        println!("skipped: the trace is not in {}", folder.display());
        return;
    };
    let differing = answers(&input).zip(output.lines());
    let differing = differing.filter(|(ours, theirs)| ours != theirs);
    assert_eq!(differing.count(), 0, "lines that differ");
    let lines = (answers(&input).count(), output.lines().count());
    assert_eq!(lines, (LINES, LINES));
}
