//! Decides which message leaves next, and how many bytes are on their way at once (Peng et al.,
//! ByteScheduler, SOSP 2019).
//!
//! 1. Messages of older steps leave before those of newer ones.
//! 2. In a step, more urgent messages leave first, then earlier ones.
//! 3. While the credit is spent, no message leaves.
//!
//! A waiting message can still be overtaken by a more urgent one; a message that was let go cannot.
//! So a small credit lets front layers through soon. A credit that is too small leaves the link
//! idle until word comes back that a message has arrived.
//!
//! Why older steps first: a rank may be a step ahead of another one. If its front layers overtook
//! the messages that the other rank needs to get there, both would wait for each other forever. For
//! the same reason no message starves: only messages of its own or an older step overtake it.
//!
//! Urgency itself is decided by [`gradwire_protocol::priority`].

use std::collections::BTreeMap;

use gradwire_protocol::priority::Urgency;
use gradwire_protocol::units::{ByteCount, Step, StepClock, StepSerial};

/// A message that is ready to leave.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReadyMessage {
    /// The training step that it belongs to.
    pub step: Step,
    /// How soon it is needed.
    pub urgency: Urgency,
    /// Its length.
    pub bytes: ByteCount,
}

/// Messages that wait for their turn, each known by a ticket of its owner.
#[derive(Clone, Debug)]
pub struct Scheduler<Ticket> {
    /// Zero is unbounded.
    credit: ByteCount,
    /// Bytes of messages that were let go and are not finished.
    on_their_way: ByteCount,
    /// By step, urgency, and number of arrival.
    waiting: BTreeMap<(StepSerial, Urgency, u64), (Ticket, ByteCount)>,
    steps: StepClock,
    arrivals: u64,
    /// Arrivals before this number were waiting when the credit was spent.
    refused_until: u64,
    held: u64,
}

impl<Ticket> Scheduler<Ticket> {
    /// A scheduler without messages. A message is let go while fewer bytes than `credit` are on
    /// their way, however long it is itself; a credit of zero is unbounded.
    pub fn new(credit: ByteCount) -> Self {
        Self {
            credit,
            on_their_way: ByteCount::new(0),
            waiting: BTreeMap::new(),
            steps: StepClock::default(),
            arrivals: 0,
            refused_until: 0,
            held: 0,
        }
    }

    /// Changes the credit for messages that are let go from now on; zero is unbounded.
    pub fn set_credit(&mut self, credit: ByteCount) {
        self.credit = credit;
    }

    /// A message is ready to leave.
    pub fn post(&mut self, post: ReadyMessage, ticket: Ticket) {
        let step = self.steps.serial(post.step);
        let turn = (step, post.urgency, self.arrivals);
        self.arrivals += 1;
        self.waiting.insert(turn, (ticket, post.bytes));
    }

