//! One timer per flow, which every ACK can push back at no cost.
//!
//! A flow remembers its true deadline itself. The entry here may be earlier, never later: when it
//! comes due, the flow either acts or is entered again for its true deadline.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gradwire_protocol::units::Instant;

/// The earliest entry of a flow in [`Alarms`], if it has one; kept by the flow.
pub(crate) type FlowAlarm = Option<Instant>;

/// Timers of a host's flows.
#[derive(Debug, Default)]
pub(crate) struct Alarms {
    entries: BinaryHeap<Reverse<(Instant, u32)>>,
}

impl Alarms {
    /// Makes sure that `flow` comes due no later than at `at`.
    pub(crate) fn no_later_than(&mut self, at: Instant, flow: u32, alarm: &mut FlowAlarm) {
        if alarm.is_none_or(|set| at < set) {
            *alarm = Some(at);
            self.entries.push(Reverse((at, flow)));
        }
    }

    /// When the next flow comes due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.entries.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes out a flow that has come due. Entries that differ from the flow's `alarm` are stale.
    pub(crate) fn take_due(
        &mut self,
        now: Instant,
        alarm: impl Fn(u32) -> Option<FlowAlarm>,
    ) -> Option<u32> {
        while self.next().is_some_and(|at| at <= now) {
            let Reverse((at, flow)) = self.entries.pop()?;
            if alarm(flow).flatten() == Some(at) {
                return Some(flow);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_deadline_needs_no_new_entry_and_an_earlier_one_does() {
        let (mut alarms, mut alarm) = (Alarms::default(), None);
        for at in [50, 80, 30] {
            alarms.no_later_than(Instant::from_picos(at), 7, &mut alarm);
        }
        assert_eq!(alarm, Some(Instant::from_picos(30)));
        let set = |_| Some(alarm);
        assert_eq!(alarms.take_due(Instant::from_picos(29), set), None);
        assert_eq!(alarms.take_due(Instant::from_picos(60), set), Some(7));
        // The entry for 50 is no longer an alarm.
        assert_eq!(alarms.take_due(Instant::from_picos(60), set), None);
        assert_eq!(alarms.next(), None);
    }
}
