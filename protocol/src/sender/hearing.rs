//! Which reports of the peer have come, and when their word is proven.
//!
//! 1. A report echoes a packet: packets that were sent long before it are lost, or earlier reports
//!    have told of them. It may also say that paths have passed a number, which proves the same of
//!    their earlier packets. Reports are numbered, since they may overtake each other, not
//!    least when a host that has stood still reads its sockets in turn, or be lost.
//! 2. The word counts once all earlier reports have come. A report that repeats the news of the one
//!    before it stands for that one, too.
//! 3. A report counts as lost once it is missing for longer than reports have recently overtaken
//!    each other by ([`ReportsHeard::lateness`]); where they never do, at once. The news that it
//!    brought of a message comes again with the next report of that message, so until then no word
//!    counts for that message ([`ReportsHeard::knows_since`]).

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::lateness::Lateness;
use crate::units::{Class, Instant, PathNumber, Span, Stamp};
use crate::wire::PathMark;

/// A report that is further behind is no longer compared with others, whose numbers wrap.
const REPORTS_APART_MAX: i32 = 1 << 30;

/// So many reports before the newest one are remembered as come or missing. More than a hundred may
/// be under way while a long path carries a large window.
const PLACES: u32 = u128::BITS;
/// Words that wait for earlier reports, at most; the oldest ones are forgotten.
const HELD_MAX: usize = PLACES as usize;

/// What a report says about packets that it does not name.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct ReportWord {
    /// Its number.
    pub(super) number: PathNumber,
    /// The packet that it echoes: its class, and when it was sent.
    pub(super) echo: (Class, Stamp),
    /// Paths that have passed a number.
    pub(super) passed: SmallVec<[PathMark; 2]>,
    /// Whether it has the news of the report before it, too.
    pub(super) repeats: bool,
}

/// The reports of one peer.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct ReportsHeard {
    /// The number after the newest report that has come.
    next: PathNumber,
    /// Bit b: the report b + 1 before `next` has not come.
    missing: u128,
    /// Those of them that may still come.
    awaited: u128,
    /// Since when a report before this number is missing.
    overdue: Option<(Instant, PathNumber)>,
    /// When a report was last missed.
    missed: Instant,
    /// How late overtaken reports have come.
    late: Lateness,
    /// Words that are not proven.
    held: SmallVec<[ReportWord; 2]>,
    /// The newest report that counts as lost.
    lost: Option<PathNumber>,
}

impl ReportsHeard {
    /// Of a peer whose first report has this number.
    pub(super) fn new(first: PathNumber) -> Self {
        Self {
            next: first,
            missing: 0,
            awaited: 0,
            overdue: None,
            missed: Instant::START,
            late: Lateness::default(),
            held: SmallVec::new(),
            lost: None,
        }
    }

    /// The number of the peer's next report, if none overtakes it.
    pub(super) fn next(&self) -> PathNumber {
        self.next
    }

    /// Whether no report after this one counts as lost.
    pub(super) fn knows_since(&self, report: PathNumber) -> bool {
        self.lost.is_none_or(|lost| report.ahead_of(lost) > 0)
    }

    /// A report has come; none is later than `most`. Returns whether another one counts as lost
    /// since now.
    pub(super) fn on_report(&mut self, now: Instant, word: ReportWord, most: Span) -> bool {
        let (number, lost_before) = (word.number, self.lost);
        self.late.fade();
        self.lost = (self.lost).filter(|&lost| self.next.ahead_of(lost) < REPORTS_APART_MAX);
        let ahead = number.ahead_of(self.next);
        if ahead >= 0 {
            let skipped = ahead.unsigned_abs();
            let new = bit(skipped).wrapping_sub(1) << 1;
            let older = |reports: u128| reports.checked_shl(skipped + 1).unwrap_or(0);
            self.forget_before(number, skipped);
            self.missing = older(self.missing) | new;
            self.awaited = older(self.awaited) | new;
            self.next = number.plus(1);
            if skipped > 0 {
                self.missed = now;
            }
        } else if self.missing & bit(self.place(number)) != 0 {
            let since = self.overdue.map_or(self.missed, |(since, _)| since);
            self.late.learn(now - since, most);
        }
        let newest = self.place(number);
        self.missing &= !bit(newest);
        self.awaited &= !bit(newest);
        if word.repeats {
            self.awaited &= !bit(newest.saturating_add(1));
        }
        self.give_up(now);
        if self.held.len() == HELD_MAX {
            self.held.remove(0);
        }
        self.held.push(word);
        self.lost.is_some() && self.lost != lost_before
    }

