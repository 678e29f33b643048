//! The links of a run, as its messages show them: the rate of each host's link in both directions,
//! and the time of one way.
//!
//! A message counts from when its first packet left until its last one did, which is one way before
//! it arrived. If its receiver posted it later, its unscheduled start went before, and only the
//! rest counts, from then on: a replay lets that wait, too. A capacity has the headers,
//! acknowledgements and pauses that the run had. Shorter stretches of the run have hardly any
//! pauses: the difference is time of the hosts, which stays when a link becomes faster or slower.

use std::collections::BTreeMap;

use gradwire_netsim::fluid::FluidLink;
use gradwire_protocol::job::notation;
use gradwire_protocol::units::{Rate, Span};

use crate::event::{MessageArgs, TraceEvent};
use crate::link_use::{LinkMessage, LinkRates, LinkUse, median};
use crate::run::{MatchedMessage, TracedRun};

/// A host that neither sent nor received has this link, which is not used.
const UNUSED: Rate = Rate::from_gbps(1_000);
/// Messages up to this length show how long one way takes.
const SHORT_BYTES: u32 = 16 << 10;

/// The links of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct TracedNetwork {
    /// The link of each rank.
    pub links: Vec<FluidLink>,
    /// The same links without pauses; never slower.
    pub busiest: Vec<FluidLink>,
    /// The rate that links are known to have, or else that of the fastest one.
    pub nominal: Rate,
    /// From the last bit of a message on its link until it has arrived.
    pub one_way: Span,
}

impl TracedNetwork {
    /// The links that the messages of an aligned run show.
    pub fn of(run: &TracedRun) -> Self {
        let mut sides: BTreeMap<(u32, bool), LinkUse> = BTreeMap::new();
        let messages = run.messages();
        let way = one_way(&messages);
        let (posted, unscheduled) = (posted(run), unscheduled(run));
        for one in &messages {
            let mut bytes = f64::from(one.message.bytes);
            let mut left = one.sent.0;
            let late = posted.get(&one.message).filter(|&&at| at > left);
            if let Some(&at) = late.filter(|_| bytes > unscheduled) {
                (left, bytes) = (at.min(one.received.1 - way), bytes - unscheduled);
            }
            // A replay adds one way to the time on the link. On a busy host one way may take as
            // long as other messages in all.
            let way = way.min((one.received.1 - left) / 2.0);
            let message = LinkMessage {
                times: (left, one.received.1 - way),
                bits: bytes * 8.0,
            };
            for side in [(one.message.from, true), (one.message.to, false)] {
                sides.entry(side).or_default().add(one.step, message);
            }
        }
        let nominal = run.head.gbps.map_or(f64::MAX, |gbps| gbps * 1e3);
        let rates: BTreeMap<_, LinkRates> = (sides.into_iter())
            .filter_map(|(side, of_link)| Some((side, of_link.rates()?)))
            .collect();
        let best = rates.values().map(LinkRates::kept).fold(0.0, f64::max);
        let links_by = |rate: &dyn Fn(&LinkRates) -> f64| {
            let capacity = |side: (u32, bool)| match rates.get(&side) {
                Some(rates) => Rate::from_bits_per_second((rate(rates).min(nominal) * 1e6) as u64),
                None => UNUSED,
            };
            let ranks = 0..run.head.world_size;
            let links = ranks.map(|rank| FluidLink {
                up: capacity((rank, true)),
                down: capacity((rank, false)),
            });
            links.collect::<Vec<FluidLink>>()
        };
        let (links, busiest) = (
            links_by(&|rates| rates.capacity(best)),
            links_by(&|rates| rates.busiest),
        );
        let used = links.iter().flat_map(|link| [link.up, link.down]);
        let fastest = used.filter(|rate| *rate != UNUSED).max().unwrap_or(UNUSED);
        let known = run
            .head
            .gbps
            .map(|gbps| Rate::from_bits_per_second((gbps * 1e9) as u64));
        Self {
            links,
            busiest,
            nominal: known.unwrap_or(fastest),
            one_way: Span::from_picos((way * 1e6) as u64),
        }
    }

    /// Makes the wires of all links this many times as fast.
    pub fn speed_up(&mut self, times: f64) {
        for (link, busiest) in self.links.iter_mut().zip(&mut self.busiest) {
            link.up = sped_up(link.up, busiest.up, times);
            link.down = sped_up(link.down, busiest.down, times);
            busiest.up = scaled(busiest.up, times);
            busiest.down = scaled(busiest.down, times);
        }
        self.nominal = scaled(self.nominal, times);
    }
}

