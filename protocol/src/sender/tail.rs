//! Marks behind a message: a PROBE on each path whose last packet belongs to it.
//!
//! A packet that is lost in midstream shows by the next one of its path ([`crate::order`]). Behind
//! the last packet of a message there may be none, so on lossy paths the sender sends one: a PROBE
//! in the class of the data, on each path on which nothing has left since. If no report answers,
//! all paths are marked again on which it has packets in flight.
//! A report names the ends that its receiver still awaits: their marks were lost, and go again.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::Sender;
use super::message::PathRecord;
use super::probe::SendStage;
use crate::settings::EndpointSettings;
use crate::units::{Class, Instant, MessageId, PathNumber};
use crate::wire::{Flags, Header, PacketKind, PathMark};

/// A message marks ends that its receiver awaits so often before a PROBE is due.
const MARKED_AGAIN_MAX: u32 = 4;
/// Paths count as lossy until so many packets were sent after a loss.
const LOSS_REMEMBERED: u64 = 1 << 16;

/// The marks that are to be sent, and whether there is need for them.
#[derive(Debug, Default)]
pub(super) struct TailMarks {
    due: VecDeque<TailMark>,
    /// Packets until the paths count as clean.
    lossy_for: u64,
}

/// A PROBE that is to be sent.
#[derive(Clone, Copy, Debug)]
struct TailMark {
    message: MessageId,
    /// Its path; its number follows when it leaves.
    path: PathMark,
    /// [`Flags::MARKER`], except for the last one.
    flags: Flags,
}

impl TailMarks {
    /// So many packets leave; tells how the paths have done of late.
    pub(super) fn on_sent(&mut self, packets: u64) -> PathRecord {
        self.lossy_for = self.lossy_for.saturating_sub(packets);
        self.record()
    }

    /// A packet is lost.
    pub(super) fn on_loss(&mut self) {
        self.lossy_for = LOSS_REMEMBERED;
    }

    /// How the paths have done of late.
    pub(super) fn record(&self) -> PathRecord {
        match self.lossy_for {
            0 => PathRecord::Clean,
            _ => PathRecord::Lossy,
        }
    }

    /// Whether one is to be sent.
    pub(super) fn is_due(&self) -> bool {
        !self.due.is_empty()
    }
}

impl Sender {
    /// A PROBE of the message at `at` is due, which was at `stage` before: queues it, and marks of
    /// the ends of the message's paths before it.
    pub(super) fn queue_probe(&mut self, at: usize, stage: SendStage, settings: &EndpointSettings) {
        let is_first = stage == SendStage::Sending;
        let mut ends = self.ends_in_flight(at);
        ends.retain(|&mut end| !is_first || self.numbers.is_last(end));
        self.messages[at].probe.marked_again = 0;
        let class = self.messages[at].lowest_class(&settings.policy);
        if !ends.iter().any(|end| end.class == class) {
            ends.push(PathMark {
                class,
                entropy: self.spray.take(),
                number: PathNumber::default(),
            });
        }
        self.queue_marks(at, ends);
    }

    /// The receiver waits for the ends of these paths of a message, counted as PROBE has named them:
    /// marks them again.
    pub(super) fn mark_awaited(&mut self, at: usize, awaited: u64) {
        let sending = &mut self.messages[at];
        if awaited == 0 || sending.probe.marked_again >= MARKED_AGAIN_MAX {
            return;
        }
        sending.probe.marked_again += 1;
        let ends = (0..64).zip(sending.ends());
        let ends = ends.filter(|(bit, _)| awaited >> bit & 1 == 1);
        let ends = ends.map(|(_, &end)| end).collect();
        self.queue_marks(at, ends);
    }

    /// Queues a PROBE on each of these paths. The last one asks for a report: it has the lowest
    /// class, so that it waits in queues as long as the data does.
    fn queue_marks(&mut self, at: usize, mut paths: SmallVec<[PathMark; 8]>) {
        paths.sort_by_key(|path| path.class);
        let message = self.messages[at].id();
        let last = paths.len().saturating_sub(1);
        let marks = paths.into_iter().enumerate().map(|(at, path)| TailMark {
            message,
            path,
            flags: if at == last {
                Flags::NONE
            } else {
                Flags::MARKER
            },
        });
        self.tail.due.extend(marks);
    }

    /// On lossy paths, the last packet of a message that was sent, on each path on which one is in
    /// flight.
    fn ends_in_flight(&self, at: usize) -> SmallVec<[PathMark; 8]> {
        let (sending, mut ends) = (&self.messages[at], SmallVec::<[PathMark; 8]>::new());
        let mut left = match self.tail.record() {
            PathRecord::Clean => 0,
            PathRecord::Lossy if sending.all_sent() => sending.in_flight(),
            PathRecord::Lossy => 0,
        };
        for (class, flights) in (0..).zip(&self.classes) {
            // The last packets are found first.
            for flight in flights.flights.iter().rev() {
                if left == 0 {
                    break;
                }
                if flight.message != sending.id() || !sending.is_current(flight) {
                    continue;
                }
                left -= 1;
                let path = PathMark {
                    class: Class(class),
                    entropy: flight.entropy,
                    number: flight.number,
                };
                if !ends.iter().any(|end| end.shares_path(path)) {
                    ends.push(path);
                }
            }
        }
        ends
    }

    /// The next PROBE that was queued.
    pub(super) fn poll_queued(
        &mut self,
        now: Instant,
        settings: &EndpointSettings,
        body: &mut Vec<u8>,
    ) -> Option<Header> {
        loop {
            let mark = self.tail.due.pop_front()?;
            let Some(at) = self.position(mark.message) else {
                continue;
            };
            let sending = &self.messages[at];
            sending.write_probe(settings.segment_bytes as usize, body);
            let all_sent = match sending.all_sent() {
                true => Flags::ALL_SENT,
                false => Flags::NONE,
            };
            let guess = match sending.guesses {
                true => Flags::GUESS,
                false => Flags::NONE,
            };
            let (class, entropy) = (mark.path.class, mark.path.entropy);
            return Some(Header {
                kind: PacketKind::Probe,
                class,
                entropy,
                number: self.numbers.take(class, entropy, 1).number,
                flags: mark.flags.with(all_sent).with(guess),
                segment: sending.sent().min(sending.segments() - 1),
                length: body.len() as u16,
                ..sending.template(now)
            });
        }
    }
}
