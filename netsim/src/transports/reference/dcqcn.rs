//! DCQCN: the rate of a flow at its sender, and the notifications of its receiver.
//!
//! Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015, section 3.1. A
//! receiver that sees marks sends a notification (CNP), at most one per flow in 50 us.
//!
//! Timers are checked when the flow sends or is notified, not when they expire: the rate has no
//! effect between two packets.

use gradwire_protocol::machine::Ecn;
use gradwire_protocol::units::{ByteCount, Instant, Rate, Span};

use super::cargo::{CargoKind, ReferenceCargo};
use super::flow_host::FlowDesk;
use crate::engine::host::Envelope;

/// Weight of the newest period in alpha (g = 1/256).
const GAIN: f64 = 1.0 / 256.0;
/// Alpha shrinks, and the rate grows, after each such time without a notification. A little longer
/// than the minimum time between notifications.
const PERIOD: Span = Span::from_micros(55);
/// Bytes after which the rate grows as after a period.
const BYTES: u64 = 10_000_000;
/// Steps back to the target before that grows as well (F = 5).
const RECOVERY_STEPS: u32 = 5;
/// The target grows by the link's rate divided by this: 40 Mb/s of 40 Gb/s (R_AI).
const ADDITIVE: f64 = 1_000.0;
/// And by this when both timer and bytes have reached that stage (R_HAI); ten times as much, as in
/// QCN.
const HYPER: f64 = 100.0;
/// The minimum rate is the link's divided by this: 100 Mb/s of 100 Gb/s.
const LEAST: f64 = 1_000.0;

/// Minimum time between notifications of a flow.
const NOTIFICATION_GAP: Span = Span::from_micros(50);

/// The rule for the rates of flows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RateRule {
    /// Marks slow a flow down.
    Dcqcn,
    /// Every flow sends at the rate of the link, whatever its receiver sees.
    Line,
}

/// The notifications of a flow, at its receiver.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Notifications {
    last: Option<Instant>,
}

impl Notifications {
    /// Counts the mark of a packet that has arrived, and notifies its sender if that is due.
    pub(crate) fn arrived(
        &mut self,
        desk: &mut FlowDesk,
        envelope: &Envelope,
        cargo: &ReferenceCargo,
        rates: RateRule,
    ) {
        if envelope.ecn != Ecn::Ce {
            return;
        }
        desk.outbox.counts.marks += 1;
        let is_due = (self.last).is_none_or(|last| desk.now.since(last) >= NOTIFICATION_GAP);
        if rates == RateRule::Dcqcn && is_due {
            self.last = Some(desk.now);
            let notification = cargo.answer(CargoKind::Congestion);
            desk.outbox.answer(envelope, notification);
        }
    }
}

/// The rate of a flow.
#[derive(Clone, Debug)]
pub(crate) struct FlowRate {
    link: Rate,
    /// Bits per second now, and the rate before the last notification plus its growth since.
    current: f64,
    target: f64,
    alpha: f64,
    /// When alpha shrinks and when the rate grows next; none before the first notification.
    timers: Option<Timers>,
    bytes: u64,
    timer_steps: u32,
    byte_steps: u32,
}

#[derive(Clone, Copy, Debug)]
struct Timers {
    alpha: Instant,
    growth: Instant,
}

impl FlowRate {
    /// Starts at the rate of the link.
    pub(crate) fn new(link: Rate) -> Self {
        let rate = link.as_bits_per_second() as f64;
        Self {
            link,
            current: rate,
            target: rate,
            alpha: 1.0,
            timers: None,
            bytes: 0,
            timer_steps: 0,
            byte_steps: 0,
        }
    }

    /// Notes a congestion notification.
    pub(crate) fn notified(&mut self, now: Instant) {
        self.expire(now);
        let least = self.link.as_bits_per_second() as f64 / LEAST;
        self.target = self.current;
        self.current = (self.current * (1.0 - self.alpha / 2.0)).max(least);
        self.alpha += GAIN * (1.0 - self.alpha);
        self.timers = Some(Timers {
            alpha: now + PERIOD,
            growth: now + PERIOD,
        });
        (self.bytes, self.timer_steps, self.byte_steps) = (0, 0, 0);
    }

    /// Notes a packet that leaves; returns how long to wait before the next one.
    pub(crate) fn sent(&mut self, now: Instant, bytes: u32) -> Span {
        self.expire(now);
        if self.timers.is_some() {
            self.bytes += u64::from(bytes);
            if self.bytes >= BYTES {
                self.bytes -= BYTES;
                self.byte_steps += 1;
                self.grow();
            }
        }
        let rate = Rate::from_bits_per_second(self.current as u64);
        rate.transmit_time(ByteCount::new(u64::from(bytes)))
    }

    fn expire(&mut self, now: Instant) {
        let Some(mut timers) = self.timers else {
            return;
        };
        while timers.alpha <= now {
            self.alpha *= 1.0 - GAIN;
            timers.alpha = timers.alpha + PERIOD;
        }
        while timers.growth <= now {
            self.timer_steps += 1;
            self.grow();
            timers.growth = timers.growth + PERIOD;
        }
        self.timers = Some(timers);
    }

    fn grow(&mut self) {
        let link = self.link.as_bits_per_second() as f64;
        let (fewer, more) = (
            self.timer_steps.min(self.byte_steps),
            self.timer_steps.max(self.byte_steps),
        );
        if fewer > RECOVERY_STEPS {
            self.target += link / HYPER;
        } else if more > RECOVERY_STEPS {
            self.target += link / ADDITIVE;
        }
        self.target = self.target.min(link);
        self.current = (self.current + self.target) / 2.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: Rate = Rate::from_gbps(100);

    fn after(periods: u64) -> Instant {
        Instant::START + PERIOD * periods
    }

    #[test]
    fn before_any_notification_packets_follow_each_other_at_line_rate() {
        let mut rate = FlowRate::new(LINK);
        assert_eq!(rate.sent(after(100), 4150), Span::from_nanos(332));
    }

    #[test]
    fn the_first_notification_halves_and_five_periods_bring_most_of_it_back() {
        let mut rate = FlowRate::new(LINK);
        rate.notified(Instant::START);
        assert_eq!(rate.sent(Instant::START, 4150), Span::from_nanos(664));
        rate.sent(after(5), 4150);
        assert_eq!(rate.current, 1e11 * (1.0 - 0.5 / 32.0));
        assert_eq!(rate.target, 1e11);
    }

    #[test]
    fn after_five_periods_the_target_grows_beyond_what_it_was() {
        let mut rate = FlowRate::new(LINK);
        rate.notified(Instant::START);
        rate.notified(Instant::START);
        rate.sent(after(5), 4150);
        assert_eq!(rate.target, 5e10);
        rate.sent(after(7), 4150);
        assert_eq!(rate.target, 5e10 + 2.0 * 1e8);
    }

    #[test]
    fn notifications_never_stop_a_flow() {
        let mut rate = FlowRate::new(LINK);
        for _ in 0..100 {
            rate.notified(Instant::START);
        }
        assert_eq!(rate.current, 1e8);
    }
}
