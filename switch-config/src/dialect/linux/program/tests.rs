//! Runs the program on a small interpreter, and compares it with a model of strict queues. Tests of
//! the command show that the kernel accepts and runs it.

use gradwire_protocol::job::Job;
use gradwire_protocol::units::{ByteCount, Rate, Span};
use proptest::prelude::*;

use super::*;
use crate::dialect::{self, Dialect};
use crate::plan::Site;
use crate::target::SwitchTarget;
use gradwire_fabric::policy::{QosPolicy, SwitchBuffer};

/// Addresses that the program sees: the end of its stack, the packet and the state.
const STACK_END: u64 = 0x1_0000_0200;
const PACKET_AT: u64 = 0x2_0000_0000;
const STATE_AT: u64 = 0x3_0000_0000;

/// A packet as the program sees it.
#[derive(Clone, Debug)]
struct TestPacket {
    at_ns: u64,
    bytes: u32,
    ethernet: u16,
    header: [u8; 8],
}

impl TestPacket {
    fn ipv4(at_ns: u64, bytes: u32, dscp: u8, ecn: u8) -> Self {
        let header = [0x45, dscp << 2 | ecn, 0, 0, 0, 0, 0, 0];
        Self {
            at_ns,
            bytes,
            ethernet: 0x0800,
            header,
        }
    }

    fn ecn(&self) -> u8 {
        match self.ethernet {
            0x86dd => self.header[1] >> 4 & 3,
            _ => self.header[1] & 3,
        }
    }

    fn ipv6(at_ns: u64, bytes: u32, dscp: u8, ecn: u8) -> Self {
        let class = dscp << 2 | ecn;
        let header = [0x60 | class >> 4, class << 4, 0, 0, 0, 0, 17, 64];
        Self {
            ethernet: 0x86dd,
            header,
            ..Self::ipv4(at_ns, bytes, dscp, ecn)
        }
    }
}

/// The outcome for a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum PacketFate {
    Passed,
    Marked,
    Dropped,
}

/// An interpreter for the program of a port.
struct Interpreter {
    code: Vec<u8>,
    registers: [u64; 11],
    stack: [u8; 512],
    state: Vec<u8>,
    marked: bool,
}

impl Interpreter {
    fn new(plan: &Plan) -> Self {
        Self {
            code: of_port(plan, &plan.site.ports[0]).bytes,
            registers: [0; 11],
            stack: [0; 512],
            state: vec![0; STATE_NUMBERS * 8],
            marked: false,
        }
    }

    fn number(&self, at: usize) -> u64 {
        let bytes = self.state[at * 8..][..8].try_into();
        u64::from_le_bytes(bytes.expect("eight bytes"))
    }

    fn run(&mut self, packet: &TestPacket) -> PacketFate {
        self.registers = [0; 11];
        self.registers[1] = PACKET_AT;
        self.registers[10] = STACK_END;
        self.marked = false;
        let mut at = 0_usize;
        for _ in 0..4096 {
            let slot: [u8; 8] = self.code[at * 8..][..8].try_into().expect("an instruction");
            at += 1;
            match slot[0] {
                0x95 => {
                    return match (self.registers[0] as i64, self.marked) {
                        (-1, false) => PacketFate::Passed,
                        (-1, true) => PacketFate::Marked,
                        (2, _) => PacketFate::Dropped,
                        other => panic!("returned {other:?}"),
                    };
                }
                0x85 => self.call(&slot, packet),
                0x18 => {
                    let high: [u8; 4] = self.code[at * 8 + 4..][..4].try_into().expect("four");
                    let low = u64::from(number(&slot) as u32);
                    let high = u64::from(u32::from_le_bytes(high));
                    self.registers[usize::from(slot[1] & 15)] = high << 32 | low;
                    at += 1;
                }
                _ if self.step(&slot, packet) => {
                    let offset = i16::from_le_bytes([slot[2], slot[3]]);
                    at = at
                        .checked_add_signed(offset.into())
                        .expect("within the program");
                }
                _ => {}
            }
        }
        panic!("the program does not end");
    }

