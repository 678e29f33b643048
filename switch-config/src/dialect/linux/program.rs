//! The eBPF program that does for a port what `red ecn` in each queue of `prio` would do.
//!
//! The program stands at the root of HTB, before the filters that choose a class. The kernel calls
//! it with one packet at a time, under the lock of the port.
//!
//! - It keeps the depth that each queue would have on a link of exactly this rate. At each packet
//!   it subtracts the bytes that the link has sent since the last one: from a queue of others its
//!   share, and from all queues the rest, first queue first.
//! - If the packet's queue is at its threshold or above, the program marks an ECT packet and drops
//!   any other.
//! - Depths are in femtoseconds of the link's time, so that the program never divides.
//! - The state is one array of [`STATE_NUMBERS`] numbers of 64 bits in bpffs, which people and
//!   programs can read.

use gradwire_protocol::units::Rate;

use super::assembler::{
    Alu, Assembler, Condition, JumpLabel, MemoryOperand, MemoryWidth, R0, R1, R2, R3, R4, R5,
    Register,
};
use super::form::BANDS;
use crate::plan::{Plan, PlanQueue, Purpose, SwitchPort};

/// Where the depths begin in the state. Number 0 is the time of the last packet in ns.
const DEPTHS_AT: usize = 1;
/// Where the counts of passed packets begin, by band; marked packets are among them.
pub(super) const PASSED_AT: usize = DEPTHS_AT + BANDS as usize;
/// Where the counts of marked packets begin.
pub(super) const MARKED_AT: usize = PASSED_AT + BANDS as usize;
/// Where the counts of packets that were dropped early begin.
pub(super) const EARLY_AT: usize = MARKED_AT + BANDS as usize;
/// Numbers of the state.
pub(super) const STATE_NUMBERS: usize = EARLY_AT + BANDS as usize;

/// Helper functions of the kernel by their number (linux/bpf.h).
mod kernel {
    /// `bpf_map_lookup_elem`.
    pub(super) const MAP_LOOKUP_ELEM: i32 = 1;
    /// `bpf_ktime_get_ns`.
    pub(super) const KTIME_GET_NS: i32 = 5;
    /// `bpf_skb_load_bytes_relative`.
    pub(super) const SKB_LOAD_BYTES_RELATIVE: i32 = 68;
    /// `bpf_skb_ecn_set_ce`.
    pub(super) const SKB_ECN_SET_CE: i32 = 97;
}

/// Offsets in `struct __sk_buff`.
const LENGTH: i16 = 0;
const PROTOCOL: i16 = 16;
/// Ethernet types in the byte order in which `__sk_buff` has them.
const IPV4: i32 = 0x0800_u16.swap_bytes() as i32;
const IPV6: i32 = 0x86dd_u16.swap_bytes() as i32;
const ARP: i32 = 0x0806_u16.swap_bytes() as i32;

/// Return values (linux/pkt_cls.h): go on to the filters that choose a class, or drop.
const TC_ACT_UNSPEC: i32 = -1;
const TC_ACT_SHOT: i32 = 2;

// Registers that helper functions preserve.
/// The packet.
const PACKET: Register = Register(6);
/// The state.
const STATE: Register = Register(7);
/// The byte of DSCP and ECN.
const FIELD: Register = Register(8);
/// The threshold of the packet's queue, and after its use the numbers of that queue.
const THRESHOLD: Register = Register(9);
const QUEUE: Register = Register(9);
const STACK: Register = Register(10);

/// Bits by which a share of the link is a whole number.
const SHARE_BITS: i32 = 10;
/// Idle time after which every queue is empty: 2^40 ns, 18 minutes. A longer one would overflow.
const IDLE_MOST_NS: u64 = 1 << 40;
const FEMTOS_PER_NANO: i32 = 1_000_000;
/// The threshold of a queue that never marks: no depth is as large.
const NEVER: u64 = u64::MAX;

/// The program of a port.
pub(super) struct BpfProgram {
    /// Instructions.
    pub(super) bytes: Vec<u8>,
    /// Offset of the instruction that loads the map, in bytes.
    pub(super) map_at: usize,
}

/// The program for a port.
pub(super) fn of_port(plan: &Plan, port: &SwitchPort) -> BpfProgram {
    let mut writer = ProgramWriter {
        code: Assembler::default(),
        plan,
        port,
    };
    let map_at = writer.look_up_state();
    writer.drain_queues();
    let code = &mut writer.code;
    let targets = FieldTargets {
        urgent: code.label(),
        known: code.label(),
    };
    writer.read_field(&targets);
    writer.code.bind(targets.known);
    let chosen = writer.code.label();
    writer.choose_queue(targets.urgent, chosen);
    writer.code.bind(chosen);
    writer.decide();
    let bytes = writer.code.bytes();
    BpfProgram { bytes, map_at }
}

/// Femtoseconds that a byte takes.
fn femtos_per_byte(rate: Rate) -> u64 {
    8_000_000_000_000_000 / rate.as_bits_per_second().max(1)
}

