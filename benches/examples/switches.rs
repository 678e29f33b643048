//! Times of single all-reduces of two ranks over loopback, as a histogram, and what an operation
//! costs the thread of a rank: processor time, the wait for a core, and switches of threads.
//! Arguments: `sealed`, `aes` or `plain`, MTU, bytes of a tensor, number of operations, and units
//! of other work between two operations, of about a microsecond each. Two more are optional: the
//! shares that are tolerated and dropped. Bytes are a multiple of 4.
//!
//! ```text
//! cargo build --release -p gradwire-benches --example switches
//! target/release/examples/switches sealed 1500 65536 10000 0
//! ```

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::{Duration, Instant};

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_collectives::operation::{Collective, Group, Layers, LossTerms, Operation};
use gradwire_protocol::job::{Job, Mtu, PacketCipher, PacketSecurity, WireChoice};
use gradwire_protocol::units::{Rank, Share, Span, Step};
use gradwire_runtime::{LocalRank, OpenRank, Opening, RankTask};

const PATIENCE: Duration = Duration::from_secs(30);
/// Operations before the counted ones.
const WARM_UP: u32 = 50;

/// What the kernel has counted for a thread.
#[derive(Clone, Copy)]
struct ThreadCounts {
    running: f64,
    waiting: f64,
    voluntary: f64,
    involuntary: f64,
}

