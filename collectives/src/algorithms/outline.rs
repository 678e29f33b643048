//! The messages of a collective without transport or bytes: the same plan that a
//! [`Communicator`](crate::communicator::Communicator) runs. A simulator lets other transports
//! carry the same messages.
//!
//! Ranks are known by their seat, their position in the group, so that groups of one size share
//! their outlines. To execute one:
//!
//! 1. A gate opens when all the messages in and gates that it waits for are complete. A gate with
//!    zero waits is open from the beginning.
//! 2. When a gate opens, its messages out start, and each gate after it waits for one thing less.
//! 3. Messages in may come at any time.
//! 4. [`OutlineEnd`] says when the collective is over for a seat.

use std::ops::Range;

use gradwire_protocol::job::Job;
use gradwire_protocol::units::Rank;

use crate::algorithms::selection::Preference;
use crate::operation::{Operation, SubmitError};
use crate::plan::{EARLY_BYTES_MAX, GroupSeat, MessagePlan};

/// Makes the outlines of a job.
#[derive(Clone, Debug)]
pub struct Outliner {
    preference: Preference,
}

/// The messages of one seat.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CollectiveOutline {
    /// Messages out, in the order of the gates that they wait for.
    pub sends: Vec<OutlineSend>,
    /// Messages in, sorted by seat and part.
    pub receives: Vec<OutlineReceive>,
    /// The points that messages out wait for.
    pub gates: Vec<OutlineGate>,
    /// The gates that follow each gate, as one stretch per gate.
    pub followers: Vec<u32>,
    /// When the collective is over for this seat.
    pub end: OutlineEnd,
}

/// When a collective is over for a rank.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OutlineEnd {
    /// When this rank has received all messages in, and its peers all messages out.
    #[default]
    AllDone,
    /// When all messages in are received and all messages out have started: these are so short that
    /// no rank waits for their acknowledgement.
    AllStarted,
}

/// A message out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OutlineSend {
    /// The seat that receives.
    pub to: u16,
    /// Distinguishes the messages of a pair of seats; equal on both sides.
    pub part: u16,
    /// Its length; 0 if it only reports that a rank has arrived.
    pub bytes: u32,
    /// Where in the tensor it begins, in bytes.
    pub offset: u64,
}

/// A message in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OutlineReceive {
    /// The seat that sends.
    pub from: u16,
    /// Distinguishes the messages of a pair of seats; equal on both sides.
    pub part: u16,
    /// Its length.
    pub bytes: u32,
    /// Index of the gate that waits for it.
    pub gate: u32,
}

/// A point that messages wait for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct OutlineGate {
    /// Messages in, and gates that it comes after, until it opens.
    pub waits: u32,
    /// Its messages out, as indices in [`CollectiveOutline::sends`].
    pub sends: Range<u32>,
    /// The gates after it, as a stretch of [`CollectiveOutline::followers`].
    pub next: Range<u32>,
}

impl Outliner {
    /// Outlines for a job's `collectives`, with each rank on a host of its own.
    pub fn new(job: &Job) -> Self {
        Self {
            preference: Preference::of(job),
        }
    }

    /// The messages of the rank on a seat.
    ///
    /// # Errors
    /// [`SubmitError`] when the operation contradicts itself.
    ///
    /// # Panics
    /// When the group has no such seat, or for a receive from any rank, which has no plan.
    pub fn outline(
        &self,
        operation: &Operation,
        seat: usize,
    ) -> Result<CollectiveOutline, SubmitError> {
        let ranks = &operation.group.ranks;
        let me = ranks[seat];
        operation.check_group(me)?;
        operation.check_tensor(me)?;
        if ranks.len() < 2 || operation.needs_nobody() {
            return Ok(CollectiveOutline::default());
        }
        let plan = self.preference.plan(operation, GroupSeat::new(ranks, seat));
        let plan = plan.into_listed();
        Ok(CollectiveOutline::of(&plan, ranks).ending_as(operation, &plan))
    }
}

