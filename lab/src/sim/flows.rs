//! Every flow of a run as a row of CSV, for plots and statistics of your own.

use std::fmt::Write as _;

use gradwire_netsim::results::outcome::FlowOutcome;
use gradwire_netsim::results::statistics::{acknowledged, completion, micros, rounded, slowdown};
use gradwire_protocol::units::Instant;

const COLUMNS: &str = "flow,from,to,bytes,start_us,fct_us,fct_acked_us,slowdown,lost_bytes\n";

/// A line of names, and one for each flow in the order of the workload; a cell is empty where a
/// flow has not begun or not ended. The same run gives the same bytes.
pub fn csv(flows: &[FlowOutcome]) -> String {
    let mut text = COLUMNS.to_owned();
    for flow in flows {
        let start = flow.started.map(|at| micros(at.since(Instant::START)));
        let cells = [
            cell(start),
            cell(completion(flow).map(micros)),
            cell(acknowledged(flow).map(micros)),
            cell(slowdown(flow).map(rounded)),
        ];
        writeln!(
            text,
            "{},{},{},{},{},{}",
            flow.flow,
            flow.source,
            flow.destination,
            flow.bytes.get(),
            cells.join(","),
            flow.lost_bytes
        )
        .expect("text takes text");
    }
    text
}

fn cell(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| format!("{value}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradwire_protocol::units::{ByteCount, Span};

    #[test]
    fn flows_that_have_not_ended_have_empty_cells() {
        let flow = FlowOutcome {
            flow: 3,
            source: 0,
            destination: 7,
            bytes: ByteCount::new(2_000),
            started: None,
            received: None,
            acknowledged: None,
            lost_bytes: 0,
            ideal: Span::ZERO,
        };
        assert_eq!(csv(&[flow]), format!("{COLUMNS}3,0,7,2000,,,,,0\n"));
    }
}