    /// The message that leaves now; `None` if no message waits or the credit is spent. Call it
    /// until `None` after each [`Scheduler::post`] and [`Scheduler::finished`].
    #[expect(
        clippy::should_implement_trait,
        reason = "no iterator: what is next depends on what happens between two calls"
    )]
    pub fn next(&mut self) -> Option<Ticket> {
        let unbounded = self.credit == ByteCount::new(0);
        if !unbounded && self.on_their_way >= self.credit {
            self.refused_until = self.arrivals;
            return None;
        }
        let ((_, _, arrival), (ticket, bytes)) = self.waiting.pop_first()?;
        self.held += u64::from(arrival < self.refused_until);
        self.on_their_way = ByteCount::new(self.on_their_way.get() + bytes.get());
        Some(ticket)
    }

    /// These bytes, which were let go, are no longer on their way.
    pub fn finished(&mut self, bytes: ByteCount) {
        let left = self.on_their_way.get().saturating_sub(bytes.get());
        self.on_their_way = ByteCount::new(left);
    }

    /// Forgets the waiting messages whose tickets are not to be kept.
    pub fn retain(&mut self, keep: impl Fn(&Ticket) -> bool) {
        self.waiting.retain(|_, (ticket, _)| keep(ticket));
    }

    /// Whether no message waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Messages that were let go only when credit came back.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Bytes of messages that were let go and are not finished.
    pub fn on_their_way(&self) -> ByteCount {
        self.on_their_way
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradwire_protocol::units::Layer;

    fn post(step: u32, layer: u16, bytes: u64) -> ReadyMessage {
        ReadyMessage {
            step: Step(step),
            urgency: Urgency::of(Layer(layer)),
            bytes: ByteCount::new(bytes),
        }
    }

    fn all(scheduler: &mut Scheduler<u32>) -> Vec<u32> {
        std::iter::from_fn(|| scheduler.next()).collect()
    }

    #[test]
    fn older_steps_then_front_layers_leave_first() {
        let mut scheduler = Scheduler::new(ByteCount::new(0));
        let posts = [(1, 0), (0, 7), (0, 2), (1, 3), (0, 2), (0, 7)];
        for (ticket, (step, layer)) in posts.into_iter().enumerate() {
            scheduler.post(post(step, layer, 10), ticket as u32);
        }
        assert_eq!(all(&mut scheduler), [2, 4, 1, 5, 0, 3]);
        assert!(scheduler.is_empty());
    }

    #[test]
    fn older_steps_leave_first_where_their_numbers_wrap() {
        let mut scheduler = Scheduler::new(ByteCount::new(0));
        for (ticket, step) in [u32::MAX - 1, 1, u32::MAX, 0].into_iter().enumerate() {
            scheduler.post(post(step, 0, 10), ticket as u32);
        }
        assert_eq!(all(&mut scheduler), [0, 2, 3, 1]);
    }

    #[test]
    fn a_message_leaves_while_any_credit_is_left() {
        let mut scheduler = Scheduler::new(ByteCount::new(100));
        for ticket in 0..4 {
            scheduler.post(post(0, 0, 70), ticket);
        }
        assert_eq!(all(&mut scheduler), [0, 1], "the second one overdraws");
        assert_eq!(scheduler.on_their_way(), ByteCount::new(140));
        scheduler.finished(ByteCount::new(40));
        assert_eq!(scheduler.next(), None, "exactly the credit is on its way");
        scheduler.finished(ByteCount::new(30));
        assert_eq!(all(&mut scheduler), [2]);
        scheduler.finished(ByteCount::new(140));
        assert_eq!(all(&mut scheduler), [3]);
    }

    #[test]
    fn a_changed_credit_applies_to_waiting_messages() {
        let mut scheduler = Scheduler::new(ByteCount::new(10));
        for ticket in 0..6 {
            scheduler.post(post(0, 0, 10), ticket);
        }
        assert_eq!((all(&mut scheduler), scheduler.held()), (vec![0], 0));
        scheduler.set_credit(ByteCount::new(30));
        assert_eq!((all(&mut scheduler), scheduler.held()), (vec![1, 2], 2));
        scheduler.set_credit(ByteCount::new(10));
        scheduler.finished(ByteCount::new(20));
        assert_eq!(all(&mut scheduler), []);
        scheduler.set_credit(ByteCount::new(0));
        assert_eq!(all(&mut scheduler), [3, 4, 5]);
    }

    #[test]
    fn a_message_longer_than_the_credit_leaves_alone() {
        let mut scheduler = Scheduler::new(ByteCount::new(10));
        scheduler.post(post(0, 1, 1_000), 0);
        scheduler.post(post(0, 0, 1_000), 1);
        assert_eq!(all(&mut scheduler), [1]);
        scheduler.finished(ByteCount::new(1_000));
        assert_eq!(all(&mut scheduler), [0]);
    }

    #[test]
    fn forgotten_messages_do_not_leave() {
        let mut scheduler = Scheduler::new(ByteCount::new(0));
        for ticket in 0..6 {
            scheduler.post(post(0, 0, 1), ticket);
        }
        scheduler.retain(|ticket| ticket % 2 == 1);
        assert_eq!(all(&mut scheduler), [1, 3, 5]);
    }

    #[test]
    fn urgent_later_steps_do_not_starve_an_older_one() {
        let mut scheduler = Scheduler::new(ByteCount::new(10));
        scheduler.post(post(0, 0, 10), 0);
        assert_eq!(all(&mut scheduler), [0]);
        scheduler.post(post(1, u16::MAX, 10), 1_000);
        for later in 1..100 {
            scheduler.post(post(1 + later, 0, 10), later);
        }
        scheduler.finished(ByteCount::new(10));
        assert_eq!(all(&mut scheduler), [1_000]);
    }

    /// How a worker of ByteScheduler's example sends.
    #[derive(Clone, Copy)]
    struct RoundRule {
        /// Units in which a tensor is sent; `None` sends it whole.
        part: Option<u64>,
        urgencies: [u16; 3],
        credit: u64,
    }

    /// A link that sends one unit of data in one of time, in the order of a scheduler.
    struct HeapLink {
        scheduler: Scheduler<(usize, u64)>,
        sending: Vec<(usize, u64, u64)>,
    }

    impl HeapLink {
        fn new(how: RoundRule) -> Self {
            Self {
                scheduler: Scheduler::new(ByteCount::new(how.credit)),
                sending: Vec::new(),
            }
        }

        fn post(&mut self, how: RoundRule, (layer, units): (usize, u64)) {
            let urgency = how.urgencies[layer];
            let post = post(0, urgency, units);
            self.scheduler.post(post, (layer, units));
        }

        /// One unit of time; the part that has crossed at its end.
        fn tick(&mut self) -> Option<(usize, u64)> {
            while let Some((layer, units)) = self.scheduler.next() {
                self.sending.push((layer, units, units));
            }
            let (layer, units, left) = self.sending.first_mut()?;
            *left -= 1;
            let crossed = (*left == 0).then_some((*layer, *units))?;
            self.sending.remove(0);
            self.scheduler.finished(ByteCount::new(crossed.1));
            Some(crossed)
        }
    }

    /// Units of time of a step: backward, push, pull, and a forward whose layers wait for theirs.
    fn step_of_the_example(how: RoundRule) -> u64 {
        const UNITS: [u64; 3] = [3, 6, 3];
        const COMPUTE: u64 = 2;
        let (mut push, mut pull) = (HeapLink::new(how), HeapLink::new(how));
        let (mut pulled, mut forward, mut free_at) = ([0; 3], 0, 3 * COMPUTE);
        for now in 0_u64.. {
            if now > 0 && now % COMPUTE == 0 && now / COMPUTE <= 3 {
                let layer = 3 - (now / COMPUTE) as usize;
                let part = how.part.unwrap_or(UNITS[layer]);
                for _ in 0..UNITS[layer] / part {
                    push.post(how, (layer, part));
                }
            }
            if free_at <= now && pulled[forward] == UNITS[forward] {
                (free_at, forward) = (now + COMPUTE, forward + 1);
                if forward == 3 {
                    return free_at;
                }
            }
            let pulling = pull.tick();
            if let Some(part) = push.tick() {
                pull.post(how, part);
            }
            if let Some((layer, units)) = pulling {
                pulled[layer] += units;
            }
        }
        unreachable!("time does not end");
    }

    #[test]
    fn the_published_example_takes_18_units_scheduled() {
        let arrival = RoundRule {
            part: None,
            urgencies: [0; 3],
            credit: 0,
        };
        let scheduled = RoundRule {
            part: Some(1),
            urgencies: [0, 1, 2],
            credit: 1,
        };
        assert_eq!(step_of_the_example(arrival), 26);
        assert_eq!(step_of_the_example(scheduled), 18);
    }

    #[test]
    fn unbounded_credit_sends_in_order_of_arrival() {
        let let_go_at_once = RoundRule {
            part: None,
            urgencies: [0, 1, 2],
            credit: 0,
        };
        assert_eq!(step_of_the_example(let_go_at_once), 26);
    }
}
