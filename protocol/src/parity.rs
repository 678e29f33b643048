//! Parity: packets behind a message that restore its last segments without a round trip.
//!
//! A segment that is lost in midstream is repaired while others are sent; one that is lost at the
//! end costs a round trip. So on lossy paths parity follows the last segments of a message, as many
//! as leave in a round trip: each packet of it is the XOR of a group of segments. A receiver
//! that lacks one segment of a group has it from the others.
//!
//! 1. Segment i is in column i modulo the number of columns, so that a run of losses hits as many
//!    groups as it has packets. Where one column would often lack two segments, there are rows,
//!    too: as many neighbours as there are columns. If a column lacks two segments, their rows
//!    restore one of them, and then the column the other (a product code: P. Elias, "Error-Free
//!    Coding", 1954).
//! 2. Every packet of a covered segment names the [`ParityLayout`]. A PARITY packet says of its
//!    group how many segments it has and the XOR of their indices, so that the receiver need not
//!    know which segments are covered.
//! 3. Only segments that must arrive are covered.
//! 4. The sender sends parity when it has no segment to send ([`crate::sender`]): it fills the time
//!    in which the link would be idle.
//!
//! The owner of the payload computes the XOR, the sender's as the packet leaves, the receiver's
//! group by group as segments arrive.

use serde::{Deserialize, Serialize};

use crate::units::Share;

/// The maximum number of segments of a group.
pub const GROUP_MAX: u32 = 64;
/// The maximum number of last segments that are covered.
pub const PARITY_WINDOW: u32 = GROUP_MAX * GROUP_MAX;
/// The maximum of [`ParityLayout::columns_log2`]: a row has as many segments as there are columns.
const COLUMNS_LOG2_MAX: u8 = GROUP_MAX.ilog2() as u8;
/// There is at most one parity packet for this many covered segments, unless the job says
/// otherwise: in collectives the next message is about to leave, and more parity delays it more
/// than it saves.
const COVERED_PER_PARITY: u32 = 16;
/// The same with rows, which restore so much more that they are worth it.
const COVERED_PER_PARITY_WITH_ROWS: u32 = 8;
/// Columns that lack two segments, in the mean over messages, if the number of columns allows it.
const UNRESTORED: f64 = 0.3;
/// At least so many covered segments for each parity packet, and columns that lack two, where a
/// round trip costs far more than parity ([`ParityTerms::room`]). Of a message that may miss
/// others, there may be one for every second, up to one for so many segments of the message.
const COVERED_PER_PARITY_FAR: u32 = 4;
const FEW_PER_PARITY_FAR: u32 = 2;
const SEGMENTS_PER_PARITY_FAR: u32 = 16;
const UNRESTORED_FAR: f64 = 0.05;

/// How much parity follows messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ParityRule {
    /// As much as the measured loss calls for.
    Auto,
    /// None.
    None,
    /// This share of the covered segments.
    Share(Share),
}

impl From<Option<Option<Share>>> for ParityRule {
    fn from(share: Option<Option<Share>>) -> Self {
        share.map_or(Self::Auto, |share| share.map_or(Self::None, Self::Share))
    }
}

impl From<ParityRule> for Option<Option<Share>> {
    fn from(rule: ParityRule) -> Self {
        match rule {
            ParityRule::Auto => None,
            ParityRule::None => Some(None),
            ParityRule::Share(share) => Some(Some(share)),
        }
    }
}

/// The conditions under which a message gets parity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParityTerms {
    pub(crate) rule: ParityRule,
    /// The share of packets that paths lose.
    pub(crate) loss: f64,
    /// Parity packets that leave in a small part of a long round trip; 0 if that is short.
    pub(crate) room: u32,
    /// Segments of the message, if it may miss some; else 0.
    pub(crate) among: u32,
}

/// The groups of a message's covered segments.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ParityLayout {
    columns_log2: u8,
    has_rows: bool,
}

