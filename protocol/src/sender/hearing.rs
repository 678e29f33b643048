//! Which reports of the peer have come, and when their word about a path is proven.
//!
//! 1. A report says that a path has passed a number: its packets before that are lost, or earlier
//!    reports have told of them. Reports are numbered, since they may overtake each other or be
//!    lost.
//! 2. The word counts once all earlier reports have come. A report that repeats the news of the one
//!    before it stands for that one, too.
//! 3. A report counts as lost once it is missing for longer than reports have recently overtaken
//!    each other by ([`ReportsHeard::lateness`]); where they never do, at once. The news that it
//!    brought of a message comes again with the next report of that message, so until then no word
//!    counts for that message ([`ReportsHeard::knows_since`]).

use smallvec::SmallVec;

use super::lateness::Lateness;
use crate::units::{Instant, PathNumber, Span};
use crate::wire::{PathMark, SegmentReport};

/// Words that wait for earlier reports, at most; the oldest ones are forgotten.
const HELD_MAX: usize = 64;
/// A report that is further behind is no longer compared with others, whose numbers wrap.
const REPORTS_APART_MAX: i32 = 1 << 30;

/// The reports of one peer.
#[derive(Debug)]
pub(super) struct ReportsHeard {
    /// The number after the newest report that has come.
    next: PathNumber,
    /// Bit b: the report b + 1 before `next` has not come.
    missing: u64,
    /// Those of them that may still come.
    awaited: u64,
    /// Since when a report before this number is missing.
    overdue: Option<(Instant, PathNumber)>,
    /// When a report was last missed.
    missed: Instant,
    /// How late overtaken reports have come.
    late: Lateness,
    /// Words that are not proven, with the numbers of their reports.
    held: SmallVec<[(PathNumber, PathMark); 2]>,
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

