//! The counters of `show interfaces queue`.

use crate::counters::QueueCount;
use crate::notation::set_lines::WHAT;
use crate::reading::ReadError;

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