/// A number of the state, or of a queue in it.
fn number_at(base: Register, number: usize) -> MemoryOperand {
    base.at((number * 8) as i16)
}

/// Where [`ProgramWriter::read_field`] goes on.
struct FieldTargets {
    /// The packet goes to the first queue, whatever its DSCP.
    urgent: JumpLabel,
    /// The byte of DSCP and ECN is in [`FIELD`].
    known: JumpLabel,
}

/// Writes the program of one port, part by part.
struct ProgramWriter<'a> {
    code: Assembler,
    plan: &'a Plan,
    port: &'a SwitchPort,
}

impl ProgramWriter<'_> {
    /// Finds the state in the map; returns the offset of the instruction that loads the map.
    fn look_up_state(&mut self) -> usize {
        let code = &mut self.code;
        code.alu(Alu::Mov, PACKET, R1);
        code.alu(Alu::Mov, R1, 0);
        code.store(MemoryWidth::Word, STACK.at(-4), R1);
        let map_at = code.load_map(R1);
        code.alu(Alu::Mov, R2, STACK);
        code.alu(Alu::Add, R2, -4);
        code.call(kernel::MAP_LOOKUP_ELEM);
        let found = code.label();
        code.jump_if(Condition::Ne, R0, 0, found);
        code.exit(TC_ACT_UNSPEC);
        code.bind(found);
        code.alu(Alu::Mov, STATE, R0);
        map_at
    }

    /// Takes from the queues, first queue first, the bytes that the link has sent since the last
    /// packet.
    fn drain_queues(&mut self) {
        let code = &mut self.code;
        code.call(kernel::KTIME_GET_NS);
        code.load(MemoryWidth::Double, R1, STATE.at(0));
        code.store(MemoryWidth::Double, STATE.at(0), R0);
        code.alu(Alu::Sub, R0, R1);
        code.load_imm64(R1, IDLE_MOST_NS);
        let short = code.label();
        code.jump_if(Condition::Le, R0, R1, short);
        code.alu(Alu::Mov, R0, R1);
        code.bind(short);
        code.alu(Alu::Mul, R0, FEMTOS_PER_NANO);
        self.drain_others();
        for band in 0..usize::from(BANDS) {
            drain(&mut self.code, band, R0);
        }
    }

    /// Takes from the queue of others its share of what the link has sent, before the others get
    /// the rest.
    fn drain_others(&mut self) {
        let others = self.plan.queues.last();
        let others = others.filter(|queue| queue.purpose == Purpose::Others);
        let Some((queue, percent)) = others.and_then(|queue| Some((queue, queue.percent()?)))
        else {
            return;
        };
        let code = &mut self.code;
        code.alu(Alu::Mov, R3, R0);
        code.alu(Alu::Rsh, R3, SHARE_BITS);
        code.alu(Alu::Mul, R3, (i32::from(percent) << SHARE_BITS) / 100);
        code.alu(Alu::Sub, R0, R3);
        drain(code, usize::from(BANDS - 1 - queue.number), R3);
        code.alu(Alu::Add, R0, R3);
    }

    /// Reads the byte of DSCP and ECN. ARP and neighbour discovery are urgent: without them no
    /// other packet passes.
    fn read_field(&mut self, targets: &FieldTargets) {
        let code = &mut self.code;
        code.alu(Alu::Mov, FIELD, 0);
        code.load(MemoryWidth::Word, R1, PACKET.at(PROTOCOL));
        let [ipv4, ipv6, unread] = [code.label(), code.label(), code.label()];
        code.jump_if(Condition::Eq, R1, IPV4, ipv4);
        code.jump_if(Condition::Eq, R1, IPV6, ipv6);
        code.jump_if(Condition::Eq, R1, ARP, targets.urgent);
        code.jump(targets.known);

        code.bind(ipv4);
        load_header(code, 2);
        code.jump_if(Condition::Ne, R0, 0, unread);
        code.load(MemoryWidth::Byte, FIELD, STACK.at(-15));
        code.jump(targets.known);

        code.bind(ipv6);
        load_header(code, 8);
        code.jump_if(Condition::Ne, R0, 0, unread);
        code.load(MemoryWidth::Half, FIELD, STACK.at(-16));
        code.be16(FIELD);
        code.alu(Alu::Rsh, FIELD, 4);
        code.alu(Alu::And, FIELD, 0xff);
        // Next header ICMPv6 at hop limit 255 is neighbour discovery (RFC 4861).
        code.load(MemoryWidth::Half, R1, STACK.at(-10));
        code.be16(R1);
        code.jump_if(Condition::Eq, R1, 0x3aff, targets.urgent);
        code.jump(targets.known);

        code.bind(unread);
        code.exit(TC_ACT_UNSPEC);
    }

    /// Puts the threshold of the queue to which the DSCP leads into [`THRESHOLD`], and the offset
    /// of that queue's numbers into r3. Packets that arrive at `urgent` go to the first queue.
    fn choose_queue(&mut self, urgent: JumpLabel, chosen: JumpLabel) {
        let code = &mut self.code;
        let rate = self.port.rate;
        code.alu(Alu::Mov, R1, FIELD);
        code.alu(Alu::Rsh, R1, 2);
        let mut queues: Vec<(&PlanQueue, JumpLabel)> = Vec::new();
        for queue in &self.plan.queues {
            let label = code.label();
            for dscp in queue.dscps.iter().chain(&queue.droppable) {
                code.jump_if(Condition::Eq, R1, i32::from(dscp.0), label);
            }
            queues.push((queue, label));
        }
        // Falls through into the last queue, which takes the DSCPs that no queue names.
        for (at, (queue, label)) in queues.iter().enumerate().rev() {
            code.bind(*label);
            if at == 0 {
                code.bind(urgent);
            }
            let profile = self.plan.profile(queue, self.port);
            let depth = profile.map_or(NEVER, |profile| {
                profile.threshold.low_bytes() * femtos_per_byte(rate)
            });
            code.load_imm64(THRESHOLD, depth);
            code.alu(Alu::Mov, R3, i32::from(BANDS - 1 - queue.number) * 8);
            // Marks whatever comes: the kernel sets CE on ECT packets only.
            if queue.purpose == Purpose::Others {
                code.alu(Alu::Mov, FIELD, 1);
            }
            code.jump(chosen);
        }
    }

    /// Marks, drops, or passes the packet, and counts it.
    fn decide(&mut self) {
        let code = &mut self.code;
        let femtos_per_byte = femtos_per_byte(self.port.rate);
        let [enters, drops] = [code.label(), code.label()];
        code.alu(Alu::Mov, R4, STATE);
        code.alu(Alu::Add, R4, R3);
        code.load(MemoryWidth::Double, R2, number_at(R4, DEPTHS_AT));
        code.alu(Alu::Mov, R1, THRESHOLD);
        code.alu(Alu::Mov, QUEUE, R4);
        code.jump_if(Condition::Lt, R2, R1, enters);
        code.alu(Alu::And, FIELD, 3);
        code.jump_if(Condition::Eq, FIELD, 0, drops);
        code.alu(Alu::Mov, R1, PACKET);
        code.call(kernel::SKB_ECN_SET_CE);
        code.jump_if(Condition::Eq, R0, 0, enters);
        code.increment(number_at(QUEUE, MARKED_AT));

        // The depth grows by the packet, unless the queue has no room for it and drops it.
        code.bind(enters);
        code.increment(number_at(QUEUE, PASSED_AT));
        code.load(MemoryWidth::Double, R2, number_at(QUEUE, DEPTHS_AT));
        code.load(MemoryWidth::Word, R1, PACKET.at(LENGTH));
        code.load_imm64(R3, femtos_per_byte);
        code.alu(Alu::Mul, R1, R3);
        code.alu(Alu::Add, R2, R1);
        let fits = code.label();
        let room = self.plan.site.buffer.port_bytes().get();
        code.load_imm64(R1, room.saturating_mul(femtos_per_byte));
        code.jump_if(Condition::Le, R2, R1, fits);
        code.exit(TC_ACT_UNSPEC);
        code.bind(fits);
        code.store(MemoryWidth::Double, number_at(QUEUE, DEPTHS_AT), R2);
        code.exit(TC_ACT_UNSPEC);

        code.bind(drops);
        code.increment(number_at(QUEUE, EARLY_AT));
        code.exit(TC_ACT_SHOT);
    }
}

