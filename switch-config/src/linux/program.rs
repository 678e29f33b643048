//! The eBPF program that does for a port what `red ecn` in each queue of `prio` would do.
//!
//! It stands at the root of HTB, before the filters that choose a class, and is called with one
//! packet at a time, under the lock of the port. It keeps the depth that each queue would have on a
//! link of exactly this rate: since the last packet the link has sent so many bytes, of the first
//! queue first. Where the packet's queue is at its threshold or above, an ECT packet is marked and
//! another is dropped. Depths are in femtoseconds of the link's time, so that nothing is divided.
//!
//! All its state is one array of numbers of 64 bits, [`STATE_NUMBERS`] of them, which people and
//! programs read in bpffs.

use gradwire_protocol::units::Rate;

use super::code::{Code, Label, Operand, Register, Sum, Test, Width};
use super::form::BANDS;
use crate::plan::{Plan, PlanQueue, Port};

use Operand::{In, Of};

/// Where in the state the depths begin; before them is the time of the last packet, in ns.
const DEPTHS_AT: usize = 1;
/// Where in the state, by band, the packets are counted that were let pass.
pub(super) const PASSED_AT: usize = DEPTHS_AT + BANDS as usize;
/// The packets that were marked, which were let pass as well.
pub(super) const MARKED_AT: usize = PASSED_AT + BANDS as usize;
/// The packets that were dropped early.
pub(super) const EARLY_AT: usize = MARKED_AT + BANDS as usize;
/// Numbers of the state.
pub(super) const STATE_NUMBERS: usize = EARLY_AT + BANDS as usize;

/// Functions of the kernel, by their number (linux/bpf.h).
mod call {
    pub(super) const MAP_LOOKUP: i32 = 1;
    pub(super) const NANOSECONDS: i32 = 5;
    pub(super) const LOAD_BYTES: i32 = 68;
    pub(super) const SET_CE: i32 = 97;
}

/// Where things are in `struct __sk_buff`, and Ethernet's types as they stand there.
const LENGTH: i16 = 0;
const PROTOCOL: i16 = 16;
const IPV4: i32 = 0x0800_u16.swap_bytes() as i32;
const IPV6: i32 = 0x86dd_u16.swap_bytes() as i32;
const ARP: i32 = 0x0806_u16.swap_bytes() as i32;

/// What the program returns: on to the filters that choose a class, or drop (linux/pkt_cls.h).
const GO_ON: i32 = -1;
const DROP: i32 = 2;

/// Registers that calls leave alone: the packet, the state, the byte of DSCP and ECN, the
/// threshold and then the numbers of the packet's queue.
const PACKET: Register = 6;
const STATE: Register = 7;
const FIELD: Register = 8;
const THRESHOLD: Register = 9;
const QUEUE: Register = 9;
const STACK: Register = 10;

/// Idle time beyond which every queue is empty: 2^40 ns, 18 minutes; more would overflow.
const IDLE_MOST_NS: u64 = 1 << 40;
const FEMTOS_PER_NANO: i32 = 1_000_000;
/// No depth is as large.
const NEVER: u64 = u64::MAX;

/// The program of a port, and the byte at which it names the map of its state.
pub(super) struct Program {
    /// Instructions.
    pub(super) bytes: Vec<u8>,
    /// Offset of the instruction that loads the map.
    pub(super) map_at: usize,
}

/// The program for a port.
pub(super) fn of_port(plan: &Plan, port: &Port) -> Program {
    let mut code = Code::default();
    let map_at = look_up_state(&mut code);
    pass_time(&mut code);
    let [first, field, known] = [code.label(), code.label(), code.label()];
    read_field(&mut code, first, field);
    code.put(field);
    choose_queue(&mut code, (plan, port), (first, known));
    code.put(known);
    decide(&mut code, plan, port.rate);
    let bytes = code.bytes();
    Program { bytes, map_at }
}

/// Femtoseconds that a byte takes.
fn femtos_per_byte(rate: Rate) -> u64 {
    8_000_000_000_000_000 / rate.as_bits_per_second().max(1)
}

fn offset(number: usize) -> i16 {
    (number * 8) as i16
}

fn look_up_state(code: &mut Code) -> usize {
    code.sum(Sum::Is, PACKET, In(1));
    code.sum(Sum::Is, 1, Of(0));
    code.store(Width::Word, (STACK, -4), 1);
    let map_at = code.map(1);
    code.sum(Sum::Is, 2, In(STACK));
    code.sum(Sum::Add, 2, Of(-4));
    code.call(call::MAP_LOOKUP);
    let found = code.label();
    code.when(Test::Differs, 0, Of(0), found);
    code.finish(GO_ON);
    code.put(found);
    code.sum(Sum::Is, STATE, In(0));
    map_at
}

/// What the link has sent since the last packet leaves the queues, first queue first.
fn pass_time(code: &mut Code) {
    code.call(call::NANOSECONDS);
    code.load(Width::Double, 1, (STATE, 0));
    code.store(Width::Double, (STATE, 0), 0);
    code.sum(Sum::Less, 0, In(1));
    code.number(1, IDLE_MOST_NS);
    let short = code.label();
    code.when(Test::AtMost, 0, In(1), short);
    code.sum(Sum::Is, 0, In(1));
    code.put(short);
    code.sum(Sum::Times, 0, Of(FEMTOS_PER_NANO));
    for band in 0..usize::from(BANDS) {
        let depth = (STATE, offset(DEPTHS_AT + band));
        code.load(Width::Double, 1, depth);
        code.sum(Sum::Is, 2, In(1));
        let all = code.label();
        code.when(Test::AtMost, 2, In(0), all);
        code.sum(Sum::Is, 2, In(0));
        code.put(all);
        code.sum(Sum::Less, 0, In(2));
        code.sum(Sum::Less, 1, In(2));
        code.store(Width::Double, depth, 1);
    }
}

