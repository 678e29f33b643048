//! Marks behind a message: a PROBE on each path whose last packet belongs to it.
//!
//! A packet that is lost in midstream shows by the next one of its path ([`crate::order`]). Behind
//! the last packet of a message there may be none, so on lossy paths the sender sends one: a PROBE
//! in the class of the data, on each path on which nothing has left since. If no report answers,
//! all paths of the message are marked again.

use std::collections::VecDeque;

use super::Sender;
use super::message::PathRecord;
use super::probe::SendStage;
use crate::settings::EndpointSettings;
use crate::units::{Entropy, Instant, MessageId};
use crate::wire::{Flags, Header, PacketKind, PathMark};

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
        let sending = &self.messages[at];
        let message = sending.id();
        let wants_marks =
            sending.all_sent() && sending.is_in_flight() && self.tail.record() == PathRecord::Lossy;
        let is_first = stage != SendStage::SaidAllSent;
        let ends = sending.ends().iter().copied();
        let marked = ends.filter(|&end| wants_marks && (!is_first || self.numbers.is_last(end)));
        let before = self.tail.due.len();
        self.tail.due.extend(marked.map(|path| TailMark {
            message,
            path,
            flags: Flags::MARKER,
        }));
        let class = sending.lowest_class(&settings.policy);
        // The last one asks for a report. It waits in queues as long as the data does.
        let lowest = (self.tail.due.range(before..)).rposition(|mark| mark.path.class == class);
        match lowest {
            Some(lowest) => {
                let last = self.tail.due.len() - 1;
                self.tail.due.swap(before + lowest, last);
                self.tail.due[last].flags = Flags::NONE;
            }
            None => {
                let path = PathMark {
                    class,
                    entropy: self.spray.take(),
                    number: Default::default(),
                };
                let flags = Flags::NONE;
                self.tail.due.push_back(TailMark {
                    message,
                    path,
                    flags,
                });
            }
        }
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
            let (class, entropy): (_, Entropy) = (mark.path.class, mark.path.entropy);
            return Some(Header {
                kind: PacketKind::Probe,
                class,
                entropy,
                number: self.numbers.take(class, entropy, 1).number,
                flags: mark.flags.with(all_sent),
                segment: sending.sent().min(sending.segments() - 1),
                length: body.len() as u16,
                ..sending.template(now)
            });
        }
    }
}