impl CollectiveOutline {
    fn of(plan: &MessagePlan, ranks: &[Rank]) -> Self {
        let mut seats: Vec<(Rank, u16)> = ranks.iter().copied().zip(0..).collect();
        seats.sort_unstable();
        let seat_of = |rank: Rank| {
            let found = seats.binary_search_by_key(&rank, |(rank, _)| *rank);
            seats[found.expect("a plan names ranks of the group")].1
        };
        let mut outline = Self::default();
        for gate in &plan.gates {
            let sends = outline.sends.len() as u32;
            outline.sends.extend(gate.opens.iter().map(|&at| {
                let outbound = &plan.outbounds[at];
                OutlineSend {
                    to: seat_of(outbound.to),
                    part: outbound.part,
                    bytes: outbound.region.message_bytes(),
                    offset: outbound.region.offset as u64,
                }
            }));
            let next = outline.followers.len() as u32;
            let followers = gate.next.iter().map(|next| next.0 as u32);
            outline.followers.extend(followers);
            outline.gates.push(OutlineGate {
                waits: gate.waits as u32,
                sends: sends..outline.sends.len() as u32,
                next: next..outline.followers.len() as u32,
            });
        }
        let receives = plan.inbounds.iter().map(|inbound| OutlineReceive {
            from: seat_of(inbound.from),
            part: inbound.part,
            bytes: inbound.region.message_bytes(),
            gate: inbound.gate.0 as u32,
        });
        outline.receives = receives.collect();
        outline
            .receives
            .sort_unstable_by_key(|receive| (receive.from, receive.part));
        outline
    }

    fn ending_as(self, operation: &Operation, plan: &MessagePlan) -> Self {
        let is_short = plan.outbound_bytes <= EARLY_BYTES_MAX && !plan.inbounds.is_empty();
        let end = match is_short && !operation.collective.is_point_to_point() {
            true => OutlineEnd::AllStarted,
            false => OutlineEnd::AllDone,
        };
        Self { end, ..self }
    }

    /// Index of the message in from a seat with this part.
    pub fn receive(&self, from: u16, part: u16) -> Option<usize> {
        let key = |receive: &OutlineReceive| (receive.from, receive.part);
        self.receives.binary_search_by_key(&(from, part), key).ok()
    }
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::job::ReduceAlgorithm;
    use gradwire_protocol::units::Step;

    use super::*;
    use crate::numbers::dtype::{DType, ReduceOp};
    use crate::operation::buffer::Buffer;
    use crate::operation::{Collective, Group, Layers, LossTerms};

    fn operation(collective: Collective, ranks: &[u16], bytes: usize) -> Operation {
        Operation {
            group: Group {
                id: 0,
                ranks: ranks.iter().copied().map(Rank).collect(),
            },
            sequence: 0,
            collective,
            dtype: DType::F32,
            op: ReduceOp::Sum,
            buffer: Buffer::Virtual(bytes),
            input: None,
            splits: None,
            loss: LossTerms::NONE,
            step: Step(0),
            layers: Layers::default(),
            tensor_key: 0,
            deadline: None,
        }
    }

    fn outlines(algorithm: ReduceAlgorithm, operation: &Operation) -> Vec<CollectiveOutline> {
        let mut job = Job::default();
        job.collectives.algorithm = algorithm;
        let outliner = Outliner::new(&job);
        let seats = 0..operation.group.ranks.len();
        let outline = |seat| outliner.outline(operation, seat);
        seats
            .map(|seat| outline(seat).expect("the operation is valid"))
            .collect()
    }

