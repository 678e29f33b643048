//! What the reference transports are made of.
//!
//! - [`cargo`]: what their packets carry.
//! - `outbox`: answers on their way out, and what is reported to the simulator.
//! - `scoreboard`: what became of every packet of a flow, at its sender.
//! - `incoming`: which packets of a flow have arrived, at its receiver.
//! - `turns`: flows that may send, one packet each in turn.
//! - `alarms`: one timer per flow, cheap to push back.
//! - [`programmed`]: a host that runs a program too: `manifest` numbers all messages of all
//!   programs before the run, `player` lets a host's begin in their turn.
//!
//! Rules of congestion are not here: each transport has its own.

pub(crate) mod acknowledger;
pub(crate) mod alarms;
pub mod cargo;
pub mod flow_host;
pub(crate) mod incoming;
pub(crate) mod manifest;
pub(crate) mod outbox;
pub(crate) mod player;
pub mod programmed;
pub(crate) mod scoreboard;
#[cfg(test)]
pub(crate) mod star;
pub(crate) mod turns;
