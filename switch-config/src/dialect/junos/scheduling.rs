//! How queues are put in order on each model.

/// How queues of a model are put in order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Scheduling {
    /// All are strict-high, in one forwarding class set; the higher number goes first.
    StrictSet,
    /// Each has a priority of its own; the scheduler map is bound to the port.
    Levels,
}

/// The priorities that a scheduler can have where each queue has its own, first served first.
pub(super) const LEVELS: [&str; 5] = ["strict-high", "high", "medium-high", "medium-low", "low"];

/// How queues of a version are put in order.
pub(super) fn scheduling(version: &str) -> Scheduling {
    match version {
        "qfx5100" => Scheduling::StrictSet,
        _ => Scheduling::Levels,
    }
}