/// When each message's receiver began the collective that it belongs to, in microseconds.
fn posted(run: &TracedRun) -> BTreeMap<MessageArgs, f64> {
    // Two jobs on the same ranks have the same names in groups of their own.
    let key = |event: &TraceEvent, group: u32, before: &str| {
        let (name, _) = event.subject().split_once(before)?;
        Some((event.args.rank, event.args.step, group, name.to_owned()))
    };
    let collectives = run.events.iter().filter_map(|event| {
        let operation = event.args.operation.as_ref()?;
        let before = format!(".{}", operation.kind.to_uppercase());
        Some((key(event, operation.group, &before)?, event.ts))
    });
    let began: BTreeMap<_, f64> = collectives.collect();
    let messages = run.events.iter().filter_map(|event| {
        let message = event.args.message?;
        let began = began.get(&key(event, message.group.into(), ".RECV~>")?)?;
        Some((message, *began))
    });
    messages.collect()
}

/// Bytes that are sent before their receiver has posted a message.
fn unscheduled(run: &TracedRun) -> f64 {
    let key = run.head.keys.get("transport.unscheduled");
    let bytes = key.and_then(|text| notation::size(text.trim_matches('"')));
    bytes.map_or(0.0, |bytes| bytes.get() as f64)
}

/// A rate times a number.
fn scaled(rate: Rate, times: f64) -> Rate {
    Rate::from_bits_per_second((rate.as_bits_per_second() as f64 * times).max(1.0) as u64)
}

/// The rate of a link with a faster wire: a bit takes as much of the hosts' time as before.
fn sped_up(rate: Rate, busiest: Rate, times: f64) -> Rate {
    let per_bit = |rate: Rate| 1.0 / rate.as_bits_per_second().max(1) as f64;
    let pause = (per_bit(rate) - per_bit(busiest)).max(0.0);
    let now = pause + per_bit(busiest) / times;
    Rate::from_bits_per_second((1.0 / now).max(1.0) as u64)
}

/// How long one way takes, in microseconds: the median of short messages.
fn one_way(messages: &[MatchedMessage]) -> f64 {
    let short = messages
        .iter()
        .filter(|one| one.message.bytes <= SHORT_BYTES);
    let ways = short.map(|one| one.received.1 - one.sent.0);
    median(ways.collect()).unwrap_or_default().max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Category, EventArgs, OperationArgs, TraceHead};

    #[test]
    fn pauses_of_hosts_stay_when_the_wire_changes() {
        let link = |rate| FluidLink {
            up: rate,
            down: rate,
        };
        let mut network = TracedNetwork {
            links: vec![link(Rate::from_gbps(8))],
            busiest: vec![link(Rate::from_gbps(10))],
            nominal: Rate::from_gbps(10),
            one_way: Span::ZERO,
        };
        network.speed_up(0.25);
        // 25 ps a bit are pauses: 1/8 - 1/10 ns; the wire takes 400 in place of 100.
        let now = network.links[0].up.as_bits_per_second() as f64;
        assert!((now / (1e12 / 425.0) - 1.0).abs() < 1e-6, "{now}");
        assert_eq!(
            network.busiest[0].down,
            Rate::from_bits_per_second(2_500_000_000)
        );
    }

    /// An event of rank 0 or 1 that lasts from `times.0` to `times.1`, in microseconds.
    fn event(rank: u32, name: &str, times: (f64, f64), args: EventArgs) -> TraceEvent {
        let args = EventArgs { rank, ..args };
        TraceEvent::new(Category::Comm, name, times, args)
    }

    /// The rate up from rank 0 of a message of 1 MB to rank 1, which takes ten milliseconds there,
    /// and whose all-reduce rank 1 begins in the last of them.
    fn rate_up(more: Vec<TraceEvent>) -> f64 {
        let sent = EventArgs {
            message: Some(MessageArgs {
                group: 0,
                sequence: 1,
                part: 0,
                from: 0,
                to: 1,
                bytes: 1_000_000,
            }),
            ..EventArgs::default()
        };
        let mut events = vec![
            event(0, "all-reduce 0.SEND~>0_1_0", (0.0, 1e4), sent.clone()),
            event(1, "all-reduce 0.ALL_REDUCE", (9e3, 1e4), all_reduce(0)),
            event(1, "all-reduce 0.RECV~>0_1_0", (10.0, 1e4), sent),
        ];
        events.extend(more);
        let head = TraceHead {
            world_size: 2,
            ..TraceHead::default()
        };
        let up = TracedNetwork::of(&TracedRun { head, events }).links[0].up;
        up.as_bits_per_second() as f64
    }

    fn all_reduce(group: u32) -> EventArgs {
        EventArgs {
            operation: Some(OperationArgs {
                kind: "all_reduce".to_owned(),
                group,
                bytes: 2_000_000,
                root: None,
                layers: Vec::new(),
            }),
            ..EventArgs::default()
        }
    }

    #[test]
    fn a_message_that_is_posted_late_does_not_slow_its_link() {
        let up = rate_up(Vec::new());
        assert!((up / 8e9 - 1.0).abs() < 0.01, "{up}");
    }

    #[test]
    fn another_job_with_the_same_names_posts_nothing_of_the_first() {
        let other = event(1, "all-reduce 0.ALL_REDUCE", (9_900.0, 1e4), all_reduce(1));
        let up = rate_up(vec![other]);
        assert!((up / 8e9 - 1.0).abs() < 0.01, "{up}");
    }
}
