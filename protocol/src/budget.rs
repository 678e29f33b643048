//! The loss budget of a rank: how much of each training step may be missing, and how much is
//! missing.
//!
//! A message's own tolerance bounds its holes; this ledger bounds their sum over a step.
//!
//! 1. A lossy message that is posted [adds](Ledger::owe) to the budget of its step. So the first
//!    message of a step cannot spend the budget of later ones.
//! 2. A hole is [reserved](Ledger::reserve) when the receiver accepts it. If the step's budget is
//!    spent, or that of a sum with patience (`budget/sums.rs`), the ledger refuses.
//! 3. A reserved hole whose segment arrives after all is [released](Ledger::release); the others
//!    are [lost](Ledger::lose) when their message is complete.
//! 4. Of more than 64 steps, the ledger forgets the oldest one without reservations. The oldest is
//!    the step that was posted first, since numbers of steps wrap.
//! 5. Packets that this host's own kernel dropped were not lost by the network. The ledger
//!    remembers when that happened, and [says](Ledger::blames_host) which messages may have holes
//!    from it.
//! 6. A message whose patience is over is given up if the step's budget and that of its sum have
//!    room for all that it misses.

mod sums;

use std::collections::VecDeque;

use self::sums::SumBudgets;
use crate::message::{ReceiveRequest, SumName};
use crate::settings::EndpointLimits;
use crate::units::{Instant, Share, Span, Step};

/// If this host dropped the first packets of a message, it learns of the message within this time:
/// the sender keeps probing, at least every 20 ms.
const KNOWN_AFTER: Span = Span::from_millis(200);

/// The account of one step.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LossAccount {
    /// Bytes of the lossy messages posted in the step.
    pub owed_bytes: u64,
    /// How many of them may be lost: each message's tolerance, capped by the step's.
    pub allowed_bytes: u64,
    /// Bytes of accepted holes in messages that are not complete.
    pub reserved_bytes: u64,
    /// Bytes accepted as lost.
    pub lost_bytes: u64,
    /// Segments accepted as lost.
    pub lost_segments: u64,
}

/// The loss budget of one rank.
#[derive(Clone, Debug)]
pub struct Ledger {
    cap: Share,
    /// The steps that are remembered, in the order in which messages were first posted in them.
    steps: VecDeque<(Step, LossAccount)>,
    /// Maximum number of them; older ones remain in the total.
    steps_kept: usize,
    total: LossAccount,
    sums: SumBudgets,
    host_drops_at: Option<Instant>,
}

impl Ledger {
    /// An empty ledger that lets at most `cap` of each step's bytes be lost.
    pub fn new(cap: Share) -> Self {
        Self {
            cap,
            steps: VecDeque::new(),
            steps_kept: EndpointLimits::USUAL.steps,
            total: LossAccount::default(),
            sums: SumBudgets::default(),
            host_drops_at: None,
        }
    }

    /// Remembers this many steps one by one.
    pub(crate) fn keep_steps(&mut self, steps: usize) {
        self.steps_kept = steps;
    }

    /// This host's own kernel has dropped packets before `now`.
    pub fn on_host_drops(&mut self, now: Instant) {
        self.host_drops_at = Some(now);
    }

    /// Whether a message that tolerates loss was ever posted.
    pub fn is_owed(&self) -> bool {
        self.total.owed_bytes > 0
    }

    /// Whether this host may have dropped packets of an incomplete message that began to arrive at
    /// `begun`.
    pub fn blames_host(&self, begun: Instant) -> bool {
        self.host_drops_at
            .is_some_and(|at| begun <= at + KNOWN_AFTER)
    }

    /// A message of `bytes`, of which `tolerance` may be lost, was posted in `step`. A lossless one
    /// is not counted.
    pub fn owe(&mut self, step: Step, bytes: u32, tolerance: Share) {
        if tolerance.is_none() {
            return;
        }
        let bytes = u64::from(bytes);
        let allowed = tolerance.min(self.cap).of(bytes);
        if self.step(step).is_none() {
            self.forget_old_steps();
            self.steps.push_back((step, LossAccount::default()));
        }
        for account in self.accounts(step) {
            account.owed_bytes += bytes;
            account.allowed_bytes += allowed;
        }
    }