impl ThreadCounts {
    /// Of this thread, times in microseconds.
    fn now() -> Self {
        let read = |name: &str| {
            let text = fs::read_to_string(format!("/proc/thread-self/{name}"));
            text.expect("Linux has it")
        };
        let numbers = |text: &str| -> Vec<f64> {
            let words = text.split_whitespace();
            words.filter_map(|word| word.parse().ok()).collect()
        };
        let (times, status) = (numbers(&read("schedstat")), read("status"));
        let switches: Vec<f64> = status
            .lines()
            .filter(|line| line.contains("ctxt_switches"))
            .flat_map(numbers)
            .collect();
        Self {
            running: times[0] / 1e3,
            waiting: times[1] / 1e3,
            voluntary: switches[0],
            involuntary: switches[1],
        }
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [protection, mtu, bytes, count, pause, shares @ ..] = words.as_slice() else {
        println!("usage: switches sealed|aes|plain MTU BYTES OPERATIONS WORK [TOLERANCE [DROP]]");
        return;
    };
    let number = |text: &String| text.parse::<u32>().expect("a number");
    let mut job = Job::default();
    job.transport.wire = WireChoice::Udp;
    job.transport.mtu = Mtu::Bytes(number(mtu));
    match protection.as_str() {
        "plain" => job.security = PacketSecurity::None,
        "aes" => job.cipher = PacketCipher::Aes128Gcm,
        _ => {}
    }
    let share = |at: usize| {
        let text = shares.get(at).map_or("0", String::as_str);
        Share::new(text.parse().expect("a number")).expect("a share")
    };
    job.tolerance = share(0);
    job.faults.drop = share(1);
    let (bytes, count) = (number(bytes) as usize, number(count));
    let pause = number(pause);
    let ranks = [0, 1].map(|rank| open(rank, &job));
    let rendezvous = ranks[0].rendezvous().expect("rank 0 listens").to_string();
    thread::scope(|scope| {
        for rank in ranks {
            let rendezvous = &rendezvous;
            scope.spawn(move || {
                let rank = rank.join(rendezvous, PATIENCE).expect("equal jobs");
                work(&rank, bytes, count, pause);
                rank.close(PATIENCE);
            });
        }
    });
}

/// 32-bit floats whose magnitudes change from one KiB to the next, as gradients' do.
fn values(bytes: usize) -> Vec<u8> {
    let value = |at: usize| {
        let block = (at / 256) as u32;
        let octave = block.wrapping_mul(0x9E37_79B9) >> 29;
        1.0 / (1_u32 << octave) as f32
    };
    (0..bytes / 4)
        .flat_map(|at| value(at).to_le_bytes())
        .collect()
}

fn open(rank: u16, job: &Job) -> OpenRank {
    let opened = OpenRank::open(Opening {
        job: job.clone(),
        rank: Rank(rank),
        world_size: 2,
        bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
        port: 0,
        token: "secret".to_owned(),
        certificates: None,
    });
    opened.expect("loopback has ports")
}

fn work(rank: &LocalRank, bytes: usize, count: u32, pause: u32) {
    let values = values(bytes);
    let mut tensor = values.clone();
    for sequence in 0..WARM_UP {
        tensor.copy_from_slice(&values);
        tensor = all_reduce(rank, sequence, tensor);
    }
    let before = ThreadCounts::now();
    let mut times = Vec::new();
    for sequence in WARM_UP..WARM_UP + count {
        tensor.copy_from_slice(&values);
        compute(pause);
        let start = now();
        tensor = all_reduce(rank, sequence, tensor);
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    let after = ThreadCounts::now();
    if rank.rank() != Rank(0) {
        return;
    }
    let each = |of: fn(&ThreadCounts) -> f64| (of(&after) - of(&before)) / f64::from(count);
    println!(
        "an operation: {:.1} us running, {:.1} us waiting for a core; switches: {:.2} by itself, \
         {:.2} by others",
        each(|counts| counts.running),
        each(|counts| counts.waiting),
        each(|counts| counts.voluntary),
        each(|counts| counts.involuntary),
    );
    let metrics = rank.metrics().expect("the rank is open");
    println!("with warm-up: {:?}", metrics.driver);
    let peer = &metrics.peers[0];
    let repaired = peer.classes.iter().map(|class| class.repaired_segments);
    println!(
        "packets, with warm-up: {} segments, {} of them again, {} found lost, {} PROBE, {} PARITY",
        peer.sent_segments,
        repaired.sum::<u64>(),
        peer.found_lost_segments,
        peer.probes,
        peer.parity_packets,
    );
    times.sort_by(f64::total_cmp);
    let share = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    println!(
        "time: median {:.1} us, 90 % {:.1}, 99 % {:.1}, longest {:.1}",
        share(0.5),
        share(0.9),
        share(0.99),
        share(1.0)
    );
    histogram(&times);
}

/// Prints how many of the sorted times lie in each bucket of a quarter of an octave.
fn histogram(times: &[f64]) {
    let bucket = |time: f64| (time.log2() * 4.0).floor() as i32;
    for group in times.chunk_by(|a, b| bucket(*a) == bucket(*b)) {
        let share = group.len() as f64 / times.len() as f64;
        let bar = "#".repeat((share * 200.0).ceil() as usize);
        let from = 2_f64.powf(f64::from(bucket(group[0])) / 4.0);
        println!("{from:>10.1} us {:>6} {bar}", group.len());
    }
}

fn all_reduce(rank: &LocalRank, sequence: u32, tensor: Vec<u8>) -> Vec<u8> {
    let operation = Operation {
        group: Group {
            id: 0,
            ranks: [0, 1].map(Rank).into(),
        },
        sequence,
        collective: Collective::AllReduce,
        dtype: DType::F32,
        op: ReduceOp::Sum,
        buffer: Buffer::Owned(tensor),
        input: None,
        splits: None,
        loss: LossTerms {
            tolerance: rank.job().tolerance,
            holes: rank.job().holes,
            ..LossTerms::NONE
        },
        step: Step(sequence),
        layers: Layers::default(),
        tensor_key: 1,
        deadline: None,
    };
    let timeout = Some(Span::from_millis(PATIENCE.as_millis() as u64));
    let ended = rank.run(RankTask { operation, timeout });
    match ended.expect("nothing fails").buffer {
        Buffer::Owned(tensor) => tensor,
        _ => unreachable!("it was given as owned"),
    }
}

/// Computes for about a microsecond per unit.
fn compute(units: u32) {
    for step in 0..units * 2_000 {
        std::hint::black_box(step);
    }
}

#[expect(clippy::disallowed_methods, reason = "it measures time")]
fn now() -> Instant {
    Instant::now()
}
