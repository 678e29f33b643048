//! An offset for the clock of each host, so that no message arrives before it left.
//!
//! Two hosts' clocks differ by a constant `d` (theirs minus ours). For each message from us to
//! them, its first packet arrives after it left: `d <= arrived - left`, both read as they were
//! noted. Its acknowledgement comes after all has arrived: `d >= all arrived - acknowledged`. The
//! same holds in the other direction with the signs changed. So the messages between two hosts
//! bound `d` from both sides, as closely as the fastest message and the fastest acknowledgement
//! took (Hu et al., dPRO, MLSys 2022, aligns by the first bound only; acknowledgements give the
//! second).
//!
//! - Bounds add up along paths of hosts. The tightest are shortest paths (difference constraints).
//! - The offset of a host is the middle between its bounds, and half of their distance the
//!   uncertainty.
//! - A long run is cut into windows. If the offsets of windows lie on a line steeper than their
//!   uncertainty, the clock drifts, and the offset follows the line.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::run::{MatchedMessage, TracedRun};

/// Windows of a run at most, and the least time of one in microseconds.
const WINDOWS_MAX: f64 = 64.0;
const WINDOW_US_MIN: f64 = 2e5;
/// No clock of a computer drifts more than this; one that seems to was set.
const DRIFT_PPM_MAX: f64 = 500.0;
/// Bounds that contradict each other by less than this are rounding, in microseconds.
const SLACK_US: f64 = 1.0;

/// The clock of a host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AlignedClock {
    /// The host.
    pub host: String,
    /// Its clock minus that of the first host, in microseconds, at the start of the run.
    pub offset_us: f64,
    /// The offset is certain up to this.
    pub within_us: f64,
    /// By how many microseconds a second its clock runs ahead of the first host's.
    pub drift_ppm: f64,
}

/// The clocks of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AlignedClocks {
    /// Hosts in the order of their names.
    pub hosts: Vec<AlignedClock>,
    /// Messages that both ends recorded.
    pub messages: usize,
    /// The start of the run, in microseconds of the first host.
    pub begin_us: f64,
}

/// Why clocks cannot be aligned.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ClockError {
    /// Hosts without messages between them.
    #[error(
        "no message between {one} and {other} has both of its ends in the trace, not even by way \
         of other hosts: record steps in which all ranks exchange gradients"
    )]
    Apart {
        /// The first host.
        one: String,
        /// The other.
        other: String,
    },
    /// Messages that would have arrived before they left, whatever the offset.
    #[error(
        "the clocks of {one} and {other} contradict each other by {by_us:.1} us: by some messages \
         {other} is ahead by at least {least_us:.1} us, by others by at most {most_us:.1} us; was \
         a clock set while the run was recorded? Record again"
    )]
    Contradiction {
        /// The first host.
        one: String,
        /// The other.
        other: String,
        /// By how much.
        by_us: f64,
        /// The least difference that some messages allow.
        least_us: f64,
        /// The greatest that others allow.
        most_us: f64,
    },
}

/// The least and greatest difference of clocks, by the two hosts.
type Bounds = BTreeMap<(usize, usize), (f64, f64)>;

impl AlignedClocks {
    /// The clocks of the hosts of a run.
    ///
    /// # Errors
    /// [`ClockError`] names the two hosts.
    pub fn of(run: &TracedRun) -> Result<Self, ClockError> {
        let hosts: BTreeSet<&str> = run.head.ranks.values().map(String::as_str).collect();
        let hosts: Vec<&str> = hosts.into_iter().collect();
        let place = |rank: u32| hosts.binary_search(&run.host(rank)).unwrap_or_default();
        let messages = run.messages();
        let between = messages.iter();
        let pairs = between.map(|one| ((place(one.message.from), place(one.message.to)), one));
        let pairs: Vec<_> = pairs.filter(|((from, to), _)| from != to).collect();
        let begin = messages
            .iter()
            .map(|one| one.sent.0)
            .fold(f64::MAX, f64::min);
        let end = messages.iter().map(|one| one.sent.1).fold(begin, f64::max);
        let count = ((end - begin) / WINDOW_US_MIN)
            .clamp(1.0, WINDOWS_MAX)
            .floor();
        let width = (end - begin) / count;
        let mut windows = Vec::new();
        for window in 0..count as u32 {
            let from = begin + f64::from(window) * width;
            let to = from + width * (1.0 + f64::EPSILON);
            let inside = pairs
                .iter()
                .filter(|(_, one)| (from..=to).contains(&one.sent.0));
            let bounds = bounds(inside.copied());
            match offsets(&hosts, &bounds) {
                Ok(offsets) => windows.push((f64::midpoint(from, to), offsets)),
                Err(ClockError::Apart { .. }) if count > 1.0 => {}
                Err(error) => return Err(error),
            }
        }
        if windows.is_empty() {
            windows.push((begin, offsets(&hosts, &bounds(pairs.into_iter()))?));
        }
        let clock = |(place, host): (usize, &&str)| {
            let points = windows
                .iter()
                .map(|(at, offsets)| (*at - begin, offsets[place]));
            let points: Vec<_> = points.collect();
            let clock = AlignedClock::through(host, &points);
            clock.check(hosts[0], &points)?;
            Ok(clock)
        };
        let clocks = hosts.iter().enumerate().map(clock);
        Ok(Self {
            hosts: clocks.collect::<Result<_, ClockError>>()?,
            messages: messages.len(),
            begin_us: if begin == f64::MAX { 0.0 } else { begin },
        })
    }