    /// Whether all reports of late have come.
    pub(super) fn are_complete(&self) -> bool {
        self.missing == 0
    }

    /// A word that is proven by now; each is given once.
    pub(super) fn take_proven(&mut self) -> Option<ReportWord> {
        let is_proven = |word: &ReportWord| {
            let earlier = self.place(word.number).saturating_add(1);
            self.awaited.checked_shr(earlier).unwrap_or(0) == 0
        };
        let at = self.held.iter().position(is_proven)?;
        Some(self.held.remove(at))
    }

    /// The bit of a report that is not newer than the newest one.
    fn place(&self, number: PathNumber) -> u32 {
        self.next.ahead_of(number.plus(1)).unsigned_abs()
    }

    /// A report has come that leaves no place for the oldest ones: those that are awaited count as
    /// lost, and as many of the ones that it skipped as have no place.
    fn forget_before(&mut self, number: PathNumber, skipped: u32) {
        let kept = PLACES.saturating_sub(skipped + 1);
        let old = self.awaited & !bit(kept).wrapping_sub(1);
        let newest = match skipped < PLACES {
            true if old == 0 => return,
            true => self.next.0.wrapping_sub(old.trailing_zeros() + 1),
            false => number.0.wrapping_sub(PLACES),
        };
        self.lost = Some(PathNumber(newest));
    }

    fn give_up(&mut self, now: Instant) {
        if self.awaited == 0 {
            self.overdue = None;
            return;
        }
        let (since, before) = *self.overdue.get_or_insert((now, self.next));
        if now - since >= self.late.expected() {
            let later = self.next.ahead_of(before).unsigned_abs();
            let kept = bit(later).wrapping_sub(1);
            let lost = self.awaited & !kept;
            if lost != 0 {
                let behind = lost.trailing_zeros() + 1;
                self.lost = Some(PathNumber(self.next.0.wrapping_sub(behind)));
            }
            self.awaited &= kept;
            self.overdue = (self.awaited != 0).then_some((now, self.next));
        }
    }
}