/// Takes from a queue as much as is left in a register, and from that the same.
fn drain(code: &mut Assembler, band: usize, left: Register) {
    let depth = number_at(STATE, DEPTHS_AT + band);
    code.load(MemoryWidth::Double, R1, depth);
    code.alu(Alu::Mov, R2, R1);
    let all = code.label();
    code.jump_if(Condition::Le, R2, left, all);
    code.alu(Alu::Mov, R2, left);
    code.bind(all);
    code.alu(Alu::Sub, left, R2);
    code.alu(Alu::Sub, R1, R2);
    code.store(MemoryWidth::Double, depth, R1);
}

/// Copies the first bytes of the network header to sixteen bytes below the end of the stack.
fn load_header(code: &mut Assembler, bytes: i32) {
    const BPF_HDR_START_NET: i32 = 1;
    code.alu(Alu::Mov, R1, PACKET);
    code.alu(Alu::Mov, R2, 0);
    code.alu(Alu::Mov, R3, STACK);
    code.alu(Alu::Add, R3, -16);
    code.alu(Alu::Mov, R4, bytes);
    code.alu(Alu::Mov, R5, BPF_HDR_START_NET);
    code.call(kernel::SKB_LOAD_BYTES_RELATIVE);
}

#[cfg(test)]
mod tests;