    /// Moves the events of a run to the clock of its first host.
    pub fn apply(&self, run: &mut TracedRun) {
        let ranks = run.head.ranks.clone();
        let clocks = ranks.into_iter().filter_map(|(rank, host)| {
            let clock = self.hosts.iter().find(|clock| clock.host == host)?;
            Some((rank, (clock.offset_us, clock.drift_ppm)))
        });
        let clocks: BTreeMap<u32, (f64, f64)> = clocks.collect();
        run.shift(|rank, at| {
            let (offset, drift) = clocks.get(&rank).copied().unwrap_or_default();
            -(offset + (at - self.begin_us) * drift / 1e6)
        });
    }
}

impl AlignedClock {
    /// The line through (time, (offset, uncertainty)); flat unless its slope is certain.
    fn through(host: &str, points: &[(f64, (f64, f64))]) -> Self {
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, (f64, f64))) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (time, offset, within) = (mean(|p| p.0), mean(|p| p.1.0), mean(|p| p.1.1));
        let spread: f64 = points.iter().map(|p| (p.0 - time).powi(2)).sum();
        let together: f64 = points.iter().map(|p| (p.0 - time) * (p.1.0 - offset)).sum();
        let slope = if points.len() > 2 {
            together / spread
        } else {
            0.0
        };
        let length = points.last().map_or(0.0, |p| p.0) - points[0].0;
        let slope = if (slope * length).abs() > within {
            slope
        } else {
            0.0
        };
        Self {
            host: host.to_owned(),
            offset_us: offset - slope * time,
            within_us: within,
            drift_ppm: slope * 1e6,
        }
    }

    /// Refuses a clock that was set: its offsets lie on no line.
    fn check(&self, first: &str, points: &[(f64, (f64, f64))]) -> Result<(), ClockError> {
        let off = |&(time, (offset, within)): &(f64, (f64, f64))| {
            let line = self.offset_us + time * self.drift_ppm / 1e6;
            (offset - line).abs() - within
        };
        let by_us = points.iter().map(off).fold(f64::MIN, f64::max);
        if by_us <= self.within_us + SLACK_US && self.drift_ppm.abs() <= DRIFT_PPM_MAX {
            return Ok(());
        }
        let least = points.iter().map(|(_, (offset, within))| offset - within);
        let most = points.iter().map(|(_, (offset, within))| offset + within);
        let (least_us, most_us) = (
            least.fold(f64::MIN, f64::max),
            most.fold(f64::MAX, f64::min),
        );
        Err(ClockError::Contradiction {
            one: first.to_owned(),
            other: self.host.clone(),
            by_us: (least_us - most_us).abs(),
            least_us,
            most_us,
        })
    }
}

fn bounds<'a>(messages: impl Iterator<Item = ((usize, usize), &'a MatchedMessage)>) -> Bounds {
    let mut bounds: Bounds = BTreeMap::new();
    for ((from, to), one) in messages {
        let (most, least) = (one.received.0 - one.sent.0, one.received.1 - one.sent.1);
        let pair = bounds.entry((from, to)).or_insert((f64::MIN, f64::MAX));
        *pair = (pair.0.max(least), pair.1.min(most));
    }
    bounds
}

/// The offset of each host from the first one, and how certain it is.
fn offsets(hosts: &[&str], bounds: &Bounds) -> Result<Vec<(f64, f64)>, ClockError> {
    let count = hosts.len();
    // `far[a][b]` is the most that the clock of b is ahead of that of a.
    let mut far = vec![vec![f64::INFINITY; count]; count];
    for (&(from, to), &(least, most)) in bounds {
        far[from][to] = far[from][to].min(most);
        far[to][from] = far[to][from].min(-least);
    }
    for one in 0..count {
        far[one][one] = 0.0;
        for other in 0..one {
            check(hosts, &far, (other, one))?;
        }
    }
    for by in 0..count {
        for from in 0..count {
            for to in 0..count {
                far[from][to] = far[from][to].min(far[from][by] + far[by][to]);
            }
        }
    }
    for one in 0..count {
        for other in 0..one {
            check(hosts, &far, (other, one))?;
        }
    }
    let offset = |host: usize| {
        let (most, least) = (far[0][host], -far[host][0]);
        match most.is_finite() && least.is_finite() {
            true => Ok((f64::midpoint(most, least), ((most - least) / 2.0).max(0.0))),
            false => Err(ClockError::Apart {
                one: hosts[0].to_owned(),
                other: hosts[host].to_owned(),
            }),
        }
    };
    (0..count).map(offset).collect()
}