/// The bit at a place; none where there is no such place.
fn bit(place: u32) -> u128 {
    1_u128.checked_shl(place).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Span = Span::from_micros(100);

    /// The word of a report with this number.
    fn word(number: PathNumber) -> ReportWord {
        ReportWord {
            number,
            echo: (Class(1), Stamp::default()),
            passed: SmallVec::new(),
            repeats: false,
        }
    }

    fn repeating(number: PathNumber) -> ReportWord {
        ReportWord {
            repeats: true,
            ..word(number)
        }
    }

    /// Hears reports at these microseconds with these numbers; gives the numbers of those whose
    /// words are proven after each.
    fn proven(
        first: u32,
        heard: &[(u64, u32)],
        word: fn(PathNumber) -> ReportWord,
    ) -> Vec<Vec<u32>> {
        let mut reports = ReportsHeard::new(PathNumber(first));
        let hear = |&(micros, number): &(u64, u32)| {
            let now = Instant::START + Span::from_micros(micros);
            let number = PathNumber(first.wrapping_add(number));
            reports.on_report(now, word(number), MOST);
            let numbers = std::iter::from_fn(|| reports.take_proven());
            let numbers = numbers.map(|word| word.number.0.wrapping_sub(first));
            numbers.collect()
        };
        heard.iter().map(hear).collect()
    }

    #[test]
    fn where_reports_keep_order_a_missing_one_is_lost() {
        let heard = [(0, 1), (1, 3), (100, 4)];
        let expected = [vec![1], vec![3], vec![4]];
        assert_eq!(proven(0, &heard, word), expected);
    }

    #[test]
    fn where_reports_overtake_each_other_a_word_waits() {
        for first in [0, u32::MAX - 1] {
            // Report 0 comes 20 us after it was missed.
            let heard = [(0, 1), (20, 0), (30, 4), (31, 2), (32, 3), (33, 5)];
            let expected = [vec![1], vec![0], vec![], vec![2], vec![4, 3], vec![5]];
            assert_eq!(proven(first, &heard, word), expected, "from {first}");
        }
    }

    #[test]
    fn a_report_that_repeats_stands_for_the_one_before() {
        let heard = [(0, 1), (20, 0), (30, 3), (31, 6), (32, 5)];
        let expected = [vec![1], vec![0], vec![3], vec![], vec![6, 5]];
        assert_eq!(proven(7, &heard, repeating), expected);
    }

    #[test]
    fn a_missing_report_is_waited_for_only_so_long() {
        let heard = [(0, 1), (20, 0), (30, 3), (40, 4), (80, 5), (81, 6)];
        let expected = [vec![1], vec![0], vec![], vec![], vec![3, 4, 5], vec![6]];
        assert_eq!(proven(0, &heard, word), expected);
    }

    #[test]
    fn reports_without_a_place_count_as_lost_while_others_are_awaited() {
        let mut reports = ReportsHeard::new(PathNumber(0));
        // Report 1 is late, so a missing one is waited for.
        for (micros, number) in [(0, 0), (1, 2), (99, 1)] {
            let now = Instant::START + Span::from_micros(micros);
            reports.on_report(now, word(PathNumber(number)), MOST);
        }
        let now = Instant::START + Span::from_micros(100);
        let last = 2 + PLACES;
        for number in 4..=last {
            reports.on_report(now, word(PathNumber(number)), MOST);
            assert!(reports.knows_since(PathNumber(2)), "report {number}");
        }
        reports.on_report(now, word(PathNumber(last + 1)), MOST);
        assert!(!reports.knows_since(PathNumber(2)), "report 3 has no place");
        assert!(reports.knows_since(PathNumber(4)));
        let far = last + 10 + PLACES;
        reports.on_report(now, word(PathNumber(far)), MOST);
        assert!(!reports.knows_since(PathNumber(far - PLACES)));
        assert!(reports.knows_since(PathNumber(far - PLACES + 1)));
    }

    #[test]
    fn what_a_lost_report_told_is_unknown_until_the_next() {
        for first in [0, u32::MAX - 2] {
            let number = |number: u32| PathNumber(first.wrapping_add(number));
            let mut reports = ReportsHeard::new(number(0));
            // Report 2 is lost; report 4 stands for report 3.
            for report in [word(number(0)), word(number(1)), repeating(number(4))] {
                reports.on_report(Instant::START, report, MOST);
            }
            let known = [0, 1, 2, 3, 4].map(|at| reports.knows_since(number(at)));
            assert_eq!(known, [false, false, false, true, true], "from {first}");
        }
    }

    #[test]
    fn any_number_of_a_stranger_is_taken_without_a_panic() {
        for second in [0, 1, 126, 127, 128, 129, 1 << 31, (1 << 31) + 1, u32::MAX] {
            for third in [0, 127, 128, 1 << 31, u32::MAX] {
                for word in [word, repeating] {
                    proven(0, &[(0, 0), (1, second), (2, third)], word);
                }
            }
        }
    }

    #[test]
    fn words_that_wait_are_bounded() {
        let mut reports = ReportsHeard::new(PathNumber(0));
        for number in 1..1_000 {
            reports.on_report(Instant::START, word(PathNumber(number)), MOST);
        }
        assert_eq!(reports.held.len(), HELD_MAX);
    }
}
