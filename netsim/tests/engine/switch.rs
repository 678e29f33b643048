//! Switches do what their manuals say: strict priority, RED, shared memory, PFC, trimming.

use gradwire_fabric::policy::{Pause, QosPolicy, TrimDepth};
use gradwire_fabric::topology::Fabric;
use gradwire_netsim::engine::host::{Envelope, Load};
use gradwire_protocol::job::Job;
use gradwire_protocol::machine::Ecn;
use gradwire_protocol::units::{ByteCount, Dscp, Instant, Share, Span};

use crate::world::{Talked, fabric, packet, talk};

/// A full packet, and its time on a link of 100 Gb/s.
const BYTES: u32 = 4162;
const PACKET_TIME: Span = Span::from_picos(332_960);
/// Control, the highest and the lowest class of data.
const CONTROL: Dscp = Dscp(40);
const HIGH: Dscp = Dscp(34);
const LOW: Dscp = Dscp(0);

/// A switch with enough memory for all packets.
fn roomy(hosts: u32) -> Fabric {
    fabric(&format!("single:{hosts}@100G,buffer=64MiB"))
}

/// The policy of a job, whose thresholds are those of `packets` packets at 100 Gb/s; `None`: there
/// are none.
fn policy(packets: Option<u64>) -> QosPolicy {
    let rtt = PACKET_TIME * packets.unwrap_or(1);
    let mut policy = QosPolicy::of_job(&Job::default(), rtt);
    for queue in policy.queues.iter_mut().skip(1) {
        queue.marks_above = packets.map(|_| Share::ALL);
    }
    policy
}

/// `count` full packets at once, numbered by their urgency, which plays no part here.
fn burst(at: Span, count: u32, packet: Envelope) -> Vec<(Span, Envelope)> {
    let numbered = |urgency| (at, Envelope { urgency, ..packet });
    (0..count).map(numbered).collect()
}

fn of_class(dscp: Dscp, destination: u32, bytes: u32) -> Envelope {
    Envelope {
        dscp,
        ..packet(destination, bytes)
    }
}

fn arrivals(talked: &Talked, host: u32, dscp: Dscp) -> Vec<Instant> {
    let heard = talked.hosts[host as usize].heard.iter();
    heard
        .filter(|(_, envelope)| envelope.dscp == dscp)
        .map(|&(at, _)| at)
        .collect()
}

/// Over two links of 1 us: once on the host's, once on the switch's, and at most the rest of one
/// packet that is being sent already.
#[test]
fn a_packet_of_a_higher_class_passes_a_standing_queue() {
    let at = Span::from_micros(50);
    for (dscp, bytes) in [(CONTROL, 130), (HIGH, BYTES), (Dscp(8), BYTES)] {
        let queue = burst(Span::ZERO, 300, of_class(LOW, 3, BYTES));
        let plans = vec![
            queue.clone(),
            queue,
            vec![(at, of_class(dscp, 3, bytes))],
            vec![],
        ];
        let talked = talk(&roomy(4), &policy(None), plans);
        let alone = Span::from_picos(2 * 80 * u64::from(bytes)) + Span::from_micros(2);
        let [arrived] = arrivals(&talked, 3, dscp)[..] else {
            panic!("one was sent");
        };
        let delay = arrived.since(Instant::START + at);
        assert!(
            (alone..=alone + PACKET_TIME).contains(&delay),
            "{dscp:?}: {delay:?}"
        );
        assert!(talked.port_to(3).record.peak > 100 * u64::from(BYTES));
        assert_eq!(arrivals(&talked, 3, LOW).len(), 600);
    }
}

#[test]
fn a_packet_of_the_same_class_waits_for_the_whole_queue() {
    let at = Span::from_micros(50);
    let queue = burst(Span::ZERO, 300, of_class(LOW, 3, BYTES));
    let late = Envelope {
        urgency: 1_000,
        ..of_class(LOW, 3, BYTES)
    };
    let talked = talk(
        &roomy(4),
        &policy(None),
        vec![queue.clone(), queue, vec![(at, late)], vec![]],
    );
    let heard = &talked.hosts[3].heard;
    let before = heard
        .iter()
        .position(|(_, envelope)| envelope.urgency == 1_000);
    // Two arrive at the switch in the time in which one leaves.
    let expected = at.as_picos() / PACKET_TIME.as_picos() * 2;
    let before = before.expect("it arrives") as u64;
    assert!(
        before.abs_diff(expected) <= 3,
        "behind {before}, not {expected}"
    );
}

