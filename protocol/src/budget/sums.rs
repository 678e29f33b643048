//! How much the contributions to one sum may miss, where late ones may be given up.
//!
//! All messages that are added up in one place have the same key, one from each peer. Patience
//! ([`crate::message::ReceiveRequest::patience_ends`]) gives up late segments of any of them, also
//! a whole message, as long as all of them together miss no more than they tolerate together: lost
//! segments and late ones share that tolerance. So a sum of 64 ranks that tolerates 10 % can do
//! without six late ranks.

use std::collections::BTreeMap;

use super::BudgetVerdict;
use crate::message::SumName;
use crate::units::{MessageKey, Step};

/// The bytes that sums with patience may lack, of recent steps.
#[derive(Clone, Debug, Default)]
pub(super) struct SumBudgets {
    of: BTreeMap<MessageKey, SumBudget>,
}

/// The bytes that one sum may lack.
#[derive(Clone, Copy, Debug)]
struct SumBudget {
    step: Step,
    allowed_bytes: u64,
    /// Of holes and of what was given up.
    missing_bytes: u64,
}

impl SumBudgets {
    /// A message of the sum has patience and tolerates `allowed` missing bytes.
    pub(super) fn add(&mut self, sum: SumName, allowed: u64) {
        let fresh = SumBudget {
            step: sum.step,
            allowed_bytes: 0,
            missing_bytes: 0,
        };
        let budget = self.of.entry(sum.key).or_insert(fresh);
        if budget.step != sum.step {
            *budget = fresh; // the numbers of operations have wrapped
        }
        budget.allowed_bytes += allowed;
    }

    /// Whether the sum has patience.
    pub(super) fn has(&self, sum: SumName) -> bool {
        self.find(sum).is_some()
    }

    /// Whether the sum can do without this many bytes more. Without patience the tolerance of each
    /// message decides.
    pub(super) fn verdict(&self, sum: SumName, bytes: u64) -> BudgetVerdict {
        let fits = |budget: &SumBudget| budget.missing_bytes + bytes <= budget.allowed_bytes;
        match self.find(sum).is_none_or(fits) {
            true => BudgetVerdict::Accepted,
            false => BudgetVerdict::Refused,
        }
    }

    /// Bytes of the sum are missing.
    pub(super) fn spend(&mut self, sum: SumName, bytes: u64) {
        if let Some(budget) = self.find_mut(sum) {
            budget.missing_bytes += bytes;
        }
    }

    /// Missing bytes of the sum have arrived after all.
    pub(super) fn give_back(&mut self, sum: SumName, bytes: u64) {
        if let Some(budget) = self.find_mut(sum) {
            budget.missing_bytes -= bytes;
        }
    }

    /// Forgets the sums of a step.
    pub(super) fn forget(&mut self, step: Step) {
        self.of.retain(|_, budget| budget.step != step);
    }

    /// How many sums are remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.of.len()
    }

    fn find(&self, sum: SumName) -> Option<&SumBudget> {
        let budget = self.of.get(&sum.key);
        budget.filter(|budget| budget.step == sum.step)
    }

    fn find_mut(&mut self, sum: SumName) -> Option<&mut SumBudget> {
        let budget = self.of.get_mut(&sum.key);
        budget.filter(|budget| budget.step == sum.step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUM: SumName = SumName {
        step: Step(1),
        key: MessageKey::new(0, 1, 0),
    };

    fn of_63_messages() -> SumBudgets {
        let mut budgets = SumBudgets::default();
        for _ in 0..63 {
            budgets.add(SUM, 100);
        }
        budgets
    }

    #[test]
    fn a_sum_does_without_whole_messages_up_to_its_tolerance() {
        let mut budgets = of_63_messages();
        let given_up = (0..63).filter(|_| {
            let fits = budgets.verdict(SUM, 1000) == BudgetVerdict::Accepted;
            if fits {
                budgets.spend(SUM, 1000);
            }
            fits
        });
        assert_eq!(given_up.count(), 6);
        assert_eq!(budgets.verdict(SUM, 300), BudgetVerdict::Accepted);
        assert_eq!(budgets.verdict(SUM, 301), BudgetVerdict::Refused);
        budgets.give_back(SUM, 1);
        assert_eq!(budgets.verdict(SUM, 301), BudgetVerdict::Accepted);
    }

    #[test]
    fn only_sums_of_remembered_steps_have_patience() {
        let mut budgets = of_63_messages();
        let other = SumName {
            key: MessageKey::new(0, 2, 0),
            ..SUM
        };
        assert!(budgets.has(SUM) && !budgets.has(other));
        budgets.forget(SUM.step);
        assert!(!budgets.has(SUM));
    }
}
