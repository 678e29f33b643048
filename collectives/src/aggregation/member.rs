//! A rank's part in the sum of one tensor: its values leave as integers, and sums come back.
//!
//! - The tensor is cut into blocks, one for each packet. Their exponents are agreed before.
//! - A packet is written when it leaves, also for the second time, so there is memory for a window
//!   of packets and not for a second tensor. Results are kept apart until all ranks have theirs:
//!   until then the tensor may be summed in another way.
//! - It gives up when the aggregator is silent for [`SILENCE`], or slower than [`SLOWEST`].

use gradwire_protocol::machine::SegmentRun;
use gradwire_protocol::rtt::Rtt;
use gradwire_protocol::units::{Instant, Span};

use super::SumKind;
use super::packets::{SLOTS, SumHeader};
use super::worker::{SumWorker, WorkerTerms};
use crate::numbers::fixed_point::{FixedPoint, SumPart};

/// How long no sum may come, although some are missing.
pub const SILENCE: Span = Span::from_millis(800);
/// Bytes of a tensor that an aggregator sums in a second, at least: below that the ranks alone are
/// faster on any network.
pub const SLOWEST: u64 = 4 << 20;
/// Bounds of the time after which a packet is sent again.
const TIMEOUT_MIN: Span = Span::from_millis(2);
const TIMEOUT_MAX: Span = Span::from_millis(100);

/// The shape of a sum, and its numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemberShape {
    pub(super) point: FixedPoint,
    pub(super) part: SumPart,
    /// Bytes of the tensor.
    pub(super) bytes: usize,
    /// The header of its first packet.
    pub(super) first: SumHeader,
    /// Most packets of this member in flight.
    pub(super) window: u32,
}

impl MemberShape {
    /// Bytes of the tensor in each block but the last.
    pub(super) fn block_bytes(&self) -> usize {
        (self.point).tensor_bytes(usize::from(self.first.packet_bytes))
    }

    /// How many blocks there are.
    pub(super) fn blocks(&self) -> u32 {
        self.bytes.div_ceil(self.block_bytes()) as u32
    }
}

/// A rank's part in the sum of one tensor.
#[derive(Debug)]
pub(super) struct MemberSum {
    shape: MemberShape,
    exponents: Vec<u8>,
    worker: SumWorker,
    /// The packets of all slots.
    memory: Vec<u8>,
    /// When each slot's packet left; `None` if it was sent again.
    left: Vec<Option<Instant>>,
    /// A packet that does not continue the last run.
    held: Option<(u32, SumKind)>,
    result: Vec<u8>,
    began: Instant,
    heard: Instant,
    /// How long a packet waits for its sum, and when that last doubled.
    timeout: Span,
    doubled: Instant,
    counts: MemberCounts,
}

/// Packets of a member's sum.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct MemberCounts {
    /// Sent for the first time.
    pub(super) sent: u64,
    /// Sent again.
    pub(super) again: u64,
}

impl MemberSum {
    /// The sum of a tensor whose blocks have these exponents.
    pub(super) fn new(now: Instant, shape: MemberShape, exponents: Vec<u8>, rtt: &Rtt) -> Self {
        let first = shape.first.number;
        let terms = WorkerTerms {
            window: shape.window,
            timeout: timeout(rtt),
        };
        Self {
            worker: SumWorker::new(
                shape.first.stream.job.0,
                usize::from(shape.first.seat),
                first..first + shape.blocks(),
                terms,
            ),
            memory: vec![0; SLOTS as usize * usize::from(shape.first.packet_bytes)],
            left: vec![None; SLOTS as usize],
            held: None,
            result: vec![0; shape.bytes],
            began: now,
            heard: now,
            timeout: terms.timeout,
            doubled: now,
            counts: MemberCounts::default(),
            exponents,
            shape,
        }
    }