#[test]
fn a_low_class_starves_while_a_higher_one_fills_the_link_and_goes_on_after() {
    let high = burst(Span::ZERO, 200, of_class(HIGH, 2, BYTES));
    let low = burst(Span::from_nanos(100), 50, of_class(LOW, 2, BYTES));
    let talked = talk(&roomy(3), &policy(None), vec![high, low, vec![]]);
    let (high, low) = (arrivals(&talked, 2, HIGH), arrivals(&talked, 2, LOW));
    let last = high[199];
    assert_eq!(last.since(high[0]), PACKET_TIME * 199);
    let after = (1..=50).map(|n| last + PACKET_TIME * n);
    assert_eq!(low, after.collect::<Vec<_>>());
}

/// Two hosts send to a third at twice its rate: packets marked, dropped early and received.
fn red(first: Ecn, second: Ecn) -> (Talked, [usize; 2]) {
    let say = |ecn| {
        burst(
            Span::ZERO,
            200,
            Envelope {
                ecn,
                ..of_class(HIGH, 2, BYTES)
            },
        )
    };
    let talked = talk(
        &roomy(3),
        &policy(Some(10)),
        vec![say(first), say(second), vec![]],
    );
    let heard = [0, 1].map(|host| {
        let heard = talked.hosts[2].heard.iter();
        heard
            .filter(|(_, envelope)| envelope.source == host)
            .count()
    });
    (talked, heard)
}

/// Floyd and Jacobson 1993; RFC 3168 section 5: where ECT packets are marked, not-ECT ones are
/// dropped. Two full streams on one link leave half of their packets in the queue.
#[test]
fn above_the_threshold_ect_is_marked_and_not_dropped() {
    let (talked, heard) = red(Ecn::Ect, Ecn::Ect);
    let record = &talked.port_to(2).record;
    let counts = record.classes[1];
    assert_eq!(
        (heard, counts.dropped_early, counts.dropped_full),
        ([200, 200], 0, 0)
    );
    let marked = talked.hosts[2]
        .heard
        .iter()
        .filter(|(_, envelope)| envelope.ecn == Ecn::Ce);
    assert_eq!(marked.count() as u64, counts.marked);
    assert!(
        record.peak > 190 * u64::from(BYTES),
        "{} bytes",
        record.peak
    );
    // The queue passes 10 packets when about 20 have arrived.
    assert!(
        (375..=380).contains(&counts.marked),
        "{} marked",
        counts.marked
    );
}

#[test]
fn above_the_threshold_not_ect_is_dropped_so_that_the_queue_ends_there() {
    let (talked, heard) = red(Ecn::NotEct, Ecn::NotEct);
    let record = &talked.port_to(2).record;
    let counts = record.classes[1];
    assert_eq!(counts.marked, 0);
    assert_eq!(heard[0] + heard[1] + counts.dropped_early as usize, 400);
    assert_eq!(record.peak, 11 * u64::from(BYTES));
    // Once the queue is full, half of the arriving packets are dropped.
    assert!(
        (185..=192).contains(&counts.dropped_early),
        "{} dropped",
        counts.dropped_early
    );
}

#[test]
fn ect_takes_the_link_from_not_ect_above_the_threshold() {
    let (talked, [ect, not_ect]) = red(Ecn::Ect, Ecn::NotEct);
    let counts = talked.port_to(2).record.classes[1];
    assert_eq!(ect, 200);
    assert_eq!(not_ect + counts.dropped_early as usize, 200);
    assert!(not_ect < 40, "{not_ect} of 200 passed");
}

