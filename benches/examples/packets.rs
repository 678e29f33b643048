//! Two ranks that reduce tensors over real sockets, for an instruction counter: rank 0 sends, rank
//! 1 receives and sums. `benches/packets.py` runs it, and tells a packet's parts apart.
//! Arguments: `sealed`, `checked` or `plain`; MTU, bytes of a tensor, number of tensors.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::{Receiver, channel};

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::communicator::Communicator;
use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_collectives::operation::{Collective, Group, Layers, LossTerms, Operation};
use gradwire_protocol::endpoint::Endpoint;
use gradwire_protocol::job::{Checksum, IdleMode, Job, Mtu, PacketCipher, PacketSecurity};
use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{JobId, Layer, Rank, Share, Step};
use gradwire_transport::control::PairSecrets;
use gradwire_transport::driver::{self, DrivePace, DriverLink, DriverSetup};
use gradwire_transport::lanes::AegisLanes;
use gradwire_transport::seal::Seal;
use gradwire_transport::wires::Wires;

/// A rank with its driver.
struct DrivenRank {
    link: DriverLink<Communicator>,
    ended: Receiver<Vec<u8>>,
    tensor: Vec<u8>,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [protection, mtu, bytes, count, tolerance] = words.as_slice() else {
        println!("usage: packets sealed|aes|checked|plain MTU BYTES TENSORS TOLERANCE");
        return;
    };
    let tolerance = tolerance.parse().ok().and_then(Share::new);
    let tolerance = tolerance.expect("a share from 0 to 1");
    let number = |text: &String| text.parse::<u32>().expect("a number");
    let mut job = Job::default();
    job.transport.mtu = Mtu::Bytes(number(mtu));
    (job.security, job.transport.checksum) = match protection.as_str() {
        "sealed" | "aes" => (PacketSecurity::Aead, Checksum::On),
        "checked" => (PacketSecurity::None, Checksum::On),
        _ => (PacketSecurity::None, Checksum::Off),
    };
    if protection == "aes" {
        job.cipher = PacketCipher::Aes128Gcm;
    }
    let mut ranks = ranks(&job, number(bytes));
    for sequence in 0..number(count) {
        for rank in &mut ranks {
            rank.reduce(sequence, tolerance);
        }
        for rank in &mut ranks {
            rank.tensor = rank.ended.recv().expect("the driver runs");
        }
    }
    let [sender, receiver] = ranks.map(|rank| rank.link.counters());
    println!(
        "packets {} calls {} {}",
        sender.sent_packets, sender.send_calls, receiver.receive_calls
    );
}

fn ranks(job: &Job, bytes: u32) -> [DrivenRank; 2] {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let wires = [0, 1].map(|rank| {
        let wires = Wires::open(&job.transport, loopback, Rank(rank));
        wires.expect("loopback has ports")
    });
    let addresses = [0, 1].map(|rank: usize| wires[rank].addresses().to_vec());
    let secrets = PairSecrets::try_from("5a".repeat(64)).expect("two secrets of 32 bytes");
    let mut wires = wires.into_iter().zip(0..);
    [(); 2].map(|()| {
        let (sockets, rank) = wires.next().expect("two of them");
        let identity = Identity {
            rank: Rank(rank),
            world_size: 2,
            job: JobId(1),
            epoch: 0,
        };
        let setup = DriverSetup {
            sockets,
            peers: addresses.to_vec(),
            seal: Seal::of(job, identity, &secrets, AegisLanes::of_this_host()),
            faults: None,
            neighbours: None,
            pace: DrivePace::without_callers(IdleMode::Block),
        };
        let (tell, ended) = channel();
        let machine = Communicator::new(Endpoint::new(identity, job, 1), job);
        let progress = move |machine: &mut Communicator| {
            while let Some(completion) = machine.poll_completion() {
                completion.result.expect("no rank fails");
                if let Buffer::Owned(tensor) = completion.buffer {
                    let _ = tell.send(tensor);
                }
            }
        };
        DrivenRank {
            link: driver::spawn(machine, setup, progress).expect("a thread"),
            ended,
            tensor: vec![0; bytes as usize],
        }
    })
}

impl DrivenRank {
    fn reduce(&mut self, sequence: u32, tolerance: Share) {
        let operation = Operation {
            group: Group {
                id: 0,
                ranks: [0, 1].map(Rank).into(),
            },
            sequence,
            collective: Collective::Reduce { root: Rank(1) },
            dtype: DType::F32,
            op: ReduceOp::Sum,
            buffer: Buffer::Owned(std::mem::take(&mut self.tensor)),
            input: None,
            splits: None,
            loss: LossTerms {
                tolerance,
                ..LossTerms::NONE
            },
            step: Step(sequence),
            layers: Layers {
                count: 1,
                spans: vec![(0, Layer(0))],
            },
            tensor_key: 0,
            deadline: None,
        };
        let submitted = self.link.submit(Box::new(move |machine, now| {
            machine.submit(now, operation).expect("a valid operation");
        }));
        submitted.expect("the driver runs");
    }
}
