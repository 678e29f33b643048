//! How fast a link is, from the times of the messages that took it.
//!
//! A message says when its first packet left and when its last one arrived, but not how much of it
//! went when: it may have waited in between, behind others or for its receiver. All messages that
//! began and ended within a stretch of time, however, went within it. So the link carries at least
//! their bits in that time, and in a stretch in which it never idled no more. The rate of a step is
//! that of its fullest stretch, and the link's rate is the median over steps. Time counts only
//! while messages are on their way: otherwise a link that has little to carry would seem slow.
//!
//! Long stretches have the pauses of the hosts, short ones hardly any. But a link whose messages
//! wait for another link pauses, too, and would be faster without that other link.

use std::collections::BTreeMap;

/// The share of a step's bits in stretches that are long enough to have the usual pauses.
const USUAL: f64 = 0.75;
/// And in those that are so short that some have hardly any.
const BUSIEST: f64 = 0.125;
/// A link that keeps less of its busiest rate waits for other links.
const LEAST_KEPT: f64 = 0.85;
/// Starts of stretches that are tried in a step: enough to meet one where a busy time begins.
const BEGINS: usize = 256;

/// The messages that took one direction of a link, by step.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkUse {
    steps: BTreeMap<u32, Vec<LinkMessage>>,
}

/// A message on a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkMessage {
    /// When it began and ended to take the link, in microseconds.
    pub(crate) times: (f64, f64),
    /// Its length.
    pub(crate) bits: f64,
}

impl LinkUse {
    /// A message of a step took the link.
    pub(crate) fn add(&mut self, step: u32, message: LinkMessage) {
        self.steps.entry(step).or_default().push(message);
    }

    /// How fast it was; `None` if no message took any time.
    pub(crate) fn rates(&self) -> Option<LinkRates> {
        let steps = self.sorted();
        Some(LinkRates {
            usual: rate(&steps, USUAL)?,
            busiest: rate(&steps, BUSIEST)?,
        })
    }

    fn sorted(&self) -> Vec<StepUse> {
        let steps = self.steps.values();
        steps.map(|messages| StepUse::of(messages)).collect()
    }
}

/// The rates of a link, in bits a microsecond.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LinkRates {
    /// With the pauses that it had.
    pub(crate) usual: f64,
    /// With hardly any.
    pub(crate) busiest: f64,
}

impl LinkRates {
    /// The share of its busiest rate that it kept.
    pub(crate) fn kept(&self) -> f64 {
        self.usual / self.busiest
    }

    /// Its capacity, if the link of the run that paused least kept this share. A link that
    /// kept much less waited for another one.
    pub(crate) fn capacity(&self, best: f64) -> f64 {
        match self.kept() < LEAST_KEPT.min(best) {
            true => self.busiest * best,
            false => self.usual,
        }
    }
}

/// The rate in stretches with at least this share of the bits of a step.
fn rate(steps: &[StepUse], share: f64) -> Option<f64> {
    let rates = steps.iter().filter_map(|step| step.fullest(share));
    median(rates.collect())
}

/// The median, the upper one of an even count; `None` of an empty list.
pub(crate) fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied()
}

/// The messages of a step on a link, in the orders in which stretches need them.
#[derive(Clone, Debug)]
struct StepUse {
    bits: f64,
    /// When each message began, and the busy time until then.
    begins: Vec<(f64, f64)>,
    /// The messages by their ends, and the busy time until then.
    by_end: Vec<(LinkMessage, f64)>,
}

impl StepUse {
    fn of(messages: &[LinkMessage]) -> Self {
        let mut by_begin = messages.to_vec();
        by_begin.sort_by(|one, other| one.times.0.total_cmp(&other.times.0));
        let busy = BusyTime::of(&by_begin);
        let begins = by_begin
            .iter()
            .map(|one| (one.times.0, busy.until(one.times.0)));
        let mut by_end: Vec<(LinkMessage, f64)> = (messages.iter())
            .map(|&one| (one, busy.until(one.times.1)))
            .collect();
        by_end.sort_by(|one, other| one.0.times.1.total_cmp(&other.0.times.1));
        Self {
            bits: messages.iter().map(|one| one.bits).sum(),
            begins: begins.collect(),
            by_end,
        }
    }