/// Choudhury and Hahne, IEEE/ACM ToN 1998, section III: of n ports that want more than there is,
/// each gets alpha / (1 + n alpha) of the memory.
#[test]
fn hot_ports_take_the_share_of_memory_that_their_factor_gives_them() {
    let memory = 4 << 20;
    for alpha in [0.25, 0.5, 1.0, 2.0, 8.0] {
        for hot in [1, 2] {
            let shape = format!("single:12@100G,mark=off,buffer=4MiB*{alpha}");
            let receivers = 12 - hot..12;
            let plan = |sender: u32| match sender {
                sender if sender < 10 => {
                    burst(Span::ZERO, 1000, packet(12 - hot + sender % hot, BYTES))
                }
                _ => Vec::new(),
            };
            let talked = talk(&fabric(&shape), &policy(None), (0..12).map(plan).collect());
            let expected = f64::from(memory) * alpha / (1.0 + f64::from(hot) * alpha);
            for receiver in receivers {
                let record = &talked.port_to(receiver).record;
                let off = record.peak as f64 - expected;
                assert!(
                    off.abs() < 2.0 * f64::from(BYTES),
                    "alpha {alpha}, {hot} hot: {} of {expected}",
                    record.peak
                );
                assert!(record.classes[1].dropped_full > 0);
            }
        }
    }
}

/// A low class fills its part of a port's memory, and then three hosts send this many packets each
/// in a high class: more than the link carries, so that the low class stands still.
fn contended(buffer: &str, packets: u32) -> Talked {
    let shape = format!("single:14@100G,mark=off,buffer={buffer}");
    let plan = |sender: u32| match sender {
        0..10 => burst(Span::ZERO, 200, of_class(LOW, 13, BYTES)),
        10..13 => {
            let high = of_class(HIGH, 13, BYTES);
            burst(Span::from_micros(30), packets, high)
        }
        _ => Vec::new(),
    };
    let plans = (0..14).map(plan).collect();
    talk(&fabric(&shape), &policy(None), plans)
}

/// Choudhury and Hahne, IEEE/ACM ToN 1998, section III, for classes: the first takes
/// alpha / (1 + alpha) of the memory B, and one above it, while the first stands still, the same
/// share of the rest: together B (1 - 1 / (1 + alpha)^2).
#[test]
fn a_low_class_leaves_a_higher_one_its_share_of_a_ports_memory() {
    let memory = 1 << 20;
    for alpha in [0.5, 1.0, 2.0, 8.0] {
        let talked = contended(&format!("1MiB/port*{alpha}"), 400);
        let peak = talked.port_to(13).record.peak as f64;
        let expected = f64::from(memory) * (1.0 - 1.0 / (1.0 + alpha) / (1.0 + alpha));
        let off = (peak - expected).abs();
        assert!(
            off < 3.0 * f64::from(BYTES),
            "{alpha}: {peak} of {expected}"
        );
    }
}

#[test]
fn a_burst_of_a_high_class_finds_room_only_where_queues_have_thresholds() {
    for (buffer, finds_room) in [("1MiB", false), ("1MiB/port*1", true)] {
        let talked = contended(buffer, 20);
        let dropped = talked.port_to(13).record.classes[1].dropped_full;
        assert_eq!(dropped == 0, finds_room, "{buffer}: {dropped} dropped");
    }
}

#[test]
fn one_class_alone_holds_the_share_of_a_ports_memory_that_its_factor_gives() {
    let memory = 1 << 20;
    for alpha in [0.25, 0.5, 1.0, 2.0, 8.0] {
        let shape = format!("single:12@100G,mark=off,buffer=1MiB/port*{alpha}");
        let plan = |sender: u32| match sender {
            0..10 => burst(Span::ZERO, 400, packet(11, BYTES)),
            _ => Vec::new(),
        };
        let talked = talk(&fabric(&shape), &policy(None), (0..12).map(plan).collect());
        let record = &talked.port_to(11).record;
        let expected = f64::from(memory) * alpha / (1.0 + alpha);
        let off = (record.peak as f64 - expected).abs();
        assert!(off < 2.0 * f64::from(BYTES), "{alpha}: {}", record.peak);
        assert!(record.classes[1].dropped_full > 0);
    }
}