/// A group of segments: a column, or after the columns a row.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct ParityGroup(pub u32);

/// The groups that a segment is in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ParityGroups {
    /// Its column.
    pub column: ParityGroup,
    /// Its row, if there are rows.
    pub row: Option<ParityGroup>,
}

impl ParityGroups {
    /// The column, and the row if there is one.
    pub fn iter(self) -> impl Iterator<Item = ParityGroup> {
        [Some(self.column), self.row].into_iter().flatten()
    }
}

/// Segments of a message that follow each other, all of them covered.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct CoveredRun {
    layout: ParityLayout,
    /// Segments of the message.
    segments: u32,
    first: u32,
}

impl CoveredRun {
    /// The run from segment `first` on, in a message of `segments`.
    pub(crate) fn new(layout: ParityLayout, segments: u32, first: u32) -> Self {
        Self {
            layout,
            segments,
            first,
        }
    }

    /// The groups of the segment that is `ahead` of the first; `None` if it can have none.
    pub fn groups(self, ahead: u32) -> Option<ParityGroups> {
        self.layout.groups(self.segments, self.first + ahead)
    }
}

/// The first segment that may be covered in a message of `segments`.
fn window_start(segments: u32) -> u32 {
    segments.saturating_sub(PARITY_WINDOW)
}

impl ParityLayout {
    /// The layout for `covered` segments, of at most [`PARITY_WINDOW`]; `None` where no parity is
    /// worth its packets.
    pub(crate) fn choose(terms: ParityTerms, covered: u32) -> Option<Self> {
        let ParityTerms {
            rule, loss, room, ..
        } = terms;
        if covered == 0 {
            return None;
        }
        let few = (covered / FEW_PER_PARITY_FAR).min(terms.among / SEGMENTS_PER_PARITY_FAR);
        let room = room.min(few.max(covered / COVERED_PER_PARITY_FAR));
        let bound = |covered_per_parity: u32| room.max(covered / covered_per_parity).max(1);
        let (wanted, most) = match rule {
            ParityRule::Auto if loss > 0.0 => {
                // Of c columns with n / c segments each, n^2 p^2 / 2c lack two.
                let pairs = (f64::from(covered) * loss).powi(2) / 2.0;
                let most = bound(COVERED_PER_PARITY);
                let unrestored = match most == room {
                    true => UNRESTORED_FAR,
                    false => UNRESTORED,
                };
                ((pairs / unrestored).ceil().max(1.0) as u32, most)
            }
            ParityRule::Share(share) if !share.is_none() => {
                let wanted = share.of_rounded_up(covered.into()) as u32;
                (wanted, wanted)
            }
            _ => return None,
        };
        let side = covered.isqrt().next_power_of_two().min(GROUP_MAX);
        let with_rows = side + covered.div_ceil(side);
        let has_rows = rule == ParityRule::Auto
            && wanted > with_rows
            && with_rows <= bound(COVERED_PER_PARITY_WITH_ROWS);
        let columns = match has_rows {
            true => side,
            false => wanted.clamp(1, most),
        };
        let rounded = columns.next_power_of_two();
        let columns_log2 = rounded.ilog2() - u32::from(rounded > most);
        Some(Self {
            columns_log2: (columns_log2 as u8).min(COLUMNS_LOG2_MAX),
            has_rows,
        })
    }

    /// With this many columns that no group of this many segments has more than [`GROUP_MAX`].
    pub(crate) fn within_groups(self, segments: u32) -> Self {
        let least = segments.div_ceil(GROUP_MAX).next_power_of_two().ilog2();
        Self {
            columns_log2: self.columns_log2.max(least as u8),
            ..self
        }
    }

    /// The layout as four bits of a header; 0 stands for none.
    pub(crate) fn to_bits(layout: Option<Self>) -> u8 {
        layout.map_or(0, |layout| {
            (layout.columns_log2 + 1) << 1 | u8::from(layout.has_rows)
        })
    }

