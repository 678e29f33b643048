//! The parts that reference transports share.
//!
//! - [`flow_host`]: a host of a reference transport without the rules of its paper.
//! - [`cargo`]: the header fields of their packets.
//! - `outbox`: outgoing answers, and progress that the simulator takes.
//! - `scoreboard`: the fate of every packet of a flow, at its sender.
//! - [`windowed`]: the rules of transports with a window for each flow; `retransmission` is TCP's
//!   timeout.
//! - [`pulled`]: those of transports whose receivers pull; `pulls` is the receiver.
//! - `acknowledger`: a receiver that acknowledges every packet by itself.
//! - `incoming`: which packets of a flow have arrived, at its receiver.
//! - `reps`: entropies that came back unmarked, to be used again; `path_order`: all in turn.
//! - `turns`: flows that may send, one packet each in turn; `paced`: each at a rate of its own.
//! - [`dcqcn`]: these rates, as the transports of RDMA set them.
//! - `alarms`: one timer per flow, cheap to push back.
//! - [`programmed`]: a host that runs a program too: `manifest` numbers all messages of all
//!   programs before the run, `player` lets a host's begin in their turn.
//!
//! Rules of congestion are not here: each transport has its own.

pub(crate) mod acknowledger;
pub(crate) mod alarms;
pub mod cargo;
pub mod dcqcn;
pub mod flow_host;
pub(crate) mod incoming;
pub(crate) mod manifest;
pub(crate) mod outbox;
pub(crate) mod paced;
pub(crate) mod path_order;
pub(crate) mod player;
pub mod programmed;
pub mod pulled;
pub(crate) mod pulls;
pub(crate) mod reps;
pub(crate) mod retransmission;
pub(crate) mod scoreboard;
#[cfg(test)]
pub(crate) mod star;
pub(crate) mod turns;
pub mod windowed;