#[test]
fn a_port_with_memory_of_its_own_drops_what_does_not_fit() {
    let plans = vec![
        burst(Span::ZERO, 200, packet(2, BYTES)),
        burst(Span::ZERO, 200, packet(2, BYTES)),
        vec![],
    ];
    let talked = talk(
        &fabric("single:3@100G,mark=off,buffer=100KiB"),
        &policy(None),
        plans,
    );
    let record = &talked.port_to(2).record;
    let fits = 100 * 1024 / u64::from(BYTES);
    assert_eq!(record.peak, fits * u64::from(BYTES));
    assert_eq!(
        talked.hosts[2].heard.len() as u64 + record.classes[1].dropped_full,
        400
    );
    assert!(record.classes[1].dropped_full > 150);
}

/// Seven hosts send to one behind the other leaf, an eighth to its neighbour. Gives when the
/// eighth's last packet came, and all else.
fn incast_beside_an_innocent(pause: Option<Pause>) -> (Span, Talked) {
    let fabric = fabric("leaf-spine:2x8x1@100G/400G,mark=off,buffer=1MiB");
    let plan = |host: u32| match host {
        0..7 => burst(Span::ZERO, 200, packet(8, BYTES)),
        7 => burst(Span::ZERO, 200, packet(9, BYTES)),
        _ => Vec::new(),
    };
    let policy = QosPolicy {
        pause,
        ..policy(None)
    };
    let talked = talk(&fabric, &policy, (0..16).map(plan).collect());
    let last = talked.hosts[9].heard.last().expect("some arrive");
    (last.0.since(Instant::START), talked)
}

fn drops(talked: &Talked) -> u64 {
    let classes = talked.ports.iter().flat_map(|port| &port.record.classes);
    classes.map(|class| class.dropped_full).sum()
}

fn paused(talked: &Talked) -> Span {
    let ports = talked.ports.iter();
    ports.fold(Span::ZERO, |sum, port| sum + port.record.paused)
}

/// IEEE 802.1Qbb; its head-of-line blocking as in Zhu et al., SIGCOMM 2015, section 2.2: the
/// innocent sender waits for the paused spine, and gets the rate of an eighth of the incast.
#[test]
fn pauses_save_an_incast_from_drops_and_slow_a_flow_that_has_no_part_in_it() {
    let bytes = |packets: u32| ByteCount::new(u64::from(packets * BYTES));
    let pause = Pause {
        above: bytes(20),
        below: bytes(10),
    };
    let (paced, with) = incast_beside_an_innocent(Some(pause));
    let (free, without) = incast_beside_an_innocent(None);
    assert_eq!(
        (
            drops(&with),
            with.hosts[8].heard.len(),
            with.hosts[9].heard.len()
        ),
        (0, 1400, 200)
    );
    assert!(
        paused(&with) > Span::from_micros(100),
        "{:?}",
        paused(&with)
    );
    assert!(drops(&without) > 0 && paused(&without) == Span::ZERO);
    assert!(paced > free * 3, "{paced:?} against {free:?}");
}

/// Handley et al., SIGCOMM 2017, section 3.1: above 8 packets only headers are queued, and they
/// pass all data.
#[test]
fn trimmed_packets_are_counted_and_their_headers_all_arrive_first() {
    let policy = QosPolicy {
        trims_to: Some(ByteCount::new(130)),
        trims_above: TrimDepth::Bytes(ByteCount::new(8 * u64::from(BYTES) - 1)),
        ..policy(None)
    };
    let say = || burst(Span::ZERO, 200, packet(2, BYTES));
    let talked = talk(&roomy(3), &policy, vec![say(), say(), vec![]]);
    let heard = &talked.hosts[2].heard;
    let trimmed = heard
        .iter()
        .filter(|(_, envelope)| envelope.load == Load::Trimmed);
    assert!(trimmed.clone().all(|(_, envelope)| envelope.bytes == 130));
    let (trimmed, record) = (trimmed.count() as u64, &talked.port_to(2).record);
    assert_eq!(
        (heard.len() as u64, record.classes[1].trimmed),
        (400, trimmed)
    );
    assert_eq!(drops(&talked), 0);
    // 400 full packets come in the time in which 200 leave; headers take their part of the link.
    assert!((185..=200).contains(&trimmed), "{trimmed} trimmed");
    assert!(
        record.peak <= 8 * u64::from(BYTES) + 20 * 130,
        "{} bytes",
        record.peak
    );
}