    /// Makes room for a step. A step with reservations is kept: they will be released or lost
    /// there.
    fn forget_old_steps(&mut self) {
        let is_over = |(_, account): &(Step, LossAccount)| account.reserved_bytes == 0;
        while self.steps.len() >= self.steps_kept
            && let Some(oldest) = self.steps.iter().position(is_over)
        {
            let forgotten = self.steps.remove(oldest);
            if let Some((step, _)) = forgotten {
                self.sums.forget(step);
            }
        }
    }

    /// Reserves a hole of a message, if the budgets of its step and of its sum allow it.
    pub fn reserve(&mut self, sum: SumName, bytes: u64) -> BudgetVerdict {
        if self.sums.verdict(sum, bytes) == BudgetVerdict::Refused {
            return BudgetVerdict::Refused;
        }
        let Some(account) = find(&mut self.steps, sum.step) else {
            return BudgetVerdict::Refused;
        };
        if account.lost_bytes + account.reserved_bytes + bytes > account.allowed_bytes {
            return BudgetVerdict::Refused;
        }
        account.reserved_bytes += bytes;
        self.total.reserved_bytes += bytes;
        self.sums.spend(sum, bytes);
        BudgetVerdict::Accepted
    }

    /// A message with patience was posted: its sum may do without as much more as it tolerates. A
    /// lossless one is not counted, as its step may have no account with which to forget it.
    pub(crate) fn share_patience(&mut self, request: &ReceiveRequest) {
        if request.tolerance.is_none() {
            return;
        }
        let allowed = request.tolerance.min(self.cap).of(u64::from(request.bytes));
        self.sums.add(request.sum(), allowed);
    }

    /// Reserves holes of a message whose patience is over: all `bytes` that it misses, or none.
    pub(crate) fn give_up(&mut self, sum: SumName, bytes: u64) -> BudgetVerdict {
        match self.sums.has(sum) {
            true => self.reserve(sum, bytes),
            false => BudgetVerdict::Refused,
        }
    }

    /// A hole that was reserved has arrived after all.
    pub fn release(&mut self, sum: SumName, bytes: u64) {
        for account in self.accounts(sum.step) {
            account.reserved_bytes -= bytes;
        }
        self.sums.give_back(sum, bytes);
    }

    /// Reserved holes are lost for good: `segments` of them, of `bytes` together.
    pub fn lose(&mut self, step: Step, segments: u32, bytes: u64) {
        for account in self.accounts(step) {
            account.reserved_bytes -= bytes;
            account.lost_bytes += bytes;
            account.lost_segments += u64::from(segments);
        }
    }

    /// The account of the step, if it is recent, and the total.
    fn accounts(&mut self, step: Step) -> impl Iterator<Item = &mut LossAccount> {
        let account = find(&mut self.steps, step);
        account.into_iter().chain([&mut self.total])
    }

    /// The account of a step, if it is recent.
    pub fn step(&self, step: Step) -> Option<LossAccount> {
        let mut newest_first = self.steps.iter().rev();
        let found = newest_first.find(|(of, _)| *of == step);
        found.map(|&(_, account)| account)
    }

    /// The sum over all steps.
    pub fn total(&self) -> LossAccount {
        self.total
    }
}

fn find(steps: &mut VecDeque<(Step, LossAccount)>, step: Step) -> Option<&mut LossAccount> {
    let mut newest_first = steps.iter_mut().rev();
    let found = newest_first.find(|(of, _)| *of == step);
    found.map(|(_, account)| account)
}