    /// The next packets to send that follow each other, written from the tensor: the first one's
    /// header, and whether they are sent again. Their slots are in `run`.
    pub(super) fn send(
        &mut self,
        now: Instant,
        tensor: &[u8],
        (run, most): (&mut SegmentRun, usize),
    ) -> Option<(SumHeader, SumKind)> {
        let (first, kind) = self.next(now)?;
        if kind == SumKind::Again {
            self.back_off(now);
        }
        run.clear();
        let mut number = first;
        loop {
            self.write(now, number, kind, tensor);
            run.push(number % SLOTS);
            number += 1;
            if run.len() == most || number.is_multiple_of(SLOTS) {
                break;
            }
            match self.next(now) {
                Some(next) if next == (number, kind) => {}
                held => {
                    self.held = held;
                    break;
                }
            }
        }
        let header = SumHeader {
            number: first,
            ..self.shape.first
        };
        Some((header, kind))
    }

    /// Packets are sent again, and repeated ones measure no round trip: waits longer until one
    /// does.
    fn back_off(&mut self, now: Instant) {
        if now - self.doubled >= self.timeout {
            self.doubled = now;
            self.wait_for((self.timeout * 2).min(TIMEOUT_MAX));
        }
    }

    fn wait_for(&mut self, timeout: Span) {
        self.timeout = timeout;
        self.worker.set_timeout(timeout);
    }

    /// The slots of all packets.
    pub(super) fn memory(&self) -> &[u8] {
        &self.memory
    }

    fn next(&mut self, now: Instant) -> Option<(u32, SumKind)> {
        let held = self.held.take();
        held.or_else(|| {
            let packet = self.worker.send(now)?;
            Some((packet.number, packet.kind))
        })
    }

    fn write(&mut self, now: Instant, number: u32, kind: SumKind, tensor: &[u8]) {
        let (slot, block) = ((number % SLOTS) as usize, self.block(number));
        let packet_bytes = usize::from(self.shape.first.packet_bytes);
        let start = block * self.shape.block_bytes();
        let end = tensor.len().min(start + self.shape.block_bytes());
        let integers = &mut self.memory[slot * packet_bytes..][..packet_bytes];
        (self.shape.point).encode(self.exponents[block], &tensor[start..end], integers);
        match kind {
            SumKind::Again => {
                self.counts.again += 1;
                self.left[slot] = None;
            }
            _ => {
                self.counts.sent += 1;
                self.left[slot] = Some(now);
            }
        }
    }

    fn block(&self, number: u32) -> usize {
        (number - self.shape.first.number) as usize
    }

    /// Takes the sum of a packet.
    pub(super) fn take(&mut self, now: Instant, header: &SumHeader, sum: &[u8], rtt: &mut Rtt) {
        let wanted = SumHeader {
            number: header.number,
            ..self.shape.first
        };
        if *header != wanted || !self.worker.take(header.stream.job.0, header.number) {
            return;
        }
        self.heard = now;
        if let Some(left) = self.left[(header.number % SLOTS) as usize].take() {
            rtt.sample(now - left);
            self.wait_for(timeout(rtt));
        }
        let block = self.block(header.number);
        let start = block * self.shape.block_bytes();
        let end = self.result.len().min(start + self.shape.block_bytes());
        let values = &mut self.result[start..end];
        (self.shape.point).decode(self.exponents[block], self.shape.part, sum, values);
    }

    /// Whether all sums are here.
    pub(super) const fn is_done(&self) -> bool {
        self.worker.is_done()
    }

    /// When it gives up, if no sum comes until then.
    pub(super) fn ends_at(&self) -> Instant {
        let millis = self.result.len() as u64 * 1_000 / SLOWEST;
        let slowest = self.began + SILENCE + Span::from_millis(millis);
        slowest.min(self.heard + SILENCE)
    }

    /// When it acts next without a packet.
    pub(super) fn wakes_at(&self) -> Instant {
        let again = self.worker.wakes_at();
        let end = self.ends_at();
        again.map_or(end, |again| again.min(end))
    }

    /// The summed tensor, and its counts.
    pub(super) fn into_result(self) -> (Vec<u8>, MemberCounts) {
        (self.result, self.counts)
    }
}

/// How long a packet waits for its sum, which the slowest member determines.
fn timeout(rtt: &Rtt) -> Span {
    rtt.answer_wait().max(TIMEOUT_MIN).min(TIMEOUT_MAX)
}