/// Reads the byte of DSCP and ECN; packets without which nothing passes go to the first queue.
fn read_field(code: &mut Code, first: Label, field: Label) {
    code.sum(Sum::Is, FIELD, Of(0));
    code.load(Width::Word, 1, (PACKET, PROTOCOL));
    let [ipv4, ipv6, unread] = [code.label(), code.label(), code.label()];
    code.when(Test::Equal, 1, Of(IPV4), ipv4);
    code.when(Test::Equal, 1, Of(IPV6), ipv6);
    code.when(Test::Equal, 1, Of(ARP), first);
    code.go(field);

    code.put(ipv4);
    load_header(code, 2);
    code.when(Test::Differs, 0, Of(0), unread);
    code.load(Width::Byte, FIELD, (STACK, -15));
    code.go(field);

    code.put(ipv6);
    load_header(code, 8);
    code.when(Test::Differs, 0, Of(0), unread);
    code.load(Width::Half, FIELD, (STACK, -16));
    code.swap_from_wire(FIELD);
    code.sum(Sum::Right, FIELD, Of(4));
    code.sum(Sum::And, FIELD, Of(0xff));
    // Next header ICMPv6 at hop limit 255: neighbour discovery (RFC 4861).
    code.load(Width::Half, 1, (STACK, -10));
    code.swap_from_wire(1);
    code.when(Test::Equal, 1, Of(0x3aff), first);
    code.go(field);

    code.put(unread);
    code.finish(GO_ON);
}

/// The first bytes of the network header, to sixteen bytes below the end of the stack.
fn load_header(code: &mut Code, bytes: i32) {
    const FROM_NETWORK_HEADER: i32 = 1;
    code.sum(Sum::Is, 1, In(PACKET));
    code.sum(Sum::Is, 2, Of(0));
    code.sum(Sum::Is, 3, In(STACK));
    code.sum(Sum::Add, 3, Of(-16));
    code.sum(Sum::Is, 4, Of(bytes));
    code.sum(Sum::Is, 5, Of(FROM_NETWORK_HEADER));
    code.call(call::LOAD_BYTES);
}

/// Threshold and numbers of the queue to which the DSCP leads, in r9 and r3.
fn choose_queue(code: &mut Code, (plan, port): (&Plan, &Port), (first, known): (Label, Label)) {
    code.sum(Sum::Is, 1, In(FIELD));
    code.sum(Sum::Right, 1, Of(2));
    let mut queues: Vec<(&PlanQueue, Label)> = Vec::new();
    for queue in &plan.queues {
        let label = code.label();
        for dscp in queue.dscps.iter().chain(&queue.droppable) {
            code.when(Test::Equal, 1, Of(i32::from(dscp.0)), label);
        }
        queues.push((queue, label));
    }
    // Falls through into the last queue, which takes what is not named.
    for (at, (queue, label)) in queues.iter().enumerate().rev() {
        code.put(*label);
        if at == 0 {
            code.put(first);
        }
        let profile = plan.profile(queue, port);
        let depth = profile.map_or(NEVER, |profile| {
            profile.threshold.low_bytes() * femtos_per_byte(port.rate)
        });
        code.number(THRESHOLD, depth);
        code.sum(Sum::Is, 3, Of(i32::from(BANDS - 1 - queue.number) * 8));
        code.go(known);
    }
}

/// Marks, drops, or lets pass and counts.
fn decide(code: &mut Code, plan: &Plan, rate: Rate) {
    let [enters, drops] = [code.label(), code.label()];
    code.sum(Sum::Is, 4, In(STATE));
    code.sum(Sum::Add, 4, In(3));
    code.load(Width::Double, 2, (4, offset(DEPTHS_AT)));
    code.sum(Sum::Is, 1, In(THRESHOLD));
    code.sum(Sum::Is, QUEUE, In(4));
    code.when(Test::Below, 2, In(1), enters);
    code.sum(Sum::And, FIELD, Of(3));
    code.when(Test::Equal, FIELD, Of(0), drops);
    code.sum(Sum::Is, 1, In(PACKET));
    code.call(call::SET_CE);
    code.when(Test::Equal, 0, Of(0), enters);
    code.count((QUEUE, offset(MARKED_AT)));

    // The depth grows by the packet, unless the queue has no room for it and drops it.
    code.put(enters);
    code.count((QUEUE, offset(PASSED_AT)));
    code.load(Width::Double, 2, (QUEUE, offset(DEPTHS_AT)));
    code.load(Width::Word, 1, (PACKET, LENGTH));
    code.number(3, femtos_per_byte(rate));
    code.sum(Sum::Times, 1, In(3));
    code.sum(Sum::Add, 2, In(1));
    let fits = code.label();
    let room = plan.site.buffer.port_bytes().get();
    code.number(1, room.saturating_mul(femtos_per_byte(rate)));
    code.when(Test::AtMost, 2, In(1), fits);
    code.finish(GO_ON);
    code.put(fits);
    code.store(Width::Double, (QUEUE, offset(DEPTHS_AT)), 2);
    code.finish(GO_ON);

    code.put(drops);
    code.count((QUEUE, offset(EARLY_AT)));
    code.finish(DROP);
}

#[cfg(test)]
mod trial;