fn check(hosts: &[&str], far: &[Vec<f64>], (one, other): (usize, usize)) -> Result<(), ClockError> {
    let (most, least) = (far[one][other], -far[other][one]);
    match least - most > SLACK_US {
        false => Ok(()),
        true => Err(ClockError::Contradiction {
            one: hosts[one].to_owned(),
            other: hosts[other].to_owned(),
            by_us: least - most,
            least_us: least,
            most_us: most,
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::event::{Category, EventArgs, MessageArgs, TraceEvent, TraceHead};

    /// Messages of 20 us one way between neighbours of a circle, acknowledged after 10 us, noted by
    /// clocks with these offsets and drifts.
    fn run(clocks: &[(f64, f64)], seconds: u32) -> TracedRun {
        let count = clocks.len() as u32;
        let mut events = Vec::new();
        for sequence in 0..seconds * 4 {
            let at = f64::from(sequence) * 250_000.0;
            for from in 0..count {
                for to in [(from + 1) % count, (from + count - 1) % count] {
                    let message = MessageArgs {
                        group: 0,
                        sequence,
                        part: 0,
                        from,
                        to,
                        bytes: 1_000,
                    };
                    for (rank, times) in [(from, (0.0, 35.0)), (to, (20.0, 25.0))] {
                        let (offset, drift) = clocks[rank as usize];
                        let noted = |time: f64| (at + time) * (1.0 + drift / 1e6) + offset;
                        let times = (noted(times.0), noted(times.1));
                        let args = EventArgs {
                            rank,
                            message: Some(message),
                            ..EventArgs::default()
                        };
                        events.push(TraceEvent::new(Category::Comm, "bucket.SEND", times, args));
                    }
                }
            }
        }
        let ranks = (0..count).map(|rank| (rank, format!("host{rank}")));
        let head = TraceHead {
            ranks: ranks.collect::<BTreeMap<_, _>>(),
            world_size: count,
            ..TraceHead::default()
        };
        TracedRun { head, events }
    }

    #[test]
    fn offsets_of_milliseconds_are_recovered() {
        let clocks: Vec<(f64, f64)> = (0..8)
            .map(|host| (f64::from(host * 1_700 % 9_001) - 4_000.0, 0.0))
            .collect();
        let mut traced = run(&clocks, 1);
        let aligned = AlignedClocks::of(&traced).expect("the clocks agree");
        for (clock, (offset, _)) in aligned.hosts.iter().zip(&clocks) {
            let real = offset - clocks[0].0;
            assert!(
                (clock.offset_us - real).abs() <= clock.within_us + 1e-6,
                "{clock:?}, {real}"
            );
            assert!(clock.within_us < 50.0, "{clock:?}");
        }
        aligned.apply(&mut traced);
        let again = AlignedClocks::of(&traced).expect("they still agree");
        assert!(
            again.hosts.iter().all(|clock| clock.offset_us.abs() < 1e-6),
            "{again:?}"
        );
    }

    #[test]
    fn a_clock_that_drifts_is_found_in_windows() {
        let aligned = AlignedClocks::of(&run(&[(0.0, 0.0), (500.0, 40.0), (0.0, 0.0)], 12));
        let aligned = aligned.expect("the clocks agree within a second");
        assert!(
            (aligned.hosts[1].drift_ppm - 40.0).abs() < 2.0,
            "{aligned:?}"
        );
        assert!(
            (aligned.hosts[1].offset_us - 500.0).abs() < 20.0,
            "{aligned:?}"
        );
        assert_eq!(aligned.hosts[2].drift_ppm, 0.0);
    }

    #[test]
    fn a_clock_that_was_set_is_named_with_its_partner() {
        let mut traced = run(&[(0.0, 0.0), (0.0, 0.0)], 1);
        let late = traced
            .events
            .iter_mut()
            .filter(|event| event.args.rank == 1);
        for event in late.filter(|event| event.ts > 400_000.0) {
            event.ts += 3_000.0;
        }
        let error = AlignedClocks::of(&traced)
            .expect_err("it was set back")
            .to_string();
        assert!(
            error.starts_with("the clocks of host0 and host1 contradict"),
            "{error}"
        );
    }

    #[test]
    fn hosts_without_messages_between_them_are_named() {
        let mut traced = run(&[(0.0, 0.0), (0.0, 0.0), (0.0, 0.0)], 1);
        traced.events.retain(|event| {
            event
                .args
                .message
                .is_some_and(|message| message.from != 2 && message.to != 2)
        });
        let error = AlignedClocks::of(&traced)
            .expect_err("host2 is apart")
            .to_string();
        assert!(error.contains("between host0 and host2"), "{error}");
    }
}