    /// The layout of a header's bits; `None` also for bits that stand for none.
    pub(crate) fn from_bits(bits: u8) -> Option<Self> {
        let columns_log2 = (bits >> 1).checked_sub(1)?;
        (columns_log2 <= COLUMNS_LOG2_MAX).then_some(Self {
            columns_log2,
            has_rows: bits & 1 == 1,
        })
    }

    fn columns(self) -> u32 {
        1 << self.columns_log2
    }

    /// The groups of a segment in a message of `segments`; `None` if it can have none there.
    pub(crate) fn groups(self, segments: u32, segment: u32) -> Option<ParityGroups> {
        let start = window_start(segments);
        if !(start..segments).contains(&segment) {
            return None;
        }
        let row = (segment >> self.columns_log2) - (start >> self.columns_log2);
        Some(ParityGroups {
            column: ParityGroup(segment & (self.columns() - 1)),
            row: self.has_rows.then_some(ParityGroup(self.columns() + row)),
        })
    }

    /// The number of groups in a message of `segments`.
    pub(crate) fn group_count(self, segments: u32) -> u32 {
        let last = self.groups(segments, segments.saturating_sub(1));
        let row = last.and_then(|groups| groups.row);
        row.map_or_else(|| self.columns(), |row| row.0 + 1)
    }

