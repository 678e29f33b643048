//! The bytes of parity: the XOR of groups of segments ([`gradwire_protocol::parity`]).
//!
//! A sender computes a group's XOR when its packet leaves, from the message. A receiver keeps a sum
//! per group, since segments may be added to a tensor as they arrive, and no copy of them is left.

use std::collections::BTreeMap;

use gradwire_protocol::machine::{Payload, SegmentRun};
use gradwire_protocol::parity::{CoveredRun, ParityGroup};
use gradwire_protocol::units::{MessageKey, Rank};

use crate::numbers::dtype::{DType, ReduceOp};
use crate::numbers::kernels::accumulate;

/// Writes the XOR of some segments of a message, each filled up with zeros to the length of its
/// first one, into `sum`.
pub(crate) fn sum_of_segments(
    message: &[u8],
    segment_bytes: usize,
    segments: &SegmentRun,
    sum: &mut Vec<u8>,
) {
    sum.clear();
    sum.resize(segment_bytes.min(message.len()), 0);
    for segment in segments.segments() {
        let start = segment as usize * segment_bytes;
        let end = (start + segment_bytes).min(message.len());
        xor(sum, &message[start..end]);
    }
}

/// Adds bytes to a sum that is at least as long.
fn xor(sum: &mut [u8], bytes: &[u8]) {
    accumulate(DType::U8, ReduceOp::BitXor, &mut sum[..bytes.len()], bytes);
}

/// Adds bytes to the sum of a group of a message.
fn add_to(sums: &mut Vec<Vec<u8>>, group: ParityGroup, bytes: &[u8]) {
    let at = group.0 as usize;
    if sums.len() <= at {
        sums.resize(at + 1, Vec::new());
    }
    let sum = &mut sums[at];
    if sum.len() < bytes.len() {
        sum.resize(bytes.len(), 0);
    }
    xor(sum, bytes);
}

/// The sums of messages. A message gets them with its first covered segment.
#[derive(Debug, Default)]
pub(crate) struct ParitySums {
    /// By group; empty for a group without a segment.
    messages: BTreeMap<(Rank, MessageKey), Vec<Vec<u8>>>,
}

impl ParitySums {
    /// Adds a payload to the sum of a group. A payload that is only a length has none.
    pub(crate) fn add(
        &mut self,
        (from, key): (Rank, MessageKey),
        group: ParityGroup,
        payload: Payload<'_>,
    ) {
        let Some(bytes) = payload.bytes() else {
            return;
        };
        let sums = self.messages.entry((from, key)).or_default();
        add_to(sums, group, bytes);
    }

    /// Adds the payloads of covered segments, one each, to the sums of their groups.
    pub(crate) fn add_run<'p>(
        &mut self,
        message: (Rank, MessageKey),
        covered: CoveredRun,
        payloads: impl Iterator<Item = Payload<'p>>,
    ) {
        let segments = (0..).zip(payloads);
        let mut segments = segments
            .filter_map(|(ahead, payload)| Some((covered.groups(ahead)?, payload.bytes()?)))
            .peekable();
        if segments.peek().is_none() {
            return;
        }
        let sums = self.messages.entry(message).or_default();
        for (groups, bytes) in segments {
            for group in groups.iter() {
                add_to(sums, group, bytes);
            }
        }
    }

    /// The first `length` bytes of a group's sum: the segment that it restores.
    pub(crate) fn restored(
        &self,
        message: (Rank, MessageKey),
        group: ParityGroup,
        length: u32,
    ) -> Option<Vec<u8>> {
        let sum = self.messages.get(&message)?.get(group.0 as usize)?;
        sum.get(..length as usize).map(<[u8]>::to_vec)
    }

    /// Forgets a message.
    pub(crate) fn forget(&mut self, from: Rank, key: MessageKey) {
        if !self.messages.is_empty() {
            self.messages.remove(&(from, key));
        }
    }

    /// Forgets all messages of a rank.
    pub(crate) fn forget_rank(&mut self, from: Rank) {
        self.messages.retain(|&(rank, _), _| rank != from);
    }

    /// How many messages have sums.
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }
}