    /// Runs an instruction that is no call. Returns whether it jumps.
    fn step(&mut self, slot: &[u8; 8], packet: &TestPacket) -> bool {
        let [to, from] = [slot[1] & 15, slot[1] >> 4].map(usize::from);
        let offset = i16::from_le_bytes([slot[2], slot[3]]);
        let operand = match slot[0] & 8 {
            0 => number(slot) as i64 as u64,
            _ => self.registers[from],
        };
        let left = self.registers[to];
        match slot[0] {
            0xdc => self.registers[to] = u64::from((left as u16).swap_bytes()),
            code if code & 7 == 7 => {
                self.registers[to] = match code & 0xf0 {
                    0x00 => left.wrapping_add(operand),
                    0x10 => left.wrapping_sub(operand),
                    0x20 => left.wrapping_mul(operand),
                    0x50 => left & operand,
                    0x70 => left >> operand,
                    0xb0 => operand,
                    other => panic!("operation {other:#x}"),
                };
            }
            code if code & 7 == 5 => {
                return match code & 0xf0 {
                    0x00 => true,
                    0x10 => left == operand,
                    0x50 => left != operand,
                    0xa0 => left < operand,
                    0xb0 => left <= operand,
                    other => panic!("condition {other:#x}"),
                };
            }
            code if code & 7 == 1 => {
                let address = self.registers[from].wrapping_add_signed(offset.into());
                self.registers[to] = self.load(address, width(code), packet);
            }
            code => {
                let address = left.wrapping_add_signed(offset.into());
                let value = self.registers[from].to_le_bytes();
                self.store(address, &value[..width(code)]);
            }
        }
        false
    }

    fn load(&self, address: u64, width: usize, packet: &TestPacket) -> u64 {
        let mut bytes = [0; 8];
        match address {
            PACKET_AT => bytes[..4].copy_from_slice(&packet.bytes.to_le_bytes()),
            at if at == PACKET_AT + 16 => {
                bytes[..2].copy_from_slice(&packet.ethernet.to_be_bytes());
            }
            at if at >= STATE_AT => {
                bytes[..width].copy_from_slice(&self.state[(at - STATE_AT) as usize..][..width]);
            }
            at => {
                let at = 512 - (STACK_END - at) as usize;
                bytes[..width].copy_from_slice(&self.stack[at..][..width]);
            }
        }
        u64::from_le_bytes(bytes)
    }

    fn store(&mut self, address: u64, bytes: &[u8]) {
        let (room, at) = match address {
            at if at >= STATE_AT => (&mut self.state[..], (at - STATE_AT) as usize),
            at => (&mut self.stack[..], 512 - (STACK_END - at) as usize),
        };
        room[at..][..bytes.len()].copy_from_slice(bytes);
    }

    fn call(&mut self, slot: &[u8; 8], packet: &TestPacket) {
        let result = match number(slot) {
            kernel::MAP_LOOKUP_ELEM => STATE_AT,
            kernel::KTIME_GET_NS => packet.at_ns,
            kernel::SKB_ECN_SET_CE => {
                self.marked = packet.ecn() != 0;
                u64::from(self.marked)
            }
            kernel::SKB_LOAD_BYTES_RELATIVE => {
                let [_, offset, to, bytes, _] = [1, 2, 3, 4, 5].map(|at| self.registers[at]);
                let found = &packet.header[offset as usize..][..bytes as usize];
                self.store(to, found);
                0
            }
            other => panic!("no function {other}"),
        };
        self.registers[..6].fill(0xdead_0000_dead_0000);
        self.registers[0] = result;
    }
}

fn number(slot: &[u8; 8]) -> i32 {
    i32::from_le_bytes([slot[4], slot[5], slot[6], slot[7]])
}

fn width(code: u8) -> usize {
    match code & 0x18 {
        0x00 => 4,
        0x08 => 2,
        0x10 => 1,
        _ => 8,
    }
}

/// The default job on a port of 100 Mb/s and 10 ms: 125,000 bytes.
fn plan() -> Plan {
    plan_of(&Job::default())
}

fn plan_of(job: &Job) -> Plan {
    let target = SwitchTarget::read("linux:bpf").expect("a target");
    let dialect: &dyn Dialect = dialect::of(target.platform);
    let policy = QosPolicy::of_job(job, Span::from_micros(10_000));
    let site = Site {
        origin: "a test".to_owned(),
        ports: vec![SwitchPort {
            name: "swp0".to_owned(),
            rate: Rate::from_bits_per_second(100_000_000),
        }],
        buffer: SwitchBuffer::PerPort(ByteCount::new(300_000)),
    };
    Plan::new(target, &dialect.limits("bpf"), &policy, site).expect("it fits")
}

/// A model of strict queues on a link of 80 ns per byte, first queue first.
#[derive(Default)]
struct QueueModel {
    depths_ns: [u64; 8],
    last_ns: u64,
}

