//! Plans of all ranks run against each other, without packets: for tests of algorithms.
//!
//! Messages are delivered element by element, in any order, among all that have started, the newest
//! more often than others, so that late steps overtake early ones. An element is read from its
//! sender's memory when it is delivered, not when its message starts, because an endpoint may read
//! it as late as that to repeat it. So an element that was overwritten too early comes out wrong.
//! Elements are 64-bit words; a factor tells a finished sum from an unfinished one.

use gradwire_protocol::units::Rank;

use crate::plan::region::{TensorMemory, TensorRegion};
use crate::plan::{GateId, GroupSeat, MessagePlan, ScratchUse, SegmentLanding};

const ELEMENT_BYTES: usize = 8;
/// Finishing a sum multiplies it by this.
const FINISHED: u64 = 3;

/// The plans of ranks 0 to `world`.
pub(crate) fn plans(world: usize, plan: impl Fn(GroupSeat<'_>) -> MessagePlan) -> Vec<MessagePlan> {
    let ranks: Vec<Rank> = (0..world as u16).map(Rank).collect();
    (0..world)
        .map(|me| plan(GroupSeat::new(&ranks, me)))
        .collect()
}

/// Bytes of all messages out.
pub(crate) fn bytes_sent(plan: &MessagePlan) -> usize {
    plan.outbounds.iter().map(|out| out.region.bytes).sum()
}

/// Bytes of all messages in.
pub(crate) fn bytes_received(plan: &MessagePlan) -> usize {
    let inbounds = plan.inbounds.iter();
    inbounds.map(|inbound| inbound.region.bytes).sum()
}

/// A message on its way, with the elements that are not delivered yet.
#[derive(Debug)]
struct RehearsedMessage {
    sender: usize,
    outbound: usize,
    receiver: usize,
    inbound: usize,
    elements: Vec<usize>,
}

/// All ranks of a group.
#[derive(Debug)]
pub(crate) struct Rehearsal {
    plans: Vec<MessagePlan>,
    waits: Vec<Vec<usize>>,
    pub(crate) buffers: Vec<Vec<u64>>,
    pub(crate) inputs: Vec<Vec<u64>>,
    scratches: Vec<Vec<u64>>,
    flights: Vec<RehearsedMessage>,
    random: u64,
}

impl Rehearsal {
    /// Ranks with empty buffers and inputs.
    pub(crate) fn new(plans: Vec<MessagePlan>, seed: u64) -> Self {
        let gates = |plan: &MessagePlan| plan.gates.iter().map(|gate| gate.waits).collect();
        Self {
            waits: plans.iter().map(gates).collect(),
            buffers: vec![vec![]; plans.len()],
            inputs: vec![vec![]; plans.len()],
            scratches: vec![vec![]; plans.len()],
            flights: vec![],
            random: seed,
            plans,
        }
    }

    /// Gives every rank a buffer.
    pub(crate) fn fill_buffers(&mut self, elements: usize) {
        let worlds = 0..self.plans.len();
        self.buffers = worlds.map(|rank| contribution(rank, elements)).collect();
    }

    /// Gives every rank an input, and a buffer of zeros.
    pub(crate) fn fill_inputs(&mut self, elements: usize, buffer_elements: usize) {
        let worlds = 0..self.plans.len();
        self.inputs = worlds.map(|rank| contribution(rank, elements)).collect();
        self.buffers = vec![vec![0; buffer_elements]; self.plans.len()];
    }

    /// The finished reduction of all ranks' contributions.
    pub(crate) fn finished_sum(&self, elements: usize) -> Vec<u64> {
        let ranks = 0..self.plans.len();
        let all: Vec<Vec<u64>> = ranks.map(|rank| contribution(rank, elements)).collect();
        let sum = |at: usize| all.iter().fold(0_u64, |sum, own| sum.wrapping_add(own[at]));
        (0..elements)
            .map(|at| sum(at).wrapping_mul(FINISHED))
            .collect()
    }

    /// Delivers everything. Every message out is a message in somewhere, and all gates open.
    pub(crate) fn run(&mut self) {
        self.start();
        while !self.flights.is_empty() {
            let newest = self.flights.len() - 1;
            let any = self.draw(self.flights.len());
            let flight = [newest, any][self.draw(2)];
            self.deliver_one(flight);
        }
        for (rank, waits) in self.waits.iter().enumerate() {
            let closed = waits.iter().filter(|&&waits| waits > 0).count();
            assert_eq!(closed, 0, "gates of rank {rank} never open");
        }
    }

    fn start(&mut self) {
        for rank in 0..self.plans.len() {
            if self.plans[rank].scratch == ScratchUse::CopyOfInput {
                self.scratches[rank] = self.inputs[rank].clone();
            }
            if let ScratchUse::Slots { count, own } = self.plans[rank].scratch {
                let elements = self.buffers[rank].len();
                let mut slots = vec![0; elements * count];
                slots[own * elements..][..elements].copy_from_slice(&self.buffers[rank]);
                self.scratches[rank] = slots;
            }
            if let Some((from, to)) = self.plans[rank].copy {
                let own = self.inputs[rank][range(from)].to_vec();
                self.buffers[rank][range(to)].copy_from_slice(&own);
            }
        }
        for rank in 0..self.plans.len() {
            for gate in 0..self.plans[rank].gates.len() {
                if self.plans[rank].gates[gate].waits == 0 {
                    self.open(rank, GateId(gate));
                }
            }
        }
    }

    fn open(&mut self, rank: usize, gate: GateId) {
        let gate = self.plans[rank].gates[gate.0].clone();
        if let Some(region) = gate.finish {
            if let ScratchUse::Slots { count, .. } = self.plans[rank].scratch {
                let (slots, elements) = (&self.scratches[rank], self.buffers[rank].len());
                assert_eq!(slots.len(), elements * count);
                for (at, value) in self.buffers[rank].iter_mut().enumerate() {
                    let slots = slots[at..].iter().step_by(elements);
                    *value = slots.fold(0, |sum, slot| sum.wrapping_add(*slot));
                }
            }
            for value in &mut self.buffers[rank][range(region)] {
                *value = value.wrapping_mul(FINISHED);
            }
        }
        for at in gate.opens {
            let out = self.plans[rank].outbounds[at];
            let receiver = usize::from(out.to.0);
            let inbound = self.plans[receiver].find_inbound(Rank(rank as u16), out.part);
            let inbound = inbound.expect("every message out is expected by its receiver");
            let expected = self.plans[receiver].inbounds[inbound].region.bytes;
            assert_eq!(out.region.bytes, expected, "both sides agree on lengths");
            self.flights.push(RehearsedMessage {
                sender: rank,
                outbound: at,
                receiver,
                inbound,
                elements: (0..expected / ELEMENT_BYTES).collect(),
            });
        }
        for next in gate.next {
            self.waits_no_more(rank, next);
        }
    }

    fn waits_no_more(&mut self, rank: usize, gate: GateId) {
        self.waits[rank][gate.0] -= 1;
        if self.waits[rank][gate.0] == 0 {
            self.open(rank, gate);
        }
    }

    fn deliver_one(&mut self, flight: usize) {
        let left = self.flights[flight].elements.len();
        if left > 0 {
            let drawn = self.draw(left);
            let element = self.flights[flight].elements.swap_remove(drawn);
            self.deliver_element(flight, element);
        }
        if self.flights[flight].elements.is_empty() {
            let done = self.flights.swap_remove(flight);
            let gate = self.plans[done.receiver].inbounds[done.inbound].gate;
            self.waits_no_more(done.receiver, gate);
        }
    }

    fn deliver_element(&mut self, flight: usize, element: usize) {
        let flight = &self.flights[flight];
        let out = self.plans[flight.sender].outbounds[flight.outbound].region;
        let source = match out.place {
            TensorMemory::Buffer => &self.buffers,
            TensorMemory::Input => &self.inputs,
            TensorMemory::Scratch => &self.scratches,
            TensorMemory::Nothing => panic!("nothing has no elements"),
        };
        let value = source[flight.sender][out.offset / ELEMENT_BYTES + element];
        let inbound = self.plans[flight.receiver].inbounds[flight.inbound];
        let target = match inbound.region.place {
            TensorMemory::Buffer => &mut self.buffers,
            TensorMemory::Scratch => &mut self.scratches,
            place => panic!("{place:?} is never written"),
        };
        let at = inbound.region.offset / ELEMENT_BYTES + element;
        let target = &mut target[flight.receiver][at];
        match inbound.landing {
            SegmentLanding::Copy => *target = value,
            SegmentLanding::Reduce => *target = target.wrapping_add(value),
        }
    }

    /// A number below `end`: splitmix64 (Steele, Lea and Flood, 2014).
    fn draw(&mut self, end: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }
}

/// The values of a rank. Different sets of ranks and elements almost surely have different sums.
pub(crate) fn contribution(rank: usize, elements: usize) -> Vec<u64> {
    let value =
        |at: usize| (rank as u64 + 1).wrapping_mul(0x2545_f491_4f6c_dd1d) ^ (at as u64) << 7;
    (0..elements).map(value).collect()
}

fn range(region: TensorRegion) -> std::ops::Range<usize> {
    let (start, length) = (region.offset / ELEMENT_BYTES, region.bytes / ELEMENT_BYTES);
    start..start + length
}