    /// The highest rate of a stretch with at least this share of the bits of all messages.
    fn fullest(&self, share: f64) -> Option<f64> {
        let least = self.bits * share;
        let every = self.begins.len().div_ceil(BEGINS).max(1);
        let rates = self
            .begins
            .iter()
            .step_by(every)
            .flat_map(|&(begin, before)| {
                let inside = self
                    .by_end
                    .iter()
                    .filter(move |(one, _)| one.times.0 >= begin);
                let totals = inside.scan(0.0, move |bits, (one, until)| {
                    *bits += one.bits;
                    Some((*bits, until - before))
                });
                let long =
                    totals.filter(move |&(bits, took): &(f64, f64)| bits >= least && took > 0.0);
                long.map(|(bits, took)| bits / took)
            });
        rates.max_by(f64::total_cmp)
    }
}

/// The times in which messages are on their way.
#[derive(Clone, Debug)]
struct BusyTime {
    /// When each such time begins and ends, and the sum of all earlier ones.
    spells: Vec<(f64, f64, f64)>,
}

impl BusyTime {
    fn of(by_begin: &[LinkMessage]) -> Self {
        let mut spells: Vec<(f64, f64, f64)> = Vec::new();
        for &LinkMessage {
            times: (from, to), ..
        } in by_begin
        {
            match spells.last_mut() {
                Some((_, end, _)) if from <= *end => *end = end.max(to),
                last => {
                    let before = last.map_or(0.0, |(begin, end, before)| *before + *end - *begin);
                    spells.push((from, to.max(from), before));
                }
            }
        }
        Self { spells }
    }

    /// How much of the time until then is busy.
    fn until(&self, at: f64) -> f64 {
        let begun = self.spells.partition_point(|&(begin, ..)| begin <= at);
        let last = begun.checked_sub(1).map(|last| self.spells[last]);
        last.map_or(0.0, |(begin, end, before)| before + at.min(end) - begin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(messages: &[(f64, f64, f64)]) -> Vec<StepUse> {
        let mut of_link = LinkUse::default();
        for &(from, to, bits) in messages {
            let times = (from, to);
            of_link.add(0, LinkMessage { times, bits });
        }
        of_link.sorted()
    }

    #[test]
    fn a_message_that_waits_behind_others_does_not_make_its_link_slow() {
        // 10 bits a microsecond. The first message waits for the second one after half of its bits.
        let messages = [(0.0, 30.0, 100.0), (5.0, 25.0, 200.0)];
        assert_eq!(rate(&used(&messages), 0.25), Some(10.0));
    }

    #[test]
    fn a_link_that_has_little_to_carry_is_not_slow() {
        let messages = [(0.0, 10.0, 100.0), (500.0, 510.0, 100.0)];
        assert_eq!(rate(&used(&messages), 1.0), Some(10.0));
    }

    #[test]
    fn short_stretches_have_fewer_pauses() {
        // The second message pauses as long as it is sent.
        let messages = [(0.0, 10.0, 100.0), (10.0, 30.0, 100.0)];
        assert_eq!(rate(&used(&messages), 1.0), Some(200.0 / 30.0));
        assert_eq!(rate(&used(&messages), 0.5), Some(10.0));
    }

    #[test]
    fn a_link_that_waits_for_another_one_could_carry_more() {
        let rates = |usual, busiest| LinkRates { usual, busiest };
        assert_eq!(rates(8.6, 10.0).capacity(0.9), 8.6, "its own pauses");
        assert_eq!(rates(5.0, 10.0).capacity(0.9), 9.0);
        assert_eq!(rates(5.0, 10.0).capacity(0.5), 5.0, "no link kept more");
    }

    #[test]
    fn the_rate_is_the_median_over_steps() {
        let mut of_link = LinkUse::default();
        for (step, bits) in [(0, 10.0), (1, 1000.0), (2, 20.0)] {
            let times = (0.0, 1.0);
            of_link.add(step, LinkMessage { times, bits });
        }
        assert_eq!(rate(&of_link.sorted(), 1.0), Some(20.0));
        assert_eq!(
            rate(&used(&[(1.0, 1.0, 8.0)]), 1.0),
            None,
            "it took no time"
        );
    }
}
