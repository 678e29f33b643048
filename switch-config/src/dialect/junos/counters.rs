//! Commands for people, and the counters that they print.

use crate::counters::QueueCount;
use crate::dialect::contract::{Look, steps};
use crate::notation::set_lines::WHAT;
use crate::plan::{Plan, Selection};
use crate::reading::ReadError;

/// Commands that load a change, try it without effect, and roll it back, each with its result.
pub(super) const PROCEDURE: &str = r#"
configure exclusive
    nobody else changes the switch meanwhile
load set terminal
    paste the change, end with Ctrl-D; every line is taken without an error
show | compare
    only class-of-service: names that begin with gradwire, and the ports of the plan
commit check
    configuration check succeeds, and nothing is in force yet; a lossless class on a queue of
    ours would be refused here
commit confirmed 5
    commit complete; it is taken back by itself after 5 minutes
commit
    keeps it, once the looks below are right
rollback 1
    the way back, with `commit` after it; or load the inverse in the same way
"#;

const MAPS: &str = "
show class-of-service forwarding-class
    each gradwire class with its queue, and No-Loss disabled
show class-of-service classifier name gradwire
    each DSCP of the job with its class and loss priority
";
const PORT: &str = "
show class-of-service interface {port}
    scheduler map gradwire-{rate}, classifier gradwire, no congestion notification profile
show class-of-service scheduler-map gradwire-{rate}
    the priority of each queue, and the drop profile of each data queue
show interfaces queue {port}
    {marks} packets in data queues only; save it for `gradwire switch verify --counters`
";

/// Commands after loading, in order.
pub(super) fn looks(plan: &Plan) -> Vec<Look> {
    let marks = match plan.selection {
        Selection::Precedence => "RED-dropped",
        Selection::Ecn => "ECN-CE and RED-dropped",
    };
    let mut text = MAPS.to_owned();
    for port in &plan.site.ports {
        let port_text = PORT.replace("{port}", &port.name);
        let port_text = port_text.replace("{rate}", &port.rate.to_string());
        text.push_str(&port_text.replace("{marks}", marks));
    }
    steps(&text)
}

/// Counters of `show interfaces queue` of one or several ports: rows of a port begin with
/// `Physical interface: NAME`, of a queue with `Queue: N`.
pub(super) fn counters(text: &str) -> Result<Vec<QueueCount>, ReadError> {
    let mut counts: Vec<QueueCount> = Vec::new();
    let mut port: Option<String> = None;
    let mut is_sent = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let broken =
            |message: &str| ReadError::at("output of `show interfaces queue`", number + 1, message);
        if let Some(rest) = line.strip_prefix("Physical interface:") {
            port = first_word(rest).map(str::to_owned);
            continue;
        }
        if let Some(rest) = line.strip_prefix("Queue:") {
            let queue = first_word(rest).and_then(|queue| queue.parse().ok());
            let named = port.clone().zip(queue);
            let Some((port, queue)) = named else {
                let message = "a queue without a number, or before any `Physical interface:`";
                return Err(broken(message));
            };
            is_sent = false;
            counts.push(QueueCount {
                port,
                queue,
                ..QueueCount::default()
            });
            continue;
        }
        match line {
            "Queued:" => is_sent = false,
            "Transmitted:" => is_sent = true,
            _ => {}
        }
        let Some((name, values)) = line.split_once(':') else {
            continue;
        };
        let (Some(count), true) = (counts.last_mut(), is_sent) else {
            continue;
        };
        let value = values.split_whitespace().next().map(str::parse::<u64>);
        let Some(value) = value else { continue };
        let value = value.map_err(|_| broken(&format!("`{values}` is no count")))?;
        match name.trim() {
            "Packets" => count.sent = value,
            "Tail-dropped packets" => count.full = value,
            "RED-dropped packets" => count.early = Some(value),
            "ECN-CE packets" => count.marked = Some(value),
            _ => {}
        }
    }
    match counts.is_empty() {
        false => Ok(counts),
        true => Err(ReadError::new(
            WHAT,
            "no counters: expected the output of `show interfaces queue`, or the JSON form of \
             counters",
        )),
    }
}

fn first_word(text: &str) -> Option<&str> {
    text.split([',', ' ']).find(|word| !word.is_empty())
}
