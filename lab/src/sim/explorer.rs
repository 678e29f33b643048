//! What a reader explores in a report: queues over time, the numbers of a link, the paths of a
//! message.
//!
//! The page carries the values as JSON, and `explorer.js` shows them on the map. Without scripts
//! the map is still there.

use std::collections::BTreeMap;

use gradwire_collectives::journal::MessageSide;
use gradwire_fabric::topology::Device;
use gradwire_netsim::results::outcome::QueueSample;
use gradwire_netsim::results::statistics::{micros, slowdown, utilisation};
use gradwire_protocol::units::{Instant, Span};
use serde_json::{Value, json};

use super::drawn::DrawnRun;
use super::map::{lost, map};
use gradwire_report::svg::escaped;

/// Times at which queues are shown, at most.
const FRAMES_MAX: u64 = 400;
/// Depths of queues in a page, at most: some 2 MB.
const DEPTHS_MAX: usize = 200_000;
/// Messages to choose from: those that took longest.
const MESSAGES_MAX: usize = 300;

/// The script of all explorers of a page.
pub const SCRIPT: &str = include_str!("explorer.js");

/// The map of a run, with what a reader needs to explore it.
pub fn explorer(run: &DrawnRun) -> String {
    let name = escaped(&run.summary.transport);
    // Names of users cannot end the element that holds them.
    let values = values(run).to_string().replace('<', "\\u003c");
    format!(
        "<div class=\"explorer\" data-run=\"{name}\">\n{}\
         <p class=\"controls\" hidden><button type=\"button\">Play</button>\n\
         <label>queues at <input type=\"range\" min=\"0\" step=\"1\"></label> <output></output>\n\
         <label>follow <select><option value=\"\">no message</option></select></label></p>\n\
         <p class=\"shown\" aria-live=\"polite\"></p>\n\
         <script type=\"application/json\">{values}</script>\n</div>\n",
        map(run)
    )
}

/// Devices are numbered from the hosts on: a switch is behind all hosts.
fn values(run: &DrawnRun) -> Value {
    let fabric = &run.loaded.setup.fabric;
    let number = |device: Device| match device {
        Device::Host(host) => host,
        Device::Switch(switch) => fabric.hosts + switch,
    };
    let hosts = (0..fabric.hosts).map(Device::Host);
    let switches = (0..fabric.switches.len() as u32).map(Device::Switch);
    let names = hosts.chain(switches).map(|one| fabric.device_name(one));
    let over = run.time();
    let ports = run.outcome.links.iter().map(|link| {
        let used = (utilisation(link, over) * 1e3).round() / 10.0;
        json!([
            number(link.from),
            number(link.to),
            used,
            lost(link),
            link.peak_queue
        ])
    });
    let every = run.loaded.setup.sample_every.unwrap_or_default();
    let queues = QueueFrames::of(&run.outcome.samples, run.end(), every);
    json!({
        "hosts": fabric.hosts,
        "names": names.collect::<Vec<_>>(),
        "ports": ports.collect::<Vec<_>>(),
        "frame_us": micros(queues.frame),
        "frames": queues.frames,
        "queues": queues.depths,
        "messages": messages(run),
    })
}

/// Queues by stretches of time.
#[derive(Debug, PartialEq)]
struct QueueFrames {
    /// Length of a stretch.
    frame: Span,
    /// How many there are.
    frames: u64,
    /// Of each port the stretches in which its queue was not empty, each followed by its deepest
    /// sample in bytes.
    depths: BTreeMap<u32, Vec<u64>>,
}

impl QueueFrames {
    /// As many stretches as a page can hold.
    fn of(samples: &[QueueSample], end: Span, every: Span) -> Self {
        let mut most = FRAMES_MAX;
        loop {
            let frame = end.divided(most).max(every).max(Span::from_picos(1));
            let depths = depths(samples, frame);
            let held: usize = depths.values().map(|depths| depths.len() / 2).sum();
            if held <= DEPTHS_MAX || most == 1 {
                let frames = end.as_picos() / frame.as_picos() + 1;
                return Self {
                    frame,
                    frames,
                    depths,
                };
            }
            most = (most / 2).max(1);
        }
    }
}

