//! How many control packets a pair of ranks exchanges while it waits.
//!
//! A peer that is heard may be sent this many a second. One that is not heard is asked more often,
//! so that an outage costs little time: every 20 ms at first, and after a part of its silence. An
//! answer counts for the rank that asks.

use gradwire_protocol::units::{Instant, Span};
use gradwire_protocol::wire::PacketKind;

use super::evidence::Found;
use super::violation::ClusterCheck;

/// A pair waits once it has exchanged no DATA and posted no message for this long.
const QUIET: Span = Span::from_millis(5_000);
/// Control packets per second that a waiting rank may send to one peer.
const PER_SECOND: f64 = 10.0;
/// Control packets beyond that rate in one go, of several messages at once for example.
const AT_ONCE: f64 = 40.0;
/// Unheard for longer than that, a peer counts as silent.
const HEARD: Span = Span::from_millis(100);
/// A silent peer is asked after this part of its silence.
const SILENCE_PART: f64 = 128.0;
/// The silence from which on that part is longer than the shortest wait, of 32 gaps of 100 us.
const SILENCE_MIN_S: f64 = 0.4;

/// The control packets of one direction of a pair.
#[derive(Clone, Copy, Debug, Default)]
struct ControlTraffic {
    quiet_since: Instant,
    /// All of them in the wait.
    sent: u64,
    /// To a peer that is heard.
    counted: f64,
    /// When the sender last heard the other end.
    heard: Instant,
    /// Control packets since then.
    unheard: f64,
    /// Packets of the other end that ask for an answer.
    unanswered: u32,
}

/// Whether a control packet of this kind asks for an answer.
fn asks(kind: PacketKind) -> bool {
    matches!(
        kind,
        PacketKind::Probe | PacketKind::Reset | PacketKind::Stop | PacketKind::Bitmap
    )
}

/// The control packets of all pairs.
#[derive(Debug)]
pub(crate) struct WaitingTraffic {
    ranks: u16,
    pairs: Vec<ControlTraffic>,
    most_per_minute: u64,
}

impl WaitingTraffic {
    pub(crate) fn new(ranks: u16) -> Self {
        Self {
            ranks,
            pairs: vec![ControlTraffic::default(); usize::from(ranks * ranks)],
            most_per_minute: 0,
        }
    }

    /// The most control packets per minute that a pair has sent in a wait of a minute and more.
    pub(crate) fn most_per_minute(&self) -> u64 {
        self.most_per_minute
    }

    /// DATA was sent between two ranks.
    pub(crate) fn data(&mut self, now: Instant, (a, b): (u16, u16)) {
        for (from, to) in [(a, b), (b, a)] {
            let pair = &mut self.pairs[usize::from(from * self.ranks + to)];
            *pair = ControlTraffic {
                quiet_since: now,
                heard: now,
                ..ControlTraffic::default()
            };
        }
    }

    /// A rank has begun or ended an operation.
    pub(crate) fn stir(&mut self, now: Instant, rank: u16) {
        for other in 0..self.ranks {
            self.data(now, (rank, other));
        }
    }

    /// The driver of rank `to` has read a packet of rank `from`.
    pub(crate) fn heard(&mut self, now: Instant, (from, to): (u16, u16), kind: PacketKind) {
        let back = &mut self.pairs[usize::from(to * self.ranks + from)];
        back.heard = now;
        back.unheard = 0.0;
        back.unanswered += u32::from(asks(kind));
    }

    /// A control packet was sent.
    pub(crate) fn control(
        &mut self,
        now: Instant,
        (from, to): (u16, u16),
        kind: PacketKind,
    ) -> Result<(), Found> {
        let pair = &mut self.pairs[usize::from(from * self.ranks + to)];
        let quiet = (now - pair.quiet_since).beyond(QUIET);
        pair.sent += u64::from(quiet > Span::ZERO);
        let minutes = quiet.as_secs_f64() / 60.0;
        if minutes >= 1.0 {
            let rate = (pair.sent as f64 / minutes).ceil() as u64;
            self.most_per_minute = self.most_per_minute.max(rate);
        }
        if !asks(kind) && pair.unanswered > 0 {
            pair.unanswered -= 1;
            return Ok(());
        }
        if quiet == Span::ZERO {
            return Ok(());
        }
        pair.unheard += 1.0;
        let silence = now - pair.heard;
        let (sent, allowed) = if silence > HEARD {
            let parts = 1.0 + (1.0 + silence.as_secs_f64() / SILENCE_MIN_S).ln();
            (pair.unheard, AT_ONCE + SILENCE_PART * parts)
        } else {
            pair.counted += 1.0;
            (pair.counted, AT_ONCE + PER_SECOND * quiet.as_secs_f64())
        };
        if sent <= allowed {
            return Ok(());
        }
        let detail = format!(
            "rank {from} sent {sent} control packets to rank {to} in {quiet} while both waited, \
             and heard it {silence} ago"
        );
        Err((ClusterCheck::Economy, detail))
    }
}
