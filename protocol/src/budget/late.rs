//! How much the contributions to one sum may miss because they are late.
//!
//! All messages that are added up in one place have the same key, one from each peer. Patience
//! ([`crate::message::ReceiveRequest::patience_ends`]) gives up late segments of any of them, also
//! a whole message, as long as all of them together miss no more than they tolerate together. So a
//! sum of 64 ranks that tolerates 10 % can do without six late ranks.

use std::collections::BTreeMap;

use super::BudgetVerdict;
use crate::units::{MessageKey, Step};

/// The bytes that sums of recent steps may lack.
#[derive(Clone, Debug, Default)]
pub(super) struct LateBudgets {
    of: BTreeMap<MessageKey, LateBudget>,
}

/// The bytes that one sum may lack.
#[derive(Clone, Copy, Debug)]
struct LateBudget {
    step: Step,
    allowed_bytes: u64,
    given_up_bytes: u64,
}

impl LateBudgets {
    /// A message of a sum has patience and tolerates `allowed` missing bytes.
    pub(super) fn add(&mut self, step: Step, key: MessageKey, allowed: u64) {
        let fresh = LateBudget {
            step,
            allowed_bytes: 0,
            given_up_bytes: 0,
        };
        let budget = self.of.entry(key).or_insert(fresh);
        if budget.step != step {
            *budget = fresh; // the numbers of operations have wrapped
        }
        budget.allowed_bytes += allowed;
    }

    /// Whether a message of the sum may be given up with so many bytes missing.
    pub(super) fn verdict(&self, key: MessageKey, bytes: u64) -> BudgetVerdict {
        let fits = |budget: &LateBudget| budget.given_up_bytes + bytes <= budget.allowed_bytes;
        match self.of.get(&key).is_some_and(fits) {
            true => BudgetVerdict::Accepted,
            false => BudgetVerdict::Refused,
        }
    }

    /// A message of the sum is given up.
    pub(super) fn spend(&mut self, key: MessageKey, bytes: u64) {
        if let Some(budget) = self.of.get_mut(&key) {
            budget.given_up_bytes += bytes;
        }
    }

    /// Forgets the sums of a step.
    pub(super) fn forget(&mut self, step: Step) {
        self.of.retain(|_, budget| budget.step != step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: MessageKey = MessageKey::new(0, 1, 0);

    fn of_63_messages(step: Step) -> LateBudgets {
        let mut budgets = LateBudgets::default();
        for _ in 0..63 {
            budgets.add(step, KEY, 100);
        }
        budgets
    }

    #[test]
    fn a_sum_does_without_whole_messages_up_to_its_tolerance() {
        let mut budgets = of_63_messages(Step(1));
        let given_up = (0..63).filter(|_| {
            let fits = budgets.verdict(KEY, 1000) == BudgetVerdict::Accepted;
            if fits {
                budgets.spend(KEY, 1000);
            }
            fits
        });
        assert_eq!(given_up.count(), 6);
        assert_eq!(budgets.verdict(KEY, 300), BudgetVerdict::Accepted);
    }

    #[test]
    fn a_sum_without_patience_or_of_a_forgotten_step_does_without_none() {
        let mut budgets = of_63_messages(Step(1));
        let other = MessageKey::new(0, 2, 0);
        assert_eq!(budgets.verdict(other, 1), BudgetVerdict::Refused);
        budgets.forget(Step(1));
        assert_eq!(budgets.verdict(KEY, 1), BudgetVerdict::Refused);
    }
}