fn depths(samples: &[QueueSample], frame: Span) -> BTreeMap<u32, Vec<u64>> {
    let mut depths: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for sample in samples.iter().filter(|sample| sample.bytes > 0) {
        let at = sample.at.as_picos() / frame.as_picos();
        let of_port = depths.entry(sample.link).or_default();
        match of_port.as_mut_slice() {
            [.., last, deepest] if *last == at => *deepest = sample.bytes.max(*deepest),
            _ => of_port.extend([at, sample.bytes]),
        }
    }
    depths
}

/// A flow, or a message of a collective.
struct FollowedMessage {
    name: String,
    ends: (u32, u32),
    bytes: u64,
    from: Instant,
    to: Instant,
    /// Completion time over the time alone on an idle fabric, where it is known.
    slowdown: Option<f64>,
}

/// Those that took longest, the longest first.
fn messages(run: &DrawnRun) -> Vec<Value> {
    let flows = run.flows().iter().filter_map(|flow| {
        Some(FollowedMessage {
            name: format!("flow {}", flow.flow),
            ends: (flow.source, flow.destination),
            bytes: flow.bytes.get(),
            from: flow.started?,
            to: flow.received?,
            slowdown: slowdown(flow),
        })
    });
    let received = run.outcome.messages.iter();
    let received = received.filter(|one| one.record.side == MessageSide::Received);
    let of_programs = received.map(|one| FollowedMessage {
        name: "message".to_owned(),
        ends: (u32::from(one.record.peer.0), one.host),
        bytes: u64::from(one.record.bytes),
        from: one.record.first,
        to: one.record.last,
        slowdown: None,
    });
    let mut all: Vec<FollowedMessage> = flows.chain(of_programs).collect();
    all.sort_by_key(|one| {
        (
            std::cmp::Reverse(one.to.since(one.from)),
            one.from,
            one.ends,
        )
    });
    all.truncate(MESSAGES_MAX);
    let at = |instant: Instant| micros(instant.since(Instant::START));
    let told = all.iter().map(|one| {
        let (source, destination) = one.ends;
        json!([
            one.name,
            source,
            destination,
            one.bytes,
            at(one.from),
            at(one.to),
            one.slowdown
        ])
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::scenario::Scenario;

    fn run(fabric: &str, workload: &str) -> DrawnRun {
        let scenario = Scenario::new(fabric, workload);
        let loaded = scenario.load().expect("both exist");
        DrawnRun::of(&scenario, loaded, &mut |_| {}).expect("they fit each other")
    }

    fn sample(nanos: u64, link: u32, bytes: u64) -> QueueSample {
        QueueSample {
            at: Instant::START + Span::from_nanos(nanos),
            link,
            bytes,
        }
    }

    #[test]
    fn a_stretch_has_its_deepest_sample() {
        let samples = [
            sample(0, 4, 10),
            sample(900, 4, 70),
            sample(2_000, 4, 5),
            sample(2_100, 7, 0),
        ];
        let depths = depths(&samples, Span::from_micros(1));
        assert_eq!(depths, BTreeMap::from([(4, vec![0, 70, 2, 5])]));
    }

    #[test]
    fn many_depths_have_fewer_stretches() {
        let samples: Vec<QueueSample> = (0..400)
            .flat_map(|at| (0..1_000).map(move |link| sample(at * 1_000, link, 1)))
            .collect();
        let frames = QueueFrames::of(&samples, Span::from_micros(400), Span::from_nanos(200));
        let held: usize = frames.depths.values().map(|depths| depths.len() / 2).sum();
        assert!(held <= DEPTHS_MAX, "{held}");
        assert_eq!(frames.frame, Span::from_micros(2));
    }

    #[test]
    fn flows_and_messages_can_be_followed() {
        let flows = values(&run("single:3@100G", "permutation:20KB"));
        assert_eq!(flows["messages"].as_array().map(Vec::len), Some(3));
        assert_eq!(flows["ports"].as_array().map(Vec::len), Some(6));
        let sums = values(&run("single:3@100G", "all-reduce:64KiB"));
        let messages = sums["messages"].as_array().map_or(0, Vec::len);
        assert!(messages >= 6, "{messages}");
    }

    #[test]
    fn names_cannot_leave_the_values() {
        let mut drawn = run("single:2@100G", "permutation:1KB");
        drawn.loaded.setup.fabric.switches[0].name = "</script>".to_owned();
        assert_eq!(explorer(&drawn).matches("</script>").count(), 1);
    }
}
