//! Communicators joined back to back: the cost of a collective for its ranks, without a network.

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::communicator::Communicator;
use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_collectives::operation::{Collective, Group, Layers, LossTerms, Operation};
use gradwire_protocol::endpoint::Endpoint;
use gradwire_protocol::job::Job;
use gradwire_protocol::machine::{Datagram, Ecn, Machine, Payload, Transmit};
use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{Instant, JobId, Layer, Rank, Span, Step};
use gradwire_protocol::wire::Header;

/// Time from one look at all ranks to the next.
const TICK: Span = Span::from_micros(5);

/// All ranks of one job, and their common clock.
#[derive(Debug)]
pub struct Ranks {
    ends: Vec<Communicator>,
    group: Group,
    now: Instant,
    sequence: u32,
    /// Packets in flight: receiver, header, and position of the payload in `bytes`.
    carried: Vec<(usize, Header, usize)>,
    bytes: Vec<u8>,
    /// Free tensors of each rank, for reuse.
    buffers: Vec<Vec<Vec<u8>>>,
}

impl Ranks {
    /// `count` ranks of a job.
    pub fn new(count: u16, job: &Job) -> Self {
        let end = |rank| {
            let identity = Identity {
                rank: Rank(rank),
                world_size: count,
                job: JobId(1),
                epoch: 0,
            };
            Communicator::new(Endpoint::new(identity, job, 1), job)
        };
        Self {
            ends: (0..count).map(end).collect(),
            group: Group {
                id: 0,
                ranks: (0..count).map(Rank).collect(),
            },
            now: Instant::START,
            sequence: 0,
            carried: Vec::new(),
            bytes: Vec::new(),
            buffers: vec![Vec::new(); usize::from(count)],
        }
    }

    /// All-reduces `buckets` tensors of `bytes` each at once, the last layers first, and drives
    /// all ranks until everything has ended; returns the number of packets.
    pub fn all_reduce(&mut self, bytes: usize, buckets: u16) -> u64 {
        for layer in (0..buckets).rev() {
            for rank in 0..self.ends.len() {
                let operation = self.operation(rank, bytes, (layer, buckets));
                counted_submit(&mut self.ends[rank], self.now, operation);
            }
            self.sequence += 1;
        }
        let (mut packets, mut ended) = (0, 0);
        while ended < self.ends.len() * usize::from(buckets) {
            self.now = self.now + TICK;
            packets += self.carry();
            ended += self.collect();
        }
        packets
    }

    fn operation(&mut self, rank: usize, bytes: usize, layer: (u16, u16)) -> Operation {
        let mut buffer = self.buffers[rank].pop().unwrap_or_default();
        buffer.resize(bytes, 0);
        Operation {
            group: self.group.clone(),
            sequence: self.sequence,
            collective: Collective::AllReduce,
            dtype: DType::F32,
            op: ReduceOp::Sum,
            buffer: Buffer::Owned(buffer),
            input: None,
            splits: None,
            loss: LossTerms::NONE,
            step: Step(self.sequence),
            layers: Layers {
                count: layer.1,
                spans: vec![(0, Layer(layer.0))],
            },
            tensor_key: u64::from(layer.0),
            deadline: None,
        }
    }

    /// Carries all packets to their receivers.
    fn carry(&mut self) -> u64 {
        let Self {
            ends,
            now,
            carried,
            bytes,
            ..
        } = self;
        for end in ends.iter_mut() {
            if end.poll_timeout().is_some_and(|due| due <= *now) {
                counted_timeout(end, *now);
            }
            while let Some(transmit) = counted_poll(end, *now) {
                for index in 0..transmit.packets() {
                    let header = transmit.header(index);
                    let payload = transmit.payload(&header);
                    carried.push((usize::from(transmit.to.0), header, bytes.len()));
                    bytes.extend_from_slice(payload.bytes().expect("operations have bytes"));
                }
            }
        }
        for &(to, header, at) in carried.iter() {
            let payload = Payload::Bytes(&bytes[at..at + usize::from(header.length)]);
            let ecn = Ecn::Ect;
            let datagram = Datagram {
                header,
                payload,
                ecn,
            };
            counted_packet(&mut ends[to], *now, datagram);
        }
        let packets = carried.len() as u64;
        carried.clear();
        bytes.clear();
        packets
    }

    /// Takes the ended operations; returns their number.
    fn collect(&mut self) -> usize {
        let mut ended = 0;
        for (end, buffers) in self.ends.iter_mut().zip(&mut self.buffers) {
            while let Some(completion) = end.poll_completion() {
                completion.result.expect("no rank fails");
                if let Buffer::Owned(buffer) = completion.buffer {
                    buffers.push(buffer);
                }
                ended += 1;
            }
        }
        ended
    }
}

// The instruction counter counts this: the calls of a rank, without the code that joins ranks.

#[inline(never)]
fn counted_submit(end: &mut Communicator, now: Instant, operation: Operation) {
    let submitted = end.submit(now, operation);
    submitted.expect("a valid operation");
}

#[inline(never)]
fn counted_timeout(end: &mut Communicator, now: Instant) {
    end.handle_timeout(now);
}

#[inline(never)]
fn counted_poll(end: &mut Communicator, now: Instant) -> Option<Transmit<'_>> {
    end.poll_transmit(now)
}

#[inline(never)]
fn counted_packet(end: &mut Communicator, now: Instant, datagram: Datagram<'_>) {
    end.handle_datagram(now, datagram);
}