impl QueueModel {
    fn fate(&mut self, packet: &TestPacket, band: usize, ecn: u8) -> PacketFate {
        let mut sent = packet.at_ns - self.last_ns;
        self.last_ns = packet.at_ns;
        for depth in &mut self.depths_ns {
            let part = sent.min(*depth);
            *depth -= part;
            sent -= part;
        }
        let depth = &mut self.depths_ns[band];
        let deep = band >= 2 && *depth >= 125_000 * 80;
        if deep && ecn == 0 {
            return PacketFate::Dropped;
        }
        let after = *depth + u64::from(packet.bytes) * 80;
        if after <= 300_000 * 80 {
            *depth = after;
        }
        if deep {
            PacketFate::Marked
        } else {
            PacketFate::Passed
        }
    }
}

/// DSCPs of the default job and of other traffic, with their bands.
const BANDS_OF: [(u8, usize); 10] = [
    (46, 0),
    (48, 0),
    (40, 1),
    (34, 2),
    (26, 3),
    (18, 4),
    (10, 5),
    (8, 6),
    (0, 7),
    (63, 7),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn packets_fare_as_in_the_model(
        packets in prop::collection::vec(
            (0_u64..60_000, 64_u32..1515, 0_usize..10, 0_u8..4, any::<bool>()),
            0..2000,
        ),
    ) {
        let mut interpreter = Interpreter::new(&plan());
        let mut model = QueueModel::default();
        let mut counts = [[0_u64; 3]; 8];
        let mut now = 0;
        for (gap, bytes, row, ecn, is_ipv4) in packets {
            now += gap;
            let (dscp, band) = BANDS_OF[row];
            let packet = match is_ipv4 {
                true => TestPacket::ipv4(now, bytes, dscp, ecn),
                false => TestPacket::ipv6(now, bytes, dscp, ecn),
            };
            let fate = interpreter.run(&packet);
            prop_assert_eq!(fate, model.fate(&packet, band, ecn), "{:?}", packet);
            counts[band][fate as usize] += 1;
        }
        for (band, [passed, marked, dropped]) in counts.into_iter().enumerate() {
            prop_assert_eq!(interpreter.number(PASSED_AT + band), passed + marked);
            prop_assert_eq!(interpreter.number(MARKED_AT + band), marked);
            prop_assert_eq!(interpreter.number(EARLY_AT + band), dropped);
        }
    }
}

/// Gradients fill the link twice, others a quarter of it, of which 30 % is theirs.
#[test]
fn others_within_their_share_pass_beside_a_flood() {
    let fates = |job: &Job, ecn| {
        let mut interpreter = Interpreter::new(&plan_of(job));
        let mut fates = Vec::new();
        for number in 0..20_000_u64 {
            let at = number * 60_000;
            let packet = |dscp| TestPacket::ipv4(at, 1500, dscp, ecn);
            interpreter.run(&packet(34));
            if number % 8 == 0 {
                fates.push(interpreter.run(&packet(0)));
            }
        }
        fates
    };
    let mut job = Job::default();
    let below = fates(&job, 0);
    assert!(below.contains(&PacketFate::Dropped));
    job.set("priority.untagged", "30%").expect("a share");
    assert!(
        fates(&job, 0)
            .iter()
            .all(|fate| *fate == PacketFate::Passed)
    );
    job.set("priority.untagged", "20%").expect("a share");
    assert!(
        fates(&job, 0)
            .iter()
            .all(|fate| *fate == PacketFate::Passed),
        "not ECT"
    );
    assert!(fates(&job, 1).contains(&PacketFate::Marked));
}

#[test]
fn arp_and_neighbour_discovery_go_first() {
    let mut interpreter = Interpreter::new(&plan());
    let arp = TestPacket {
        ethernet: 0x0806,
        ..TestPacket::ipv4(0, 60, 0, 0)
    };
    let mut solicitation = TestPacket::ipv6(0, 86, 0, 0);
    solicitation.header[6..].copy_from_slice(&[58, 255]);
    for _ in 0..10_000 {
        assert_eq!(interpreter.run(&arp), PacketFate::Passed);
        assert_eq!(interpreter.run(&solicitation), PacketFate::Passed);
    }
    assert_eq!(interpreter.number(PASSED_AT), 20_000);
}

#[test]
fn queues_are_empty_after_long_idle_times() {
    let mut interpreter = Interpreter::new(&plan());
    let fates = |interpreter: &mut Interpreter, at_ns: u64| -> Vec<PacketFate> {
        let packet = TestPacket::ipv4(at_ns, 1500, 34, 0);
        (0..100).map(|_| interpreter.run(&packet)).collect()
    };
    let day = 86_400_000_000_000;
    for times in 1..4 {
        let fates = fates(&mut interpreter, times * day);
        // 84 packets of 1,500 bytes are the first depth of 125,000 bytes or more.
        assert_eq!(fates[83], PacketFate::Passed);
        assert_eq!(fates[84], PacketFate::Dropped);
    }
}
