//! Published figures beside ours, each with its source, and the results of a simple model.

use super::evidence::{CellPoint, SumExchange};

/// Gains of a flow-level model, in percent of speed, at 10, 25, 40 and 100 Gb/s: one worker whose
/// servers are never the bottleneck, gradients at the times of Espresso's V100 tables, a forward
/// pass of 0.523 of its backward pass, 20 us for each part and 50 us of round trip; first in first
/// out against front layers first, the best of four sizes of parts with four credits.
const FLOW_MODEL: [(&str, [f64; 4]); 5] = [
    ("vgg16", [82.0, 95.0, 83.0, 0.0]),
    ("resnet50", [30.0, 0.0, 0.0, 0.0]),
    ("bert-base", [29.0, 41.0, 20.0, 6.0]),
    ("bert-large", [18.0, 31.0, 21.0, 3.0]),
    ("gpt2", [41.0, 13.0, 8.0, 3.0]),
];
const FLOW_RATES: [&str; 4] = ["10G", "25G", "40G", "100G"];

/// Returns the flow-level model's gain at a point, in percent of speed.
pub fn flow_model(point: &CellPoint) -> Option<f64> {
    if point.exchange != SumExchange::Servers {
        return None;
    }
    let (_, gains) = FLOW_MODEL.iter().find(|(name, _)| *name == point.model)?;
    let rate = FLOW_RATES.iter().position(|rate| *rate == point.rate)?;
    Some(gains[rate])
}

/// ByteScheduler's gains for MXNet with parameter servers at 100 Gb/s, 16 to 64 V100 (read off the
/// charts of its README), and the largest in its paper (SOSP'19, abstract).
pub const BYTE_SCHEDULER: &str = "Published (ByteScheduler, SOSP'19): up to +196 %. Its README's \
    charts, MXNet with servers at 100 Gb/s RoCE, 16 to 64 V100, eight to a machine: VGG16 +98 to \
    +127 %, ResNet50 +5 to +16 %, Transformer +34 to +171 %.";

/// Trials of ByteScheduler's search, and the required distance from the best.
pub const SEARCH_TRIALS: usize = 15;

/// Changes of completion times, in percent, in DLCP's simulation of 144 hosts (arXiv 2008.08445):
/// mean and p99, against each reference. The timeouts of its DCTCP are unknown.
pub const DLCP_FCT: [(&str, f64, f64); 3] = [
    ("dctcp", -43.1, -91.8),
    ("dctcp, timeouts of 10 ms", -43.1, -91.8),
    ("pfabric", -35.5, -88.6),
];

/// DLCP's largest gain over the best earlier transport, in percent of speed (its abstract): with
/// servers and in a ring.
pub fn dlcp_speed(exchange: SumExchange) -> f64 {
    match exchange {
        SumExchange::Servers => 84.3,
        SumExchange::Ring => 11.0,
    }
}