    /// The segments that a group of a message of `segments` can have.
    pub(crate) fn candidates(self, segments: u32, group: ParityGroup) -> impl Iterator<Item = u32> {
        let start = window_start(segments);
        let columns = self.columns();
        let (first, step, end) = match group.0.checked_sub(columns) {
            None => {
                let first = start.next_multiple_of(columns) + group.0;
                let before = first.checked_sub(columns).filter(|&before| before >= start);
                (before.unwrap_or(first), columns, segments)
            }
            Some(row) => {
                let first = ((start >> self.columns_log2) + row) << self.columns_log2;
                (first.max(start), 1, (first + columns).min(segments))
            }
        };
        (first..end.max(first)).step_by(step as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layouts() -> impl Iterator<Item = ParityLayout> {
        (0..=COLUMNS_LOG2_MAX).flat_map(|columns_log2| {
            [false, true].map(|has_rows| ParityLayout {
                columns_log2,
                has_rows,
            })
        })
    }

    #[test]
    fn a_layout_survives_the_wire() {
        for layout in layouts() {
            let bits = ParityLayout::to_bits(Some(layout));
            assert!((1..16).contains(&bits), "{layout:?}");
            assert_eq!(ParityLayout::from_bits(bits), Some(layout));
        }
        assert_eq!(ParityLayout::from_bits(0), None);
        assert_eq!(ParityLayout::from_bits(31), None);
    }

    #[test]
    fn each_segment_of_the_window_is_a_candidate_of_just_its_groups() {
        for segments in [1, 7, 64, 4096, 4097, 10_000] {
            for layout in layouts() {
                let mut found = 0;
                for group in (0..layout.group_count(segments)).map(ParityGroup) {
                    for segment in layout.candidates(segments, group) {
                        let groups = layout.groups(segments, segment).expect("in the window");
                        assert!(groups.iter().any(|of| of == group), "{layout:?} {segment}");
                        found += 1;
                    }
                }
                let window = segments.min(PARITY_WINDOW);
                let each = 1 + u32::from(layout.has_rows);
                assert_eq!(found, window * each, "{layout:?} of {segments}");
            }
        }
    }

    fn near(rule: ParityRule, loss: f64) -> ParityTerms {
        ParityTerms {
            rule,
            loss,
            room: 0,
            among: 0,
        }
    }

    #[test]
    fn clean_paths_and_jobs_without_parity_have_none() {
        let share = Share::new(0.1).expect("a share");
        let chosen = |rule, loss| ParityLayout::choose(near(rule, loss), 100);
        assert_eq!(chosen(ParityRule::Auto, 0.0), None);
        assert_eq!(chosen(ParityRule::None, 0.1), None);
        assert!(chosen(ParityRule::Share(share), 0.0).is_some());
    }

    /// The share of trials in which losses of this share leave a segment that parity does not
    /// restore, without and with parity, and parity packets for each covered segment.
    fn trial(covered: u32, terms: ParityTerms) -> (f64, f64, f64) {
        use rand::{RngExt, SeedableRng};
        let layout = ParityLayout::choose(terms, covered).expect("it is lossy");
        let loss = terms.loss;
        let groups = layout.group_count(covered);
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(u64::from(covered));
        let (mut lossy, mut unrestored) = (0, 0);
        const TRIALS: u32 = 2000;
        for _ in 0..TRIALS {
            let mut lost: Vec<u32> = (0..covered).filter(|_| random.random_bool(loss)).collect();
            let parity: Vec<ParityGroup> = (0..groups)
                .map(ParityGroup)
                .filter(|_| !random.random_bool(loss))
                .collect();
            lossy += u32::from(!lost.is_empty());
            loop {
                let before = lost.len();
                for &group in &parity {
                    let of_group = |segment: &u32| {
                        let groups = layout.groups(covered, *segment).expect("in the window");
                        groups.iter().any(|of| of == group)
                    };
                    if lost.iter().filter(|segment| of_group(segment)).count() == 1 {
                        lost.retain(|segment| !of_group(segment));
                    }
                }
                if lost.len() == before {
                    break;
                }
            }
            unrestored += u32::from(!lost.is_empty());
        }
        let share = |count: u32| f64::from(count) / f64::from(TRIALS);
        (
            share(lossy),
            share(unrestored),
            f64::from(groups) / f64::from(covered),
        )
    }

    #[test]
    fn most_lost_ends_are_restored_for_a_few_packets() {
        for (covered, loss, most_left, most_parity) in [
            (12, 0.01, 0.25, 0.09),
            (64, 0.01, 0.35, 0.02),
            (200, 0.001, 0.3, 0.03),
            (200, 0.01, 0.4, 0.06),
            (700, 0.01, 0.05, 0.08),
            (3000, 0.01, 0.05, 0.05),
            (700, 0.03, 0.2, 0.08),
        ] {
            let (without, with, parity) = trial(covered, near(ParityRule::Auto, loss));
            assert!(
                with < without * most_left && parity <= most_parity,
                "{covered} segments, {loss}: {without} -> {with}, parity {parity}"
            );
        }
    }

    #[test]
    fn few_covered_segments_of_a_long_message_get_as_much_as_they_need() {
        let waits = |among| {
            let terms = ParityTerms {
                room: 1_000,
                among,
                ..near(ParityRule::Auto, 0.03)
            };
            trial(40, terms)
        };
        let ((_, alone, _), (_, among_others, parity)) = (waits(0), waits(400));
        assert!(
            among_others < 0.03 && among_others < alone / 2.0 && parity <= 0.5,
            "{alone}, {among_others} wait, parity {parity}"
        );
    }

    #[test]
    fn where_a_round_trip_costs_much_more_hardly_any_end_waits_for_one() {
        for (covered, loss, most_left, most_parity) in [
            (12, 0.03, 0.2, 0.25),
            (64, 0.01, 0.1, 0.13),
            (200, 0.01, 0.05, 0.16),
            (200, 0.03, 0.05, 0.16),
            (700, 0.03, 0.2, 0.08),
        ] {
            let room = 1_000;
            let terms = ParityTerms {
                room,
                ..near(ParityRule::Auto, loss)
            };
            let (_, with, parity) = trial(covered, terms);
            assert!(
                with < most_left && parity <= most_parity,
                "{covered} segments, {loss}: {with} wait, parity {parity}"
            );
        }
    }
}