    /// A report with this number has come; none is later than `most`.
    pub(super) fn on_report(
        &mut self,
        now: Instant,
        number: PathNumber,
        report: &SegmentReport,
        most: Span,
    ) {
        self.late.fade();
        self.lost = (self.lost).filter(|&lost| self.next.ahead_of(lost) < REPORTS_APART_MAX);
        let ahead = number.ahead_of(self.next);
        if ahead >= 0 {
            let skipped = ahead.unsigned_abs();
            let new = 1_u64.checked_shl(skipped).map_or(u64::MAX, |bit| bit - 1) << 1;
            let older = |reports: u64| reports.checked_shl(skipped + 1).unwrap_or(0);
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
        if report.repeats {
            self.awaited &= !bit(newest.saturating_add(1));
        }
        self.give_up(now);
        if let Some(passed) = report.passed {
            if self.held.len() == HELD_MAX {
                self.held.remove(0);
            }
            self.held.push((number, passed));
        }
    }

    /// Whether all reports of late have come.
    pub(super) fn are_complete(&self) -> bool {
        self.missing == 0
    }

    /// How much later than others reports may come, as far as these have shown.
    pub(super) fn lateness(&self) -> Span {
        self.late.expected()
    }

    /// A word about a path that is proven by now; each is given once.
    pub(super) fn take_proven(&mut self) -> Option<PathMark> {
        let is_proven = |&(number, _): &(PathNumber, PathMark)| {
            let earlier = self.place(number).saturating_add(1);
            self.awaited.checked_shr(earlier).unwrap_or(0) == 0
        };
        let at = self.held.iter().position(is_proven)?;
        Some(self.held.remove(at).1)
    }

    /// The bit of a report that is not newer than the newest one.
    fn place(&self, number: PathNumber) -> u32 {
        self.next.ahead_of(number.plus(1)).unsigned_abs()
    }

    fn give_up(&mut self, now: Instant) {
        if self.awaited == 0 {
            self.overdue = None;
            return;
        }
        let (since, before) = *self.overdue.get_or_insert((now, self.next));
        if now - since >= self.lateness() {
            let later = self.next.ahead_of(before).unsigned_abs();
            let kept = 1_u64.checked_shl(later).map_or(u64::MAX, |bit| bit - 1);
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
fn bit(place: u32) -> u64 {
    1_u64.checked_shl(place).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Class, Entropy};

    const MOST: Span = Span::from_micros(100);

    fn passed(number: u32) -> PathMark {
        PathMark {
            class: Class(1),
            entropy: Entropy(0),
            number: PathNumber(number),
        }
    }

    fn repeating() -> SegmentReport {
        SegmentReport {
            repeats: true,
            ..SegmentReport::default()
        }
    }

    /// Hears reports of a kind at these microseconds with these numbers, each with a word of its
    /// number; gives the words that are proven after each.
    fn proven(first: u32, heard: &[(u64, u32)], kind: SegmentReport) -> Vec<Vec<u32>> {
        let mut reports = ReportsHeard::new(PathNumber(first));
        let hear = |&(micros, number): &(u64, u32)| {
            let report = SegmentReport {
                passed: Some(passed(number)),
                ..kind
            };
            let now = Instant::START + Span::from_micros(micros);
            let number = PathNumber(first.wrapping_add(number));
            reports.on_report(now, number, &report, MOST);
            std::iter::from_fn(|| reports.take_proven().map(|mark| mark.number.0)).collect()
        };
        heard.iter().map(hear).collect()
    }

    #[test]
    fn where_reports_keep_order_a_missing_one_is_lost() {
        let heard = [(0, 1), (1, 3), (100, 4)];
        let expected = [vec![1], vec![3], vec![4]];
        assert_eq!(proven(0, &heard, SegmentReport::default()), expected);
    }

    #[test]
    fn where_reports_overtake_each_other_a_word_waits() {
        for first in [0, u32::MAX - 1] {
            // Report 0 comes 20 us after it was missed.
            let heard = [(0, 1), (20, 0), (30, 4), (31, 2), (32, 3), (33, 5)];
            let expected = [vec![1], vec![0], vec![], vec![2], vec![4, 3], vec![5]];
            assert_eq!(
                proven(first, &heard, SegmentReport::default()),
                expected,
                "from {first}"
            );
        }
    }

    #[test]
    fn a_report_that_repeats_stands_for_the_one_before() {
        let heard = [(0, 1), (20, 0), (30, 3), (31, 6), (32, 5)];
        let expected = [vec![1], vec![0], vec![3], vec![], vec![6, 5]];
        assert_eq!(proven(7, &heard, repeating()), expected);
    }

    #[test]
    fn a_missing_report_is_waited_for_only_so_long() {
        let heard = [(0, 1), (20, 0), (30, 3), (40, 4), (80, 5), (81, 6)];
        let expected = [vec![1], vec![0], vec![], vec![], vec![3, 4, 5], vec![6]];
        assert_eq!(proven(0, &heard, SegmentReport::default()), expected);
    }

    #[test]
    fn what_a_lost_report_told_is_unknown_until_the_next() {
        for first in [0, u32::MAX - 2] {
            let mut reports = ReportsHeard::new(PathNumber(first));
            // Report 2 is lost; report 4 stands for report 3.
            for (number, kind) in [
                (0, SegmentReport::default()),
                (1, SegmentReport::default()),
                (4, repeating()),
            ] {
                let number = PathNumber(first.wrapping_add(number));
                reports.on_report(Instant::START, number, &kind, MOST);
            }
            let known = [0, 1, 2, 3, 4].map(|number: u32| {
                let number = PathNumber(first.wrapping_add(number));
                reports.knows_since(number)
            });
            assert_eq!(known, [false, false, false, true, true], "from {first}");
        }
    }

    #[test]
    fn any_number_of_a_stranger_is_taken_without_a_panic() {
        for second in [0, 1, 62, 63, 64, 65, 1 << 31, (1 << 31) + 1, u32::MAX] {
            for third in [0, 63, 64, 1 << 31, u32::MAX] {
                for kind in [SegmentReport::default(), repeating()] {
                    proven(0, &[(0, 0), (1, second), (2, third)], kind);
                }
            }
        }
    }

    #[test]
    fn words_that_wait_are_bounded() {
        let mut reports = ReportsHeard::new(PathNumber(0));
        for number in 1..1_000 {
            let report = SegmentReport {
                passed: Some(passed(number)),
                ..SegmentReport::default()
            };
            reports.on_report(Instant::START, PathNumber(1), &report, MOST);
        }
        assert_eq!(reports.held.len(), HELD_MAX);
    }
}
