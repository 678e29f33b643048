//! Commands for people, and what their output says.

use crate::counters::QueueCount;
use crate::dialect::contract::Look;
use crate::notation::set_lines::WHAT;
use crate::plan::{Plan, Selection};
use crate::reading::ReadError;

/// How a change is loaded, tried and rolled back.
pub(super) fn procedure() -> Vec<Look> {
    let steps = [
        (
            "configure exclusive",
            "nobody else changes the switch meanwhile",
        ),
        (
            "load set terminal",
            "paste the change, end with Ctrl-D; every line is taken without an error",
        ),
        (
            "show | compare",
            "only class-of-service: names that begin with gradwire, and the ports of the plan",
        ),
        (
            "commit check",
            "configuration check succeeds, and nothing is in force yet; a lossless class on a \
             queue of ours would be refused here",
        ),
        (
            "commit confirmed 5",
            "commit complete; it is taken back by itself after 5 minutes",
        ),
        ("commit", "keeps it, once the looks below are right"),
        (
            "rollback 1",
            "the way back, with `commit` after it; or load the inverse in the same way",
        ),
    ];
    looks_of(steps)
}

/// What to look at after loading.
pub(super) fn looks(plan: &Plan) -> Vec<Look> {
    let mut looks = Vec::new();
    let mut add = |command: String, expect: String| looks.push(Look { command, expect });
    add(
        "show class-of-service forwarding-class".to_owned(),
        "each gradwire class with its queue, and No-Loss disabled".to_owned(),
    );
    add(
        "show class-of-service classifier name gradwire".to_owned(),
        "each DSCP of the job with its class and loss priority".to_owned(),
    );
    for port in &plan.site.ports {
        let (name, rate) = (&port.name, port.rate);
        add(
            format!("show class-of-service interface {name}"),
            format!(
                "scheduler map gradwire-{rate}, classifier gradwire, no congestion \
                     notification profile"
            ),
        );
        add(
            format!("show class-of-service scheduler-map gradwire-{rate}"),
            "the priority of each queue, and the drop profile of each data queue".to_owned(),
        );
        let marks = match plan.selection {
            Selection::Precedence => "RED-dropped packets in data queues only",
            _ => "ECN-CE and RED-dropped packets in data queues only",
        };
        add(
            format!("show interfaces queue {name}"),
            format!("{marks}; save it for `gradwire switch verify --counters`"),
        );
    }
    looks
}

fn looks_of<const N: usize>(steps: [(&str, &str); N]) -> Vec<Look> {
    let look = |(command, expect): (&str, &str)| Look {
        command: command.to_owned(),
        expect: expect.to_owned(),
    };
    steps.into_iter().map(look).collect()
}

/// Counters of `show interfaces queue` of one or several ports: rows of a port begin with
/// `Physical interface: NAME`, of a queue with `Queue: N`.
pub(super) fn counters(text: &str) -> Result<Vec<QueueCount>, ReadError> {
    let mut counts: Vec<QueueCount> = Vec::new();
    let mut port: Option<String> = None;
    let mut is_sent = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let broken = |message: String| ReadError {
            what: "output of `show interfaces queue`",
            line: Some(number + 1),
            message,
        };
        if let Some(rest) = line.strip_prefix("Physical interface:") {
            port = rest
                .split([',', ' '])
                .find(|word| !word.is_empty())
                .map(str::to_owned);
            continue;
        }
        if let Some(rest) = line.strip_prefix("Queue:") {
            let queue = rest.split([',', ' ']).find(|word| !word.is_empty());
            let queue = queue.and_then(|queue| queue.parse().ok());
            let named = port.clone().zip(queue);
            let Some((port, queue)) = named else {
                let message = "a queue without a number, or before any `Physical interface:`";
                return Err(broken(message.to_owned()));
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
        let value = value.map_err(|_| broken(format!("`{values}` is no count")))?;
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
        true => Err(ReadError {
            what: WHAT,
            line: None,
            message: "no counters: expected the output of `show interfaces queue`, or the JSON \
                      form of counters"
                .to_owned(),
        }),
    }
}