/// Whether holes fit the budget.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BudgetVerdict {
    /// They fit and are reserved.
    Accepted,
    /// The budget of the step, or of the sum, has no room: they must be repaired.
    Refused,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::message::LengthRule;
    use crate::units::{MessageKey, Signature};

    const STEPS_KEPT: usize = EndpointLimits::USUAL.steps;

    fn in_step(step: Step) -> SumName {
        let key = MessageKey::new(0, 0, 0);
        SumName { step, key }
    }

    #[test]
    fn a_step_never_loses_more_than_its_share() {
        let mut ledger = Ledger::new(Share::new(0.1).expect("within 0 to 1"));
        ledger.owe(Step(1), 1000, Share::ALL);
        assert_eq!(
            ledger.reserve(in_step(Step(1)), 60),
            BudgetVerdict::Accepted
        );
        assert_eq!(ledger.reserve(in_step(Step(1)), 60), BudgetVerdict::Refused);
        ledger.owe(Step(1), 200, Share::ALL);
        assert_eq!(
            ledger.reserve(in_step(Step(1)), 60),
            BudgetVerdict::Accepted
        );
        ledger.lose(Step(1), 2, 120);
        assert_eq!(ledger.reserve(in_step(Step(1)), 1), BudgetVerdict::Refused);
        let LossAccount {
            lost_bytes,
            reserved_bytes,
            ..
        } = ledger.total();
        assert_eq!((lost_bytes, reserved_bytes), (120, 0));
    }

    #[test]
    fn released_bytes_can_be_lost_elsewhere() {
        let mut ledger = Ledger::new(Share::new(0.1).expect("within 0 to 1"));
        ledger.owe(Step(1), 1000, Share::ALL);
        assert_eq!(
            ledger.reserve(in_step(Step(1)), 100),
            BudgetVerdict::Accepted
        );
        ledger.release(in_step(Step(1)), 60);
        assert_eq!(ledger.reserve(in_step(Step(1)), 61), BudgetVerdict::Refused);
        assert_eq!(
            ledger.reserve(in_step(Step(1)), 60),
            BudgetVerdict::Accepted
        );
        assert_eq!(ledger.total().lost_bytes, 0);
    }

    #[test]
    fn an_old_step_is_kept_while_it_has_reservations() {
        let mut ledger = Ledger::new(Share::ALL);
        ledger.owe(Step(0), 100, Share::ALL);
        assert_eq!(
            ledger.reserve(in_step(Step(0)), 30),
            BudgetVerdict::Accepted
        );
        for step in 1..=STEPS_KEPT as u32 {
            ledger.owe(Step(step), 100, Share::ALL);
        }
        assert_eq!(
            (ledger.step(Step(1)), ledger.steps.len()),
            (None, STEPS_KEPT)
        );
        ledger.release(in_step(Step(0)), 10);
        ledger.lose(Step(0), 1, 20);
        let total = ledger.total();
        assert_eq!((total.reserved_bytes, total.lost_bytes), (0, 20));
        ledger.owe(Step(1000), 100, Share::ALL);
        assert_eq!(ledger.step(Step(0)), None);
    }

    #[test]
    fn steps_are_accounted_after_their_numbers_wrap() {
        let mut ledger = Ledger::new(Share::ALL);
        for n in 0..2 * STEPS_KEPT as u32 {
            let step = Step((u32::MAX - STEPS_KEPT as u32).wrapping_add(n));
            ledger.owe(step, 100, Share::ALL);
            assert_eq!(
                ledger.reserve(in_step(step), 30),
                BudgetVerdict::Accepted,
                "{step}"
            );
            ledger.lose(step, 1, 30);
        }
    }

    #[test]
    fn sums_without_a_tolerance_are_not_remembered() {
        let mut ledger = Ledger::new(Share::ALL);
        for sequence in 0..100 {
            let request = ReceiveRequest {
                key: MessageKey::new(0, sequence, 0),
                signature: Signature::NONE,
                step: Step(sequence),
                bytes: 1000,
                length: LengthRule::Exact,
                tolerance: Share::NONE,
                urgency: None,
                patience_ends: Some(Instant::START),
            };
            ledger.owe(request.step, request.bytes, request.tolerance);
            ledger.share_patience(&request);
            let verdict = ledger.give_up(request.sum(), 0);
            assert_eq!(verdict, BudgetVerdict::Refused, "all of it must arrive");
        }
        assert_eq!(ledger.sums.len(), 0, "no step forgets them");
    }

    /// What happens to a ledger: an operation of a step.
    #[derive(Clone, Copy, Debug)]
    enum Act {
        Owe(u32),
        Reserve(u32),
        Release(usize),
        Lose(usize),
    }

    fn act() -> impl Strategy<Value = Act> {
        let step = prop_oneof![0..3_u32, 0..200_u32, (u32::MAX - 100)..u32::MAX];
        prop_oneof![
            step.clone().prop_map(Act::Owe),
            step.prop_map(Act::Reserve),
            any::<usize>().prop_map(Act::Release),
            any::<usize>().prop_map(Act::Lose),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn every_reservation_ends_once_whatever_is_forgotten(
            acts in prop::collection::vec(act(), 1..400),
        ) {
            let mut ledger = Ledger::new(Share::ALL);
            let (mut reserved, mut lost): (Vec<Step>, u64) = (Vec::new(), 0);
            for act in acts {
                match act {
                    Act::Owe(step) => ledger.owe(Step(step), 20, Share::ALL),
                    Act::Reserve(step) => {
                        if ledger.reserve(in_step(Step(step)), 10) == BudgetVerdict::Accepted {
                            reserved.push(Step(step));
                        }
                    }
                    Act::Release(at) if !reserved.is_empty() => {
                        let step = reserved.swap_remove(at % reserved.len());
                        ledger.release(in_step(step), 10);
                    }
                    Act::Lose(at) if !reserved.is_empty() => {
                        let step = reserved.swap_remove(at % reserved.len());
                        ledger.lose(step, 1, 10);
                        lost += 10;
                    }
                    Act::Release(_) | Act::Lose(_) => {}
                }
                let LossAccount { reserved_bytes, lost_bytes, .. } = ledger.total();
                prop_assert_eq!(reserved_bytes, 10 * reserved.len() as u64);
                prop_assert_eq!(lost_bytes, lost);
                for step in &reserved {
                    let of_step = reserved.iter().filter(|other| *other == step).count() as u64;
                    let account = ledger.step(*step).expect("it has reservations");
                    prop_assert_eq!(account.reserved_bytes, 10 * of_step);
                    let used = account.reserved_bytes + account.lost_bytes;
                    prop_assert!(used <= account.allowed_bytes);
                }
                prop_assert!(ledger.steps.len() <= STEPS_KEPT + reserved.len());
            }
        }
    }

    #[test]
    fn the_host_is_blamed_for_messages_around_its_drops() {
        let at = |millis| Instant::START + Span::from_millis(millis);
        let mut ledger = Ledger::new(Share::ALL);
        assert!(!ledger.blames_host(at(1)));
        ledger.on_host_drops(at(5));
        assert!(ledger.blames_host(at(1)) && ledger.blames_host(at(205)));
        assert!(!ledger.blames_host(at(206)));
    }

    #[test]
    fn lost_and_late_segments_share_a_sums_tolerance() {
        let request = ReceiveRequest {
            key: in_step(Step(1)).key,
            signature: Signature::NONE,
            step: Step(1),
            bytes: 1000,
            length: LengthRule::Exact,
            tolerance: Share::new(0.1).expect("within 0 to 1"),
            urgency: None,
            patience_ends: Some(Instant::START),
        };
        let mut ledger = Ledger::new(Share::ALL);
        for _ in 0..2 {
            ledger.owe(request.step, request.bytes, request.tolerance);
            ledger.share_patience(&request);
        }
        // Another sum of the step leaves more of its budget than this one may use.
        ledger.owe(request.step, 1000, Share::ALL);
        let sum = request.sum();
        assert_eq!(ledger.reserve(sum, 150), BudgetVerdict::Accepted);
        assert_eq!(ledger.give_up(sum, 60), BudgetVerdict::Refused);
        assert_eq!(ledger.give_up(sum, 50), BudgetVerdict::Accepted);
        assert_eq!(ledger.reserve(sum, 1), BudgetVerdict::Refused);
        ledger.release(sum, 50);
        assert_eq!(ledger.give_up(sum, 50), BudgetVerdict::Accepted);
    }

    #[test]
    fn a_step_that_owes_nothing_accepts_nothing() {
        let mut ledger = Ledger::new(Share::ALL);
        assert_eq!(ledger.reserve(in_step(Step(1)), 1), BudgetVerdict::Refused);
    }
}