    /// Executes outlines, every message at once, and returns the number of rounds.
    fn rounds(outlines: &[CollectiveOutline]) -> usize {
        let waits =
            |outline: &CollectiveOutline| outline.gates.iter().map(|gate| gate.waits).collect();
        let mut waits: Vec<Vec<u32>> = outlines.iter().map(waits).collect();
        let mut open: Vec<(usize, u32)> = Vec::new();
        for (seat, waits) in waits.iter().enumerate() {
            let free = (0..).zip(waits).filter(|(_, waits)| **waits == 0);
            open.extend(free.map(|(gate, _)| (seat, gate)));
        }
        let (mut rounds, mut sent) = (0, 0);
        while !open.is_empty() {
            let mut closer: Vec<(usize, u32)> = Vec::new();
            let mut any = false;
            while let Some((seat, gate)) = open.pop() {
                let (outline, gate) = (&outlines[seat], &outlines[seat].gates[gate as usize]);
                for at in gate.sends.clone() {
                    let send = outline.sends[at as usize];
                    let to = &outlines[usize::from(send.to)];
                    let receive = to.receive(seat as u16, send.part);
                    let receive = to.receives[receive.expect("every send has its receive")];
                    assert_eq!(receive.bytes, send.bytes);
                    closer.push((usize::from(send.to), receive.gate));
                    (any, sent) = (true, sent + 1);
                }
                for at in gate.next.clone() {
                    let next = outline.followers[at as usize];
                    let left = &mut waits[seat][next as usize];
                    *left -= 1;
                    if *left == 0 {
                        open.push((seat, next));
                    }
                }
            }
            for (seat, gate) in closer {
                let left = &mut waits[seat][gate as usize];
                *left -= 1;
                if *left == 0 {
                    open.push((seat, gate));
                }
            }
            rounds += usize::from(any);
        }
        let all: usize = outlines.iter().map(|outline| outline.sends.len()).sum();
        assert_eq!(sent, all, "every message was sent");
        assert!(waits.iter().flatten().all(|left| *left == 0));
        rounds
    }

    #[test]
    fn a_ring_takes_eight_rounds_and_direct_two() {
        let operation = operation(Collective::AllReduce, &[9, 3, 5, 7, 1], 1 << 20);
        let ring = outlines(ReduceAlgorithm::Ring, &operation);
        assert_eq!(rounds(&ring), 8);
        let sent: u32 = ring[0].sends.iter().map(|send| send.bytes).sum();
        assert!(sent.abs_diff(8 * (1 << 20) / 5) <= 64, "{sent}");
        assert!(ring[0].sends.iter().all(|send| send.to == 1));
        assert_eq!(rounds(&outlines(ReduceAlgorithm::Direct, &operation)), 2);
    }

    #[test]
    fn a_push_is_one_message_to_the_root() {
        let root = Rank(7);
        let push = operation(Collective::Reduce { root }, &[7, 2], 4_096);
        let [server, worker] = &outlines(ReduceAlgorithm::Auto, &push)[..] else {
            panic!("two seats");
        };
        assert!(server.sends.is_empty() && worker.receives.is_empty());
        let (sends, receives) = (&worker.sends, &server.receives);
        assert_eq!((sends.len(), receives.len()), (1, 1));
        assert_eq!((sends[0].to, sends[0].bytes), (0, 4_096));
    }

    #[test]
    fn single_ranks_and_empty_tensors_send_no_message() {
        let alone = operation(Collective::AllReduce, &[4], 4_096);
        assert_eq!(
            outlines(ReduceAlgorithm::Auto, &alone),
            [CollectiveOutline::default()]
        );
        let nothing = operation(Collective::AllReduce, &[4, 5], 0);
        assert_eq!(
            outlines(ReduceAlgorithm::Auto, &nothing),
            [CollectiveOutline::default(), CollectiveOutline::default()]
        );
        let barrier = operation(Collective::Barrier, &[4, 5], 0);
        assert_eq!(rounds(&outlines(ReduceAlgorithm::Auto, &barrier)), 1);
    }

    #[test]
    fn an_operation_that_contradicts_itself_has_no_outline() {
        let wrong = operation(Collective::AllReduce, &[4, 4], 4_096);
        let outliner = Outliner::new(&Job::default());
        let error = outliner
            .outline(&wrong, 0)
            .expect_err("a rank is there twice");
        assert!(matches!(error, SubmitError::RankTwice { .. }), "{error}");
    }
}
