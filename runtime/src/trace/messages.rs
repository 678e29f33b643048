//! The last messages of a rank, on the recorder's clock.
//!
//! A communicator notes times of the driver's clock. The driver reads it before it hands a time
//! over, so the smallest difference to the recorder's own reading is how far the clocks are apart.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use gradwire_collectives::journal::{MessageRecord, MessageSide};
use gradwire_protocol::units;

use super::dump::{TracedMessage, TracedSide};

/// Messages that are kept for each operation that is.
const PER_OPERATION: usize = 16;

/// The last messages.
#[derive(Debug)]
pub(super) struct MessageRing {
    capacity: usize,
    records: VecDeque<MessageRecord>,
    /// The start of the driver's clock.
    start: Option<Instant>,
}

impl MessageRing {
    pub(super) fn new(operations: usize) -> Self {
        Self {
            capacity: operations * PER_OPERATION,
            records: VecDeque::new(),
            start: None,
        }
    }

    /// The driver's clock has just shown `now`, at `at`.
    pub(super) fn note_clock(&mut self, now: units::Instant, at: Instant) {
        let since = Duration::from_nanos(now.as_picos() / 1_000);
        if let Some(start) = at.checked_sub(since) {
            self.start = Some(self.start.map_or(start, |known| known.min(start)));
        }
    }

    pub(super) fn add(&mut self, records: Vec<MessageRecord>) {
        self.records.extend(records);
        let over = self.records.len().saturating_sub(self.capacity);
        self.records.drain(..over);
    }

    /// The messages, in microseconds after `joined`.
    pub(super) fn messages(&self, joined: Instant) -> Vec<TracedMessage> {
        let Some(start) = self.start else {
            return Vec::new();
        };
        let after = start.saturating_duration_since(joined).as_nanos() as f64;
        let before = joined.saturating_duration_since(start).as_nanos() as f64;
        let micros = |at: units::Instant| (at.as_picos() as f64 / 1e3 + after - before) / 1e3;
        let messages = self.records.iter().map(|record| {
            let (group, sequence, part) = record.key.parts();
            TracedMessage {
                side: match record.side {
                    MessageSide::Sent => TracedSide::Sent,
                    MessageSide::Received => TracedSide::Received,
                },
                peer: record.peer.0,
                group,
                sequence,
                part,
                bytes: record.bytes,
                first_us: micros(record.first),
                last_us: micros(record.last),
            }
        });
        messages.collect()
    }
}
